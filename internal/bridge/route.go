package bridge

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// handleServerRequest hands a request of the server's to the client that it is for.
func (p *passthrough) handleServerRequest(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	if p.session != nil && p.answerOrRefuse(m) {
		return
	}
	p.mu.Lock()
	cl, out := p.recipientLocked(on, m)
	if cl == nil || p.serverRequests[idKey(m.ID)] != nil || len(p.serverRequests) >= p.b.opts.MaxCalls {
		p.mu.Unlock()
		p.refuse(m, jsonrpc.Errorf(jsonrpc.CodeInternalError, "there is no client that could be asked, or it is asked too much already"))
		return
	}
	a := &serverRequest{client: cl, id: m.ID, out: out}
	p.serverRequests[idKey(m.ID)] = a
	p.noteServerRequestLocked(cl, m)
	p.mu.Unlock()
	err := cl.send(out, frame, p.provenance(event))
	if err != nil && out != nil {
		a.out = nil
		err = cl.send(nil, frame, p.provenance(event))
	}
	if err != nil {
		p.mu.Lock()
		delete(p.serverRequests, idKey(m.ID))
		p.mu.Unlock()
		p.refuse(m, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client could not be asked: %v", err))
	}
}

// recipientLocked returns whom a question of the server's is for, which does not say so itself: that of the call on whose stream it came, or the client with the call that
// was begun last of those that may ask.
func (p *passthrough) recipientLocked(on jsonrpc.ID, m *jsonrpc.Message) (*client, jsonrpc.Sender) {
	if c := p.calls[idKey(on)]; c != nil {
		return c.client, c.out
	}
	if cl := p.relatedTaskClientLocked(m); cl != nil {
		return cl, nil
	}
	var last *call
	for _, c := range p.calls {
		if mayAskClient(c.method) && (last == nil || c.seq > last.seq) {
			last = c
		}
	}
	if last != nil {
		return last.client, last.out
	}
	return p.lastActiveLocked(), nil
}

// mayAskClient reports whether servers ask for something before they answer the method.
func mayAskClient(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead || method == mcp.MethodComplete
}

func (p *passthrough) refuse(m *jsonrpc.Message, e *jsonrpc.Error) {
	p.sendOwn(jsonrpc.AppendError(nil, m.ID, e, false))
}

// handleNotification hands a notification of the server's to the client that it is for, or to all.
func (p *passthrough) handleNotification(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		token, _ := m.Param(mcp.MetaProgressToken)
		p.mu.Lock()
		c := p.tokens[idKey(token)]
		if c != nil {
			c.resetTimer()
		}
		p.mu.Unlock()
		if c != nil && c.clientToken != nil {
			frame = splice(frame, locate(frame, "params", mcp.MetaProgressToken), c.clientToken)
		}
		if c != nil || !p.rewriteIDs { // one that is not known was answered
			p.sendForCall(c, frame, event)
		}
		return
	case mcp.NotificationCancelled:
		p.handleServerCancellation(frame, m, event)
		return
	}
	if c, ok := p.subscriptionOf(m); ok {
		if c != nil {
			p.forwardToSubscription(c, frame, m, event)
		}
		return
	}
	p.mu.Lock()
	c := p.calls[idKey(on)]
	p.mu.Unlock()
	switch {
	case p.session != nil:
		p.forwardSessionNotification(c, frame, m, event)
	case c != nil:
		p.sendForCall(c, frame, event)
	default:
		p.forwardUnaddressed(frame, m, event)
	}
}

// forwardUnaddressed hands on what may belong to several calls. The client that is the only one gets everything.
func (p *passthrough) forwardUnaddressed(frame []byte, m *jsonrpc.Message, event uint64) {
	switch open := p.candidateCalls(m); {
	case len(open) == 1:
		p.sendForCall(open[0], frame, event)
	case len(open) > 1, p.shared != nil:
		p.noteUnroutable(event)
	default:
		p.broadcast(frame, event)
	}
}

// sendForCall hands a message to the client of a call, or, if that is nil, to the only one.
func (p *passthrough) sendForCall(c *call, frame []byte, event uint64) {
	if c == nil {
		p.broadcast(frame, event)
		return
	}
	out := c.out
	if c.done.Load() { // a task goes on after its call
		out = nil
	}
	if err := c.client.send(out, frame, p.provenance(event)); err != nil {
		p.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// broadcast hands a message to all clients.
func (p *passthrough) broadcast(frame []byte, event uint64) {
	p.mu.Lock()
	all := p.initializedClientsLocked()
	p.mu.Unlock()
	p.sendToClients(all, frame, event)
}

// handleServerCancellation acts on a cancellation by the server: of a question, or of a subscription, which it ends so.
func (p *passthrough) handleServerCancellation(frame []byte, m *jsonrpc.Message, event uint64) {
	id, _ := m.Param("requestId")
	p.mu.Lock()
	a, c := p.serverRequests[idKey(id)], p.calls[idKey(id)]
	delete(p.serverRequests, idKey(id))
	if a == nil && c != nil && c.listenFrame != nil {
		p.removeCallLocked(c)
	} else {
		c = nil
	}
	p.mu.Unlock()
	switch {
	case a != nil:
		a.client.send(a.out, frame, p.provenance(event))
	case c != nil:
		if c.rewritten() {
			frame = splice(frame, locate(frame, "params", "requestId"), c.id)
		}
		p.sendForCall(c, frame, event)
		c.finish(nil, provenance{})
	}
}

// subscriptionOf returns the call that a message belongs to which names a subscription; nil if that is none.
func (p *passthrough) subscriptionOf(m *jsonrpc.Message) (c *call, names bool) {
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
	return p.calls[idKey(at.slice(meta))], true
}

// forwardToSubscription hands on what belongs to a subscription. An acknowledgement that the client has had already, from the server before this one, becomes the news that what
// is subscribed to may have changed.
func (p *passthrough) forwardToSubscription(c *call, frame []byte, m *jsonrpc.Message, event uint64) {
	p.mu.Lock()
	acked := string(m.Method) == mcp.NotificationAcknowledged
	again := c.expectAck && acked
	if acked {
		c.expectAck, c.acked, c.retries = false, true, 0
	}
	p.mu.Unlock()
	if again {
		granted, _ := m.Param("notifications")
		for _, change := range changeNotifications(granted, c.id) {
			p.sendForCall(c, change, event)
		}
		return
	}
	if c.rewritten() {
		frame = splice(frame, locate(frame, "params", "_meta", mcp.MetaSubscriptionID), c.id)
	}
	p.sendForCall(c, frame, event)
}

// changeNotifications are the notifications that tell a subscription of all that a server has granted it.
func changeNotifications(granted []byte, id jsonrpc.ID) (list [][]byte) {
	meta := jsonwire.AppendQuote([]byte(`"_meta":{`), mcp.MetaSubscriptionID)
	meta = append(append(append(meta, ':'), id...), "}}"...)
	for _, l := range listChanges {
		if at := locate(granted, l[0]+"ListChanged"); at.found() && string(at.slice(granted)) == "true" {
			list = append(list, jsonrpc.AppendNotification(nil, l[1], append([]byte{'{'}, meta...)))
		}
	}
	at := locate(granted, "resourceSubscriptions")
	if !at.found() || granted[at.start] != '[' {
		return list
	}
	for uris := jsonwire.ArrayElements(at.slice(granted)); uris.Next(); {
		params := append(append([]byte(`{"uri":`), uris.Value()...), ',')
		list = append(list, jsonrpc.AppendNotification(nil, mcp.NotificationResourceUpdated, append(params, meta...)))
	}
	return list
}
