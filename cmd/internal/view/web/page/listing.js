// The list and its selection.
import { announce, announceNew, toast } from "./announce.js";
import { hideRow, showRow } from "./detail.js";
import { byId, nextPaint } from "./dom.js";
import { focusFilter, setFilterText } from "./filterbox.js";
import { plural } from "./format.js";
import { exchangeItems, frameItems, itemAt, resetFrames, unfolded } from "./items.js";
import { localFilter } from "./localfilter.js";
import { hasFindings, isError, realRow, rowRef } from "./row.js";
import { exported } from "./source.js";
import { toggleFull } from "./split.js";
import { beginStep, emit, view, writeHash } from "./state.js";
import { drawEmpty, drawStatus, trackPending } from "./statusbar.js";
import { store } from "./store.js";
import { connect } from "./stream.js";

export const page = {
  grid: null,
  arrange: null, // places list and detail
  list: [], // the lines: see items.js
  shown: 0, // how many lines the status line counts
  row: null, // the selected row
  back: false, // the selected line is that of its response
  marks: [], // marked rows, at most two
  wanted: "", // name of a row to select when it arrives
  wantedN: null, // {c, n} of a row to select when it arrives
  known: new Map(), // by q: 1 for an error and 2 for findings that were announced
  filtered: false, // announce the number of rows when all have arrived
  lastCommand: "", // what was copied last as an mcpwire command
  changed: new Set(), // rows since the list was drawn
  opened: new Set(), // q of rows that were unfolded because of a match inside
  scheduled: false,
  delay: 0, // the timer of a delayed update, or 0
  drawn: 0, // when, on the clock of performance
};

const loadingPause = 150; // ms between two updates of the list while it loads
const sortedPause = 400; // and while it is sorted by a column

// scheduleRedraw updates the list before the next frame, or less often while it loads.
export function scheduleRedraw() {
  if (page.scheduled) return;
  page.scheduled = true;
  const pause = !store.synced ? loadingPause : view.sort ? sortedPause : 0;
  const wait = pause ? page.drawn + pause - performance.now() : 0;
  if (wait > 20) page.delay = setTimeout(() => nextPaint(redrawChanged), wait);
  else nextPaint(redrawChanged);
}

// allLoaded updates the list without the pause of loading.
export function allLoaded() {
  if (page.delay) {
    clearTimeout(page.delay);
    page.scheduled = false;
  }
  scheduleRedraw();
}

// unfoldMatches unfolds rows that a row inside made match the filter, each once.
function unfoldMatches(changed) {
  for (const r of changed) {
    const found = r.in && !page.opened.has(r.q) && store.rows.get(r.in);
    if (!found) continue;
    page.opened.add(r.q);
    for (let p = store.rows.get(found.p); p; p = store.rows.get(p.p)) unfolded.add(p.q);
    unfoldRun(found);
  }
}

function redrawChanged() {
  page.scheduled = false;
  page.delay = 0;
  page.drawn = performance.now();
  const changed = page.changed;
  page.changed = new Set();
  redraw(changed);
}

// rowsChanged updates the list after rows have changed.
export function rowsChanged(changed) {
  trackPending(changed);
  countNew(changed);
  unfoldMatches(changed);
  if (!page.changed.size) page.changed = changed;
  else for (const r of changed) page.changed.add(r);
  if (page.wanted) selectWanted(changed);
  if (page.scheduled) return;
  if (store.synced && !view.sort) redrawChanged(); // the store emits rows before a frame
  else scheduleRedraw();
}

// countNew announces new errors and findings, but not those that existed when the page was opened.
function countNew(changed) {
  if (!store.synced || changed.size > 200) return;
  if (page.known.size > 50000) page.known = new Map();
  let errors = 0;
  let findings = 0;
  for (const r of changed) {
    const state = (isError(r) ? 1 : 0) + (hasFindings(r) && !r.p ? 2 : 0);
    const before = page.known.get(r.q) || 0;
    if (state === before) continue;
    page.known.set(r.q, state);
    if (state & 1 && !(before & 1)) errors++;
    if (state & 2 && !(before & 2)) findings++;
  }
  announceNew(errors, findings);
}

// selectWanted selects the wanted row if it is among rows that have changed.
export function selectWanted(changed) {
  for (const r of changed) {
    const found = page.wantedN ? r.c === page.wantedN.c && (r.n === page.wantedN.n || r.rn === page.wantedN.n) : rowRef(r) === page.wanted;
    if (!found) continue;
    page.wanted = "";
    page.wantedN = null;
    nextPaint(() => {
      select(r, false, view.open);
      showInList(r);
    });
    return;
  }
}

// redraw updates the list. changed has the rows that have changed; null means all.
export function redraw(changed) {
  let list = view.frames ? frameItems(changed) : exchangeItems();
  if (exported && view.filter) list = filterLocally(list);
  page.list = list;
  if (page.row && !page.row.run && store.rows.get(page.row.q) !== page.row) page.row = store.rows.get(page.row.q) || page.row;
  page.grid.show(list, indexOfRow());
  page.shown = view.frames ? list.length : list.reduce((n, r) => n + (r.p ? 0 : 1), 0);
  drawStatus(page.shown);
  emit("drawn");
  drawEmpty(list.length, clearFilter);
  if (page.filtered && store.synced) {
    page.filtered = false;
    announce(view.filter ? plural(page.shown, "row") + " match" : "All " + plural(page.shown, "row"));
  }
  if (view.open && page.row && changed?.has(realRow(page.row))) showRow(realRow(page.row));
}

function filterLocally(list) {
  const match = localFilter(view.filter);
  const root = (r) => (r.p ? root(store.rows.get(r.p) || { p: 0 }) : r);
  return list.filter((e) => {
    const r = root(e.back === undefined ? e : e.row);
    return r.q !== undefined && match(r);
  });
}

// indexOfRow returns the index of the selected line, or -1.
export function indexOfRow() {
  if (!page.row) return -1;
  return view.frames ? page.list.findIndex((f) => f.row === page.row && f.back === page.back) : page.list.indexOf(page.row);
}

// resetList prepares for rows that are all sent again.
export function resetList() {
  unfolded.clear();
  page.opened.clear();
  resetFrames();
  page.known = new Map();
  page.marks = [];
  page.grid.marked = new Set();
  if (page.row && !page.wanted) page.wanted = rowRef(page.row);
  page.row = null;
  page.changed = new Set();
  page.grid.following = view.follow;
  scheduleRedraw();
}

// select selects a row. open shows its detail.
export function select(r, back, open) {
  if (view.follow && open && page.list.length && itemAt(page.list, page.list.length - 1).row !== r) setFollow(false);
  page.row = r;
  page.back = !!back;
  if (open && (!view.open || view.row !== rowRef(realRow(r)))) beginStep();
  view.row = rowRef(realRow(r));
  if (open) view.open = true;
  writeHash();
  page.grid.show(page.list, indexOfRow());
  page.arrange();
  if (view.open) showRow(realRow(r));
  if (open && !view.follow) page.grid.reveal(indexOfRow());
}

function showInList(r) {
  for (let p = store.rows.get(r.p); p; p = store.rows.get(p.p)) unfolded.add(p.q);
  unfoldRun(r);
  redraw(new Set());
  const i = indexOfRow();
  if (i < 0) return;
  setFollow(i === page.list.length - 1 && view.follow);
  page.grid.reveal(i);
}

// unfoldRun unfolds the run of progress that hides a row.
function unfoldRun(r) {
  if (r.k !== "progress" || !r.p) return;
  const kids = store.rows.get(r.p)?.kids || [];
  let i = kids.indexOf(r);
  while (i > 0 && kids[i - 1].k === "progress") i--;
  if (i >= 0) unfolded.add(-kids[i].q);
}

// goTo selects the row with a number and makes it visible.
export function goTo(q) {
  const r = store.rows.get(q);
  if (!r) {
    toast("That row is not in the list: it was evicted, or the filter hides it.");
    return;
  }
  select(r, false, true);
  showInList(r);
}

// focusList moves the focus to the list.
export function focusList() {
  page.grid.focus();
}

// applyFilter shows the rows that match a filter. step makes an entry in the history.
export function applyFilter(text, step) {
  if (step) beginStep();
  view.filter = text;
  writeHash();
  emit("filter");
  page.filtered = true;
  if (exported) redraw(new Set());
  else connect(text);
}

// applyFilterText shows a filter in its field and applies it.
export function applyFilterText(text) {
  setFilterText(text);
  if (text !== view.filter) applyFilter(text, true);
}

// columnsChanged draws the list after the user has chosen other columns or another order. moving
// means that a border still moves.
export function columnsChanged(moving) {
  writeHash();
  if (moving) {
    page.grid.measure();
    return;
  }
  if (view.sort && view.follow) setFollow(false);
  page.grid.columnsChanged();
  redraw(new Set());
}

// setZoom shows only the rows of a time, or all if it is null.
export function setZoom(zoom) {
  view.zoom = zoom;
  writeHash();
  if (zoom && view.follow) setFollow(false);
  redraw(new Set());
  emit("zoom");
}

// clearFilter shows all rows.
export function clearFilter() {
  if (view.findings) toggleFindings();
  if (view.zoom) setZoom(null);
  setFilterText("");
  if (view.filter) applyFilter("", true);
  focusFilter();
}

// setFollow makes the list stay at the newest line, or not.
export function setFollow(follow) {
  if (view.follow === follow) return;
  view.follow = page.grid.following = follow;
  writeHash();
  emit("buttons");
  if (follow) page.grid.show(page.list, indexOfRow());
}

// toggleFold unfolds or folds a row.
export function toggleFold(r) {
  if (unfolded.has(r.q)) unfolded.delete(r.q);
  else unfolded.add(r.q);
  if (view.follow && unfolded.has(r.q)) setFollow(false);
  redraw(new Set());
}

// close closes the detail.
export function close() {
  view.open = false;
  toggleFull(false);
  writeHash();
  hideRow();
  page.arrange();
  const i = indexOfRow();
  if (i >= 0 && !view.follow) page.grid.reveal(i);
  focusList();
}

// move selects the line with an index, or the nearest one.
export function move(to) {
  const n = page.list.length;
  if (!n) return;
  const i = Math.min(n - 1, Math.max(0, to));
  const item = itemAt(page.list, i);
  if (view.follow && i < n - 1) setFollow(false);
  select(item.row, item.back, false);
  page.grid.reveal(i);
  if (byId("main").dataset.split !== "full" && !byId("detail").contains(document.activeElement)) focusList();
}

// match moves to the next line with an error or a finding, or to the previous one if step is -1.
export function match(step) {
  const n = page.list.length;
  let i = indexOfRow();
  if (i < 0) i = step > 0 ? -1 : n;
  for (i += step; i >= 0 && i < n; i += step) {
    const r = itemAt(page.list, i).row;
    if (isError(r) || hasFindings(r)) {
      move(i);
      return;
    }
  }
  toast("No more errors or findings.");
}

// toggleFindings switches between lines with findings and all lines.
export function toggleFindings() {
  view.findings = !view.findings;
  writeHash();
  emit("buttons");
  redraw(new Set());
  announce(view.findings ? "Only rows with findings: " + page.list.length : "All rows");
}
