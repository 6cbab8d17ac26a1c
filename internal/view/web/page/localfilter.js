// The filter of an exported page: fields and words in rows. The filter of the server knows more.
import { allOf } from "./store.js";

const fieldOf = {
  tool: (r) => (r.m === "tools/call" ? r.tg : ""), target: (r) => r.tg, method: (r) => r.m, id: (r) => String(r.id), dir: (r) => r.d, kind: (r) => r.k, status: (r) => r.st,
  server: (r) => r.srv, session: (r) => String(r.s), side: (r) => r.sd, era: (r) => r.era, rev: (r) => r.rev, task: (r) => r.task,
};

// localFilter returns a function that reports whether a row of the timeline matches a filter.
export function localFilter(text) {
  const terms = [...text.matchAll(/(-?)(?:(\w+)(:|>=|<=|>|<))?(?:"([^"]*)"|(\S+))/g)].map(term);
  return (root) => terms.every((t) => {
    for (const r of allOf(root)) if (t.match(r)) return !t.not;
    return t.not;
  });
}

function term([, not, field, op, inQuotes, word]) {
  const value = (inQuotes ?? word ?? "").toLowerCase();
  return { not: !!not, match: matcher(field, op, value) };
}

function matcher(field, op, value) {
  if (field === "finding") return (r) => r.findings !== null && (!["error", "warning"].includes(value) || r.findings[value === "error" ? 0 : 1] > 0);
  if (op && op !== ":") return (r) => compareBy(op, field === "size" ? r.rq + r.rs : r.l, amount(value));
  if (field && Object.hasOwn(fieldOf, field)) return (r) => like(fieldOf[field](r).toLowerCase(), value);
  const words = field ? field + op + value : value;
  return (r) => (r.m + " " + r.tg + " " + r.x + " " + r.sum + " " + r.srv + " " + r.msg).toLowerCase().includes(words);
}

// like matches a pattern in which * stands for any text.
function like(text, pattern) {
  const parts = pattern.split("*");
  if (parts.length === 1) return text === pattern;
  if (!text.startsWith(parts[0])) return false;
  let at = parts[0].length;
  for (const p of parts.slice(1, -1)) {
    const i = text.indexOf(p, at);
    if (i < 0) return false;
    at = i + p.length;
  }
  const last = parts[parts.length - 1];
  return text.length - last.length >= at && text.endsWith(last);
}

const unitSizes = { ms: 1, s: 1000, m: 60000, us: 0.001, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, "": 1 };

function amount(s) {
  const m = /^([\d.]+)\s*([a-z]*)$/.exec(s);
  return m ? Number(m[1]) * (unitSizes[m[2]] ?? 1) : NaN;
}

function compareBy(op, a, b) {
  if (a < 0) return false;
  return op === ">" ? a > b : op === "<" ? a < b : op === ">=" ? a >= b : a <= b;
}
