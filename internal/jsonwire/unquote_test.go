package jsonwire

import (
	"strings"
	"testing"
)

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

// Escapes at every place, also across the borders of internal buffers.
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
