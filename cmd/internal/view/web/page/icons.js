// The icons of the buttons: paths on a grid of 16, in the color of the text.
import { svg } from "./dom.js";

const iconPaths = {
  pause: "M5 3v10M11 3v10",
  play: "M5 3l8 5-8 5z",
  follow: "M8 2v9M4 7.5L8 11.5l4-4M3 14h10",
  findings: "M8 2.5L14.5 13.5h-13zM8 6.5v3.2M8 11.6v.4",
  frames: "M2.5 5h9M9 2.5L11.5 5 9 7.5M13.5 11h-9M7 8.5L4.5 11 7 13.5",
  tools: "M2.5 13.5h11M4 11V7.5M8 11V3M12 11V5.5",
  run: "M2.500 3h11v10h-11zM6.800 5.800l3.600 2.200-3.600 2.200z",
  sessions: "M2.5 3.5h11v9h-11zM5 10c0-2 3-2 3 0M10 6.5h2M10 9h2M6.5 6.2v.3",
  export: "M8 10V2M5 5l3-3 3 3M3 9.5v4h10v-4",
  help: "M5.5 6c0-3.5 5-3.5 5-.3C10.500 8 8 7.800 8 10M8 12.5v.4",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  rail: "M2.5 3h11M4.500 8h7M6.500 13h3",
  columns: "M2.500 3h11v10h-11zM6.200 3v10M9.800 3v10",
  sequence: "M3.500 2v12M12.500 2v12M3.500 5.500h8M9.500 3.500l2 2-2 2M12.500 10.500h-8M6.500 8.500l-2 2 2 2",
  overview: "M2 13.500h12M2.500 10l3-4 3 2.500 4.500-6",
  star: "M8 2l1.800 3.900 4.200.5-3.100 2.900.8 4.200L8 11.400l-3.700 2.100.8-4.200L2 6.400l4.200-.5z",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.500 5.500h7v8h-7zM3.500 10.500v-8h7",
  shell: "M2.500 4l4 4-4 4M8 12.500h5.500",
  resend: "M13 8a5 5 0 1 1-1.600-3.700M13 2v3h-3",
  edit: "M3 13l.7-3L11 2.700l2.300 2.300L6 12.300z",
  mark: "M4 2.500h8v11l-4-3-4 3z",
  back: "M10 3L5 8l5 5",
  clear: "M5 5l6 6M11 5l-6 6",
};

// putIcons draws the icons of all elements with data-icon.
export function putIcons(root) {
  for (const el of root.querySelectorAll("[data-icon]")) setIcon(el, el.dataset.icon);
}

// setIcon replaces the icon of an element.
export function setIcon(el, name) {
  if (el.iconName === name) return;
  el.iconName = name;
  el.querySelector(":scope > svg")?.remove();
  const filled = name === "play" ? "icon filled" : "icon";
  const pic = svg("svg", { class: filled, viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, svg("path", { d: iconPaths[name] || "" }));
  if (name === "theme") pic.append(svg("path", { class: "fill", d: "M8 2a6 6 0 0 0 0 12z" }));
  el.prepend(pic);
}
