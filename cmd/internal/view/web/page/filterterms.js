// Terms of filters as text: what the facets and the menus of rows add and remove.

// quoted returns a value in the syntax of filters.
export function quoted(s) {
  return /^[\w.\-/]+$/.test(s) ? s : '"' + s.replace(/["\\]/g, "\\$&") + '"';
}

// whole are the fields whose values filters compare as a whole anyway.
export const whole = new Set(["id", "dir", "kind", "status", "session", "side", "era", "finding"]);

// term returns the term that a field has exactly a value.
export function term(field, value) {
  return field + (whole.has(field) ? ":" : ":=") + quoted(value);
}

// splitTerms returns the terms of a filter at its top level, or null if they are alternatives.
export function splitTerms(text) {
  return splitAlternatives(text).length > 1 ? null : split(text, /\s/);
}

// splitAlternatives returns the parts of a filter between "|" at its top level.
export function splitAlternatives(text) {
  return split(text, /\|/);
}

// split returns the parts of a filter between characters that match at its top level.
function split(text, separator) {
  const out = [];
  let from = 0;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (depth === 0 && separator.test(c)) {
      out.push(text.slice(from, i));
      from = i + 1;
    } else if (c === '"' || (c === "/" && (i === from || /[\s:=(-]/.test(text[i - 1])))) i = closing(text, i);
    else if (c === "(") depth++;
    else if (c === ")") depth = Math.max(0, depth - 1);
  }
  out.push(text.slice(from));
  return out.map((t) => t.trim()).filter(Boolean);
}

// closing returns the index of the character that ends what begins at i.
function closing(text, i) {
  const end = text[i];
  for (i++; i < text.length && text[i] !== end; i++) if (text[i] === "\\") i++;
  return i;
}

// valuesOf returns the values that a term of facets allows for a field, or null if it is another
// term: "server:=a" and "(server:=a | server:=b)".
function valuesOf(text, field) {
  const inside = /^\((.*)\)$/.exec(text)?.[1] ?? text;
  const parts = inside.split(" | ");
  const out = [];
  for (const p of parts) {
    const m = /^(\w+):=?(?:"((?:[^"\\]|\\.)*)"|([\w.\-/]+))$/.exec(p.trim());
    if (!m || m[1] !== field) return null;
    out.push(m[3] ?? m[2].replace(/\\(.)/g, "$1"));
  }
  return out;
}

// chosen returns the values of a field that a filter allows by terms of facets, and those that it
// excludes.
export function chosen(filter, field) {
  const terms = splitTerms(filter) || [];
  const only = new Set();
  const not = new Set();
  for (const t of terms) {
    const negative = t.startsWith("-");
    const values = valuesOf(negative ? t.slice(1) : t, field);
    for (const v of values || []) (negative ? not : only).add(v);
  }
  return { only, not };
}

// toggleTerm returns a filter with a value of a field allowed, or no longer if it was; exclude does
// the same for the term that excludes the value.
export function toggleTerm(filter, field, value, exclude) {
  let terms = splitTerms(filter);
  if (!terms) terms = ["(" + filter + ")"];
  const { only, not } = chosen(filter, field);
  const rest = terms.filter((t) => valuesOf(t.startsWith("-") ? t.slice(1) : t, field) === null);
  const had = (exclude ? not : only).has(value);
  only.delete(value);
  not.delete(value);
  if (!had) (exclude ? not : only).add(value);
  const list = [...only].map((v) => term(field, v));
  if (list.length === 1) rest.push(list[0]);
  else if (list.length) rest.push("(" + list.join(" | ") + ")");
  for (const v of not) rest.push("-" + term(field, v));
  return rest.join(" ");
}

// addTerm returns a filter with a term added, unless it is there.
export function addTerm(filter, text) {
  const terms = splitTerms(filter) || ["(" + filter + ")"];
  if (!terms.includes(text)) terms.push(text);
  return terms.join(" ");
}
