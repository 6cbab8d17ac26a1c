//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// witnesses ask all nodes, during a fault, for what others were told is there.
type witnesses struct {
	l *load
	// tasks counts the answers for tasks, replays those for streams: whole ones, and those that
	// ended with an error, or were refused.
	tasks, whole, failed, refused atomic.Int64
}

const (
	// askTimeout limits a question to a node, which may be cut off.
	askTimeout = 5 * time.Second
	// replayers is the number of clients that read streams again.
	replayers = 4
)

// start starts the clients, which end with the load.
func (w *witnesses) start() {
	w.l.wg.Go(func() { w.repeat(w.askTasks) })
	for i := range replayers {
		rnd := rand.New(rand.NewPCG(w.l.seed, uint64(200+i)))
		w.l.wg.Go(func() { w.repeat(func(ctx context.Context) { w.replay(ctx, rnd) }) })
	}
}

func (w *witnesses) repeat(ask func(ctx context.Context)) {
	for w.l.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(w.l.ctx, askTimeout)
		ask(ctx)
		cancel()
		_ = sleep(w.l.ctx, pollInterval)
	}
}

// askTasks asks all nodes for the last tasks. None may say that it knows no such task.
func (w *witnesses) askTasks(ctx context.Context) {
	w.l.mu.Lock()
	tasks := slices.Clone(w.l.tasks[max(0, len(w.l.tasks)-4):])
	w.l.mu.Unlock()
	var wg sync.WaitGroup
	for _, t := range tasks {
		for _, n := range w.l.b.nodes {
			wg.Go(func() {
				params := fmt.Sprintf(`{"taskId":%q}`, t.id)
				var err error
				if t.session == nil {
					_, err = callModern(ctx, newHTTPClient(), n.url(), "tasks/get", t.id, params)
				} else {
					var st *stream
					if st, err = t.session.call(ctx, n.url(), "tasks/get", params, 0); err == nil && st.response.Error != nil {
						err = st.response.Error
					}
				}
				switch {
				case err == nil:
					w.tasks.Add(1)
				case strings.Contains(err.Error(), "unknown task"):
					w.l.led.violation("task %s, node %s: %v", t.id, n.name, err)
				}
			})
		}
	}
	wg.Wait()
}

// replay reads a stream from its first event, once. It must not end without a response, unless the
// node asks the client to come back, or ends.
func (w *witnesses) replay(ctx context.Context, rnd *rand.Rand) {
	w.l.mu.Lock()
	streams := w.l.streams[max(0, len(w.l.streams)-maxVerified):]
	var seen streamSeen
	if len(streams) > 0 {
		seen = streams[rnd.IntN(len(streams))]
	}
	w.l.mu.Unlock()
	want := seen.events
	if len(want) < 2 || slices.ContainsFunc(want, func(e event) bool { return e.id == "" }) {
		return
	}
	n := w.l.b.nodes[rnd.IntN(nodeCount)]
	st := &stream{id: seen.requestID(), last: want[0].id}
	response, err := seen.session.do(ctx, http.MethodGet, n.url(), "", st.last)
	if err == nil {
		err = st.read(response, 0)
	}
	_, refused := errors.AsType[*statusError](err)
	switch {
	case err == nil && slices.Equal(st.events, want[1:]):
		w.whole.Add(1)
	case err == nil && st.response.Error != nil && slices.Equal(st.events[:len(st.events)-1], want[1:len(st.events)]):
		w.failed.Add(1)
	case err == nil:
		w.l.led.violation("a stream at node %s has the events %v, the client got %v", n.name, st.events, want[1:])
	case refused:
		w.refused.Add(1)
	case err == io.EOF && len(st.events) > 0 && st.retry == 0:
		w.l.led.violation("a stream at node %s ends after %d of %d events", n.name, len(st.events), len(want)-1)
	}
}

func (w *witnesses) String() string {
	return fmt.Sprintf("%d answers for tasks during the fault; streams read again: %d whole, %d ended with an error, %d refused", w.tasks.Load(), w.whole.Load(), w.failed.Load(), w.refused.Load())
}

func (r *result) victim(round int) int { return (int(r.opts.seed) + round) % nodeCount }

// oneWay drops what a node sends to the others, which still reach it.
func oneWay(ctx context.Context, r *result) error {
	return r.fault(ctx, r.pick(20*time.Second, 8*time.Second), r.rounds(2*nodeCount),
		func(b *testbed, round int) error {
			one := r.victim(round)
			for i := range nodeCount {
				if from, to := one, i; i != one {
					if round/nodeCount%2 == 1 {
						from, to = i, one
					}
					b.network.drop(from, to)
				}
			}
			return nil
		},
		func(b *testbed, _ int) error { b.network.split(); return nil })
}

// replay cuts nodes off and replaces them, in turn, while streams are read again.
func replay(ctx context.Context, r *result) error {
	return r.fault(ctx, 8*time.Second, r.rounds(2*nodeCount),
		func(b *testbed, round int) error {
			one := r.victim(round)
			b.network.split([]int{one}, []int{(one + 1) % nodeCount, (one + 2) % nodeCount})
			return nil
		},
		func(b *testbed, _ int) error {
			b.network.split()
			for _, n := range b.nodes {
				_ = n.stop() // it fails if a call was cut off, which may have waited for the others
				if err := n.start(); err != nil {
					return err
				}
				if err := n.wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
}

// fullDisk fills the disk of a node for some seconds.
func fullDisk(ctx context.Context, r *result) error {
	for i := range nodeCount {
		dir := filepath.Join(r.dir, fmt.Sprintf("n%d", i+1))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=200m"); err != nil {
			r.figure("not run: only root can mount a disk: %v", err)
			return nil
		}
		defer syscall.Unmount(dir, syscall.MNT_DETACH)
	}
	filler := func(b *testbed, round int) string {
		return filepath.Join(r.dir, b.nodes[r.victim(round)].name, "filler")
	}
	readiness := func(b *testbed, round int) string {
		response, err := http.Get("http://" + b.nodes[r.victim(round)].admin + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return string(text)
	}
	return r.fault(ctx, 8*time.Second, r.rounds(nodeCount),
		func(b *testbed, round int) error {
			if err := os.WriteFile(filler(b, round), make([]byte, 256<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
				return fmt.Errorf("the disk is not full: %w", err)
			}
			return nil
		},
		func(b *testbed, round int) error {
			if text := readiness(b, round); !strings.Contains(text, "no space left") {
				r.led.violation("a node whose disk is full says %q", text)
			}
			if err := os.Remove(filler(b, round)); err != nil {
				return err
			}
			began := time.Now()
			for readiness(b, round) != "ok\n" && time.Since(began) < time.Minute {
				if err := sleep(ctx, pollInterval); err != nil {
					return err
				}
			}
			r.bar("stores again after", time.Since(began), 10*time.Second)
			return nil
		})
}
