// The actions of keys and buttons.
import { announce, toast } from "./announce.js";
import { copyCommand } from "./clipboard.js";
import { shownDetail, showTab, tabList } from "./detail.js";
import { showCall } from "./dialog-call.js";
import { showDiff } from "./dialog-diff.js";
import { showExport } from "./dialog-export.js";
import { showHeld } from "./dialog-held.js";
import { showHelp } from "./dialog-help.js";
import { showResend } from "./dialog-resend.js";
import { confirmRestart, showSessions } from "./dialog-sessions.js";
import { showTools } from "./dialog-tools.js";
import { byId } from "./dom.js";
import { focusFilter } from "./filterbox.js";
import { fmtCount } from "./format.js";
import { resetFrames, unfolded } from "./items.js";
import { toggleRail } from "./facets.js";
import { showColumns } from "./head.js";
import { closePicture, showPicture } from "./picture.js";
import { showRowMenu } from "./rowmenu.js";
import { showSavedFilters } from "./savedfilters.js";
import { applyFilterText, clearFilter, close, focusList, goTo, indexOfRow, match, move, page, redraw, select, selectWanted, setFollow, toggleFindings, setZoom, toggleFold } from "./listing.js";
import { exported } from "./source.js";
import { toggleFull } from "./split.js";
import { emit, view, writeHash } from "./state.js";
import { setPaused, store } from "./store.js";
import { copyPayload } from "./tab-payload.js";

const timeModes = ["clock", "start", "delta"];
const timeTexts = { clock: "Time of day", start: "Seconds since the first row", delta: "Seconds since the previous row" };

// actions maps names to actions. One that returns false leaves the key to the browser.
export const actions = {
  next: () => move(indexOfRow() + 1),
  previous: () => move(indexOfRow() < 0 ? page.list.length - 1 : indexOfRow() - 1),
  first: () => {
    move(0);
    if (store.evicted && !store.whole) toast("This is the oldest row in the list; " + fmtCount(store.evicted) + " earlier ones are only in the file. The filter n:1-100 shows its beginning.");
  },
  last: () => move(page.list.length - 1),
  pageUp: () => move(indexOfRow() - page.grid.perPage()),
  pageDown: () => move(indexOfRow() + page.grid.perPage()),
  nextMatch: () => match(1),
  previousMatch: () => match(-1),
  open: () => {
    if (!page.row) actions.first();
    if (page.row) select(page.row, page.back, true);
    if (byId("main").dataset.split === "full") byId("d-back").focus();
  },
  back: () => {
    if (view.picture) closePicture();
    else if (view.open) close();
    else if (store.paused) setPaused(false);
    else if (view.filter) {
      applyFilterText("");
    } else if (view.zoom) setZoom(null);
    else return false;
  },
  full: () => {
    if (!view.open) return false;
    toggleFull();
    if (byId("main").dataset.split === "full") byId("panel").focus();
    else focusList();
  },
  unfoldAll: () => {
    if (view.frames) return;
    const all = unfolded.size === 0;
    unfolded.clear();
    if (all) for (const r of store.rows.values()) if (r.kids) unfolded.add(r.q);
    redraw(new Set());
    announce(all ? "All rows are expanded" : "All rows are collapsed");
  },
  other: () => {
    const r = page.row?.o.map((q) => store.rows.get(q)).find((r) => r);
    if (r) goTo(r.q);
    else toast("This row has no counterpart on the other side of a bridge.");
  },
  hex: () => press(".raw .hexbutton"),
  wrap: () => press("#panel .wrapbutton"),
  unfold: () => fold(true),
  fold: () => fold(false),
  toggle: () => page.row?.kids && (!view.frames || page.row.run) ? toggleFold(page.row) : false,
  rail: () => {
    toggleRail();
    page.arrange();
    page.grid.measure();
  },
  columns: () => showColumns(byId("b-columns")),
  menu: () => (page.row ? showRowMenu(page.grid.menuPlace()) : false),
  saved: () => showSavedFilters(applyFilterText),
  sequence: () => (view.picture === "sequence" ? closePicture() : showPicture("sequence", page.row?.c, page.row?.s)),
  overview: () => (view.picture === "overview" ? closePicture() : showPicture("overview")),
  filter: focusFilter,
  follow: () => setFollow(!view.follow),
  pause: () => !exported && setPaused(!store.paused),
  frames: () => {
    view.frames = !view.frames;
    writeHash();
    resetFrames();
    emit("buttons");
    redraw(null);
    announce(view.frames ? "Frames" : "Exchanges");
    const i = indexOfRow();
    if (i >= 0 && !view.follow) page.grid.reveal(i);
  },
  time: () => {
    view.time = timeModes[(timeModes.indexOf(view.time) + 1) % timeModes.length];
    writeHash();
    page.grid.refresh();
    toast(timeTexts[view.time] + (view.time === "start" && store.evicted ? " in the list." : "."));
  },
  tab: (n) => {
    if (!view.open || !tabList[n - 1]) return false;
    showTab(tabList[n - 1].id);
    return true;
  },
  copy: () => {
    const d = shownDetail();
    const payload = d && (view.tab === "response" ? d.last || d.response : d.request || d.response);
    if (payload) copyPayload(d, payload);
    else toast(page.row ? "Open a row first." : "Select a row first.");
  },
  copyCommand: () => {
    if (exported || !page.row) return;
    const key = page.row.q + "call";
    const as = view.tab === "http" || page.lastCommand === key ? "curl" : "call";
    page.lastCommand = as === "call" ? key : "";
    copyCommand(page.row.q, as);
  },
  resend: () => {
    if (canSend()) showResend(page.row, showSent);
  },
  edit: () => {
    if (canSend()) showCall(page.row, showSent);
  },
  run: () => exported || showCall(null, showSent),
  mark: () => {
    if (!page.row) return;
    const at = page.marks.indexOf(page.row);
    if (at >= 0) page.marks.splice(at, 1);
    else page.marks.push(page.row);
    if (page.marks.length > 2) page.marks.shift();
    page.grid.marked = new Set(page.marks.map((r) => r.q));
    page.grid.refresh();
    emit("buttons");
    announce(at >= 0 ? "Mark removed" : "Marked, " + page.marks.length + " of 2");
  },
  diff: () => {
    if (exported) return;
    if (page.marks.length === 2) showDiff(...page.marks);
    else toast("Mark two rows with m first.");
  },
  sessions: () => showSessions(page.row?.c, page.row?.s),
  tools: () => showTools((filter) => {
    applyFilterText(filter);
    focusList();
  }),
  findings: toggleFindings,
  export: () => exported || showExport(),
  restart: () => {
    if (exported) return;
    const c = page.row?.c || store.sources.find((s) => s.restart)?.id;
    const source = store.sources.find((s) => s.id === c);
    if (source?.restart) confirmRestart(c, source.name);
    else toast("The server of this row cannot be restarted: only a running tap can do that.");
  },
  held: showHeld,
  help: showHelp,
};

// press clicks all buttons of the detail that match a selector and are in the state of the first.
function press(selector) {
  const buttons = byId("panel").querySelectorAll(selector);
  if (!view.open || !buttons.length) return false;
  const first = buttons[0].getAttribute("aria-pressed");
  for (const b of buttons) if (b.getAttribute("aria-pressed") === first) b.click();
}

// fold unfolds the selected line, or folds it or goes to the line that contains it.
function fold(open) {
  const r = page.row;
  if (!r || (view.frames && !r.run)) return false;
  if (open && r.kids?.length && !unfolded.has(r.q)) toggleFold(r);
  else if (!open && unfolded.has(r.q)) toggleFold(r);
  else if (!open && r.p) {
    const run = page.list.findLast((x) => x.run?.includes(r));
    const i = page.list.indexOf(run || store.rows.get(r.p));
    if (i >= 0) move(i);
  } else return false;
}

// canSend reports whether the selected row can be sent again.
function canSend() {
  if (exported) return false;
  if (page.row?.k === "request" && page.row.d !== "s2c") return true;
  toast("Select a request of the client first.");
  return false;
}

// showSent shows the row of a response of POST /api/resend.
function showSent(sent) {
  if (!sent.n) return;
  page.wantedN = { c: sent.capture, n: sent.n };
  page.wanted = sent.capture + "/" + sent.n;
  view.open = true;
  view.tab = "response";
  showTab("response");
  selectWanted(store.rows.values());
  setTimeout(() => {
    if (!page.wantedN || !view.filter) return;
    toast("The filter hid the response, and was cleared.");
    clearFilter();
  }, 1500);
}
