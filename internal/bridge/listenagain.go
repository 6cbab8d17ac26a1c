package bridge

import (
	"errors"
	"time"

	"mcpwire/jsonrpc"
)

// listensAgainLocked reports whether a call that got no answer while the connection goes on, as happens on HTTP, is a subscription that the client need not know has
// broken off: it is made again after a pause, which grows while that does not help.
func (p *plain) listensAgainLocked(c *call, err error) bool {
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok || failed.Fate != jsonrpc.FateLost && failed.Fate != jsonrpc.FateUnsent || !c.acked || c.broken >= maxEager || p.over {
		return false
	}
	o := &p.b.opts
	pause := jitter(min(o.MinBackoff<<c.broken, o.MaxBackoff))
	c.broken++
	c.rests = true
	p.b.wg.Go(func() { p.listenAgain(c, pause) })
	return true
}

// listenAgain makes a subscription again after a pause, unless it is not wanted any more, or was made again otherwise.
func (p *plain) listenAgain(c *call, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
		return
	case <-c.client.ended.Done():
		return
	}
	p.mu.Lock()
	wanted := c.rests && p.calls[idKey(c.far)] == c
	if wanted { // by an id of its own, since the one before may still be known
		p.forgetLocked(c)
		c.far = p.ownID()
		c.again = withID(c.again, c.far)
		c.rests, c.swear = false, true
		p.calls[idKey(c.far)] = c
	}
	p.mu.Unlock()
	if !wanted {
		return
	}
	it := item{frame: c.again, id: c.far, from: made{lane: c.lane, of: c.event, rule: "sent again"}}
	if err := p.line.send(c.ctx, it); err != nil && p.forget(c) {
		c.fail(reason(err))
	}
}

// openLocked returns the call that a client has under an id, nil if there is none.
func (p *plain) openLocked(cl *client, id jsonrpc.ID) *call {
	key := idKey(id)
	if c := p.calls[key]; c != nil && !p.rename && !c.renamed() {
		return c
	}
	for _, c := range p.calls {
		if c.client == cl && idKey(c.id) == key {
			return c
		}
	}
	return nil
}
