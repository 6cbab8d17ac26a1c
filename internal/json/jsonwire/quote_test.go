package jsonwire

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// oddStrings are strings with special cases of quoting.
var oddStrings = []string{
	"", "a", `"`, `\`, `\"`, "\n", "\x00", "\x1f", "\x7f", "\u0080", "\b\f\n\r\t", "a/b", "<script>&amp;</script>",
	"\u2028\u2029\u0085", "\ufeff", "é", "汉", "😀", "\ufffd", "\ufffe\uffff\U0010ffff",
	"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xf0\x9f\x98", "a\xffb\xfec", "汉\xe6", "\xe6\xb1汉",
	"1234567", "12345678", "123456789", "1234567\n", "12345678\n", "123456789\n", "\n\n\n\n\n\n\n\n\n\n\n\n",
	"plain text long enough for a whole word or three", "tail of a rune at the end of sixteen by\xe6\xb1",
}

// referenceQuote specifies AppendQuote for valid UTF-8, one rune at a time.
func referenceQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case strings.ContainsRune("\b\f\n\r\t", r):
			b.WriteByte('\\')
			b.WriteByte("btn.fr"[r-'\b'])
		case r < 0x20:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func TestAppendQuote(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", `""`},
		{"hello", `"hello"`},
		{`say "hi" \ bye`, `"say \"hi\" \\ bye"`},
		{"\b\t\n\f\r", `"\b\t\n\f\r"`},
		{"\x00\x01\x0b\x1e\x1f", `"\u0000\u0001\u000b\u001e\u001f"`},
		{"\x7f/<>&'\u2028", "\"\x7f/<>&'\u2028\""},
		{"\xff\xfe", "\"\ufffd\ufffd\""},
		{"a\xed\xa0\x80b", "\"a\ufffd\ufffd\ufffdb\""},
		{"汉字😀é", `"汉字😀é"`},
	}
	for _, tt := range tests {
		if got := string(AppendQuote(nil, tt.in)); got != tt.want {
			t.Errorf("AppendQuote(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
	for _, s := range oddStrings {
		checkQuote(t, s)
	}
}

// TestQuoteEverywhere checks every special piece at every position of short and long texts.
func TestQuoteEverywhere(t *testing.T) {
	plain := strings.Repeat("abcdefghijklmnopqrstuvwxyz", 12)
	for _, odd := range oddStrings {
		for at := range 40 {
			for _, after := range []int{0, 1, 3, 7, 8, 20, 200} {
				checkQuote(t, plain[:at]+odd+plain[:after])
			}
		}
		checkQuote(t, plain[:250]+odd+plain+odd+"汉字"+plain[:1]+odd)
	}
}

// TestQuoteRunes shows that every rune and every first byte is preserved.
func TestQuoteRunes(t *testing.T) {
	var all []byte
	for r := rune(0); r <= utf8.MaxRune; r += 1 + r>>9 {
		all = utf8.AppendRune(all, r)
	}
	checkQuote(t, string(all))
	for c := range 256 {
		checkQuote(t, string([]byte{byte(c)}))
		checkQuote(t, string([]byte{byte(c), 0x80, 0xbf, 'a', byte(c)}))
	}
}

// TestQuoteCapacity shows that AppendQuote uses free capacity, and writes nothing beyond the result
// if nothing is escaped.
func TestQuoteCapacity(t *testing.T) {
	for n := range 100 {
		s := strings.Repeat("x", n)
		dst := make([]byte, 5, 5+n+2)
		if got := AppendQuote(dst, s); cap(got) != cap(dst) || &got[0] != &dst[0] {
			t.Fatalf("%d bytes: dst with enough capacity was replaced", n)
		}
	}
}

func TestUnquote(t *testing.T) {
	tests := []struct{ raw, want string }{
		{``, ""},
		{`plain`, "plain"},
		{`\"\\\/\b\f\n\r\t`, "\"\\/\b\f\n\r\t"},
		{`\u0041\u00e9\u6c49`, "Aé汉"},
		{`\u0000`, "\x00"},
		{`\ud83d\ude00`, "😀"},
		{`\uD83D\uDE00`, "😀"},
		{`\ud83d`, "\ufffd"},
		{`\ude00`, "\ufffd"},
		{`\ud83d\ud83d\ude00`, "\ufffd😀"},
		{`\ud83d\u0041`, "\ufffdA"},
		{`\ud83d\n`, "\ufffd\n"},
		{`\ud83dx`, "\ufffdx"},
		{`\ude00\ud83d`, "\ufffd\ufffd"},
		{`a\\u0041`, `a\u0041`},
		{`12345678\n12345678`, "12345678\n12345678"},
	}
	for _, tt := range tests {
		if got := UnquoteString([]byte(tt.raw)); got != tt.want {
			t.Errorf("UnquoteString(%q) = %q, want %q", tt.raw, got, tt.want)
		}
		checkUnquote(t, []byte(tt.raw))
	}
}

// TestUnquoteEverywhere checks escapes at every position, including the boundaries of internal
// buffers.
func TestUnquoteEverywhere(t *testing.T) {
	plain := strings.Repeat("abcdefghijklmnopqrstuvwxyz", 60)
	for _, odd := range []string{`\n`, `\u00e9`, `\u6c49`, `\ud83d\ude00`, `\ud83d`, `\\`, `é\"汉`} {
		for at := range 40 {
			checkUnquote(t, []byte(plain[:at]+odd+plain[:at/2]+odd))
		}
		for at := 230; at < 280; at++ {
			checkUnquote(t, []byte(plain[:at]+odd+"x"))
		}
		for at := 1000; at < 1040; at++ {
			checkUnquote(t, []byte(`\t`+plain[:at]+odd+odd+plain))
		}
		for n := range 400 {
			checkUnquote(t, []byte(strings.Repeat(odd, n)+plain[:n%9]))
		}
	}
}

func TestRawEqual(t *testing.T) {
	tests := []struct {
		raw, s string
		want   bool
	}{
		{``, "", true},
		{`method`, "method", true},
		{`method`, "Method", false},
		{`m\u0065thod`, "method", true},
		{`m\u0065thod`, "metho", false},
		{`m\u0065thod`, "methods", false},
		{`m\u0065thod`, `m\u0065thod`, false},
		{`\\`, `\`, true},
		{`\\`, `\\`, false},
		{strings.Repeat("x", 100) + `\n`, strings.Repeat("x", 100) + "\n", true},
		{strings.Repeat("x", 100) + `\n`, strings.Repeat("x", 100) + "\t", false},
		{strings.Repeat("x", 100) + `\n`, strings.Repeat("x", 60), false},
	}
	for _, tt := range tests {
		if got := RawEqual([]byte(tt.raw), tt.s); got != tt.want {
			t.Errorf("RawEqual(%q, %q) = %v, want %v", tt.raw, tt.s, got, tt.want)
		}
	}
}
