// The cells of the list.
import { h } from "./dom.js";
import { fmtClock, fmtCount, fmtDelta, fmtMs, fmtSize, fmtTimer, plural } from "./format.js";
import { hasName } from "./columns.js";
import { isPending, kindText, progressOf, statusText, toneOf } from "./row.js";
import { isPlain, setText } from "./safetext.js";
import { captureLetter, serverClass, serverSign } from "./servers.js";
import { now, store } from "./store.js";
import { view } from "./state.js";
import { newWave } from "./waterfall.js";

// newCell returns the cell of a column.
export function newCell(column, index) {
  const cell = h("div", { role: "gridcell", class: "cell c-" + column.key + (column.right ? " right" : ""), "aria-colindex": String(index + 1) });
  if (column.key === "wave") cell.append(newWave());
  if (column.key === "what") {
    cell.append(h("button", { class: "fold", type: "button", tabindex: "-1", "aria-hidden": "true" }), h("span", { class: "srv" }), h("span", { class: "t" }), h("span", { class: "m" }), h("span", { class: "x" }));
  }
  if (column.key === "server") cell.append(h("span", { class: "srv", "aria-hidden": "true" }), h("span", {}));
  return cell;
}

// setCaptured sets a captured text if it has changed: most cells stay the same from frame to frame.
// The style sheet isolates its writing direction.
function setCaptured(el, text) {
  if (el.shown === text) return;
  el.shown = text;
  if (el.none !== (text === "")) el.classList.toggle("none", (el.none = text === ""));
  setNode(el, text);
}

// setNode changes the existing text node if possible, which is the fastest way.
function setNode(el, text) {
  if (!isPlain(text)) setText(el, text);
  else if (el.childNodes.length === 1 && el.firstChild.nodeType === Node.TEXT_NODE) el.firstChild.data = text;
  else el.textContent = text;
}

// setOwn is like setCaptured for texts of the page itself.
function setOwn(el, text) {
  if (el.shown === text) return;
  el.shown = text;
  setNode(el, text);
}

function setLabel(el, text) {
  if (el.shownLabel === text) return;
  el.shownLabel = text;
  el.setAttribute("aria-label", text);
}

// fillCell updates a cell. item is an item of items.js, before the one of the line above. shape is
// {compact, args, server}: whether there is little space, and which columns there are.
export function fillCell(cell, key, item, before, shape) {
  const r = item.row;
  switch (key) {
    case "num":
      return setOwn(cell, numberText(r, item.back ? r.rn : r.n));
    case "time":
      return setOwn(cell, timeText(item, before));
    case "glyph":
      return glyph(cell, item);
    case "server":
      drawServer(cell.firstChild, r);
      return setCaptured(cell.lastChild, r.sd ? r.sd.replace("stream", "") + " " + store.serverName(r) : r.srv);
    case "method":
      return setCaptured(cell, methodText(r, false));
    case "what":
      return drawName(cell, item, shape);
    case "args":
      return setCaptured(cell, excerpt(item));
    case "id":
      return setCaptured(cell, String(r.id));
    case "status":
      return setOwn(cell, item.back || !item.frame ? statusText(r) : "");
    case "reqb":
      return setOwn(cell, item.back || !r.rq ? "" : fmtSize(r.rq));
    case "resb":
      return setOwn(cell, (item.frame && !item.back) || !r.rs ? "" : fmtSize(r.rs));
    case "latency":
      return setOwn(cell, item.frame && !item.back ? "" : latencyText(r));
    case "findings":
      return findings(cell, r);
  }
}

// latencyText returns the time that a row took, or has taken so far.
function latencyText(r) {
  if (isPending(r)) return fmtTimer(now() - r.at);
  return r.l >= 0 && (r.k === "request" || r.k === "http") ? fmtMs(r.l) : "";
}

function timeText(item, before) {
  if (view.time === "start") return (item.at - store.first < 0 ? 0 : (item.at - store.first) / 1000).toFixed(3);
  if (view.time === "delta") return before ? fmtDelta(item.at - before.at) : "";
  return fmtClock(item.at);
}

// methodText returns the method. Where there is little space, only the sign tells notifications
// apart.
function methodText(r, compact) {
  if (!r.m) return kindText(r);
  return compact && r.m.startsWith("notifications/") ? r.m.slice("notifications/".length) : r.m;
}

// numberText returns the number of an event, after the letter of its capture if there are several.
export function numberText(r, n) {
  return n ? (store.letters ? captureLetter(r.ci) : "") + n : "";
}

// drawServer shows the sign of a row's server in its color.
function drawServer(el, r) {
  if (el.shown === r.si) return;
  el.shown = r.si;
  el.className = "srv " + serverClass(r.si);
  el.textContent = serverSign(r.si);
}

// drawName shows the tool, prompt or resource before the method.
function drawName(cell, item, shape) {
  const r = item.row;
  const [fold, server, name] = cell.children;
  const rest = cell.lastChild;
  const method = rest.previousSibling;
  drawFold(fold, item);
  const several = !shape.server && (store.severalServers() || r.sd !== "");
  if (server.hidden === several) server.hidden = !several;
  if (several) drawServer(server, r);
  const byName = hasName(r);
  setCaptured(name, byName ? r.tg : methodText(r, true));
  setCaptured(method, byName ? (shape.compact ? "" : r.m) : r.tg);
  setCaptured(rest, shape.args || (shape.compact && r.m && !byName && !r.run) ? "" : excerpt(item));
  drawMeter(cell, item.back || (item.frame && !r.run) ? null : r.run || isPending(r) ? progressOf(r) : null);
}

// drawMeter shows the progress of a pending row, or of a run of progress, as a bar.
function drawMeter(cell, p) {
  const key = p ? p.text : "";
  if (cell.meter === key) return;
  cell.meter = key;
  let el = cell.querySelector(".meter");
  if (!p) {
    el?.remove();
    return;
  }
  if (!el) cell.insertBefore((el = h("span", { class: "meter" }, h("i", {}))), cell.querySelector(".m"));
  const known = p.share >= 0;
  el.classList.toggle("unknown", !known);
  el.firstChild.style.width = known ? (p.share * 100).toFixed(1) + "%" : "";
  el.title = known ? Math.round(p.share * 100) + " %" : p.text;
}

// excerpt returns the beginning of the arguments or the text of a row, or its error message.
function excerpt(item) {
  const r = item.row;
  if (r.run) return "every " + fmtMs(r.every) + (r.x ? "  " + r.x : "");
  const text = r.st === "error" && r.msg && (item.back || !item.frame) ? r.msg : item.back ? "" : r.x;
  return text === r.tg ? "" : text;
}

function glyph(cell, item) {
  const r = item.row;
  const sign = item.back ? "←" : r.g || "•";
  setOwn(cell, sign);
  const text = item.back ? "response" : kindText(r) + (r.d === "s2c" ? ", from the server" : "");
  setLabel(cell, text);
}

function drawFold(button, item) {
  const state = item.kids ? (item.unfolded ? "▾" : "▸") : "";
  if (button.shown !== state) {
    button.shown = state;
    button.textContent = state;
    button.hidden = !state;
  }
}

const findingParts = [["l-error", "✖", "error"], ["l-warning", "▲", "warning"], ["l-info", "ℹ", "other"]];

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

// drawEdge colors the edge of a line by its server. It is an element without others inside, because
// a color of the row would be inherited by all of its cells, and computed again at each scroll.
export function drawEdge(el, r) {
  const cls = store.severalServers() ? "edge " + serverClass(r.si) : "edge none";
  if (el.shown === cls) return;
  el.shown = el.className = cls;
}

// rowClass returns the classes of a row.
export function rowClass(item, selected, marked) {
  const r = item.row;
  let s = "row tone-" + (item.back && toneOf(r) === "ask" ? "answer" : toneOf(r)) + " d" + Math.min(item.depth, 6);
  if (r.sd) s += " " + r.sd;
  if (isPending(r)) s += " going";
  if (selected) s += " selected";
  if (marked) s += " marked";
  return s;
}

// setTitle names a row in a heading.
export function setTitle(el, r) {
  setText(el, hasName(r) ? r.tg + "  " + r.m : r.m && r.tg ? r.m + " " + r.tg : r.m || kindText(r));
}
