package call

import (
	"strings"
	"testing"

	"mcpwire/cmd/internal/cli/kit"
)

// TestNoteStale checks that a server cannot fill the screen, or control the terminal, with the
// names of servers that are missing.
func TestNoteStale(t *testing.T) {
	for _, tt := range []struct {
		name  string
		names []string
		want  string
	}{
		{"none", nil, ""},
		{"two", []string{"b", "a", "b"}, "the list is not complete: the gateway has no current lists of a, b yet; list again later\n"},
		{"hostile", []string{"\x1b[2J" + strings.Repeat("x", 5000)}, `the list is not complete: the gateway has no current lists of \x1b[2J` + strings.Repeat("x", 292) + "… yet; list again later\n"},
	} {
		var b strings.Builder
		noteStale(&session{notes: &kit.Notes{W: &b}}, tt.names)
		if got := b.String(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
