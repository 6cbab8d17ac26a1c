package cli

import (
	"strings"
	"testing"
)

func TestClip(t *testing.T) {
	for _, tt := range []struct {
		s    string
		n    int
		want string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"äöü", 3, "äöü"},
		{"äöüß", 3, "äö…"},
		{"ab", 1, "…"},
		{"\xff\xff\xff", 2, "\xff…"},
	} {
		if got := clip(tt.s, tt.n); got != tt.want {
			t.Errorf("clip(%q, %d) = %q, want %q", tt.s, tt.n, got, tt.want)
		}
	}
}

// TestClipLine compares with what it stands for, and makes sure that a peer who says much does not
// cost much.
func TestClipLine(t *testing.T) {
	for _, s := range []string{"", "plain", "\x1b[31m", strings.Repeat("\u202e", 40), strings.Repeat("漢", 40), strings.Repeat("\U0001f389", 40), strings.Repeat("\xff", 40), "\xf0\x9f" + strings.Repeat("é", 40)} {
		for n := 1; n < 50; n++ {
			if got, want := clipLine(s, n), clip(safeLine(s), n); got != want {
				t.Errorf("clipLine(%q, %d) = %q, want %q", s, n, got, want)
			}
		}
	}
	if n := len(beginning(strings.Repeat("\x01", 1<<20), 100)); n > 1000 {
		t.Errorf("%d bytes are looked at to show 100 characters", n)
	}
}
