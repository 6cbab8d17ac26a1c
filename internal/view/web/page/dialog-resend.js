// Resending a recorded request, edited or unchanged, to a fresh copy of the server, never into the
// recorded session.
import { apiGet, apiPost } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { fmtMs } from "./format.js";
import { isolated, setText } from "./safetext.js";

// showResend opens the dialog. edit lets the user change the message. done is called with the
// response of POST /api/resend.
export function showResend(r, edit, done) {
  const x = {
    send: h("button", { type: "button", class: "primary", text: "Send", disabled: true }),
    status: h("p", { class: "hint busy", role: "status", text: "Reading…" }),
    area: h("textarea", { class: "editor code", spellcheck: "false", "aria-label": "The message", rows: "16" }),
    target: h("pre", { class: "code answer", tabindex: "0", "aria-label": "The target" }),
    control: new AbortController(),
    edit,
    row: r,
    done,
    shown: "", // the target that the user has seen
  };
  x.target.hidden = true;
  x.dialog = openDialog(edit ? "Edit and send" : "Send again", [
    h("p", {}, "This goes to a ", h("strong", { text: "fresh copy" }), " of ", isolated(r.srv || "the server"), ", which ends afterwards. The recorded session does not see it. Tools run again, with their effects. The target is:"),
    x.target,
    edit ? x.area : h("p", { class: "what" }, isolated(r.sum || r.m)),
    x.status,
    h("div", { class: "actions" }, x.send, h("button", { type: "button", text: "Cancel", on: { click: () => x.dialog.close() } })),
  ], { wide: edit, closed: () => x.control.abort() });
  x.area.addEventListener("input", () => checkMessage(x));
  x.area.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && !x.send.disabled) x.send.click();
  });
  x.send.addEventListener("click", () => sendNow(x));
  loadMessage(x);
}

function setStatus(x, text, kind) {
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
    setStatus(x, m.note ? "▲ " + m.note : "", m.note ? "note warn" : "hint");
    if (!x.edit || m.message == null) {
      x.edit = false;
      x.area.remove();
      x.send.focus();
      return;
    }
    x.area.value = indented(m.message);
    if (!m.note) checkMessage(x);
    x.area.focus();
    x.area.setSelectionRange(0, 0);
    x.area.scrollTop = 0;
  } catch (e) {
    if (e.name !== "AbortError") setStatus(x, "✖ " + e.message, "note bad");
  }
}

async function sendNow(x) {
  x.send.disabled = true;
  setStatus(x, "Starting a copy of the server, and sending…", "hint busy");
  try {
    const body = { row: x.row.q, target: x.shown };
    if (x.edit) body.message = x.area.value;
    const sent = await apiPost("/api/resend", body, x.control.signal);
    showResponse(x, sent);
    x.done(sent);
  } catch (e) {
    if (e.name === "AbortError") return;
    x.send.disabled = false;
    if (e.status === 409 && e.detail?.target) {
      showTarget(x, e.detail.target);
      setStatus(x, "▲ The target has changed. Check it, and send again.", "note warn");
    } else setStatus(x, "✖ " + e.message, "note bad");
  }
}

// indented indents JSON token by token, so that numbers and names stay as they are.
function indented(text) {
  let out = "";
  let depth = 0;
  const line = () => "\n" + "  ".repeat(Math.min(depth, 40));
  const tokens = text.match(/"[^"\\]*(?:\\[^][^"\\]*)*"|[{}[\],:"]|[^\s{}[\],:"]+/g) || [];
  for (let i = 0; i < tokens.length; i++) {
    const t = tokens[i];
    if (t === "{" || t === "[") {
      const end = t === "{" ? "}" : "]";
      if (tokens[i + 1] === end) {
        out += t + end;
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

function checkMessage(x) {
  try {
    JSON.parse(x.area.value);
    setStatus(x, "Ctrl+Enter sends.");
  } catch (e) {
    setStatus(x, "▲ This is not valid JSON: " + e.message + ". It can still be sent.", "note warn");
  }
}

function showResponse(x, sent) {
  const text = h("pre", { class: "code answer", tabindex: "0", "aria-label": "The response" });
  setText(text, sent.response || "", true);
  const close = h("button", { type: "button", class: "primary", text: sent.n ? "Show the row" : "Close", on: { click: () => x.dialog.close() } });
  const head = sent.response ? "✓ Response received" + (sent.ms != null ? " in " + fmtMs(sent.ms) : "") + "." : "✖ There was no response.";
  const note = sent.note ? h("p", { class: "note warn" }, "▲ ", isolated(sent.note)) : "";
  x.dialog.body.replaceChildren(h("p", { text: head }), note, text, h("div", { class: "actions" }, close));
  text.hidden = !sent.response;
  close.focus();
}
