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

// handleCallError decides what becomes of a request that its transport could not bring to an answer, as failed does.
func (ac *activeCall) handleCallError(ctx context.Context, conn *connection, neg *negotiated, e *jsonrpc.CallError, err error) error {
	connLost := isConnectionLost(err)
	if connLost {
		ac.c.dropConnection(conn)
	}
	switch e.Outcome {
	case jsonrpc.OutcomeUnprocessed:
		if connLost {
			if ac.sessionRenewals++; ac.sessionRenewals > 1 {
				return err
			}
			return nil // on the session that takes the place of the old one
		}
		if ac.req.opts.retry == retryNever || ac.attempts >= ac.c.opts.Retry.MaxAttempts {
			return err
		}
	case jsonrpc.OutcomeUnknown:
		if !ac.mayRepeat() {
			return err
		}
	case jsonrpc.OutcomeRejected:
		if !neg.confirmed.Load() {
			return ac.reprobe(ctx, conn, neg, err)
		}
		return err
	default:
		return err
	}
	if e.RetryAfter > maxRetryAfter {
		return err
	}
	ac.attempts++
	return ac.waitRetry(ctx, e.RetryAfter+ac.c.opts.Retry.backoff(ac.attempts-1), err) // which is random: not all come back at the same moment
}

// backoff returns how long to wait after so many failures.
func (p *RetryPolicy) backoff(failures int) time.Duration {
	return backoff(p.MinBackoff, p.MaxBackoff, failures)
}

// relistTools has the tools listed anew, since the transport learns from the list which arguments the server wants in headers
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters). The request was not carried out, and can be sent again.
func (ac *activeCall) relistTools(ctx context.Context) error {
	ac.toolsRelisted = true
	ctx, cancel := ac.withDeadline(ctx)
	defer cancel()
	name, _ := stringValue(jsonwire.Lookup(ac.req.params, "name"))
	ac.c.findTool(ctx, name)
	if ctx.Err() != nil {
		return ac.contextError(ctx)
	}
	return nil
}

// invalidateAfterGap is for a legacy server's notifications, when the transport has lost some: whatever they tell of may have changed.
func (c *Client) invalidateAfterGap() {
	for _, kind := range []EventKind{ToolsListChanged, PromptsListChanged, ResourcesListChanged} {
		c.invalidate(Event{Kind: kind})
	}
	c.subs.mu.Lock()
	defer c.subs.mu.Unlock()
	for s := range c.subs.legacy {
		for _, e := range s.missed() {
			c.invalidate(e)
			s.queue.put(e)
		}
	}
}

// indicatesLegacy reports whether a probe that failed so tells of a server from before the modern era: it answered, but not as a modern one would. That it is out of
// order, or wants to know who asks, says nothing about that.
func indicatesLegacy(e *jsonrpc.CallError) bool {
	return e.Outcome == jsonrpc.OutcomeRejected || errors.Is(e, jsonrpc.ErrMalformed)
}

// isRefused reports whether a request failed that would fail again.
func isRefused(err error) bool {
	e, ok := errors.AsType[*jsonrpc.CallError](err)
	return ok && (e.Outcome == jsonrpc.OutcomeRejected || e.Outcome == jsonrpc.OutcomeDenied)
}

// retryStep goes on after an opening request that its transport could not bring to an answer: with the step that sent it, if that may help.
func (n *negotiation) retryStep(ctx context.Context, retry step, callErr *jsonrpc.CallError, err error) (step, error) {
	if n.failureCount++; n.failureCount >= maxOpeningAttempts || callErr.RetryAfter > maxRetryAfter || isRefused(err) || errors.Is(err, jsonrpc.ErrMalformed) {
		return nil, err
	}
	n.c.log.Debug("opening request failed: again", "error", err)
	if !sleep(ctx, callErr.RetryAfter+n.c.opts.Retry.backoff(n.failureCount)) {
		return nil, context.Cause(ctx)
	}
	return retry, nil
}
