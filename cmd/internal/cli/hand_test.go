package cli

import (
	"encoding/json"
	"testing"

	"mcpwire/cmd/internal/text/safe"
)

func TestSafeText(t *testing.T) {
	for _, tt := range []struct{ in, line string }{
		{"plain ü 漢 🎉", "plain ü 漢 🎉"},
		{"\x1b[2J", `\x1b[2J`},
		{"a\nb\tc\r", `a\nb\tc\r`},
		{"\u202eabc\u2066\u200b\u200d\ufeff\u00ad", `\u202eabc\u2066\u200b\u200d\ufeff\u00ad`},
		{"\u009b31m\x7f", `\u009b31m\x7f`},
		{"\xff\xc3", `\xff\xc3`},
		{"\U000e0041\U000e0100", `\U000e0041\U000e0100`},
		{"\u2028\u2029", `\u2028\u2029`},
	} {
		if got := safe.Line(tt.in); got != tt.line {
			t.Errorf("safeLine(%q) = %q, want %q", tt.in, got, tt.line)
		}
		quoted, err := json.Marshal(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		escaped := safe.JSON(quoted)
		if s := string(escaped); safe.Line(s) != s {
			t.Errorf("safeJSON leaves %q", s)
		}
		var before, after string
		if json.Unmarshal(quoted, &before) != nil || json.Unmarshal(escaped, &after) != nil || before != after {
			t.Errorf("safeJSON(%s) = %s is another value", quoted, escaped)
		}
	}
	if got := safe.Text("a\n\tb\x07"); got != "a\n\tb\\x07" {
		t.Errorf("safeText: %q", got)
	}
}
