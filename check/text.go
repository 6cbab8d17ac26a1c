package check

import (
	"strconv"
	"unicode/utf8"
)

// notUTF8 returns the index of the first byte that is no part of UTF-8, or -1.
func notUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return -1
}

// looksJSON reports whether bytes begin like a message or a batch.
func looksJSON(b []byte) bool {
	b = trim(b)
	return len(b) > 0 && (b[0] == '{' || b[0] == '[')
}

func itoa(n int) string { return strconv.Itoa(n) }

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
