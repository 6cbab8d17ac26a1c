// The waterfall: when a row was, beside the others that can be seen. One small picture per row.
import { svg } from "./dom.js";
import { fmtMs } from "./format.js";
import { isPending, rowEnd, toneOf } from "./row.js";

const scaleWidth = 1000; // of a picture's own coordinates

// newWave makes an empty picture of a row.
export function newWave() {
  const rect = (name) => svg("rect", { class: name, y: "8", height: "8", x: "0", width: "0" });
  const box = svg("svg", { class: "wave", viewBox: "0 0 " + scaleWidth + " 24", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" });
  box.append(rect("w-server"), rect("w-human"));
  return box;
}

// waveSpan returns the time that rows take up, with some room, as {from, to}. What is still open runs off the edge, unless it began a short while ago: a stream that is open for hours
// would leave no room for the rest.
export function waveSpan(rows, now) {
  let from = Infinity;
  let to = -Infinity;
  let open = false;
  for (const r of rows) {
    const end = isPending(r) ? r.at : rowEnd(r, now);
    open ||= isPending(r);
    from = Math.min(from, r.at);
    to = Math.max(to, end);
  }
  if (from === Infinity) return { from: 0, to: 1 };
  const width = Math.max(to - from, 1);
  if (open && now - to < width + 2000) to = Math.max(to, now);
  return { from, to: from + Math.max(to - from, 1) * 1.04 };
}

// drawWave brings the picture of a row up to date.
export function drawWave(box, r, span, now) {
  const perMs = scaleWidth / (span.to - span.from);
  const x = (r.at - span.from) * perMs;
  const end = (rowEnd(r, now) - span.from) * perMs;
  const least = 10;
  const human = Math.min(r.hu, Math.max(0, rowEnd(r, now) - r.at)) * perMs;
  const [server, waited] = box.children;
  const width = Math.max(Math.min(end, scaleWidth) - x, least);
  place(server, x, Math.max(width - human, r.k === "request" || r.k === "http" ? 0 : least));
  place(waited, x + width - human, human);
  const tone = toneOf(r) + (isPending(r) ? " going" : "") + (r.stream ? " open" : "");
  if (box.tone !== tone) {
    box.tone = tone;
    box.setAttribute("class", "wave tone-" + tone);
  }
}

function place(rect, x, width) {
  const a = x.toFixed(1);
  const b = width.toFixed(1);
  if (rect.at === a && rect.wide === b) return;
  rect.at = a;
  rect.wide = b;
  rect.setAttribute("x", a);
  rect.setAttribute("width", b);
}

// waveLabel says what a span is, for the head of the column.
export function waveLabel(span) {
  return fmtMs(Math.max(1, Math.round((span.to - span.from) / 1.04)));
}
