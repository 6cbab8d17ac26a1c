// What is said to screen readers, and short messages to everyone.
import { byId, h } from "./dom.js";
import { plural } from "./format.js";
import { setText } from "./safetext.js";

let said = 0;

// announce says a text to screen readers.
export function announce(text) {
  const el = byId("live");
  clearTimeout(said);
  said = setTimeout(() => (el.textContent = text), 150);
}

// toast shows a message for some seconds. kind: "" or "bad".
export function toast(text, kind) {
  const box = h("div", { class: "toast" + (kind ? " " + kind : "") });
  setText(box, text);
  byId("toasts").append(box);
  announce(box.textContent);
  setTimeout(() => box.remove(), kind ? 8000 : 4000);
}

const news = { errors: 0, findings: 0, timer: 0 };

// noteNews counts errors and findings, and says how many there were from time to time.
export function noteNews(errors, findings) {
  if (!errors && !findings) return;
  news.errors += errors;
  news.findings += findings;
  if (!news.timer) news.timer = setTimeout(sayNews, 3000);
}

function sayNews() {
  news.timer = 0;
  const parts = [];
  if (news.errors) parts.push(plural(news.errors, "new error"));
  if (news.findings) parts.push(plural(news.findings, "row") + " with new findings");
  news.errors = news.findings = 0;
  announce(parts.join(", "));
}
