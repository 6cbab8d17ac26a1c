package client

import (
	"context"
	"errors"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// maxRetryAfter is the longest time that a server may ask for before a request is sent again. If it wants more, the caller may as well know.
const maxRetryAfter = 30 * time.Second

// miscarried decides what becomes of a request that its carrier could not bring to an answer, as failed does.
func (x *exchange) miscarried(ctx context.Context, l *link, t *terms, e *jsonrpc.CallError, err error) error {
	gone := isLost(err)
	if gone {
		x.c.lost(l)
	}
	switch e.Fate {
	case jsonrpc.FateUnsent:
		if gone {
			if x.renewed++; x.renewed > 1 {
				return err
			}
			return nil // on the session that takes the place of the old one
		}
		if x.r.opts.retry == retryNever || x.attempts >= x.c.opts.Retry.MaxAttempts {
			return err
		}
	case jsonrpc.FateLost:
		if !x.mayRepeat() {
			return err
		}
	case jsonrpc.FateRefused:
		if !t.confirmed.Load() {
			return x.doubt(ctx, l, t, err)
		}
		return err
	default:
		return err
	}
	if e.RetryAfter > maxRetryAfter {
		return err
	}
	x.attempts++
	return x.pauseFor(ctx, e.RetryAfter+x.c.opts.Retry.after(x.attempts-1), err) // which is random: not all come back at the same moment
}

// after returns how long to wait after so many failures.
func (p *RetryPolicy) after(failures int) time.Duration {
	return backoff(p.MinBackoff, p.MaxBackoff, failures)
}

// relist has the tools listed anew, since the carrier learns from the list which arguments the server wants in headers
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters). The request was not carried out, and can be sent again.
func (x *exchange) relist(ctx context.Context) error {
	x.relisted = true
	ctx, cancel := x.bounded(ctx)
	defer cancel()
	name, _ := stringValue(jsonwire.Lookup(x.r.params, "name"))
	x.c.lookUp(ctx, name)
	if ctx.Err() != nil {
		return x.interrupted(ctx)
	}
	return nil
}

// mayHaveMissed is for a legacy server's notifications, when the carrier has lost some: whatever they tell of may have changed.
func (c *Client) mayHaveMissed() {
	for _, kind := range []EventKind{ToolsListChanged, PromptsListChanged, ResourcesListChanged} {
		c.stale(Event{Kind: kind})
	}
	c.subs.mu.Lock()
	defer c.subs.mu.Unlock()
	for s := range c.subs.legacy {
		for _, e := range s.missed() {
			c.stale(e)
			s.queue.put(e)
		}
	}
}

// isLegacySign reports whether a probe that failed so tells of a server from before the modern era: it answered, but not as a modern one would. That it is out of
// order, or wants to know who asks, says nothing about that.
func isLegacySign(e *jsonrpc.CallError) bool {
	return e.Fate == jsonrpc.FateRefused || errors.Is(e, jsonrpc.ErrMalformed)
}

// isRefused reports whether a request failed that would fail again.
func isRefused(err error) bool {
	e, ok := errors.AsType[*jsonrpc.CallError](err)
	return ok && (e.Fate == jsonrpc.FateRefused || e.Fate == jsonrpc.FateDenied)
}

// repeat goes on after an opening request that its carrier could not bring to an answer: with the step that sent it, if that may help.
func (a *agreement) repeat(ctx context.Context, again step, e *jsonrpc.CallError, err error) (step, error) {
	if a.losses++; a.losses >= maxTries || e.RetryAfter > maxRetryAfter || isRefused(err) || errors.Is(err, jsonrpc.ErrMalformed) {
		return nil, err
	}
	a.c.log.Debug("opening request failed: again", "error", err)
	if !pause(ctx, e.RetryAfter+a.c.opts.Retry.after(a.losses)) {
		return nil, context.Cause(ctx)
	}
	return again, nil
}
