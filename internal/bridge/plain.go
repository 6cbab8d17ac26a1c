package bridge

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A plain is the party where both sides are of the same era. It forwards the bytes as they are, and knows of each message what it must to replace the
// server. It is the user of its line, or one of several on a trunk. Its methods may be called by many goroutines at once.
type passthrough struct {
	b          *Bridge
	upstream   *upstream
	rewriteIDs bool            // ids are replaced, because several clients use them
	lastID     *atomic.Int64   // that were given
	shared     *sharedUpstream // that the clients share; nil if the line goes with them
	session    *sharedSession  // that they are in, although each has shaken hands; nil if they have none, or each its own

	mu             sync.Mutex
	clients        map[*client]*clientState
	calls          map[string]*call          // by the key of the id that the server knows
	tokens         map[string]*call          // by the key of the progress token that the server knows
	serverRequests map[string]*serverRequest // questions of the server that were not answered
	ownCalls       map[string]chan *jsonrpc.Message
	resume         resumeState
	abandoned      []abandonedCall // that were given up, the oldest first
	closed         bool
}

// An ask is a request of the server's.
type serverRequest struct {
	client *client
	id     jsonrpc.ID
	out    jsonrpc.Sender
}

func (b *Bridge) newPassthrough(rewriteIDs bool) *passthrough {
	p := newUnboundPassthrough(b, rewriteIDs)
	p.upstream = b.newUpstream(p)
	b.wg.Go(p.upstream.run)
	return p
}

func newUnboundPassthrough(b *Bridge, rewriteIDs bool) *passthrough {
	return &passthrough{
		b: b, rewriteIDs: rewriteIDs, lastID: new(atomic.Int64),
		clients: map[*client]*clientState{}, calls: map[string]*call{}, tokens: map[string]*call{}, serverRequests: map[string]*serverRequest{}, ownCalls: map[string]chan *jsonrpc.Message{},
	}
}

// newPassthroughOn returns a plain that is the user of a line that there is already, for a client. It calls first, which may be nil, before it gets what the server has sent of itself.
func (b *Bridge) newPassthroughOn(cl *client, up *upstream, rewriteIDs bool, first func(*passthrough)) *passthrough {
	p := newUnboundPassthrough(b, rewriteIDs)
	p.upstream = up
	p.addClient(cl)
	up.setHandler(p, func() {
		if first != nil {
			first(p)
		}
	})
	return p
}

// addClient makes the client one of those whose messages are brought to the server.
func (p *passthrough) addClient(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients[cl] = new(clientState)
}

// request implements party.
func (p *passthrough) request(c *call, frame []byte, m *jsonrpc.Message) {
	if p.session != nil {
		p.sessionRequest(c, frame, m)
		return
	}
	p.forwardRequest(c, frame, m)
}

// forwardRequest brings a request to the server.
func (p *passthrough) forwardRequest(c *call, frame []byte, m *jsonrpc.Message) {
	p.mu.Lock()
	c.serverID = c.id
	if p.rewriteIDs {
		frame = p.rewriteLocked(c, frame, m)
	} else if token, ok := tokenOf(m); ok {
		c.tokenKey = idKey(token)
	}
	key := idKey(c.serverID)
	switch {
	case p.closed:
		p.mu.Unlock()
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the connection to the server is closed"))
		return
	case p.calls[key] != nil:
		p.mu.Unlock()
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the id is that of another request which is under way"))
		return
	}
	p.calls[key] = c
	if c.tokenKey != "" {
		p.tokens[c.tokenKey] = c
	}
	p.resume.requestSent(c, frame, m)
	if c.modern {
		c.logLevel = requestedLogLevel(m)
	}
	if p.b.opts.HTTP && c.modern && c.method == mcp.MethodToolsCall && len(frame) <= maxRetryBytes {
		c.retryFrame = frame
	}
	if c.modern && c.method == mcp.MethodToolsCall && len(frame) <= maxReplayBytes {
		c.taskFrame = frame
	}
	if c.method == mcp.MethodSubscriptionsListen {
		c.listenFrame = frame
	}
	c.startTimer(func() { p.expire(c) })
	it := queuedMessage{frame: frame, id: c.serverID, from: provenance{rec: c.rec, event: c.event, rule: p.rule()}}
	err := p.enqueueLocked(c, it)
	p.mu.Unlock()
	if err == errQueueFull {
		if err = p.waitAndSend(c, it); err == nil {
			p.mu.Lock()
			c.queued = true
			p.mu.Unlock()
		}
	}
	if (err != nil || c.done.Load()) && p.giveUp(c) {
		if err == nil { // it was given up meanwhile
			p.sendCancellation(c, "the client is gone")
			return
		}
		c.fail(clientError(err))
	}
}

// waitAndSend gives a request to the line as soon as there is room for it, unless the call has been answered by then.
func (p *passthrough) waitAndSend(c *call, it queuedMessage) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.cancelSend.Store(&cancel)
	if c.done.Load() {
		cancel()
	}
	return p.upstream.send(ctx, it)
}

// enqueueLocked gives a request to the line, unless too much waits there. It is done with the lock held, so that who says that the connection has ended knows which requests
// that is of no interest to, because they have not been sent.
func (p *passthrough) enqueueLocked(c *call, it queuedMessage) (err error) {
	if p.b.opts.HTTP && c.method == mcp.MethodInitialize { // what follows has no session before that was answered
		p.upstream.setPaused(true)
		p.upstream.sendUrgent(it)
	} else {
		err = p.upstream.trySend(it)
	}
	c.queued = err == nil
	return err
}

// removeCall takes a call out of those that are open, and reports whether it was.
func (p *passthrough) removeCall(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.removeCallLocked(c)
}

// giveUp is forget for a call whose answer nobody waits for any more.
func (p *passthrough) giveUp(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.giveUpLocked(c)
}

func (p *passthrough) removeCallLocked(c *call) bool {
	key := idKey(c.serverID)
	if p.calls[key] != c {
		return false
	}
	delete(p.calls, key)
	if p.b.opts.HTTP && c.method == mcp.MethodInitialize {
		defer p.upstream.setPaused(false)
	}
	if p.tokens[c.tokenKey] == c {
		delete(p.tokens, c.tokenKey)
	}
	return true
}

// expire gives a call up for which nothing was heard for too long.
func (p *passthrough) expire(c *call) {
	p.mu.Lock()
	asksClient := false
	for _, a := range p.serverRequests {
		asksClient = asksClient || a.client == c.client
	}
	if asksClient && p.calls[idKey(c.serverID)] == c { // it may be the user whom it waits for
		c.resetTimer()
		p.mu.Unlock()
		return
	}
	open := p.giveUpLocked(c)
	p.mu.Unlock()
	if open {
		p.sendCancellation(c, "timeout")
		c.expire()
		p.upstream.checkAlive(c.began)
	}
}

// sendCancellation tells the server that a call, which has been forgotten, is not wanted any more.
func (p *passthrough) sendCancellation(c *call, why string) {
	if unsent := p.upstream.withdraw(c.serverID); unsent || c.method == mcp.MethodInitialize {
		return
	}
	p.sendOwn(cancellation(c.serverID, why))
}

// sendOwn sends the server a notification of the bridge's own.
func (p *passthrough) sendOwn(frame []byte) {
	p.upstream.sendUrgent(queuedMessage{frame: frame})
}

// notification implements party.
func (p *passthrough) notification(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	switch string(m.Method) {
	case mcp.NotificationCancelled:
		var ok bool
		if frame, ok = p.handleCancellation(cl, frame, m); !ok {
			return
		}
	case mcp.NotificationInitialized:
		if p.session != nil {
			p.clientInitialized(cl)
			return
		}
		p.mu.Lock()
		p.resume.initialized = slices.Clone(frame)
		p.mu.Unlock()
	}
	p.touch(cl)
	p.forward(cl, frame, event)
}

// forward sends the server what wants no answer.
func (p *passthrough) forward(cl *client, frame []byte, event uint64) {
	it := queuedMessage{frame: frame, from: provenance{rec: cl.rec, event: event, rule: p.rule()}}
	err := p.upstream.trySend(it)
	if err == errQueueFull { // nobody else can end the wait for a server that takes nothing
		ctx, cancel := p.b.withConnectTimeout(cl.ctx)
		err = p.upstream.send(ctx, it)
		cancel()
	}
	if err != nil {
		p.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// handleCancellation acts on a cancellation, and returns it as the server has to have it, unless there is nothing to be cancelled.
func (p *passthrough) handleCancellation(cl *client, frame []byte, m *jsonrpc.Message) ([]byte, bool) {
	id, ok := m.Param("requestId")
	if !ok {
		return frame, !p.rewriteIDs
	}
	p.mu.Lock()
	c := p.callByClientIDLocked(cl, id)
	if c == nil || c.method == mcp.MethodInitialize {
		p.mu.Unlock() // it is late; or over HTTP, where each message comes by itself, it has overtaken its request, and the server would not know what it means either
		return nil, false
	}
	p.giveUpLocked(c)
	p.mu.Unlock()
	if c.rewritten() {
		frame = splice(frame, locate(frame, "params", "requestId"), c.serverID)
	}
	c.finish(nil, provenance{})
	return frame, !p.upstream.withdraw(c.serverID)
}

// response implements party.
func (p *passthrough) response(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	p.mu.Lock()
	a := p.serverRequests[idKey(m.ID)]
	if a == nil || a.client != cl {
		p.mu.Unlock()
		p.b.metrics.strayResponses.Add(1)
		return
	}
	delete(p.serverRequests, idKey(m.ID))
	p.mu.Unlock()
	p.forward(cl, frame, event)
}

// abandon implements party.
func (p *passthrough) abandon(c *call) {
	if p.giveUp(c) {
		p.sendCancellation(c, "the client is gone")
	}
}

// removeClient implements party.
func (p *passthrough) removeClient(cl *client) {
	p.mu.Lock()
	delete(p.clients, cl)
	empty := p.shared == nil && len(p.clients) == 0
	var calls []*call
	for _, c := range p.calls {
		if c.client == cl {
			calls = append(calls, c)
			p.giveUpLocked(c)
		}
	}
	uris := p.resume.removeClient(cl)
	var cleanup []func()
	if p.session != nil {
		cleanup = p.detachLocked(cl)
	}
	p.mu.Unlock()
	for _, c := range calls {
		p.sendCancellation(c, "the client is gone")
	}
	if empty {
		p.upstream.close()
		return
	}
	for _, uri := range uris {
		p.unsubscribe(uri)
	}
	for _, do := range cleanup {
		do()
	}
	if p.shared != nil {
		p.shared.release()
	}
}

// received implements user.
func (p *passthrough) received(frame []byte, m *jsonrpc.Message, from origin) {
	event := from.rec.recordMessage(capture.ToClient, frame)
	switch m.Kind {
	case jsonrpc.KindRequest:
		p.handleServerRequest(frame, m, from.callID, event)
	case jsonrpc.KindNotification:
		p.handleNotification(frame, m, from.callID, event)
	default:
		p.handleResponse(frame, m, event)
	}
}

// handleResponse hands a response to who waits for it.
func (p *passthrough) handleResponse(frame []byte, m *jsonrpc.Message, event uint64) {
	key := idKey(m.ID)
	p.mu.Lock()
	if own := p.ownCalls[key]; own != nil {
		delete(p.ownCalls, key)
		p.mu.Unlock()
		own <- m // it has room
		return
	}
	c := p.calls[key]
	if c == nil {
		task, meta := p.lateTaskLocked(m)
		p.mu.Unlock()
		p.b.metrics.strayResponses.Add(1)
		if task != "" {
			p.b.spawn(func() { p.cancelTask(task, meta) })
		}
		return
	}
	if p.headerMismatchLocked(c, m) {
		p.mu.Unlock()
		p.b.wg.Go(func() { p.retryWithHeaders(c, frame, event) })
		return
	}
	p.removeCallLocked(c)
	p.resume.responseReceived(c, m)
	if p.session != nil {
		p.noteResponseLocked(c, m)
	}
	p.mu.Unlock()
	if c.rewritten() {
		frame = restoreIDs(frame, c)
	}
	c.finish(frame, p.provenance(event))
}

// callFailed implements user.
func (p *passthrough) callFailed(id jsonrpc.ID, err error) {
	e := clientError(err)
	p.upstream.rec.note(e.Message)
	p.mu.Lock()
	c := p.calls[idKey(id)]
	own := p.ownCalls[idKey(id)]
	delete(p.ownCalls, idKey(id))
	if c != nil && p.retrySubscriptionLocked(c, err) {
		c = nil
	} else if c != nil {
		p.removeCallLocked(c)
	}
	p.mu.Unlock()
	switch {
	case own != nil:
		own <- errorMessage(id, e)
	case c != nil:
		c.fail(e)
	}
}

// errorMessage is a response that is an error.
func errorMessage(id jsonrpc.ID, e *jsonrpc.Error) *jsonrpc.Message {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(jsonrpc.AppendError(nil, id, e, false), m, 0); err != nil {
		m.Kind = jsonrpc.KindError // the error object is missing then, which Err says
	}
	return m
}

// disconnected implements user.
func (p *passthrough) disconnected(err error, unsent []queuedMessage) {
	closed := err == errUpstreamClosed
	unsentIDs := map[string]bool{}
	if !closed {
		for _, it := range unsent {
			if it.id != nil {
				unsentIDs[idKey(it.id)] = true
			}
		}
		p.upstream.requeue(unsent)
	}
	p.mu.Lock()
	p.closed = closed
	var fail []*call
	for key, c := range p.calls {
		if !unsentIDs[key] && (closed || c.listenFrame == nil && c.queued && !p.upstream.isQueued(c.serverID)) {
			fail = append(fail, c)
			p.removeCallLocked(c)
		}
	}
	serverRequests := slices.Collect(maps.Values(p.serverRequests))
	own := p.ownCalls
	p.ownCalls = map[string]chan *jsonrpc.Message{}
	clear(p.serverRequests)
	p.resume.disconnected()
	p.mu.Unlock()
	e := clientError(err)
	for _, c := range own {
		c <- errorMessage(nil, e)
	}
	for _, c := range fail {
		c.fail(e)
	}
	for _, a := range serverRequests {
		a.client.send(a.out, cancellation(a.id, "the server is gone"), provenance{})
	}
}

// wantsConnection implements user.
func (p *passthrough) wantsConnection() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.clients) == 0 {
		return false
	}
	if p.resume.hasHandshake() {
		return true
	}
	for _, c := range p.calls {
		if c.listenFrame != nil {
			return true
		}
	}
	return false
}
