package bridge

import (
	"errors"
	"time"

	"mcpwire/jsonrpc"
)

// retrySubscriptionLocked reports whether a call that got no answer while the connection goes on, as happens on HTTP, is a subscription that the client need not know has
// broken off: it is made again after a pause, which grows while that does not help.
func (p *passthrough) retrySubscriptionLocked(c *call, err error) bool {
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok || failed.Outcome != jsonrpc.OutcomeUnknown && failed.Outcome != jsonrpc.OutcomeUnprocessed || !c.acked || c.retries >= maxEagerFailures || p.closed {
		return false
	}
	o := &p.b.opts
	pause := jitter(min(o.MinBackoff<<c.retries, o.MaxBackoff))
	c.retries++
	c.retryPending = true
	p.b.wg.Go(func() { p.resubscribe(c, pause) })
	return true
}

// resubscribe makes a subscription again after a pause, unless it is not wanted any more, or was made again otherwise.
func (p *passthrough) resubscribe(c *call, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
		return
	case <-c.client.ctx.Done():
		return
	}
	p.mu.Lock()
	pending := c.retryPending && p.calls[idKey(c.serverID)] == c
	if pending { // by an id of its own, since the one before may still be known
		p.removeCallLocked(c)
		c.serverID = p.ownID()
		c.listenFrame = withID(c.listenFrame, c.serverID)
		c.retryPending, c.expectAck = false, true
		p.calls[idKey(c.serverID)] = c
	}
	p.mu.Unlock()
	if !pending {
		return
	}
	it := queuedMessage{frame: c.listenFrame, id: c.serverID, from: provenance{rec: c.rec, event: c.event, rule: "sent again"}}
	if err := p.upstream.send(c.ctx, it); err != nil && p.removeCall(c) {
		c.fail(clientError(err))
	}
}

// callByClientIDLocked returns the call that a client has under an id, nil if there is none.
func (p *passthrough) callByClientIDLocked(cl *client, id jsonrpc.ID) *call {
	key := idKey(id)
	if c := p.calls[key]; c != nil && !p.rewriteIDs && !c.rewritten() {
		return c
	}
	for _, c := range p.calls {
		if c.client == cl && idKey(c.id) == key {
			return c
		}
	}
	return nil
}
