package bridge

import (
	"context"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A session is one with a legacy server that several clients are in, each of which takes it for its own. It is guarded by the lock of its plain.
type session struct {
	shaking *finding         // the handshake with the server, while that goes on
	level   mcp.LoggingLevel // that the server has agreed to
	tasks   recall[*call]    // the calls that have become tasks, by the task
	pages   recall[*client]  // that are being visited, by the elicitation
}

// A member is a client of a connection.
type member struct {
	asked   bool             // it has begun its handshake
	told    bool             // it has the answer to that
	sworn   bool             // it has confirmed the handshake
	ready   bool             // what it asks for goes to the server at once
	waiting []opening        // what it has asked for before
	bytes   int              // of that
	heard   int64            // when it has said something last, in the order of ids
	level   mcp.LoggingLevel // that it wants log messages from; LevelNone is for the server to say
}

// newSession returns what legacy clients share that introduce themselves alike. l is the line, nil for a new one; a prober on it may have shaken hands for them.
func (b *Bridge) newSession(s *commons, l *line) *plain {
	p := newPlain(b, true)
	p.commons, p.session = s, new(session)
	if l == nil {
		p.line = b.prepareLine(p)
		b.wg.Go(p.line.run)
		return p
	}
	p.line = l
	u, _ := l.user().(*prober)
	l.hand(p, func() {
		if u != nil && u.welcome != nil {
			p.shaken(u.hello, u.welcome)
		}
	})
	return p
}

// admit implements sharer.
func (p *plain) admit(cl *client, _ Era) party {
	p.join(cl)
	return p
}

// end implements sharer.
func (p *plain) end() { p.line.close() }

// isUp implements sharer.
func (p *plain) isUp() bool { return p.line.isUp() }

// heard notes that a client has said something.
func (p *plain) heard(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.members[cl]; one != nil {
		one.heard = p.ids.Add(1)
	}
}

// lastHeardLocked returns the client that has said something last, nil if there is none.
func (p *plain) lastHeardLocked() (last *client) {
	for cl, one := range p.members {
		if (p.session == nil || one.told) && (last == nil || one.heard > p.members[last].heard) {
			last = cl
		}
	}
	return last
}

// toldLocked returns the clients that are told what concerns all.
func (p *plain) toldLocked() (all []*client) {
	for cl, one := range p.members {
		if p.session == nil || one.told {
			all = append(all, cl)
		}
	}
	return all
}

// inSession takes a request of a client that has to have shaken hands before: what it asks for meanwhile waits.
func (p *plain) inSession(c *call, frame []byte, m *jsonrpc.Message) {
	p.heard(c.client)
	introduces := c.method == mcp.MethodInitialize
	p.mu.Lock()
	one := p.members[c.client]
	if one == nil {
		one = new(member) // which is about to be gone
	}
	one.asked = one.asked || introduces
	ready, waits := one.ready, one.asked && !one.ready && !introduces
	full := waits && one.bytes > 0 && one.bytes+len(frame) > p.b.opts.MaxQueue
	if waits && !full {
		one.waiting = append(one.waiting, opening{c, frame, m})
		one.bytes += len(frame)
	}
	p.mu.Unlock()
	switch {
	case full:
		c.fail(reason(errFull))
	case waits:
	case !introduces && ready:
		p.ofSession(c, frame, m)
	case !introduces:
		unintroduced{}.request(c, frame, m)
	case !p.b.spawn(func() { p.introduce(c, frame) }):
		c.fail(reason(errLineClosed))
	}
}

// ofSession brings a request to the server, or deals with it, if it is about the session and the others must notice nothing.
func (p *plain) ofSession(c *call, frame []byte, m *jsonrpc.Message) {
	switch c.method {
	case mcp.MethodSetLevel:
		frame = p.levelFor(c, frame, m)
	case mcp.MethodResourcesSubscribe:
		frame = p.subscribes(c, frame)
	case mcp.MethodResourcesUnsubscribe:
		frame = p.unsubscribes(c, frame, m)
	case mcp.MethodTasksResult:
		id, _ := m.Param("taskId")
		c.about = text(id)
	}
	if frame != nil {
		p.carry(c, frame, m)
	}
}

// greeting returns the initialize request of a client as the server gets it. Tasks of clients are not declared: their ids are each client's own.
func greeting(frame []byte, id jsonrpc.ID) []byte {
	frame = withID(frame, id)
	at := locate(frame, "params", "capabilities")
	if !locate(frame, "params", "capabilities", "tasks").found() {
		return frame
	}
	return splice(frame, at, era.Rewrite(nil, at.of(frame), func(m *jsonwire.Members) []byte {
		if m.KeyIs("tasks") {
			return nil
		}
		return m.Value()
	}, nil))
}

// introduce answers initialize, which is the same of all clients. The first of them introduces all to the server.
func (p *plain) introduce(c *call, frame []byte) {
	for {
		p.mu.Lock()
		result, f := p.past.result, p.session.shaking
		lead := result == nil && f == nil
		if lead {
			f = &finding{done: make(chan struct{})}
			p.session.shaking = f
		}
		p.mu.Unlock()
		if result != nil {
			p.welcome(c, result)
			return
		}
		if lead {
			p.shakeHands(f, c, frame)
		}
		select {
		case <-f.done:
		case <-c.client.ended.Done():
			c.fail(asAnswer(context.Cause(c.client.ended)))
			return
		}
		if f.err != nil {
			e := asAnswer(f.err)
			c.fail(e)
			for _, o := range p.waiting(c.client, false) {
				o.call.fail(e)
			}
			return
		}
	}
}

// shakeHands shakes hands with the server, for all that wait for f.
func (p *plain) shakeHands(f *finding, c *call, frame []byte) {
	ctx, cancel := p.b.whileConnecting(c.client.ended)
	defer cancel()
	var hello []byte
	var answer *jsonrpc.Message
	err := p.line.down()
	if err == nil {
		answer, err = p.ask(ctx, func(id jsonrpc.ID) []byte {
			hello = greeting(frame, id)
			return hello
		})
	}
	if err == nil && answer.Kind == jsonrpc.KindError {
		err = answer.Err()
	}
	if err == nil {
		p.shaken(hello, answer.Result)
	}
	p.mu.Lock()
	if c.client.ended.Err() == nil { // else it says nothing of the server, and another client has to try
		f.err = err
	}
	p.session.shaking = nil
	p.mu.Unlock()
	close(f.done)
}

// shaken notes that hands were shaken with the server.
func (p *plain) shaken(hello, result []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.past.initialize, p.past.result = hello, slices.Clone(result)
}

// confirm notes that a client has confirmed its handshake, which it may do before it has the answer to it.
func (p *plain) confirm(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.members[cl]; one != nil {
		one.sworn = true
		p.beginLocked(one)
	}
}

// beginLocked tells the server that it can begin, once, as soon as there is a client that it may ask.
func (p *plain) beginLocked(one *member) {
	if one.told && one.sworn && p.past.initialized == nil {
		p.past.initialized = jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil)
		p.tell(p.past.initialized)
	}
}

// welcome answers a client's handshake, and goes on with what it has asked for meanwhile.
func (p *plain) welcome(c *call, result []byte) {
	p.greet(c, jsonrpc.AppendResult(nil, c.id, result))
	for {
		waiting := p.waiting(c.client, true)
		if len(waiting) == 0 {
			return
		}
		for _, o := range waiting {
			p.ofSession(o.call, o.frame, o.m)
		}
	}
}

// greet answers a client's handshake. What the server says to all goes to this client too from the very moment on that it has the answer: hence the lock, under which finishing
// does not wait, since what is sent to a client that shares waits in its outbox.
func (p *plain) greet(c *call, answer []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.finish(answer, c.bridged())
	if one := p.members[c.client]; one != nil {
		one.told = true
		p.beginLocked(one)
	}
}

// waiting returns what a client has asked for before it had shaken hands. If there is nothing, and it has, further requests do not wait.
func (p *plain) waiting(cl *client, shaken bool) []opening {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.members[cl]
	if one == nil {
		return nil
	}
	list := one.waiting
	one.waiting, one.bytes = nil, 0
	one.asked, one.ready = shaken, shaken && len(list) == 0
	return list
}
