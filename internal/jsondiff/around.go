package jsondiff

import "unicode/utf8"

// keptPrefix is how much [TrimCommonPrefix] leaves in front of a difference, in bytes.
const keptPrefix = 40

// TrimCommonPrefix returns two texts without most of what both begin with, so that their first difference is
// seen where only the beginning of a text is shown. "…" stands for what is left out. Texts that
// differ early are returned as they are.
func TrimCommonPrefix(a, b string) (x, y string) {
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	from := same - keptPrefix
	if from <= keptPrefix || len(a) == same && len(b) == same {
		return a, b
	}
	for from > 0 && !utf8.RuneStart(a[from]) {
		from--
	}
	return "…" + a[from:], "…" + b[from:]
}
