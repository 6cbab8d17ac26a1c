// The waterfall: the time of a row, relative to the visible rows. Each row has a separate picture.
import { h, svg } from "./dom.js";
import { isPending, rowEnd, toneOf } from "./row.js";
import { view } from "./state.js";
import { newScale } from "./timescale.js";

const scaleWidth = 1000; // in the coordinates of a picture
const rightMargin = 0.97; // of the width that the scale uses

// newWave returns an empty picture.
export function newWave() {
  const box = svg("svg", { class: "wave", viewBox: "0 0 " + scaleWidth + " 24", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" });
  for (const name of ["w-gap", "w-server", "w-human", "w-cut"]) box.append(svg("path", { class: name, d: "" }));
  return box;
}

// waveScale returns the scale of the visible rows.
export function waveScale(rows, now) {
  return newScale(rows, now, view.zoom && rows.length ? view.zoom : null);
}

// drawWave updates the picture of a row.
export function drawWave(box, r, scale, now) {
  const place = (t) => scale.x(t) * scaleWidth * rightMargin;
  const minWidth = 8;
  const x = Math.min(place(r.at), scaleWidth - minWidth);
  const right = Math.min(scaleWidth, Math.max(place(rowEnd(r, now)), x + minWidth));
  let server = "";
  let waited = "";
  let from = x;
  for (const [a, b] of r.ws || []) {
    const start = Math.max(from, place(r.at + a));
    const stop = Math.min(right, place(r.at + b));
    if (stop <= start) continue;
    server += waveBar(from, start);
    waited += waveBar(start, stop);
    from = stop;
  }
  server += waveBar(from, right, r.st === "unanswered" || isPending(r));
  let gaps = "";
  let cuts = "";
  for (const g of scale.gaps.slice(0, 40)) {
    const at = ((g.at + g.end) / 2 / scale.length) * scaleWidth * rightMargin;
    gaps += "M" + at.toFixed(1) + " 0V24";
    if (at > x && at < right) cuts += "M" + (at - 7).toFixed(1) + " 20L" + (at - 1).toFixed(1) + " 4M" + (at + 1).toFixed(1) + " 20L" + (at + 7).toFixed(1) + " 4";
  }
  setPath(box.children[0], gaps);
  setPath(box.children[1], server);
  setPath(box.children[2], waited);
  setPath(box.children[3], cuts);
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

function setPath(path, d) {
  if (path.drawn === d) return;
  path.drawn = d;
  path.setAttribute("d", d);
}

const gapHalf = 28; // half of the width of a gap's label, in px

// drawRuler shows times above what a scale places. share is the part of the width that it uses.
export function drawRuler(el, scale, px, share = rightMargin) {
  const ticks = scale.ticks(px * share);
  const key = px + ticks.map((t) => t.x.toFixed(3) + t.text).join();
  if (el.shown === key) return;
  el.shown = key;
  el.replaceChildren(...ticks.map((t) => {
    const tick = h("span", { class: "tick" + (t.gap ? " gap" : ""), text: t.text });
    const x = t.x * share * px;
    tick.style.left = (t.gap ? Math.max(x, Math.min(gapHalf, px / 2)) : x).toFixed(1) + "px";
    return tick;
  }));
}
