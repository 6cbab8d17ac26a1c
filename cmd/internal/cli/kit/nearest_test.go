package kit

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	names := []string{"echo", "word_count", "add", "list"}
	for in, want := range map[string]string{"eco": "echo", "lits": "list", "word": "word_count", "zzz": "", "ad": "add", "": ""} {
		if got := strings.Join(Nearest(in, names), " "); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
}
