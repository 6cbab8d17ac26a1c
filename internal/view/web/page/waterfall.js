// The waterfall: the time of a row, relative to the visible rows. Each row has a separate picture.
import { svg } from "./dom.js";
import { fmtMs } from "./format.js";
import { isPending, rowEnd, toneOf } from "./row.js";

const scaleWidth = 1000; // in the coordinates of a picture

// newWave returns an empty picture.
export function newWave() {
  const box = svg("svg", { class: "wave", viewBox: "0 0 " + scaleWidth + " 24", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" });
  box.append(svg("path", { class: "w-server", d: "" }), svg("path", { class: "w-human", d: "" }));
  return box;
}

// waveSpan returns the time that rows cover, with a margin, as {from, to}. It includes now only if
// that is close: a stream that has been open for hours would leave no space for the other rows.
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

// drawWave updates the picture of a row.
export function drawWave(box, r, span, now) {
  const perMs = scaleWidth / (span.to - span.from);
  const x = (r.at - span.from) * perMs;
  const end = (rowEnd(r, now) - span.from) * perMs;
  const minWidth = 10;
  const right = x + Math.max(Math.min(end, scaleWidth) - x, minWidth);
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

// waveBar returns the outline of a part; an endless one has no line on the right.
function waveBar(from, to, endless = false) {
  if (endless) return "M" + to.toFixed(1) + " 8H" + from.toFixed(1) + "V16H" + to.toFixed(1);
  return to > from ? "M" + from.toFixed(1) + " 8H" + to.toFixed(1) + "V16H" + from.toFixed(1) + "Z" : "";
}

function place(path, d) {
  if (path.drawn === d) return;
  path.drawn = d;
  path.setAttribute("d", d);
}

// waveLabel returns the length of a span, for the head of the column.
export function waveLabel(span) {
  return fmtMs(Math.max(1, Math.round((span.to - span.from) / 1.04)));
}
