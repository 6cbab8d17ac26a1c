package detail

import (
	"strings"
	"testing"
)

// TestIsMarkdown shows which texts are parsed. Nested brackets take the parser too long.
func TestIsMarkdown(t *testing.T) {
	for _, tt := range []struct {
		name, text, mediaType string
		want                  bool
	}{
		{"heading", "# Title\n\ntext", "", true},
		{"plain", "just text", "", false},
		{"plain, by its type", "just text", "text/markdown", true},
		{"another type", "# Title", "text/plain", false},
		{"long", "# " + strings.Repeat("x", maxMarkdown), "", false},
		{"many links", strings.Repeat("[a](b) ", 4000), "", true},
		{"few nested brackets", "# x\n\n" + strings.Repeat("[", 16) + strings.Repeat("]", 16), "", true},
		{"nested brackets", "# x\n\n" + strings.Repeat("[", 17) + strings.Repeat("]", 17), "", false},
		{"open brackets", strings.Repeat("![x ", 17), "text/markdown", false},
		{"open brackets in many paragraphs", strings.Repeat("[x\n\n", 100), "text/markdown", true},
		{"closed brackets alone", strings.Repeat("]", 100), "text/markdown", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := isMarkdown(tt.text, tt.mediaType); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
