// Captured text. Characters that are invisible, change the writing direction or control a terminal
// are shown as marked escape sequences.

const unsafeAll = /[^\P{C}\ufe0e\ufe0f]|[\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0d\u180b-\u180f]|[\u{e0100}-\u{e01ef}]|\p{M}{5,}/gu;
const unsafeTest = new RegExp(unsafeAll.source, "u");
const plainASCII = /^[\x20-\x7e]*$/;

// isPlain reports whether a text can be shown unchanged on one line.
export function isPlain(s) {
  return plainASCII.test(s) || !unsafeTest.test(s);
}

// escapeChars returns the escape sequences of characters.
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

// escapeLine returns a text on one line, with unmarked escape sequences, for attributes and images.
export function escapeLine(s) {
  s = String(s ?? "");
  return isPlain(s) ? s : s.replace(unsafeAll, escapeChars);
}

// maxMarks limits the marked escape sequences of a text. The others are not marked, so that a text
// of control characters does not become a million elements.
const maxMarks = 2000;

// appendText adds a text to an element. lines keeps line breaks and tabs.
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

// setText replaces the content of an element with a text. lines keeps line breaks and tabs.
export function setText(el, s, lines) {
  s = String(s ?? "");
  if (isPlain(s)) {
    el.textContent = s;
    return;
  }
  el.textContent = "";
  appendText(el, s, lines);
}

// isolated returns an element with a text, whose writing direction does not affect its
// surroundings.
export function isolated(s, className) {
  const el = document.createElement("bdi");
  if (className) el.className = className;
  setText(el, s);
  return el;
}
