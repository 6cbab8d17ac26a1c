// Package wait has waits that a context or a timeout bounds.
package wait

import (
	"context"
	"time"
)

// Sleep waits for d. It reports false, at once, if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
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
