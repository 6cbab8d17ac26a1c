package plural

import "testing"

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		n    int
		noun string
		want string
	}{
		{0, "item", "0 items"},
		{1, "item", "1 item"},
		{2, "item", "2 items"},
		{-1, "item", "-1 items"},
		{1, "property", "1 property"},
		{2, "additional property", "2 additional properties"},
		{2, "key", "2 keys"},
		{2, "y", "2 ys"},
	} {
		if got := Of(tt.n, tt.noun); got != tt.want {
			t.Errorf("Of(%d, %q) = %q, want %q", tt.n, tt.noun, got, tt.want)
		}
	}
}
