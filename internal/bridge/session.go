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
type sharedSession struct {
	handshake    *sharedAttempt    // the handshake with the server, while that goes on
	level        mcp.LoggingLevel  // that the server has agreed to
	tasks        ownerMap[*call]   // the calls that have become tasks, by the task
	elicitations ownerMap[*client] // that are being visited, by the elicitation
}

// A member is a client of a connection.
type clientState struct {
	handshaking bool             // it has begun its handshake
	answered    bool             // it has the answer to that
	confirmed   bool             // it has confirmed the handshake
	ready       bool             // what it asks for goes to the server at once
	queue       []clientMessage  // what it has asked for before
	queueBytes  int              // of that
	lastActive  int64            // when it has said something last, in the order of ids
	logLevel    mcp.LoggingLevel // that it wants log messages from; LevelNone is for the server to say
}

// newSharedSession returns what legacy clients share that introduce themselves alike. l is the line, nil for a new one; a prober on it may have shaken hands for them.
func (b *Bridge) newSharedSession(s *sharedUpstream, up *upstream) *passthrough {
	p := newUnboundPassthrough(b, true)
	p.shared, p.session = s, new(sharedSession)
	if up == nil {
		p.upstream = b.newUpstream(p)
		b.wg.Go(p.upstream.run)
		return p
	}
	p.upstream = up
	probe, _ := up.currentHandler().(*eraProbe)
	up.setHandler(p, func() {
		if probe != nil && probe.initializeResult != nil {
			p.setHandshake(probe.initialize, probe.initializeResult)
		}
	})
	return p
}

// attach implements sharer.
func (p *passthrough) attach(cl *client, _ Era) forwarder {
	p.addClient(cl)
	return p
}

// close implements sharer.
func (p *passthrough) close() { p.upstream.close() }

// isUp implements sharer.
func (p *passthrough) isUp() bool { return p.upstream.isUp() }

// touch notes that a client has said something.
func (p *passthrough) touch(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state := p.clients[cl]; state != nil {
		state.lastActive = p.lastID.Add(1)
	}
}

// lastActiveLocked returns the client that has said something last, nil if there is none.
func (p *passthrough) lastActiveLocked() (last *client) {
	for cl, state := range p.clients {
		if (p.session == nil || state.answered) && (last == nil || state.lastActive > p.clients[last].lastActive) {
			last = cl
		}
	}
	return last
}

// initializedClientsLocked returns the clients that are told what concerns all.
func (p *passthrough) initializedClientsLocked() (all []*client) {
	for cl, state := range p.clients {
		if p.session == nil || state.answered {
			all = append(all, cl)
		}
	}
	return all
}

// sessionRequest takes a request of a client that has to have shaken hands before: what it asks for meanwhile waits.
func (p *passthrough) sessionRequest(c *call, frame []byte, m *jsonrpc.Message) {
	p.touch(c.client)
	isInitialize := c.method == mcp.MethodInitialize
	p.mu.Lock()
	state := p.clients[c.client]
	if state == nil {
		state = new(clientState) // which is about to be gone
	}
	state.handshaking = state.handshaking || isInitialize
	ready, waits := state.ready, state.handshaking && !state.ready && !isInitialize
	full := waits && state.queueBytes > 0 && state.queueBytes+len(frame) > p.b.opts.MaxQueue
	if waits && !full {
		state.queue = append(state.queue, clientMessage{c, frame, m})
		state.queueBytes += len(frame)
	}
	p.mu.Unlock()
	switch {
	case full:
		c.fail(clientError(errQueueFull))
	case waits:
	case !isInitialize && ready:
		p.forwardSessionRequest(c, frame, m)
	case !isInitialize:
		uninitialized{}.request(c, frame, m)
	case !p.b.spawn(func() { p.initialize(c, frame) }):
		c.fail(clientError(errUpstreamClosed))
	}
}

// forwardSessionRequest brings a request to the server, or deals with it, if it is about the session and the others must notice nothing.
func (p *passthrough) forwardSessionRequest(c *call, frame []byte, m *jsonrpc.Message) {
	switch c.method {
	case mcp.MethodSetLevel:
		frame = p.setLogLevel(c, frame, m)
	case mcp.MethodResourcesSubscribe:
		frame = p.sessionSubscribe(c, frame)
	case mcp.MethodResourcesUnsubscribe:
		frame = p.sessionUnsubscribe(c, frame, m)
	case mcp.MethodTasksResult:
		id, _ := m.Param("taskId")
		c.subject = stringOf(id)
	}
	if frame != nil {
		p.forwardRequest(c, frame, m)
	}
}

// sharedInitialize returns the initialize request of a client as the server gets it. Tasks of clients are not declared: their ids are each client's own.
func sharedInitialize(frame []byte, id jsonrpc.ID) []byte {
	frame = withID(frame, id)
	at := locate(frame, "params", "capabilities")
	if !locate(frame, "params", "capabilities", "tasks").found() {
		return frame
	}
	return splice(frame, at, era.Rewrite(nil, at.slice(frame), func(m *jsonwire.Members) []byte {
		if m.KeyIs("tasks") {
			return nil
		}
		return m.Value()
	}, nil))
}

// initialize answers initialize, which is the same of all clients. The first of them introduces all to the server.
func (p *passthrough) initialize(c *call, frame []byte) {
	for {
		p.mu.Lock()
		result, f := p.resume.initializeResult, p.session.handshake
		leader := result == nil && f == nil
		if leader {
			f = &sharedAttempt{done: make(chan struct{})}
			p.session.handshake = f
		}
		p.mu.Unlock()
		if result != nil {
			p.answerInitialize(c, result)
			return
		}
		if leader {
			p.handshake(f, c, frame)
		}
		select {
		case <-f.done:
		case <-c.client.ctx.Done():
			c.fail(asRPCError(context.Cause(c.client.ctx)))
			return
		}
		if f.err != nil {
			e := asRPCError(f.err)
			c.fail(e)
			for _, o := range p.takeQueue(c.client, false) {
				o.call.fail(e)
			}
			return
		}
	}
}

// handshake shakes hands with the server, for all that wait for f.
func (p *passthrough) handshake(f *sharedAttempt, c *call, frame []byte) {
	ctx, cancel := p.b.withConnectTimeout(c.client.ctx)
	defer cancel()
	var initialize []byte
	var answer *jsonrpc.Message
	err := p.upstream.unavailable()
	if err == nil {
		answer, err = p.roundTrip(ctx, func(id jsonrpc.ID) []byte {
			initialize = sharedInitialize(frame, id)
			return initialize
		})
	}
	if err == nil && answer.Kind == jsonrpc.KindError {
		err = answer.Err()
	}
	if err == nil {
		p.setHandshake(initialize, answer.Result)
	}
	p.mu.Lock()
	if c.client.ctx.Err() == nil { // else it says nothing of the server, and another client has to try
		f.err = err
	}
	p.session.handshake = nil
	p.mu.Unlock()
	close(f.done)
}

// setHandshake notes that hands were shaken with the server.
func (p *passthrough) setHandshake(initialize, result []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resume.initialize, p.resume.initializeResult = initialize, slices.Clone(result)
}

// clientInitialized notes that a client has confirmed its handshake, which it may do before it has the answer to it.
func (p *passthrough) clientInitialized(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state := p.clients[cl]; state != nil {
		state.confirmed = true
		p.sendInitializedLocked(state)
	}
}

// sendInitializedLocked tells the server that it can begin, once, as soon as there is a client that it may ask.
func (p *passthrough) sendInitializedLocked(state *clientState) {
	if state.answered && state.confirmed && p.resume.initialized == nil {
		p.resume.initialized = jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil)
		p.sendOwn(p.resume.initialized)
	}
}

// answerInitialize answers a client's handshake, and goes on with what it has asked for meanwhile.
func (p *passthrough) answerInitialize(c *call, result []byte) {
	p.finishInitialize(c, jsonrpc.AppendResult(nil, c.id, result))
	for {
		waiting := p.takeQueue(c.client, true)
		if len(waiting) == 0 {
			return
		}
		for _, o := range waiting {
			p.forwardSessionRequest(o.call, o.frame, o.m)
		}
	}
}

// finishInitialize answers a client's handshake. What the server says to all goes to this client too from the very moment on that it has the answer: hence the lock, under which finishing
// does not wait, since what is sent to a client that shares waits in its outbox.
func (p *passthrough) finishInitialize(c *call, answer []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.finish(answer, c.bridgeProvenance())
	if state := p.clients[c.client]; state != nil {
		state.answered = true
		p.sendInitializedLocked(state)
	}
}

// takeQueue returns what a client has asked for before it had shaken hands. If there is nothing, and it has, further requests do not wait.
func (p *passthrough) takeQueue(cl *client, initialized bool) []clientMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.clients[cl]
	if state == nil {
		return nil
	}
	list := state.queue
	state.queue, state.queueBytes = nil, 0
	state.handshaking, state.ready = initialized, initialized && len(list) == 0
	return list
}
