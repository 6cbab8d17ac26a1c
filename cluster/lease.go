package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpwire/internal/base/coordination"
	"mcpwire/internal/base/wait"
)

const (
	// leaseLost is the time after the last successful beat at which the holder stops.
	leaseLost = 2500 * time.Millisecond
	// maxLeaseMissed is the number of reads, a beat apart, that must find the same record before
	// another node takes the lease. It takes longer than leaseLost.
	maxLeaseMissed = 4
	// leaseTTL removes the records of leases that nobody wants.
	leaseTTL = 24 * time.Hour
)

// A lease is a [coordination.Lease].
type lease struct {
	n       *Node
	records *records
	key     string
	value   leaseRecord
	epoch   uint64
	lost    chan struct{}
	// stop ends the goroutine, which closes ended.
	stop  context.CancelFunc
	ended chan struct{}

	mu sync.Mutex
	// rev is the revision of the record.
	rev uint64
	// beatAt is the time before the last successful write began.
	beatAt time.Time
	isLost bool
}

// leaseRecord is the record of a lease. The record exists only while somebody holds the lease.
type leaseRecord struct {
	Node  string `json:"node"`
	Token string `json:"token"`
	Beat  uint64 `json:"beat"`
}

func (n *Node) leaseRecords(ctx context.Context) (*records, error) {
	return n.records(ctx, "leases", RecordsOptions{TTL: leaseTTL, Durable: true})
}

// TryAcquire implements [coordination.Node].
func (n coordinator) TryAcquire(ctx context.Context, name string) (coordination.Lease, error) {
	r, err := n.leaseRecords(ctx)
	if err != nil {
		return nil, err
	}
	return n.tryAcquire(ctx, r, n.key("lease", name), 0)
}

// Acquire implements [coordination.Node].
func (n coordinator) Acquire(ctx context.Context, name string) (coordination.Lease, error) {
	key := n.key("lease", name)
	var w leaseWait
	for {
		changed, done := n.signals.wait(key)
		l, err := n.tryWaiting(ctx, key, &w)
		if err == nil || !errors.Is(err, coordination.ErrLeaseHeld) && !errors.Is(err, ErrUnavailable) {
			done()
			return l, err
		}
		select {
		case <-changed:
		case <-time.After(beatInterval):
		case <-ctx.Done():
		case <-n.ctx.Done():
		}
		done()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("acquire lease %s: %w", name, context.Cause(ctx))
		case n.ctx.Err() != nil:
			return nil, ErrClosed
		}
	}
}

// A leaseWait is what the reads of a lease's record have found.
type leaseWait struct {
	records *records
	rev     uint64
	missed  int
	// at is the time of the last read that counted.
	at time.Time
}

// tryWaiting takes the lease if nobody has it, or if its holder has missed enough beats. Only
// successful reads count: while the backend is away, the holder cannot beat either.
func (n *Node) tryWaiting(ctx context.Context, key string, w *leaseWait) (_ coordination.Lease, err error) {
	if w.records == nil {
		if w.records, err = n.leaseRecords(ctx); err != nil {
			return nil, err
		}
	}
	rec, err := w.records.peek(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return n.tryAcquire(ctx, w.records, key, 0)
	case err != nil:
		return nil, err
	case rec.Rev != w.rev:
		w.rev, w.missed, w.at = rec.Rev, 0, time.Now()
	case time.Since(w.at) >= beatInterval:
		w.missed, w.at = w.missed+1, time.Now()
	}
	if w.missed < maxLeaseMissed {
		return nil, coordination.ErrLeaseHeld
	}
	return n.tryAcquire(ctx, w.records, key, rec.Rev)
}

// tryAcquire takes the lease if its record has the given revision: 0 if nobody holds it.
func (n *Node) tryAcquire(ctx context.Context, r *records, key string, rev uint64) (coordination.Lease, error) {
	if n.ctx.Err() != nil {
		return nil, ErrClosed
	}
	l := &lease{n: n, records: r, key: key, lost: make(chan struct{}), ended: make(chan struct{}), beatAt: time.Now()}
	l.value = leaseRecord{Node: n.id, Token: rand.Text()}
	value, err := encode(&l.value)
	if err != nil {
		return nil, err
	}
	if l.epoch, err = r.Put(ctx, key, value, rev); err != nil {
		if l.epoch, err = l.findAcquired(ctx, err); err != nil {
			return nil, err
		}
	}
	l.rev = l.epoch
	if !n.keepLease(l) {
		// If this fails, others take the lease as from a node that was killed.
		_ = r.Delete(ctx, key, l.rev)
		return nil, ErrClosed
	}
	return l, nil
}

// keepLease renews a lease from now on, unless the node is closed.
func (n *Node) keepLease(l *lease) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.leases[l] = struct{}{}
	ctx, stop := context.WithCancel(n.ctx)
	l.stop = stop
	n.wg.Go(func() { l.beat(ctx) })
	return true
}

// findAcquired returns the epoch if the write that takes the lease was carried out, although it
// failed or conflicted. If nobody knows that, the lease has no beat, and others take it.
func (l *lease) findAcquired(ctx context.Context, failed error) (epoch uint64, err error) {
	if !errors.Is(failed, ErrConflict) && !errors.Is(failed, ErrUnavailable) {
		return 0, failed
	}
	rec, err := l.records.Get(ctx, l.key)
	switch {
	case err == nil && l.wrote(rec):
		return rec.Rev, nil
	case errors.Is(failed, ErrConflict):
		return 0, fmt.Errorf("acquire a lease: %w", coordination.ErrLeaseHeld)
	}
	return 0, failed
}

// LeaseHolder implements [coordination.Node].
func (n coordinator) LeaseHolder(ctx context.Context, name string) (node string, err error) {
	r, err := n.leaseRecords(ctx)
	if err != nil {
		return "", err
	}
	rec, err := r.Get(ctx, n.key("lease", name))
	if err != nil {
		return "", err
	}
	var held leaseRecord
	if err := decode(rec.Value, &held); err != nil {
		return "", err
	}
	return held.Node, nil
}

// Epoch implements [coordination.Lease].
func (l *lease) Epoch() uint64 { return l.epoch }

// Lost implements [coordination.Lease].
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Held implements [coordination.Lease].
func (l *lease) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.isLost && time.Since(l.beatAt) < leaseLost
}

// Release implements [coordination.Lease].
func (l *lease) Release(ctx context.Context) error {
	l.stop()
	<-l.ended
	l.mu.Lock()
	rev := l.rev
	l.mu.Unlock()
	if rev == 0 {
		return nil
	}
	err := l.records.Delete(ctx, l.key, rev)
	if errors.Is(err, ErrConflict) { // lost, or an unsure beat was carried out
		err = l.deleteOwn(ctx)
	}
	if err != nil {
		return fmt.Errorf("release a lease: %w", err)
	}
	l.mu.Lock()
	l.rev = 0
	l.mu.Unlock()
	l.n.signals.send(ctx, l.key)
	return nil
}

// deleteOwn deletes the record if this lease wrote it.
func (l *lease) deleteOwn(ctx context.Context) error {
	rec, err := l.records.Get(ctx, l.key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil && l.wrote(rec) {
		err = l.records.Delete(ctx, l.key, rec.Rev)
	}
	return err
}

func (l *lease) wrote(rec Record) bool {
	var other leaseRecord
	return decode(rec.Value, &other) == nil && other.Token == l.value.Token
}

// beat writes the record every second until the lease is lost or released.
func (l *lease) beat(ctx context.Context) {
	defer close(l.ended)
	defer l.lose()
	for wait.Sleep(ctx, beatInterval) && l.Held() {
		l.value.Beat++
		if value, err := encode(&l.value); err != nil || !l.write(ctx, value) {
			return
		}
	}
}

// write writes the record, until the lease is lost. It returns false if another node has the lease.
func (l *lease) write(ctx context.Context, value []byte) bool {
	ctx, cancel := context.WithDeadlineCause(ctx, l.beatAt.Add(leaseLost), errCallTimeout)
	defer cancel()
	for {
		began := time.Now()
		rev, err := l.tryWrite(ctx, value)
		switch {
		case err == nil:
			l.mu.Lock()
			l.rev, l.beatAt = rev, began
			l.mu.Unlock()
			return true
		case errors.Is(err, coordination.ErrLeaseHeld), !wait.Sleep(ctx, minBackoff):
			return false
		}
	}
}

// tryWrite writes the record and returns its revision. The error is coordination.ErrLeaseHeld if
// another node has the lease.
func (l *lease) tryWrite(ctx context.Context, value []byte) (rev uint64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxBeat, errCallTimeout)
	defer cancel()
	rev, err = l.records.Put(ctx, l.key, value, l.rev)
	if !errors.Is(err, ErrConflict) {
		return rev, err
	}
	rec, err := l.records.Get(ctx, l.key)
	switch {
	case err == nil && l.wrote(rec): // an earlier write was carried out; this one follows it
		return l.records.Put(ctx, l.key, value, rec.Rev)
	case err == nil || errors.Is(err, ErrNotFound):
		return 0, coordination.ErrLeaseHeld
	}
	return 0, err
}

// lose ends the lease.
func (l *lease) lose() {
	l.n.mu.Lock()
	delete(l.n.leases, l)
	l.n.mu.Unlock()
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isLost = true
	close(l.lost)
}
