// The tabs Request and Response: messages as people read them.
import { apiPayload, download, payloadPath } from "./api.js";
import { toast } from "./announce.js";
import { copyText } from "./clipboard.js";
import { h } from "./dom.js";
import { fmtSize } from "./format.js";
import { linesView } from "./lines.js";
import { mediaView } from "./media.js";
import { exported } from "./source.js";
import { isolated } from "./safetext.js";
import { preference, setPreference } from "./state.js";
import { severitySign } from "./tab-findings.js";

const copyLimit = 8 << 20;

// tabPayload returns the content of a tab with payloads of a detail. parts is [{title, payload}].
export function tabPayload(d, parts) {
  const box = h("div", { class: "payloads" });
  const shown = parts.filter((p) => p.payload);
  for (const p of shown) box.append(payloadView(d, p.payload, shown.length > 1 ? p.title : ""));
  return box;
}

// payloadView returns an element with one payload.
export function payloadView(d, payload, title) {
  const box = h("section", { class: "payload" });
  const place = h("div", { class: "place" });
  const modes = ["pretty", "tree", "raw"].filter((m) => m === "pretty" || (m === "tree" && payload.form === "json") || (m === "raw" && rawOf(d, payload)));
  let mode = modes.includes(preference("mode", "pretty")) ? preference("mode", "pretty") : "pretty";
  const draw = () => place.replaceChildren(body(d, payload, mode));
  const bar = h("div", { class: "bar" });
  if (title) bar.append(h("h3", { text: title }));
  bar.append(modeButtons(modes, () => mode, (m) => {
    mode = m;
    setPreference("mode", m);
    draw();
  }));
  bar.append(wrapButton(box), h("span", { class: "size", text: fmtSize(payload.len) }), h("span", { class: "grow" }), copyButton(d, payload));
  if (!exported && d.capture) bar.append(h("a", { class: "button", href: payloadPath(d.capture, payload.n), download: "", text: "Download", on: { click: (e) => download(e).catch((error) => toast(error.message)) } }));
  box.append(bar);
  if (payload.wrong) box.append(h("p", { class: "note warn" }, isolated(payload.wrong)));
  if (payload.cut) box.append(h("p", { class: "note", text: "Only the beginning was recorded." }));
  draw();
  box.append(place);
  const left = (payload.left || 0) - inBlobs(payload);
  if (left > 0) box.append(h("p", { class: "note", text: fmtSize(left) + " more not shown" + (exported ? "." : ": download the payload to see everything.") }));
  return box;
}

// inBlobs returns the bytes of Base64 that the lines abbreviate.
function inBlobs(payload) {
  return (payload.blobs || []).reduce((n, b) => n + Math.ceil((b.len || 0) / 3) * 4, 0);
}

function rawOf(d, payload) {
  return (d.raw || []).find((r) => r.n === payload.n && r.lines?.length);
}

function body(d, payload, mode) {
  if (payload.form === "empty" || payload.len === 0) return h("p", { class: "hint", text: "Empty." });
  const findings = d.findings || [];
  const opts = {
    tree: mode === "tree",
    finding: (n, line) => findings[n] && markFinding(line, findings[n]),
    blob: (n, line) => payload.blobs?.[n - 1] && line.append(mediaView(payload.blobs[n - 1])),
  };
  return linesView(mode === "raw" ? rawOf(d, payload).lines : payload.lines || [], opts);
}

function markFinding(line, finding) {
  const [glyph, cls] = severitySign(finding);
  const note = h("span", { class: "linenote " + cls }, glyph + " ", isolated(finding.message));
  line.classList.add("has-finding");
  line.append(note);
}

function modeButtons(modes, current, pick) {
  const group = h("div", { class: "segments", role: "group", "aria-label": "Format" });
  const names = { pretty: "Pretty", tree: "Tree", raw: "Raw" };
  const refresh = () => [...group.children].forEach((b, i) => b.setAttribute("aria-pressed", String(modes[i] === current())));
  for (const m of modes) {
    group.append(h("button", { type: "button", text: names[m], on: { click: () => {
      pick(m);
      refresh();
    } } }));
  }
  refresh();
  return group;
}

// wrapButton returns a button that switches the wrapping of long lines in a box.
export function wrapButton(box) {
  const button = h("button", { type: "button", class: "wrapbutton", text: "Wrap" });
  const set = (wrap) => {
    box.classList.toggle("nowrap", !wrap);
    button.setAttribute("aria-pressed", String(wrap));
  };
  button.addEventListener("click", () => {
    const wrap = button.getAttribute("aria-pressed") !== "true";
    setPreference("wrap", wrap ? "1" : "0");
    set(wrap);
  });
  set(preference("wrap", "1") === "1");
  return button;
}

function copyButton(d, payload) {
  return h("button", { type: "button", text: "Copy", on: { click: () => copyPayload(d, payload) } });
}

// copyPayload copies a message as it was on the wire; in an exported page, as it is shown.
export async function copyPayload(d, payload) {
  try {
    if (exported) return copyText(plainLines(payload.lines), "what is shown");
    const bytes = await apiPayload(d.capture, payload.n, copyLimit);
    const whole = bytes.length < copyLimit;
    await copyText(new TextDecoder().decode(bytes), fmtSize(bytes.length) + (whole ? "" : ", the beginning"));
  } catch (e) {
    toast(e.message, "bad");
  }
}

// plainLines returns lines as text.
function plainLines(lines) {
  return (lines || []).map((l) => "  ".repeat(Math.min(l.d || 0, 200)) + (l.s || []).map((s) => s.t).join("")).join("\n");
}
