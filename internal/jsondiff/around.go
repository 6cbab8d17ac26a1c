package jsondiff

import "unicode/utf8"

// lead is how much [Around] leaves in front of a difference, in bytes.
const lead = 40

// Around returns two texts without most of what both begin with, so that their first difference is
// seen where only the beginning of a text is shown. "…" stands for what is left out. Texts that
// differ early are returned as they are.
func Around(a, b string) (x, y string) {
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	from := same - lead
	if from <= lead || len(a) == same && len(b) == same {
		return a, b
	}
	for from > 0 && !utf8.RuneStart(a[from]) {
		from--
	}
	return "…" + a[from:], "…" + b[from:]
}
