// The help: keys and filters.
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { keyHelp } from "./keys.js";

const filterHelp = [
  ["tool:search", "a field contains the text, or with := is the text: tool, target, method, id, task, dir (c2s, s2c), kind, status, server, session, side, era, rev, finding; * stands for any text"],
  ["timeout  \"two words\"", "a message contains the text"],
  ["method:/^tools\\//  /time.?out/i", "a regular expression"],
  ["dur>500ms  size>=1MB", "took longer, is larger"],
  ["n:12-20", "involves these events"],
  ["has:_meta.traceparent", "a message has the member"],
  ["finding:error  finding:RULE", "findings, by severity or rule"],
  ["jq:(.params.arguments.q == 1)", "a jq program returns true"],
  ["-method:ping", "not"],
  ["a | b   (a b)", "either; a group"],
];

// showHelp opens the help.
export function showHelp() {
  const keys = h("dl", { class: "keys" });
  for (const [k, what] of keyHelp) {
    const dt = h("dt", {});
    k.split(/(, | \/ | … )/).forEach((part, i) => dt.append(i % 2 ? part : h("kbd", { text: part })));
    keys.append(dt, h("dd", { text: what }));
  }
  const filters = h("dl", { class: "keys" });
  for (const [text, what] of filterHelp) filters.append(h("dt", {}, h("code", { text })), h("dd", { text: what }));
  const signs = h("dl", { class: "keys signs" });
  for (const [sign, tone, what] of [["→", "ask", "request"], ["←", "answer", "response (frames)"], ["⇠", "asked", "request from the server"], ["•", "note", "notification, progress, log"], ["…", "wait", "pending, or a task"], ["?", "wait", "needs input"], ["!", "tool", "the tool failed"], ["✖", "bad", "error, or no response"], ["⊘", "quiet", "cancelled"], ["~", "quiet", "stderr"], ["▲", "warn", "stray output, not a message"], ["▒", "warn", "gap in the capture"]]) {
    signs.append(h("dt", {}, h("span", { class: "g tone-" + tone, text: sign })), h("dd", { text: what }));
  }
  openDialog("Help", [h("div", { class: "columns" }, h("section", {}, h("h3", { text: "Keys" }), keys), h("section", {}, h("h3", { text: "Filter" }), filters, h("h3", { text: "Signs" }), signs))], { wide: true });
}
