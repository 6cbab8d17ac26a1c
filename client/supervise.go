package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// supervise replaces connections that are lost, until ctx ends or there can be no other.
func (c *Client) supervise(ctx context.Context, conn *connection) {
	failures, trusted := 0, false
	for conn != nil {
		var reason error
		select {
		case <-conn.rpc.Draining():
		case <-conn.retired:
			reason = errors.New("the server speaks another revision than it was taken to")
		case <-ctx.Done():
		}
		c.dropConnection(conn)
		if ctx.Err() != nil {
			conn.flush()
			conn.close()
			break
		}
		conn.close()
		if reason == nil {
			reason = conn.closeReason()
		}
		switch {
		case time.Since(conn.openedAt) >= c.opts.Reconnect.StableAfter:
			failures = 0
		case conn.served.Load():
			failures = 1 // it works, now and then
		default:
			failures++
		}
		conn.retire(c.profile.Load())
		neg := conn.negotiated.Load()
		if trusted = trusted || neg.confirmed.Load(); !trusted {
			c.profile.CompareAndSwap(neg.profile, nil) // what Options.Profile says has never been seen to be so
		}
		c.log.Warn("connection lost", "error", reason)
		c.lastFailure.Store(&reason)
		var err error
		if conn, err = c.reconnect(ctx, failures, reason); err != nil && ctx.Err() == nil {
			c.end(err)
			return
		}
	}
	c.end(nil)
}

// reconnect connects again after failures in a row. The error says why that is given up.
func (c *Client) reconnect(ctx context.Context, failures int, reason error) (*connection, error) {
	p := &c.opts.Reconnect
	if p.Disabled {
		return nil, fmt.Errorf("connection lost: %w", reason)
	}
	for {
		if p.MaxFailures >= 0 && failures > p.MaxFailures {
			return nil, fmt.Errorf("connection lost %d times in a row, given up: %w", failures, reason)
		}
		if failures > 0 && !sleep(ctx, backoff(p.MinBackoff, p.MaxBackoff, failures)) {
			return nil, ctx.Err()
		}
		conn, err := c.establish(ctx)
		_, incompatible := errors.AsType[*IncompatibleError](err)
		switch {
		case err == nil:
			c.log.Info("connected again", "revision", conn.negotiated.Load().Revision)
			c.useConnection(conn)
			return conn, nil
		case incompatible || errors.Is(err, ErrNoReconnect):
			return nil, fmt.Errorf("connection lost: %w; %w", reason, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		c.log.Warn("no connection", "error", err)
		c.lastFailure.Store(&err)
		failures++
		reason = err
	}
}

// useConnection has the calls use a new connection, after those have been told who keep something of the old one.
func (c *Client) useConnection(conn *connection) {
	c.mu.Lock()
	reconnectHooks := c.reconnectHooks
	c.mu.Unlock()
	for _, fn := range reconnectHooks {
		fn()
	}
	c.publish(conn)
}

// backoff returns how long to wait after so many failures in a row: up to half less than twice as long as after the one before.
func backoff(minDelay, maxDelay time.Duration, failures int) time.Duration {
	d := minDelay
	for range failures - 1 {
		if d >= maxDelay/2 {
			d = maxDelay
			break
		}
		d *= 2
	}
	d = min(d, maxDelay)
	return d - time.Duration(rand.Float64()*float64(d)/2)
}

// sleep waits, and reports whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
