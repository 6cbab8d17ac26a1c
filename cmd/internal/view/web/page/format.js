// Numbers for people, in the same units as in the terminal.

const counts = new Intl.NumberFormat("en");

function digits(v) {
  return v < 9.95 ? v.toFixed(1) : v.toFixed(0);
}

// fmtCount formats a count: "12,345".
export function fmtCount(n) {
  return counts.format(n || 0);
}

// plural formats a count of things: "1 row", "2 rows".
export function plural(n, what, many = what + "s") {
  return fmtCount(n) + " " + (n === 1 ? what : many);
}

// fmtSize formats a number of bytes: "512 B", "1.2 kB".
export function fmtSize(n) {
  if (n == null) return "";
  if (n < 1000) return n + " B";
  for (const unit of ["kB", "MB"]) if ((n /= 1000) < 999.5) return digits(n) + " " + unit;
  return digits(n / 1000) + " GB";
}

// fmtMs formats a duration in ms: "840 µs", "43 ms", "1.2 s", "2m03s".
export function fmtMs(ms) {
  if (ms == null) return "";
  if (ms < 0) return "-" + fmtMs(-ms);
  if (ms === 0) return "0 ms";
  if (ms < 0.9995) return digits(ms * 1000) + " µs";
  if (ms < 999.5) return digits(ms) + " ms";
  if (ms < 60000) return digits(ms / 1000) + " s";
  const s = Math.round(ms / 1000);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 3600) return Math.floor(s / 60) + "m" + two(s % 60) + "s";
  return Math.floor(s / 3600) + "h" + two(Math.floor((s % 3600) / 60)) + "m";
}

// fmtTimer formats a duration in ms that still grows: "1.2 s".
export function fmtTimer(ms) {
  if (ms < 0) ms = 0;
  return ms < 100000 ? (ms / 1000).toFixed(1) + " s" : fmtMs(ms);
}

const pad = (n, w) => String(n).padStart(w, "0");

// fmtClock formats the time of day, to the millisecond.
export function fmtClock(at) {
  const d = new Date(at);
  return pad(d.getHours(), 2) + ":" + pad(d.getMinutes(), 2) + ":" + pad(d.getSeconds(), 2) + "." + pad(d.getMilliseconds(), 3);
}

// fmtDateTime formats a point in time with its date.
export function fmtDateTime(at) {
  const d = new Date(at);
  return d.getFullYear() + "-" + pad(d.getMonth() + 1, 2) + "-" + pad(d.getDate(), 2) + " " + fmtClock(at);
}

// fmtDelta formats a difference in ms as seconds: "+0.043".
export function fmtDelta(ms) {
  return (ms < 0 ? "-" : "+") + (Math.abs(ms) / 1000).toFixed(3);
}
