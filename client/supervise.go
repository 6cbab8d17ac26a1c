package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// supervise replaces connections that are lost, until ctx ends or there can be no other.
func (c *Client) supervise(ctx context.Context, l *link) {
	failures, trusted := 0, false
	for l != nil {
		var why error
		select {
		case <-l.conn.Ending():
		case <-l.retired:
			why = errors.New("the server speaks another revision than it was taken to")
		case <-ctx.Done():
		}
		c.lost(l)
		if ctx.Err() != nil {
			l.flush()
			l.close()
			break
		}
		l.close()
		if why == nil {
			why = l.why()
		}
		switch {
		case time.Since(l.began) >= c.opts.Reconnect.StableAfter:
			failures = 0
		case l.served.Load():
			failures = 1 // it works, now and then
		default:
			failures++
		}
		l.retire(c.known.Load())
		t := l.terms.Load()
		if trusted = trusted || t.confirmed.Load(); !trusted {
			c.known.CompareAndSwap(t.verdict, nil) // what Options.Known says has never been seen to be so
		}
		c.log.Warn("connection lost", "error", why)
		c.down.Store(&why)
		var err error
		if l, err = c.reconnect(ctx, failures, why); err != nil && ctx.Err() == nil {
			c.end(err)
			return
		}
	}
	c.end(nil)
}

// reconnect connects again after failures in a row. The error says why that is given up.
func (c *Client) reconnect(ctx context.Context, failures int, why error) (*link, error) {
	p := &c.opts.Reconnect
	if p.Disabled {
		return nil, fmt.Errorf("connection lost: %w", why)
	}
	for {
		if p.MaxFailures >= 0 && failures > p.MaxFailures {
			return nil, fmt.Errorf("connection lost %d times in a row, given up: %w", failures, why)
		}
		if failures > 0 && !pause(ctx, backoff(p.MinBackoff, p.MaxBackoff, failures)) {
			return nil, ctx.Err()
		}
		l, err := c.establish(ctx)
		_, incompatible := errors.AsType[*IncompatibleError](err)
		switch {
		case err == nil:
			c.log.Info("connected again", "revision", l.terms.Load().Revision)
			c.renew(l)
			return l, nil
		case incompatible || errors.Is(err, ErrNoReconnect):
			return nil, fmt.Errorf("connection lost: %w; %w", why, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		c.log.Warn("no connection", "error", err)
		c.down.Store(&err)
		failures++
		why = err
	}
}

// renew has the calls use a new connection, after those have been told who keep something of the old one.
func (c *Client) renew(l *link) {
	c.mu.Lock()
	hooks := c.hooks
	c.mu.Unlock()
	for _, fn := range hooks {
		fn()
	}
	c.publish(l)
}

// backoff returns how long to wait after so many failures in a row: up to half less than twice as long as after the one before.
func backoff(least, most time.Duration, failures int) time.Duration {
	d := least
	for range failures - 1 {
		if d >= most/2 {
			d = most
			break
		}
		d *= 2
	}
	d = min(d, most)
	return d - time.Duration(rand.Float64()*float64(d)/2)
}

// pause waits, and reports whether it did to the end.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
