// The tab Timing: a waterfall of one exchange.
import { h, svg } from "./dom.js";
import { fmtDateTime, fmtMs } from "./format.js";
import { escapeLine, isolated } from "./safetext.js";

const segmentClass = { server: "s-server", client: "s-client", human: "s-client", round: "s-round", task: "s-task", stream: "s-stream", wait: "s-client", network: "s-round" };
const barHeight = 22;

// tabTiming returns the content of the tab: the segments as a picture and as a table.
export function tabTiming(d) {
  const t = d.timing;
  const box = h("div", { class: "timing" });
  const numbers = [["Began", fmtDateTime(Date.parse(t.at))], [t.open ? "So far" : "Wall", fmtMs(t.wallMs)], ["Server", fmtMs(t.serverMs)]];
  if (t.clientMs) numbers.push(["Client and user", fmtMs(t.clientMs)]);
  const dl = h("dl", { class: "numbers" });
  for (const [name, value] of numbers) dl.append(h("div", {}, h("dt", { text: name }), h("dd", { text: value })));
  box.append(dl);
  if (t.segments?.length) box.append(picture(t), table(t));
  if (t.marks?.length) box.append(marks(t.marks));
  return box;
}

function picture(t) {
  const to = Math.max(t.wallMs, 0.001, ...t.segments.map((s) => s.toMs), ...(t.marks || []).map((m) => m.ms));
  const count = t.segments.length;
  const height = count * barHeight + 22;
  const label = "Waterfall: " + t.segments.slice(0, 20).map((s) => escapeLine(s.label) + " from " + fmtMs(s.fromMs) + " to " + fmtMs(s.toMs)).join("; ");
  const pic = svg("svg", { class: "chart", viewBox: "0 0 1000 " + height, preserveAspectRatio: "none", role: "img", "aria-label": label });
  pic.setAttribute("height", String(height));
  for (let i = 0; i <= 4; i++) pic.append(svg("line", { class: "tick", x1: i * 250, x2: i * 250, y1: 0, y2: count * barHeight + 4 }));
  t.segments.forEach((s, i) => {
    const x = (s.fromMs / to) * 1000;
    const w = Math.max(2, ((s.toMs - s.fromMs) / to) * 1000);
    const cls = Object.hasOwn(segmentClass, s.kind) ? segmentClass[s.kind] : "s-server";
    pic.append(svg("rect", { class: cls + (s.open ? " going" : ""), x: Math.min(x, 998), y: i * barHeight + 4, width: w, height: barHeight - 8, rx: 2 }));
  });
  for (const m of t.marks || []) pic.append(svg("line", { class: "mark", x1: (m.ms / to) * 1000, x2: (m.ms / to) * 1000, y1: 0, y2: count * barHeight + 4 }));
  const scale = h("div", { class: "scale", "aria-hidden": "true" });
  for (let i = 0; i <= 4; i++) scale.append(h("span", { text: fmtMs((to * i) / 4) }));
  return h("div", { class: "chartbox" }, pic, scale);
}

function table(t) {
  const out = h("table", { class: "wide" }, h("caption", { class: "vh", text: "Segments" }));
  out.append(h("thead", {}, h("tr", {}, ...["", "What", "From", "To", "Duration"].map((s, i) => h("th", { scope: "col", class: i > 1 ? "right" : "" }, s || h("span", { class: "vh", text: "Color" }))))));
  const body = h("tbody", {});
  for (const s of t.segments) {
    const cls = Object.hasOwn(segmentClass, s.kind) ? segmentClass[s.kind] : "s-server";
    const key = svg("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: cls, width: 10, height: 10, rx: 2 }));
    body.append(h("tr", {}, h("td", {}, key), h("td", {}, isolated(s.label)), h("td", { class: "right", text: fmtMs(s.fromMs) }), h("td", { class: "right", text: s.open ? "open" : fmtMs(s.toMs) }), h("td", { class: "right", text: fmtMs(s.toMs - s.fromMs) })));
  }
  out.append(body);
  return out;
}

function marks(list) {
  const ol = h("ol", { class: "marks" });
  for (const m of list) ol.append(h("li", {}, h("span", { class: "n", text: "+" + fmtMs(m.ms) }), " ", isolated(m.label)));
  return h("section", {}, h("h3", { text: "Meanwhile" }), ol);
}
