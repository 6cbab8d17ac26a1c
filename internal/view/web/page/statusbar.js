// The line at the bottom, the bar that shows loading, and what stands in the list's place as long as there is nothing in it.
import { byId, h } from "./dom.js";
import { fmtCount, plural } from "./format.js";
import { isPending } from "./row.js";
import { exported } from "./source.js";
import { isolated } from "./safetext.js";
import { on, view } from "./state.js";
import { store } from "./store.js";
import { reconnect } from "./stream.js";

const bar = { searching: null, offline: null, timer: 0 };

on("searching", (s) => {
  bar.searching = s.busy ? s : null;
  drawProgress();
});
on("sources", drawProgress);
on("synced", drawProgress);
on("reset", drawProgress);
on("online", () => showOffline(null));
on("offline", showOffline);

// drawStatus counts what is in the list.
export function drawStatus(shown) {
  if (!store.synced) drawProgress();
  const parts = [];
  const add = (text, cls) => parts.push(h("span", { class: cls || "", text }));
  const total = Math.max(store.total + (exported ? store.roots.length : 0), shown); // of what was captured
  add(plural(shown, view.frames ? "frame" : "row") + (view.frames || shown === total ? "" : " of " + fmtCount(total)));
  const waits = countWaiting();
  if (waits) add("… " + fmtCount(waits) + (exported ? " without an answer" : " running"), "running");
  const servers = new Set(store.sources.filter((s) => s.state === "live").map((s) => s.name || s.id)).size;
  if (exported) add("exported page");
  else add(servers ? "● " + plural(servers, "server") + " live" : "○ no server live", servers ? "livetext" : "");
  const broken = store.sources.filter((s) => s.err).length;
  if (broken) add("✖ " + plural(broken, "capture") + " with an error", "bad");
  if (store.paused) add("Paused" + (store.waiting ? ", " + plural(store.waiting, "change") + " waiting" : ""), "paused");
  const el = byId("status");
  el.replaceChildren(...parts);
}

let waitingCount = 0;
let waitingRows = new Set();

// noteWaiting keeps count of the rows that wait for something.
export function noteWaiting(changed) {
  for (const r of changed) if (isPending(r)) waitingRows.add(r);
}

function countWaiting() {
  for (const r of waitingRows) if (!isPending(r) || store.rows.get(r.q) !== r) waitingRows.delete(r);
  waitingCount = waitingRows.size;
  return waitingCount;
}

// readingShare is how much of the captures has been read.
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
    text.textContent = "The connection to mcpwire is lost. What you see stays. Trying again " + (left > 1 ? "in " + left + " s." : "now…");
  };
  say();
  bar.timer = setInterval(say, 500);
  el.append(h("button", { type: "button", text: "Try now", on: { click: reconnect } }));
}

// drawEmpty says why the list is empty, if it is, and what to do.
export function drawEmpty(shown, clearFilter) {
  const el = byId("empty");
  const state = shown ? "" : !store.synced && !exported ? "loading" : view.filter || view.findings ? "filtered" : "none";
  if (el.dataset.state === state && state !== "filtered") return;
  el.dataset.state = state;
  el.hidden = !state;
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
  const what = view.filter ? h("p", {}, "Nothing matches ", isolated(view.filter, "code"), ".") : h("p", { text: "No line has a finding." });
  return [h("h2", { text: bar.searching ? "Searching…" : "Nothing to show" }), what, h("button", { type: "button", text: view.filter ? "Clear the filter" : "Show all lines", on: { click: clearFilter } })];
}

function nothingYet() {
  if (exported) return [h("h2", { text: "Nothing to show" }), h("p", { text: "This page was exported without any row." })];
  const command = (text, what) => h("li", {}, h("code", { text }), h("span", { text: what }));
  return [
    h("h2", { text: "Waiting for traffic" }),
    h("p", { text: "Whatever goes through a tap on this machine shows here at once." }),
    h("ul", { class: "commands" },
      command("mcpwire tap -- COMMAND", "runs a server, and records what it and its client say"),
      command("mcpwire tap URL --listen ADDR", "the same for a server on HTTP"),
      command("mcpwire wrap NAME", "puts a tap into the configuration of a host, for a server that it has")),
    h("p", {}, "Or drop a capture file anywhere here, or ", h("button", { type: "button", class: "link", text: "choose one", on: { click: () => byId("file").click() } }), "."),
  ];
}

// leftText says what an exported page leaves out.
export function leftText(left) {
  const parts = [];
  if (left.rows) parts.push(plural(left.rows, "older row"));
  if (left.details) parts.push("the details of " + plural(left.details, "row"));
  if (left.note) parts.push(left.note);
  return parts.length ? "Left out: " + parts.join("; ") + "." : "";
}
