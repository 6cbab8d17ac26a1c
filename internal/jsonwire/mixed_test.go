package jsonwire

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Mixtures that neither a table nor a fuzzer comes upon: many pieces, some of
// them long, most of them good.
func TestMixtures(t *testing.T) {
	good := []string{
		"a", "word ", "12345678", strings.Repeat("plain ", 30), strings.Repeat("x", 700), "é", "ж", "жж", "жжжж", "ё ",
		"汉", "汉字", "汉字文本", "，", "한글", "ก็", "😀", "😀🎉", "\u2028", "\ufffd", "\ue000", "\ud7ff", "\u0800", "\u07ff", "\x7f",
	}
	escaped := []string{`\n`, `\"`, `\\`, `\/`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `\u0000`}
	odd := []string{"\"", "\\", "\n", "\x00", "\xff", "\x80", "\xc3", "\xe6\xb1", "\xed\xa0\x80", "\xe0\x80\x80", "\xc0\xaf", "\xf0\x9f\x98", "\xf4\x90\x80\x80", `\u12`, `\x`}
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		var b strings.Builder
		kinds := good
		if r.IntN(2) == 0 {
			kinds = append(kinds[:len(kinds):len(kinds)], escaped...)
		}
		few := kinds[r.IntN(len(kinds)):] // so that like often follows like
		for range r.IntN(60) {
			b.WriteString(few[r.IntN(len(few))])
			if r.IntN(100) == 0 {
				b.WriteString(odd[r.IntN(len(odd))])
			}
		}
		s := b.String()
		checkStringEnd(t, []byte(s), 0)
		checkStringEnd(t, []byte(s+`"`+s), 0)
		checkUnquote(t, []byte(s))
		checkQuote(t, s)
	}
}
