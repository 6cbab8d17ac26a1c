// The tab Findings: the findings of rules, with reasons and fixes.
import { h } from "./dom.js";
import { isolated } from "./safetext.js";

const severitySigns = { error: ["✖", "l-error"], warning: ["▲", "l-warning"] };
const specHost = "https://modelcontextprotocol.io/";

// tabFindings returns the content of the tab.
export function tabFindings(d) {
  const box = h("div", { class: "findings" });
  for (const f of d.findings) box.append(finding(f));
  return box;
}

// severitySign returns the glyph and the class of a finding.
export function severitySign(f) {
  return severitySigns[f.severity] || ["ℹ", "l-info"];
}

function finding(f) {
  const [glyph, cls] = severitySign(f);
  const box = h("article", { class: "finding " + cls });
  box.append(h("h3", {}, h("span", { class: cls, text: glyph + " " }), isolated(f.message || f.title)));
  const facts = h("dl", { class: "facts" });
  const fact = (name, value) => value && facts.append(h("dt", { text: name }), h("dd", {}, value));
  fact("Rule", h("span", {}, isolated(f.rule, "code"), " (", isolated(f.severity), ")"));
  if (f.title && f.title !== f.message) fact("In general", isolated(f.title));
  if (f.pointer) fact("Where", isolated(f.pointer, "code"));
  if (f.event) fact("Event", "#" + f.event);
  if (f.why) fact("Why", isolated(f.why));
  if (f.fix) fact("Fix", isolated(f.fix));
  if (f.url) fact("Section", specLink(f.url));
  box.append(facts);
  return box;
}

// specLink returns a link if a URL is of the specification, and otherwise its text.
function specLink(url) {
  const text = isolated(url);
  if (!String(url).startsWith(specHost)) return text;
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, text);
}
