// The waterfall: when a row was, beside the others that can be seen. One small picture per row.
import { svg } from "./dom.js";
import { fmtMs } from "./format.js";
import { isPending, rowEnd, toneOf } from "./row.js";

const scaleWidth = 1000; // of a picture's own coordinates

// newWave makes an empty picture of a row.
export function newWave() {
  const box = svg("svg", { class: "wave", viewBox: "0 0 " + scaleWidth + " 24", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" });
  box.append(svg("path", { class: "w-server", d: "" }), svg("path", { class: "w-human", d: "" }));
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
  const right = x + Math.max(Math.min(end, scaleWidth) - x, least);
  let server = "";
  let waited = "";
  let from = x;
  for (const [a, b] of r.ws || []) {
    const start = Math.max(from, x + a * perMs);
    const stop = Math.min(right, x + b * perMs);
    if (stop <= start) continue;
    server += waveBar(from, start);
    waited += waveBar(start, stop);
    from = stop;
  }
  server += waveBar(from, right, r.st === "unanswered");
  place(box.children[0], server);
  place(box.children[1], waited);
  const tone = toneOf(r) + (isPending(r) ? " going" : "") + (r.stream ? " open" : "") + (r.st === "unanswered" ? " endless" : "");
  if (box.tone !== tone) {
    box.tone = tone;
    box.setAttribute("class", "wave tone-" + tone);
  }
}

// waveBar is the outline of a part; an endless one has no line on the right.
function waveBar(from, to, endless = false) {
  if (endless) return "M" + to.toFixed(1) + " 8H" + from.toFixed(1) + "V16H" + to.toFixed(1);
  return to > from ? "M" + from.toFixed(1) + " 8H" + to.toFixed(1) + "V16H" + from.toFixed(1) + "Z" : "";
}

function place(path, d) {
  if (path.drawn === d) return;
  path.drawn = d;
  path.setAttribute("d", d);
}

// waveLabel says what a span is, for the head of the column.
export function waveLabel(span) {
  return fmtMs(Math.max(1, Math.round((span.to - span.from) / 1.04)));
}
