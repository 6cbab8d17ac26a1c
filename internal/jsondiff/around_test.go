package jsondiff_test

import (
	"strings"
	"testing"

	"mcpwire/internal/jsondiff"
)

func TestAround(t *testing.T) {
	long, tail := strings.Repeat("a", 1000), strings.Repeat("a", 40)
	wide, wideTail := strings.Repeat("ä", 500), strings.Repeat("ä", 20)
	for _, tt := range []struct{ name, a, b, x, y string }{
		{"early", "a" + long, "b" + long, "a" + long, "b" + long},
		{"short", tail + "x", tail + "y", tail + "x", tail + "y"},
		{"late", long + "x" + long, long + "y", "…" + tail + "x" + long, "…" + tail + "y"},
		{"a beginning", long, long + "y", "…" + tail, "…" + tail + "y"},
		{"nothing", "", "b", "", "b"},
		{"equal", long, long, long, long},
		{"within a rune", wide + "ä", wide + "ö", "…" + wideTail + "ä", "…" + wideTail + "ö"},
	} {
		if x, y := jsondiff.TrimCommonPrefix(tt.a, tt.b); x != tt.x || y != tt.y {
			t.Errorf("%s: got %q and %q, want %q and %q", tt.name, x, y, tt.x, tt.y)
		}
	}
}
