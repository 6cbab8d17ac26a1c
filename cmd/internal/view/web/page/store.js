// The rows that the server has sent, in order. Changes are applied before a frame, and in slices,
// so that 100,000 rows do not block the page.
import { nextPaint } from "./dom.js";
import { Row } from "./row.js";
import { emit } from "./state.js";

const sliceMs = 7; // of work before a frame

export const store = {
  rows: new Map(), // by q
  roots: [], // by time
  hub: "",
  skew: 0, // ms that the clock is behind that of the server
  frozen: 0, // the time of the export, in an exported page
  synced: false,
  paused: false,
  waiting: 0, // changes since the pause began
  sessions: [],
  sources: [],
  older: 0, // captures that are not read
  first: 0, // time of the first row
  expected: 0, // rows of the model, about
  total: 0, // rows that the timeline has had, regardless of the filter
  evicted: 0, // rows of them that the server no longer has in memory
  running: 0, // searches of all rows, of which this filter would be one too many
  whole: null, // {matches, read}: the filter searches all of them, also in files
  facets: null, // counts of rows by property: see the Go package
  letters: false, // there are several captures, whose letters precede numbers
  servers: new Map(), // by index: the name of a server
  severalCaptures: false, // the sources have several names
  severalServers: () => store.severalCaptures || store.servers.size > 1,
  serverName: (r) => (r.sd ? r.srv.slice(0, -r.sd.length - 1) : r.srv),
};

let queue = []; // lists of rows, or {gone: list}
let scheduled = false;
let newRoots = []; // roots to add
let rootsDropped = false; // some roots are no longer in rows
let changed = new Set();

// now returns the time of the server; in an exported page, the time of the export.
export function now() {
  return store.frozen || Date.now() + store.skew;
}

// resetStore drops everything.
export function resetStore() {
  queue = [];
  newRoots = [];
  rootsDropped = false;
  store.rows = new Map();
  store.roots = [];
  store.waiting = 0;
  store.first = 0;
  store.synced = false;
  store.sessions = [];
  store.letters = false;
  store.servers = new Map();
  emit("reset");
}

// setSources replaces the sources.
export function setSources(list) {
  store.sources = list;
  store.severalCaptures = new Set(list.map((s) => s.name || s.id)).size > 1;
  emit("sources", list);
}

// putRows adds or replaces rows, as the server sends them.
export function putRows(list) {
  queue.push(list);
  if (store.paused) store.waiting += list.length;
  schedule();
}

// dropRows drops rows by their q.
export function dropRows(list) {
  queue.push({ gone: list });
  schedule();
}

// setPaused pauses or resumes the list.
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

// compact bounds the queue during a pause: only the last state of each row is needed.
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
    if (!Array.isArray(item)) drop(item.gone);
    else if (item.length > 600) queue.splice(i, 0, ...slices(item));
    else for (const j of item) putRow(j);
  }
  queue = queue.slice(i);
  sortRoots();
  emit("rows", changed);
  changed = new Set();
  if (queue.length) schedule();
}

function slices(list) {
  const out = [];
  for (let i = 0; i < list.length; i += 500) out.push(list.slice(i, i + 500));
  return out;
}

function putRow(j) {
  let r = store.rows.get(j.q);
  if (!r) {
    r = new Row(j.q);
    r.update(j);
    if (r.ci > 0) store.letters = true;
    store.rows.set(j.q, r);
    if (r.p) addInside(r);
    else newRoots.push(r);
  } else {
    const parent = r.p;
    r.update(j);
    if (parent !== r.p) moveRow(r, parent);
  }
  if (r.srv && !store.servers.has(r.si)) store.servers.set(r.si, store.serverName(r));
  changed.add(r);
}

// addInside adds a row to its parent. If the parent has not arrived yet, an empty row takes its
// place.
function addInside(r) {
  let parent = store.rows.get(r.p);
  if (!parent) {
    parent = new Row(r.p).update({ at: r.at, c: r.c, srv: r.srv, ci: r.ci, si: r.si });
    store.rows.set(r.p, parent);
    newRoots.push(parent);
  }
  if (!parent.kids) parent.kids = [];
  insert(parent.kids, r);
  changed.add(parent);
}

function moveRow(r, from) {
  if (from) remove(store.rows.get(from)?.kids, r);
  else rootsDropped = true;
  if (r.p) addInside(r);
  else newRoots.push(r);
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

function drop(list) {
  for (const q of list) {
    const r = store.rows.get(q);
    if (!r) continue;
    store.rows.delete(q);
    if (r.p) remove(store.rows.get(r.p)?.kids, r);
    else rootsDropped = true;
    for (const kid of r.kids || []) store.rows.delete(kid.q);
  }
}

// sortRoots updates the timeline, once per slice.
function sortRoots() {
  if (rootsDropped) {
    const keep = (r) => store.rows.get(r.q) === r && !r.p;
    store.roots = store.roots.filter(keep);
    newRoots = newRoots.filter(keep);
    rootsDropped = false;
  }
  if (newRoots.length) {
    newRoots.sort(byTime);
    const roots = store.roots;
    if (!roots.length || byTime(newRoots[0], roots[roots.length - 1]) > 0) for (const r of newRoots) roots.push(r);
    else store.roots = merge(roots, newRoots);
    newRoots = [];
  }
  if (store.roots.length) store.first = store.roots[0].at;
}

// byTime compares rows by time: those of several captures may arrive in another order.
function byTime(a, b) {
  return a.at - b.at || a.q - b.q;
}

function merge(a, b) {
  const out = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const next = j >= b.length || (i < a.length && byTime(a[i], b[j]) <= 0) ? a[i++] : b[j++];
    if (out[out.length - 1] !== next) out.push(next);
  }
  return out;
}

// allOf yields a row and all rows inside it, without recursion.
export function* allOf(r) {
  const stack = [r];
  while (stack.length) {
    const next = stack.pop();
    yield next;
    if (next.kids) for (let i = next.kids.length - 1; i >= 0; i--) stack.push(next.kids[i]);
  }
}
