// JSON as text: a parser that keeps where each value is, so that numbers and names stay as they are
// when a part of a text is replaced.

// parseText returns the value of a JSON text: {kind, start, end} and, of an object, members
// [{name, value}…]; of an array, items; of a string, text. It throws an Error that says where the
// text is wrong.
export function parseText(text) {
  const p = { text, at: 0, depth: 0 };
  const value = readValue(p);
  space(p);
  if (p.at < text.length) fail(p, "unexpected " + JSON.stringify(text[p.at]));
  return value;
}

// member returns the value of a member of an object, or null.
export function member(value, name) {
  return value?.members?.findLast((m) => m.name === name)?.value ?? null;
}

// rawOf returns the text of a value.
export function rawOf(text, value) {
  return text.slice(value.start, value.end);
}

// replaceArguments returns a message with other arguments, or null if it has no params.
export function replaceArguments(message, args) {
  const params = member(parseText(message), "params");
  if (params?.kind !== "object") return null;
  const old = member(params, "arguments");
  if (old) return message.slice(0, old.start) + args + message.slice(old.end);
  const first = params.members.length ? "," : "";
  return message.slice(0, params.start + 1) + '"arguments":' + args + first + message.slice(params.start + 1);
}

function fail(p, what) {
  const before = p.text.slice(0, p.at).split("\n");
  throw new Error("line " + before.length + ", column " + (before.at(-1).length + 1) + ": " + what);
}

function space(p) {
  while (" \t\r\n".includes(p.text[p.at] ?? "x")) p.at++;
}

const scalar = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;
const quoted = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;

function match(p, pattern) {
  pattern.lastIndex = p.at;
  const m = pattern.exec(p.text);
  if (m) p.at = pattern.lastIndex;
  return m?.[0];
}

function readValue(p) {
  space(p);
  const start = p.at;
  const c = p.text[start];
  if (c === undefined) fail(p, "the text ends too early");
  if (c === "{" || c === "[") return readContainer(p, start, c === "{");
  if (c === '"') return { kind: "string", start, text: readString(p), end: p.at };
  const word = match(p, scalar);
  if (!word) fail(p, "unexpected " + JSON.stringify(c));
  return { kind: /[-\d]/.test(c) ? "number" : word === "null" ? "null" : "boolean", start, end: p.at };
}

function readString(p) {
  const raw = match(p, quoted);
  if (raw === undefined) fail(p, p.text[p.at] === '"' ? "a string does not end, or has an invalid character" : "a name in quotes is missing");
  return JSON.parse(raw);
}

function readContainer(p, start, object) {
  if (++p.depth > 500) fail(p, "too deeply nested");
  const list = [];
  p.at++;
  space(p);
  const end = object ? "}" : "]";
  while (p.text[p.at] !== end) {
    if (list.length) {
      if (p.text[p.at] !== ",") fail(p, p.at < p.text.length ? "want a comma or " + end : "the text ends too early");
      p.at++;
      space(p);
    }
    if (object) {
      const name = readString(p);
      space(p);
      if (p.text[p.at++] !== ":") p.at--, fail(p, "want a colon");
      list.push({ name, value: readValue(p) });
    } else list.push(readValue(p));
    space(p);
  }
  p.at++;
  p.depth--;
  return object ? { kind: "object", members: list, start, end: p.at } : { kind: "array", items: list, start, end: p.at };
}

// indented indents JSON token by token, so that numbers and names stay as they are.
export function indented(text) {
  let out = "";
  let depth = 0;
  const line = () => "\n" + "  ".repeat(Math.min(depth, 40));
  const tokens = text.match(/"[^"\\]*(?:\\[^][^"\\]*)*"|[{}[\],:"]|[^\s{}[\],:"]+/g) || [];
  for (let i = 0; i < tokens.length; i++) {
    const t = tokens[i];
    if (t === "{" || t === "[") {
      const end = t === "{" ? "}" : "]";
      if (tokens[i + 1] === end) {
        out += t + end;
        i++;
        continue;
      }
      depth++;
      out += t + line();
    } else if (t === "}" || t === "]") {
      depth--;
      out += line() + t;
    } else if (t === ",") out += t + line();
    else if (t === ":") out += ": ";
    else out += t;
  }
  return out;
}
