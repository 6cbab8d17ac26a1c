package clustertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
)

func TestMemory(t *testing.T) {
	clustertest.Run(t, func(*testing.T) (a, b cluster.Backend) {
		m := clustertest.NewMemory()
		return m, m
	})
}

// TestMemoryWatchMisses checks that a watch that does not keep up ends with an error, and that the
// next one has all records.
func TestMemoryWatchMisses(t *testing.T) {
	ctx := t.Context()
	r, err := clustertest.NewMemory().Records(ctx, "a", cluster.RecordsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const many = 5000
	var missed error
	for c, err := range r.Watch(ctx, "") {
		if err != nil {
			missed = err
			break
		}
		if c.Kind != cluster.ChangeSynced {
			t.Fatalf("got change %v of %s", c.Kind, c.Key)
		}
		for i := range many {
			if _, err := r.Put(ctx, fmt.Sprint("k", i), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		// Changes after the gap are not yielded, because others are missing.
	}
	if !errors.Is(missed, cluster.ErrGone) {
		t.Errorf("a watch that missed changes: got %v", missed)
	}
	found := 0
	for c := range r.Watch(ctx, "") {
		if c.Kind == cluster.ChangeSynced {
			break
		}
		found++
	}
	if found != many {
		t.Errorf("the next watch has %d records, want %d", found, many)
	}
}

// TestMemoryLogBytes checks that a log evicts the oldest entries of all keys when it is full.
func TestMemoryLogBytes(t *testing.T) {
	ctx := t.Context()
	l, err := clustertest.NewMemory().Log(ctx, "a", cluster.LogOptions{MaxBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	key := func(i int) cluster.LogKey { return cluster.LogKey{Group: fmt.Sprint("g", i), Name: "n"} }
	data := []byte(strings.Repeat("x", 8<<10))
	for i := range 12 {
		if _, err := l.Append(ctx, key(i), "", data); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		entries, err := l.Read(ctx, key(i), 0, 1)
		if want := i >= 5; err != nil || (len(entries) == 1) != want {
			t.Errorf("entry %d: got %d, %v; want it stored: %v", i, len(entries), err, want)
		}
	}
}

// TestMemoryDedupWindow checks that ids expire after two minutes.
func TestMemoryDedupWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l, err := clustertest.NewMemory().Log(ctx, "a", cluster.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		key := cluster.LogKey{Group: "g", Name: "n"}
		var seqs []uint64
		for _, wait := range []time.Duration{0, 2*time.Minute - 1, 1} {
			<-time.After(wait)
			seq, err := l.Append(ctx, key, "id", nil)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, seq)
		}
		if seqs[0] != seqs[1] || seqs[1] == seqs[2] {
			t.Errorf("the same id got the numbers %v", seqs)
		}
	})
}

// TestMemoryBusIsBounded checks that messages for a subscriber that does not keep up are dropped
// above a limit.
func TestMemoryBusIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := clustertest.NewMemory().Bus()
		hold, got := make(chan struct{}), 0
		stop, err := bus.Subscribe(t.Context(), "a", func([]byte) {
			<-hold
			got++
		})
		if err != nil {
			t.Fatal(err)
		}
		const limit = 4096
		for i := range 3 * limit {
			if i == 1 {
				synctest.Wait() // the first one is being delivered
			}
			if err := bus.Publish(context.Background(), "a", nil); err != nil {
				t.Fatal(err)
			}
		}
		close(hold)
		synctest.Wait()
		stop()
		if got != 1+limit {
			t.Errorf("got %d messages, want %d", got, 1+limit)
		}
	})
}
