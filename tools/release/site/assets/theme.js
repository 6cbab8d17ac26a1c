// Sets the theme before the page is drawn: the one that the user chose here, or the system's.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => {
    const theme = chosen() || (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    // Pictures have a version for the dark theme of the system; this is the theme of the page.
    for (const source of document.querySelectorAll("source[media]")) {
      source.media = theme === "dark" ? "all" : "not all";
    }
  };
  window.toggleTheme = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", next); } catch { /* the choice lasts for this page */ }
    apply();
    if (document.documentElement.dataset.theme !== next) document.documentElement.dataset.theme = next;
  };
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", apply);
  apply();
})();
