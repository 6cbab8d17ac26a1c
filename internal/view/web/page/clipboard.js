// Copying.
import { apiGet } from "./api.js";
import { toast } from "./announce.js";
import { h } from "./dom.js";

// copyText puts a text on the clipboard, and says so.
export async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!oldCopy(text)) {
      toast("The browser does not let this page copy.", "bad");
      return;
    }
  }
  toast("Copied " + what + ".");
}

function oldCopy(text) {
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

// copyCommand copies a row as a command of a shell. as: "call" or "curl".
export async function copyCommand(q, as) {
  try {
    const c = await apiGet("/api/copy/" + q + "?as=" + as);
    await copyText(c.text, [as === "curl" ? "as curl" : "as a command of mcpwire", ...(c.notes || [])].join("; "));
  } catch (e) {
    toast(e.message, "bad");
  }
}
