// The statistics of tools and methods: calls, errors, latencies, and the bytes that they add to the
// context of a model.
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { fmtCount, fmtMs, fmtSize } from "./format.js";
import { term } from "./filterterms.js";
import { histogram } from "./histogram.js";
import { exported, getTools } from "./source.js";
import { isolated } from "./safetext.js";
import { preference, setPreference } from "./state.js";

const statColumns = [
  { key: "name", label: "Name", of: (s) => s.name },
  { key: "srv", label: "Server", of: (s) => s.srv || "" },
  { key: "calls", label: "Calls", number: true, of: (s) => s.calls || 0, show: fmtCount },
  { key: "failed", label: "Failed", title: "Errors, results with isError, and calls without a response", number: true, of: (s) => (s.errors || 0) + (s.iserrors || 0) + (s.unanswered || 0), show: (n) => (n ? "✖ " + fmtCount(n) : "") },
  { key: "p50", label: "p50", number: true, of: (s) => s.p50 ?? -1, show: (v) => (v < 0 ? "" : fmtMs(v)) },
  { key: "p95", label: "p95", number: true, of: (s) => s.p95 ?? -1, show: (v) => (v < 0 ? "" : fmtMs(v)) },
  { key: "max", label: "Max", number: true, of: (s) => s.max ?? -1, show: (v) => (v < 0 ? "" : fmtMs(v)) },
  { key: "hist", label: "Latency" },
  { key: "in", label: "Sent", title: "Bytes of requests", number: true, of: (s) => s.in || 0, show: (n) => (n ? fmtSize(n) : "") },
  { key: "out", label: "Received", title: "Bytes of responses", number: true, of: (s) => s.out || 0, show: (n) => (n ? fmtSize(n) : "") },
  { key: "def", label: "Definition", title: "Bytes of the tool's definition", number: true, of: (s) => s.def || 0, show: (n) => (n ? fmtSize(n) : "") },
];

const toolsView = { open: null, sort: "", down: true, pick: null };

// showTools opens the dialog. pick applies a filter.
export function showTools(pick) {
  const d = openDialog("Tools", [h("p", { class: "hint busy", text: "Reading…" })], { wide: true, closed: () => {
    clearInterval(timer);
    toolsView.open = null;
  } });
  toolsView.open = d;
  toolsView.pick = pick;
  [toolsView.sort, toolsView.down] = [preference("toolsort", "calls"), preference("tooldown", "1") === "1"];
  const timer = exported ? 0 : setInterval(() => readTools(d), 2000);
  readTools(d);
}

async function readTools(d) {
  try {
    const t = await getTools();
    if (toolsView.open === d) drawTools(d, t);
  } catch (e) {
    if (toolsView.open === d) d.body.replaceChildren(h("p", { class: "note bad", text: e.message }));
  }
}

function drawTools(d, t) {
  const focus = document.activeElement?.dataset?.sort;
  const parts = [];
  const listed = t.tools || [];
  if (!listed.length) parts.push(h("p", { class: "hint", text: "No tool was listed or called yet." }));
  else parts.push(statTable(d, t, listed, "Tools", true));
  if (t.methods?.length) parts.push(h("h3", { text: "Methods" }), statTable(d, t, t.methods, "Methods", false));
  d.body.replaceChildren(...parts);
  if (focus) d.body.querySelector('[data-sort="' + CSS.escape(focus) + '"]')?.focus();
}

function statTable(d, t, stats, caption, tools) {
  const columns = statColumns.filter((c) => (c.key !== "def" || tools) && (c.key !== "srv" || stats.some((s) => s.srv !== stats[0].srv)));
  const by = columns.find((c) => c.key === toolsView.sort && c.of) || columns.find((c) => c.key === "calls");
  const sorted = [...stats].sort((a, b) => compare(by.of(a), by.of(b)) * (toolsView.down ? -1 : 1)).slice(0, 500);
  const head = h("tr", {}, ...columns.map((c) => headCell(d, t, c, by, caption)));
  const body = h("tbody", {});
  for (const s of sorted) body.append(h("tr", {}, ...columns.map((c) => statCell(d, c, s, tools))));
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Statistics of " + caption.toLowerCase() }, h("table", { class: "wide stats" }, h("caption", { class: "vh", text: caption }), h("thead", {}, head), body));
}

function compare(a, b) {
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}

function headCell(d, t, c, by, caption) {
  const sorted = c.key === by.key;
  const th = h("th", { scope: "col", class: c.number ? "right" : "", title: c.title, "aria-sort": sorted ? (toolsView.down ? "descending" : "ascending") : null });
  if (!c.of) {
    th.textContent = c.label;
    return th;
  }
  th.append(h("button", { type: "button", "data-sort": caption + c.key, text: c.label + (sorted ? (toolsView.down ? " ▾" : " ▴") : ""), on: { click: () => {
    toolsView.down = sorted ? !toolsView.down : !!c.number;
    toolsView.sort = c.key;
    setPreference("toolsort", c.key);
    setPreference("tooldown", toolsView.down ? "1" : "0");
    drawTools(d, t);
  } } }));
  return th;
}

function statCell(d, c, s, tools) {
  if (c.key === "hist") return h("td", {}, histogram(s.hist, s));
  if (c.key === "name") {
    const field = term(tools ? "tool" : "method", s.name) + (s.srv ? " " + term("server", s.srv) : "");
    return h("th", { scope: "row" }, h("button", { type: "button", class: "link", on: { click: () => {
      d.close();
      toolsView.pick(field);
    } } }, isolated(s.name)));
  }
  const text = c.show ? c.show(c.of(s)) : c.of(s);
  const cell = h("td", { class: (c.number ? "right" : "") + (c.key === "failed" && text ? " bad" : "") });
  cell.append(c.number ? text : isolated(text));
  return cell;
}
