package safe

import (
	"strings"
	"testing"

	"mcpwire/internal/text/clip"
)

// TestClipLine compares Clip with a simple implementation, and checks that long input from a
// peer is cheap.
func TestClipLine(t *testing.T) {
	for _, s := range []string{"", "plain", "\x1b[31m", strings.Repeat("\u202e", 40), strings.Repeat("漢", 40), strings.Repeat("\U0001f389", 40), strings.Repeat("\xff", 40), "\xf0\x9f" + strings.Repeat("é", 40)} {
		for n := 1; n < 50; n++ {
			if got, want := Clip(s, n), clip.Characters(Line(s), n); got != want {
				t.Errorf("clipLine(%q, %d) = %q, want %q", s, n, got, want)
			}
		}
	}
	if n := len(beginning(strings.Repeat("\x01", 1<<20), 100)); n > 1000 {
		t.Errorf("%d bytes are looked at to show 100 characters", n)
	}
}
