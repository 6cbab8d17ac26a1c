// Taking it along: a page that opens alone, or the capture. Secrets are hidden in both.
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { isolated } from "./safetext.js";
import { view } from "./state.js";
import { toast } from "./announce.js";

// showExport opens the choices.
export function showExport() {
  const query = "?filter=" + encodeURIComponent(view.filter);
  const what = view.filter ? h("p", {}, "What the filter ", isolated(view.filter, "code"), " shows:") : h("p", { text: "All that is in the list:" });
  const link = (href, title, text) => h("a", { class: "choice", href, download: "", on: { click: () => {
    d.close();
    toast("The browser saves the file.");
  } } }, h("strong", { text: title }), h("span", { text }));
  const d = openDialog("Export", [
    what,
    link("/api/export.html" + query, "A page", "One HTML file that opens alone, in any browser, without network. Secrets are hidden once more, so that it can be shared."),
    link("/api/save" + query, "The capture", "A file of events (.mcpcap.ndjson) for mcpwire and other programs. Secrets are hidden."),
    h("p", { class: "hint", text: "A single exchange is copied by y (the message) and Y (as a command, or as curl)." }),
  ]);
}
