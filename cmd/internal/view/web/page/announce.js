// Announcements for screen readers, and short messages for everyone.
import { byId, h } from "./dom.js";
import { plural } from "./format.js";
import { setText } from "./safetext.js";

let timer = 0;

// announce passes a text to screen readers.
export function announce(text) {
  const el = byId("live");
  clearTimeout(timer);
  timer = setTimeout(() => (el.textContent = text), 150);
}

// toast shows a message for some seconds. kind: "" or "bad".
export function toast(text, kind) {
  const box = h("div", { class: "toast" + (kind ? " " + kind : "") });
  setText(box, text);
  byId("toasts").append(box);
  announce(box.textContent);
  setTimeout(() => box.remove(), kind ? 8000 : 4000);
}

const added = { errors: 0, findings: 0, timer: 0 };

// announceNew counts new errors and findings, and announces their numbers at most every 3 s.
export function announceNew(errors, findings) {
  if (!errors && !findings) return;
  added.errors += errors;
  added.findings += findings;
  if (!added.timer) added.timer = setTimeout(announceCounts, 3000);
}

function announceCounts() {
  added.timer = 0;
  const parts = [];
  if (added.errors) parts.push(plural(added.errors, "new error"));
  if (added.findings) parts.push(plural(added.findings, "row") + " with new findings");
  added.errors = added.findings = 0;
  announce(parts.join(", "));
}
