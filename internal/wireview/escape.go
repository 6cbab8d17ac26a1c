package trace

import (
	"unicode"

	"mcpwire/internal/printable"
)

// Escape returns text of peers as it may be shown, on one line: what would steer a terminal, break the line, change the direction of writing or stay invisible becomes an escape
// sequence of Go's, such as \x1b or \u202e, and so do bytes that are no UTF-8. Everything else, spaces of ASCII and the ideographic one included, stays.
func Escape(s string) string { return printable.Line(s) }

// Width returns how many columns of a terminal a text takes that Escape has returned. It is exact for the usual scripts, and near for others.
func Width(s string) (n int) {
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me), r == '\ufe0e', r == '\ufe0f':
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f,
		r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// Truncate returns the beginning of a text that Escape has returned, in so many columns at most, with "…" at the end if there was more. A width below 1 does not cut.
func Truncate(s string, width int) string {
	if width < 1 || len(s) <= width || Width(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}
