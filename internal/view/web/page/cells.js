// What stands in each cell of the list.
import { h } from "./dom.js";
import { fmtClock, fmtCount, fmtDelta, fmtMs, fmtSize, fmtTimer, plural } from "./format.js";
import { isPending, kindText, statusText, toneOf } from "./row.js";
import { isPlain, setText } from "./safetext.js";
import { now, store } from "./store.js";
import { view } from "./state.js";
import { newWave } from "./waterfall.js";

// newCell makes the cell of a column.
export function newCell(column, index) {
  const cell = h("div", { role: "gridcell", class: "cell c-" + column.key + (column.right ? " right" : ""), "aria-colindex": String(index + 1) });
  if (column.key === "wave") cell.append(newWave());
  if (column.key === "method" || column.key === "what") {
    cell.append(h("button", { class: "fold", type: "button", tabindex: "-1", "aria-hidden": "true" }), h("span", { class: "m" }), h("span", { class: "t" }), h("span", { class: "x" }));
  }
  if (column.key === "target") cell.append(h("span", { class: "t" }), h("span", { class: "x" }));
  return cell;
}

// put sets a text of strangers if it is another than before: most cells stay the same from frame to frame. The style sheet isolates its direction of writing.
function put(el, text) {
  if (el.shown === text) return;
  el.shown = text;
  if (el.none !== (text === "")) el.classList.toggle("none", (el.none = text === ""));
  putPlain(el, text);
}

// putPlain changes the text node that is there, if it can: that is the quickest.
function putPlain(el, text) {
  if (!isPlain(text)) setText(el, text);
  else if (el.childNodes.length === 1 && el.firstChild.nodeType === Node.TEXT_NODE) el.firstChild.data = text;
  else el.textContent = text;
}

function putOwn(el, text) {
  if (el.shown === text) return;
  el.shown = text;
  putPlain(el, text);
}

function label(el, text) {
  if (el.labelled === text) return;
  el.labelled = text;
  el.setAttribute("aria-label", text);
}

// fillCell brings a cell up to date. item: {row, back, before}: back is true for the line of a response in the list of frames. before: the line above. compact: there is little room.
export function fillCell(cell, key, item, before, compact) {
  const r = item.row;
  switch (key) {
    case "num":
      return putOwn(cell, String(item.back ? r.rn || "" : r.n || ""));
    case "time":
      return putOwn(cell, timeText(item, before));
    case "glyph":
      return glyph(cell, item);
    case "server":
      return put(cell, r.srv);
    case "method":
      drawFold(cell.firstChild, item);
      return put(cell.children[1], methodText(r, compact));
    case "what":
      drawFold(cell.firstChild, item);
      put(cell.children[1], compact ? shortMethod(r) : methodText(r, true));
      if (cell.aimed !== !!r.tg) cell.classList.toggle("aimed", (cell.aimed = !!r.tg));
      put(cell.children[2], r.tg);
      return put(cell.children[3], compact && r.m ? "" : excerpt(item));
    case "target":
      put(cell.firstChild, r.tg);
      return put(cell.children[1], excerpt(item));
    case "id":
      return put(cell, String(r.id));
    case "status":
      return putOwn(cell, item.back || !item.frame ? statusText(r) : "");
    case "reqb":
      return putOwn(cell, item.back || !r.rq ? "" : fmtSize(r.rq));
    case "resb":
      return putOwn(cell, (item.frame && !item.back) || !r.rs ? "" : fmtSize(r.rs));
    case "latency":
      return putOwn(cell, item.frame && !item.back ? "" : latencyText(r));
    case "findings":
      return findings(cell, r);
  }
}

// latencyText is how long a row took, or takes so far.
function latencyText(r) {
  if (isPending(r)) return fmtTimer(now() - r.at);
  return r.l >= 0 && (r.k === "request" || r.k === "http") ? fmtMs(r.l) : "";
}

function timeText(item, before) {
  if (view.time === "start") return (item.at - store.first < 0 ? 0 : (item.at - store.first) / 1000).toFixed(3);
  if (view.time === "delta") return before ? fmtDelta(item.at - before.at) : "";
  return fmtClock(item.at);
}

// methodText is the method. Where there is little room, that it is a notification is said by the sign only.
function methodText(r, compact) {
  if (!r.m) return kindText(r);
  return compact && r.m.startsWith("notifications/") ? r.m.slice("notifications/".length) : r.m;
}

function shortMethod(r) {
  return r.tg && r.m === "tools/call" ? "" : methodText(r, true);
}

// excerpt is the beginning of what a row says, or of what its error does.
function excerpt(item) {
  const r = item.row;
  const text = r.st === "error" && r.msg && (item.back || !item.frame) ? r.msg : item.back ? "" : r.x;
  return text === r.tg ? "" : text;
}

function glyph(cell, item) {
  const r = item.row;
  const sign = item.back ? "←" : r.g || "•";
  putOwn(cell, sign);
  const text = item.back ? "response" : kindText(r) + (r.d === "s2c" ? ", from the server" : "");
  label(cell, text);
}

function drawFold(button, item) {
  const state = item.kids ? (item.unfolded ? "▾" : "▸") : "";
  if (button.shown !== state) {
    button.shown = state;
    button.textContent = state;
    button.hidden = !state;
  }
}

const findingParts = [["l-error", "✖", "error"], ["l-warning", "▲", "warning"], ["l-info", "ℹ", "remark"]];

function findings(cell, r) {
  const key = r.findings ? r.findings.join() : "";
  if (cell.shown === key) return;
  cell.shown = key;
  cell.textContent = "";
  findingParts.forEach(([cls, sign, word], i) => {
    const n = r.findings?.[i];
    if (n) cell.append(h("span", { class: cls }, h("span", { "aria-hidden": "true", text: sign + fmtCount(n) }), h("span", { class: "vh", text: plural(n, word) + " " })));
  });
}

// rowClass is what a row looks like.
export function rowClass(item, selected, marked) {
  const r = item.row;
  let s = "row tone-" + (item.back && toneOf(r) === "ask" ? "answer" : toneOf(r)) + " d" + Math.min(item.depth, 6);
  if (r.sd) s += " " + r.sd;
  if (isPending(r)) s += " going";
  if (selected) s += " selected";
  if (marked) s += " marked";
  return s;
}

// titleOf names a row in a few words, for a head line.
export function setTitle(el, r) {
  setText(el, r.m && r.tg ? r.m + " " + r.tg : r.m || kindText(r));
}
