package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// timeoutFor is how long a request may go without an answer, progress or question; 0 is for ever. What belongs to connecting has the time for that as a whole.
func (o *Options) timeoutFor(method string) time.Duration {
	switch method {
	case mcp.MethodInitialize, mcp.MethodDiscover:
		return max(o.ConnectTimeout, 0)
	case mcp.MethodSubscriptionsListen:
		return 0
	}
	return max(o.CallTimeout, 0)
}

// startTimer has expire called when nothing was heard of the call for too long, unless a user is about to log in. It counts from when the client has sent it.
func (c *call) startTimer(expire func()) {
	b := c.client.b
	d := b.opts.timeoutFor(c.method)
	if d == 0 {
		return
	}
	c.timeout = d
	t := time.AfterFunc(d, func() {
		if left := b.remaining(d); left > 0 {
			c.timer.Load().Reset(left)
			return
		}
		expire()
	})
	c.timer.Store(t)
	t.Reset(max(d-time.Since(c.began), 0)) // not before, since it may be now
	if c.done.Load() {
		t.Stop()
	}
}

// resetTimer gives the call the whole time again.
func (c *call) resetTimer() {
	if t := c.timer.Load(); t != nil {
		t.Reset(c.timeout)
	}
}

// expire fails a call that was watched in vain.
func (c *call) expire() {
	c.failTimeout(fmt.Errorf("the server has not answered %s for %v", c.method, c.timeout))
}

// failTimeout fails a call because the server has said nothing.
func (c *call) failTimeout(err error) {
	c.client.b.metrics.timeouts.Add(1)
	c.client.b.markUnhealthy(err)
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", err))
}

// withDialTimeout is withConnectTimeout without regard to users who log in: a connection by itself needs none.
func (b *Bridge) withDialTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.opts.ConnectTimeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.opts.ConnectTimeout)
}

// withConnectTimeout returns a context that ends when the time for a connection is over.
func (b *Bridge) withConnectTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return b.withTimeout(ctx, b.opts.ConnectTimeout)
}

// withTimeout is context.WithTimeoutCause, but that a user who has logged in meanwhile has the whole time afterwards, and that a negative time
// is for ever.
func (b *Bridge) withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d < 0 {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	started := make(chan struct{}) // guards timer
	timer = time.AfterFunc(d, func() {
		<-started
		if left := b.remaining(d); left > 0 {
			timer.Reset(left)
			return
		}
		cancel(timeoutError(d))
	})
	close(started)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// remaining is how much is left of a time that has passed, because a user had to log in meanwhile.
func (b *Bridge) remaining(d time.Duration) time.Duration {
	return time.Until(b.opts.LastLogin().Add(d))
}

// timeoutError is the error of who has waited in vain for as long.
type timeoutError time.Duration

func (e timeoutError) Error() string { return fmt.Sprintf("nothing came for %v", time.Duration(e)) }

// Is makes it a deadline that was exceeded.
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// isTimeout reports whether an error is that the server has said nothing in time.
func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
