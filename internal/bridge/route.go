package bridge

import (
	"slices"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// question hands a request of the server's to the client that it is for.
func (p *plain) question(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	if p.shared {
		p.answerItself(m)
		return
	}
	p.mu.Lock()
	cl, out := p.askerLocked(on)
	if cl == nil || p.asked[idKey(m.ID)] != nil || len(p.asked) >= p.b.opts.MaxCalls {
		p.mu.Unlock()
		p.refuse(m, jsonrpc.Errorf(jsonrpc.CodeInternalError, "there is no client that could be asked, or it is asked too much already"))
		return
	}
	a := &ask{client: cl, id: m.ID, out: out}
	p.asked[idKey(m.ID)] = a
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
func (p *plain) askerLocked(on jsonrpc.ID) (*client, jsonrpc.Outlet) {
	if c := p.calls[idKey(on)]; c != nil {
		return c.client, c.out
	}
	var last *call
	for _, c := range p.calls {
		if mayAsk(c.method) && (last == nil || c.event > last.event || c.event == last.event && later(c, last)) {
			last = c
		}
	}
	if last != nil {
		return last.client, last.out
	}
	for cl := range p.members {
		return cl, nil
	}
	return nil, nil
}

// later tells calls apart whose order is not known, always in the same way.
func later(a, b *call) bool { return idKey(a.far) > idKey(b.far) }

// mayAsk reports whether servers ask for something before they answer the method.
func mayAsk(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead || method == mcp.MethodComplete
}

// answerItself answers a question that is for none of the clients in particular: nothing was declared that would let the server ask.
func (p *plain) answerItself(m *jsonrpc.Message) {
	if string(m.Method) == mcp.MethodPing {
		p.tell(jsonrpc.AppendResult(nil, m.ID, []byte("{}")))
		return
	}
	p.refuse(m, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "several clients share this connection, so none of them can be asked"))
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
	if c := p.talking(on); c != nil {
		p.pass(c, frame, event)
		return
	}
	p.broadcast(frame, m, event)
}

// pass hands a message to the client of a call, or, if that is nil, to the only one.
func (p *plain) pass(c *call, frame []byte, event uint64) {
	if c == nil {
		p.broadcast(frame, nil, event)
		return
	}
	if err := c.client.send(c.out, frame, p.made(event)); err != nil {
		p.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// broadcast hands a message to all clients, or to those that are subscribed to what it is about. m may be nil.
func (p *plain) broadcast(frame []byte, m *jsonrpc.Message, event uint64) {
	p.mu.Lock()
	members := make([]*client, 0, len(p.members))
	var by map[*client]struct{}
	if p.shared && m != nil && string(m.Method) == mcp.NotificationResourceUpdated {
		uri, _ := m.Param("uri")
		by = p.past.by[text(uri)]
	}
	for cl := range p.members {
		if _, wants := by[cl]; wants || by == nil {
			members = append(members, cl)
		}
	}
	p.mu.Unlock()
	for _, cl := range members {
		if err := cl.send(nil, frame, p.made(event)); err != nil {
			p.b.opts.Logger.Debug("a message was dropped", "error", err)
		}
	}
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
		if p.rename {
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
	again := c.swear && string(m.Method) == mcp.NotificationAcknowledged
	if again {
		c.swear = false
	}
	p.mu.Unlock()
	if again {
		granted, _ := m.Param("notifications")
		for _, change := range changes(granted, c.id) {
			p.pass(c, change, event)
		}
		return
	}
	if p.rename {
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

// talking returns the call that a message belongs to which does not say so: that on whose stream it came, or, among clients without a session, the only one, or of several
// that which was begun last.
func (p *plain) talking(on jsonrpc.ID) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[idKey(on)]; c != nil {
		return c
	}
	var last *call
	for _, c := range p.calls {
		if !c.modern || c.again != nil {
			continue
		}
		if last == nil || c.event > last.event || c.event == last.event && later(c, last) {
			last = c
		}
	}
	return last
}

// handshake answers what a client that shares the connection says of itself, which the server must not hear, and reports whether it did. The bridge shakes hands
// with the server when the first client does.
func (p *plain) handshake(c *call, m *jsonrpc.Message) bool {
	switch c.method {
	case mcp.MethodInitialize:
		p.b.wg.Go(func() { p.introduce(c, m) })
		return true
	case mcp.MethodResourcesUnsubscribe:
		uri, _ := m.Param("uri")
		about := text(uri)
		p.mu.Lock()
		by := p.past.by[about]
		_, has := by[c.client]
		others := has && len(by) > 1
		if others {
			delete(by, c.client)
		}
		p.mu.Unlock()
		if others {
			c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridged())
		}
		return others
	}
	return false
}

// introduce answers initialize.
func (p *plain) introduce(c *call, m *jsonrpc.Message) {
	p.shaking.Lock()
	defer p.shaking.Unlock()
	p.mu.Lock()
	result := p.past.result
	p.mu.Unlock()
	if result == nil {
		version, _ := m.Param("protocolVersion")
		params := append([]byte(`{"protocolVersion":`), version...)
		if version == nil {
			params = jsonwire.AppendQuote(params[:len(params):len(params)], mcp.LatestLegacyRevision.String())
		}
		params = append(params, `,"capabilities":{},"clientInfo":{"name":"mcpwire bridge","version":"1"}}`...)
		var hello []byte
		ctx, cancel := contextWithin(c.ctx, p.b.opts.ConnectTimeout)
		answer, err := p.ask(ctx, func(id jsonrpc.ID) []byte {
			hello = jsonrpc.AppendRequest(nil, id, mcp.MethodInitialize, params)
			return hello
		})
		cancel()
		if err == nil && answer.Kind == jsonrpc.KindError {
			err = answer.Err()
		}
		if err != nil {
			c.fail(asAnswer(err))
			return
		}
		result = slices.Clone(answer.Result)
		p.mu.Lock()
		p.past.initialize, p.past.result = hello, result
		p.past.initialized = jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil)
		p.mu.Unlock()
		p.tell(p.past.initialized)
	}
	c.finish(jsonrpc.AppendResult(nil, c.id, result), c.bridged())
}
