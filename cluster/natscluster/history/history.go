// Package history records what happens to a record of a cluster.Backend, and checks that it is
// linearizable.
package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"mcpwire/cluster"
)

const (
	// callTimeout limits a call of a writer.
	callTimeout = time.Second
	// writeInterval is the time between two writes of a writer.
	writeInterval = 50 * time.Millisecond
	// checkTimeout limits Check.
	checkTimeout = 20 * time.Second
	// forever is the end of a write that may be carried out later.
	forever = int64(100 * time.Hour)
)

// A put is an operation on one record.
type put struct {
	rev   uint64
	value string
}

// A putResult is what a put returned.
type putResult struct {
	rev uint64
	err error
}

// A History has the operations on one record. The zero value is ready to use.
type History struct {
	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
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
		select {
		case <-time.After(writeInterval):
		case <-ctx.Done():
		}
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
	in := put{rec.Rev, fmt.Sprint(writer, "/", i)}
	op := porcupine.Operation{ClientId: writer, Input: in, Call: time.Since(h.began).Nanoseconds()}
	rev, err := r.Put(ctx, key, []byte(in.value), in.rev)
	op.Output, op.Return = putResult{rev, err}, time.Since(h.began).Nanoseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.revs[in.value] = rev
	} else if !errors.Is(err, cluster.ErrConflict) {
		op.Return = forever // it may be carried out any time later
		// A client has one operation at a time.
		op.ClientId = 1000 + len(h.ops)
	}
	h.ops = append(h.ops, op)
}

// Succeeded returns the number of writes that have succeeded.
func (h *History) Succeeded() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range h.ops {
		if op.Output.(putResult).err == nil {
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
		in, out := op.Input.(put), op.Output.(putResult)
		fmt.Fprintf(&b, "%v to %v: writer %d puts %s at %d: %d, %v (seen with %d)\n", time.Duration(op.Call), time.Duration(op.Return), op.ClientId, in.value, in.rev, out.rev, out.err, h.revs[in.value])
	}
	return b.String()
}

// Check returns the number of writes and of those that succeeded, and an error unless they are
// linearizable: some order in which each success follows the write whose revision it named. A
// conflict may have been carried out: a leader that has lost the others rejects a write that the
// new one accepts. It counts if somebody has seen its value. No writer may be active.
func (h *History) Check() (writes, succeeded int, err error) {
	var ops []porcupine.Operation
	for i, op := range h.ops {
		switch out := op.Output.(putResult); {
		case out.err == nil:
			succeeded++
		case errors.Is(out.err, cluster.ErrConflict):
			if h.revs[op.Input.(put).value] == 0 {
				continue
			}
			// A client has one operation at a time.
			op.Return, op.ClientId = forever, 1000+i
		}
		ops = append(ops, op)
	}
	unseen := map[string]uint64{}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{uint64(0)} },
		Step: func(state, input, output any) []any {
			rev, in, out := state.(uint64), input.(put), output.(putResult)
			switch {
			case out.err == nil && rev == in.rev:
				return []any{out.rev}
			case out.err == nil:
				return nil
			case rev != in.rev:
				return []any{rev}
			}
			next := h.revs[in.value]
			if next == 0 { // carried out, and nobody saw it
				if unseen[in.value] == 0 {
					unseen[in.value] = uint64(1<<60 + len(unseen))
				}
				next = unseen[in.value]
			}
			return []any{rev, next}
		},
		Equal: func(a, b any) bool { return a == b },
	}
	if got := porcupine.CheckOperationsTimeout(model.ToModel(), ops, checkTimeout); got != porcupine.Ok {
		err = fmt.Errorf("%d writes of a record are not linearizable: %v", len(h.ops), got)
	}
	return len(h.ops), succeeded, err
}
