// Elements. Whatever comes from captures goes in by textContent or as a text node, and by nothing else.

// h makes an element: props are attributes, but for text (its text), on (listeners by event) and hidden/disabled/checked/value/open, which are set as properties.
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

// svg makes an element of a picture; kids may be elements.
export function svg(tag, attrs, ...kids) {
  const el = document.createElementNS(svgNS, tag);
  for (const [name, value] of Object.entries(attrs || {})) if (value != null) el.setAttribute(name, value);
  el.append(...kids);
  return el;
}

// byId finds an element of the page itself.
export function byId(id) {
  return document.getElementById(id);
}

// reducedMotion tells whether the reader wants no movement.
export function reducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// nextPaint calls f before the next frame, or soon if the page cannot be seen: frames stop then.
export function nextPaint(f) {
  if (document.hidden) setTimeout(f, 250);
  else requestAnimationFrame(f);
}
