// The rail beside the list: servers, kinds, statuses and findings with the numbers of their rows. A
// click shows only them; a second button hides them.
import { announce } from "./announce.js";
import { byId, h } from "./dom.js";
import { fmtCount, plural } from "./format.js";
import { chosen, toggleTerm } from "./filterterms.js";
import { isolated } from "./safetext.js";
import { statusWords } from "./row.js";
import { serverMark } from "./servers.js";
import { on, preference, setPreference, view } from "./state.js";
import { store } from "./store.js";

const groups = [
  { field: "server", label: "Server" },
  { field: "status", label: "Status" },
  { field: "kind", label: "Kind" },
  { field: "finding", label: "Finding" },
];

const words = {
  status: statusWords,
  kind: { invalid: "not a message", response: "stray response", stdout: "stray stdout", http: "HTTP", sse: "SSE event", body: "HTTP body", eof: "end of input", translate: "translated" },
};

const tones = {
  status: { ok: ["→", "answer"], error: ["✖", "bad"], iserror: ["!", "tool"], input_required: ["?", "wait"], task: ["…", "wait"], cancelled: ["⊘", "quiet"], pending: ["…", "wait"], unanswered: ["✖", "bad"], http: ["✖", "bad"] },
  finding: { error: ["✖", "bad"], warning: ["▲", "warn"], info: ["ℹ", "quiet"] },
};

const rail = { apply: null, shown: "", key: "" };

// initFacets prepares the rail. apply(text) applies a filter.
export function initFacets(apply) {
  rail.apply = apply;
  on("facets", drawFacets);
  on("filter", drawFacets);
  drawFacets();
}

// railWanted reports whether the user wants the rail in a list of a width.
export function railWanted(px) {
  const p = preference("rail", "auto");
  return p === "auto" ? px >= 1180 : p === "1";
}

// toggleRail shows or hides the rail.
export function toggleRail() {
  const hidden = byId("rail").hidden;
  setPreference("rail", hidden ? "1" : "0");
  announce(hidden ? "Facets are shown" : "Facets are hidden");
}

function drawFacets() {
  const f = store.facets;
  const key = JSON.stringify(f) + view.filter;
  if (key === rail.key) return;
  rail.key = key;
  const focused = document.activeElement?.dataset?.facet;
  const parts = [];
  for (const g of groups) {
    const values = f?.[g.field] || [];
    const { only, not } = chosen(view.filter, g.field);
    const known = new Set(values.map((v) => v.v));
    const extra = [...only, ...not].filter((v) => !known.has(v)).map((v) => ({ v, n: 0 }));
    if (values.length + extra.length === 0) continue;
    const list = h("ul", {});
    for (const v of [...values, ...extra].slice(0, 60)) list.append(facetLine(g, v, only.has(v.v), not.has(v.v)));
    parts.push(h("section", { "aria-label": g.label }, h("h2", { text: g.label }), list));
  }
  if (!parts.length) parts.push(h("p", { class: "hint", text: "No rows yet." }));
  byId("rail").replaceChildren(...parts);
  if (focused) byId("rail").querySelector('[data-facet="' + CSS.escape(focused) + '"]')?.focus();
}

function facetLine(g, v, only, not) {
  const text = words[g.field]?.[v.v] || v.v;
  const sign = g.field === "server" ? serverMark(v.i || 0) : tones[g.field]?.[v.v] ? h("span", { class: "g tone-" + tones[g.field][v.v][1], "aria-hidden": "true", text: tones[g.field][v.v][0] }) : null;
  const change = (exclude) => rail.apply(toggleTerm(view.filter, g.field, v.v, exclude));
  const toggle = h("button", { type: "button", class: "facet", "aria-pressed": String(only), "data-facet": g.field + ":" + v.v, title: "Show only these; again: show others too", on: { click: (e) => change(e.altKey || e.shiftKey) } },
    sign, isolated(text, "facet-name"), h("span", { class: "facet-count", text: fmtCount(v.n) }), h("span", { class: "vh", text: " " + plural(v.n, "row").split(" ")[1] }));
  const hide = h("button", { type: "button", class: "facet-not", "aria-pressed": String(not), "data-facet": "-" + g.field + ":" + v.v, "aria-label": "Hide " + text, title: "Hide these", text: "−", on: { click: () => change(true) } });
  return h("li", { class: not ? "excluded" : "" }, toggle, hide);
}
