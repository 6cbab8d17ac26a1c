// The theme: light, dark, or that of the system.
import { byId } from "./dom.js";
import { preference, setPreference } from "./state.js";

const themeNames = ["auto", "light", "dark"];

// initTheme applies the stored theme, and lets the user change it.
export function initTheme() {
  set(preference("theme", "auto"));
  byId("b-theme").addEventListener("click", () => {
    const next = themeNames[(themeNames.indexOf(document.documentElement.dataset.theme || "auto") + 1) % themeNames.length];
    setPreference("theme", next);
    set(next);
  });
}

function set(name) {
  if (!themeNames.includes(name)) name = "auto";
  document.documentElement.dataset.theme = name;
  const label = "Theme: " + (name === "auto" ? "same as the system" : name);
  byId("b-theme").setAttribute("aria-label", label);
  byId("b-theme").title = label;
}
