// The lines of the list: exchanges with the rows inside unfolded ones, or frames in order of time.
import { sorted } from "./columns.js";
import { hasFindings, Row, rowEnd } from "./row.js";
import { now, store } from "./store.js";
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

const maxRuns = 5000;

const runs = new Map(); // rows that stand for runs of progress, by the q of the first one

// runOf returns the row that stands for rows of progress. It contains them, and can be unfolded.
function runOf(rows, depth) {
  const first = rows[0];
  const last = rows[rows.length - 1];
  let run = runs.get(first.q);
  if (!run) {
    if (runs.size > maxRuns) runs.clear();
    runs.set(first.q, (run = new Row(-first.q)));
  }
  if (run.kids?.length === rows.length && run.last === last && run.shown === last.tg) return at(run, depth);
  const from = first.tg.split("/")[0];
  const every = rows.length > 1 ? (last.at - first.at) / (rows.length - 1) : 0;
  run.update({ p: first.p, n: first.n, c: first.c, s: first.s, ci: first.ci, si: first.si, srv: first.srv, sd: first.sd, at: first.at, d: first.d, k: "progress", m: first.m, g: "•", tg: from + "…" + last.tg, x: last.x, era: first.era, rev: first.rev });
  run.run = run.kids = rows;
  run.last = last;
  run.shown = last.tg;
  run.every = every;
  return at(run, depth);
}

function at(run, depth) {
  run.depth = depth;
  return run;
}

// withRuns calls add for each row, and for one that stands for each run of at least two rows of
// progress. progress returns the row of an element if it is progress.
function withRuns(list, progress, add, addRun) {
  for (let i = 0; i < list.length; ) {
    const first = progress(list[i]);
    let j = i + 1;
    if (first) while (j < list.length && progress(list[j])?.p === first.p) j++;
    if (j - i > 1 && first.p) addRun(list.slice(i, j));
    else for (let k = i; k < j; k++) add(list[k]);
    i = j;
  }
}

// exchangeItems returns the lines of the timeline, as rows. itemAt makes their items when needed.
export function exchangeItems() {
  let roots = view.findings ? store.roots.filter(hasFindings) : store.roots;
  if (view.zoom) roots = roots.filter(inZoom(now()));
  roots = sorted(roots);
  if (!unfolded.size) return roots;
  const out = [];
  for (const r of roots) {
    if (!unfolded.has(r.q) || !r.kids) out.push(r);
    else pushInside(out, r);
  }
  return out;
}

// inZoom returns a function that reports whether a row overlaps the time that the list shows.
function inZoom(time) {
  const { from, to } = view.zoom;
  return (r) => r.at <= to && rowEnd(r, time) >= from;
}

const maxDepth = 32;

function pushInside(out, root) {
  const stack = [[root, 0]];
  while (stack.length) {
    const [r, depth] = stack.pop();
    out.push(r);
    r.depth = depth;
    if (!r.kids || !unfolded.has(r.q) || depth >= maxDepth) continue;
    const inside = [];
    if (r.run) inside.push(...r.kids);
    else withRuns(r.kids, (k) => (k.k === "progress" ? k : null), (k) => inside.push(k), (list) => inside.push(runOf(list, depth + 1)));
    for (let i = inside.length - 1; i >= 0; i--) stack.push([inside[i], depth + 1]);
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
  runs.clear();
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
  let list = view.findings ? frames.filter((f) => hasFindings(f.row)) : frames;
  if (view.zoom) list = list.filter((f) => f.at >= view.zoom.from && f.at <= view.zoom.to);
  const out = [];
  withRuns(list, (f) => (f.row.k === "progress" ? f.row : null), (f) => out.push(f), (run) => {
    const r = runOf(run.map((f) => f.row), 0);
    const open = unfolded.has(r.q);
    out.push({ row: r, depth: 0, kids: true, unfolded: open, at: r.at, frame: true, back: false });
    if (open) for (const f of run) out.push({ ...f, depth: 1 });
  });
  return out;
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
