// The tab Findings: what the rules have found, why it matters and how to fix it.
import { h } from "./dom.js";
import { isolated } from "./safetext.js";

const findingSigns = { error: ["✖", "l-error"], warning: ["▲", "l-warning"] };
const specHost = "https://modelcontextprotocol.io/";

// tabFindings shows findings.
export function tabFindings(d) {
  const box = h("div", { class: "findings" });
  for (const l of d.findings) box.append(finding(l));
  return box;
}

function finding(l) {
  const [glyph, cls] = findingSigns[l.severity] || ["ℹ", "l-info"];
  const box = h("article", { class: "finding " + cls });
  box.append(h("h3", {}, h("span", { class: cls, text: glyph + " " }), isolated(l.message || l.title)));
  const facts = h("dl", { class: "facts" });
  const fact = (name, value) => value && facts.append(h("dt", { text: name }), h("dd", {}, value));
  fact("Rule", h("span", {}, isolated(l.rule, "code"), " (", isolated(l.severity), ")"));
  if (l.title && l.title !== l.message) fact("In general", isolated(l.title));
  if (l.pointer) fact("Where", isolated(l.pointer, "code"));
  if (l.event) fact("Event", "#" + l.event);
  if (l.why) fact("Why", isolated(l.why));
  if (l.fix) fact("Remedy", isolated(l.fix));
  if (l.url) fact("Section", specLink(l.url));
  box.append(facts);
  return box;
}

// specLink is a link to the specification, and to nowhere else.
function specLink(url) {
  const text = isolated(url);
  if (!String(url).startsWith(specHost)) return text;
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, text);
}
