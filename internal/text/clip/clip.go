// Package clip shortens texts for messages.
package clip

import "unicode/utf8"

// String returns s if it has at most limit bytes. Otherwise it returns the first limit bytes, or up
// to three fewer so as not to cut a character, and an ellipsis.
func String[T ~string | ~[]byte](s T, limit int) string {
	if len(s) <= limit {
		return string(s)
	}
	n := limit
	for n > 0 && n > limit-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return string(s[:n]) + "…"
}
