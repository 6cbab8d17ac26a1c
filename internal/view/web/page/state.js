// What the reader has chosen. The part that makes a link (filter, row, tab, follow, frames, findings, time) is in the hash, taste (theme, split) in the browser's storage.

export const view = {
  filter: "",
  row: "", // CAPTURE/N of the row that is selected: it stays the same over restarts
  open: false, // its detail is shown
  tab: "summary",
  follow: true,
  frames: false,
  findings: false,
  time: "clock", // clock, start or delta
};

const listeners = new Map();

// on calls f whenever name is emitted.
export function on(name, f) {
  if (!listeners.has(name)) listeners.set(name, []);
  listeners.get(name).push(f);
}

// emit calls the listeners of name.
export function emit(name, value) {
  for (const f of listeners.get(name) || []) f(value);
}

let written = "";
let timer = 0;

// readHash takes the choices out of the address.
export function readHash() {
  if (location.hash === written && written) return false;
  const p = new URLSearchParams(location.hash.slice(1));
  view.filter = p.get("f") || "";
  view.row = p.get("row") || "";
  view.tab = p.get("tab") || "summary";
  view.open = p.has("tab");
  view.follow = p.get("follow") !== "0";
  view.frames = p.get("frames") === "1";
  view.findings = p.get("findings") === "1";
  view.time = ["start", "delta"].includes(p.get("time")) ? p.get("time") : "clock";
  written = location.hash;
  return true;
}

// writeHash puts the choices into the address, a moment later: browsers limit how often that may be done.
export function writeHash() {
  clearTimeout(timer);
  timer = setTimeout(writeHashNow, 120);
}

function writeHashNow() {
  const p = new URLSearchParams();
  if (view.filter) p.set("f", view.filter);
  if (view.row) p.set("row", view.row);
  if (view.open) p.set("tab", view.tab);
  if (!view.follow) p.set("follow", "0");
  if (view.frames) p.set("frames", "1");
  if (view.findings) p.set("findings", "1");
  if (view.time !== "clock") p.set("time", view.time);
  const text = p.toString();
  written = text ? "#" + text : "";
  if (written === location.hash) return;
  history.replaceState(null, "", written || location.pathname + location.search);
  written = location.hash;
}

// taste returns what was kept under a name, or fallback.
export function taste(name, fallback) {
  try {
    return localStorage.getItem("mcpwire." + name) ?? fallback;
  } catch {
    return fallback;
  }
}

// keepTaste keeps a value, if the browser lets it.
export function keepTaste(name, value) {
  try {
    localStorage.setItem("mcpwire." + name, value);
  } catch {
    // Storage may be off: then it is for this page only.
  }
}
