// The clipboard.
import { apiGet } from "./api.js";
import { toast } from "./announce.js";
import { h } from "./dom.js";

// copyText copies a text, and shows what was copied.
export async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyBySelection(text)) {
      toast("The browser does not allow this page to copy.", "bad");
      return;
    }
  }
  toast("Copied " + what + ".");
}

// copyBySelection copies in browsers that do not allow it otherwise, such as without TLS.
function copyBySelection(text) {
  const area = h("textarea", { class: "vh", "aria-hidden": "true" });
  area.value = text;
  const last = document.activeElement;
  (document.querySelector("dialog[open]") || document.body).append(area);
  area.select();
  const ok = document.execCommand("copy");
  area.remove();
  last?.focus();
  return ok;
}

// copyCommand copies a row as a shell command. the parameter as must be "call" or "curl".
export async function copyCommand(q, as) {
  try {
    const c = await apiGet("/api/copy/" + q + "?as=" + as);
    await copyText(c.text, [as === "curl" ? "as curl" : "as an mcpwire command", ...(c.notes || [])].join("; "));
  } catch (e) {
    toast(e.message, "bad");
  }
}
