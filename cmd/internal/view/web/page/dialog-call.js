// Calling a tool, or sending a recorded request again with changes: a form from the tool's schema,
// the arguments or the whole message as JSON, the result, and what came of earlier runs. Everything
// goes to a fresh copy of the server, never into the recorded session.
import { apiGet, apiPost } from "./api.js";
import { contentView } from "./content.js";
import { diffParts } from "./dialog-diff.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { fmtClock, fmtMs } from "./format.js";
import { indented, member, parseText, rawOf, replaceArguments } from "./jsontext.js";
import { escapeLine, isolated, setText } from "./safetext.js";
import { schemaForm } from "./schemaform.js";

const maxRuns = 30; // remembered of each tool
const runsOf = new Map(); // by server and tool

// showCall opens the dialog. row is the recorded request to change, or null to choose a tool.
// show(sent) shows the row of a response of POST /api/resend.
export function showCall(row, show) {
  const x = { row, show, tool: null, message: null, tab: "", form: null, target: "", confirmed: false, run: null, control: new AbortController(), timer: 0 };
  x.pick = h("select", { id: "call-tool", disabled: true, on: { change: () => pickTool(x, Number(x.pick.value)) } });
  x.about = h("p", { class: "call-about" });
  x.target = h("pre", { class: "code answer call-target", tabindex: "0", "aria-label": "The target" });
  x.tabs = h("div", { class: "segments", role: "group", "aria-label": "Editor" });
  x.fill = h("select", { "aria-label": "Fill in from a call", hidden: true, on: { change: () => fillFrom(x) } });
  x.editor = h("div", { class: "call-editor" });
  x.area = h("textarea", { class: "editor code", spellcheck: "false", "aria-label": "The message", rows: "16", on: { input: () => changed(x) } });
  x.status = h("div", { class: "hint busy", role: "status", text: "Reading…" });
  x.send = h("button", { type: "button", class: "primary", text: "Send", disabled: true, on: { click: () => send(x) } });
  x.result = h("section", { class: "call-result", tabindex: "0", "aria-label": "Result" }, h("p", { class: "hint", text: "The result will be here." }));
  const left = h("section", { class: "call-form", "aria-label": "Request" },
    row ? null : h("label", { class: "call-pick" }, h("span", { text: "Tool" }), x.pick), x.about,
    h("p", { class: "hint", text: "Goes to a fresh copy of the server, which ends afterwards. Tools run with their effects. The target is:" }), x.target,
    h("div", { class: "bar" }, x.tabs, h("span", { class: "grow" }), x.fill), x.editor,
    h("div", { class: "call-end" }, x.status, h("div", { class: "actions" }, x.send, h("button", { type: "button", text: "Close", on: { click: () => x.dialog.close() } }))));
  x.dialog = openDialog(row ? "Edit and send" : "Run a tool", [h("div", { class: "call" }, left, x.result)], { wide: true, closed: () => {
    x.control.abort();
    clearTimeout(x.timer);
  } });
  x.dialog.body.classList.add("call-body");
  x.dialog.body.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && !x.send.disabled) send(x);
  });
  (row ? loadMessage(x) : loadTools(x)).catch((e) => failed(x, e));
}

function status(x, kind, ...content) {
  x.status.className = kind || "hint";
  x.status.replaceChildren(...content);
}

function failed(x, e) {
  if (e.name !== "AbortError") status(x, "note bad", "✖ ", isolated(e.message));
}

// loadMessage reads the recorded request and, for a call, its tool.
async function loadMessage(x) {
  const m = await apiGet("/api/resend/" + x.row.q, x.control.signal);
  if (m.message == null) throw new Error(m.note);
  x.message = m.message;
  setTarget(x, m.target);
  let args = null;
  if (x.row.m === "tools/call") {
    x.tool = await apiGet("/api/callable/" + x.row.q, x.control.signal).catch((e) => {
      if (e.status !== 404) throw e;
      return null;
    });
    args = argumentsOf(x.message);
  }
  setTool(x, args);
  x.editor.querySelector("textarea, input:not(:disabled), select")?.focus();
  if (m.note) status(x, "note warn", "▲ ", isolated(m.note));
  else changed(x);
}

async function loadTools(x) {
  const { tools } = await apiGet("/api/callable", x.control.signal);
  x.tools = tools;
  if (!tools.length) throw new Error("No server has listed its tools yet: a host does that when it starts.");
  const groups = new Map();
  tools.forEach((t, i) => {
    const name = t.srv || "server";
    if (!groups.has(name)) groups.set(name, h("optgroup", { label: escapeLine(name) }));
    groups.get(name).append(h("option", { value: String(i), text: escapeLine(t.name) + (t.hints?.includes("destructive") ? " (destructive)" : "") }));
  });
  x.pick.append(...groups.values());
  x.pick.disabled = false;
  x.pick.focus();
  await pickTool(x, 0);
}

async function pickTool(x, i) {
  const t = x.tools[i];
  x.send.disabled = true;
  status(x, "hint busy", "Reading…");
  try {
    const tool = await apiGet("/api/callable/" + t.row + "?name=" + encodeURIComponent(t.name), x.control.signal);
    if (x.tools[Number(x.pick.value)] !== t) return;
    x.tool = tool;
    setTarget(x, tool.target || "");
    setTool(x, null);
    if (tool.note) status(x, "note bad", "✖ ", isolated(tool.note));
    else changed(x);
    x.send.disabled = !!tool.note;
  } catch (e) {
    failed(x, e);
  }
}

function setTarget(x, target) {
  x.shown = target;
  setText(x.target, target, true);
}

// setTool prepares the editor for the tool, with arguments as JSON text, or those of the defaults.
function setTool(x, args) {
  const t = x.tool;
  x.about.replaceChildren();
  if (t?.title || t?.about || x.row) x.about.append(isolated(t ? [t.title, t.about].filter(Boolean).join(": ").slice(0, 600) : x.row.sum || x.row.m));
  for (const hint of t?.hints || []) x.about.append(" ", h("span", { class: "chip" + (hint === "destructive" ? " bad" : ""), text: hint }));
  x.form = t?.schema ? schemaForm(t.schema, () => changed(x)) : null;
  const tabs = [x.form && "Form", t && "JSON", x.message !== null && "Message"].filter(Boolean);
  x.tabs.replaceChildren(...tabs.map((name) => h("button", { type: "button", text: name, on: { click: () => openTab(x, name) } })));
  x.fill.hidden = true;
  drawFill(x);
  x.args = args ?? (x.form ? x.form.get() : "{}");
  x.tab = "";
  showTab(x, tabs[0]);
  x.send.disabled = false;
}

// argumentsOf returns the arguments of a call as JSON text.
function argumentsOf(message) {
  try {
    const args = member(member(parseText(message), "params"), "arguments");
    return args ? rawOf(message, args) : "{}";
  } catch {
    return null;
  }
}

// take reads the open editor into args or message. It throws if that is not JSON.
function take(x) {
  if (x.tab === "Form") x.args = x.form.get();
  else if (x.tab === "JSON") {
    parseText(x.area.value);
    x.args = x.area.value;
  } else if (x.tab === "Message") {
    parseText(x.area.value);
    x.message = x.area.value;
    if (x.tool) x.args = argumentsOf(x.message) ?? x.args;
    return;
  }
  if (x.message !== null && x.tool) x.message = replaceArguments(x.message, x.args) ?? x.message;
}

function openTab(x, name) {
  try {
    take(x);
  } catch (e) {
    status(x, "note warn", "▲ This is not valid JSON: ", isolated(e.message), ".");
    return;
  }
  showTab(x, name);
  changed(x);
}

function showTab(x, name) {
  if (name === "Form" && x.form.get() !== x.args && !x.form.set(parseText(x.args), x.args)) name = "JSON";
  x.tab = name;
  for (const b of x.tabs.children) b.setAttribute("aria-pressed", String(b.textContent === name));
  x.area.setAttribute("aria-label", name === "JSON" ? "The arguments" : "The message");
  if (name !== "Form") x.area.value = indented(name === "JSON" ? x.args : x.message);
  x.editor.replaceChildren(name === "Form" ? x.form.el : x.area);
}

// changed checks the arguments a moment after a change.
function changed(x) {
  x.confirmed = false;
  x.send.textContent = "Send";
  clearTimeout(x.timer);
  x.timer = setTimeout(() => check(x), 250);
}

// check validates what would be sent, and reports whether it is valid. It returns null if it cannot
// be sent.
async function check(x) {
  for (const c of x.marked || []) c.problem("");
  x.marked = [];
  try {
    take(x);
  } catch (e) {
    status(x, "note warn", "▲ This is not valid JSON: ", isolated(e.message), x.tool && x.tab === "JSON" ? "." : ". It can still be sent.");
    return x.tab === "Message" ? false : null;
  }
  if (!x.tool) {
    status(x, "hint", "Ctrl+Enter sends.");
    return true;
  }
  let found;
  try {
    found = await apiPost("/api/validate", { row: x.tool.row, name: x.tool.name, arguments: x.args }, x.control.signal);
  } catch (e) {
    failed(x, e);
    return true;
  }
  if (found.note) status(x, "note", isolated(found.note));
  else if (!found.problems.length) status(x, "hint", "✓ The arguments are valid. Ctrl+Enter sends.");
  else showProblems(x, found.problems);
  return !found.problems.length;
}

function showProblems(x, problems) {
  const list = h("ul", {});
  for (const p of problems) {
    list.append(h("li", {}, isolated(p.at ? p.at.slice(1).replaceAll("/", ".") + ": " : ""), isolated(p.message)));
    if (x.tab !== "Form") continue;
    const c = x.form.find(p.at.split("/").slice(1).map((n) => n.replaceAll("~1", "/").replaceAll("~0", "~")));
    c.problem(p.message);
    x.marked.push(c);
  }
  status(x, "note warn", "▲ The arguments do not fit the tool's schema:", list);
}

async function send(x) {
  if (x.send.disabled) return;
  clearTimeout(x.timer);
  const valid = await check(x);
  if (valid === null) return;
  if (!valid && !x.confirmed) {
    x.confirmed = true;
    x.send.textContent = "Send anyway";
    x.send.focus();
    return;
  }
  x.send.disabled = true;
  status(x, "hint busy", "Starting a copy of the server, and sending…");
  try {
    const whole = x.message !== null;
    const body = whole ? { row: x.row.q, message: x.tab === "Message" ? x.area.value : x.message } : { row: x.tool.row, name: x.tool.name, arguments: x.args };
    body.target = x.shown;
    const sent = await apiPost(whole ? "/api/resend" : "/api/call", body, x.control.signal);
    const run = { sent, at: Date.now(), args: x.tool ? x.args : null, message: body.message };
    remember(x, run);
    status(x, "hint", sent.response ? "✓ Response received" + (sent.ms != null ? " in " + fmtMs(sent.ms) : "") + "." : "✖ There was no response.");
    await showRun(x, run);
  } catch (e) {
    if (e.status === 409 && e.detail?.target) {
      setTarget(x, e.detail.target);
      status(x, "note warn", "▲ The target has changed. Check it, and send again.");
    } else failed(x, e);
  } finally {
    x.send.disabled = false;
    x.confirmed = false;
    x.send.textContent = "Send";
  }
}

const keyOf = (x) => (x.tool ? JSON.stringify([x.tool.srv, x.tool.name]) : "");

function remember(x, run) {
  const list = runsOf.get(keyOf(x)) || [];
  list.unshift(run);
  list.splice(maxRuns);
  if (x.tool) runsOf.set(keyOf(x), list);
  drawFill(x);
}

// drawFill lists the runs and the recorded calls of the tool.
function drawFill(x) {
  const runs = runsOf.get(keyOf(x)) || [];
  const recorded = x.tool?.recorded || [];
  x.fill.hidden = !x.tool || runs.length + recorded.length === 0;
  const option = (value, at, text) => h("option", { value, text: fmtClock(at).slice(0, 8) + "  " + escapeLine(text).slice(0, 60) });
  const group = (label, list) => (list.length ? h("optgroup", { label }, ...list) : null);
  x.fill.replaceChildren(...[h("option", { value: "", text: "History" }),
    group("Runs", runs.map((r, i) => option("run" + i, r.at, (r.sent.ms != null ? fmtMs(r.sent.ms) + "  " : "") + (r.args || "")))),
    group("Recorded calls", recorded.map((c) => option("row" + c.q, c.at, c.st + "  " + (c.x || ""))))].filter(Boolean));
}

async function fillFrom(x) {
  const value = x.fill.value;
  x.fill.value = "";
  const run = (runsOf.get(keyOf(x)) || [])[Number(value.slice(3))];
  try {
    let args = run?.args;
    if (value.startsWith("row")) {
      const m = await apiGet("/api/resend/" + value.slice(3), x.control.signal);
      args = m.message && argumentsOf(m.message);
    }
    if (args == null) throw new Error("The arguments of this call cannot be read.");
    x.args = args;
    if (x.message !== null) x.message = replaceArguments(x.message, args) ?? x.message;
    showTab(x, x.tab);
    changed(x);
    if (value.startsWith("run")) await showRun(x, run);
  } catch (e) {
    failed(x, e);
  }
}

// showRun shows what came of a run: the content, or the differences from an earlier one.
async function showRun(x, run) {
  x.run = run;
  const { sent } = run;
  const place = h("div", { class: "call-place" });
  const bar = h("div", { class: "bar" });
  const button = (text, run, on) => {
    const b = h("button", { type: "button", text, "aria-pressed": String(!!on), on: { click: () => {
      for (const o of bar.querySelectorAll("[aria-pressed]")) o.setAttribute("aria-pressed", String(o === b));
      run();
    } } });
    bar.append(b);
  };
  const runs = runsOf.get(keyOf(x)) || [];
  const before = runs[runs.indexOf(run) + 1]?.sent.row;
  button("Result", () => drawResult(x, place, run), true);
  if (sent.row && x.row) button("Differences from the recorded", () => drawDiff(x, place, x.row.q, sent.row));
  if (sent.row && before) button("Differences from the run before", () => drawDiff(x, place, before, sent.row));
  bar.append(h("span", { class: "grow" }));
  if (sent.n) bar.append(h("button", { type: "button", text: "Show the row", on: { click: () => {
    x.dialog.close();
    x.show(sent);
  } } }));
  x.result.replaceChildren(h("h3", {}, sent.response ? "Result" : "No response", h("span", { class: "quiet", text: sent.ms != null ? fmtMs(sent.ms) : "" })), bar);
  if (sent.note) x.result.append(h("p", { class: "note warn" }, "▲ ", isolated(sent.note)));
  x.result.append(place);
  await drawResult(x, place, run);
}

async function drawResult(x, place, run) {
  const { sent } = run;
  if (sent.row) {
    try {
      run.detail ||= await apiGet("/api/row/" + sent.row, x.control.signal);
      const view = contentView(run.detail, run.detail.returned, "Came back");
      if (view) return place.replaceChildren(view);
    } catch (e) {
      if (e.name === "AbortError") return;
    }
  }
  const text = h("pre", { class: "code answer", tabindex: "0", "aria-label": "The response" });
  setText(text, sent.response ? indented(sent.response) : "", true);
  place.replaceChildren(sent.response ? text : h("p", { class: "hint", text: "The server sent no response." }));
}

async function drawDiff(x, place, a, b) {
  place.replaceChildren(h("p", { class: "hint busy", text: "Comparing…" }));
  try {
    place.replaceChildren(...diffParts(await apiPost("/api/diff", { a, b }, x.control.signal)));
  } catch (e) {
    if (e.name !== "AbortError") place.replaceChildren(h("p", { class: "note bad" }, isolated(e.message)));
  }
}
