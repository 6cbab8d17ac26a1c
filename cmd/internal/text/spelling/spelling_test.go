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

func ExampleDistance() {
	fmt.Println(spelling.Distance("serv", "serve"), spelling.Distance("serve", "sevre"))
	// Output: 1 1
}
