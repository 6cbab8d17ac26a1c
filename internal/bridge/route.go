package bridge

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// question hands a request of the server's to the client that it is for.
func (p *plain) question(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	if p.session != nil && p.refused(m) {
		return
	}
	p.mu.Lock()
	cl, out := p.askerLocked(on, m)
	if cl == nil || p.asked[idKey(m.ID)] != nil || len(p.asked) >= p.b.opts.MaxCalls {
		p.mu.Unlock()
		p.refuse(m, jsonrpc.Errorf(jsonrpc.CodeInternalError, "there is no client that could be asked, or it is asked too much already"))
		return
	}
	a := &ask{client: cl, id: m.ID, out: out}
	p.asked[idKey(m.ID)] = a
	p.askedLocked(cl, m)
	p.mu.Unlock()
	err := cl.send(out, frame, p.made(event))
	if err != nil && out != nil {
		a.out = nil
		err = cl.send(nil, frame, p.made(event))
	}
	if err != nil {
		p.mu.Lock()
		delete(p.asked, idKey(m.ID))
		p.mu.Unlock()
		p.refuse(m, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client could not be asked: %v", err))
	}
}

// askerLocked returns whom a question of the server's is for, which does not say so itself: that of the call on whose stream it came, or the client with the call that
// was begun last of those that may ask.
func (p *plain) askerLocked(on jsonrpc.ID, m *jsonrpc.Message) (*client, jsonrpc.Outlet) {
	if c := p.calls[idKey(on)]; c != nil {
		return c.client, c.out
	}
	if cl := p.relatedLocked(m); cl != nil {
		return cl, nil
	}
	var last *call
	for _, c := range p.calls {
		if mayAsk(c.method) && (last == nil || c.number > last.number) {
			last = c
		}
	}
	if last != nil {
		return last.client, last.out
	}
	return p.lastHeardLocked(), nil
}

// mayAsk reports whether servers ask for something before they answer the method.
func mayAsk(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead || method == mcp.MethodComplete
}

func (p *plain) refuse(m *jsonrpc.Message, e *jsonrpc.Error) {
	p.tell(jsonrpc.AppendError(nil, m.ID, e, false))
}

// news hands a notification of the server's to the client that it is for, or to all.
func (p *plain) news(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		token, _ := m.Param(mcp.MetaProgressToken)
		p.mu.Lock()
		c := p.tokens[idKey(token)]
		if c != nil {
			c.more()
		}
		p.mu.Unlock()
		if c != nil && c.token != nil {
			frame = splice(frame, locate(frame, "params", mcp.MetaProgressToken), c.token)
		}
		if c != nil || !p.rename { // one that is not known was answered
			p.pass(c, frame, event)
		}
		return
	case mcp.NotificationCancelled:
		p.withdrawn(frame, m, event)
		return
	}
	if c, ok := p.subscription(m); ok {
		if c != nil {
			p.ofSubscription(c, frame, m, event)
		}
		return
	}
	p.mu.Lock()
	c := p.calls[idKey(on)]
	p.mu.Unlock()
	switch {
	case p.session != nil:
		p.ofServer(c, frame, m, event)
	case c != nil:
		p.pass(c, frame, event)
	default:
		p.guess(frame, m, event)
	}
}

// guess hands on what may belong to several calls. The client that is the only one gets everything.
func (p *plain) guess(frame []byte, m *jsonrpc.Message, event uint64) {
	switch open := p.talking(m); {
	case len(open) == 1:
		p.pass(open[0], frame, event)
	case len(open) > 1, p.commons != nil:
		p.homeless(event)
	default:
		p.broadcast(frame, event)
	}
}

// pass hands a message to the client of a call, or, if that is nil, to the only one.
func (p *plain) pass(c *call, frame []byte, event uint64) {
	if c == nil {
		p.broadcast(frame, event)
		return
	}
	out := c.out
	if c.done.Load() { // a task goes on after its call
		out = nil
	}
	if err := c.client.send(out, frame, p.made(event)); err != nil {
		p.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// broadcast hands a message to all clients.
func (p *plain) broadcast(frame []byte, event uint64) {
	p.mu.Lock()
	all := p.toldLocked()
	p.mu.Unlock()
	p.sendTo(all, frame, event)
}

// withdrawn acts on a cancellation by the server: of a question, or of a subscription, which it ends so.
func (p *plain) withdrawn(frame []byte, m *jsonrpc.Message, event uint64) {
	id, _ := m.Param("requestId")
	p.mu.Lock()
	a, c := p.asked[idKey(id)], p.calls[idKey(id)]
	delete(p.asked, idKey(id))
	if a == nil && c != nil && c.again != nil {
		p.forgetLocked(c)
	} else {
		c = nil
	}
	p.mu.Unlock()
	switch {
	case a != nil:
		a.client.send(a.out, frame, p.made(event))
	case c != nil:
		if c.renamed() {
			frame = splice(frame, locate(frame, "params", "requestId"), c.id)
		}
		p.pass(c, frame, event)
		c.finish(nil, made{})
	}
}

// subscription returns the call that a message belongs to which names a subscription; nil if that is none.
func (p *plain) subscription(m *jsonrpc.Message) (c *call, names bool) {
	meta, ok := m.Param("_meta")
	if !ok {
		return nil, false
	}
	at := locate(meta, mcp.MetaSubscriptionID)
	if !at.found() {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[idKey(at.of(meta))], true
}

// ofSubscription hands on what belongs to a subscription. An acknowledgement that the client has had already, from the server before this one, becomes the news that what
// is subscribed to may have changed.
func (p *plain) ofSubscription(c *call, frame []byte, m *jsonrpc.Message, event uint64) {
	p.mu.Lock()
	acked := string(m.Method) == mcp.NotificationAcknowledged
	again := c.swear && acked
	if acked {
		c.swear, c.acked, c.broken = false, true, 0
	}
	p.mu.Unlock()
	if again {
		granted, _ := m.Param("notifications")
		for _, change := range changes(granted, c.id) {
			p.pass(c, change, event)
		}
		return
	}
	if c.renamed() {
		frame = splice(frame, locate(frame, "params", "_meta", mcp.MetaSubscriptionID), c.id)
	}
	p.pass(c, frame, event)
}

// changes are the notifications that tell a subscription of all that a server has granted it.
func changes(granted []byte, id jsonrpc.ID) (list [][]byte) {
	meta := jsonwire.AppendQuote([]byte(`"_meta":{`), mcp.MetaSubscriptionID)
	meta = append(append(append(meta, ':'), id...), "}}"...)
	for _, l := range lists {
		if at := locate(granted, l[0]+"ListChanged"); at.found() && string(at.of(granted)) == "true" {
			list = append(list, jsonrpc.AppendNotification(nil, l[1], append([]byte{'{'}, meta...)))
		}
	}
	at := locate(granted, "resourceSubscriptions")
	if !at.found() || granted[at.start] != '[' {
		return list
	}
	for uris := jsonwire.ArrayElements(at.of(granted)); uris.Next(); {
		params := append(append([]byte(`{"uri":`), uris.Value()...), ',')
		list = append(list, jsonrpc.AppendNotification(nil, mcp.NotificationResourceUpdated, append(params, meta...)))
	}
	return list
}
