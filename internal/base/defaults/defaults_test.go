package defaults

import "testing"

func TestIfNotPositive(t *testing.T) {
	for v, want := range map[int]int{-1: 5, 0: 5, 1: 1} {
		got := v
		if IfNotPositive(&got, 5); got != want {
			t.Errorf("%d became %d, want %d", v, got, want)
		}
	}
}
