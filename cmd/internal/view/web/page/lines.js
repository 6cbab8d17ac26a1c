// Payloads line by line, as the server has prepared them: with colors, with marked invisible
// characters, and as a tree that folds.
import { h } from "./dom.js";
import { appendText } from "./safetext.js";

const spanClass = { p: "j-punct", n: "j-name", s: "j-string", 0: "j-number", l: "j-literal", e: "j-escape", h: "ctl", w: "ctl ws", b: "ctl bad", r: "j-secret", c: "j-remark" };
const firstLines = 400;
const moreLines = 400;
const longText = 600; // characters of a span that are shown at first
const longRaw = 6000; // the same for spans without a kind
const maxIndent = 40;
const maxSpans = 1000; // of a line that are shown at first
const spanBudget = 3000; // of all lines that are added at once

// indentOf returns the indentation of a line with a depth.
export function indentOf(depth) {
  return Math.min(depth || 0, maxIndent);
}

// spansInto adds spans to an element. If collapse is set, it shortens long spans and long lists.
export function spansInto(el, spans, collapse) {
  const list = spans || [];
  const end = collapse ? Math.min(list.length, maxSpans) : list.length;
  for (let i = 0; i < end; i++) {
    const s = list[i];
    const text = s.t || "";
    if (collapse && text.length > (s.k ? longText : longRaw)) longSpan(el, s);
    else oneSpan(el, text, s.k);
  }
  if (end < list.length) moreSpans(el, list.slice(end));
}

// moreSpans adds a button that shows the next spans.
function moreSpans(el, rest) {
  const more = h("button", { type: "button", class: "more", text: "… " + rest.reduce((n, s) => n + (s.t || "").length, 0).toLocaleString("en") + " more characters", on: { click: () => {
    more.remove();
    spansInto(el, rest, true);
  } } });
  el.append(more);
}

function oneSpan(el, text, kind) {
  const cls = Object.hasOwn(spanClass, kind || "") ? spanClass[kind] : "";
  if (!cls) {
    appendText(el, text, false);
    return;
  }
  const span = h("span", { class: cls });
  appendText(span, text, false);
  el.append(span);
}

function longSpan(el, s) {
  let at = (s.k ? longText : longRaw) / 2;
  const head = h("span", { class: Object.hasOwn(spanClass, s.k || "") ? spanClass[s.k] : "" });
  appendText(head, s.t.slice(0, at));
  const rest = () => "… " + (s.t.length - at).toLocaleString("en") + " more characters";
  const more = h("button", { type: "button", class: "more", text: rest(), on: { click: () => {
    const next = Math.min(s.t.length, at + 20000);
    appendText(head, s.t.slice(at, next));
    at = next;
    if (at >= s.t.length) more.remove();
    else more.textContent = rest();
  } } });
  el.append(head, more);
}

// linesView returns an element with lines, which grows as the user scrolls. opts is {tree, label,
// finding(number, element), blob(number, element)}; the functions add to lines what they refer to.
export function linesView(lines, opts) {
  const box = h("div", { class: "lines" + (opts.tree ? " tree" : ""), role: "group", "aria-label": opts.label || "Payload" });
  const state = { lines, opts, box, at: 0, folded: new Set(), ends: opts.tree ? foldEnds(lines) : null };
  if (opts.tree) foldDeep(state);
  const sentinel = h("div", { class: "sentinel" });
  box.append(sentinel);
  const grow = (count) => {
    const part = document.createDocumentFragment();
    let left = spanBudget;
    for (let done = 0; done < count && left > 0 && state.at < lines.length; done++) {
      left -= Math.min(maxSpans, lines[state.at].s?.length || 0);
      part.append(oneLine(state));
    }
    box.insertBefore(part, sentinel);
    if (state.at >= lines.length) {
      watcher.disconnect();
      sentinel.remove();
    }
  };
  const growAgain = () => {
    grow(moreLines);
    watcher.unobserve(sentinel); // observe reports again if the sentinel is still visible
    if (state.at < lines.length) watcher.observe(sentinel);
  };
  const watcher = new IntersectionObserver((entries) => entries.some((e) => e.isIntersecting) && growAgain(), { rootMargin: "800px" });
  state.grow = grow;
  state.sentinel = sentinel;
  grow(firstLines);
  if (state.at < lines.length) watcher.observe(sentinel);
  return box;
}

// foldEnds returns, for each line, the index of the line after those inside it.
function foldEnds(lines) {
  const ends = new Int32Array(lines.length);
  const open = [];
  for (let i = 0; i < lines.length; i++) {
    const depth = lines[i].d || 0;
    while (open.length && (lines[open[open.length - 1]].d || 0) >= depth) ends[open.pop()] = i;
    open.push(i);
  }
  while (open.length) ends[open.pop()] = lines.length;
  return ends;
}

const openDepth = 3; // from which a tree is folded at first
const unfoldedLines = 60; // a tree with at most so many lines is unfolded

function foldDeep(state) {
  if (state.lines.length <= unfoldedLines) return;
  for (let i = 0; i < state.lines.length; i++) if ((state.lines[i].d || 0) >= openDepth && state.ends[i] > i + 1) state.folded.add(i);
}

function oneLine(state) {
  const i = state.at++;
  const line = state.lines[i];
  const depth = line.d || 0;
  const el = h("div", { class: "line" });
  el.style.setProperty("--d", String(indentOf(depth)));
  const inside = state.ends ? state.ends[i] - i - 1 : 0;
  if (inside > 0) el.append(foldButton(state, i, inside));
  const text = h("bdi", { class: "code" });
  spansInto(text, line.s, true);
  el.append(text);
  if (inside > 0 && state.folded.has(i)) {
    foldedInto(state, i, text, inside);
  }
  if (depth > maxIndent) el.prepend(h("span", { class: "deep", text: "depth " + depth }));
  for (const n of line.l || []) state.opts.finding?.(n, el);
  if (line.b) state.opts.blob?.(line.b, el);
  return el;
}

// foldedInto adds a summary of folded lines: the first, their number, and the closing bracket.
function foldedInto(state, i, text, inside) {
  const first = h("span", { class: "folded" });
  spansInto(first, state.lines[i + 1].s, true);
  text.append(" ", first, h("span", { class: "j-remark", text: " … " + inside.toLocaleString("en") + (inside === 1 ? " line " : " lines ") }));
  state.at = state.ends[i];
  const end = state.lines[state.at];
  if (!end || (end.d || 0) !== (state.lines[i].d || 0) || !/^\s*[\]}]/.test(end.s?.[0]?.t || "")) return;
  spansInto(text, end.s, true);
  state.at++;
}

function foldButton(state, i, inside) {
  const shut = state.folded.has(i);
  return h("button", { type: "button", class: "fold", text: shut ? "▸" : "▾", "aria-expanded": String(!shut), "aria-label": (shut ? "Show " : "Hide ") + inside + " lines", on: { click: (e) => {
    if (shut) state.folded.delete(i);
    else state.folded.add(i);
    redrawLines(state, i);
    e.stopPropagation();
  } } });
}

// redrawLines draws lines again after a change of folding, and keeps the focus.
function redrawLines(state, focus) {
  const shown = Math.max(state.at, firstLines);
  while (state.box.firstChild && state.box.firstChild !== state.sentinel) state.box.firstChild.remove();
  if (!state.sentinel.isConnected) state.box.append(state.sentinel);
  state.at = 0;
  const part = document.createDocumentFragment();
  let target = null;
  let count = 0;
  while (state.at < Math.min(shown, state.lines.length) && count++ < 4000) {
    const i = state.at;
    const el = oneLine(state);
    if (i === focus) target = el;
    part.append(el);
  }
  state.box.insertBefore(part, state.sentinel);
  if (state.at >= state.lines.length) state.sentinel.remove();
  target?.querySelector(".fold")?.focus({ preventScroll: true });
}
