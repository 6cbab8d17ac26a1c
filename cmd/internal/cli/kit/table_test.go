package kit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	for _, tt := range []struct {
		name  string
		width int
		right bool
		want  string
		left  []string
	}{
		{"no terminal", 0, false, "A    B       NAME\none  漢字    first\n1    second  a longer one\n", nil},
		{"room enough", 25, false, "A    B       NAME\none  漢字    first\n1    second  a longer one\n", nil},
		{"numbers", 0, true, "  A       B  NAME\none    漢字  first\n  1  second  a longer one\n", nil},
		{"a column less", 24, false, "A    NAME\none  first\n1    a longer one\n", []string{"B"}},
		{"cut", 12, false, "A    NAME\none  first\n1    a long…\n", []string{"B"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tab := &Table{Heads: []string{"A", "B", "NAME"}, Right: tt.right, Spare: []string{"B"}}
			tab.Add("one", "漢字", "first")
			tab.Add("1", "second", "a longer one")
			var b strings.Builder
			left, err := tab.Write(&b, tt.width)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.left, left); diff != "" {
				t.Errorf("omitted (-want +got):\n%s", diff)
			}
		})
	}
}
