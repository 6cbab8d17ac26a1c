// The tab Raw: the exact bytes of each event, as text with marked invisible characters or as
// hexadecimal digits.
import { apiPayload } from "./api.js";
import { h } from "./dom.js";
import { fmtMs, fmtSize, plural } from "./format.js";
import { linesView } from "./lines.js";
import { exported } from "./source.js";
import { isolated } from "./safetext.js";
import { wrapButton } from "./tab-payload.js";

const hexBytes = 64 << 10;
const arrows = { c2s: "→", s2c: "←", err: "~" };

// tabRaw returns the content of the tab.
export function tabRaw(d) {
  const box = h("div", { class: "raw" });
  for (const e of d.raw || []) box.append(rawEvent(d, e));
  return box;
}

function rawEvent(d, e) {
  const box = h("section", { class: "payload" });
  const place = h("div", { class: "place" });
  const text = () => place.replaceChildren(linesView([...(e.prefix || []), ...(e.lines || [])], { label: "Bytes of event " + e.n }));
  const bar = h("div", { class: "bar" });
  bar.append(h("h3", {}, h("span", { class: "g", text: arrows[e.dir] || "•" }), " #" + e.n + " ", isolated(e.kind, "quiet")));
  bar.append(h("span", { class: "size", text: [fmtSize(e.len), "+" + fmtMs(e.atMs)].join(", ") }), h("span", { class: "grow" }));
  const hex = h("button", { type: "button", class: "hexbutton", text: "Hex", "aria-pressed": "false" });
  hex.addEventListener("click", () => {
    const on = hex.getAttribute("aria-pressed") !== "true";
    hex.setAttribute("aria-pressed", String(on));
    if (on) showHex(d, e, place);
    else text();
  });
  bar.append(wrapButton(box));
  if (e.len > 0 && (!exported || e.hex?.length)) bar.append(hex);
  box.append(bar);
  const notes = [];
  if (e.encoding) notes.push("content coding " + e.encoding);
  if (e.framing) notes.push("framing " + e.framing);
  if (e.why) notes.push("not plain JSON: " + e.why);
  if (e.redacted?.length) notes.push(plural(e.redacted.length, "secret") + " redacted");
  if (e.cut) notes.push("only the beginning was recorded");
  if (notes.length) box.append(h("p", { class: "hint" }, isolated(notes.join(" · "))));
  text();
  box.append(place);
  if (e.left) box.append(h("p", { class: "note", text: fmtSize(e.left) + " more not shown." }));
  return box;
}

async function showHex(d, e, place) {
  if (e.hex?.length) {
    place.replaceChildren(hexTable(e.hex.map((r) => [r.o, r.h, r.t])));
    return;
  }
  place.replaceChildren(h("p", { class: "hint", text: "Reading the bytes…" }));
  try {
    const bytes = await apiPayload(d.capture, e.n, hexBytes);
    place.replaceChildren(hexTable(hexRowsOf(bytes)));
    if (e.len > bytes.length) place.append(h("p", { class: "note", text: "The first " + fmtSize(bytes.length) + " of " + fmtSize(e.len) + "." }));
  } catch (err) {
    place.replaceChildren(h("p", { class: "note bad", text: err.message }));
  }
}

function hexRowsOf(bytes) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += 16) {
    let digits = "";
    let text = "";
    for (let i = at; i < Math.min(at + 16, bytes.length); i++) {
      const b = bytes[i];
      digits += (i === at ? "" : i % 16 === 8 ? "  " : " ") + b.toString(16).padStart(2, "0");
      text += b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : ".";
    }
    rows.push([at, digits, text]);
  }
  return rows;
}

// hexTable returns a dump as one text, because thousands of cells would be slow.
function hexTable(rows) {
  const text = rows.map(([o, digits, ascii]) => Number(o).toString(16).padStart(6, "0") + "  " + digits.padEnd(48) + "  " + ascii).join("\n");
  return h("pre", { class: "hex", tabindex: "0", "aria-label": "Bytes in hexadecimal", text });
}
