// The differences between two marked rows.
import { apiPost } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { isolated, setText } from "./safetext.js";

const opWords = { add: ["+", "added"], remove: ["−", "removed"], replace: ["≠", "changed"] };

// showDiff shows the differences between the rows a and b.
export async function showDiff(a, b) {
  const d = openDialog("Differences", [h("p", { class: "hint busy", text: "Comparing…" })], { wide: true });
  try {
    const diff = await apiPost("/api/diff", { a: a.q, b: b.q });
    d.body.replaceChildren(heads(a, b), ...diffParts(diff));
  } catch (e) {
    d.body.replaceChildren(h("p", { class: "note bad", text: e.message }));
  }
}

// diffParts returns the elements for a response of POST /api/diff.
export function diffParts(diff) {
  const notes = (diff.notes || []).map((t) => h("p", { class: "note" }, isolated(t)));
  return [...notes, part("Request", diff.request), part("Response", diff.response)];
}

function heads(a, b) {
  const head = (sign, r) => h("p", {}, h("span", { class: "g", text: sign + " " }), "#" + r.n + " ", isolated(r.sum || r.m));
  return h("div", { class: "diffheads" }, head("−", a), head("+", b));
}

function part(title, list) {
  const box = h("section", {}, h("h3", { text: title }));
  const changes = (list || []).filter((c) => c.op !== "more");
  if (!changes.length) {
    box.append(h("p", { class: "hint", text: "✓ No difference." }));
    return box;
  }
  const table = h("table", { class: "wide diff" }, h("caption", { class: "vh", text: "Differences of the " + title.toLowerCase() + "s" }), h("thead", {}, h("tr", {}, ...["Where", "First", "Second"].map((t) => h("th", { scope: "col", text: t })))));
  const rows = h("tbody", {});
  for (const c of changes) rows.append(change(c));
  table.append(rows);
  box.append(h("p", { class: "hint", text: plural(changes.length, "difference") + (list.length > changes.length ? ", and more" : "") }), h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Differences of the " + title.toLowerCase() + "s" }, table));
  return box;
}

function change(c) {
  const [sign, word] = opWords[c.op] || ["≠", "changed"];
  const value = (text, cls, cut) => {
    const td = h("td", { class: text ? cls : "" });
    const code = h("bdi", { class: "code" });
    setText(code, text ?? "", true);
    td.append(code);
    if (text && cut) td.append(h("span", { class: "hint", text: " … (cut)" }));
    return td;
  };
  const where = h("th", { scope: "row" }, h("span", { class: "g op-" + (Object.hasOwn(opWords, c.op) ? c.op : "replace"), "aria-label": word, role: "img", text: sign }), " ", isolated(c.pointer || "(all)", "code"));
  return h("tr", {}, where, value(c.old, "old", c.cut), value(c.new, "new", c.cut));
}
