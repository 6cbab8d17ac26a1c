// The tab Translated: messages before and after a bridge, side by side or, where there is little
// space, line by line.
import { h } from "./dom.js";
import { fmtSize, plural } from "./format.js";
import { indentOf, spansInto } from "./lines.js";
import { isolated } from "./safetext.js";
import { payloadView } from "./tab-payload.js";

// tabTranslated returns the content of the tab. go shows the row with a number.
export function tabTranslated(d, go) {
  const box = h("div", { class: "translated" });
  for (const t of d.translated) box.append(h("section", {}, heading(t, go), t.lines ? pairs(t) : apart(d, t)));
  return box;
}

function heading(t, go) {
  const side = (m) => {
    if (!m) return h("span", { class: "hint", text: "evicted" });
    const name = (m.side ? m.side + " " : "") + "#" + m.n;
    return h("span", {}, m.row ? h("button", { type: "button", class: "tolink", text: name, title: "Go to the other side", on: { click: () => go(m.row) } }) : h("b", { text: name }), " ", h("span", { class: "n", text: fmtSize(m.len) }));
  };
  return h("h3", { class: "became" }, h("span", { class: "g", text: t.dir === "s2c" ? "← " : "→ " }), side(t.before), " ⇄ ", side(t.after), " ", isolated(t.rule, "code"));
}

function apart(d, t) {
  return h("div", { class: "sides" }, ...[["Before", t.before], ["After", t.after]].map(([title, m]) => m && payloadView(d, m, title)));
}

function pairs(t) {
  const box = h("div", { class: "pairs lines", role: "group", "aria-label": "Before and after" });
  if (!t.changed) box.append(h("p", { class: "hint whole", text: "✓ Unchanged." }));
  for (const [b, a, differs] of t.lines) {
    if (!b && !a) {
      box.append(h("p", { class: "hint whole", text: "⋯ " + plural(differs, "line") + " unchanged" }));
      continue;
    }
    box.append(half(t.before, b, differs, "old", "−"), half(t.after, a, differs, "new", "+"));
  }
  if (t.before.left || t.after.left) box.append(h("p", { class: "hint whole", text: "There are more lines, which are not shown." }));
  return box;
}

const words = { old: "before: ", new: "after: " };

function half(m, n, differs, side, sign) {
  const line = n && m.lines[n - 1];
  const el = h("div", { class: "line " + side + (line ? (differs ? " differs" : " equal") : " none") });
  if (!line) return el;
  el.style.setProperty("--d", String(indentOf(line.d)));
  if (differs) el.append(h("span", { class: "sign", "aria-hidden": "true", text: sign }), h("span", { class: "vh", text: words[side] }));
  const text = h("bdi", { class: "code" });
  spansInto(text, line.s, true);
  el.append(text);
  return el;
}
