// Package wait has waits that a context or a timeout bounds, the backoff between attempts, and
// groups of goroutines to wait for.
package wait

import (
	"context"
	"sync"
	"time"
)

// Sleep waits for d. It reports false, at once, if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Closed waits until done is closed, at most for d, and reports whether it was. A channel that is
// closed already counts even if d is not positive.
func Closed(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	if d <= 0 {
		return false
	}
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// Signal adds an element to c if there is room. It never blocks.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Timeout calls wait, such as the Wait method of a WaitGroup, on another goroutine, and reports
// whether it returned within d. The goroutine remains until wait returns.
func Timeout(d time.Duration, wait func()) bool {
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	return Closed(done, d)
}

// Backoff returns how long to wait after that many failures in a row: minDelay, doubled with each
// failure up to maxDelay, minus a part of up to half, so that not all clients come back at the same
// time. random, in [0, 1), decides on that part.
func Backoff(minDelay, maxDelay time.Duration, failures int, random float64) time.Duration {
	d := minDelay
	for range failures - 1 {
		if d >= maxDelay/2 {
			d = maxDelay
			break
		}
		d *= 2
	}
	d = min(d, maxDelay)
	return d - time.Duration(random*float64(d)/2)
}

// A Group is a set of goroutines to wait for. Unlike a WaitGroup, it starts none after Wait was
// called. The zero value is empty. Many goroutines may call its methods at once.
type Group struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// Start runs f on a new goroutine. It returns false if Wait was called before; f does not run then.
func (g *Group) Start(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running.Go(f)
	}
	return !g.closed
}

// Wait waits until all goroutines have returned.
func (g *Group) Wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
}
