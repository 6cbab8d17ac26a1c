// The field of the filter. The server checks it while the user types, and the page shows errors.
import { apiGet } from "./api.js";
import { announce } from "./announce.js";
import { byId, h } from "./dom.js";
import { exported } from "./source.js";
import { view } from "./state.js";

const typingPause = 80; // ms without a key after which the filter applies

const box = { timer: 0, request: null, apply: null, leave: null, typed: false };

// initFilter prepares the field. apply(text) applies a filter, leave() moves the focus to the list.
export function initFilter(apply, leave) {
  box.apply = apply;
  box.leave = leave;
  const input = byId("filter");
  input.addEventListener("input", () => {
    showClear();
    clearTimeout(box.timer);
    box.timer = setTimeout(check, typingPause, false);
  });
  input.addEventListener("keydown", (e) => {
    if (e.key === "Enter") {
      clearTimeout(box.timer);
      check(true);
    } else if (e.key === "Escape") {
      e.preventDefault();
      e.stopPropagation();
      if (input.value !== view.filter) {
        input.value = view.filter;
        setError(null);
        showClear();
      } else leave();
    } else if (e.key === "ArrowDown") {
      e.preventDefault();
      leave();
    }
  });
  byId("filter-clear").addEventListener("click", () => {
    input.value = "";
    showClear();
    check(false);
    input.focus();
  });
  setFilterText(view.filter);
}

// showClear shows the button that clears the field, if there is anything to clear.
function showClear() {
  byId("filter-clear").hidden = !byId("filter").value;
}

// setFilterText shows a filter from another source.
export function setFilterText(text) {
  byId("filter").value = text;
  showClear();
}

// focusFilter moves the focus to the field.
export function focusFilter() {
  byId("filter").focus();
  byId("filter").select();
}

async function check(leave) {
  const text = byId("filter").value.trim();
  box.request?.abort();
  const control = (box.request = new AbortController());
  try {
    if (text && !exported) {
      const a = await apiGet("/api/filter?text=" + encodeURIComponent(text), control.signal);
      if (a.error) {
        setError(a.error, text);
        return;
      }
    }
    setError(null);
    if (text !== view.filter) box.apply(text, !box.typed); // Back undoes all that was typed until Enter
    box.typed = !leave;
    if (leave) box.leave();
  } catch (e) {
    if (e.name !== "AbortError") setError({ message: e.message }, text);
  }
}

// setError shows an error, {message, at} with the column from 1, or none if it is null.
function setError(error, text) {
  const input = byId("filter");
  const out = byId("filter-error");
  input.setAttribute("aria-invalid", String(!!error));
  out.hidden = !error;
  out.textContent = "";
  if (!error) return;
  out.append(h("p", {}, "✖ " + error.message));
  if (error.at) {
    const chars = [...text];
    const at = Math.min(error.at - 1, chars.length);
    const from = Math.max(0, at - 40);
    out.append(h("p", { class: "where", "aria-hidden": "true" }, (from ? "…" : "") + chars.slice(from, at).join(""), h("mark", { text: chars[at] ?? "␣" }), chars.slice(at + 1, at + 30).join("")));
  }
  announce("Invalid filter" + (error.at ? ", character " + error.at : "") + ": " + error.message);
}
