// Tabs, after the pattern of ARIA: arrow keys and one tab stop.
import { h } from "./dom.js";

export class Tabs {
  // list is [{id, label}…]. pick(id) is called when the user selects a tab. panel is the element
  // that all tabs share.
  constructor(root, panel, list, pick) {
    this.root = root;
    this.panel = panel;
    this.list = list;
    this.pick = pick;
    this.current = "";
    this.buttons = new Map();
    list.forEach((t, i) => {
      const b = h("button", { type: "button", role: "tab", id: "tab-" + t.id, "aria-controls": panel.id, "aria-selected": "false", tabindex: "-1", title: t.label + " (" + (i + 1) + ")", on: { click: () => pick(t.id) } });
      b.append(h("span", { text: t.label }), h("span", { class: "count" }));
      this.buttons.set(t.id, b);
      root.append(b);
    });
    root.addEventListener("keydown", (e) => this.key(e));
  }

  key(e) {
    const list = this.list.filter((t) => !this.buttons.get(t.id).hidden);
    const i = list.findIndex((t) => t.id === this.current);
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: list.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    e.stopPropagation();
    const next = list[(to + list.length) % list.length].id;
    this.pick(next);
    this.buttons.get(next).focus();
  }

  // select marks a tab as selected.
  select(id) {
    this.current = id;
    this.setVisible(id, true);
    for (const [name, b] of this.buttons) {
      b.setAttribute("aria-selected", String(name === id));
      b.tabIndex = name === id ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", "tab-" + id);
    this.buttons.get(id)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // setVisible shows or hides a tab. The selected tab stays visible.
  setVisible(id, visible) {
    this.buttons.get(id).hidden = !visible && id !== this.current;
  }

  // count shows a number beside a label, and grays out an empty tab.
  count(id, text, empty) {
    const b = this.buttons.get(id);
    b.lastChild.textContent = text;
    b.classList.toggle("empty", empty);
  }
}
