// Resending a recorded request unchanged to a fresh copy of the server, never into the recorded
// session.
import { apiGet, apiPost } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { fmtMs } from "./format.js";
import { isolated, setText } from "./safetext.js";
import { store } from "./store.js";

// showResend opens the dialog. done is called with the response of POST /api/resend.
export function showResend(r, done) {
  const x = {
    send: h("button", { type: "button", class: "primary", text: "Send", disabled: true }),
    status: h("p", { class: "hint busy", role: "status", text: "Reading…" }),
    target: h("pre", { class: "code answer", tabindex: "0", "aria-label": "The target" }),
    control: new AbortController(),
    row: r,
    done,
    shown: "", // the target that the user has seen
  };
  x.target.hidden = true;
  x.dialog = openDialog("Send again", [
    h("p", {}, "This goes to a ", h("strong", { text: "fresh copy" }), " of ", isolated(store.serverName(r) || "the server"), ", which ends afterwards. The recorded session does not see it. Tools run again, with their effects. The target is:"),
    x.target,
    h("p", { class: "what" }, isolated(r.sum || r.m)),
    x.status,
    h("div", { class: "actions" }, x.send, h("button", { type: "button", text: "Cancel", on: { click: () => x.dialog.close() } })),
  ], { closed: () => x.control.abort() });
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
    x.send.focus();
  } catch (e) {
    if (e.name !== "AbortError") setStatus(x, "✖ " + e.message, "note bad");
  }
}

async function sendNow(x) {
  x.send.disabled = true;
  setStatus(x, "Starting a copy of the server, and sending…", "hint busy");
  try {
    const sent = await apiPost("/api/resend", { row: x.row.q, target: x.shown }, x.control.signal);
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
