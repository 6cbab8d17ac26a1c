// Package clip shortens texts for messages.
package clip

import (
	"strconv"
	"unicode/utf8"
)

// String returns s if it has at most limit bytes. Otherwise it returns the first limit bytes, or up
// to three fewer so as not to cut a character, and an ellipsis.
func String[T ~string | ~[]byte](s T, limit int) string {
	if len(s) <= limit {
		return string(s)
	}
	return string(Prefix(s, limit)) + "…"
}

// Prefix is like String without the ellipsis. The result shares the memory of s.
func Prefix[T ~string | ~[]byte](s T, limit int) T {
	if len(s) <= limit {
		return s
	}
	n := limit
	for n > 0 && n > limit-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Quote returns a Go string literal of s, or of the first limit bytes of s and then an ellipsis.
func Quote[T ~string | ~[]byte](s T, limit int) string {
	quoted := strconv.Quote(string(Prefix(s, limit)))
	if len(s) > limit {
		quoted += "…"
	}
	return quoted
}

// Characters returns s if it has at most n characters. Otherwise it returns the first n-1
// characters and an ellipsis. An invalid byte counts as a character. Its cost depends on n, not on
// the length of s.
func Characters[T ~string | ~[]byte](s T, n int) string {
	if len(s) <= n {
		return string(s)
	}
	// The bytes that n+1 characters may have are enough.
	beginning := string(s[:min(len(s), (n+1)*utf8.UTFMax)])
	count, end := 0, 0
	for i := range beginning {
		switch count++; count {
		case n:
			end = i // where the last character that fits begins
		case n + 1:
			return beginning[:end] + "…"
		}
	}
	return beginning
}
