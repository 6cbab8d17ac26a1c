package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
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

// answerOrRefuse answers a question that is for none of a session's clients in particular, and refuses one that none of them has declared to answer. It reports whether it did.
func (p *passthrough) answerOrRefuse(m *jsonrpc.Message) bool {
	method := string(m.Method)
	if method == mcp.MethodPing {
		p.sendOwn(jsonrpc.AppendResult(nil, m.ID, []byte("{}")))
		return true
	}
	if !era.IsInputRequest(method) {
		return false
	}
	p.mu.Lock()
	declared, version := locate(p.resume.initialize, "params", "capabilities").slice(p.resume.initialize), versionIn(p.resume.initializeResult)
	p.mu.Unlock()
	revision, ok := mcp.ParseRevision(version)
	if !ok {
		return false // the client knows what the server means
	}
	q := era.InputRequest{Method: method, Params: m.Params}
	f := era.Of(revision)
	if _, missing := q.MissingCapability(&era.Client{Capabilities: era.DeclaredByClient(declared, f)}, f); missing != "" {
		p.refuse(m, q.Refusal("none of the clients that share this session has declared "+missing))
		return true
	}
	return false
}

// relatedTaskClientLocked returns the client whose task a message belongs to; nil if it says nothing of one that is known.
func (p *passthrough) relatedTaskClientLocked(m *jsonrpc.Message) *client {
	meta, ok := m.Param("_meta")
	if p.session == nil || !ok {
		return nil
	}
	return p.taskClientLocked(stringOf(locate(meta, mcp.MetaRelatedTask, "taskId").slice(meta)))
}

// taskClientLocked returns the client whose task it is; nil if that is not known, or the client is gone.
func (p *passthrough) taskClientLocked(id string) *client {
	if c := p.session.tasks.byName[id]; c != nil && p.clients[c.client] != nil {
		return c.client
	}
	return nil
}

// noteServerRequestLocked notes what a client is asked that is talked of later.
func (p *passthrough) noteServerRequestLocked(cl *client, m *jsonrpc.Message) {
	if p.session != nil && string(m.Method) == mcp.MethodElicit {
		id, _ := m.Param("elicitationId")
		p.session.elicitations.put(stringOf(id), cl)
	}
}

// noteResponseLocked takes note of what an answer says that is talked of later.
func (p *passthrough) noteResponseLocked(c *call, m *jsonrpc.Message) {
	s := p.session
	if m.Kind == jsonrpc.KindError {
		if c.method == mcp.MethodSetLevel && p.clients[c.client] != nil {
			p.clients[c.client].logLevel = mcp.LevelNone
		}
		if e := m.Err(); e.Code == mcp.CodeURLElicitationRequired {
			p.noteElicitationsLocked(c, e.Data)
		}
		return
	}
	switch c.method {
	case mcp.MethodSetLevel:
		s.level = c.logLevel
	case mcp.MethodTasksResult:
		p.removeTaskLocked(c.subject)
	default:
		if id := stringOf(locate(m.Result, "task", "taskId").slice(m.Result)); id != "" {
			if c.tokenKey != "" { // it goes on to be told of
				p.tokens[c.tokenKey] = c
			}
			if old, full := s.tasks.put(id, c); full {
				delete(p.tokens, old.tokenKey)
			}
		}
	}
}

// noteElicitationsLocked notes the pages that an error demands to be visited.
func (p *passthrough) noteElicitationsLocked(c *call, data []byte) {
	at := locate(data, "elicitations")
	if !at.found() || data[at.start] != '[' {
		return
	}
	for elicitations := jsonwire.ArrayElements(at.slice(data)); elicitations.Next(); {
		elicitation := elicitations.Value()
		p.session.elicitations.put(stringOf(locate(elicitation, "elicitationId").slice(elicitation)), c.client)
	}
}

// removeTaskLocked forgets a task.
func (p *passthrough) removeTaskLocked(id string) {
	if c := p.session.tasks.remove(id); c != nil {
		delete(p.tokens, c.tokenKey)
	}
}

// detachLocked forgets a client that leaves the others, and returns what is to be done about it: what it was asked is refused.
func (p *passthrough) detachLocked(cl *client) (cleanup []func()) {
	s := p.session
	for key, a := range p.serverRequests {
		if a.client == cl {
			delete(p.serverRequests, key)
			refusal := jsonrpc.AppendError(nil, a.id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client that was asked is gone"), false)
			cleanup = append(cleanup, func() { p.sendOwn(refusal) })
		}
	}
	for id, c := range s.tasks.byName {
		if c.client == cl {
			p.removeTaskLocked(id)
		}
	}
	for id, owner := range s.elicitations.byName {
		if owner == cl {
			s.elicitations.remove(id)
		}
	}
	if level := p.lowestLevelLocked(); p.resume.setLevel != nil && level != mcp.LevelNone && level != s.level {
		s.level = level
		frame := withLevel(p.resume.setLevel, level)
		p.resume.setLevel = frame
		cleanup = append(cleanup, func() { p.replay(frame) })
	}
	return cleanup
}

// defaultLogLevel is that of a client which has not chosen one, if others in its session have: the server cannot be left to choose any more.
const defaultLogLevel = mcp.LevelInfo

// setLogLevel has a client get log messages from a level on. The server, which knows one level, is told the lowest that any wants.
func (p *passthrough) setLogLevel(c *call, frame []byte, m *jsonrpc.Message) []byte {
	v, _ := m.Param("level")
	level, ok := mcp.ParseLoggingLevel(stringOf(v))
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.clients[c.client]
	if !ok || state == nil {
		return frame // the server says what is wrong
	}
	state.logLevel = level
	c.logLevel = p.lowestLevelLocked()
	if c.logLevel == p.session.level {
		defer c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
		return nil
	}
	return withLevel(frame, c.logLevel)
}

// withLevel returns a request for log messages with another level.
func withLevel(frame []byte, level mcp.LoggingLevel) []byte {
	return splice(frame, locate(frame, "params", "level"), jsonwire.AppendQuote(nil, level.String()))
}

// lowestLevelLocked returns the lowest level that a client of the session wants, LevelNone if none has chosen one.
func (p *passthrough) lowestLevelLocked() (lowest mcp.LoggingLevel) {
	undecided := false
	for _, state := range p.clients {
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

// logLevelOf returns the level of a log message, and whether it is one.
func logLevelOf(m *jsonrpc.Message) (mcp.LoggingLevel, bool) {
	if string(m.Method) != mcp.NotificationMessage {
		return mcp.LevelNone, false
	}
	v, _ := m.Param("level")
	level, _ := mcp.ParseLoggingLevel(stringOf(v))
	return level, true
}

// forwardLog hands a log message to the client that it must be of, since it alone has something under way, or to all if none has. If several have, nothing says whose it is, and
// nobody gets it.
func (p *passthrough) forwardLog(frame []byte, m *jsonrpc.Message, event uint64) {
	level, _ := logLevelOf(m)
	p.mu.Lock()
	to := p.initializedClientsLocked()
	if cl := p.relatedTaskClientLocked(m); cl != nil {
		to = []*client{cl}
	} else if busy := p.activeClientsLocked(); len(busy) > 0 {
		to = busy
		if len(busy) > 1 {
			to = nil
		}
	}
	chosen := p.session.level != mcp.LevelNone
	var get []*client
	for _, cl := range to {
		from := p.clients[cl].logLevel
		if from == mcp.LevelNone && chosen {
			from = defaultLogLevel
		}
		if level >= from {
			get = append(get, cl)
		}
	}
	p.mu.Unlock()
	if len(to) == 0 {
		p.noteUnroutable(event)
	}
	p.sendToClients(get, frame, event)
}

// activeClientsLocked returns the clients that have a request open.
func (p *passthrough) activeClientsLocked() (list []*client) {
	seen := map[*client]bool{}
	for _, c := range p.calls {
		if !seen[c.client] && p.clients[c.client] != nil {
			seen[c.client] = true
			list = append(list, c.client)
		}
	}
	return list
}

// noteUnroutable notes that a message goes nowhere.
func (p *passthrough) noteUnroutable(event uint64) {
	p.upstream.rec.note("message " + strconv.FormatUint(event, 10) + " goes no further: nothing says which client it is for")
}

// candidateCalls returns the calls of modern clients that a message may belong to which does not say so: of a client that is one, only the last.
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

// requestedLogLevel returns the level from which a modern request wants log messages.
func requestedLogLevel(m *jsonrpc.Message) mcp.LoggingLevel {
	meta, _ := m.Param("_meta")
	level, _ := mcp.ParseLoggingLevel(stringOf(locate(meta, mcp.MetaLogLevel).slice(meta)))
	return level
}

// forwardSessionNotification hands a notification to those clients of a session that it is for. c is the call on whose stream it came; nil if that is not known.
func (p *passthrough) forwardSessionNotification(c *call, frame []byte, m *jsonrpc.Message, event uint64) {
	method := string(m.Method)
	switch {
	case method == mcp.NotificationResourceUpdated:
		uri, _ := m.Param("uri")
		p.mu.Lock()
		to := p.subscribersLocked(stringOf(uri))
		p.mu.Unlock()
		p.sendToClients(to, frame, event)
	case method == mcp.NotificationTaskStatus:
		id, _ := m.Param("taskId")
		p.mu.Lock()
		cl := p.taskClientLocked(stringOf(id))
		p.mu.Unlock()
		p.sendToClient(cl, frame, event)
	case method == mcp.NotificationElicitationComplete:
		id, _ := m.Param("elicitationId")
		p.mu.Lock()
		cl := p.session.elicitations.remove(stringOf(id))
		p.mu.Unlock()
		p.sendToClient(cl, frame, event)
	case slices.ContainsFunc(listChanges[:], func(l [2]string) bool { return l[1] == method }):
		p.broadcast(frame, event)
	case c != nil:
		p.sendForCall(c, frame, event)
	case method == mcp.NotificationMessage:
		p.forwardLog(frame, m, event)
	default:
		p.broadcast(frame, event)
	}
}

// sendToClients hands a message to some clients.
func (p *passthrough) sendToClients(list []*client, frame []byte, event uint64) {
	for _, cl := range list {
		if err := cl.send(nil, frame, provenance{rec: p.upstream.rec, event: event, rule: "same"}); err != nil {
			p.b.opts.Logger.Debug("a message was dropped", "error", err)
		}
	}
}

// sendToClient hands a message to whose it is, if that is known.
func (p *passthrough) sendToClient(cl *client, frame []byte, event uint64) {
	if cl == nil {
		p.noteUnroutable(event)
		return
	}
	p.sendToClients([]*client{cl}, frame, event)
}

// subscribersLocked returns the clients that are subscribed to a resource, or to what it is a part of.
func (p *passthrough) subscribersLocked(uri string) (list []*client) {
	seen := map[*client]bool{}
	for whole, by := range p.resume.subscribers {
		if !isSubresource(uri, whole) {
			continue
		}
		for cl := range by {
			if !seen[cl] {
				seen[cl] = true
				list = append(list, cl)
			}
		}
	}
	return list
}

// isSubresource reports whether a resource is the other one, or a part of it.
func isSubresource(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// sessionSubscribe passes a subscription on unless there are too many to know whose they are.
func (p *passthrough) sessionSubscribe(c *call, frame []byte) []byte {
	p.mu.Lock()
	full := len(p.resume.subscribers) >= maxSubscriptions || len(frame) > maxReplayBytes
	p.mu.Unlock()
	if full {
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many resources are subscribed to, or the name of one is too long"))
		return nil
	}
	return frame
}

// sessionUnsubscribe passes the end of a subscription on, unless others go on with it.
func (p *passthrough) sessionUnsubscribe(c *call, frame []byte, m *jsonrpc.Message) []byte {
	v, _ := m.Param("uri")
	uri := stringOf(v)
	p.mu.Lock()
	others := false
	for cl := range p.resume.subscribers[uri] {
		others = others || cl != c.client
	}
	for other := range p.resume.pending {
		others = others || other.client != c.client && other.method == mcp.MethodResourcesSubscribe && other.subject == uri
	}
	if others {
		delete(p.resume.subscribers[uri], c.client)
	}
	p.mu.Unlock()
	if !others {
		return frame
	}
	c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
	return nil
}

// maxOwners is how many things a recall remembers, and maxNameBytes how long a thing's name may be, in bytes.
const (
	maxOwners    = 1024
	maxNameBytes = 1 << 10
)

// A recall remembers whose the last things were that the server has given names to. The zero value is ready to use.
type ownerMap[V any] struct {
	byName map[string]V
	names  []string // of the names, the oldest first
}

// put remembers a thing, and returns the one that it forgets for that.
func (m *ownerMap[V]) put(name string, v V) (old V, full bool) {
	if len(name) > maxNameBytes || name == "" {
		return old, false
	}
	if m.byName == nil {
		m.byName = map[string]V{}
	}
	if _, known := m.byName[name]; !known {
		if full = len(m.names) >= maxOwners; full {
			old = m.remove(m.names[0])
		}
		m.names = append(m.names, name)
	}
	m.byName[name] = v
	return old, full
}

// remove forgets a thing, and returns whose it was.
func (m *ownerMap[V]) remove(name string) V {
	v := m.byName[name]
	delete(m.byName, name)
	if i := slices.Index(m.names, name); i >= 0 {
		m.names = slices.Delete(m.names, i, i+1)
	}
	return v
}

// A past is what a new server has to be told of the session that the one before it had. It is guarded by the mutex of its plain.
type resumeState struct {
	initialize       []byte // the request, once it was answered
	initializeResult []byte // of that
	initialized      []byte
	setLevel         []byte            // the last logging/setLevel
	subscriptions    map[string][]byte // resources/subscribe, by URI
	subscribers      map[string]map[*client]struct{}
	pending          map[*call][]byte // requests of these kinds that were not answered
}

// maxSubscriptions bounds the subscriptions that are remembered; maxReplayBytes is how large a request of which a server is reminded may be, in bytes.
const (
	maxSubscriptions = 1024
	maxReplayBytes   = 64 << 10
)

// requestSent takes note of a request.
func (r *resumeState) requestSent(c *call, frame []byte, m *jsonrpc.Message) {
	switch c.method {
	case mcp.MethodInitialize, mcp.MethodSetLevel:
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		uri, _ := m.Param("uri")
		c.subject = stringOf(uri)
	default:
		return
	}
	if len(frame) > maxReplayBytes || c.modern {
		return
	}
	if r.pending == nil {
		r.pending = map[*call][]byte{}
	}
	r.pending[c] = frame
}

// responseReceived takes note of the answer to a request.
func (r *resumeState) responseReceived(c *call, m *jsonrpc.Message) {
	frame, ok := r.pending[c]
	delete(r.pending, c)
	if !ok || m.Kind != jsonrpc.KindResponse {
		return
	}
	switch c.method {
	case mcp.MethodInitialize:
		r.initialize, r.initializeResult = frame, slices.Clone(m.Result)
	case mcp.MethodSetLevel:
		r.setLevel = frame
	case mcp.MethodResourcesSubscribe:
		if r.subscriptions == nil {
			r.subscriptions, r.subscribers = map[string][]byte{}, map[string]map[*client]struct{}{}
		}
		if len(r.subscriptions) < maxSubscriptions || r.subscriptions[c.subject] != nil {
			r.subscriptions[c.subject] = frame
			if r.subscribers[c.subject] == nil {
				r.subscribers[c.subject] = map[*client]struct{}{}
			}
			r.subscribers[c.subject][c.client] = struct{}{}
		}
	case mcp.MethodResourcesUnsubscribe:
		delete(r.subscribers[c.subject], c.client)
		if len(r.subscribers[c.subject]) == 0 {
			delete(r.subscriptions, c.subject)
			delete(r.subscribers, c.subject)
		}
	}
}

// adoptHandshake takes over a handshake that was made before the plain had its line.
func (p *passthrough) adoptHandshake(o clientMessage, m *jsonrpc.Message) {
	p.mu.Lock()
	p.resume.initialize, p.resume.initializeResult = o.frame, slices.Clone(m.Result)
	p.mu.Unlock()
}

// removeClient forgets a client, and returns what nobody is subscribed to any more.
func (r *resumeState) removeClient(cl *client) (drop []string) {
	for uri, by := range r.subscribers {
		if _, ok := by[cl]; !ok {
			continue
		}
		delete(by, cl)
		if len(by) == 0 {
			delete(r.subscribers, uri)
			delete(r.subscriptions, uri)
			drop = append(drop, uri)
		}
	}
	for c := range r.pending {
		if c.client == cl {
			delete(r.pending, c)
		}
	}
	return drop
}

// disconnected forgets what was not answered: it is not going to be.
func (r *resumeState) disconnected() { clear(r.pending) }

// hasHandshake reports whether there was a handshake.
func (r *resumeState) hasHandshake() bool { return r.initializeResult != nil }

// reconnected implements user: it tells a new server what the one before it knew.
func (p *passthrough) reconnected(ctx context.Context) error {
	p.mu.Lock()
	resume := p.resume
	frames := make([][]byte, 0, len(resume.subscriptions)+1)
	if resume.setLevel != nil {
		frames = append(frames, resume.setLevel)
	}
	for _, frame := range resume.subscriptions {
		frames = append(frames, frame)
	}
	var subscriptions []*call
	for _, c := range p.calls {
		if c.listenFrame != nil && !p.upstream.isQueued(c.serverID) {
			c.expectAck, c.retryPending = c.acked, false
			subscriptions = append(subscriptions, c)
		}
	}
	p.mu.Unlock()
	for _, c := range subscriptions {
		p.upstream.sendUrgent(queuedMessage{frame: c.listenFrame, id: c.serverID, from: provenance{rec: c.rec, event: c.event, rule: "sent again"}})
	}
	if !resume.hasHandshake() {
		return nil
	}
	answer, err := p.roundTrip(ctx, func(id jsonrpc.ID) []byte { return withID(resume.initialize, id) })
	if err == nil && answer.Kind == jsonrpc.KindError {
		err = answer.Err()
	}
	if err != nil {
		p.b.eras.reset() // it may be another server now
		return fmt.Errorf("handshake: %w", err)
	}
	if before, now := versionIn(resume.initializeResult), versionIn(answer.Result); before != now {
		return fmt.Errorf("%w: the server speaks revision %s now, and spoke %s before", errServerChanged, now, before)
	}
	if resume.initialized != nil {
		p.sendOwn(resume.initialized)
	}
	for _, frame := range frames {
		p.replay(frame)
	}
	p.mu.Lock()
	p.resume.initializeResult = slices.Clone(answer.Result)
	p.mu.Unlock()
	p.messagesLost()
	return nil
}

// errServerChanged is why a server that was started again cannot take the place of the one before.
var errServerChanged = errors.New("the server has changed")

// replay sends the server a request again whose answer is of no interest.
func (p *passthrough) replay(frame []byte) {
	p.mu.Lock()
	id := p.ownID()
	p.expectLocked(id)
	p.mu.Unlock()
	p.upstream.sendUrgent(queuedMessage{frame: withID(frame, id), id: id})
}

// unsubscribe gives a subscription up that nobody wants any more.
func (p *passthrough) unsubscribe(uri string) {
	params := append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
	p.replay(jsonrpc.AppendRequest(nil, jsonrpc.IntID(0), mcp.MethodResourcesUnsubscribe, params))
}

func versionIn(result []byte) string {
	return stringOf(locate(result, "protocolVersion").slice(result))
}

// listChanges are the capabilities whose lists change, and the notifications that say so.
var listChanges = [...][2]string{
	{"tools", mcp.NotificationToolsChanged}, {"prompts", mcp.NotificationPromptsChanged}, {"resources", mcp.NotificationResourcesChanged},
}

// messagesLost implements user: clients are told that what they know of the server may be out of date.
func (p *passthrough) messagesLost() {
	p.mu.Lock()
	result := p.resume.initializeResult
	clients := p.initializedClientsLocked()
	p.mu.Unlock()
	if result == nil {
		return
	}
	for _, list := range listChanges {
		if locate(result, "capabilities", list[0]).found() {
			for _, cl := range clients {
				cl.send(nil, jsonrpc.AppendNotification(nil, list[1], nil), provenance{})
			}
		}
	}
}

// cancellation is a notification that cancels a request.
func cancellation(id jsonrpc.ID, why string) []byte {
	params := append([]byte(`{"requestId":`), id...)
	params = jsonwire.AppendQuote(append(params, `,"reason":`...), why)
	return jsonrpc.AppendNotification(nil, mcp.NotificationCancelled, append(params, '}'))
}
