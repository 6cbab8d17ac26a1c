package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/internal/base/coordination"
)

func acquire(t *testing.T, n *cluster.Node, name string) coordination.Lease {
	t.Helper()
	l, err := coordination.Of(n).Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func isLost(l coordination.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func TestLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := twoNodes(t, nil)
		first := acquire(t, a, "job")
		if _, err := coordination.Of(b).TryAcquire(t.Context(), "job"); !errors.Is(err, coordination.ErrLeaseHeld) {
			t.Errorf("a lease that is held: %v", err)
		}
		if _, err := coordination.Of(a).TryAcquire(t.Context(), "job"); !errors.Is(err, coordination.ErrLeaseHeld) {
			t.Errorf("a lease that the same node holds: %v", err)
		}
		acquire(t, b, "another job")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := coordination.Of(b).Acquire(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a lease that is held for an hour: %v", err)
		}
		if !first.Held() || isLost(first) {
			t.Error("the lease is lost without a reason")
		}
		got := make(chan coordination.Lease)
		go func() {
			l, err := coordination.Of(b).Acquire(t.Context(), "job")
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		advance(300 * time.Millisecond)
		began := time.Now()
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
		second := <-got
		if d := time.Since(began); d > 0 {
			t.Errorf("acquired a released lease after %v", d)
		}
		if first.Held() || !isLost(first) || !second.Held() || second.Epoch() <= first.Epoch() {
			t.Errorf("held: %v and %v, epochs %d and %d", first.Held(), second.Held(), first.Epoch(), second.Epoch())
		}
		if err := first.Release(t.Context()); err != nil || !second.Held() {
			t.Errorf("second release: %v, second lease held: %v", err, second.Held())
		}
		advance(time.Minute)
		if !second.Held() {
			t.Error("the second lease is lost")
		}
	})
}

// TestLeaseUncertainWrite checks that a node has a lease if the write that acquires it is carried
// out but returns an error, and that the node then keeps and releases the lease.
func TestLeaseUncertainWrite(t *testing.T) {
	for name, fail := range map[string]func(f *faultyBackend){
		"fails":     func(f *faultyBackend) { f.lossy.Store(true) },
		"conflicts": func(f *faultyBackend) { f.rejects.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				a, b, f := twoNodes(t, nil)
				advance(300 * time.Millisecond) // between two heartbeats
				fail(f)
				l, err := coordination.Of(b).TryAcquire(t.Context(), "job")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := coordination.Of(a).TryAcquire(t.Context(), "job"); !errors.Is(err, coordination.ErrLeaseHeld) {
					t.Errorf("a lease that is held: %v", err)
				}
				advance(10 * time.Second)
				if !l.Held() {
					t.Error("the lease is lost")
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
				next, err := coordination.Of(a).TryAcquire(t.Context(), "job")
				if err != nil {
					t.Fatal(err)
				}
				if next.Epoch() <= l.Epoch() {
					t.Errorf("epoch %d follows %d", next.Epoch(), l.Epoch())
				}
				fail(f)
				if _, err := coordination.Of(b).TryAcquire(t.Context(), "job"); !errors.Is(err, coordination.ErrLeaseHeld) {
					t.Errorf("a lease that the other node holds: %v", err)
				}
			})
		})
	}
}

// TestLeaseIsLost checks that the holder loses the lease before another node acquires it.
func TestLeaseIsLost(t *testing.T) {
	for name, fail := range map[string]func(n *cluster.Node, f *faultyBackend){
		"partition": func(_ *cluster.Node, f *faultyBackend) { f.setDown(true) },
		"kill":      func(n *cluster.Node, _ *faultyBackend) { n.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				a, b, f := twoNodes(t, nil)
				held := acquire(t, b, "job")
				advance(1700 * time.Millisecond)
				lostAt := make(chan time.Time, 1)
				go func() {
					<-held.Lost()
					lostAt <- time.Now()
				}()
				began := time.Now()
				fail(b, f)
				next := acquire(t, a, "job")
				if d := time.Since(<-lostAt); d < time.Second {
					t.Errorf("acquired the lease %v after its loss", d)
				}
				if d := time.Since(began); d < 3*time.Second || d > 6*time.Second {
					t.Errorf("another node acquired the lease after %v", d)
				}
				if held.Held() || next.Epoch() <= held.Epoch() {
					t.Errorf("old lease held: %v, epochs %d and %d", held.Held(), held.Epoch(), next.Epoch())
				}
				f.setDown(false)
				advance(10 * time.Second)
				if !next.Held() || held.Held() {
					t.Error("the old lease is held again")
				}
				if err := held.Release(t.Context()); err != nil || !next.Held() {
					t.Errorf("release of a lost lease: %v", err)
				}
			})
		})
	}
}

// TestLeaseSurvivesOutage checks that a node that could not read during an outage does not count
// heartbeats of the holder as missed.
func TestLeaseSurvivesOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		held := acquire(t, a, "job")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		result := make(chan error)
		go func() {
			_, err := coordination.Of(b).Acquire(ctx, "job")
			result <- err
		}()
		for range 20 {
			f.setDown(true)
			advance(7 * time.Second)
			f.setDown(false)
			advance(time.Second)
		}
		if err := <-result; !errors.Is(err, context.DeadlineExceeded) || !held.Held() {
			t.Errorf("acquired: %v; held: %v", err, held.Held())
		}
	})
}

// TestLeaseUncertainBeat checks that the lease is not lost by a heartbeat that was carried out but
// returned an error, nor by a short outage.
func TestLeaseUncertainBeat(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		held := acquire(t, b, "job")
		f.lossy.Store(true)
		advance(5 * time.Second)
		if f.lossy.Load() || !held.Held() {
			t.Errorf("a heartbeat failed: %v, held: %v", !f.lossy.Load(), held.Held())
		}
		f.setDown(true)
		advance(900 * time.Millisecond)
		f.setDown(false)
		advance(5 * time.Second)
		if !held.Held() {
			t.Error("the lease is lost after a short outage")
		}
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := coordination.Of(a).TryAcquire(t.Context(), "job"); err != nil {
			t.Errorf("after the release: %v", err)
		}
	})
}

// TestLeaveReleases checks that Leave releases the leases at once.
func TestLeaveReleases(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := twoNodes(t, nil)
		for i := range 3 {
			acquire(t, b, fmt.Sprint(i))
		}
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := coordination.Of(a).TryAcquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		}
		if _, err := coordination.Of(b).TryAcquire(t.Context(), "x"); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("a lease for a node that left: %v", err)
		}
	})
}

// A closingBackend closes a node when it has stored the record of a lease.
type closingBackend struct {
	cluster.Backend
	node *cluster.Node
}

func (b *closingBackend) Records(ctx context.Context, name string, o cluster.RecordsOptions) (cluster.Records, error) {
	r, err := b.Backend.Records(ctx, name, o)
	if name == "leases" {
		r = &closingRecords{r, b}
	}
	return r, err
}

type closingRecords struct {
	cluster.Records
	b *closingBackend
}

func (r *closingRecords) Put(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	rev, err := r.Records.Put(ctx, key, value, rev)
	r.b.node.Close()
	return rev, err
}

// TestLeaseOfClosedNode checks that a node that is closed keeps no lease, also if it is closed while
// it acquires one.
func TestLeaseOfClosedNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		memory := clustertest.NewMemory()
		a, closing := join(t, memory, nil), &closingBackend{Backend: memory}
		closing.node = join(t, closing, nil)
		for _, when := range []string{"while it acquires the lease", "before"} {
			if _, err := coordination.Of(closing.node).TryAcquire(t.Context(), "job"); !errors.Is(err, cluster.ErrClosed) {
				t.Errorf("closed %s: got error %v, want %v", when, err, cluster.ErrClosed)
			}
			l, err := coordination.Of(a).TryAcquire(t.Context(), "job")
			if err != nil {
				t.Fatalf("closed %s: %v", when, err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLeaseEpoch checks that the epoch protects a record from a holder that was suspended.
func TestLeaseEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		stored := uint64(0)
		write := func(l coordination.Lease) bool {
			if l.Epoch() < stored {
				return false
			}
			stored = l.Epoch()
			return true
		}
		old := acquire(t, b, "job")
		if !write(old) {
			t.Error("the first holder cannot write")
		}
		f.setDown(true)
		next := acquire(t, a, "job")
		if !write(next) || write(old) || !write(next) {
			t.Error("the old holder can write in spite of the epoch")
		}
		f.setDown(false)
		for range 3 { // epochs grow also when the record was deleted
			if err := next.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := next.Epoch()
			if next = acquire(t, a, "job"); next.Epoch() <= before {
				t.Errorf("epoch %d is followed by %d", before, next.Epoch())
			}
		}
		synctest.Wait()
	})
}

// TestLeaseTaken checks that a holder whose record another node has taken, or that is gone, loses
// the lease with its next beat. A process that was suspended notices so when it wakes up.
func TestLeaseTaken(t *testing.T) {
	for name, take := range map[string]func(r cluster.Records, key string, rev uint64) error{
		"taken": func(r cluster.Records, key string, rev uint64) error {
			_, err := r.Put(context.Background(), key, []byte("\x01"+`{"node":"other","token":"other","beat":1}`), rev)
			return err
		},
		"gone": func(r cluster.Records, key string, rev uint64) error {
			return r.Delete(context.Background(), key, rev)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				shared := clustertest.NewMemory()
				l := acquire(t, join(t, shared, nil), "job")
				r, err := shared.Records(t.Context(), "leases", cluster.RecordsOptions{TTL: 24 * time.Hour, Durable: true})
				if err != nil {
					t.Fatal(err)
				}
				advance(100 * time.Millisecond)
				for c, err := range r.Watch(t.Context(), "") {
					if err == nil {
						err = take(r, c.Key, c.Rev)
					}
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				if isLost(l) {
					t.Error("the lease is lost before a beat")
				}
				advance(time.Second)
				if !isLost(l) || l.Held() {
					t.Error("the lease is held after a beat")
				}
			})
		})
	}
}
