// The strip above the list: how many rows there were over time, and a brush that chooses the time
// that the list shows.
import { byId, h, nextPaint, svg } from "./dom.js";
import { fmtClock, fmtMs, plural } from "./format.js";
import { isError, isPending } from "./row.js";
import { on, view } from "./state.js";
import { now, store } from "./store.js";
import { newScale } from "./timescale.js";
import { drawRuler } from "./waterfall.js";

const bins = 180;
const chartHeight = 30;

const strip = { root: null, chart: null, bars: [], ruler: null, brush: null, left: null, right: null, clear: null, label: null, scale: null, zoom: null, drag: null, timer: 0, drawn: 0, cost: 0 };

// initOverview prepares the strip. zoom({from, to}) chooses a time, or all if it is null.
export function initOverview(zoom) {
  strip.zoom = zoom;
  strip.root = byId("strip");
  strip.bars = ["rows", "pending", "errors"].map((name) => svg("path", { class: "s-" + name, d: "" }));
  strip.gaps = svg("path", { class: "s-gap", d: "" });
  strip.pic = svg("svg", { viewBox: "0 0 " + bins + " " + chartHeight, preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" }, strip.gaps, ...strip.bars);
  strip.ruler = h("div", { class: "ruler", "aria-hidden": "true" });
  strip.left = handle("Begin of the shown time", "left");
  strip.right = handle("End of the shown time", "right");
  strip.brush = h("div", { class: "brush" }, strip.left, strip.right);
  strip.clear = h("button", { type: "button", class: "strip-clear", text: "Whole time", hidden: true, on: { click: () => zoom(null) } });
  strip.chart = h("div", { class: "strip-chart" }, strip.ruler, strip.pic, strip.brush);
  strip.root.append(strip.chart, strip.clear);
  strip.chart.addEventListener("pointerdown", pressed);
  strip.chart.addEventListener("pointermove", dragged);
  strip.chart.addEventListener("pointerup", released);
  strip.chart.addEventListener("dblclick", () => zoom(null));
  strip.chart.addEventListener("wheel", wheeled, { passive: false });
  on("drawn", schedule);
  on("zoom", drawBrush);
  new ResizeObserver(schedule).observe(byId("list"));
  setInterval(() => store.roots.length && store.roots.some(isPending) && schedule(), 1000);
}

function handle(label, side) {
  return h("span", { class: "handle " + side, role: "slider", tabindex: "0", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": side === "left" ? "0" : "100", on: { keydown: (e) => handleKey(e, side) } });
}

// schedule draws the strip soon, but not often: it goes through all rows.
function schedule() {
  if (strip.timer) return;
  const pause = Math.max(200, strip.cost * 25);
  strip.timer = setTimeout(() => nextPaint(() => {
    strip.timer = 0;
    draw();
  }), Math.max(0, strip.drawn + pause - performance.now()));
}

function draw() {
  strip.drawn = performance.now();
  const list = byId("list");
  const shown = store.roots.length > 1 && list.clientWidth >= 560 && list.clientHeight >= 300;
  if (strip.root.hidden === shown) strip.root.hidden = !shown;
  if (!shown) return;
  const time = now();
  strip.scale = newScale(store.roots, time);
  strip.scale.clock = store.evicted > 0; // the first row is not the beginning
  const counts = [new Float64Array(bins), new Float64Array(bins), new Float64Array(bins)];
  let most = 1;
  for (const r of store.roots) {
    const i = Math.min(bins - 1, Math.floor(strip.scale.x(r.at) * (bins - 1)));
    most = Math.max(most, ++counts[0][i]);
    if (isPending(r)) counts[1][i]++;
    if (isError(r) || r.st === "iserror") counts[2][i]++;
  }
  const height = (n) => (n ? Math.max(2, (Math.log1p(n) / Math.log1p(most)) * (chartHeight - 2)) : 0);
  counts.forEach((list, k) => {
    let d = "";
    for (let i = 0; i < bins; i++) if (list[i]) d += "M" + (i + 0.1) + " " + chartHeight + "V" + (chartHeight - Math.max(2, (height(counts[0][i]) * list[i]) / counts[0][i])).toFixed(1) + "h0.8V" + chartHeight + "Z";
    setD(strip.bars[k], d);
  });
  setD(strip.gaps, strip.scale.gaps.slice(0, 60).map((g) => "M" + (((g.at + g.end) / 2 / strip.scale.length) * (bins - 1)).toFixed(2) + " 0V" + chartHeight).join(""));
  drawRuler(strip.ruler, strip.scale, strip.chart.clientWidth, (bins - 1) / bins);
  drawBrush();
  strip.cost = performance.now() - strip.drawn;
}

function setD(path, d) {
  if (path.drawn === d) return;
  path.drawn = d;
  path.setAttribute("d", d);
}

// range returns the chosen time on the scale, from 0 to 1.
function range() {
  return view.zoom && strip.scale ? [strip.scale.x(view.zoom.from), strip.scale.x(view.zoom.to)] : [0, 1];
}

function drawBrush() {
  if (!strip.scale) return;
  const [a, b] = strip.drag?.range || range();
  strip.brush.style.left = a * 100 + "%";
  strip.brush.style.right = (1 - b) * 100 + "%";
  strip.root.classList.toggle("zoomed", !!(view.zoom || strip.drag?.range));
  strip.clear.hidden = !view.zoom;
  for (const [el, x] of [[strip.left, a], [strip.right, b]]) {
    el.setAttribute("aria-valuenow", String(Math.round(x * 100)));
    el.setAttribute("aria-valuetext", fmtClock(strip.scale.time(x)));
  }
  if (view.zoom) strip.clear.title = "The list shows " + fmtMs(view.zoom.to - view.zoom.from) + " of " + plural(store.roots.length, "row");
}

function choose([a, b]) {
  a = Math.max(0, Math.min(a, b));
  b = Math.min(1, Math.max(a, b));
  if (a <= 0.001 && b >= 0.999) strip.zoom(null);
  else {
    const from = Math.floor(strip.scale.time(a));
    strip.zoom({ from, to: Math.max(from + 1, Math.ceil(strip.scale.time(b))) });
  }
}

function placeOf(e) {
  const b = strip.chart.getBoundingClientRect();
  return Math.min(1, Math.max(0, (e.clientX - b.left) / b.width));
}

function pressed(e) {
  if (e.button !== 0 || !strip.scale) return;
  const x = placeOf(e);
  const [a, b] = range();
  const edge = e.target.classList.contains("handle") ? (e.target.classList.contains("left") ? "left" : "right") : "";
  const mode = edge || (view.zoom && x > a && x < b ? "move" : "new");
  strip.drag = { mode, x, a, b, range: null };
  strip.chart.setPointerCapture(e.pointerId);
}

function dragged(e) {
  const d = strip.drag;
  if (!d) return;
  const x = placeOf(e);
  if (!d.range && Math.abs(x - d.x) * strip.chart.clientWidth < 4) return;
  if (d.mode === "new") d.range = [Math.min(d.x, x), Math.max(d.x, x)];
  else if (d.mode === "left") d.range = [Math.min(x, d.b - 0.002), d.b];
  else if (d.mode === "right") d.range = [d.a, Math.max(x, d.a + 0.002)];
  else {
    const by = Math.min(1 - d.b, Math.max(-d.a, x - d.x));
    d.range = [d.a + by, d.b + by];
  }
  drawBrush();
}

function released() {
  const d = strip.drag;
  strip.drag = null;
  if (d?.range) choose(d.range);
}

function wheeled(e) {
  if (!strip.scale || !e.deltaY) return;
  e.preventDefault();
  const x = placeOf(e);
  const [a, b] = range();
  const factor = e.deltaY < 0 ? 0.8 : 1.25;
  choose([x - (x - a) * factor, x + (b - x) * factor]);
}

function handleKey(e, side) {
  const by = { ArrowLeft: -0.01, ArrowDown: -0.01, ArrowRight: 0.01, ArrowUp: 0.01, PageUp: 0.1, PageDown: -0.1 }[e.key];
  const to = { Home: side === "left" ? 0 : null, End: side === "right" ? 1 : null }[e.key];
  if (e.key === "Escape" && view.zoom) strip.zoom(null);
  else if (by !== undefined || (to !== undefined && to !== null)) {
    const [a, b] = range();
    const x = to ?? (side === "left" ? a : b) + by;
    choose(side === "left" ? [Math.min(x, b - 0.005), b] : [a, Math.max(x, a + 0.005)]);
  } else return;
  e.preventDefault();
  e.stopPropagation();
}
