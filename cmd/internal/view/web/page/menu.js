// Menus, after the pattern of ARIA: arrow keys, Home, End, first letters and Escape.
import { byId, h } from "./dom.js";

let open = null;

// openMenu shows a menu at a point or below an element. entries are {label, run, checked, danger,
// hint}, "-" for a line, and {heading}. again is called after a choice, to keep the menu open with
// the entries that it returns. It returns nothing; the focus returns to where it was.
export function openMenu(label, at, entries, again) {
  closeMenu(false);
  const before = document.activeElement;
  const box = h("div", { class: "menu", role: "menu", "aria-label": label, tabindex: "-1" });
  open = { box, before };
  const fill = (list) => {
    const index = items(box).indexOf(document.activeElement);
    box.replaceChildren(...list.map((e) => entry(e, () => {
      const next = again?.(e);
      if (next) fill(next);
      else closeMenu(true);
      e.run();
      if (next) fill(again(e, true));
    })));
    if (index >= 0) items(box)[index]?.focus();
  };
  fill(entries);
  box.addEventListener("keydown", menuKey);
  box.addEventListener("contextmenu", (e) => e.preventDefault());
  byId("main").append(box); // in a landmark
  place(box, at);
  items(box)[0]?.focus();
  addEventListener("pointerdown", outside, true);
  addEventListener("blur", lost);
  addEventListener("resize", lost);
}

function entry(e, run) {
  if (e === "-") return h("div", { class: "menu-line", role: "separator" });
  if (e.heading) return h("div", { class: "menu-heading", role: "presentation", text: e.heading });
  const check = e.checked !== undefined;
  const el = h("button", { type: "button", class: "menu-item" + (e.danger ? " bad" : ""), role: check ? "menuitemcheckbox" : "menuitem", "aria-checked": check ? String(e.checked) : null, tabindex: "-1", on: { click: run } });
  if (check) el.append(h("span", { class: "menu-check", "aria-hidden": "true", text: e.checked ? "✓" : "" }));
  el.append(h("span", { class: "menu-label" }, e.label));
  if (e.hint) el.append(h("kbd", { "aria-hidden": "true", text: e.hint }));
  return el;
}

function items(box) {
  return [...box.querySelectorAll(".menu-item")];
}

// place moves a menu to a point or below an element, inside the window.
function place(box, at) {
  const b = at instanceof Element ? at.getBoundingClientRect() : { left: at.x, bottom: at.y, top: at.y };
  const size = box.getBoundingClientRect();
  const left = Math.max(4, Math.min(b.left, innerWidth - size.width - 4));
  const below = b.bottom + size.height + 4 <= innerHeight;
  const top = below ? b.bottom + 2 : Math.max(4, Math.min(b.top - size.height - 2, innerHeight - size.height - 4));
  box.style.left = left + "px";
  box.style.top = Math.max(4, top) + "px";
}

function menuKey(e) {
  const list = items(open.box);
  const i = list.indexOf(document.activeElement);
  const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: list.length - 1 }[e.key];
  e.stopPropagation();
  if (e.key === "Escape" || e.key === "Tab") {
    e.preventDefault();
    closeMenu(true);
  } else if (to !== undefined) {
    e.preventDefault();
    list[(to + list.length) % list.length]?.focus();
  } else if (e.key.length === 1 && e.key !== " ") {
    const start = e.key.toLowerCase();
    const next = [...list.slice(i + 1), ...list.slice(0, i + 1)].find((el) => el.querySelector(".menu-label").textContent.toLowerCase().startsWith(start));
    next?.focus();
  }
}

function outside(e) {
  if (open && !open.box.contains(e.target)) closeMenu(false);
}

function lost() {
  closeMenu(false);
}

// closeMenu closes the menu, if there is one. focus returns the focus to where it was.
export function closeMenu(focus) {
  if (!open) return;
  const { box, before } = open;
  open = null;
  removeEventListener("pointerdown", outside, true);
  removeEventListener("blur", lost);
  removeEventListener("resize", lost);
  box.remove();
  if (focus && before?.isConnected) before.focus({ preventScroll: true });
}

// menuOpen reports whether a menu is open.
export function menuOpen() {
  return open !== null;
}
