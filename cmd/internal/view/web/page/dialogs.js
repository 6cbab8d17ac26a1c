// Dialogs. Each is created when it opens and removed when it closes, and then the focus returns.
import { h } from "./dom.js";

let dialogCount = 0;

// openDialog shows a dialog with content below its title. opts is {wide, closed}; closed is called
// at the end. It returns {dialog, body, close}.
export function openDialog(title, content, opts) {
  const before = document.activeElement;
  const id = "dialog-" + ++dialogCount;
  const body = h("div", { class: "dialog-body", tabindex: "0", role: "region", "aria-labelledby": id }, ...content);
  const close = h("button", { type: "button", class: "icon", "aria-label": "Close", text: "✕", on: { click: () => dialog.close() } });
  const dialog = h("dialog", { class: "dialog" + (opts?.wide ? " wide" : ""), "aria-labelledby": id }, h("header", {}, h("h2", { id, text: title }), close), body);
  dialog.addEventListener("click", (e) => e.target === dialog && outside(dialog, e) && dialog.close());
  dialog.addEventListener("close", () => {
    // The event is later than the end of the dialog, so a key may have moved the focus.
    const moved = document.activeElement !== document.body && !dialog.contains(document.activeElement);
    dialog.remove();
    opts?.closed?.();
    if (!moved && before?.isConnected) before.focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
  return { dialog, body, close: () => dialog.close() };
}

function outside(dialog, e) {
  const b = dialog.getBoundingClientRect();
  return e.clientX < b.left || e.clientX > b.right || e.clientY < b.top || e.clientY > b.bottom;
}
