// The head of the list: it sorts by a click, and moves the borders of columns by the pointer or, by
// keyboard, with Shift and an arrow key.
import { columnList, isShown, resetColumns, setShown, setSort, setWidth } from "./columns.js";
import { h } from "./dom.js";
import { openMenu } from "./menu.js";
import { view } from "./state.js";

const head = { root: null, changed: null };

// initHead listens to the head of the list. changed is called when the user has chosen something.
export function initHead(root, changed) {
  head.root = root;
  head.changed = changed;
  root.addEventListener("contextmenu", (e) => {
    e.preventDefault();
    showColumns({ x: e.clientX, y: e.clientY });
  });
}

// headCell returns the head of a column.
export function headCell(c, i) {
  const sort = view.sort?.key === c.key ? (view.sort.down ? "descending" : "ascending") : null;
  const cell = h("div", { role: "columnheader", class: "cell c-" + c.key + (c.right ? " right" : ""), "aria-colindex": String(i + 1), title: c.title, "aria-sort": sort });
  const label = h("span", { text: c.label || "Kind", class: c.label ? "" : "vh" });
  if (!c.by) cell.append(label);
  else {
    const sign = sort ? (view.sort.down ? " ▾" : " ▴") : "";
    cell.append(h("button", { type: "button", class: "sort", "data-column": c.key, on: { click: () => sortBy(c), keydown: (e) => headKey(e, c, cell) } }, label, h("span", { "aria-hidden": "true", text: sign })));
  }
  if (c.label) cell.append(grip(c, cell));
  return cell;
}

function sortBy(c) {
  setSort(c.key);
  head.changed();
  head.root.querySelector('[data-column="' + c.key + '"]')?.focus();
}

function headKey(e, c, cell) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
  if (!by || !e.shiftKey) return;
  e.preventDefault();
  e.stopPropagation();
  const em = parseFloat(getComputedStyle(cell).fontSize);
  setWidth(c.key, cell.getBoundingClientRect().width / em + by);
  head.changed();
  head.root.querySelector('[data-column="' + c.key + '"]')?.focus();
}

// grip returns the right border of a column, which the pointer can move.
function grip(c, cell) {
  const el = h("span", { class: "grip", "aria-hidden": "true" });
  let from = null;
  el.addEventListener("pointerdown", (e) => {
    e.preventDefault();
    e.stopPropagation();
    el.setPointerCapture(e.pointerId);
    from = { x: e.clientX, width: cell.getBoundingClientRect().width, em: parseFloat(getComputedStyle(head.root).fontSize) };
  });
  el.addEventListener("pointermove", (e) => {
    if (!from) return;
    setWidth(c.key, (from.width + e.clientX - from.x) / from.em);
    head.changed(true);
  });
  const end = () => {
    if (from) head.changed();
    from = null;
  };
  el.addEventListener("pointerup", end);
  el.addEventListener("lostpointercapture", end);
  el.addEventListener("click", (e) => e.stopPropagation());
  el.addEventListener("dblclick", (e) => {
    e.stopPropagation();
    view.widths.delete(c.key);
    head.changed();
  });
  return el;
}

// showColumns opens the menu of columns at a point or below an element.
export function showColumns(at) {
  const entries = () => {
    const px = head.root.clientWidth;
    const em = parseFloat(getComputedStyle(head.root).fontSize);
    const list = columnList.filter((c) => !c.fixed).map((c) => ({ label: c.name || c.label, checked: isShown(c, px, em), run: () => {
      setShown(c.key, !isShown(c, px, em));
      head.changed();
    } }));
    return [{ heading: "Columns" }, ...list, "-", { label: "Reset columns", run: () => {
      resetColumns();
      head.changed();
    } }];
  };
  openMenu("Columns", at, entries(), entries);
}
