// The sessions, with their clients, servers, revisions and capabilities, and the captures.
import { toast } from "./announce.js";
import { apiPost } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { fmtCount, fmtDateTime, fmtMs, fmtSize, plural } from "./format.js";
import { exported } from "./source.js";
import { isolated } from "./safetext.js";
import { on } from "./state.js";
import { now, store } from "./store.js";

let sessionsOpen = null;

on("sessions", redrawSessions);
on("sources", redrawSessions);

// showSessions opens the dialog. The session of a capture comes first.
export function showSessions(capture, session) {
  sessionsOpen = { ...openDialog("Sessions", [], { wide: true, closed: () => (sessionsOpen = null) }), capture, session };
  redrawSessions();
}

function redrawSessions() {
  if (!sessionsOpen) return;
  const { body, capture, session } = sessionsOpen;
  const first = (c) => c.capture === capture && (c.session || 0) === (session || 0);
  const some = store.sessions.filter((c) => c.rows || c.pid || first(c));
  const cards = some.sort((a, b) => first(b) - first(a) || parseTime(b.last) - parseTime(a.last)).slice(0, 100);
  const list = h("div", { class: "cards" }, ...cards.map((c) => card(c, first(c))));
  const parts = [];
  if (!cards.length) parts.push(h("p", { class: "hint", text: "No session yet." }));
  else parts.push(list);
  if (some.length > cards.length) parts.push(h("p", { class: "hint", text: plural(some.length - cards.length, "older session") + " not shown" }));
  if (store.sources.length) parts.push(h("h3", { text: "Captures" }), sourceTable());
  if (store.older) parts.push(h("p", { class: "hint" }, plural(store.older, "older capture") + " not shown. ", h("code", { text: "mcpwire watch --web --past -1" }), " shows all of them, and ", h("code", { text: "mcpwire watch --web FILE" }), " one."));
  body.replaceChildren(...parts);
}

function parseTime(text) {
  return Date.parse(text || "") || 0;
}

function card(c, current) {
  const source = store.sources.find((s) => s.id === c.capture);
  const live = source?.state === "live" && !c.exited;
  const state = c.exited ? "exited" + (c.signal ? " by " + c.signal : " with " + (c.exitCode || 0)) : live ? "live" : source?.state || "";
  const bad = c.exited && (c.exitCode || c.signal);
  const box = h("article", { class: "card" + (current ? " current" : "") });
  box.append(h("header", {}, h("h3", {}, isolated(c.name || c.capture)), h("span", { class: "chip" + (live ? " live" : bad ? " bad" : ""), text: (live ? "● " : bad ? "✖ " : "") + state })));
  const facts = h("dl", { class: "facts" });
  const fact = (name, ...value) => facts.append(h("dt", { text: name }), h("dd", {}, ...value));
  if (c.cause) fact("Cause", h("strong", { class: "bad" }, isolated(c.cause)));
  if (c.fix) fact("Remedy", isolated(c.fix));
  fact("Era", c.era || "unknown so far");
  if (c.offered || c.answered) fact("Revision", versions(c));
  if (c.supported?.length) fact("Supported", ...c.supported.slice(0, 20).flatMap((v, i) => [i ? ", " : "", isolated(v, "code rev")]));
  if (c.client) fact("Client", isolated(nameAndVersion(c.client)), capabilities(c.client.capabilities));
  if (c.server) fact("Server", isolated(nameAndVersion(c.server)), capabilities(c.server.capabilities));
  fact("Transport", isolated(c.transport || "?"), c.pid ? ", pid " + c.pid : "");
  if (c.url) fact("Address", isolated(c.url, "code"));
  if (c.command?.length) fact("Command", isolated(c.command.join(" "), "code"));
  const began = parseTime(c.first);
  if (began) fact("Time", fmtDateTime(began) + ", " + fmtMs(Math.max(0, (live ? now() : parseTime(c.last)) - began)));
  if (c.next) fact("Then", "restarted as session " + c.next);
  fact("Rows", fmtCount(c.rows) + ", with those inside others");
  if (c.redact) fact("Secrets", c.redact === "off" ? h("strong", { class: "bad", text: "✖ not redacted" }) : "redacted (" + c.redact + ")");
  box.append(facts);
  if (source?.restart && !exported) box.append(h("button", { type: "button", text: "Restart…", on: { click: () => confirmRestart(c.capture, c.name) } }));
  return box;
}

function versions(c) {
  const span = h("span", {});
  if (c.offered) span.append("offered ", isolated(c.offered, "code rev"));
  if (c.answered) span.append(c.offered ? ", answered " : "", isolated(c.answered, "code rev"));
  if (c.offered && c.answered && c.offered !== c.answered) span.append(h("span", { class: "l-warning", text: " ▲ differs" }));
  return span;
}

function nameAndVersion(p) {
  return [p.name, p.version].filter(Boolean).join(" ") || "unknown";
}

function capabilities(list) {
  const ul = h("ul", { class: "caps" });
  for (const c of list || []) ul.append(h("li", {}, isolated(c)));
  return list?.length ? ul : "";
}

function sourceTable() {
  const table = h("table", { class: "wide" }, h("caption", { class: "vh", text: "Captures" }), h("thead", {}, h("tr", {}, ...["Name", "State", "Read", "File"].map((t, i) => h("th", { scope: "col", class: i === 2 ? "right" : "", text: t })))));
  const rows = h("tbody", {});
  const order = (s) => (s.err ? "0" : s.state === "live" ? "1" : "2") + (s.name || "");
  for (const s of [...store.sources].sort((a, b) => order(a).localeCompare(order(b))).slice(0, 200)) {
    const state = h("td", {}, s.err ? h("span", { class: "bad" }, "✖ ", isolated(s.err)) : s.state || "");
    const share = s.size > (s.read || 0) ? fmtSize(s.read || 0) + " of " + fmtSize(s.size) : fmtSize(s.read || 0);
    rows.append(h("tr", {}, h("td", {}, isolated(s.name || s.id)), state, h("td", { class: "right", text: share }), h("td", {}, isolated(s.path || "", "code path"))));
  }
  table.append(rows);
  return table;
}

// confirmRestart asks before it restarts the server of a capture, because its host will notice.
export function confirmRestart(capture, name) {
  const go = h("button", { type: "button", class: "primary", text: "Restart", autofocus: true });
  const d = openDialog("Restart the server", [
    h("p", {}, "The process of ", isolated(name || "this server"), " ends and starts again. Its host keeps running, and loses its pending requests."),
    h("div", { class: "actions" }, go, h("button", { type: "button", text: "Cancel", on: { click: () => d.close() } })),
  ]);
  go.addEventListener("click", async () => {
    d.close();
    try {
      await apiPost("/api/restart/" + encodeURIComponent(capture), {});
      toast("The server is being restarted.");
    } catch (e) {
      toast(e.message, "bad");
    }
  });
}
