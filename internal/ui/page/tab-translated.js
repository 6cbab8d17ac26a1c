// The tab Translated: what a bridge made of a message, side by side.
import { h } from "./dom.js";
import { plural } from "./format.js";
import { isolated } from "./safetext.js";
import { payloadView } from "./tab-payload.js";

// tabTranslated shows messages before and after.
export function tabTranslated(d) {
  const box = h("div", { class: "translated" });
  for (const t of d.translated) {
    const before = h("div", {}, t.before ? payloadView(d, t.before, "Before") : h("p", { class: "hint", text: "There was no message before." }));
    const after = h("div", {}, ...(t.after || []).map((p) => payloadView(d, p, "After")));
    if (!t.after?.length) after.append(h("p", { class: "hint", text: "It became no message: it was answered or dropped on the spot." }));
    if (t.more) after.append(h("p", { class: "hint", text: plural(t.more, "message") + " more" }));
    box.append(h("section", {}, h("h3", {}, "Rule ", isolated(t.rule, "code")), h("div", { class: "sides" }, before, after)));
  }
  return box;
}
