// The status line, the progress bar, and the text in an empty list.
import { copyText } from "./clipboard.js";
import { byId, h } from "./dom.js";
import { fmtCount, plural } from "./format.js";
import { isPending } from "./row.js";
import { exported } from "./source.js";
import { isolated } from "./safetext.js";
import { on, view } from "./state.js";
import { store } from "./store.js";
import { reconnect } from "./stream.js";

const bar = { searching: null, timer: 0 };

on("searching", (s) => {
  bar.searching = s.busy ? s : null;
  drawProgress();
});
on("sources", drawProgress);
on("synced", drawProgress);
on("reset", drawProgress);
on("total", drawEvicted);
on("drawn", drawEvicted);
on("online", () => showOffline(null));
on("offline", showOffline);

// drawStatus shows counts in the status line.
export function drawStatus(shown) {
  if (!store.synced) drawProgress();
  const parts = [];
  const add = (text, cls) => parts.push(h("span", { class: cls || "", text }));
  add(countText(shown));
  drawCount(shown);
  const pending = countPending();
  if (pending) add("… " + fmtCount(pending) + " pending", "pending");
  const servers = new Set(store.sources.filter((s) => s.state === "live").map((s) => s.name || s.id)).size;
  if (exported) add("exported page");
  else add(servers ? "● " + plural(servers, "server") + " live" : "○ no live server", servers ? "livetext" : "");
  if (store.older && !view.frames) parts.push(h("span", { text: plural(store.older, "older capture"), title: "mcpwire watch --web --past -1 shows all captures; mcpwire captures lists them" }));
  const broken = store.sources.filter((s) => s.err).length;
  if (broken) add("✖ " + plural(broken, "capture") + " with an error", "bad");
  if (store.paused) add("Paused" + (store.waiting ? ", " + plural(store.waiting, "change") + " waiting" : ""), "paused");
  const el = byId("status");
  el.replaceChildren(...parts);
  const failed = (store.facets?.status || []).filter((f) => ["error", "iserror", "http", "unanswered"].includes(f.v)).reduce((n, f) => n + f.n, 0);
  const names = (store.facets?.server || []).map((f) => f.v);
  const title = [failed ? fmtCount(failed) + " failed" : "", names.length > 2 ? plural(names.length, "server") : names.join(", "), "mcpwire"].filter(Boolean).join(" · ");
  if (document.title !== title) document.title = title;
}

// countText says how many of how many rows the list shows.
function countText(shown) {
  if (view.frames) return plural(shown, "frame") + (store.evicted && !store.whole ? " of the newest rows" : "");
  const total = store.total + (exported ? store.roots.length : 0);
  const local = view.findings || view.zoom;
  if (bar.searching) return plural(shown, "row") + " so far" + (store.whole ? ": " + fmtCount(store.whole.read) + " of " + fmtCount(Math.max(total, store.whole.read)) + " searched" : "");
  if (store.whole && store.whole.matches > store.roots.length) return (local ? fmtCount(shown) + " of the newest " : "The newest ") + fmtCount(store.roots.length) + " of " + plural(store.whole.matches, "match", "matches");
  if (store.evicted && !store.whole) {
    const loaded = "the newest " + fmtCount(total - store.evicted) + " rows of " + fmtCount(total);
    return view.filter || local ? fmtCount(shown) + " of " + loaded : loaded[0].toUpperCase() + loaded.slice(1);
  }
  return plural(shown, "row") + (shown >= total ? "" : " of " + fmtCount(total));
}

// drawCount shows beside the filter how many rows match.
function drawCount(shown) {
  const el = byId("filter-count");
  el.hidden = !(view.filter || view.findings || view.zoom) || view.frames;
  const all = Math.max(store.total + (exported ? store.roots.length : 0), shown);
  const of = store.evicted && !store.whole ? "newest " + fmtCount(store.total - store.evicted) : fmtCount(all);
  const text = bar.searching ? fmtCount(shown) + " so far, " + Math.floor(100 * (bar.searching.share || 0)) + " %" : fmtCount(Math.max(shown, view.findings || view.zoom ? 0 : store.whole?.matches || 0)) + " of " + of;
  if (!el.hidden && el.textContent !== text) el.textContent = text;
}

// drawEvicted says above the list that it does not have all rows, and how to see the others.
function drawEvicted() {
  const el = byId("evicted");
  const whole = store.whole;
  el.hidden = !store.evicted || exported !== null || (whole !== null && whole.matches <= store.roots.length);
  if (el.hidden) return;
  const text = whole ? "The list has the newest " + fmtCount(store.roots.length) + " of " + plural(whole.matches, "match", "matches") + "."
    : "The list has the newest " + plural(store.total - store.evicted, "row") + ". " + fmtCount(store.evicted) + " earlier ones are only in the file. " + (!view.filter ? "A filter searches them too." : store.running ? "They are not searched: " + store.running + " searches are already running, in other windows. Close one, and filter again." : "They cannot be searched: not all are in a file.");
  if (el.textContent !== text) el.textContent = text;
}

const pendingRows = new Set();

// trackPending remembers rows that are pending.
export function trackPending(changed) {
  for (const r of changed) if (isPending(r)) pendingRows.add(r);
}

function countPending() {
  for (const r of pendingRows) if (!isPending(r) || store.rows.get(r.q) !== r) pendingRows.delete(r);
  return pendingRows.size;
}

// readingShare returns the share of the captures that has been read.
function readingShare() {
  let read = 0;
  let size = 0;
  for (const s of store.sources) {
    if (s.err || s.state === "live") continue;
    read += Math.min(s.read || 0, s.size || 0);
    size += s.size || 0;
  }
  return size > 0 ? read / size : 1;
}

function drawProgress() {
  const el = byId("progress");
  const reading = readingShare();
  const sent = store.synced || !store.expected || view.filter ? 1 : Math.min(1, store.rows.size / store.expected);
  const share = bar.searching ? bar.searching.share || 0 : Math.min(reading, sent);
  const busy = !exported && byId("offline").hidden && (bar.searching || !store.synced || reading < 0.999);
  el.hidden = !busy;
  if (!busy) return;
  el.setAttribute("aria-label", bar.searching ? "Searching messages" : "Reading captures");
  el.setAttribute("aria-valuenow", String(Math.round(share * 100)));
  el.firstElementChild.style.width = Math.max(3, share * 100) + "%";
}

function showOffline(o) {
  const el = byId("offline");
  clearInterval(bar.timer);
  el.hidden = !o;
  el.textContent = "";
  drawProgress();
  if (!o) return;
  const text = h("span", {});
  el.append(h("span", { class: "g", "aria-hidden": "true", text: "✖ " }), text);
  if (o.message) {
    text.textContent = o.message;
    return;
  }
  const until = Date.now() + o.wait;
  const say = () => {
    const left = Math.max(0, Math.ceil((until - Date.now()) / 1000));
    text.textContent = "The connection to mcpwire is lost. The rows stay. Trying again " + (left > 1 ? "in " + left + " s." : "now…");
  };
  say();
  bar.timer = setInterval(say, 500);
  el.append(h("button", { type: "button", text: "Try now", on: { click: reconnect } }));
}

// drawEmpty explains why the list is empty, if it is, and what to do.
export function drawEmpty(shown, clearFilter) {
  const el = byId("empty");
  const state = shown ? "" : !store.synced && !exported ? "loading" : view.filter || view.findings || view.zoom ? "filtered" : "none";
  if (el.dataset.state === state && state !== "filtered") return;
  el.dataset.state = state;
  el.hidden = !state;
  byId("main").toggleAttribute("data-empty", state === "none");
  if (state === "loading") el.replaceChildren(skeleton());
  else if (state === "filtered") el.replaceChildren(...nothingFound(clearFilter));
  else if (state === "none") el.replaceChildren(...nothingYet());
}

function skeleton() {
  const box = h("div", { class: "skeleton", role: "status", "aria-label": "Reading captures" });
  for (let i = 0; i < 12; i++) box.append(h("div", { class: "bone b" + (i % 4) }));
  return box;
}

function nothingFound(clearFilter) {
  const what = view.filter ? h("p", {}, "Nothing matches ", isolated(view.filter, "code"), ".") : h("p", { text: view.zoom ? "No row is in the chosen time." : "No row has a finding." });
  return [h("h2", { text: bar.searching ? "Searching…" : "Nothing to show" }), what, h("button", { type: "button", text: view.filter ? "Clear the filter" : "Show all rows", on: { click: clearFilter } })];
}

function nothingYet() {
  if (exported) return [h("h2", { text: "Nothing to show" }), h("p", { text: "This page was exported without rows." })];
  const command = (text, what) => h("li", {}, h("code", { text }), h("span", { text: what }),
    h("button", { type: "button", class: "link", text: "Copy", "aria-label": "Copy " + text, on: { click: () => copyText(text, "the command") } }));
  return [
    h("h2", { text: "Waiting for traffic" }),
    h("p", { text: "The traffic of every tap on this machine appears here at once." }),
    h("ul", { class: "commands" },
      command("mcpwire tap -- COMMAND", "runs a server and records its traffic"),
      command("mcpwire tap URL --listen ADDR", "the same for a server on HTTP"),
      command("mcpwire wrap", "puts a tap before a server of a host: it asks which one")),
    h("p", {}, "Or drop a capture file anywhere here, or ", h("button", { type: "button", class: "link", text: "choose one", on: { click: () => byId("file").click() } }), "."),
  ];
}

// leftText describes what an exported page does not have.
export function leftText(left) {
  const parts = [];
  if (left.rows) parts.push(plural(left.rows, "older row"));
  if (left.details) parts.push("the details of " + plural(left.details, "row"));
  if (left.note) parts.push(left.note);
  return parts.length ? "Omitted:  " + parts.join("; ") + "." : "";
}
