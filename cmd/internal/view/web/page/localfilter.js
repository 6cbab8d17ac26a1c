// The filter of an exported page: fields and words in rows. The filter of the server knows more.
import { splitAlternatives, splitTerms, whole } from "./filterterms.js";
import { statusWords } from "./row.js";
import { allOf, store } from "./store.js";

const fieldOf = {
  tool: (r) => (r.m === "tools/call" ? r.tg : ""), target: (r) => r.tg, method: (r) => r.m, id: (r) => String(r.id), dir: (r) => r.d, kind: (r) => r.k, status: (r) => [r.st, statusWords[r.st] || "", (statusWords[r.st] || "").replace(" ", ""), r.st === "iserror" ? "failed" : "", String(r.cd || r.http)],
  server: (r) => [store.serverName(r), captureName(r)], session: (r) => String(r.s), side: (r) => r.sd, era: (r) => r.era, rev: (r) => r.rev, task: (r) => r.task,
};

// captureName returns the name of a row's capture: that of a gateway for its servers.
function captureName(r) {
  return store.sources.find((s) => s.id === r.c)?.name || "";
}

// localFilter returns a function that reports whether a row of the timeline matches a filter.
export function localFilter(text) {
  const any = splitAlternatives(text).map((part) => splitTerms(part).map(parseTerm));
  return (root) => any.length === 0 || any.some((all) => all.every((match) => match(root)));
}

// parseTerm returns a function that reports whether a row of the timeline matches a term.
function parseTerm(text) {
  if (text.length > 1 && text.startsWith("-")) {
    const match = parseTerm(text.slice(1));
    return (root) => !match(root);
  }
  const group = /^\((.*)\)$/.exec(text);
  if (group) return localFilter(group[1]);
  const [, field, op, inQuotes, word] = /^(?:(\w+)(:=|:|>=|<=|>|<))?(?:"((?:[^"\\]|\\.)*)"|([^]*))$/.exec(text) || [];
  const value = (inQuotes?.replace(/\\(.)/g, "$1") ?? word ?? "").toLowerCase();
  const match = matcher(field, op, value);
  return (root) => {
    for (const r of allOf(root)) if (match(r)) return true;
    return false;
  };
}

function matcher(field, op, value) {
  if (field === "finding") {
    const i = ["error", "warning", "info"].indexOf(value);
    return (r) => r.findings !== null && (i < 0 || r.findings[i] > 0);
  }
  if (op && !op.startsWith(":")) return (r) => compareBy(op, field === "size" ? r.rq + r.rs : r.l, amount(value));
  if (field && Object.hasOwn(fieldOf, field)) return (r) => [].concat(fieldOf[field](r)).some((text) => like(text.toLowerCase(), value, op === ":=" || whole.has(field)));
  const words = field ? field + op + value : value;
  return (r) => (r.m + " " + r.tg + " " + r.x + " " + r.sum + " " + r.srv + " " + r.msg).toLowerCase().includes(words);
}

// like reports whether a text contains another, or exactly is it, with * for any text.
function like(text, pattern, exact) {
  const parts = pattern.split("*");
  if (parts.length === 1) return exact ? text === pattern : text.includes(pattern);
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
