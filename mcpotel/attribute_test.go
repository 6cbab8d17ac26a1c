package mcpotel

import (
	"fmt"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	var n nameSet
	long := strings.Repeat("x", maxNameBytes+1)
	for i, tt := range []struct {
		name         string
		exists, want bool
	}{
		{"a", false, false},
		{"a", true, true},
		{"a", false, true},
		{"b", false, false},
		{long[1:], true, true},
		{long, true, false},
		{long, false, false},
	} {
		if got := n.allow(tt.name, tt.exists); got != tt.want {
			t.Errorf("%d: admit(%.9q, %t) = %t", i, tt.name, tt.exists, got)
		}
	}
	for i := range 2 * maxNames {
		n.allow(fmt.Sprint(i), true)
	}
	if len(n.known) != maxNames {
		t.Errorf("%d names are known, want %d", len(n.known), maxNames)
	}
	if !n.allow("a", false) || n.allow("late", true) {
		t.Error("those that came first were not kept")
	}
}
