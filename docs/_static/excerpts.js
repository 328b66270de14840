// A browser lets no page read other files, so that Sphinx's search has no excerpts where no server runs: here
// they come from texts.js, which the extension of the same name writes.
"use strict";
window.fetch = async (address) => {
  Search.htmlToText = (text) => text;
  const page = address.slice(document.documentElement.dataset.content_root.length);
  return { text: async () => TEXTS[page] ?? "" };
};
