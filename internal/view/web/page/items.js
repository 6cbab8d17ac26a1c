// The lines of the list: exchanges with what is unfolded, or frames in the order of time.
import { hasFindings } from "./row.js";
import { store } from "./store.js";
import { view } from "./state.js";

// An item is a line: {row, depth, kids, unfolded, at, frame, back, key}.

export const unfolded = new Set(); // q of rows whose inside is shown

let cache = new WeakMap(); // item of a row, made once

function itemOf(r, depth) {
  let item = cache.get(r);
  if (!item) {
    item = { row: r, depth, kids: false, unfolded: false, at: r.at, frame: false, back: false, key: r.q };
    cache.set(r, item);
  }
  item.at = r.at;
  item.depth = depth;
  item.kids = r.kids !== null && r.kids.length > 0;
  item.unfolded = item.kids && unfolded.has(r.q);
  return item;
}

function shown(r) {
  if (!view.findings || hasFindings(r)) return true;
  return false;
}

// exchangeItems are the lines of the timeline. Rows without an item get one when they are looked at, see itemAt.
export function exchangeItems() {
  const roots = view.findings ? store.roots.filter(shown) : store.roots;
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

// itemAt makes a line of an element of a list that exchangeItems or frameItems has returned.
export function itemAt(list, i) {
  const e = list[i];
  if (!e) return null;
  return e.frame ? e : itemOf(e, e.p ? e.depth || 1 : 0);
}

let frames = [];
let framed = new Map(); // q → 1: the request is in frames, 2: the response as well

// resetFrames forgets the list of frames.
export function resetFrames() {
  frames = [];
  framed = new Map();
}

function frameOf(r, back) {
  const at = back ? r.at + Math.max(0, r.la >= 0 ? r.la : r.l) : r.at;
  return { row: r, depth: 0, kids: false, unfolded: false, at, frame: true, back, key: back ? -r.q : r.q };
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

// frameItems are all frames. changed: the rows that did since the last call; null: look at all.
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
