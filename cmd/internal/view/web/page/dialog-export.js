// The export: a self-contained page, or a capture. Both are redacted.
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { isolated } from "./safetext.js";
import { view } from "./state.js";
import { toast } from "./announce.js";
import { download } from "./api.js";

// showExport opens the dialog.
export function showExport() {
  const query = "?filter=" + encodeURIComponent(view.filter);
  const what = view.filter ? h("p", {}, "What the filter ", isolated(view.filter, "code"), " shows:") : h("p", { text: "Everything in the list:" });
  const link = (href, title, text) => h("a", { class: "choice", href, download: "", on: { click: (e) => {
    download(e).catch((error) => toast(error.message));
    d.close();
    toast("The browser saves the file.");
  } } }, h("strong", { text: title }), h("span", { text }));
  const d = openDialog("Export", [
    what,
    link("/api/export.html" + query, "A page", "One HTML file, which every browser opens without network. Secrets are redacted again, so that it can be shared."),
    link("/api/save" + query, "The capture", "A file of events (.mcpcap.ndjson) for mcpwire and other programs. Secrets are redacted."),
    h("p", { class: "hint", text: "To copy a single exchange, press y (the message) or Y (as a command, or as curl)." }),
    h("p", { class: "hint" }, h("code", { text: "mcpwire export --to FORMAT" }), " makes other files: har, otlp, pcapng, sequence, mermaid and others."),
  ]);
}
