// Scales of time that leave out idle time: a stretch of more than 5 s in which nothing begins or
// ends and no call is being worked on has a small width.
import { fmtClock, fmtMs } from "./format.js";
import { isPending, rowEnd } from "./row.js";

const idleMs = 5000;
const gapShare = 0.035; // of the busy time, for each gap
const gapsShare = 0.4; // of the busy time, for all gaps

// newScale returns the scale of rows. within is {from, to} to show only this time.
export function newScale(rows, now, within) {
  const list = [];
  for (const r of rows) addBusy(list, r, now);
  if (within) list.push([within.from, within.from], [within.to, within.to]);
  const clipped = within ? list.map(([a, b]) => [Math.max(a, within.from), Math.min(b, within.to)]).filter(([a, b]) => b >= a) : list;
  return new Scale(clipped);
}

// addBusy adds the times in which a row was worked on. What the server waits for the client, what
// is open without a limit and what has no end yet only count by their ends; a pending call also
// counts for its first seconds, and a long one for its first and last seconds.
function addBusy(list, r, now) {
  const end = rowEnd(r, now);
  if (r.st === "pending" && !r.stream) list.push([r.at, Math.min(end, r.at + idleMs)]);
  if (isPending(r) || r.stream || r.st === "unanswered" || r.m === "subscriptions/listen" || r.task) {
    list.push([r.at, r.at], [end, end]);
    return;
  }
  let from = r.at;
  for (const [a, b] of r.ws || []) {
    list.push([from, r.at + a]);
    from = r.at + b;
  }
  if (end - from > 3 * idleMs) list.push([from, from + idleMs], [end - idleMs, end]);
  else list.push([from, Math.max(from, end)]);
}

class Scale {
  constructor(busy) {
    busy.sort((a, b) => a[0] - b[0]);
    const parts = []; // [from, to] without idle time between them
    for (const [a, b] of busy) {
      const last = parts[parts.length - 1];
      if (last && a - last[1] <= idleMs) last[1] = Math.max(last[1], b);
      else parts.push([a, b]);
    }
    if (!parts.length) parts.push([0, 1]);
    this.from = parts[0][0];
    this.to = parts[parts.length - 1][1];
    const total = Math.max(1, parts.reduce((n, [a, b]) => n + b - a, 0));
    // A longer gap is wider, but far less than in proportion, so that what runs through it grows.
    const weight = (ms) => 1 + Math.log2(ms / idleMs) / 2;
    const weights = parts.reduce((n, [from], i) => (i ? n + weight(from - parts[i - 1][1]) : 0), 0);
    const unit = Math.max(total * Math.min(gapShare, gapsShare / Math.max(1, weights)), 0.001);
    this.segments = []; // {from, to, at, end}: at and end are on the scale
    this.gaps = [];
    let at = 0;
    parts.forEach(([from, to], i) => {
      if (i > 0) {
        const before = parts[i - 1][1];
        const gap = unit * weight(from - before);
        this.gaps.push({ from: before, to: from, at, end: at + gap });
        this.segments.push({ from: before, to: from, at, end: at + gap });
        at += gap;
      }
      this.segments.push({ from, to, at, end: at + (to - from) });
      at += to - from;
    });
    this.length = Math.max(at, 1);
    this.clock = false; // the ruler shows the time of day
  }

  // x returns the place of a time, from 0 to 1.
  x(t) {
    const list = this.segments;
    if (t <= this.from) return 0;
    if (t >= this.to) return list[list.length - 1].end / this.length;
    let low = 0;
    let high = list.length - 1;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (list[mid].to < t) low = mid + 1;
      else high = mid;
    }
    const s = list[low];
    const share = s.to > s.from ? (t - s.from) / (s.to - s.from) : 0;
    return (s.at + share * (s.end - s.at)) / this.length;
  }

  // time returns the time at a place from 0 to 1.
  time(x) {
    const at = x * this.length;
    const s = this.segments.find((s) => at <= s.end) || this.segments[this.segments.length - 1];
    const share = s.end > s.at ? Math.min(1, Math.max(0, (at - s.at) / (s.end - s.at))) : 0;
    return s.from + share * (s.to - s.from);
  }

  // ticks returns what a ruler of a width in px shows: {x, text, gap}.
  ticks(px) {
    const most = Math.max(1, Math.floor(px / 72));
    const step = niceStep(this.length / most);
    const out = [];
    for (const g of this.gaps) out.push({ x: (g.at + g.end) / 2 / this.length, text: "// " + fmtMs(g.to - g.from), gap: true });
    for (const s of this.segments) {
      if (this.gaps.some((g) => g.at === s.at && g.from === s.from)) continue;
      for (let t = Math.ceil((s.from - this.from) / step) * step; t <= s.to - this.from && out.length < 200; t += step) out.push({ x: this.x(this.from + t), text: this.clock ? fmtClock(this.from + t).slice(0, 8) : t === 0 ? "0" : fmtMs(t), gap: false });
    }
    // A label of a gap wins over that of a time beside it.
    out.sort((a, b) => b.gap - a.gap || a.x - b.x);
    const kept = [];
    const room = 62 / Math.max(px, 1);
    for (const t of out) if (t.x < 1 - (room * 2) / 3 && kept.every((k) => Math.abs(k.x - t.x) > room)) kept.push(t);
    return kept;
  }
}

function niceStep(least) {
  for (const unit of [0.001, 0.01, 0.1, 1, 10, 100, 1000, 10000]) for (const n of [1, 2, 5]) if (unit * n >= least && unit * n <= 20000) return unit * n;
  for (const s of [30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800]) if (s * 1000 >= least) return s * 1000;
  return least;
}
