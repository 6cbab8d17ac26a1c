// The tab Summary: the exchange in words.
import { contentView } from "./content.js";
import { h } from "./dom.js";
import { fmtMs, fmtTimer, plural } from "./format.js";
import { isPending } from "./row.js";
import { isolated } from "./safetext.js";
import { preference, setPreference } from "./state.js";
import { now } from "./store.js";

// tabSummary returns the content of the tab for a row. go shows the row with a number.
export function tabSummary(d, r, go) {
  const box = h("div", { class: "summary" });
  for (const words of d.summary?.words || []) box.append(h("p", { class: "words" }, isolated(words)));
  if (r && isPending(r)) box.append(h("p", { class: "words quiet" }, "Since ", h("span", { class: "since", "data-at": String(r.at), text: fmtTimer(now() - r.at) })));
  for (const m of d.missing || []) box.append(h("p", { class: "note warn" }, "Event " + m.n + " cannot be read again: ", isolated(m.why)));
  for (const part of [contentView(d, d.asked, d.kind === "request" ? "Asked" : "Content"), contentView(d, d.returned, "Came back")]) if (part) box.append(part);
  if (d.rounds?.length > 1) box.append(section("Rounds", d.rounds.map((r) => insideLine(r.seq, "→", "#" + r.n, [statusWord(r.status), fmtMs(r.wallMs)], go))));
  if (d.inside?.length) {
    const line = (r) => insideLine(r.seq, r.glyph, r.summary, ["+" + fmtMs(r.atMs), r.wallMs ? fmtMs(r.wallMs) : ""], go);
    const list = [];
    for (let i = 0; i < d.inside.length; ) {
      let end = i + 1;
      if (d.inside[i].kind === "progress") while (d.inside[end]?.kind === "progress") end++;
      const run = d.inside.slice(i, end);
      const last = run[run.length - 1];
      list.push(run.length < 3 ? run.map(line) : h("li", {}, runView(last.summary, run.map(line))));
      i = end;
    }
    box.append(section("Inside", list.flat(), d.gone ? plural(d.gone, "older row") + " evicted." : ""));
  }
  if (d.others?.length) box.append(section("On the other side of the bridge", d.others.map((r) => insideLine(r.seq, r.glyph, r.summary, [r.side], go))));
  const facts = d.summary?.facts || [];
  if (facts.length) box.append(factsView(facts, !d.asked && !d.returned));
  if (d.redacted) box.append(h("p", { class: "hint", text: plural(d.redacted, "secret") + " redacted when it was recorded." }));
  return box;
}

function statusWord(s) {
  return String(s || "").replaceAll("_", " ");
}

// factsView returns the facts, folded if the content is above them.
function factsView(facts, alone) {
  if (alone) return factList(facts);
  const box = h("details", { class: "more-facts", open: preference("facts", "0") === "1", on: { toggle: () => setPreference("facts", box.open ? "1" : "0") } }, h("summary", {}, "Facts ", h("span", { class: "quiet", text: facts.length + ": kind, id, status, times, sizes" })), factList(facts));
  return box;
}

// factList returns a list of names and values.
function factList(facts) {
  const dl = h("dl", { class: "facts" });
  for (const f of facts) dl.append(h("dt", {}, isolated(f.name)), h("dd", {}, isolated(f.value)));
  return dl;
}

let runsOpen = false; // the user has unfolded a run

// runView returns a run of progress, folded.
function runView(newest, lines) {
  const box = h("details", { open: runsOpen, on: { toggle: () => (runsOpen = box.open) } }, h("summary", {}, isolated(newest), h("span", { class: "quiet", text: ", " + plural(lines.length, "message") })), h("ul", {}, ...lines));
  return box;
}

function section(title, list, after) {
  return h("section", {}, h("h3", { text: title }), h("ul", { class: "inside" }, ...list), after ? h("p", { class: "hint", text: after }) : null);
}

function insideLine(seq, glyph, text, notes, go) {
  const button = h("button", { type: "button", class: "rowlink", on: { click: () => go(seq) } });
  button.append(h("span", { class: "g", text: glyph || "•" }), isolated(text, "what"));
  for (const n of notes) if (n) button.append(h("span", { class: "n", text: n }));
  return h("li", {}, button);
}
