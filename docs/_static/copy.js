// A button that copies commands or code, on each block but output.
"use strict";
const SHOWN = 2000; // milliseconds

// The lines behind Python's prompts, where there are any, without the answers; else the whole text.
function codeIn(text) {
  const lines = text.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line));
  return lines.length ? lines.map((line) => `${line.slice(4)}\n`).join("") : text;
}

function withButton(block) {
  const text = block.querySelector("pre");
  const button = document.createElement("button");
  const say = (words) => {
    button.textContent = words;
    setTimeout(() => (button.textContent = "Copy"), SHOWN);
  };
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(codeIn(text.textContent));
      say("Copied");
    } catch { // without a clipboard, the reader's own keys copy
      getSelection().selectAllChildren(text);
      say("Selected");
    }
  });
  block.append(button);
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll('article [class*="highlight-"]:not(.highlight-text) > .highlight').forEach(withButton);
});
