// Text of strangers: what cannot be seen, changes the direction of writing or steers a terminal is shown as a marked escape sequence.

const unsafeAll = /[^\P{C}\ufe0e\ufe0f]|[\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0d\u180b-\u180f]|[\u{e0100}-\u{e01ef}]|\p{M}{5,}/gu;
const unsafeTest = new RegExp(unsafeAll.source, "u");
const plainASCII = /^[\x20-\x7e]*$/;

// isPlain tells whether a text may be shown on one line as it is.
export function isPlain(s) {
  return plainASCII.test(s) || !unsafeTest.test(s);
}

// escapeChars is the escape sequence for characters that must not be shown.
function escapeChars(s) {
  if (s === "\n") return "\\n";
  if (s === "\r") return "\\r";
  if (s === "\t") return "\\t";
  let out = "";
  for (const c of s) {
    const n = c.codePointAt(0);
    if (n < 0x80) out += "\\x" + n.toString(16).padStart(2, "0");
    else if (n < 0x10000) out += "\\u" + n.toString(16).padStart(4, "0");
    else out += "\\U" + n.toString(16).padStart(8, "0");
  }
  return out;
}

// escapeLine is a text on one line, with escape sequences that are not marked: for attributes and pictures.
export function escapeLine(s) {
  s = String(s ?? "");
  return isPlain(s) ? s : s.replace(unsafeAll, escapeChars);
}

const maxMarks = 2000; // in one piece; what is beyond is escaped without a mark, so that a text of control characters makes no million elements

// appendText adds a text to an element. lines: line breaks and tabs stay.
export function appendText(el, s, lines) {
  s = String(s ?? "");
  if (isPlain(s)) {
    el.append(s);
    return;
  }
  let from = 0;
  let marks = 0;
  let pending = "";
  for (const m of s.matchAll(unsafeAll)) {
    const stays = lines && (m[0] === "\n" || m[0] === "\t" || m[0] === "\r");
    if (stays && m[0] !== "\r") continue;
    if (stays && s[m.index + 1] === "\n") {
      pending += s.slice(from, m.index);
      from = m.index + 1;
      continue;
    }
    pending += s.slice(from, m.index);
    from = m.index + m[0].length;
    if (marks++ >= maxMarks) {
      pending += escapeChars(m[0]);
      continue;
    }
    if (pending) el.append(pending);
    pending = "";
    const mark = document.createElement("span");
    mark.className = "ctl";
    mark.textContent = escapeChars(m[0]);
    el.append(mark);
  }
  pending += s.slice(from);
  if (pending) el.append(pending);
}

// setText makes a text all that an element has.
export function setText(el, s, lines) {
  s = String(s ?? "");
  if (isPlain(s)) {
    el.textContent = s;
    return;
  }
  el.textContent = "";
  appendText(el, s, lines);
}

// isolated is a text in an element of its own, so that its direction of writing stays inside.
export function isolated(s, className) {
  const el = document.createElement("bdi");
  if (className) el.className = className;
  setText(el, s);
  return el;
}
