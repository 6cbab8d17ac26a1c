// Opening capture files that are dropped on the page.
import { apiPost } from "./api.js";
import { toast } from "./announce.js";
import { byId } from "./dom.js";
import { escapeLine } from "./safetext.js";

// initDrop lets the user drop files anywhere, or choose them. opened is called for each.
export function initDrop(opened) {
  let depth = 0;
  const show = (on) => byId("drop").classList.toggle("shown", on);
  const files = (e) => e.dataTransfer && [...e.dataTransfer.types].includes("Files");
  addEventListener("dragenter", (e) => files(e) && (depth++, show(true)));
  addEventListener("dragleave", (e) => files(e) && --depth <= 0 && ((depth = 0), show(false)));
  addEventListener("dragover", (e) => files(e) && e.preventDefault());
  addEventListener("drop", (e) => {
    if (!files(e)) return;
    e.preventDefault();
    depth = 0;
    show(false);
    openAll([...e.dataTransfer.files], opened);
  });
  const input = byId("file");
  input.addEventListener("change", () => {
    openAll([...input.files], opened);
    input.value = "";
  });
}

async function openAll(files, opened) {
  for (const f of files.slice(0, 16)) {
    toast("Opening " + escapeLine(f.name) + "…");
    try {
      await apiPost("/api/open?name=" + encodeURIComponent(f.name), f);
      opened();
    } catch (e) {
      toast(escapeLine(f.name) + ": " + e.message, "bad");
    }
  }
}
