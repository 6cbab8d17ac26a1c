package history

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
)

func TestCheck(t *testing.T) {
	lost := errors.New("no response")
	op := func(value string, call, end time.Duration, replaced, rev uint64, err error) operation {
		return operation{call: call, end: end, replaced: replaced, rev: rev, value: value, err: err}
	}
	for _, tt := range []struct {
		name string
		ops  []operation
		seen map[string]uint64
		want string // part of the error
	}{
		{name: "no writes"},
		{name: "one after the other", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 2, 3, 3, 7, nil)}},
		{name: "at once", ops: []operation{op("b", 0, 9, 3, 7, nil), op("a", 0, 9, 0, 3, nil), op("c", 0, 9, 0, 0, cluster.ErrConflict)}},
		{name: "touching", ops: []operation{op("b", 0, 5, 3, 7, nil), op("a", 5, 9, 0, 3, nil)}},
		{name: "a write before its predecessor", ops: []operation{op("b", 0, 4, 3, 7, nil), op("a", 5, 9, 0, 3, nil)},
			want: "that of b at 3, which returned 7, ended before one that precedes it began"},
		{name: "a write before an early one", ops: []operation{op("a", 5, 9, 0, 3, nil), op("b", 0, 9, 3, 7, nil), op("c", 0, 4, 7, 8, nil)},
			want: "that of c at 7, which returned 8, ended before"},
		{name: "two replace one", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 2, 3, 3, 7, nil), op("c", 2, 3, 3, 8, nil)},
			want: "at 3, which returned 8, does not follow the write before"},
		{name: "two create the record", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 2, 3, 0, 7, nil)}, want: "does not follow"},
		{name: "an unknown revision", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 2, 3, 5, 7, nil)}, want: "that of b at 5, which returned 7, does not follow"},
		{name: "a lower revision", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 2, 3, 3, 2, nil)}, want: "does not have a greater revision"},
		{name: "lost and seen", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 2, 3, 3, 0, lost), op("c", 9, 9, 5, 7, nil)}, seen: map[string]uint64{"b": 5}},
		{name: "two lost and seen", ops: []operation{op("a", 1, forever, 0, 0, lost), op("b", 2, forever, 3, 0, lost), op("c", 9, 9, 5, 7, nil)}, seen: map[string]uint64{"a": 3, "b": 5}},
		{name: "lost and seen before it began", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 6, forever, 3, 0, lost), op("c", 4, 5, 5, 7, nil)},
			seen: map[string]uint64{"b": 5}, want: "that of c at 5, which returned 7, ended before"},
		{name: "lost and not seen", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 2, 3, 3, 0, lost), op("c", 9, 9, 3, 7, nil)}},
		{name: "lost, replaced and not seen", ops: []operation{op("a", 0, 1, 0, 3, nil), op("b", 2, 3, 3, 0, lost), op("c", 9, 9, 5, 7, nil)}, want: "does not follow"},
		{name: "a conflict that was carried out", ops: []operation{op("a", 0, 1, 0, 0, cluster.ErrConflict), op("b", 2, 3, 3, 7, nil)}, seen: map[string]uint64{"a": 3}},
		{name: "a conflict that was not", ops: []operation{op("a", 0, 1, 0, 0, cluster.ErrConflict), op("b", 2, 3, 3, 7, nil)}, want: "does not follow"},
		{name: "seen with a revision that it does not exceed", ops: []operation{op("a", 0, 1, 5, 0, lost), op("b", 2, 3, 5, 7, nil)}, seen: map[string]uint64{"a": 5}, want: "does not follow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := History{ops: tt.ops, revs: tt.seen}
			_, _, err := h.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := clustertest.NewMemory().Records(t.Context(), "records", cluster.RecordsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var h History
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { h.Write(t.Context(), i, r, "key", 20) })
		}
		wg.Wait()
		if n, succeeded, err := h.Check(); n != 60 || succeeded != h.Succeeded() || succeeded < 20 || err != nil {
			t.Errorf("%d writes, %d succeeded: %v\n%v", n, succeeded, err, &h)
		}
	})
}
