// The buttons of the page.
import { actions } from "./actions.js";
import { byId } from "./dom.js";
import { setIcon } from "./icons.js";
import { page } from "./listing.js";
import { exported } from "./source.js";
import { on, view } from "./state.js";
import { store } from "./store.js";

const buttonActions = { "b-pause": "pause", "b-follow": "follow", "b-findings": "findings", "b-frames": "frames", "b-tools": "tools", "b-run": "run", "b-sessions": "sessions", "b-export": "export", "b-help": "help", "b-rail": "rail", "b-columns": "columns", "b-sequence": "sequence", "b-overview": "overview", "filter-saved": "saved", "d-back": "back", "d-close": "back", "d-copy": "copy", "d-command": "copyCommand", "d-resend": "resend", "d-edit": "edit", "d-mark": "mark", "d-diff": "diff" };

// initButtons connects the buttons of the page with their actions.
export function initButtons() {
  for (const [id, name] of Object.entries(buttonActions)) byId(id).addEventListener("click", () => actions[name]());
  on("head", drawButtons);
  on("buttons", drawButtons);
  on("paused", drawButtons);
  drawButtons();
}

function drawButtons() {
  const pressed = (id, on) => byId(id).setAttribute("aria-pressed", String(on));
  pressed("b-follow", view.follow);
  pressed("b-findings", view.findings);
  pressed("b-frames", view.frames);
  pressed("b-pause", store.paused);
  pressed("b-sequence", view.picture === "sequence");
  pressed("b-overview", view.picture === "overview");
  pressed("b-rail", !byId("rail").hidden);
  pressed("d-mark", page.marks.includes(page.row));
  setIcon(byId("b-pause"), store.paused ? "play" : "pause");
  byId("b-pause").querySelector(".text").textContent = store.paused ? "Resume" : "Pause";
  byId("d-diff").hidden = page.marks.length !== 2 || !!exported;
  const request = page.row?.k === "request" && page.row.d !== "s2c" && !exported;
  byId("d-resend").hidden = byId("d-edit").hidden = !request;
  byId("d-command").hidden = page.row?.k !== "request" || !!exported;
}
