package server

import (
	"encoding/binary"
	"fmt"
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
		return u.use(fmt.Sprint(i%16), s, at, at+ttl)
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
		{maxUsedStates, ttl - 1, errTooManyCallerStates},
		{maxUsedStates, ttl, nil}, // the first has expired
		{maxUsedStates + 1, ttl, errTooManyCallerStates},
		{1, ttl, errState},
		{maxUsedStates + 1, ttl + 1, nil},
		{maxUsedStates - 1, ttl + maxUsedStates - 2, errState},
	} {
		if err := use(tt.i, tt.at); err != tt.want {
			t.Errorf("state %d after %d ms: %v, want %v", tt.i, tt.at, err, tt.want)
		}
	}
	if err := use(0, 3*ttl); err != nil || len(u.seen) != 1 || len(u.queue) != 1 || len(u.byCaller) != 1 {
		t.Errorf("%v; %d states are remembered after all have expired", err, len(u.seen))
	}
}

// TestUsedStatesOfCaller: who has used too many is refused, and nobody else is, as long as there
// are places at all.
func TestUsedStatesOfCaller(t *testing.T) {
	const ttl = 100_000
	var u usedStates
	n := uint64(0)
	use := func(caller string, at int64) error {
		var s seal.Stamp
		n++
		binary.BigEndian.PutUint64(s[:], n)
		return u.use(caller, s, at, at+ttl)
	}
	for _, greedy := range []string{"greedy", "too"} {
		for range maxUsedStatesPerCaller {
			if err := use(greedy, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if err := use(greedy, 1); err != errTooManyCallerStates {
				t.Errorf("%s: %v", greedy, err)
			}
		}
	}
	if err := use("modest", 1); err != nil {
		t.Errorf("modest: %v", err)
	}
	for i := range maxUsedStates - 2*maxUsedStatesPerCaller - 1 {
		if err := use(fmt.Sprint(i), 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := use("late", 3); err != errTooManyStates {
		t.Errorf("late: %v", err)
	}
	if err := use("greedy", ttl); err != nil {
		t.Errorf("greedy, after its states have expired: %v", err)
	}
	if n := len(u.queue); n != len(u.seen) || n > maxUsedStates {
		t.Errorf("%d states, %d in the queue", len(u.seen), n)
	}
}

// TestCallerID: whose states are counted together.
func TestCallerID(t *testing.T) {
	srv := New("s", "1", &Options{SingleUseState: true})
	ids := make(map[string]bool)
	on := func(b *identity, s *session) string {
		id := (&Call{session: s, sessionIdentity: b}).callerID()
		ids[id] = true
		return id
	}
	one, two := new(session), new(session)
	address := srv.WithIdentity(t.Context(), "", "192.0.2.1", nil, nil).Value(identityKey{}).(*identity)
	if on(&identity{principal: &Principal{ID: "p"}}, one) != on(&identity{principal: &Principal{ID: "p"}}, two) {
		t.Error("one principal is two callers")
	}
	if on(address, one) != on(address, two) {
		t.Error("one address is two callers")
	}
	on(anonymousIdentity, one)
	on(anonymousIdentity, two)
	if len(ids) != 4 {
		t.Errorf("%d callers, want a principal, an address and two connections: %v", len(ids), ids)
	}
}
