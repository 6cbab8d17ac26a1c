// The tab HTTP: request line, status line and all headers in order.
import { h } from "./dom.js";
import { fmtSize, plural } from "./format.js";
import { spansInto } from "./lines.js";
import { isolated } from "./safetext.js";

// tabHTTP returns the content of the tab.
export function tabHTTP(d) {
  const x = d.http;
  const box = h("div", { class: "http" });
  box.append(head("Request", x.request), head("Response", x.response));
  const notes = [];
  if (x.stream) notes.push("event stream with " + plural(x.events || 0, "event"));
  if (x.bodyBytes) notes.push(fmtSize(x.bodyBytes) + " of the body are not a message");
  if (!x.ended) notes.push("in progress");
  if (x.end) notes.push("ended: " + x.end);
  if (notes.length) box.append(h("p", { class: "hint" }, isolated(notes.join(" · "))));
  return box;
}

function head(title, x) {
  const box = h("section", {}, h("h3", { text: title }));
  if (!x) {
    box.append(h("p", { class: "hint", text: "Not captured yet." }));
    return box;
  }
  box.append(h("p", { class: "startline" + (x.status >= 400 ? " bad" : "") }, isolated(x.line)));
  if (x.remote) box.append(h("p", { class: "hint" }, "from ", isolated(x.remote)));
  const table = h("table", { class: "headers" }, h("caption", { class: "vh", text: "Headers of the " + title.toLowerCase() }));
  table.append(h("thead", { class: "vh" }, h("tr", {}, h("th", { scope: "col", text: "Name" }), h("th", { scope: "col", text: "Value" }))));
  const rows = h("tbody", {});
  for (const f of x.headers || []) rows.append(header(f));
  table.append(rows);
  box.append(table);
  if (x.more) box.append(h("p", { class: "hint", text: plural(x.more, "header") + " more" }));
  return box;
}

function header(f) {
  const value = h("td", {});
  const text = h("bdi", { class: "code" });
  spansInto(text, f.value, true);
  value.append(text);
  if (f.wrong) value.append(h("p", { class: "note bad" }, "✖ ", isolated(f.wrong)));
  const name = h("th", { scope: "row" }, isolated(f.name));
  if (f.own) name.append(h("span", { class: "badge", text: "MCP" }));
  return h("tr", { class: (f.own ? "own" : "") + (f.wrong ? " wrong" : "") }, name, value);
}
