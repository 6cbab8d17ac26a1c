// Messages that taps with --intercept hold: a bar that announces them, and a dialog to pass, edit,
// drop, delay or answer them, and to change the filter.
import { toast } from "./announce.js";
import { apiGet, apiPost } from "./api.js";
import { openDialog } from "./dialogs.js";
import { byId, h } from "./dom.js";
import { fmtSize } from "./format.js";
import { setIcon } from "./icons.js";
import { indented } from "./jsontext.js";
import { isolated } from "./safetext.js";
import { exported } from "./source.js";
import { on } from "./state.js";
import { store } from "./store.js";

const open = { dialog: null, timer: 0, cards: new Map() };
const typingMs = 5000; // after a key, in which a message counts as being edited

// initHeld prepares the bar.
export function initHeld() {
  if (exported) return;
  on("sources", drawHeld);
  setInterval(drawTimes, 500);
}

const holders = () => store.sources.filter((s) => s.held);
const heldList = () => holders().flatMap((s) => s.held.messages.map((m) => ({ s, m })));
const keyOf = (s, m) => s.id + "/" + m.id;
const path = (s) => "/api/held/" + encodeURIComponent(s.id);

function drawHeld() {
  const list = heldList();
  const bar = byId("held");
  const key = list.map(({ s, m }) => keyOf(s, m)).join();
  if (bar.dataset.key !== key) {
    bar.dataset.key = key;
    bar.replaceChildren(...list.map(({ s, m }) => barLine(s, m)));
    bar.hidden = !list.length;
  }
  if (open.dialog) drawCards();
  drawTimes();
}

function barLine(s, m) {
  return h("div", { class: "held-line" }, pauseIcon(), h("span", {}, "Held: ", title(s, m)), timeLeft(m),
    h("span", { class: "grow" }), h("button", { type: "button", text: "Pass on", on: { click: () => decide(s, { id: m.id, action: "pass" }) } }), h("button", { type: "button", text: "Decide… (i)", on: { click: showHeld } }));
}

function pauseIcon() {
  const el = h("span", { "aria-hidden": "true" });
  setIcon(el, "pause");
  return el;
}

function title(s, m) {
  const to = m.dir === "c2s" ? "to the server" : "to the client";
  return h("span", {}, m.response ? "response to " : "", h("strong", {}, isolated([m.method || "a frame", m.target].filter(Boolean).join(" "))), " " + to + " ", isolated(s.name || "", "quiet"));
}

function timeLeft(m) {
  return h("span", { class: "chip held-left", "data-until": String(m.until) });
}

function drawTimes() {
  for (const el of document.querySelectorAll(".held-left")) {
    const typed = Date.now() - Number(el.closest(".held-card")?.dataset.typed || 0) < typingMs;
    const text = typed ? "waits while you type" : "passed on in " + Math.max(0, Math.ceil((Number(el.dataset.until) - Date.now()) / 1000)) + " s";
    if (el.textContent !== text) el.textContent = text;
  }
}

async function decide(s, d) {
  try {
    await apiPost(path(s), d);
    return true;
  } catch (e) {
    toast(e.message, "bad");
    return false;
  }
}

// showHeld opens the dialog.
export function showHeld() {
  if (exported || open.dialog) return;
  if (!holders().length) {
    toast("No tap holds messages. Start one with mcpwire tap --intercept FILTER -- COMMAND.");
    return;
  }
  open.cards.clear();
  open.filters = h("div", { class: "held-filters" });
  open.list = h("div", { class: "held-list" });
  open.dialog = openDialog("Break in", [open.filters, open.list], { wide: true, closed: () => (open.dialog = null) });
  for (const s of holders()) open.filters.append(filterForm(s));
  drawCards();
}

function filterForm(s) {
  const field = h("input", { type: "text", class: "code", value: s.held.filter, spellcheck: "false", placeholder: "nothing is held", "aria-label": "Filter of " + (s.name || "a server") });
  const set = () => decide(s, { filter: field.value }).then((ok) => ok && toast(field.value ? "Messages that match are held from now on." : "Nothing is held from now on."));
  field.addEventListener("keydown", (e) => e.key === "Enter" && set());
  return h("div", { class: "bar" }, h("span", {}, "Hold messages of ", isolated(s.name || "the server"), " that match"), field, h("button", { type: "button", text: "Set", "aria-label": "Set the filter of " + (s.name || "a server"), on: { click: set } }));
}

function drawCards() {
  const list = heldList();
  const keys = new Set(list.map(({ s, m }) => keyOf(s, m)));
  for (const [key, el] of open.cards) {
    if (keys.has(key)) continue;
    el.remove();
    open.cards.delete(key);
  }
  for (const { s, m } of list) {
    const card = open.cards.get(keyOf(s, m));
    if (card) card.querySelector(".held-left").dataset.until = String(m.until);
    else {
      const el = cardOf(s, m);
      open.cards.set(keyOf(s, m), el);
      open.list.append(el);
    }
  }
  open.empty ||= h("p", { class: "hint", text: "No message is held now. The next one that matches will be here." });
  if (list.length) open.empty.remove();
  else open.list.append(open.empty);
  drawTimes();
}

function cardOf(s, m) {
  const area = h("textarea", { class: "editor code", rows: "10", spellcheck: "false", "aria-label": "The message" });
  const status = h("p", { class: "hint", role: "status", text: "Reading…" });
  const actions = h("div", { class: "actions" });
  const box = h("section", { class: "card held-card", "aria-label": "Held message" }, h("header", {}, h("h3", {}, title(s, m)), timeLeft(m)), status, area, actions);
  const button = (text, run, primary) => actions.append(h("button", { type: "button", class: primary ? "primary" : "", text, on: { click: run } }));
  let original = "";
  const pass = (more) => decide(s, { id: m.id, ...(area.value === original ? { action: "pass" } : { action: "edit", data: area.value }), ...more });
  button("Pass on", () => pass({}), true);
  if (!m.response && m.requestId) {
    button("Pass on, hold the response", () => pass({ holdResponse: true }));
    button("Answer…", () => answer(s, m, area, status, actions));
  }
  button("Drop", () => decide(s, { id: m.id, action: "drop" }));
  const seconds = h("input", { type: "text", inputmode: "numeric", value: "5", "aria-label": "Seconds" });
  actions.append(h("span", { class: "held-delay" }, h("button", { type: "button", text: "Delay", on: { click: () => decide(s, { id: m.id, action: "delay", delayMs: Math.round(Number(seconds.value) * 1000) || 0 }) } }), seconds, " s"));
  let kept = 0;
  area.addEventListener("input", () => {
    const now = (box.dataset.typed = Date.now());
    if (now - kept < typingMs / 2) return;
    kept = now;
    apiPost(path(s), { id: m.id, action: "keep" }).catch(() => {}); // a tap of an earlier version cannot
  });
  area.disabled = true;
  apiGet(path(s)).then((state) => {
    const full = state.messages.find((x) => x.id === m.id);
    if (!full) return;
    status.textContent = full.data ? "Changes are sent with Pass on." : "The message has " + fmtSize(m.len) + ", and cannot be edited.";
    area.value = original = indented(full.data || "");
    area.disabled = !full.data;
    area.hidden = !full.data;
    if (!/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) area.focus();
  }).catch((e) => (status.textContent = e.message));
  return box;
}

// answer turns the editor into one for a response.
function answer(s, m, area, status, actions) {
  area.hidden = area.disabled = false;
  area.value = indented('{"jsonrpc":"2.0","id":' + m.requestId + ',"result":' + (m.method === "tools/call" ? '{"content":[{"type":"text","text":""}]}' : "{}") + "}");
  area.setAttribute("aria-label", "The response");
  status.textContent = "The sender gets this response. The message is not forwarded.";
  actions.replaceChildren(h("button", { type: "button", class: "primary", text: "Send the response", on: { click: () => decide(s, { id: m.id, action: "answer", data: area.value }) } }), h("button", { type: "button", text: "Drop", on: { click: () => decide(s, { id: m.id, action: "drop" }) } }));
  area.focus();
}
