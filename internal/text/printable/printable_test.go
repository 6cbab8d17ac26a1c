package printable_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"unicode/utf8"

	"mcpwire/internal/text/printable"
)

func TestLine(t *testing.T) {
	for _, tt := range []struct{ name, in, line, text string }{
		{"plain", `a "b" \n c`, `a "b" \n c`, `a "b" \n c`},
		{"other scripts", "日本語 العربية ไทย é", "日本語 العربية ไทย é", "日本語 العربية ไทย é"},
		{"emoji", "☎️ 👍🏽", "☎️ 👍🏽", "☎️ 👍🏽"},
		{"line breaks", "a\r\n\tb", `a\r\n\tb`, "a\\r\n\tb"},
		{"escape sequence", "\x1b[31mred", `\x1b[31mred`, `\x1b[31mred`},
		{"control character of eight bits", "\u009b31m", `\u009b31m`, `\u009b31m`},
		{"direction", "\u202egpj.exe", `\u202egpj.exe`, `\u202egpj.exe`},
		{"width zero", "a\u200bb\u2060c\ufeff", `a\u200bb\u2060c\ufeff`, `a\u200bb\u2060c\ufeff`},
		{"line separator", "a\u2028b", `a\u2028b`, `a\u2028b`},
		{"filler", "a\u3164b", `a\u3164b`, `a\u3164b`},
		{"variant", "a\U000e0101b", `a\U000e0101b`, `a\U000e0101b`},
		{"tag", "a\U000e0041b", `a\U000e0041b`, `a\U000e0041b`},
		{"no UTF-8", "a\xffb\xc3", `a\xffb\xc3`, `a\xffb\xc3`},
		{"replacement character", "a\ufffdb", "a\ufffdb", "a\ufffdb"},
		{"some marks", "e\u0301\u0323", "e\u0301\u0323", "e\u0301\u0323"},
		{"many marks", "e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301\u0301\u0301" + `\u0301`, "e\u0301\u0301\u0301\u0301" + `\u0301`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := printable.Line(tt.in); got != tt.line {
				t.Errorf("Line: got %+q, want %+q", got, tt.line)
			}
			if got := printable.Text(tt.in); got != tt.text {
				t.Errorf("Text: got %+q, want %+q", got, tt.text)
			}
		})
	}
}

// FuzzPrintable checks that what comes out is safe, and that JSON stays the same value.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[31m\u202e\u200b\xff\n")
	f.Add(`{"a":"\u202e` + "\u202e\U000e0041" + `"}`)
	f.Fuzz(func(t *testing.T, s string) {
		line := printable.Line(s)
		if !utf8.ValidString(line) {
			t.Errorf("%q is no UTF-8", line)
		}
		for _, r := range line {
			if !printable.Safe(r) {
				t.Errorf("%q has %U", line, r)
			}
		}
		out := printable.JSON([]byte(s))
		if !json.Valid([]byte(s)) {
			return
		}
		var a, b any
		if err := json.Unmarshal([]byte(s), &a); err != nil {
			return // too deep
		}
		if err := json.Unmarshal(out, &b); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		if x, y := fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b); x != y {
			t.Errorf("got %s, want %s", y, x)
		}
	})
}

func ExampleLine() {
	fmt.Println(printable.Line("safe \x1b]0;not safe\a\u202e"))
	// Output: safe \x1b]0;not safe\x07\u202e
}
