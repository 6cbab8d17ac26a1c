package streamable

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A caller gets its share, and what is left when it has it is for others.
func TestJudge(t *testing.T) {
	const perCaller, max = 512, 64
	for _, tt := range []struct {
		name        string
		n, inFlight int64
		max         int64
		want        decision
	}{
		{"first of all", 1, 1, max, admitted},
		{"alone, below its share", 43, 43, max, admitted},
		{"alone, over its share", 44, 44, max, rateLimited},
		{"newcomer beside it", 1, 44, max, admitted},
		{"second of the newcomer", 2, 45, max, admitted},
		{"newcomer, last place", 1, 64, max, admitted},
		{"nothing left", 1, 65, max, overloaded},
		{"over the limit by caller", 513, 600, 4096, rateLimited},
		{"over both", 513, 5000, 4096, rateLimited},
		{"one place", 1, 1, 1, admitted},
		{"one place, second", 2, 2, 1, overloaded},
	} {
		if got := decide(tt.n, perCaller, tt.inFlight, tt.max); got != tt.want {
			t.Errorf("%s: judge(%d of %d, %d of %d) = %d, want %d", tt.name, tt.n, perCaller, tt.inFlight, tt.max, got, tt.want)
		}
	}
}

// However many callers want everything, they get equal shares, and somebody else gets in.
func TestShares(t *testing.T) {
	const places = 4096
	for _, hogs := range []int{1, 2, 10, 100, 800} {
		inFlight, got := int64(0), make([]int64, hogs)
		for again := true; again; {
			again = false
			for i := range got {
				if decide(got[i]+1, places, inFlight+1, places) == admitted {
					got[i]++
					inFlight++
					again = true
				}
			}
		}
		least, most := got[0], got[0]
		for _, n := range got {
			least, most = min(least, n), max(most, n)
		}
		if most-least > 1 || decide(1, places, inFlight+1, places) != admitted {
			t.Errorf("%d hogs have %d to %d in flight, and %d are free", hogs, least, most, places-inFlight)
		}
	}
}

// The table counts what enters and leaves, forgets callers that have nothing in flight, and lists
// what is pending.
func TestCallerTable(t *testing.T) {
	var table callerTable
	table.init()
	state := func() string {
		active, callers, pending := 0, 0, len(table.markAborted())
		for i := range table.shards {
			for _, c := range table.shards[i].byID {
				callers++
				active += c.active
			}
		}
		return fmt.Sprintln(callers, "callers", active, "active", pending, "pending")
	}
	var got []string
	entries := make([]struct {
		p admission
		c *caller
	}, 6)
	x := new(postRequest)
	for i := range entries {
		e := &entries[i]
		var n int64
		e.c, n = table.acquire(fmt.Sprint("caller ", i%2), &e.p, x)
		got = append(got, fmt.Sprint(n))
	}
	got = append(got, state())
	entries[0].c.add(-1) // it becomes a stream
	got = append(got, state())
	for _, i := range []int{3, 5, 1} { // the middle, the first and the last of caller 1
		got = append(got, fmt.Sprint(entries[i].c.release(&entries[i].p)), state())
	}
	for _, i := range []int{4, 2} {
		entries[i].c.unlist(&entries[i].p)
		entries[i].c.release(nil)
	}
	got = append(got, state())
	entries[0].c.add(1)
	entries[0].c.release(&entries[0].p)
	got = append(got, state())
	want := []string{
		"1", "1", "2", "2", "3", "3", "2 callers 6 active 6 pending\n", "2 callers 5 active 6 pending\n",
		"true", "2 callers 4 active 5 pending\n", "true", "2 callers 3 active 4 pending\n", "true", "1 callers 2 active 3 pending\n",
		"1 callers 0 active 1 pending\n", "0 callers 0 active 0 pending\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
