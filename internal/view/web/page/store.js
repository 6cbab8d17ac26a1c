// The rows that the server has sent, in order. Changes wait until the next frame, and come in slices, so that 100,000 rows do not stop the page.
import { nextPaint } from "./dom.js";
import { Row } from "./row.js";
import { emit } from "./state.js";

const sliceMs = 7;

export const store = {
  rows: new Map(), // by q
  roots: [], // by q
  hub: "",
  version: 0,
  skew: 0, // ms that the clock here is behind that of the server
  frozen: 0,
  synced: false,
  paused: false,
  waiting: 0, // changes that came during the pause
  sessions: [],
  sources: [],
  first: 0, // when the first row was
  expected: 0, // how many rows the server has, about
  total: 0, // how many rows the timeline has had, whatever the filter is
  tool: "",
};

let queue = []; // lists of rows, or {gone: list}
let scheduled = false;
let fresh = []; // roots that are new
let lost = false; // some roots are gone
let changed = new Set();

// now is the time on the server's clock; in an exported page, when it was exported.
export function now() {
  return store.frozen || Date.now() + store.skew;
}

// resetStore forgets everything.
export function resetStore() {
  queue = [];
  fresh = [];
  lost = false;
  store.rows = new Map();
  store.roots = [];
  store.waiting = 0;
  store.first = 0;
  store.synced = false;
  store.sessions = [];
  emit("reset");
}

// putRows takes rows as the server sends them.
export function putRows(list) {
  queue.push(list);
  if (store.paused) store.waiting += list.length;
  schedule();
}

// dropRows forgets rows by their q.
export function dropRows(list) {
  queue.push({ gone: list });
  schedule();
}

// setPaused stops the list, or lets it go on.
export function setPaused(paused) {
  store.paused = paused;
  store.waiting = 0;
  if (!paused) schedule();
  emit("paused");
}

function schedule() {
  if (store.paused) {
    compact();
    emit("waiting");
    return;
  }
  if (scheduled || !queue.length) return;
  scheduled = true;
  nextPaint(drain);
}

// compact keeps what waits during a pause bounded: of each row the last state is enough.
function compact() {
  if (queue.length < 400) return;
  const last = new Map();
  for (const item of queue) {
    if (Array.isArray(item)) for (const j of item) last.delete(j.q), last.set(j.q, j);
    else for (const q of item.gone) last.set(q, null);
  }
  const rows = [];
  const gone = [];
  for (const [q, j] of last) j ? rows.push(j) : gone.push(q);
  queue = [rows, { gone }];
}

function drain() {
  scheduled = false;
  if (store.paused) return;
  const end = performance.now() + sliceMs;
  let i = 0;
  while (i < queue.length && (i === 0 || performance.now() < end)) {
    const item = queue[i++];
    if (!Array.isArray(item)) forget(item.gone);
    else if (item.length > 600) queue.splice(i, 0, ...slices(item));
    else for (const j of item) take(j);
  }
  queue = queue.slice(i);
  settle();
  emit("rows", changed);
  changed = new Set();
  if (queue.length) schedule();
  else emit("drained");
}

function slices(list) {
  const out = [];
  for (let i = 0; i < list.length; i += 500) out.push(list.slice(i, i + 500));
  return out;
}

function take(j) {
  let r = store.rows.get(j.q);
  if (!r) {
    r = new Row(j.q);
    r.take(j);
    store.rows.set(j.q, r);
    if (r.p) adopt(r);
    else fresh.push(r);
  } else {
    const parent = r.p;
    r.take(j);
    if (parent !== r.p) moveRow(r, parent);
  }
  changed.add(r);
}

// adopt puts a row inside its parent. A parent may come later than what is inside it: then its place is kept by a row without anything.
function adopt(r) {
  let parent = store.rows.get(r.p);
  if (!parent) {
    parent = new Row(r.p).take({ at: r.at, c: r.c, srv: r.srv });
    store.rows.set(r.p, parent);
    fresh.push(parent);
  }
  if (!parent.kids) parent.kids = [];
  insert(parent.kids, r);
  changed.add(parent);
}

function moveRow(r, from) {
  if (from) remove(store.rows.get(from)?.kids, r);
  else lost = true;
  if (r.p) adopt(r);
  else fresh.push(r);
}

function remove(list, r) {
  const i = list ? list.indexOf(r) : -1;
  if (i >= 0) list.splice(i, 1);
}

function insert(list, r) {
  let i = list.length;
  while (i > 0 && list[i - 1].q > r.q) i--;
  if (list[i - 1] !== r) list.splice(i, 0, r);
}

function forget(list) {
  for (const q of list) {
    const r = store.rows.get(q);
    if (!r) continue;
    store.rows.delete(q);
    if (r.p) remove(store.rows.get(r.p)?.kids, r);
    else lost = true;
    for (const kid of r.kids || []) store.rows.delete(kid.q);
  }
}

// settle brings the order of the timeline up to date, once per slice.
function settle() {
  if (lost) {
    const keep = (r) => store.rows.get(r.q) === r && !r.p;
    store.roots = store.roots.filter(keep);
    fresh = fresh.filter(keep);
    lost = false;
  }
  if (fresh.length) {
    fresh.sort((a, b) => a.q - b.q);
    const roots = store.roots;
    if (!roots.length || fresh[0].q > roots[roots.length - 1].q) for (const r of fresh) roots.push(r);
    else store.roots = merge(roots, fresh);
    fresh = [];
  }
  if (store.roots.length) store.first = store.roots[0].at;
}

function merge(a, b) {
  const out = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const next = j >= b.length || (i < a.length && a[i].q <= b[j].q) ? a[i++] : b[j++];
    if (out[out.length - 1] !== next) out.push(next);
  }
  return out;
}

// allOf yields a row and all inside it, without recursion.
export function* allOf(r) {
  const stack = [r];
  while (stack.length) {
    const next = stack.pop();
    yield next;
    if (next.kids) for (let i = next.kids.length - 1; i >= 0; i--) stack.push(next.kids[i]);
  }
}
