// Colours, elements and canvases: what all views share.

// Hues far from each other in a row; the lightness alternates, so that neighbours differ without colour too.
const HUES = [255, 50, 165, 345, 95, 215, 25, 305, 130, 190, 70, 275];
const STOPS = {
  light: ["#ffffff", "#d3e3f6", "#84b2e3", "#3a76bd", "#14427f", "#081d3d"],
  dark: ["#171b21", "#1b3350", "#225d96", "#3f8fd6", "#8cc5f5", "#f2f9ff"],
};
const SHADES = 256;

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function colourOf(head) {
  const lightness = (isDark() ? 0.66 : 0.48) + (head % 2) * 0.15;
  return `oklch(${lightness} 0.15 ${HUES[head % HUES.length]})`;
}

/** SHADES colours from nothing to all, as 32-bit pixels; lightness rises evenly. */
function shades() {
  const stops = STOPS[isDark() ? "dark" : "light"].map((stop) =>
    [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)),
  );
  return Uint32Array.from({ length: SHADES }, (_, shade) => {
    const place = (shade / (SHADES - 1)) * (stops.length - 1);
    const before = Math.min(Math.floor(place), stops.length - 2);
    const [red, green, blue] = stops[before].map((from, channel) =>
      Math.round(from + (stops[before + 1][channel] - from) * (place - before)),
    );
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
}

/** `shades` as CSS has them. */
function shade(value) {
  const pixel = shades()[Math.round(Math.max(0, Math.min(1, value)) * (SHADES - 1))];
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}

function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** An element; text is never markup. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A token as it is read: spaces and breaks are seen. */
function seen(token) {
  return token === "" ? "∅" : token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "␣");
}

function share(weight) {
  if (weight > 0 && weight < 0.0001) return "< 0.01 %";
  return weight >= 0.0995 ? `${Math.round(100 * weight)} %` : `${(100 * weight).toPrecision(2)} %`;
}

/** The canvas's context, cleared, in CSS pixels. */
function fresh(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

/** The `count` largest of `values`: [index, value], the largest first. */
function largest(values, count) {
  return Array.from(values, (value, index) => [index, value])
    .sort((one, other) => other[1] - one[1])
    .slice(0, count);
}
