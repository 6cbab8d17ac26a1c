// Elements. Captured text is only inserted by textContent and as text nodes.

// h returns an element with children. props are attributes, except text, on (listeners by event)
// and the names in asProperty.
export function h(tag, props, ...kids) {
  const el = document.createElement(tag);
  apply(el, props);
  el.append(...kids.filter((k) => k != null && k !== false));
  return el;
}

const asProperty = new Set(["hidden", "disabled", "checked", "value", "open", "tabIndex", "className"]);

function apply(el, props) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value == null || value === false) continue;
    if (name === "text") el.textContent = value;
    else if (name === "on") for (const [event, f] of Object.entries(value)) el.addEventListener(event, f);
    else if (name === "class") el.className = value;
    else if (asProperty.has(name)) el[name] = value;
    else el.setAttribute(name, value === true ? "" : value);
  }
}

const svgNS = "http://www.w3.org/2000/svg";

// svg is like h for elements of SVG. attrs are attributes.
export function svg(tag, attrs, ...kids) {
  const el = document.createElementNS(svgNS, tag);
  for (const [name, value] of Object.entries(attrs || {})) if (value != null) el.setAttribute(name, value);
  el.append(...kids);
  return el;
}

// byId returns an element by its id.
export function byId(id) {
  return document.getElementById(id);
}

// reducedMotion reports whether the user prefers no animations.
export function reducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// nextPaint calls f before the next frame, or in 250 ms if the page is hidden and has no frames.
export function nextPaint(f) {
  if (document.hidden) setTimeout(f, 250);
  else requestAnimationFrame(f);
}
