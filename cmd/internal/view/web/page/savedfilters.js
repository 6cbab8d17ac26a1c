// Saved filters, which the storage of the browser keeps.
import { announce } from "./announce.js";
import { byId } from "./dom.js";
import { openMenu } from "./menu.js";
import { isolated } from "./safetext.js";
import { preference, setPreference, view } from "./state.js";

const maxSaved = 40;

const suggested = ["status:error | status:iserror", "status:pending", "dur>500ms", "finding:error", "-kind:stderr -kind:log"];

function savedFilters() {
  try {
    const list = JSON.parse(preference("filters", "[]"));
    return Array.isArray(list) ? list.filter((t) => typeof t === "string").slice(0, maxSaved) : [];
  } catch {
    return [];
  }
}

function keep(list) {
  setPreference("filters", JSON.stringify(list.slice(0, maxSaved)));
}

// showSavedFilters opens the menu of saved filters. apply(text) applies one.
export function showSavedFilters(apply) {
  const list = savedFilters();
  const current = view.filter;
  const entries = [];
  if (current && !list.includes(current)) entries.push({ label: "Save this filter", run: () => {
    keep([current, ...list]);
    announce("Saved");
  } });
  if (list.includes(current)) entries.push({ label: "Forget this filter", run: () => {
    keep(list.filter((t) => t !== current));
    announce("Forgotten");
  } });
  if (current) entries.push({ label: "Clear the filter", run: () => apply("") });
  const apart = (heading, texts) => {
    if (!texts.length) return;
    if (entries.length) entries.push("-");
    entries.push({ heading }, ...texts.map((t) => ({ label: isolated(t, "code"), run: () => apply(t) })));
  };
  apart("Saved", list);
  apart("Suggestions", suggested.filter((t) => !list.includes(t)));
  openMenu("Saved filters", byId("filter-saved"), entries);
}
