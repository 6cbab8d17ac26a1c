package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
)

// maxCleanups limits the cleanups that wait in one queue.
const maxCleanups = 1 << 12

// A cleanup undoes a write that failed although it may have been carried out, or may still be.
type cleanup struct {
	// run undoes the write. It is called until it succeeds or what was written has expired.
	run     func(ctx context.Context) error
	expires time.Time
	// done is called after that. It may be nil.
	done func()
}

// cleanups is a queue of cleanups, which a goroutine of the node runs.
type cleanups struct {
	mu    sync.Mutex
	queue []cleanup
	// wake has room for one. It is sent to when the queue grows.
	wake chan struct{}
}

// newCleanups returns an empty queue of a node.
func newCleanups(n *Node) (*cleanups, error) {
	c := &cleanups{wake: make(chan struct{}, 1)}
	if !n.start(c.work) {
		return nil, ErrClosed
	}
	return c, nil
}

// add adds a cleanup, or returns false if there are too many.
func (c *cleanups) add(next cleanup) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) >= maxCleanups {
		return false
	}
	c.queue = append(c.queue, next)
	wait.Signal(c.wake)
	return true
}

func (c *cleanups) first() (next cleanup, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return next, false
	}
	return c.queue[0], true
}

// work runs the cleanups one after another until ctx ends.
func (c *cleanups) work(ctx context.Context) {
	for failures := 0; ; {
		next, ok := c.first()
		if !ok {
			select {
			case <-c.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if time.Now().Before(next.expires) && next.run(ctx) != nil {
			failures++
			if !wait.Sleep(ctx, wait.Backoff(minBackoff, maxBackoff, failures, 0)) {
				return
			}
			continue
		}
		failures = 0
		if next.done != nil {
			next.done()
		}
		c.mu.Lock()
		c.queue = slices.Delete(c.queue, 0, 1)
		c.mu.Unlock()
	}
}
