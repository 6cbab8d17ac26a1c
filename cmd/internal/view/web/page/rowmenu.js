// The menu of a row, by the right button, Shift+F10, or the key of a dot.
import { actions } from "./actions.js";
import { copyText } from "./clipboard.js";
import { addTerm, term } from "./filterterms.js";
import { applyFilterText, page } from "./listing.js";
import { openMenu } from "./menu.js";
import { showPicture } from "./picture.js";
import { exported } from "./source.js";
import { rowRef } from "./row.js";
import { view } from "./state.js";
import { store } from "./store.js";

// showRowMenu opens the menu of the selected row at a point or an element.
export function showRowMenu(at) {
  const r = page.row;
  if (!r) return;
  const entries = [{ label: "Open", hint: "Enter", run: actions.open }];
  if (r.kids?.length) entries.push({ label: "Show or hide what is inside", hint: "Space", run: actions.toggle });
  if (r.o.length) entries.push({ label: "Go to the other side of the bridge", hint: "o", run: actions.other });
  entries.push({ label: "Sequence of this session", hint: "S", run: () => showPicture("sequence", r.c, r.s) });
  entries.push("-", { heading: "Filter" });
  const only = (label, text) => entries.push({ label, run: () => applyFilterText(addTerm(view.filter, text)) });
  if (r.m === "tools/call" && r.tg) only("Only this tool", term("tool", r.tg));
  else if (r.m) only("Only this method", term("method", r.m));
  const server = store.serverName(r);
  if (server) only("Only this server", term("server", server));
  if (r.st) only("Only this status", term("status", r.st));
  if (r.m) only("Hide this method", "-" + term("method", r.m));
  else only("Hide this kind", "-" + term("kind", r.k));
  entries.push("-", { heading: "Copy" });
  entries.push({ label: "The message", hint: "y", run: actions.copy });
  if (!exported && r.k === "request") entries.push({ label: "As a command", hint: "Y", run: actions.copyCommand });
  const path = store.sources.find((s) => s.id === r.c)?.path;
  if (path && r.n) entries.push({ label: "As mcpwire show -n " + r.n, run: () => copyText("mcpwire show " + shellQuoted(path) + " -n " + r.n, "as an mcpwire command") });
  entries.push({ label: "A link to this row", run: () => copyText(linkTo(r), "the link") });
  if (!exported) {
    entries.push("-");
    if (r.k === "request" && r.d !== "s2c") entries.push({ label: "Send again…", hint: "r", run: actions.resend }, { label: "Edit and send…", hint: "E", run: actions.edit });
    entries.push({ label: page.marks.includes(r) ? "Remove the mark" : "Mark for comparison", hint: "m", run: actions.mark });
    if (page.marks.length === 2) entries.push({ label: "Compare the marked rows", hint: "d", run: actions.diff });
  }
  openMenu("Row", at, entries);
}

function shellQuoted(s) {
  return /^[\w./:@%+,-]+$/.test(s) ? s : "'" + s.replaceAll("'", "'\\''") + "'";
}

function linkTo(r) {
  const p = new URLSearchParams({ row: rowRef(r), tab: "summary", follow: "0" });
  return location.origin + location.pathname + "#" + p;
}
