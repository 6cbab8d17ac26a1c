// Sending a recorded request again, edited or as it was: to a fresh copy of the server, never into the session that was recorded.
import { apiGet, apiPost } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { fmtMs } from "./format.js";
import { isolated, setText } from "./safetext.js";

// showResend opens the dialog. edit: with the message to change; done(answer) is called with {capture, n, rn, ms} of the new rows.
export function showResend(r, edit, done) {
  const x = {
    send: h("button", { type: "button", class: "primary", text: "Send", disabled: true }),
    status: h("p", { class: "hint busy", role: "status", text: "Reading…" }),
    area: h("textarea", { class: "editor code", spellcheck: "false", "aria-label": "The message", rows: "16" }),
    target: h("pre", { class: "code answer", tabindex: "0", "aria-label": "What is run" }),
    control: new AbortController(),
    edit,
    row: r,
    done,
    shown: "", // the target that the reader has seen
  };
  x.target.hidden = true;
  x.dialog = openDialog(edit ? "Edit and send" : "Send again", [
    h("p", {}, "This goes to a ", h("strong", { text: "fresh copy" }), " of ", isolated(r.srv || "the server"), ", which ends afterwards. The session that was recorded does not see it. Tools do what they do once more. It runs:"),
    x.target,
    edit ? x.area : h("p", { class: "what" }, isolated(r.sum || r.m)),
    x.status,
    h("div", { class: "actions" }, x.send, h("button", { type: "button", text: "Cancel", on: { click: () => x.dialog.close() } })),
  ], { wide: edit, closed: () => x.control.abort() });
  x.area.addEventListener("input", () => lookAt(x));
  x.area.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && !x.send.disabled) x.send.click();
  });
  x.send.addEventListener("click", () => sendNow(x));
  loadMessage(x);
}

function say(x, text, kind) {
  x.status.className = kind || "hint";
  setText(x.status, text, true);
}

function showTarget(x, target) {
  x.shown = target;
  x.target.hidden = false;
  setText(x.target, target, true);
}

async function loadMessage(x) {
  try {
    const m = await apiGet("/api/resend/" + x.row.q, x.control.signal);
    showTarget(x, m.target);
    x.send.disabled = false;
    say(x, m.note ? "▲ " + m.note : "", m.note ? "note warn" : "hint");
    if (!x.edit || m.message == null) {
      x.edit = false;
      x.area.remove();
      x.send.focus();
      return;
    }
    x.area.value = indented(m.message);
    if (!m.note) lookAt(x);
    x.area.focus();
    x.area.setSelectionRange(0, 0);
    x.area.scrollTop = 0;
  } catch (e) {
    if (e.name !== "AbortError") say(x, "✖ " + e.message, "note bad");
  }
}

async function sendNow(x) {
  x.send.disabled = true;
  say(x, "Starting a copy of the server, and sending…", "hint busy");
  try {
    const body = { row: x.row.q, target: x.shown };
    if (x.edit) body.message = x.area.value;
    const answer = await apiPost("/api/resend", body, x.control.signal);
    finished(x, answer);
    x.done(answer);
  } catch (e) {
    if (e.name === "AbortError") return;
    x.send.disabled = false;
    if (e.status === 409 && e.detail?.target) {
      showTarget(x, e.detail.target);
      say(x, "▲ It would run something else by now: look at it, and send once more.", "note warn");
    } else say(x, "✖ " + e.message, "note bad");
  }
}

// indented lays out JSON, token by token: numbers and names stay as they are written.
function indented(text) {
  let out = "";
  let depth = 0;
  const line = () => "\n" + "  ".repeat(Math.min(depth, 40));
  const tokens = text.match(/"[^"\\]*(?:\\[^][^"\\]*)*"|[{}[\],:"]|[^\s{}[\],:"]+/g) || [];
  for (let i = 0; i < tokens.length; i++) {
    const t = tokens[i];
    if (t === "{" || t === "[") {
      const shut = t === "{" ? "}" : "]";
      if (tokens[i + 1] === shut) {
        out += t + shut;
        i++;
        continue;
      }
      depth++;
      out += t + line();
    } else if (t === "}" || t === "]") {
      depth--;
      out += line() + t;
    } else if (t === ",") out += t + line();
    else if (t === ":") out += ": ";
    else out += t;
  }
  return out;
}

function lookAt(x) {
  try {
    JSON.parse(x.area.value);
    say(x, "Ctrl+Enter sends.");
  } catch (e) {
    say(x, "▲ This is no JSON: " + e.message + ". It can be sent all the same.", "note warn");
  }
}

function finished(x, answer) {
  const text = h("pre", { class: "code answer", tabindex: "0", "aria-label": "The answer" });
  setText(text, answer.response || "", true);
  const shut = h("button", { type: "button", class: "primary", text: answer.n ? "Show the row" : "Close", on: { click: () => x.dialog.close() } });
  const head = answer.response ? "✓ Answered" + (answer.ms != null ? " in " + fmtMs(answer.ms) : "") + "." : "✖ There was no answer.";
  const note = answer.note ? h("p", { class: "note warn" }, "▲ ", isolated(answer.note)) : "";
  x.dialog.body.replaceChildren(h("p", { text: head }), note, text, h("div", { class: "actions" }, shut));
  text.hidden = !answer.response;
  shut.focus();
}
