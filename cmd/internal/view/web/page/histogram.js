// Histograms of latencies.
import { svg } from "./dom.js";
import { fmtMs, plural } from "./format.js";

const barCount = 24;

// histogram draws buckets [[upper ms, count]…] on a logarithmic axis.
export function histogram(hist, stat) {
  const bars = mergeBuckets(hist || []);
  const highest = Math.max(1, ...bars.map((b) => b.count));
  const label = !bars.length ? "No known latencies" : "Latencies of " + plural(bars.reduce((n, b) => n + b.count, 0), "call") + ": half below " + fmtMs(stat.p50) + ", 95 % below " + fmtMs(stat.p95) + ", at most " + fmtMs(stat.max);
  const pic = svg("svg", { class: "hist", viewBox: "0 0 120 28", role: "img", "aria-label": label });
  pic.append(svg("line", { class: "tick", x1: 0, x2: 120, y1: 27.5, y2: 27.5 }));
  const width = 120 / Math.max(bars.length, 12);
  bars.forEach((b, i) => {
    if (!b.count) return;
    const height = Math.max(2, (b.count / highest) * 25);
    const bar = svg("rect", { class: b.upper > stat.p95 && stat.calls > 9 ? "tail" : "", x: i * width + 0.5, y: 27 - height, width: Math.max(1, width - 1), height });
    bar.append(svg("title", {}, "up to " + fmtMs(b.upper) + ": " + b.count));
    pic.append(bar);
  });
  return pic;
}

function mergeBuckets(hist) {
  const list = hist.map(([upper, count]) => ({ upper, count }));
  const per = Math.ceil(list.length / barCount);
  if (per <= 1) return list;
  const out = [];
  for (let i = 0; i < list.length; i += per) {
    const group = list.slice(i, i + per);
    out.push({ upper: group[group.length - 1].upper, count: group.reduce((n, b) => n + b.count, 0) });
  }
  return out;
}
