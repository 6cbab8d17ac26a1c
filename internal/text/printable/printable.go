package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks limits the combining marks of one character. More of them cover the lines above and
// below.
const maxMarks = 4

// Safe reports whether a character is only visible text. The space is safe; line breaks and tabs
// are not.
func Safe(r rune) bool {
	switch {
	case r < 0x80:
		return r >= ' ' && r < 0x7f
	case r == '\u3000': // ideographic space
		return true
	case r == '\ufe0e', r == '\ufe0f': // text or emoji
		return true
	// These variation selectors are unused and can hide text.
	case r >= 0xfe00 && r <= 0xfe0d, r >= 0xe0100 && r <= 0xe01ef, r >= 0x180b && r <= 0x180f:
		return false
	// These characters are invisible.
	case r == '\u034f', r == '\u115f', r == '\u1160', r == '\u17b4', r == '\u17b5', r == '\u2800', r == '\u3164', r == '\uffa0':
		return false
	}
	return unicode.IsPrint(r)
}

// Line returns s as one line. It replaces unsafe characters and invalid UTF-8 by Go escape
// sequences such as \n, \x1b or \u202e. It does not escape backslashes, so the result cannot be
// reversed.
func Line(s string) string { return escape(s, "") }

// Text is like Line for text of several lines: it keeps line breaks and tabs.
func Text(s string) string { return escape(s, "\n\t") }

func escape(s, keep string) string {
	i := 0
	for i < len(s) && (s[i] >= ' ' && s[i] < 0x7f || strings.IndexByte(keep, s[i]) >= 0) {
		i++
	}
	if i == len(s) {
		return s
	}
	b := make([]byte, 0, len(s)+len(s)/4+16)
	b = append(b, s[:i]...)
	marks := 0
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.In(r, unicode.Mn, unicode.Me) {
			marks++
		} else {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && n <= 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case Safe(r) && marks <= maxMarks, r < 0x80 && strings.IndexByte(keep, byte(r)) >= 0:
			b = append(b, s[i:i+n]...)
		default:
			b = appendEscape(b, r)
		}
		i += n
	}
	return string(b)
}

func appendEscape(b []byte, r rune) []byte {
	switch {
	case r == '\n':
		return append(b, `\n`...)
	case r == '\r':
		return append(b, `\r`...)
	case r == '\t':
		return append(b, `\t`...)
	case r < 0x80:
		return fmt.Appendf(b, `\x%02x`, r)
	case r < 0x10000:
		return fmt.Appendf(b, `\u%04x`, r)
	}
	return fmt.Appendf(b, `\U%08x`, r)
}

// JSON replaces unsafe characters in a JSON text by JSON escapes. The value stays the same, because
// such characters occur only in strings; invalid UTF-8 becomes U+FFFD. JSON keeps line breaks and
// tabs. It returns text itself if there is nothing to escape.
func JSON(text []byte) []byte {
	i := 0
	for i < len(text) {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 || !Safe(r) && r != '\n' && r != '\t' && r != '\r' {
			break
		}
		i += n
	}
	if i == len(text) {
		return text
	}
	b := append(make([]byte, 0, len(text)+len(text)/4+16), text[:i]...)
	for i < len(text) {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			b = append(b, "\ufffd"...)
		case Safe(r), r == '\n', r == '\t', r == '\r':
			b = append(b, text[i:i+n]...)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		}
		i += n
	}
	return b
}
