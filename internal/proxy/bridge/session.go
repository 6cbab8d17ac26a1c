package bridge

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/resume"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A sharedSession is a session with a legacy server that several clients share without knowing it.
// The lock of its passthrough guards it.
type sharedSession struct {
	p *passthrough
	// attempt is the current handshake with the server.
	attempt *sharedAttempt
	// level is the log level that the server has accepted.
	level mcp.LoggingLevel
	// tasks holds the calls that became tasks, by task id.
	tasks ownerMap[*call]
	// elicitations holds the clients of URL elicitations, by elicitation id.
	elicitations ownerMap[*client]
}

// A clientState is the state of a client on an upstream.
type clientState struct {
	// handshaking is set after initialize, answered after its response, confirmed after
	// initialized.
	handshaking bool
	answered    bool
	confirmed   bool
	// ready says that requests go to the server at once. Until then they wait in queue.
	ready      bool
	queue      []clientMessage
	queueBytes int
	// lastActive orders clients by their last message.
	lastActive int64
	// logLevel is the level that the client chose; LevelNone leaves it to the server.
	logLevel mcp.LoggingLevel
}

// touch records that a client is active.
func (p *passthrough) touch(cl *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state := p.clients[cl]; state != nil {
		state.lastActive = p.upstream.own.last.Add(1)
	}
}

// lastActiveLocked returns the client that was active last, or nil.
func (p *passthrough) lastActiveLocked() (last *client) {
	for cl, state := range p.clients {
		if (p.session == nil || state.answered) && (last == nil || state.lastActive > p.clients[last].lastActive) {
			last = cl
		}
	}
	return last
}

// initializedClientsLocked returns the clients that get messages for all.
func (p *passthrough) initializedClientsLocked() (all []*client) {
	for cl, state := range p.clients {
		if p.session == nil || state.answered {
			all = append(all, cl)
		}
	}
	return all
}

// request takes a request of a shared session. Requests wait until the client's handshake is
// complete.
func (s *sharedSession) request(c *call, frame []byte, m *jsonrpc.Message) {
	s.p.touch(c.client)
	isInitialize := c.method == mcp.MethodInitialize
	s.p.mu.Lock()
	state := s.p.clients[c.client]
	if state == nil {
		state = new(clientState) // the client is being removed
	}
	state.handshaking = state.handshaking || isInitialize
	if isInitialize {
		s.p.principals.Use(c.principalID)
	}
	ready, waits := state.ready, state.handshaking && !state.ready && !isInitialize
	full := waits && state.queueBytes > 0 && state.queueBytes+len(frame) > s.p.b.opts.MaxQueue
	if waits && !full {
		state.queue = append(state.queue, clientMessage{call: c, frame: frame, m: m})
		state.queueBytes += len(frame)
	}
	s.p.mu.Unlock()
	switch {
	case full:
		c.fail(c.client.b.opts.clientError(errQueueFull))
	case waits:
	case !isInitialize && ready:
		s.forwardRequest(c, frame, m)
	case !isInitialize:
		uninitialized.request(c, frame, m)
	case !s.p.b.spawn(func() { s.initialize(c, frame) }):
		c.fail(c.client.b.opts.clientError(errUpstreamClosed))
	}
}

// forwardRequest forwards a request. If it changes state that the clients share, it adapts
// or answers the request.
func (s *sharedSession) forwardRequest(c *call, frame []byte, m *jsonrpc.Message) {
	switch c.method {
	case mcp.MethodSetLevel:
		frame = s.setLogLevel(c, frame, m)
	case mcp.MethodResourcesSubscribe:
		frame = s.subscribe(c, frame)
	case mcp.MethodResourcesUnsubscribe:
		frame = s.unsubscribe(c, frame, m)
	case mcp.MethodTasksResult:
		id, _ := m.Param("taskId")
		c.subject = jsonwire.Text(id)
	}
	if frame != nil {
		s.p.forwardRequest(c, frame, m)
	}
}

// sharedInitialize returns a client's initialize request for the server. It does not declare the
// tasks of clients, because the clients choose their ids.
func sharedInitialize(frame []byte, id jsonrpc.ID) []byte {
	frame = WithID(frame, id)
	at := jsonedit.Locate(frame, "params", "capabilities")
	if !jsonedit.Locate(frame, "params", "capabilities", "tasks").Found() {
		return frame
	}
	return jsonedit.Splice(frame, at, era.Rewrite(nil, at.Of(frame), era.Without("tasks"), nil))
}

// initialize answers a client's initialize request. The first client makes the handshake with the
// server, and all get the same result.
func (s *sharedSession) initialize(c *call, frame []byte) {
	for {
		s.p.mu.Lock()
		_, result := s.p.upstream.resume.Handshake()
		f := s.attempt
		leader := result == nil && f == nil
		if leader {
			f = &sharedAttempt{done: make(chan struct{})}
			s.attempt = f
		}
		s.p.mu.Unlock()
		if result != nil {
			s.answerInitialize(c, result)
			return
		}
		if leader {
			s.handshake(f, c, frame)
		}
		select {
		case <-f.done:
		case <-c.client.ctx.Done():
			c.fail(c.client.b.opts.asRPCError(context.Cause(c.client.ctx)))
			return
		}
		if f.err != nil {
			e := c.client.b.opts.asRPCError(f.err)
			c.fail(e)
			for _, o := range s.takeQueue(c.client, false) {
				o.call.fail(e)
			}
			return
		}
	}
}

// handshake makes the handshake with the server, for all clients that wait for f.
func (s *sharedSession) handshake(f *sharedAttempt, c *call, frame []byte) {
	ctx, cancel := s.p.b.withConnectTimeout(c.client.ctx)
	defer cancel()
	var initialize, result []byte
	err := s.p.upstream.unavailable()
	if err == nil {
		result, err = s.p.upstream.roundTrip(ctx, func(id jsonrpc.ID) []byte {
			initialize = sharedInitialize(frame, id)
			return initialize
		})
	}
	if err == nil {
		s.p.upstream.resume.SetHandshake(initialize, result)
	}
	s.p.mu.Lock()
	if c.client.ctx.Err() == nil { // otherwise another client must try
		f.err = err
	}
	s.attempt = nil
	s.p.mu.Unlock()
	close(f.done)
}

// clientInitialized records the initialized notification of a client. It may come before the
// response to initialize.
func (s *sharedSession) clientInitialized(cl *client) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if state := s.p.clients[cl]; state != nil {
		state.confirmed = true
		s.sendInitializedLocked(state)
	}
}

// sendInitializedLocked sends the server one initialized notification, as soon as one client is
// initialized.
func (s *sharedSession) sendInitializedLocked(state *clientState) {
	if state.answered && state.confirmed && !s.p.upstream.resume.IsInitialized() {
		initialized := jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil)
		s.p.upstream.resume.Initialized(initialized)
		s.p.upstream.sendOwn(initialized)
	}
}

// answerInitialize answers a client's initialize request, and forwards the requests that waited.
func (s *sharedSession) answerInitialize(c *call, result []byte) {
	s.finishInitialize(c, jsonrpc.AppendResult(nil, c.id, result))
	for {
		waiting := s.takeQueue(c.client, true)
		if len(waiting) == 0 {
			return
		}
		for _, o := range waiting {
			s.forwardRequest(o.call, o.frame, o.m)
		}
	}
}

// finishInitialize answers a client's initialize request. It holds the lock, so that the client
// gets every broadcast after the response. Under the lock finish does not block, because a client
// that shares has an outbox.
func (s *sharedSession) finishInitialize(c *call, answer []byte) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	c.finish(answer, c.bridgeProvenance())
	if state := s.p.clients[c.client]; state != nil {
		state.answered = true
		s.sendInitializedLocked(state)
	}
}

// takeQueue returns the requests that waited for a client's handshake. If none is left after the
// handshake, later requests do not wait.
func (s *sharedSession) takeQueue(cl *client, initialized bool) []clientMessage {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	state := s.p.clients[cl]
	if state == nil {
		return nil
	}
	list := state.queue
	state.queue, state.queueBytes = nil, 0
	state.handshaking, state.ready = initialized, initialized && len(list) == 0
	return list
}

// answerOrRefuse answers pings of the server, and refuses input requests that need a capability
// that no client of the session has. It reports if it handled the message.
func (s *sharedSession) answerOrRefuse(m *jsonrpc.Message) bool {
	method := string(m.Method)
	if method == mcp.MethodPing {
		s.p.upstream.sendOwn(jsonrpc.AppendResult(nil, m.ID, []byte("{}")))
		return true
	}
	if !era.IsInputRequest(method) {
		return false
	}
	initialize, result := s.p.upstream.resume.Handshake()
	declared := jsonedit.Locate(initialize, "params", "capabilities").Of(initialize)
	revision, ok := mcp.ParseRevision(versionIn(result))
	if !ok {
		return false // the client can tell
	}
	q := era.InputRequest{Method: method, Params: m.Params}
	f := era.Of(revision)
	if _, missing := q.MissingCapability(&era.Client{Capabilities: era.DeclaredByClient(declared, f)}, f); missing != "" {
		s.p.upstream.refuse(m.ID, q.Refusal("none of the clients that share this session has declared "+missing))
		return true
	}
	return false
}

// relatedTaskClientLocked returns the client of the task that a message names, or nil.
func (s *sharedSession) relatedTaskClientLocked(m *jsonrpc.Message) *client {
	meta, ok := m.Param("_meta")
	if s == nil || !ok {
		return nil
	}
	return s.taskClientLocked(jsonwire.Text(jsonedit.Locate(meta, mcp.MetaRelatedTask, "taskId").Of(meta)))
}

// taskClientLocked returns the client of a task, or nil if it is unknown or gone.
func (s *sharedSession) taskClientLocked(id string) *client {
	if c := s.tasks.byName[id]; c != nil && s.p.clients[c.client] != nil {
		return c.client
	}
	return nil
}

// noteServerRequestLocked records the client of an elicitation, for notifications that name it.
func (s *sharedSession) noteServerRequestLocked(cl *client, m *jsonrpc.Message) {
	if s != nil && string(m.Method) == mcp.MethodElicit {
		id, _ := m.Param("elicitationId")
		s.elicitations.put(jsonwire.Text(id), cl)
	}
}

// noteResponseLocked records the level, task or elicitations in a response, for later messages.
func (s *sharedSession) noteResponseLocked(c *call, m *jsonrpc.Message) {
	if m.Kind == jsonrpc.KindError {
		if c.method == mcp.MethodSetLevel && s.p.clients[c.client] != nil {
			s.p.clients[c.client].logLevel = mcp.LevelNone
		}
		if e := m.Err(); e.Code == mcp.CodeURLElicitationRequired {
			s.noteElicitationsLocked(c, e.Data)
		}
		return
	}
	switch c.method {
	case mcp.MethodSetLevel:
		s.level = c.logLevel
	case mcp.MethodTasksResult:
		s.removeTaskLocked(c.subject)
	default:
		if id := jsonwire.Text(jsonedit.Locate(m.Result, "task", "taskId").Of(m.Result)); id != "" {
			if c.tokenKey != "" { // progress continues
				s.p.tokens[c.tokenKey] = c
			}
			if old, full := s.tasks.put(id, c); full {
				delete(s.p.tokens, old.tokenKey)
			}
		}
	}
}

// noteElicitationsLocked records the URL elicitations that an error requires.
func (s *sharedSession) noteElicitationsLocked(c *call, data []byte) {
	for elicitations := jsonwire.ArrayElements(jsonwire.Lookup(data, "elicitations")); elicitations.Next(); {
		elicitation := elicitations.Value()
		s.elicitations.put(jsonwire.Text(jsonedit.Locate(elicitation, "elicitationId").Of(elicitation)), c.client)
	}
}

// removeTaskLocked forgets a task.
func (s *sharedSession) removeTaskLocked(id string) {
	if c := s.tasks.remove(id); c != nil {
		delete(s.p.tokens, c.tokenKey)
	}
}

// detachLocked forgets a client that leaves the session. It returns functions that refuse the
// requests to the client and adapt the log level.
func (s *sharedSession) detachLocked(cl *client) (cleanup []func()) {
	for key, a := range s.p.serverRequests {
		if a.client == cl {
			delete(s.p.serverRequests, key)
			refusal := jsonrpc.AppendError(nil, a.id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client that got the request disconnected"), false)
			cleanup = append(cleanup, func() { s.p.upstream.sendOwn(refusal) })
		}
	}
	for id, c := range s.tasks.byName {
		if c.client == cl {
			s.removeTaskLocked(id)
		}
	}
	for id, owner := range s.elicitations.byName {
		if owner == cl {
			s.elicitations.remove(id)
		}
	}
	if level := s.lowestLevelLocked(); level != mcp.LevelNone && level != s.level {
		s.p.upstream.resume.SetLevel(func(frame []byte) []byte {
			s.level, frame = level, withLevel(frame, level)
			cleanup = append(cleanup, func() { s.p.upstream.replay(frame) })
			return frame
		})
	}
	return cleanup
}

// defaultLogLevel is the level of a client that chose none if other clients of its session did.
const defaultLogLevel = mcp.LevelInfo

// setLogLevel sets the log level of a client. It returns the request for the server, which gets the
// lowest level of all clients, or nil if that does not change.
func (s *sharedSession) setLogLevel(c *call, frame []byte, m *jsonrpc.Message) []byte {
	v, _ := m.Param("level")
	level, ok := mcp.ParseLoggingLevel(jsonwire.Text(v))
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	state := s.p.clients[c.client]
	if !ok || state == nil {
		return frame // the server reports the error
	}
	state.logLevel = level
	c.logLevel = s.lowestLevelLocked()
	if c.logLevel == s.level {
		defer c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
		return nil
	}
	return withLevel(frame, c.logLevel)
}

// withLevel returns a logging/setLevel request with another level.
func withLevel(frame []byte, level mcp.LoggingLevel) []byte {
	return jsonedit.Splice(frame, jsonedit.Locate(frame, "params", "level"), jsonwire.AppendQuote(nil, level.String()))
}

// lowestLevelLocked returns the lowest level that a client of the session wants, or LevelNone.
func (s *sharedSession) lowestLevelLocked() (lowest mcp.LoggingLevel) {
	undecided := false
	for _, state := range s.p.clients {
		undecided = undecided || state.logLevel == mcp.LevelNone
		if state.logLevel != mcp.LevelNone && (lowest == mcp.LevelNone || state.logLevel < lowest) {
			lowest = state.logLevel
		}
	}
	if undecided && lowest > defaultLogLevel {
		return defaultLogLevel
	}
	return lowest
}

// logLevelOf returns the level of a message, and reports if it is a log message.
func logLevelOf(m *jsonrpc.Message) (mcp.LoggingLevel, bool) {
	if string(m.Method) != mcp.NotificationMessage {
		return mcp.LevelNone, false
	}
	v, _ := m.Param("level")
	level, _ := mcp.ParseLoggingLevel(jsonwire.Text(v))
	return level, true
}

// forwardLog sends a log message to the client of its task, or else to the only client with a
// pending request, or to all if none has one. If several have one, nobody gets the message.
func (s *sharedSession) forwardLog(frame []byte, m *jsonrpc.Message, event uint64) {
	level, _ := logLevelOf(m)
	s.p.mu.Lock()
	to := s.p.initializedClientsLocked()
	if cl := s.relatedTaskClientLocked(m); cl != nil {
		to = []*client{cl}
	} else if busy := s.activeClientsLocked(); len(busy) > 0 {
		to = busy
		if len(busy) > 1 {
			to = nil
		}
	}
	chosen := s.level != mcp.LevelNone
	var get []*client
	for _, cl := range to {
		from := s.p.clients[cl].logLevel
		if from == mcp.LevelNone && chosen {
			from = defaultLogLevel
		}
		if level >= from {
			get = append(get, cl)
		}
	}
	s.p.mu.Unlock()
	if len(to) == 0 {
		s.p.upstream.noteUnroutable(event)
	}
	s.p.sendToClients(get, frame, event)
}

// activeClientsLocked returns the clients with a pending request.
func (s *sharedSession) activeClientsLocked() (list []*client) {
	seen := map[*client]bool{}
	for _, c := range s.p.calls {
		if !seen[c.client] && s.p.clients[c.client] != nil {
			seen[c.client] = true
			list = append(list, c.client)
		}
	}
	return list
}

// candidateCalls returns the calls of modern clients that may be the cause of a message. Of a
// client that is not an aggregate, it returns only the latest.
func (p *passthrough) candidateCalls(m *jsonrpc.Message) (open []*call) {
	level, isLog := logLevelOf(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if !c.modern || c.listenFrame != nil || isLog && (c.logLevel == mcp.LevelNone || level < c.logLevel) {
			continue
		}
		switch {
		case len(open) == 0 || open[0].client != c.client || c.client.aggregate:
			open = append(open, c)
		case c.seq > open[0].seq:
			open[0] = c
		}
	}
	return open
}

// requestedLogLevel returns the log level in a modern request.
func requestedLogLevel(m *jsonrpc.Message) mcp.LoggingLevel {
	meta, _ := m.Param("_meta")
	level, _ := mcp.ParseLoggingLevel(jsonwire.Text(jsonedit.Locate(meta, mcp.MetaLogLevel).Of(meta)))
	return level
}

// forwardNotification sends a notification to the clients of a session that it is for. c is
// the call on whose stream it came; nil if that is unknown.
func (s *sharedSession) forwardNotification(c *call, frame []byte, m *jsonrpc.Message, event uint64) {
	method := string(m.Method)
	switch {
	case method == mcp.NotificationResourceUpdated:
		uri, _ := m.Param("uri")
		s.p.sendToClients(s.p.upstream.resume.Subscribers(jsonwire.Text(uri)), frame, event)
	case method == mcp.NotificationTaskStatus:
		id, _ := m.Param("taskId")
		s.p.mu.Lock()
		cl := s.taskClientLocked(jsonwire.Text(id))
		s.p.mu.Unlock()
		s.p.sendToClient(cl, frame, event)
	case method == mcp.NotificationElicitationComplete:
		id, _ := m.Param("elicitationId")
		s.p.mu.Lock()
		cl := s.elicitations.remove(jsonwire.Text(id))
		s.p.mu.Unlock()
		s.p.sendToClient(cl, frame, event)
	case slices.ContainsFunc(resume.Lists(), func(l resume.List) bool { return l.Changed == method }):
		s.p.broadcast(frame, event)
	case c != nil:
		s.p.sendForCall(c, frame, event)
	case method == mcp.NotificationMessage:
		s.forwardLog(frame, m, event)
	default:
		s.p.broadcast(frame, event)
	}
}

// sendToClients sends a message to the clients in list.
func (p *passthrough) sendToClients(list []*client, frame []byte, event uint64) {
	for _, cl := range list {
		cl.logDropped(cl.send(nil, frame, Provenance{rec: p.upstream.rec, event: event, rule: "same"}))
	}
}

// sendToClient sends a message to a client, and drops it if cl is nil.
func (p *passthrough) sendToClient(cl *client, frame []byte, event uint64) {
	if cl == nil {
		p.upstream.noteUnroutable(event)
		return
	}
	p.sendToClients([]*client{cl}, frame, event)
}

// subscribe returns the request for the server, or fails it if there are too many
// subscriptions to remember.
func (s *sharedSession) subscribe(c *call, frame []byte) []byte {
	if s.p.upstream.resume.IsFull() || len(frame) > maxReplayBytes {
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many subscribed resources, or a URI is too long"))
		return nil
	}
	return frame
}

// unsubscribe returns the request for the server. It returns nil, and answers the request,
// if other clients keep the subscription.
func (s *sharedSession) unsubscribe(c *call, frame []byte, m *jsonrpc.Message) []byte {
	uri, _ := m.Param("uri")
	if !s.p.upstream.resume.Unsubscribe(c.client, jsonwire.Text(uri)) {
		return frame
	}
	c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
	return nil
}

// Limits of an ownerMap: the number of entries, and the length of a name in bytes.
const (
	maxOwners    = 1024
	maxNameBytes = 1 << 10
)

// An ownerMap remembers what the last names belong to, such as those of tasks of the server.
// The zero value is ready to use.
type ownerMap[V any] struct {
	byName map[string]V
	// limit limits the entries. Zero means maxOwners.
	limit int
	// names holds the keys, oldest first.
	names []string
}

// put adds an entry. If the map is full, it removes and returns the oldest.
func (m *ownerMap[V]) put(name string, v V) (old V, full bool) {
	if len(name) > maxNameBytes || name == "" {
		return old, false
	}
	if _, known := m.byName[name]; !known {
		if full = len(m.names) >= cmp.Or(m.limit, maxOwners); full {
			old = m.remove(m.names[0])
		}
		m.names = append(m.names, name)
	}
	sparse.Set(&m.byName, name, v)
	return old, full
}

// remove removes an entry and returns its owner.
func (m *ownerMap[V]) remove(name string) V {
	v := m.byName[name]
	delete(m.byName, name)
	if i := slices.Index(m.names, name); i >= 0 {
		m.names = slices.Delete(m.names, i, i+1)
	}
	return v
}

// maxReplayBytes limits the bytes of a request that the bridge sends to a new server again.
const maxReplayBytes = 64 << 10

// reconnected implements codec. It repeats the subscriptions.
func (p *passthrough) reconnected() error {
	p.mu.Lock()
	var subscriptions []*call
	for _, c := range p.calls {
		if c.listenFrame != nil && !p.upstream.queue.isQueued(c.serverID) {
			c.expectAck, c.retryPending = c.acked, false
			subscriptions = append(subscriptions, c)
		}
	}
	p.mu.Unlock()
	for _, c := range subscriptions {
		if err := p.upstream.sendUrgent(queuedMessage{frame: c.listenFrame, id: c.serverID, from: Provenance{rec: c.rec, event: c.event, rule: "sent again"}}); err != nil {
			return fmt.Errorf("subscribe again: %w", err)
		}
	}
	return nil
}

// messagesLost implements codec. It notifies clients that lists may have changed.
func (p *passthrough) messagesLost() {
	_, result := p.upstream.resume.Handshake()
	p.mu.Lock()
	clients := p.initializedClientsLocked()
	p.mu.Unlock()
	for _, list := range resume.ListsOf(result) {
		for _, cl := range clients {
			cl.send(nil, jsonrpc.AppendNotification(nil, list.Changed, nil), Provenance{})
		}
	}
}

// cancellation returns a notification that cancels a request.
func cancellation(id jsonrpc.ID, why string) []byte {
	params := append([]byte(`{"requestId":`), id...)
	params = jsonwire.AppendQuote(append(params, `,"reason":`...), why)
	return jsonrpc.AppendNotification(nil, mcp.NotificationCancelled, append(params, '}'))
}
