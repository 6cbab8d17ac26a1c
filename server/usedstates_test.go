package server

import (
	"encoding/binary"
	"testing"

	"mcpwire/internal/seal"
)

// TestUsedStates fills the memory of states that may be used once.
func TestUsedStates(t *testing.T) {
	const ttl = 100_000
	var u usedStates
	use := func(i uint64, at int64) error {
		var s seal.Stamp
		binary.BigEndian.PutUint64(s[:], i)
		return u.use(s, at, at+ttl)
	}
	for i := range uint64(maxUsedStates) {
		if err := use(i, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		i    uint64
		at   int64
		want error
	}{
		{0, ttl - 1, errState},
		{maxUsedStates, ttl - 1, errUsedStates},
		{maxUsedStates, ttl, nil}, // the first has expired
		{maxUsedStates + 1, ttl, errUsedStates},
		{1, ttl, errState},
		{maxUsedStates + 1, ttl + 1, nil},
		{maxUsedStates - 1, ttl + maxUsedStates - 2, errState},
	} {
		if err := use(tt.i, tt.at); err != tt.want {
			t.Errorf("state %d after %d ms: %v, want %v", tt.i, tt.at, err, tt.want)
		}
	}
	if err := use(0, 3*ttl); err != nil || len(u.seen) != 1 || len(u.queue) != 1 {
		t.Errorf("%v; %d states are remembered after all have expired", err, len(u.seen))
	}
}
