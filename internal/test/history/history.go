// Package history records what happens to a record of a cluster.Backend, and checks that it is
// linearizable.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/cluster"
	"mcpwire/internal/base/wait"
)

const (
	// callTimeout limits a call of a writer.
	callTimeout = time.Second
	// writeInterval is the time between two writes of a writer.
	writeInterval = 50 * time.Millisecond
	// forever is the end of a write that may be carried out later.
	forever = 100 * time.Hour
)

// An operation is a write of a record, with its times since the beginning.
type operation struct {
	writer    int
	call, end time.Duration
	// replaced is the revision that the write replaces, and rev its own if err is nil.
	replaced, rev uint64
	value         string
	err           error
}

// A History has the operations on one record. The zero value is ready to use.
type History struct {
	mu    sync.Mutex
	began time.Time
	ops   []operation
	// revs has the revision of each value that somebody has seen.
	revs map[string]uint64
}

// Write changes the record up to max times, until ctx ends. Each of several writers has another
// number.
func (h *History) Write(ctx context.Context, writer int, r cluster.Records, key string, max int) {
	h.mu.Lock()
	if h.revs == nil {
		h.began, h.revs = time.Now(), make(map[string]uint64)
	}
	h.mu.Unlock()
	for i := 0; ctx.Err() == nil && i < max; i++ {
		h.write(ctx, writer, i, r, key)
		wait.Sleep(ctx, writeInterval)
	}
}

func (h *History) write(ctx context.Context, writer, i int, r cluster.Records, key string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rec, err := r.Get(ctx, key)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return
	}
	if err == nil {
		h.mu.Lock()
		h.revs[string(rec.Value)] = rec.Rev
		h.mu.Unlock()
	}
	op := operation{writer: writer, call: time.Since(h.began), replaced: rec.Rev, value: fmt.Sprint(writer, "/", i)}
	op.rev, op.err = r.Put(ctx, key, []byte(op.value), op.replaced)
	op.end = time.Since(h.began)
	h.mu.Lock()
	defer h.mu.Unlock()
	if op.err == nil {
		h.revs[op.value] = op.rev
	} else if !errors.Is(op.err, cluster.ErrConflict) {
		op.end = forever // it may be carried out any time later
	}
	h.ops = append(h.ops, op)
}

// Succeeded returns the number of writes that have succeeded.
func (h *History) Succeeded() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range h.ops {
		if op.err == nil {
			n++
		}
	}
	return n
}

// String returns the operations, in the order of their ends, with the revision that each value had.
func (h *History) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, op := range h.ops {
		fmt.Fprintf(&b, "%v to %v: writer %d puts %s at %d: %d, %v (seen with %d)\n", op.call, op.end, op.writer, op.value, op.replaced, op.rev, op.err, h.revs[op.value])
	}
	return b.String()
}

// Check returns the number of writes and of those that succeeded, and an error unless they are
// linearizable: some order in which each success follows the write whose revision it named, and no
// write follows one that began after its end. A write without a known result may be part of that
// order if somebody has seen its value. So may a conflict: a leader that has lost the others
// rejects a write that the new one accepts. No writer may be active.
//
// Revisions ascend, and a success names the one that it replaces. So there is only one possible
// order, and Check need not search for it.
func (h *History) Check() (writes, succeeded int, err error) {
	var successes []operation
	seen := map[uint64]operation{} // by revision
	for _, op := range h.ops {
		if op.err == nil {
			successes = append(successes, op)
		} else if op.rev = h.revs[op.value]; op.rev != 0 {
			op.end = forever
			seen[op.rev] = op
		}
	}
	slices.SortFunc(successes, func(a, b operation) int { return cmp.Compare(a.replaced, b.replaced) })
	var rev uint64       // after the writes so far
	var at time.Duration // the first time at which they can all have been carried out
	for _, op := range successes {
		order := []operation{op} // back to rev
		for order[0].replaced != rev {
			before, ok := seen[order[0].replaced]
			if !ok || before.replaced >= before.rev {
				return len(h.ops), len(successes), h.violation(op, "does not follow the write before")
			}
			order = slices.Insert(order, 0, before)
		}
		for _, op := range order {
			if at = max(at, op.call); at > op.end {
				return len(h.ops), len(successes), h.violation(op, "ended before one that precedes it began")
			}
		}
		if op.rev <= op.replaced {
			return len(h.ops), len(successes), h.violation(op, "does not have a greater revision")
		}
		rev = op.rev
	}
	return len(h.ops), len(successes), nil
}

func (h *History) violation(op operation, reason string) error {
	return fmt.Errorf("%d writes of a record are not linearizable: that of %s at %d, which returned %d, %s", len(h.ops), op.value, op.replaced, op.rev, reason)
}
