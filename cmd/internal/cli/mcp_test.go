package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOutputPage(t *testing.T) {
	numbers := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	wide := strings.Repeat("x", 1000) + "\n"
	for _, tt := range []struct {
		name, output string
		offset       int
		want         string
	}{
		{"nothing", "", 0, ""},
		{"all", "a\nb\n", 0, "a\nb\n"},
		{"no line end", "a\nb", 0, "a\nb\n"},
		{"offset", "a\nb\nc\n", 1, "b\nc\n"},
		{"behind the end", "a\n", 5, ""},
		{"first page", numbers(0, 450), 0, numbers(0, 200) + "(250 more lines; the next page has offset 200)\n"},
		{"second page", numbers(0, 450), 200, numbers(200, 400) + "(50 more lines; the next page has offset 400)\n"},
		{"last page", numbers(0, 450), 400, numbers(400, 450)},
		{"bytes", strings.Repeat(wide, 20), 0, strings.Repeat(wide, 16) + "(4 more lines; the next page has offset 16)\n"},
		{"a long line", strings.Repeat("y", 5000) + "\nz\n", 0, strings.Repeat("y", 2000) + " … (3000 bytes more)\nz\n"},
		{"a small line after one that does not fit", strings.Repeat(wide, 16) + strings.Repeat("w", 900) + "\nb\n", 0, strings.Repeat(wide, 16) + "(2 more lines; the next page has offset 16)\n"},
		{"a cut character", strings.Repeat("y", 1999) + "é\n", 0, strings.Repeat("y", 1999) + " … (1 bytes more)\n"},
	} {
		for _, step := range []int{1, 7, 1 << 20} { // bytes per Write
			t.Run(fmt.Sprint(tt.name, step), func(t *testing.T) {
				p := newOutputPage(tt.offset)
				for rest := tt.output; rest != ""; {
					n := min(step, len(rest))
					if _, err := io.WriteString(p, rest[:n]); err != nil {
						t.Fatal(err)
					}
					rest = rest[n:]
				}
				if diff := cmp.Diff(tt.want, p.text()); diff != "" {
					t.Errorf("page (-want +got):\n%s", diff)
				}
			})
		}
	}
}
