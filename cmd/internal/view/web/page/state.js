// What the user has chosen. The hash has what belongs in a link (filter, row, tab, follow, frames,
// findings, time, picture, columns, zoom), the storage of the browser has preferences (theme,
// split, and the columns once more).
import { readColumns, writeColumns } from "./columns.js";

export const view = {
  filter: "",
  row: "", // CAPTURE/N of the selected row, which survives restarts
  open: false, // the detail is shown
  tab: "summary",
  follow: true,
  frames: false,
  findings: false,
  time: "clock", // clock, start or delta
  columns: new Map(), // by key: whether the user wants a column
  widths: new Map(), // by key, in em
  sort: null, // {key, down}
  zoom: null, // {from, to}: the time that the list shows, in ms
  picture: "", // what is shown in place of the list: "sequence" or "overview"
  of: "", // CAPTURE/SESSION of the sequence; "" means all sessions
};

const listeners = new Map();

// on calls f for each event of a name.
export function on(name, f) {
  if (!listeners.has(name)) listeners.set(name, []);
  listeners.get(name).push(f);
}

// emit calls the listeners of a name.
export function emit(name, value) {
  for (const f of listeners.get(name) || []) f(value);
}

let written = "";
let timer = 0;
let pushes = false; // the next writing makes an entry in the history

// readHash reads the choices from the address. It reports whether the address has changed.
export function readHash() {
  if (location.hash === written && written) return false;
  clearTimeout(timer);
  pushes = false;
  const p = new URLSearchParams(location.hash.slice(1));
  view.filter = p.get("f") || "";
  view.row = p.get("row") || "";
  view.tab = p.get("tab") || "summary";
  view.open = p.has("tab");
  view.follow = p.get("follow") !== "0";
  view.frames = p.get("frames") === "1";
  view.findings = p.get("findings") === "1";
  view.time = ["start", "delta"].includes(p.get("time")) ? p.get("time") : "clock";
  const [, from, to] = /^(\d+)-(\d+)$/.exec(p.get("zoom") || "") || [];
  view.zoom = from && Number(from) < Number(to) ? { from: Number(from), to: Number(to) } : null;
  view.picture = ["sequence", "overview"].includes(p.get("view")) ? p.get("view") : "";
  view.of = p.get("of") || "";
  readColumns(p);
  written = location.hash;
  return true;
}

// writeHash writes the choices into the address, with a delay, because browsers limit the rate.
export function writeHash() {
  clearTimeout(timer);
  timer = setTimeout(writeHashNow, 120);
}

// beginStep makes an entry in the history of what is chosen next: Back undoes it.
export function beginStep() {
  if (timer) writeHashNow();
  pushes = true;
}

function writeHashNow() {
  clearTimeout(timer);
  timer = 0;
  const p = new URLSearchParams();
  if (view.filter) p.set("f", view.filter);
  if (view.row) p.set("row", view.row);
  if (view.open) p.set("tab", view.tab);
  if (!view.follow) p.set("follow", "0");
  if (view.frames) p.set("frames", "1");
  if (view.findings) p.set("findings", "1");
  if (view.time !== "clock") p.set("time", view.time);
  if (view.zoom) p.set("zoom", Math.floor(view.zoom.from) + "-" + Math.ceil(view.zoom.to));
  if (view.picture) p.set("view", view.picture);
  if (view.picture && view.of) p.set("of", view.of);
  writeColumns(p);
  const text = p.toString();
  written = text ? "#" + text : "";
  const step = pushes;
  pushes = false;
  if (written === location.hash) return;
  history[step ? "pushState" : "replaceState"](null, "", written || location.pathname + location.search);
  written = location.hash;
}

// preference returns the stored value of a name, or fallback.
export function preference(name, fallback) {
  try {
    return localStorage.getItem("mcpwire." + name) ?? fallback;
  } catch {
    return fallback;
  }
}

// setPreference stores a value, if the browser allows it.
export function setPreference(name, value) {
  try {
    localStorage.setItem("mcpwire." + name, value);
  } catch {
    // Without storage, the value lasts as long as the page.
  }
}
