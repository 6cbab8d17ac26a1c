// The list, a tree grid. Only visible lines have elements. All lines have the same height, so that
// the position of each of 100,000 lines is known.
import { drawEdge, fillCell, newCell, rowClass } from "./cells.js";
import { columnsFor, growing, tracks } from "./columns.js";
import { initHead, headCell } from "./head.js";
import { h, nextPaint } from "./dom.js";
import { itemAt } from "./items.js";
import { isPending } from "./row.js";
import { now } from "./store.js";
import { drawRuler, drawWave, waveScale } from "./waterfall.js";

const rulerPause = 120; // ms until the ruler follows the list

const margin = 4; // lines above and below the visible ones that have elements

export class Grid {
  // root has the elements .head and .body. callbacks are {select(item, open), fold(item),
  // follow(on), columns(), menu(item, at)}.
  constructor(root, callbacks) {
    this.root = root;
    this.head = root.querySelector(".head");
    this.body = root.querySelector(".body");
    this.canvas = root.querySelector(".canvas");
    this.callbacks = callbacks;
    this.list = [];
    this.pool = [];
    this.marked = new Set();
    this.active = -1; // index of the selected line
    this.columns = [];
    this.height = 0;
    this.following = true; // stay at the newest line
    this.scheduled = false;
    this.lastTop = 0;
    this.top = 0; // scrollTop of the body; reading that would make the browser lay out everything
    this.viewHeight = 0;
    this.total = 0;
    this.shape = { compact: false, args: false, server: false };
    this.listen();
  }

  listen() {
    this.body.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.body.addEventListener("click", (e) => this.clicked(e));
    this.body.addEventListener("dblclick", (e) => this.doubleClicked(e));
    this.body.addEventListener("contextmenu", (e) => this.menuWanted(e));
    initHead(this.head, this.callbacks.columns);
    new ResizeObserver(() => this.measure()).observe(this.root);
    this.measure();
  }

  measure() {
    const width = this.root.clientWidth;
    const em = parseFloat(getComputedStyle(this.root).fontSize);
    const coarse = matchMedia("(pointer: coarse)").matches;
    const height = Math.round(em * (coarse ? 2.8 : 2));
    if (!width) return;
    const columns = columnsFor(width, em);
    const same = columns.length === this.columns.length && columns.every((c, i) => c === this.columns[i]);
    const focused = this.hasFocus();
    if (!same || height !== this.height) {
      this.columns = columns;
      this.height = height;
      this.canvas.textContent = "";
      this.pool = [];
      this.drawHead();
    }
    this.root.style.setProperty("--tracks", tracks(columns, width));
    for (const [name, value] of Object.entries(growing(width, em))) this.root.style.setProperty(name, value);
    this.root.style.setProperty("--gutter", this.body.offsetWidth - this.body.clientWidth + "px");
    this.root.style.setProperty("--row", height + "px");
    const has = (key) => this.columns.some((c) => c.key === key);
    this.shape = { compact: width < (has("args") ? 70 : 48) * em, args: has("args"), server: has("server") };
    this.viewHeight = this.body.clientHeight;
    this.waveWidth = this.waveHead?.clientWidth || 0;
    this.resizeCanvas();
    if (focused) this.focus();
    else this.refresh();
  }

  drawHead() {
    this.head.textContent = "";
    const row = h("div", { role: "row", class: "row", "aria-rowindex": "1" });
    this.waveHead = null;
    this.columns.forEach((c, i) => {
      const cell = headCell(c, i);
      if (c.key === "wave") cell.append((this.waveHead = h("span", { class: "ruler", "aria-hidden": "true" })));
      row.append(cell);
    });
    this.head.append(row);
    this.root.setAttribute("aria-colcount", String(this.columns.length));
  }

  // columnsChanged draws everything again after the user has chosen other columns.
  columnsChanged() {
    this.columns = [];
    this.measure();
  }

  // show sets the lines, see items.js, and the index of the selected one, or -1.
  show(list, active) {
    const anchor = this.following ? null : this.anchor();
    this.list = list;
    this.active = active;
    this.resizeCanvas();
    if (!this.following && anchor) this.restoreAnchor(anchor);
    this.draw();
  }

  // anchor returns the line at the top, which stays there when lines above it are added or removed.
  anchor() {
    const index = Math.floor(this.top / this.height);
    return index > 0 && index < this.list.length ? { element: this.list[index], index } : null;
  }

  restoreAnchor(anchor) {
    if (this.list[anchor.index] === anchor.element) return;
    const index = this.list.indexOf(anchor.element);
    if (index < 0) return;
    this.scrollTo(this.top + (index - anchor.index) * this.height);
  }

  resizeCanvas() {
    const total = this.list.length * this.height;
    if (total !== this.total) {
      this.total = total;
      this.canvas.style.height = total + "px";
    }
    const count = String(this.list.length + 1);
    if (count !== this.counted) {
      this.counted = count;
      this.root.setAttribute("aria-rowcount", count);
    }
  }

  maxTop() {
    return Math.max(0, this.total - this.viewHeight);
  }

  scrolled() {
    const top = this.body.scrollTop;
    this.top = top;
    const up = top < this.lastTop - 1;
    this.lastTop = top;
    const atEnd = top >= this.maxTop() - this.height;
    if (this.following && up && !atEnd) this.callbacks.follow(false);
    else if (!this.following && !up && atEnd && this.byUser) this.callbacks.follow(true);
    this.byUser = true;
    this.refresh();
  }

  // refresh draws the visible lines before the next frame.
  refresh() {
    if (this.scheduled) return;
    this.scheduled = true;
    nextPaint(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  visible() {
    if (this.following) this.top = this.maxTop();
    const top = Math.min(this.top, this.maxTop());
    const first = Math.max(0, Math.floor(top / this.height) - margin);
    const last = Math.min(this.list.length, Math.ceil((top + this.viewHeight) / this.height) + margin);
    return [first, last];
  }

  draw() {
    if (!this.columns.length) return;
    const [first, last] = this.visible();
    const wanted = [];
    for (let i = first; i < last; i++) wanted.push(i);
    const tabStop = this.active >= 0 && this.active < this.list.length ? this.active : first;
    if (this.list.length && (tabStop < first || tabStop >= last)) wanted.push(tabStop);
    const free = new Map(this.pool.map((el) => [el.index, el]));
    const spare = [];
    const keep = new Set(wanted);
    for (const [i, el] of free) if (!keep.has(i)) spare.push(el);
    const at = now();
    const span = this.columns.some((c) => c.key === "wave") ? this.span(at) : null;
    for (const i of wanted) {
      let el = free.get(i);
      if (!el) el = spare.pop() || this.newRow();
      this.fill(el, i, i === tabStop, span, at);
    }
    const focused = this.hasFocus();
    for (const el of spare) el.remove();
    if (spare.length) this.pool = this.pool.filter((el) => el.isConnected);
    if (this.following && this.scrolledTo !== this.top) this.body.scrollTop = this.scrolledTo = this.top;
    if (!this.following) this.scrolledTo = -1;
    if (focused) this.restoreFocus();
  }

  restoreFocus() {
    const el = this.pool.find((e) => e.$tabindex === "0");
    if (el && el !== document.activeElement && !el.contains(document.activeElement)) el.focus({ preventScroll: true });
  }

  // span returns the scale of the time that the visible lines cover.
  span(at) {
    const rows = [];
    const top = Math.min(this.top, this.maxTop());
    const last = Math.min(this.list.length, Math.ceil((top + this.viewHeight) / this.height));
    for (let i = Math.max(0, Math.floor(top / this.height)); i < last; i++) rows.push(itemAt(this.list, i).row);
    const span = waveScale(rows, at);
    this.scale = span;
    if (this.waveHead && !this.rulerTimer) this.rulerTimer = setTimeout(() => this.drawRuler(), rulerPause);
    return span;
  }

  // drawRuler draws the ruler of the waterfall. It makes the browser lay out the head, which is too
  // much for each frame while the list scrolls.
  drawRuler() {
    this.rulerTimer = 0;
    if (this.waveHead && this.scale) drawRuler(this.waveHead, this.scale, this.waveWidth);
  }

  newRow() {
    const el = h("div", { role: "row", class: "row" });
    this.columns.forEach((c, i) => el.append(newCell(c, i)));
    el.append(h("i", { class: "edge none", "aria-hidden": "true" }));
    this.canvas.append(el);
    this.pool.push(el);
    return el;
  }

  fill(el, i, tabStop, span, at) {
    const item = itemAt(this.list, i);
    const before = i > 0 && this.columns.length ? itemAt(this.list, i - 1) : null;
    const selected = i === this.active;
    if (el.index !== i) {
      el.index = i;
      el.style.transform = "translateY(" + i * this.height + "px)";
      el.setAttribute("aria-rowindex", String(i + 2));
    }
    el.item = item;
    const cls = rowClass(item, selected, this.marked.has(item.row.q)) + (i % 2 ? " odd" : "");
    if (el.cls !== cls) el.className = el.cls = cls;
    setAttribute(el, "tabindex", tabStop ? "0" : "-1");
    setAttribute(el, "aria-selected", selected ? "true" : "false");
    setAttribute(el, "aria-level", String(item.depth + 1));
    setAttribute(el, "aria-expanded", item.kids ? String(item.unfolded) : null);
    drawEdge(el.lastChild, item.row);
    this.columns.forEach((c, k) => {
      const cell = el.children[k];
      if (c.key === "wave") drawWave(cell.firstChild, item.row, span, at);
      else fillCell(cell, c.key, item, before, this.shape);
    });
  }

  // tick updates timers.
  tick() {
    if (this.pool.some((el) => el.item && isPending(el.item.row))) this.refresh();
  }

  // reveal scrolls to make a line visible.
  reveal(i) {
    if (i < 0) return;
    const top = i * this.height;
    const view = this.viewHeight;
    if (top < this.top) this.scrollTo(top);
    else if (top + this.height > this.top + view) this.scrollTo(top + this.height - view);
    this.refresh();
  }

  // scrollTo scrolls without the effect that scrolling by the user has on following.
  scrollTo(top) {
    this.byUser = false;
    this.top = Math.max(0, Math.min(top, this.maxTop()));
    this.body.scrollTop = this.top;
  }

  // focus moves the focus to the selected line, or to the first.
  focus() {
    this.draw();
    const el = this.pool.find((e) => e.$tabindex === "0");
    if (el) el.focus({ preventScroll: true });
  }

  hasFocus() {
    return this.body.contains(document.activeElement);
  }

  perPage() {
    return Math.max(1, Math.floor(this.viewHeight / this.height) - 1);
  }

  clicked(e) {
    const el = e.target.closest(".row");
    if (!el || !el.item) return;
    if (e.target.closest(".fold")) this.callbacks.fold(el.item);
    else this.callbacks.select(el.item, true);
  }

  // menuWanted opens the menu of a line, at the pointer or, by keyboard, below the line.
  menuWanted(e) {
    const el = e.target.closest(".row");
    if (!el || !el.item) return;
    e.preventDefault();
    this.callbacks.menu(el.item, e.clientX || e.clientY ? { x: e.clientX, y: e.clientY } : this.menuPlace(el));
  }

  // menuPlace returns where the menu of a line opens by keyboard.
  menuPlace(el) {
    el ||= this.pool.find((e) => e.index === this.active);
    const b = (el || this.body).getBoundingClientRect();
    return { x: b.left + Math.min(120, b.width / 4), y: Math.min(b.bottom, innerHeight) };
  }

  doubleClicked(e) {
    const el = e.target.closest(".row");
    if (el && el.item && el.item.kids && !e.target.closest(".fold")) this.callbacks.fold(el.item);
  }
}

// setAttribute sets an attribute if it has changed. It remembers the value, because reading it from
// the element takes longer.
function setAttribute(el, name, value) {
  if (el["$" + name] === value) return;
  el["$" + name] = value;
  if (value === null) el.removeAttribute(name);
  else el.setAttribute(name, value);
}
