// The tab SSE: the events of a stream.
import { h } from "./dom.js";
import { fmtMs, fmtSize, plural } from "./format.js";
import { spansInto } from "./lines.js";
import { isolated } from "./safetext.js";

// tabSSE returns the content of the tab.
export function tabSSE(d) {
  const x = d.sse;
  const box = h("div", { class: "sse" });
  if (x.gone) box.append(h("p", { class: "hint", text: plural(x.gone, "older event") + " not shown" }));
  const table = h("table", { class: "wide" }, h("caption", { class: "vh", text: "Events of the stream" }));
  const heads = ["#", "Time", "Event", "ID", "Retry", "Size", "Data or comment"];
  table.append(h("thead", {}, h("tr", {}, ...heads.map((t) => h("th", { scope: "col", text: t })))));
  const body = h("tbody", {});
  for (const e of x.events || []) body.append(eventRow(e));
  table.append(body);
  box.append(table, h("p", { class: "hint", text: x.open ? "The stream is open." : "The stream has ended." }));
  return box;
}

function eventRow(e) {
  const data = h("td", { class: "data" });
  const text = h("bdi", { class: "code" });
  if (e.comment != null) text.append(h("span", { class: "j-remark", text: ": " }), isolated(e.comment, "j-remark"));
  spansInto(text, e.data, true);
  data.append(text);
  const cell = (t) => h("td", {}, t == null ? "" : isolated(String(t)));
  return h("tr", {}, cell(e.n), cell("+" + fmtMs(e.atMs)), cell(e.event || (e.comment != null ? "" : "message")), cell(e.id), cell(e.retryMs == null ? null : fmtMs(e.retryMs)), cell(e.len ? fmtSize(e.len) : ""), data);
}
