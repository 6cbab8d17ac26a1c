// The detail of the selected row.
import { rowClass, setTitle } from "./cells.js";
import { byId, h } from "./dom.js";
import { fmtTimer } from "./format.js";
import { releaseMedia } from "./media.js";
import { isPending, statusText } from "./row.js";
import { getDetail } from "./source.js";
import { emit, view, writeHash } from "./state.js";
import { now } from "./store.js";
import { tabHTTP } from "./tab-http.js";
import { tabFindings } from "./tab-findings.js";
import { tabPayload } from "./tab-payload.js";
import { tabRaw } from "./tab-raw.js";
import { tabSSE } from "./tab-sse.js";
import { tabSummary } from "./tab-summary.js";
import { tabTiming } from "./tab-timing.js";
import { tabTranslated } from "./tab-translated.js";
import { Tabs } from "./tabs.js";

const tabNames = ["Summary", "Request", "Response", "Raw", "HTTP", "SSE", "Timing", "Findings", "Translated"];

export const tabList = tabNames.map((label) => ({ id: label.toLowerCase(), label }));

const pane = { tabs: null, row: null, detail: null, request: null, timer: 0, signature: "", go: null };

// initDetail prepares the pane. go shows the row with a number.
export function initDetail(go) {
  pane.go = go;
  pane.tabs = new Tabs(byId("tabs"), byId("panel"), tabList, showTab);
  setInterval(() => {
    for (const el of byId("panel").querySelectorAll(".since")) el.textContent = fmtTimer(now() - Number(el.dataset.at));
  }, 500);
}

// shownDetail returns the detail in the pane, or null.
export function shownDetail() {
  return pane.detail;
}

// showTab selects a tab by its id.
export function showTab(id) {
  if (!tabList.some((t) => t.id === id)) id = "summary";
  view.tab = id;
  writeHash();
  pane.tabs.select(id);
  updateTabs();
  drawPanel();
}

// updateTabs hides the tab Translated for captures that are not of a bridge.
function updateTabs() {
  pane.tabs.setVisible("translated", !!pane.row?.sd);
}

// showRow shows the detail of a row, or updates it.
export function showRow(r) {
  const other = pane.row !== r;
  pane.row = r;
  drawHead(r);
  const now = signature(r);
  if (!other && now === pane.signature) return;
  pane.signature = now;
  if (other) {
    pane.detail = null;
    pane.tabs.select(view.tab);
    updateTabs();
    // The panel shows the previous row until the detail arrives, so that it does not flicker.
    byId("panel").setAttribute("aria-busy", "true");
  }
  clearTimeout(pane.timer);
  pane.timer = setTimeout(readDetail, other ? 40 : 300, r);
}

// hideRow releases the detail.
export function hideRow() {
  clearTimeout(pane.timer);
  pane.request?.abort();
  pane.row = pane.detail = null;
  pane.signature = "";
  releaseMedia();
}

function signature(r) {
  return [r.q, r.st, r.done, r.rs, r.rq, r.nev, r.ended, r.rounds, r.task, r.kids?.length, r.findings, r.o.length].join();
}

function drawHead(r) {
  setTitle(byId("d-title"), r);
  const glyph = byId("d-glyph");
  glyph.textContent = r.g || "•";
  byId("d-head").className = rowClass({ row: r, depth: 0 }, false, false).replace("row ", "d-head ");
  byId("d-status").textContent = statusText(r);
  emit("head", r);
}

async function readDetail(r) {
  pane.request?.abort();
  const control = (pane.request = new AbortController());
  const slow = setTimeout(() => !pane.detail && showLoading(), 120);
  try {
    const d = await getDetail(r.q, control.signal);
    if (pane.row !== r) return;
    const before = pane.detail;
    pane.detail = d;
    byId("panel").removeAttribute("aria-busy");
    showCounts(d);
    if (!before || JSON.stringify(content(before, view.tab)) !== JSON.stringify(content(d, view.tab))) drawPanel(!!before);
  } catch (e) {
    if (e.name !== "AbortError" && pane.row === r) showError(e, r);
  } finally {
    clearTimeout(slow);
  }
}

function showLoading() {
  byId("panel").replaceChildren(h("p", { class: "hint busy", text: "Reading…" }));
}

function showError(e, r) {
  byId("panel").removeAttribute("aria-busy");
  byId("panel").replaceChildren(h("div", { class: "problem" }, h("p", { class: "note bad", text: e.message }), h("button", { type: "button", text: "Try again", on: { click: () => readDetail(r) } })));
}

// content returns what determines the content of a tab, to draw it only after a change.
function content(d, tab) {
  const p = (x) => x && [x.n, x.len, x.left, x.lines?.length];
  switch (tab) {
    case "summary":
      return [d.summary, d.asked, d.returned, d.rounds, d.inside?.length, d.others, d.missing];
    case "request":
      return p(d.request);
    case "response":
      return [p(d.response), p(d.last)];
    case "raw":
      return (d.raw || []).map((r) => [r.n, r.len]);
    case "translated":
      return (d.translated || []).map((t) => [t.n, t.before?.row, t.after?.row]);
  }
  return d[tab] ?? null;
}

function showCounts(d) {
  const t = pane.tabs;
  const note = (id, n, show) => t.count(id, show && n ? String(n) : "", !n);
  note("request", d.request ? 1 : 0);
  note("response", d.response ? 1 : 0);
  note("raw", d.raw?.length || 0, true);
  note("http", d.http ? 1 : 0);
  note("sse", d.sse?.events?.length || 0, true);
  note("timing", d.timing ? 1 : 0);
  note("findings", d.findings?.length || 0, true);
  note("translated", d.translated?.length || 0, true);
}

const emptyTexts = {
  request: "No request.",
  response: "No response.",
  raw: "No bytes to show.",
  http: "This was not sent over HTTP.",
  sse: "There is no event stream.",
  findings: "There are no findings.",
  translated: "No bridge has translated this.",
};

function emptyText(tab) {
  if (tab === "response" && pane.row && isPending(pane.row)) return "No response yet.";
  if (tab === "response" && pane.row && pane.row.k !== "request") return "Nothing responds to this.";
  return emptyTexts[tab] || "Nothing to show.";
}

function drawPanel(again) {
  const d = pane.detail;
  const panel = byId("panel");
  if (!d) return;
  const top = again ? panel.scrollTop : 0;
  releaseMedia();
  panel.replaceChildren(tabBody(d, view.tab) || h("p", { class: "hint", text: emptyText(view.tab) }));
  panel.scrollTop = top;
}

function tabBody(d, tab) {
  switch (tab) {
    case "summary":
      return tabSummary(d, pane.row, pane.go);
    case "request":
      return d.request && tabPayload(d, [{ title: "Request", payload: d.request }]);
    case "response":
      return (d.response || d.last) && tabPayload(d, [{ title: "First response", payload: d.response }, { title: "Last response", payload: d.last }]);
    case "raw":
      return d.raw?.length && tabRaw(d);
    case "http":
      return d.http && tabHTTP(d);
    case "sse":
      return d.sse && tabSSE(d);
    case "timing":
      return d.timing && tabTiming(d);
    case "findings":
      return d.findings?.length && tabFindings(d);
    case "translated":
      return d.translated?.length && tabTranslated(d, pane.go);
  }
  return null;
}
