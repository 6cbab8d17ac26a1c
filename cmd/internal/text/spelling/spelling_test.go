package spelling_test

import (
	"fmt"
	"strings"
	"testing"

	"mcpwire/cmd/internal/text/spelling"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "ab", 2},
		{"ab", "", 2},
		{"tools/call", "tools/call", 0},
		{"tools/cal", "tools/call", 1},
		{"tools/clal", "tools/call", 1},
		{"tool/call", "tools/list", 5},
		{"kitten", "sitting", 3},
		{strings.Repeat("a", 1000), strings.Repeat("a", 2000), 0},
	} {
		if got := spelling.Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%.20q, %.20q): got %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := spelling.Distance(tt.b, tt.a); got != tt.want {
			t.Errorf("Distance(%.20q, %.20q): got %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

func TestRanking(t *testing.T) {
	var r spelling.Ranking
	if got := r.Nearest(3); len(got) != 0 {
		t.Errorf("got %q of an empty ranking", got)
	}
	for i, name := range []string{"far", "near", "also near", "far", "first"} {
		r.Add(name, []int{4, 1, 1, 0, 0}[i])
	}
	for n, want := range map[int]string{0: "[]", 2: "[first near]", 9: "[first near also near far]"} {
		if got := fmt.Sprint(r.Nearest(n)); got != want {
			t.Errorf("Nearest(%d): got %s, want %s", n, got, want)
		}
	}
}

func ExampleDistance() {
	fmt.Println(spelling.Distance("serv", "serve"), spelling.Distance("serve", "sevre"))
	// Output: 1 1
}
