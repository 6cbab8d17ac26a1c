package sparse

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMap(t *testing.T) {
	var m map[string]int
	Delete(&m, "a")
	if m != nil {
		t.Errorf("got %v after Delete in a nil map, want nil", m)
	}
	Set(&m, "a", 1)
	Set(&m, "b", 2)
	Delete(&m, "a")
	Delete(&m, "c")
	if diff := cmp.Diff(map[string]int{"b": 2}, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if Delete(&m, "b"); m != nil {
		t.Errorf("got %v after the last Delete, want nil", m)
	}
}
