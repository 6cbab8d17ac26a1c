// The lines of the list: exchanges with the rows inside unfolded ones, or frames in order of time.
import { hasFindings } from "./row.js";
import { store } from "./store.js";
import { view } from "./state.js";

// An item is a line: {row, depth, kids, unfolded, at, frame, back}. kids reports whether it can be
// unfolded. frame is true in the list of frames, and back for the line of a response there.

export const unfolded = new Set(); // q of the rows that are unfolded

let cache = new WeakMap(); // items of rows

function itemOf(r, depth) {
  let item = cache.get(r);
  if (!item) {
    item = { row: r, depth, kids: false, unfolded: false, at: r.at, frame: false, back: false };
    cache.set(r, item);
  }
  item.at = r.at;
  item.depth = depth;
  item.kids = r.kids !== null && r.kids.length > 0;
  item.unfolded = item.kids && unfolded.has(r.q);
  return item;
}

// exchangeItems returns the lines of the timeline, as rows. itemAt makes their items when needed.
export function exchangeItems() {
  const roots = view.findings ? store.roots.filter(hasFindings) : store.roots;
  if (!unfolded.size) return roots;
  const out = [];
  for (const r of roots) {
    if (!unfolded.has(r.q) || !r.kids) out.push(r);
    else pushInside(out, r);
  }
  return out;
}

const maxDepth = 32;

function pushInside(out, root) {
  const stack = [[root, 0]];
  while (stack.length) {
    const [r, depth] = stack.pop();
    out.push(r);
    r.depth = depth;
    if (!r.kids || !unfolded.has(r.q) || depth >= maxDepth) continue;
    for (let i = r.kids.length - 1; i >= 0; i--) stack.push([r.kids[i], depth + 1]);
  }
}

// itemAt returns the item of an element of a list from exchangeItems or frameItems.
export function itemAt(list, i) {
  const e = list[i];
  if (!e) return null;
  return e.frame ? e : itemOf(e, e.p ? e.depth || 1 : 0);
}

let frames = [];
let framed = new Map(); // by q: 1 if frames has the request, 2 if it also has the response

// resetFrames empties the list of frames.
export function resetFrames() {
  frames = [];
  framed = new Map();
}

function frameOf(r, back) {
  const at = back ? r.at + Math.max(0, r.la >= 0 ? r.la : r.l) : r.at;
  return { row: r, depth: 0, kids: false, unfolded: false, at, frame: true, back };
}

function hasBack(r) {
  return r.rn > 0 || ((r.k === "request" || r.k === "http") && r.l >= 0 && r.done && (r.st === "ok" || r.st === "error" || r.st === "iserror"));
}

function addFrame(f) {
  frames.push(f);
  let i = frames.length - 1;
  while (i > 0 && frames[i - 1].at > f.at) {
    frames[i] = frames[i - 1];
    i--;
  }
  frames[i] = f;
}

// frameItems returns all frames. changed has the rows that changed since the last call; null means
// all.
export function frameItems(changed) {
  if (!changed || !framed.size) {
    resetFrames();
    for (const r of store.rows.values()) noteFrames(r, (f) => frames.push(f));
    frames.sort((a, b) => a.at - b.at || a.row.q - b.row.q);
  } else {
    for (const r of changed) noteFrames(r, addFrame);
    if (framed.size > store.rows.size) {
      for (const q of framed.keys()) if (!store.rows.has(q)) framed.delete(q);
      frames = frames.filter((f) => store.rows.get(f.row.q) === f.row);
    }
  }
  return view.findings ? frames.filter((f) => hasFindings(f.row)) : frames;
}

function noteFrames(r, add) {
  const have = framed.get(r.q) || 0;
  if (!r.k) return;
  if (have < 1) add(frameOf(r, false));
  if (have < 2 && hasBack(r)) {
    add(frameOf(r, true));
    framed.set(r.q, 2);
  } else if (have < 1) framed.set(r.q, 1);
}
