package bridge

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/resume"
	"mcpwire/internal/proxy/translate"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A passthrough is the codec if both sides are of the same era. It forwards the bytes of messages.
// It replaces ids if several clients use the upstream. Its methods may be called by many goroutines
// at once.
type passthrough struct {
	b        *Bridge
	upstream *upstream
	// rewriteIDs replaces ids because several clients use the upstream.
	rewriteIDs bool
	// shared is the upstream that clients share; nil if it is dedicated.
	shared *sharedUpstream
	// session is the legacy session that the clients share; nil if each has its own or none.
	session *sharedSession

	mu      sync.Mutex
	clients map[*client]*clientState
	// calls holds the pending calls by jsonrpc.ID.Key of the upstream's id.
	calls map[string]*call
	// tokens holds calls by jsonrpc.ID.Key of the upstream's progress token.
	tokens map[string]*call
	// serverRequests holds the pending requests of the server.
	serverRequests map[string]*serverRequest
	// principals has the principals of the clients and of their calls.
	principals translate.Principals
	closed     bool
}

// A serverRequest is a pending request of the server.
type serverRequest struct {
	client *client
	id     jsonrpc.ID
	out    rpc.Sender
}

// newPassthrough returns a passthrough on up, which is not its codec yet.
func newPassthrough(up *upstream, rewriteIDs bool) *passthrough {
	if rewriteIDs {
		up.own.chooseAllIDs()
	}
	return &passthrough{
		b: up.b, upstream: up, rewriteIDs: rewriteIDs,
		clients: map[*client]*clientState{}, calls: map[string]*call{}, tokens: map[string]*call{}, serverRequests: map[string]*serverRequest{},
	}
}

func (p *passthrough) addClient(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients[cl] = new(clientState)
}

func (p *passthrough) request(c *call, frame []byte, m *jsonrpc.Message) {
	if p.session != nil {
		p.session.request(c, frame, m)
		return
	}
	p.forwardRequest(c, frame, m)
}

// forwardRequest sends a request to the server.
func (p *passthrough) forwardRequest(c *call, frame []byte, m *jsonrpc.Message) {
	p.mu.Lock()
	c.serverID = c.id
	if p.rewriteIDs {
		frame = p.rewriteLocked(c, frame, m)
	} else if token, ok := tokenOf(m); ok {
		c.tokenKey = jsonrpc.ID(token).Key()
	}
	key := c.serverID.Key()
	switch {
	case p.closed:
		p.mu.Unlock()
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the connection to the server is closed"))
		return
	case p.calls[key] != nil:
		p.mu.Unlock()
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "another request with this id is in flight"))
		return
	}
	p.calls[key] = c
	if era.ServerMayAsk(c.method) {
		p.principals.Use(c.principalID)
	}
	if c.tokenKey != "" {
		p.tokens[c.tokenKey] = c
	}
	if !c.modern && len(frame) <= maxReplayBytes {
		p.upstream.resume.Sent(c.serverID, c.client, m, frame)
	}
	if c.modern {
		c.logLevel = requestedLogLevel(m)
	}
	if c.method == mcp.MethodToolsCall {
		c.wantsTask = !c.modern && p.wantsTask(m)
		if c.modern && len(frame) <= maxReplayBytes {
			c.taskFrame = frame
		}
	}
	if c.method == mcp.MethodSubscriptionsListen {
		c.listenFrame = frame
	}
	c.startTimer(p)
	it := queuedMessage{frame: frame, id: c.serverID, from: Provenance{rec: c.rec, event: c.event, rule: p.rule()}, repeatable: c.method == mcp.MethodDiscover}
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
		if err == nil { // it was given up in the meantime
			p.sendCancellation(c, "the client disconnected")
			return
		}
		c.fail(c.client.b.opts.clientError(err))
	}
}

// waitAndSend queues a request when there is room, unless the call ends before that.
func (p *passthrough) waitAndSend(c *call, it queuedMessage) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.cancelSend.Store(&cancel)
	if c.done.Load() {
		cancel()
	}
	return p.upstream.send(ctx, it)
}

// enqueueLocked queues a request if there is room. It needs the lock, so that disconnected knows
// which requests were not sent and do not fail.
func (p *passthrough) enqueueLocked(c *call, it queuedMessage) (err error) {
	// Until initialize is answered, other requests have no session.
	if p.b.opts.HTTP && c.method == mcp.MethodInitialize {
		p.upstream.queue.setPaused(true)
		it.urgent = true
		err = p.upstream.sendUrgent(it)
	} else {
		err = p.upstream.trySend(it)
	}
	c.queued = err == nil
	return err
}

// removeCall removes a pending call. It reports if the call was pending.
func (p *passthrough) removeCall(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.removeCallLocked(c)
}

// giveUp is removeCall for a call whose response nobody waits for.
func (p *passthrough) giveUp(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.giveUpLocked(c)
}

func (p *passthrough) removeCallLocked(c *call) bool {
	key := c.serverID.Key()
	if p.calls[key] != c {
		return false
	}
	delete(p.calls, key)
	p.upstream.resume.Forget(c.serverID)
	p.upstream.retries.forget(c.serverID)
	if p.b.opts.HTTP && c.method == mcp.MethodInitialize {
		defer p.upstream.queue.setPaused(false)
	}
	if p.tokens[c.tokenKey] == c {
		delete(p.tokens, c.tokenKey)
	}
	return true
}

// expire gives up a call that timed out.
func (p *passthrough) expire(c *call) {
	p.mu.Lock()
	waitsForClient := false
	for _, a := range p.serverRequests {
		waitsForClient = waitsForClient || a.client == c.client
	}
	if waitsForClient && p.calls[c.serverID.Key()] == c { // the call may wait for the user
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

// sendCancellation notifies the server that a removed call is canceled.
func (p *passthrough) sendCancellation(c *call, why string) {
	if c.method == mcp.MethodInitialize || c.wantsTask {
		p.upstream.queue.withdraw(c.serverID)
		return
	}
	p.upstream.cancelCall(c.serverID, queuedMessage{frame: cancellation(c.serverID, why)})
}

func (p *passthrough) notification(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	switch string(m.Method) {
	case mcp.NotificationCancelled:
		var ok bool
		if frame, ok = p.handleCancellation(cl, frame, m); !ok {
			return
		}
	case mcp.NotificationInitialized:
		if p.session != nil {
			p.session.clientInitialized(cl)
			return
		}
		p.upstream.resume.Initialized(slices.Clone(frame))
	}
	p.touch(cl)
	p.forward(cl, frame, event)
}

// forward sends the server a message that needs no response.
func (p *passthrough) forward(cl *client, frame []byte, event uint64) {
	it := queuedMessage{frame: frame, from: Provenance{rec: cl.rec, event: event, rule: p.rule()}}
	err := p.upstream.trySend(it)
	// Nobody can cancel this wait, so bound it by ConnectTimeout.
	if err == errQueueFull {
		ctx, cancel := p.b.withConnectTimeout(cl.ctx)
		err = p.upstream.send(ctx, it)
		cancel()
	}
	if err != nil {
		p.upstream.logDropped(err)
	}
}

// handleCancellation handles a cancellation. It returns the message to forward, and false if there
// is nothing to forward.
func (p *passthrough) handleCancellation(cl *client, frame []byte, m *jsonrpc.Message) ([]byte, bool) {
	id, ok := m.Param("requestId")
	if !ok {
		return frame, !p.rewriteIDs
	}
	p.mu.Lock()
	c := p.callByClientIDLocked(cl, id)
	if c == nil || c.method == mcp.MethodInitialize {
		p.mu.Unlock() // too late, or over HTTP ahead of its request: the server could not use it
		return nil, false
	}
	p.giveUpLocked(c)
	p.mu.Unlock()
	if c.rewritten() {
		frame = jsonedit.Splice(frame, jsonedit.Locate(frame, "params", "requestId"), c.serverID)
	}
	c.finish(nil, Provenance{})
	return frame, !p.upstream.queue.withdraw(c.serverID) && !c.wantsTask
}

func (p *passthrough) response(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	p.mu.Lock()
	a := p.serverRequests[m.ID.Key()]
	if a == nil || a.client != cl {
		p.mu.Unlock()
		p.b.metrics.unmatchedResponses.Add(1)
		return
	}
	delete(p.serverRequests, m.ID.Key())
	p.mu.Unlock()
	p.forward(cl, frame, event)
}

func (p *passthrough) abandon(c *call) {
	if p.giveUp(c) {
		p.sendCancellation(c, "the client disconnected")
	}
}

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
	uris := p.upstream.resume.RemoveOwner(cl)
	var cleanup []func()
	if p.session != nil {
		cleanup = p.session.detachLocked(cl)
	}
	p.mu.Unlock()
	for _, c := range calls {
		p.sendCancellation(c, "the client disconnected")
	}
	if empty {
		p.upstream.close()
		return
	}
	for _, uri := range uris {
		params := append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
		p.upstream.replay(jsonrpc.AppendRequest(nil, jsonrpc.IntID(0), mcp.MethodResourcesUnsubscribe, params))
	}
	for _, do := range cleanup {
		do()
	}
	if p.shared != nil {
		p.shared.release()
	}
}

func (p *passthrough) received(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		p.handleServerRequest(frame, m, on, event)
	case jsonrpc.KindNotification:
		p.handleNotification(frame, m, on, event)
	default:
		p.handleResponse(frame, m, event)
	}
}

// handleResponse sends a response to the caller.
func (p *passthrough) handleResponse(frame []byte, m *jsonrpc.Message, event uint64) {
	key := m.ID.Key()
	p.mu.Lock()
	c := p.calls[key]
	if c == nil {
		for _, other := range p.calls {
			if rpc.SameText(other.serverID, m.ID) && p.removeCallLocked(other) {
				p.upstream.queue.answered(other.serverID)
				c = other
				break
			}
		}
		p.mu.Unlock()
		if c != nil {
			c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's response has the id %.100s, want %s", m.ID, c.serverID))
			return
		}
		p.upstream.dropUnmatched(m)
		return
	}
	p.upstream.resume.Answered(m)
	p.removeCallLocked(c)
	if p.session != nil {
		p.session.noteResponseLocked(c, m)
	}
	p.mu.Unlock()
	if c.rewritten() {
		frame = restoreIDs(frame, c)
	}
	c.finishParsed(frame, m.Kind == jsonrpc.KindError, p.provenance(event))
}

func (p *passthrough) callFailed(id jsonrpc.ID, err error) {
	p.mu.Lock()
	c := p.calls[id.Key()]
	if c != nil && p.retrySubscriptionLocked(c, err) {
		c = nil
	} else if c != nil {
		p.noteGivenUpLocked(c)
		p.removeCallLocked(c)
	}
	p.mu.Unlock()
	if c != nil {
		c.fail(c.client.b.opts.clientError(err))
	}
}

// errorMessage returns an error response as a message.
func errorMessage(id jsonrpc.ID, e *jsonrpc.Error) *jsonrpc.Message {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(jsonrpc.AppendError(nil, id, e, false), m, 0); err != nil {
		m.Kind = jsonrpc.KindError // Err then says that the error object is missing
	}
	return m
}

func (p *passthrough) disconnected(err error, unsent []queuedMessage) {
	closed := err == errUpstreamClosed
	unsentIDs := map[string]bool{}
	if !closed {
		for _, it := range unsent {
			if it.id != nil {
				unsentIDs[it.id.Key()] = true
			}
		}
		p.upstream.queue.pushFront(unsent)
	}
	p.mu.Lock()
	p.closed = closed
	p.principals.Lost()
	var fail []*call
	for key, c := range p.calls {
		if !unsentIDs[key] && (closed || c.listenFrame == nil && c.queued && !p.upstream.queue.isQueued(c.serverID)) {
			fail = append(fail, c)
			p.removeCallLocked(c)
		}
	}
	serverRequests := slices.Collect(maps.Values(p.serverRequests))
	clear(p.serverRequests)
	p.mu.Unlock()
	e := p.b.opts.clientError(err)
	for _, c := range fail {
		c.fail(e)
	}
	for _, a := range serverRequests {
		a.client.send(a.out, cancellation(a.id, "the connection to the server ended"), Provenance{})
	}
}

func (p *passthrough) wantsConnection() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.clients) == 0 {
		return false
	}
	if _, result := p.upstream.resume.Handshake(); result != nil {
		return true
	}
	for _, c := range p.calls {
		if c.listenFrame != nil {
			return true
		}
	}
	return false
}

// close implements codec. The end of the upstream fails what is pending.
func (p *passthrough) close() {}

// handleServerRequest sends a request of the server to the client that it is for.
func (p *passthrough) handleServerRequest(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	if p.session != nil && p.session.answerOrRefuse(m) {
		return
	}
	p.mu.Lock()
	cl, out, known := p.recipientLocked(on, m)
	if !known {
		p.mu.Unlock()
		p.upstream.refuse(m.ID, translate.ErrUnknownCause)
		return
	}
	if cl == nil || p.serverRequests[m.ID.Key()] != nil || len(p.serverRequests) >= p.b.opts.MaxCalls {
		p.mu.Unlock()
		p.upstream.refuse(m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "no client can handle the request, or it has too many pending"))
		return
	}
	a := &serverRequest{client: cl, id: m.ID, out: out}
	p.serverRequests[m.ID.Key()] = a
	p.session.noteServerRequestLocked(cl, m)
	p.mu.Unlock()
	err := cl.send(out, frame, p.provenance(event))
	if err != nil && out != nil {
		a.out = nil
		err = cl.send(nil, frame, p.provenance(event))
	}
	if err != nil {
		p.mu.Lock()
		delete(p.serverRequests, m.ID.Key())
		p.mu.Unlock()
		p.upstream.refuse(m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "could not send the request to the client: %v", err))
	}
}

// recipientLocked returns the client for a request of the server: by the call on whose stream it
// came, by the task that it names, by the latest call that may cause it, or the last active client.
// It reports false if the request may belong to another principal.
func (p *passthrough) recipientLocked(on jsonrpc.ID, m *jsonrpc.Message) (cl *client, out rpc.Sender, known bool) {
	if c := p.calls[on.Key()]; c != nil {
		return c.client, c.out, true
	}
	if cl := p.session.relatedTaskClientLocked(m); cl != nil {
		return cl, nil, true
	}
	var last *call
	pending := map[string]bool{}
	for _, c := range p.calls {
		if !era.ServerMayAsk(c.method) {
			continue
		}
		pending[c.principalID] = true
		if last == nil || c.seq > last.seq {
			last = c
		}
	}
	if _, known = p.principals.Cause(pending, time.Now()); !known {
		return nil, nil, false
	}
	if last != nil {
		return last.client, last.out, true
	}
	return p.lastActiveLocked(), nil, true
}

// handleNotification sends a notification of the server to the client that it is for, or to all.
func (p *passthrough) handleNotification(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		token, _ := m.Param(mcp.MetaProgressToken)
		p.mu.Lock()
		c := p.tokens[jsonrpc.ID(token).Key()]
		if c != nil {
			c.resetTimer()
		}
		p.mu.Unlock()
		if c != nil && c.clientToken != nil {
			frame = jsonedit.Splice(frame, jsonedit.Locate(frame, "params", mcp.MetaProgressToken), c.clientToken)
		}
		if c != nil || !p.rewriteIDs { // an unknown token belongs to a call that was answered
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
	c := p.calls[on.Key()]
	p.mu.Unlock()
	switch {
	case p.session != nil:
		p.session.forwardNotification(c, frame, m, event)
	case c != nil:
		p.sendForCall(c, frame, event)
	default:
		p.forwardUnaddressed(frame, m, event)
	}
}

// forwardUnaddressed forwards a message that does not name its call. A single client gets all of
// them.
func (p *passthrough) forwardUnaddressed(frame []byte, m *jsonrpc.Message, event uint64) {
	switch open := p.candidateCalls(m); {
	case len(open) == 1:
		p.sendForCall(open[0], frame, event)
	case len(open) > 1, p.shared != nil:
		p.upstream.noteUnroutable(event)
	default:
		p.broadcast(frame, event)
	}
}

// sendForCall sends a message to the client of a call, or to the only client if c is nil.
func (p *passthrough) sendForCall(c *call, frame []byte, event uint64) {
	if c == nil {
		p.broadcast(frame, event)
		return
	}
	out := c.out
	if c.done.Load() { // a task continues after its call
		out = nil
	}
	c.client.logDropped(c.client.send(out, frame, p.provenance(event)))
}

// broadcast sends a message to all clients.
func (p *passthrough) broadcast(frame []byte, event uint64) {
	p.mu.Lock()
	all := p.initializedClientsLocked()
	p.mu.Unlock()
	p.sendToClients(all, frame, event)
}

// handleServerCancellation handles a cancellation by the server. It cancels a request of the
// server, or ends a subscription.
func (p *passthrough) handleServerCancellation(frame []byte, m *jsonrpc.Message, event uint64) {
	id, _ := m.Param("requestId")
	p.mu.Lock()
	a, c := p.serverRequests[jsonrpc.ID(id).Key()], p.calls[jsonrpc.ID(id).Key()]
	delete(p.serverRequests, jsonrpc.ID(id).Key())
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
			frame = jsonedit.Splice(frame, jsonedit.Locate(frame, "params", "requestId"), c.id)
		}
		p.sendForCall(c, frame, event)
		c.finish(nil, Provenance{})
	}
}

// subscriptionOf returns the call of the subscription that a message names, nil if it is unknown.
// It reports if the message names one.
func (p *passthrough) subscriptionOf(m *jsonrpc.Message) (c *call, names bool) {
	meta, ok := m.Param("_meta")
	if !ok {
		return nil, false
	}
	at := jsonedit.Locate(meta, mcp.MetaSubscriptionID)
	if !at.Found() {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[jsonrpc.ID(at.Of(meta)).Key()], true
}

// forwardToSubscription forwards a message of a subscription. If the client already has the
// acknowledgment, from an earlier connection, it gets change notifications in its place.
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
		frame = jsonedit.Splice(frame, jsonedit.Locate(frame, "params", "_meta", mcp.MetaSubscriptionID), c.id)
	}
	p.sendForCall(c, frame, event)
}

// changeNotifications returns a notification for everything that the server granted to a
// subscription.
func changeNotifications(granted []byte, id jsonrpc.ID) (list [][]byte) {
	meta := jsonwire.AppendQuote([]byte(`"_meta":{`), mcp.MetaSubscriptionID)
	meta = append(append(append(meta, ':'), id...), "}}"...)
	for _, l := range resume.Lists() {
		if at := jsonedit.Locate(granted, l.Capability+"ListChanged"); at.Found() && string(at.Of(granted)) == "true" {
			list = append(list, jsonrpc.AppendNotification(nil, l.Changed, append([]byte{'{'}, meta...)))
		}
	}
	for uris := jsonwire.ArrayElements(jsonwire.Lookup(granted, "resourceSubscriptions")); uris.Next(); {
		params := append(append([]byte(`{"uri":`), uris.Value()...), ',')
		list = append(list, jsonrpc.AppendNotification(nil, mcp.NotificationResourceUpdated, append(params, meta...)))
	}
	return list
}

// rule returns the name of what the passthrough does to messages, for the capture.
func (p *passthrough) rule() string {
	if p.rewriteIDs {
		return "id"
	}
	return "same"
}

// provenance returns the provenance of a message made from one of the server's.
func (p *passthrough) provenance(event uint64) Provenance {
	return Provenance{rec: p.upstream.rec, event: event, rule: p.rule()}
}

// rewriteLocked gives a request a unique id and progress token.
func (p *passthrough) rewriteLocked(c *call, frame []byte, m *jsonrpc.Message) []byte {
	c.serverID = p.upstream.own.newID()
	frame = WithID(frame, c.serverID)
	if token, ok := tokenOf(m); ok {
		c.clientToken, c.tokenKey = token, c.serverID.Key()
		frame = jsonedit.Splice(frame, jsonedit.Locate(frame, "params", "_meta", mcp.MetaProgressToken), c.serverID)
	}
	return frame
}

// tokenOf returns the progress token of a request.
func tokenOf(m *jsonrpc.Message) (jsonrpc.ID, bool) {
	meta, ok := m.Param("_meta")
	if !ok {
		return nil, false
	}
	at := jsonedit.Locate(meta, mcp.MetaProgressToken)
	return jsonrpc.ID(at.Of(meta)), at.Found()
}

// restoreIDs restores the client's ids in a response.
func restoreIDs(frame []byte, c *call) []byte {
	if c.method == mcp.MethodSubscriptionsListen {
		if at := jsonedit.Locate(frame, "result", "_meta", mcp.MetaSubscriptionID); at.Found() {
			frame = jsonedit.Splice(frame, at, c.id)
		}
	}
	return WithID(frame, c.id)
}

// wantsTask reports if a call of a tool asks a legacy server for a task. It must not be canceled
// by a notification
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation). A server
// that does not declare tasks takes it for any other call.
func (p *passthrough) wantsTask(m *jsonrpc.Message) bool {
	if task, ok := m.Param("task"); !ok || !era.IsObject(task) {
		return false
	}
	_, result := p.upstream.resume.Handshake()
	revision, ok := mcp.ParseRevision(versionIn(result))
	return ok && era.Of(revision).CoreTasks && jsonwire.Lookup(result, "capabilities", "tasks", "requests", "tools", "call") != nil
}

// giveUpLocked is removeCallLocked for a call whose response nobody waits for.
func (p *passthrough) giveUpLocked(c *call) bool {
	if !p.removeCallLocked(c) {
		return false
	}
	p.noteGivenUpLocked(c)
	var own []byte
	if !c.wantsTask {
		meta := jsonwire.Lookup(c.taskFrame, "params", "_meta")
		if jsonwire.Lookup(meta, mcp.MetaClientCapabilities, "extensions", mcp.ExtensionTasks) == nil {
			return true
		}
		own = era.Rewrite(nil, meta, era.Without(mcp.MetaProgressToken), nil)
	}
	p.upstream.abandoned.add(c.serverID, own)
	return true
}

// noteGivenUpLocked records that the server may still handle a call without a response.
func (p *passthrough) noteGivenUpLocked(c *call) {
	if era.ServerMayAsk(c.method) {
		p.principals.GiveUp(c.principalID, time.Now())
	}
}

// retrySubscriptionLocked reports if a failed call is an acknowledged subscription on a connection
// that still works, as over HTTP. It then repeats the subscription after a backoff, and the client
// does not notice.
func (p *passthrough) retrySubscriptionLocked(c *call, err error) bool {
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok || failed.Outcome != jsonrpc.OutcomeUnknown && failed.Outcome != jsonrpc.OutcomeUnprocessed || !c.acked || c.retries >= maxEagerFailures || p.closed {
		return false
	}
	o := &p.b.opts
	pause := wait.Backoff(o.MinBackoff, o.MaxBackoff, c.retries+1, rand.Float64())
	c.retries++
	c.retryPending = true
	p.b.wg.Go(func() { p.resubscribe(c, pause) })
	return true
}

// resubscribe repeats a subscription after a pause, unless it has ended or was repeated otherwise.
func (p *passthrough) resubscribe(c *call, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-c.ctx.Done():
		return
	case <-c.client.ctx.Done():
		return
	}
	p.mu.Lock()
	pending := c.retryPending && p.calls[c.serverID.Key()] == c
	if pending { // with a new id, because the server may still know the old one
		p.removeCallLocked(c)
		c.serverID = p.upstream.own.newID()
		c.listenFrame = WithID(c.listenFrame, c.serverID)
		c.retryPending, c.expectAck = false, true
		p.calls[c.serverID.Key()] = c
	}
	p.mu.Unlock()
	if !pending {
		return
	}
	it := queuedMessage{frame: c.listenFrame, id: c.serverID, from: Provenance{rec: c.rec, event: c.event, rule: "sent again"}}
	if err := p.upstream.send(c.ctx, it); err != nil && p.removeCall(c) {
		c.fail(c.client.b.opts.clientError(err))
	}
}

// callByClientIDLocked returns the call that a client has under an id, or nil.
func (p *passthrough) callByClientIDLocked(cl *client, id jsonrpc.ID) *call {
	key := jsonrpc.ID(id).Key()
	if c := p.calls[key]; c != nil && !p.rewriteIDs && !c.rewritten() {
		return c
	}
	for _, c := range p.calls {
		if c.client == cl && c.id.Key() == key {
			return c
		}
	}
	return nil
}

// WithID returns a copy of a message with another id, or the message itself if it has no id.
func WithID(frame []byte, id jsonrpc.ID) []byte {
	at := jsonedit.Locate(frame, "id")
	if !at.Found() {
		return frame
	}
	return jsonedit.Splice(frame, at, id)
}

// compact returns a copy of a frame on one line.
func compact(frame []byte) []byte {
	line := jsonwire.OneLine(frame)
	return append(make([]byte, 0, len(line)), line...)
}
