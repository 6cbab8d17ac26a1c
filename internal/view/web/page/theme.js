// Light, dark, or as the system has it.
import { byId } from "./dom.js";
import { keepTaste, taste } from "./state.js";

const themeNames = ["auto", "light", "dark"];

// initTheme applies what was chosen last.
export function initTheme() {
  set(taste("theme", "auto"));
  byId("b-theme").addEventListener("click", () => {
    const next = themeNames[(themeNames.indexOf(document.documentElement.dataset.theme || "auto") + 1) % themeNames.length];
    keepTaste("theme", next);
    set(next);
  });
}

function set(name) {
  if (!themeNames.includes(name)) name = "auto";
  document.documentElement.dataset.theme = name;
  const label = "Theme: " + (name === "auto" ? "as the system" : name);
  byId("b-theme").setAttribute("aria-label", label);
  byId("b-theme").title = label;
}
