package jsonwire

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// refStringEnd specifies stringEnd, one character at a time.
func refStringEnd(b []byte, i int) (end int, escaped bool) {
	for i < len(b) {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && n == 1, r < 0x20:
			return ^i, escaped
		case r == '"':
			return i, escaped
		case r == '\\':
			escaped = true
			rest := b[i+1:]
			switch {
			case len(rest) >= 1 && strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0:
				n = 2
			case len(rest) >= 5 && rest[0] == 'u' && len(bytes.Trim(rest[1:5], "0123456789abcdefABCDEF")) == 0:
				n = 6
			default:
				return ^i, escaped
			}
		}
		i += n
	}
	return ^i, escaped
}

func checkStringEnd(t *testing.T, b []byte, i int) {
	t.Helper()
	end, escaped := stringEnd(b, i)
	want, wantEscaped := refStringEnd(b, i)
	if end != want || end >= 0 && escaped != wantEscaped {
		t.Fatalf("stringEnd = %d, %v, want %d, %v\n%q from %d", end, escaped, want, wantEscaped, b, i)
	}
}

// TestStringEnd checks every special piece at every position, before every length of following
// text, to reach the word loops, the long runs and the tails.
func TestStringEnd(t *testing.T) {
	pieces := []string{
		`"`, `\`, `\"`, `\\"`, `\n`, `\u00e9`, `\u00g9`, `\u00`, "\n", "\x1f", "\x7f", "\x00",
		"é", "é\"", "éé", "汉", "汉字", "汉字汉\"", "😀", "é汉😀", "a é 汉 b", "жжжж\"", "жжж1жж",
		"\x80", "é\xbf", "\xc3", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "汉\xed\xa0\x80", "汉\xe0\x80\x80",
		"\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xe2\x82", "\xf0\x9f\x98", "\xff", "éab\x80cd", "éab\xe6\xb1cd", "éé\xed\xa0\x80", "éabc\xed\xa0\x80",
	}
	plain := strings.Repeat("The five boxing wizards jump quickly. ", 12)
	for _, piece := range pieces {
		for _, before := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 127, 128, 129, 143, 144, 145, 300} {
			for _, after := range []int{0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 40, 300} {
				b := []byte(plain[:before] + piece + plain[:after])
				checkStringEnd(t, b, 0)
				checkStringEnd(t, append(b, '"'), 0)
				checkStringEnd(t, append(b, piece+plain[:after/2]+`"`...), min(before, 1))
			}
		}
	}
}

// TestLongRuns checks escaped quotes between long runs, where the cached positions must advance.
func TestLongRuns(t *testing.T) {
	plain := strings.Repeat("x", 200)
	for _, s := range []string{`\"`, `\\`, `\\\"`, "é", `é\"`, `\"é`, "汉\\n\\\""} {
		for n := 1; n < 40; n++ {
			text := plain + strings.Repeat(s+plain[:n]+s, 5) + plain
			checkStringEnd(t, []byte(text), 0)
			checkStringEnd(t, []byte(text+`"`+plain), 0)
			checkStringEnd(t, []byte(text+"\x01"+text+`"`), 0)
			checkStringEnd(t, []byte(text+"\xff"+text+`"`), 0)
			checkStringEnd(t, []byte(text+`\x`+text+`"`), 0)
		}
	}
}

// TestUTF8 checks all sequences of two bytes, and sequences of three and four around every
// boundary.
func TestUTF8(t *testing.T) {
	edge := []byte{0x00, 0x20, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xaf, 0xbf, 0xc0, 0xc2, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xff}
	check := func(seq ...byte) {
		t.Helper()
		r, n := utf8.DecodeRune(seq)
		if r == utf8.RuneError && n == 1 {
			n = 0
		}
		if got := sequenceLen(load32(seq, 0)); got != n {
			t.Fatalf("sequenceLen(% x) = %d, want %d", seq, got, n)
		}
		for _, before := range []string{"", "é", "汉", "汉汉", "жa", "éabcde", "éabcd", "1234567", "汉é汉é汉"} {
			text := append([]byte(before), seq...)
			checkStringEnd(t, append(text, '"'), 0)
			checkStringEnd(t, append(text, "é and more text\""...), 0)
		}
	}
	for a := 0x80; a < 0x100; a++ {
		check(byte(a))
		for b := range 0x100 {
			check(byte(a), byte(b))
		}
		for _, b := range edge {
			for _, c := range edge {
				check(byte(a), b, c)
				if a >= 0xf0 {
					for _, d := range edge {
						check(byte(a), b, c, d)
					}
				}
			}
		}
	}
}

// TestEveryRune checks every rune, alone in its word and with neighbors.
func TestEveryRune(t *testing.T) {
	var b []byte
	for r := rune(0x80); r <= utf8.MaxRune; r++ {
		b = append(utf8.AppendRune(append(b[:0], "ж1"...), r), "ж 汉 plain\""...)
		end, _ := stringEnd(b, 0)
		if want := len(b) - 1; utf8.ValidRune(r) && end != want {
			t.Fatalf("%U: stringEnd = %d, want %d", r, end, want)
		}
	}
}

// TestMixtures checks long random texts of many pieces, most of them valid.
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
		few := kinds[r.IntN(len(kinds)):] // makes equal pieces follow each other
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
