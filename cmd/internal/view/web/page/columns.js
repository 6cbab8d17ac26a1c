// The columns of the list: which are shown, how wide they are, and by which one the list is sorted.
// The address has the user's choices, so that a link shows the same, and the storage keeps them.
import { preference, setPreference, view } from "./state.js";

// from is the least width of the list, in px, at which a column is shown; to is the width at which
// it is no longer shown. width is a track of a CSS grid. by returns what the column is sorted by.
// hidden columns are shown only if the user wants them.
export const columnList = [
  { key: "num", label: "#", name: "Number", title: "Number of the first event, as in mcpwire show -n", from: 760, width: "4.6em", right: true, by: (r) => r.q },
  { key: "time", label: "Time", from: 600, width: "7.6em", right: true, by: (r) => r.at },
  { key: "glyph", label: "", name: "Kind", title: "Direction or kind", from: 0, width: "1.5em", fixed: true },
  { key: "server", label: "Server", from: 1000, width: "var(--server)", by: (r) => r.srv },
  { key: "what", label: "Name", title: "Tool, prompt, resource or method", from: 0, width: "minmax(4em, 1fr)", wide: "var(--name)", fixed: true, by: (r) => nameOf(r) },
  { key: "method", label: "Method", from: 0, hidden: true, width: "10em", by: (r) => r.m },
  { key: "args", label: "Arguments", title: "Arguments or text", from: 940, width: "minmax(6em, 2fr)", by: (r) => r.x },
  { key: "id", label: "ID", title: "Id of the request", from: 1500, width: "4em", right: true, by: (r) => Number(r.id) || 0 },
  { key: "status", label: "Status", from: 0, width: "7.8em", narrow: "6.4em", small: "7em", by: (r) => r.st },
  { key: "reqb", label: "Req B", name: "Bytes of the request", title: "Bytes of the request", from: 1500, width: "4.9em", right: true, by: (r) => r.rq },
  { key: "resb", label: "Res B", name: "Bytes of the response", title: "Bytes of the response", from: 1100, width: "4.9em", right: true, by: (r) => r.rs },
  { key: "latency", label: "Latency", from: 0, width: "5.4em", right: true, by: (r) => (r.l >= 0 ? r.l : r.st === "pending" ? Infinity : -1) },
  { key: "wave", label: "Waterfall", from: 900, width: "minmax(9em, 2.2fr)" },
  { key: "findings", label: "Findings", title: "Findings: errors, warnings, others", from: 420, width: "4.8em", by: (r) => (r.findings ? r.findings[0] * 1e6 + r.findings[1] * 1e3 + r.findings[2] : 0) },
];

export const wideFrom = 940; // px from which names and arguments have separate columns

const named = new Set(["tools/call", "prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe"]);

// hasName reports whether the target of a row names it better than its method does.
export function hasName(r) {
  return r.tg !== "" && named.has(r.m);
}

function nameOf(r) {
  return hasName(r) ? r.tg : r.m || r.k;
}

// readColumns takes the choices from the address, or from the storage if the address has none.
export function readColumns(params) {
  view.columns = parseColumns(params.get("cols") ?? preference("columns", ""));
  view.widths = parseWidths(params.get("w") ?? preference("widths", ""));
  const [, key, down] = /^(\w+)(-?)$/.exec(params.get("sort") ?? preference("sort", "")) || [];
  view.sort = columnList.some((c) => c.key === key && c.by) ? { key, down: !!down } : null;
}

// writeColumns puts the choices into the address.
export function writeColumns(params) {
  if (view.columns.size) params.set("cols", columnsText());
  if (view.widths.size) params.set("w", widthsText());
  if (view.sort) params.set("sort", sortText());
}

function parseColumns(text) {
  const out = new Map();
  for (const [, sign, key] of text.matchAll(/([-+]?)(\w+)/g)) {
    const c = columnList.find((c) => c.key === key);
    if (c && !c.fixed) out.set(key, sign !== "-");
  }
  return out;
}

function parseWidths(text) {
  const out = new Map();
  for (const [, key, em] of text.matchAll(/(\w+):([\d.]+)/g)) {
    if (columnList.some((c) => c.key === key)) out.set(key, clampWidth(Number(em)));
  }
  return out;
}

function columnsText() {
  return [...view.columns].map(([key, shown]) => (shown ? "" : "-") + key).join();
}

function widthsText() {
  return [...view.widths].map(([key, em]) => key + ":" + em.toFixed(1)).join();
}

function sortText() {
  return view.sort ? view.sort.key + (view.sort.down ? "-" : "") : "";
}

function clampWidth(em) {
  return Math.min(80, Math.max(2.5, em || 2.5));
}

// setShown shows or hides a column.
export function setShown(key, shown) {
  view.columns.set(key, shown);
  setPreference("columns", columnsText());
}

// setWidth sets the width of a column, in em.
export function setWidth(key, em) {
  view.widths.set(key, clampWidth(em));
  setPreference("widths", widthsText());
}

// setSort sorts by a column: up, down, or no longer.
export function setSort(key) {
  const c = columnList.find((c) => c.key === key);
  if (!c?.by) return;
  if (view.sort?.key !== key) view.sort = { key, down: !!c.right && key !== "num" && key !== "time" };
  else if (view.sort.down === (!!c.right && key !== "num" && key !== "time")) view.sort = { key, down: !view.sort.down };
  else view.sort = null;
  setPreference("sort", sortText());
}

// resetColumns undoes all choices.
export function resetColumns() {
  view.columns = new Map();
  view.widths = new Map();
  view.sort = null;
  for (const name of ["columns", "widths", "sort"]) setPreference(name, "");
}

// sorted returns rows in the order that the user has chosen.
export function sorted(rows) {
  const c = view.sort && columnList.find((c) => c.key === view.sort.key);
  if (!c) return rows;
  const sign = view.sort.down ? -1 : 1;
  const keys = new Map(rows.map((r) => [r, c.by(r)]));
  return [...rows].sort((a, b) => {
    const [x, y] = [keys.get(a), keys.get(b)];
    if (x < y) return -sign;
    if (x > y) return sign;
    return a.q - b.q;
  });
}

// isShown reports whether a column is shown in a list with a width in px, at a font size in px.
export function isShown(c, px, em) {
  const chosen = view.columns.get(c.key);
  if (chosen !== undefined) return chosen;
  const scale = em / 13;
  return !c.hidden && px >= c.from * scale;
}

// columnsFor returns the columns of a list with a width and a font size, both in px.
export function columnsFor(px, em) {
  return columnList.filter((c) => isShown(c, px, em));
}

// tracks returns grid-template-columns for columns.
export function tracks(columns, px) {
  const wide = columns.some((c) => c.key === "args");
  return columns.map((c) => {
    const own = view.widths.get(c.key);
    if (own && px >= 640) return own + "em";
    return (px < 420 && c.narrow) || (px < 640 && c.small) || (wide && c.wide) || c.width;
  }).join(" ");
}

// growing returns the widths of the columns that grow with the list, up to a maximum.
export function growing(px, em) {
  const between = (least, share, most) => Math.min(most, Math.max(least, (px / em) * share)).toFixed(2) + "em";
  return { "--name": between(12, 0.165, 26), "--server": between(6.5, 0.112, 13) };
}
