// The keys, the same as in the terminal.
import { menuOpen } from "./menu.js";

// keyHelp is the list of keys in the help.
export const keyHelp = [
  ["j / ↓, k / ↑", "next row, previous row"],
  ["Enter", "open the detail"],
  ["z", "the detail in full size"],
  ["Esc", "back: closes the detail, ends a pause, clears the filter"],
  ["→ / ←, Space", "show or hide the rows inside a row"],
  ["*", "the same for all rows"],
  ["/", "filter"],
  ["n / N", "next or previous line with an error or a finding"],
  ["g / G", "first row, last row"],
  ["f", "follow: stay at the newest row"],
  ["p", "pause the list"],
  ["x", "exchanges or frames"],
  ["t", "time: of day, since the start, since the previous row"],
  ["1 … 9", "tabs of the detail"],
  ["o", "the other side of what a bridge forwarded, and back"],
  ["b", "bytes as text or hexadecimal"],
  ["W", "wrap or cut long lines"],
  ["y", "copy the message that is shown"],
  ["Y", "copy as a command: mcpwire call; again, or in the HTTP tab: curl"],
  ["r", "send again to a fresh copy of the server"],
  ["E", "edit and send to a fresh copy of the server"],
  ["T", "run a tool of a fresh copy of a server"],
  ["m, d", "mark rows, show the differences of two marked rows"],
  ["c", "sessions: versions and capabilities"],
  ["s", "summary of tools"],
  ["l", "only rows with findings"],
  ["F", "facets beside the list"],
  ["u", "saved filters"],
  ["C", "columns; in a heading, Shift and ← or → changes its width"],
  [".", "menu of the row"],
  ["S", "sequence of the session as a picture"],
  ["O", "overview: calls over time, latencies, definitions, servers"],
  ["e", "export and save"],
  ["w", "restart the server"],
  ["i", "held messages: pass, edit, drop, delay or answer them (mcpwire tap --intercept)"],
  ["?", "this help"],
];

const byKey = {
  j: "next", ArrowDown: "next", k: "previous", ArrowUp: "previous", Enter: "open", Escape: "back", ArrowRight: "unfold", ArrowLeft: "fold", " ": "toggle", "/": "filter", n: "nextMatch",
  N: "previousMatch", g: "first", Home: "first", G: "last", End: "last", PageUp: "pageUp", PageDown: "pageDown", f: "follow", p: "pause", x: "frames", t: "time", y: "copy", Y: "copyCommand",
  r: "resend", E: "edit", T: "run", m: "mark", d: "diff", c: "sessions", s: "tools", l: "findings", e: "export", w: "restart", "?": "help", z: "full", "*": "unfoldAll", b: "hex", o: "other", W: "wrap", J: "next", K: "previous", F: "rail", C: "columns", ".": "menu", u: "saved", S: "sequence", O: "overview", i: "held",
};

const needsList = new Set(["Enter", " ", "ArrowRight", "ArrowLeft", "Home", "End", "PageUp", "PageDown", "ArrowDown", "ArrowUp"]);

// listenKeys calls actions for keys. inList reports whether the list has the focus.
export function listenKeys(actions, inList) {
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || e.isComposing) return;
    const target = e.target instanceof Element ? e.target : document.body;
    if (document.querySelector("dialog[open]") || menuOpen()) return;
    if (target.closest("input, textarea, select, audio")) return;
    if (e.key >= "1" && e.key <= "9") {
      if (actions.tab(Number(e.key))) e.preventDefault();
      return;
    }
    const name = byKey[e.key];
    if (!name) return;
    const elsewhere = target !== document.body && !inList();
    if (elsewhere && needsList.has(e.key)) return;
    if (actions[name]() !== false) e.preventDefault();
  });
}
