package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/cluster"
)

func acquire(t *testing.T, n *cluster.Node, name string) *cluster.Lease {
	t.Helper()
	l, err := n.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func isLost(l *cluster.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func TestLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := two(t, nil)
		first := acquire(t, a, "job")
		if _, err := b.TryAcquire(t.Context(), "job"); !errors.Is(err, cluster.ErrLeaseHeld) {
			t.Errorf("a lease that is held: %v", err)
		}
		if _, err := a.TryAcquire(t.Context(), "job"); !errors.Is(err, cluster.ErrLeaseHeld) {
			t.Errorf("a lease that the same node holds: %v", err)
		}
		acquire(t, b, "another job")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := b.Acquire(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a lease that is held for an hour: %v", err)
		}
		if !first.Held() || isLost(first) {
			t.Error("the lease is lost without a reason")
		}
		got := make(chan *cluster.Lease)
		go func() {
			l, err := b.Acquire(t.Context(), "job")
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		pass(300 * time.Millisecond)
		began := time.Now()
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
		second := <-got
		if d := time.Since(began); d > 0 {
			t.Errorf("a released lease is taken after %v", d)
		}
		if first.Held() || !isLost(first) || !second.Held() || second.Epoch() <= first.Epoch() {
			t.Errorf("held: %v and %v, epochs %d and %d", first.Held(), second.Held(), first.Epoch(), second.Epoch())
		}
		if err := first.Release(t.Context()); err != nil || !second.Held() {
			t.Errorf("released twice: %v, the other is held: %v", err, second.Held())
		}
		pass(time.Minute)
		if !second.Held() {
			t.Error("the second lease is lost")
		}
	})
}

// TestLeaseUnsure shows that a node has a lease if the write that takes it is carried out and
// fails, or conflicts, and that it then keeps and releases the lease.
func TestLeaseUnsure(t *testing.T) {
	for name, fail := range map[string]func(f *faulty){
		"fails":     func(f *faulty) { f.lossy.Store(true) },
		"conflicts": func(f *faulty) { f.rejects.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				a, b, f := two(t, nil)
				pass(300 * time.Millisecond) // between two beats
				fail(f)
				l, err := b.TryAcquire(t.Context(), "job")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := a.TryAcquire(t.Context(), "job"); !errors.Is(err, cluster.ErrLeaseHeld) {
					t.Errorf("a lease that is held: %v", err)
				}
				pass(10 * time.Second)
				if !l.Held() {
					t.Error("the lease is lost")
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
				next, err := a.TryAcquire(t.Context(), "job")
				if err != nil {
					t.Fatal(err)
				}
				if next.Epoch() <= l.Epoch() {
					t.Errorf("epoch %d follows %d", next.Epoch(), l.Epoch())
				}
				fail(f)
				if _, err := b.TryAcquire(t.Context(), "job"); !errors.Is(err, cluster.ErrLeaseHeld) {
					t.Errorf("a lease that the other node holds: %v", err)
				}
			})
		})
	}
}

// TestLeaseIsLost shows that the holder stops before another node begins, whatever fails.
func TestLeaseIsLost(t *testing.T) {
	for name, fail := range map[string]func(n *cluster.Node, f *faulty){
		"partition": func(_ *cluster.Node, f *faulty) { f.setDown(true) },
		"kill":      func(n *cluster.Node, _ *faulty) { n.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				a, b, f := two(t, nil)
				held := acquire(t, b, "job")
				pass(1700 * time.Millisecond)
				lostAt := make(chan time.Time, 1)
				go func() {
					<-held.Lost()
					lostAt <- time.Now()
				}()
				began := time.Now()
				fail(b, f)
				next := acquire(t, a, "job")
				if d := time.Since(<-lostAt); d < time.Second {
					t.Errorf("the next holder begins %v after the last one stopped", d)
				}
				if d := time.Since(began); d < 3*time.Second || d > 6*time.Second {
					t.Errorf("another node has the lease after %v", d)
				}
				if held.Held() || next.Epoch() <= held.Epoch() {
					t.Errorf("the old one is held: %v, epochs %d and %d", held.Held(), held.Epoch(), next.Epoch())
				}
				f.setDown(false)
				pass(10 * time.Second)
				if !next.Held() || held.Held() {
					t.Error("the old holder has it back")
				}
				if err := held.Release(t.Context()); err != nil || !next.Held() {
					t.Errorf("release of a lost lease: %v", err)
				}
			})
		})
	}
}

// TestLeaseSurvivesOutage shows that a node that could not read for a while does not count beats of
// the holder as missed.
func TestLeaseSurvivesOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := two(t, nil)
		held := acquire(t, a, "job")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		result := make(chan error)
		go func() {
			_, err := b.Acquire(ctx, "job")
			result <- err
		}()
		for range 20 {
			f.setDown(true)
			pass(7 * time.Second)
			f.setDown(false)
			pass(time.Second)
		}
		if err := <-result; !errors.Is(err, context.DeadlineExceeded) || !held.Held() {
			t.Errorf("acquired: %v; held: %v", err, held.Held())
		}
	})
}

// TestLeaseUnsureBeat shows that a beat that fails but was carried out does not lose the lease, and
// that a short outage does not either.
func TestLeaseUnsureBeat(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := two(t, nil)
		held := acquire(t, b, "job")
		f.lossy.Store(true)
		pass(5 * time.Second)
		if f.lossy.Load() || !held.Held() {
			t.Errorf("lost a beat: %v, held: %v", !f.lossy.Load(), held.Held())
		}
		f.setDown(true)
		pass(900 * time.Millisecond)
		f.setDown(false)
		pass(5 * time.Second)
		if !held.Held() {
			t.Error("a short outage costs the lease")
		}
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := a.TryAcquire(t.Context(), "job"); err != nil {
			t.Errorf("after the release: %v", err)
		}
	})
}

// TestLeaveReleases shows that Leave releases the leases at once.
func TestLeaveReleases(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := two(t, nil)
		for i := range 3 {
			acquire(t, b, fmt.Sprint(i))
		}
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := a.TryAcquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.TryAcquire(t.Context(), "x"); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("a lease for a node that left: %v", err)
		}
	})
}

// TestLeaseEpoch shows how a record is protected from a holder that was suspended.
func TestLeaseEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := two(t, nil)
		stored := uint64(0)
		write := func(l *cluster.Lease) bool {
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
			t.Error("the epoch does not keep the old holder out")
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
