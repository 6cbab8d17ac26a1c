package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// The flow of an inbound request is:
//
//	Serve or transportBackend          create a session and its rpc.Conn
//	  rpc.Conn                         parses the message; the session is its Handler
//	    session.Prepare                in the order of arrival
//	      handshake.prepare            records the state of the handshake
//	      session.route                finds the item (tool, …) and its cost: inline or goroutine
//	    session.Handle
//	      session.answer               makes the Call
//	        handshake.open             checks revision, metadata and method
//	        inbound.answer             with middleware; it ends in inbound.handle
//	        session.handle             rejects the request if its caller exceeds a limit
//	          session.dispatch         selects by method:
//	            callTool               checks the View
//	            tool.call              checks the arguments and their HTTP headers
//	              inputManager.resume  opens the request state of earlier input rounds
//	              taskServer.call      if taskServer.wants: answers with a task, or as below
//	              tool.run             WrapTools; calls tool.invoke
//	              tool.invoke          decodes arguments, calls the function, encodes its result
//	              inputManager.respond keeps the result, or replaces it with input requests
//	  rpc.Conn                         sends the result or the error
//
// session.prepareNotification and session.handleNotification handle notifications. Changes of
// lists, resources and tasks reach the client through its notifier, which calls
// session.sendChanges.

// A session answers one peer. It is the Handler of its connection. Its parts have their own state
// and locks. The fields that each request reads come first: with many sessions, a request should
// touch few cache lines.
type session struct {
	srv *Server
	log *slog.Logger
	// tasks is nil without Options.Tasks.
	tasks    *taskServer
	identity *identity
	// detached is set if each request on the connection carries its own identity.
	detached bool
	// stateless is set if the session serves many clients and keeps no state for them.
	stateless bool
	handshake handshake
	peer      peer
	// id is what [Call.Session] returns.
	id string

	// caller counts requests of principals without an ID and an address. It is guarded by
	// limits.mu.
	caller *caller

	subs         subscriptions
	elicitations elicitations
	notifier     notifier
}

// init connects the parts of a new session.
func (s *session) init() {
	s.subs.peer, s.subs.resources, s.subs.tasks = &s.peer, &s.srv.resources, s.tasks
	s.notifier.send = s.sendChanges
}

// attach sets the connection of a new session.
func (s *session) attach(conn *rpc.Conn) { s.peer.conn, s.handshake.conn = conn, conn }

// untrack removes the session from those of the server, and waits for its notifier.
func (s *session) untrack() {
	s.srv.sessions.remove(s)
	if !s.notifier.wait() {
		s.log.Warn("a write cannot be interrupted: its goroutine leaks")
	}
}

// release removes the session of a closed connection and ends its tasks.
func (s *session) release() {
	s.untrack()
	if s.tasks != nil {
		s.tasks.end(s.handshake.era.Legacy(), s.log)
	}
}

// Prepare implements [rpc.Handler]. It returns the estimate of the user's handler, or Immediate
// for requests that need none.
func (s *session) Prepare(r *rpc.Request) *rpc.CostEstimate {
	if r.Kind != jsonrpc.KindRequest {
		return s.prepareNotification(r)
	}
	s.handshake.prepare(r)
	cost := s.route(r)
	if cost == rpc.Immediate && s.srv.chain != nil {
		if string(r.Method) == mcp.MethodInitialize {
			s.handshake.start(r)
		}
		return s.middlewareCost(r.Method)
	}
	return cost
}

// PrepareBatch implements [rpc.BatchHandler].
func (s *session) PrepareBatch(members []rpcbatch.Entry) error {
	return s.handshake.prepareBatch(members)
}

// route finds the item that the request is for, stores it in r.Route, and returns its cost
// estimate.
func (s *session) route(r *rpc.Request) *rpc.CostEstimate {
	switch string(r.Method) {
	case mcp.MethodToolsCall:
		if t := find(&s.srv.tools, r, "name"); t != nil {
			r.Route = t
			return &t.cost
		}
	case mcp.MethodResourcesRead:
		if v := find(&s.srv.resources.registered, r, "uri"); v != nil {
			r.Route = v
			return &v.cost
		}
		return &s.srv.costs.template
	case mcp.MethodPromptsGet:
		if p := find(&s.srv.prompts, r, "name"); p != nil {
			r.Route = p
			return &p.cost
		}
	case mcp.MethodComplete:
		return &s.srv.costs.complete
	case mcp.MethodSubscriptionsListen:
		return rpc.LongRunning
	case mcp.MethodTasksResult:
		return nil // it waits, which says nothing about its cost
	case mcp.MethodTasksGet, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return &s.srv.costs.tasks
	}
	if m := s.srv.custom.method(r.Method); m != nil {
		r.Route = m
		return &m.cost
	}
	return rpc.Immediate
}

// middlewareCost returns the estimate of a method that would be immediate without middleware.
func (s *session) middlewareCost(method []byte) *rpc.CostEstimate {
	if string(method) == mcp.MethodInitialize {
		return &s.handshake.cost
	}
	if p := s.srv.costs.methods[string(method)]; p != nil {
		return p
	}
	return rpc.Immediate // unknown method
}

// methodCosts holds the estimates of methods without registered items.
type methodCosts struct {
	template, complete, tasks rpc.CostEstimate

	// methods is set with middleware only.
	methods map[string]*rpc.CostEstimate
}

// find returns the item that a parameter of the request names, or nil.
func find[T item](reg *registry[T], r *rpc.Request, param string) (found T) {
	name, ok := r.Param(param)
	if !ok || len(name) < 2 || name[0] != '"' {
		return found
	}
	name = name[1 : len(name)-1]
	c := reg.catalog()
	if bytes.IndexByte(name, '\\') >= 0 {
		return c.byKey[jsonwire.UnquoteString(name)]
	}
	return c.byKey[string(name)]
}

// Handle implements [rpc.Handler].
func (s *session) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	if r.Kind == jsonrpc.KindNotification {
		return dst, s.handleNotification(r)
	}
	if !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return s.answer(r, dst)
	}
	return s.answerLogged(r, dst)
}

func (s *session) answerLogged(r *rpc.Request, dst []byte) ([]byte, error) {
	began := time.Now()
	dst, err := s.answer(r, dst)
	attrs := []any{"id", clip.String(r.ID.String(), 100), "method", clip.String(string(r.Method), 100)}
	attrs = append(append(attrs, s.Describe(r)...), "duration", time.Since(began))
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.log.Debug("request", attrs...)
	return dst, err
}

// Describe implements [rpc.Describer]. It names the tool, the resource or the prompt.
func (s *session) Describe(r *rpc.Request) []any {
	switch v := r.Route.(type) {
	case *tool:
		return []any{"tool", v.key}
	case *resource:
		return []any{"uri", clip.String(v.key, 100)}
	case *prompt:
		return []any{"prompt", v.key}
	}
	return nil
}

func (s *session) answer(r *rpc.Request, dst []byte) ([]byte, error) {
	ex, err := s.handshake.open(r)
	if err != nil {
		return dst, err
	}
	s.handshake.opened(ex)
	if s.srv.chain == nil && s.srv.limits == nil && string(r.Method) == mcp.MethodPing {
		return s.srv.results.Empty(dst, ex.Features, nil), nil // ping needs no Call
	}
	c := newCall(s, r, ex)
	sent := false // stays false if middleware panics
	if s.tasks != nil {
		defer func() {
			if run := c.run.Load(); run != nil {
				run.cancelIfUnsent(r, sent)
			}
		}()
	}
	if s.srv.chain != nil {
		in := &inbound{session: s, call: c, request: r, dst: dst}
		dst, err = in.answer()
	} else {
		dst, err = s.handle(c, r, dst)
	}
	sent = err == nil
	if d, ok := r.Sender().(denier); err != nil && ok && d.Denies(err) {
		err = errors.Join(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "forbidden: %v", err), err)
	}
	return dst, err
}

// A denier is a Sender whose transport can say by itself that a caller lacks permission, as HTTP
// does with status 403 and a challenge. Denies reports whether it will if the response is err.
type denier interface{ Denies(err error) bool }

// handle answers a request that has passed all general checks. It applies the caller's limits.
func (s *session) handle(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	if s.srv.limits == nil {
		return s.dispatch(c, r, dst)
	}
	return s.dispatchLimited(c, r, dst)
}

// dispatchLimited answers a request if its caller is within the limits.
func (s *session) dispatchLimited(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	l := s.srv.limits
	if !l.methods[c.method] {
		return s.dispatch(c, r, dst)
	}
	cl, err := l.admit(c)
	if err != nil {
		return dst, err
	}
	defer l.release(cl)
	return s.dispatch(c, r, dst)
}

// dispatch answers a request by its method.
func (s *session) dispatch(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	switch string(r.Method) {
	case mcp.MethodToolsCall:
		return callTool(c, r, dst)
	case mcp.MethodToolsList:
		return answerList(c, &s.srv.tools, "tools", r, dst)
	case mcp.MethodResourcesList:
		return answerList(c, &s.srv.resources.registered, "resources", r, dst)
	case mcp.MethodResourceTemplatesList:
		return answerList(c, &s.srv.resources.templates, "resourceTemplates", r, dst)
	case mcp.MethodPromptsList:
		return answerList(c, &s.srv.prompts, "prompts", r, dst)
	case mcp.MethodResourcesRead:
		return s.srv.resources.read(c, r, dst)
	case mcp.MethodPromptsGet:
		return getPrompt(c, r, dst)
	case mcp.MethodComplete:
		return s.srv.completions.answer(c, r, dst)
	case mcp.MethodResourcesSubscribe:
		return s.subs.subscribe(c, r, dst)
	case mcp.MethodResourcesUnsubscribe:
		return s.subs.unsubscribe(c, r, dst)
	case mcp.MethodDiscover:
		return s.srv.appendDiscover(dst, c.ex.Features), nil
	case mcp.MethodSubscriptionsListen:
		if s.stateless {
			return s.listenInOwnSession(c, r, dst)
		}
		return s.subs.listen(c, r, s.srv.announcedLists(), dst)
	case mcp.MethodSetLevel:
		if err := s.handshake.setLevel(r); err != nil {
			return dst, err
		}
		return c.results().empty(dst, nil), nil
	case mcp.MethodPing:
		return c.results().empty(dst, nil), nil
	case mcp.MethodInitialize:
		f, err := s.handshake.finish(r)
		if err != nil {
			return dst, err
		}
		return s.srv.appendInitialize(dst, f), nil
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return s.tasks.answer(c, r, dst)
	}
	if m, ok := r.Route.(*customMethod); ok {
		return m.call(c, r, dst)
	}
	return dst, jsonrpc.MethodNotFound(string(r.Method))
}

func (s *session) prepareNotification(r *rpc.Request) *rpc.CostEstimate {
	if !s.handshake.prepareNotification(r) {
		s.log.Warn("unexpected notifications/initialized")
	}
	if s.srv.chain == nil && s.srv.custom.notificationHandler(r.Method) == nil {
		return rpc.Immediate
	}
	return nil
}

// handleNotification passes a notification to its handler or the middleware. Others are ignored.
func (s *session) handleNotification(r *rpc.Request) error {
	if s.srv.custom.notificationHandler(r.Method) == nil && (s.srv.chain == nil || !isClientNotification(r.Method)) {
		s.log.Debug("notification ignored", "method", clip.String(string(r.Method), 100))
		return nil
	}
	ex, err := s.handshake.era.OpenNotification(r, arrivalState(r))
	if err != nil {
		s.log.Debug("notification ignored", "method", clip.String(string(r.Method), 100), "error", err)
		return nil
	}
	c := newCall(s, r, ex)
	if s.srv.chain == nil {
		s.srv.custom.handleNotification(c, r)
		return nil
	}
	in := &inbound{session: s, call: c, request: r}
	_, err = in.run(in.notify)
	return err
}

// sendChanges sends the notifications of changes.
func (s *session) sendChanges(c changes) {
	for _, l := range listChanges {
		if c.lists&l.bit == 0 || s.srv.opts.StaticLists {
			continue
		}
		if s.handshake.era.Legacy() != nil {
			s.peer.notify(l.notification, nil)
		}
		s.subs.notifyListChanged(l.bit, l.notification)
	}
	for uri := range c.resources {
		s.subs.notifyUpdated(uri)
	}
	for id := range c.tasks {
		s.notifyTask(id)
	}
	for _, id := range c.elicitations {
		s.peer.notify(mcp.NotificationElicitationComplete, mcp.Append(nil, &mcp.ElicitationCompleteNotificationParams{ElicitationID: id}, mcp.RevisionNone))
	}
}

// notifyTask sends the task's current state.
func (s *session) notifyTask(id string) {
	ctx, cancel := context.WithTimeout(s.peer.context(), storeTimeout)
	defer cancel()
	t, err := s.tasks.manager.opts.Store.Task(ctx, id)
	if err != nil {
		s.peer.logDropped(mcp.NotificationTasks, err)
		return
	}
	if !t.Core {
		s.subs.notifyTask(t)
	} else if f := s.handshake.era.Legacy(); f != nil && f.CoreTasks {
		s.peer.notify(mcp.NotificationTaskStatus, mcp.Append(nil, t.coreTask(), mcp.RevisionNone))
	}
}

func invalidParams(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: "+format, args...)
}

// stringParam returns a member of params, which must be a string.
func stringParam(r *rpc.Request, name string) (string, error) {
	v, ok := r.Param(name)
	if !ok {
		return "", invalidParams("params.%s is missing", name)
	}
	s, ok := jsonwire.String(v)
	if !ok {
		return "", invalidParams("params.%s must be a string", name)
	}
	return s, nil
}

var emptyObject = []byte("{}")

// argumentsParam returns the arguments of a call, which must be an object if they are present.
func argumentsParam(r *rpc.Request) ([]byte, error) {
	args, ok := r.Param("arguments")
	switch {
	case !ok, string(args) == "null":
		return emptyObject, nil
	case args[0] != '{':
		return nil, invalidParams("params.arguments must be an object")
	}
	return args, nil
}

// A handshake agrees with the client of a session on an era and a revision. Messages that are
// handled concurrently see the state at their arrival.
type handshake struct {
	// era points to own, unless the session shares the handshake of another one.
	era *era.Session
	// modern is set once the client has sent a modern message.
	modern atomic.Bool
	// early is set if the handshake is made when initialize arrives, before the middleware runs.
	early bool
	own   era.Session
	// cost is the cost of initialize with middleware. It runs in order unless it blocks.
	cost rpc.CostEstimate

	conn *rpc.Conn
	// mu is held while the policy of conn is set.
	mu sync.Mutex
}

// prepare records the state of the handshake when the request arrives. Later messages do not affect
// it.
func (h *handshake) prepare(r *rpc.Request) {
	if state := h.era.State(); state != nil {
		r.State = state
	} else if !h.modern.Load() {
		h.detectModern(r)
	}
}

// detectModern checks whether the first request of a peer is modern.
func (h *handshake) detectModern(r *rpc.Request) {
	if ex, err := h.era.OpenAt(r, nil); err == nil && ex.Modern {
		h.markModern()
	}
}

// markModern records that the peer has sent a modern message.
func (h *handshake) markModern() {
	if !h.modern.Swap(true) {
		h.setPolicy()
	}
}

// setPolicy passes the state of the handshake to the connection. Requests may call it concurrently.
func (h *handshake) setPolicy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn.SetPolicy(h.policy())
}

// policy returns the policy of the connection in the current state.
func (h *handshake) policy() rpc.Policy { return h.era.Policy(h.modern.Load()) }

// prepareBatch rejects a batch with a modern message: that client would not understand an array as
// the response.
func (h *handshake) prepareBatch(members []rpcbatch.Entry) error {
	for i := range members {
		e := &members[i]
		if e.Invalid != nil || e.Kind != jsonrpc.KindRequest && e.Kind != jsonrpc.KindNotification || !h.era.IsModern(&e.Message) {
			continue
		}
		h.markModern()
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: modern revisions have no batches; send each message on its own")
	}
	return nil
}

// prepareNotification records the state of the handshake when the notification arrives, and reports
// whether it is expected. The state that it changes already applies to the next request.
func (h *handshake) prepareNotification(r *rpc.Request) (expected bool) {
	expected = string(r.Method) != mcp.NotificationInitialized || h.era.Initialized()
	if state := h.era.State(); state != nil {
		r.State = state
	}
	return expected
}

// arrivalState returns the state that prepare recorded.
func arrivalState(r *rpc.Request) *era.State {
	state, _ := r.State.(*era.State)
	return state
}

// open checks a request by the rules of its era.
func (h *handshake) open(r *rpc.Request) (era.Request, error) {
	state, _ := r.State.(*era.State) // as arrivalState, which would keep open from being inlined
	return h.era.OpenAt(r, state)
}

// opened records that a request has passed open.
func (h *handshake) opened(ex era.Request) {
	if ex.Modern && !h.modern.Load() {
		h.markModern()
	}
}

// A handshakeResult is the outcome of a handshake that was made when initialize arrived, before the
// middleware ran.
type handshakeResult struct {
	features *era.Features
	err      error
}

// start makes the handshake of an initialize request on arrival, because the messages after it
// depend on it.
func (h *handshake) start(r *rpc.Request) {
	if _, err := h.era.OpenAt(r, arrivalState(r)); err != nil {
		return // open returns the same error
	}
	result := new(handshakeResult)
	result.features, result.err = h.negotiate(r, h.era.Initialize)
	r.Route = result
}

// negotiate runs a step of the handshake and updates the policy.
func (h *handshake) negotiate(r *rpc.Request, step func(*rpc.Request) (*era.Features, error)) (*era.Features, error) {
	f, err := step(r)
	if err == nil {
		h.setPolicy()
	}
	return f, err
}

// finish returns the result of the handshake. With middleware, start has made it already, unless
// middleware has changed the request since.
func (h *handshake) finish(r *rpc.Request) (*era.Features, error) {
	if result, ok := r.Route.(*handshakeResult); ok {
		return result.features, result.err
	}
	if h.early {
		return h.negotiate(r, h.era.Reinitialize)
	}
	return h.negotiate(r, h.era.Initialize)
}

// setLevel handles logging/setLevel, which is part of the state.
func (h *handshake) setLevel(r *rpc.Request) error {
	name, err := stringParam(r, "level")
	if err != nil {
		return err
	}
	level, ok := mcp.ParseLoggingLevel(name)
	if !ok {
		return invalidParams("params.level must be one of debug, info, notice, warning, error, critical, alert, emergency")
	}
	h.era.SetLogLevel(level)
	return nil
}

// A sessionSet holds the sessions of a server. It gives changes to their notifiers, and does not
// wait for clients.
type sessionSet struct {
	mu       sync.Mutex
	sessions map[*session]struct{}
}

// add adds a session until remove.
func (ss *sessionSet) add(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sparse.Set(&ss.sessions, s, struct{}{})
}

// remove removes a session, which then gets no more changes.
func (ss *sessionSet) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.sessions, s)
}

// listsChanged announces changed lists to the sessions with the IDs, or of the principals with the
// IDs, or to all sessions if there are no IDs.
func (ss *sessionSet) listsChanged(c listChange, ids []string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		if len(ids) == 0 || slices.Contains(ids, s.identity.principal) || s.id != "" && slices.Contains(ids, s.id) {
			s.notifier.add(func(cs *changes) { cs.lists |= c })
		}
	}
}

// resourceUpdated notifies the sessions that are subscribed to the resource.
func (ss *sessionSet) resourceUpdated(uri string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		if s.subs.uris.cover(uri) {
			s.notifier.add(func(cs *changes) { addUpdates(&cs.resources, uri) })
		}
	}
}

// missed notifies the session of everything that it may have missed, unless it was removed.
func (ss *sessionSet) missed(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if _, ok := ss.sessions[s]; !ok {
		return
	}
	s.notifier.add(func(cs *changes) {
		cs.lists |= s.srv.advertisedLists()
		addUpdates(&cs.resources, s.subs.uris.names()...)
	})
}

// resourcesUpdated notifies each session of all resources that it is subscribed to.
func (ss *sessionSet) resourcesUpdated() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		s.notifier.add(func(cs *changes) { addUpdates(&cs.resources, s.subs.uris.names()...) })
	}
}

// tasksChanged notifies each session of all tasks that it is subscribed to.
func (ss *sessionSet) tasksChanged() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		s.notifier.add(func(cs *changes) { addUpdates(&cs.tasks, s.subs.taskIDs.names()...) })
	}
}

// taskChanged notifies the sessions of the owner, or those that are subscribed to the task. owner
// is set for the core protocol only.
func (ss *sessionSet) taskChanged(id, owner string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		if owner != "" && owner == s.tasks.owner || s.subs.taskIDs.has(id) {
			s.notifier.add(func(cs *changes) { addUpdates(&cs.tasks, id) })
		}
	}
}

// elicitationDone notifies the session whose client has the page.
func (ss *sessionSet) elicitationDone(id string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		if s.elicitations.remove(id) {
			s.notifier.add(func(cs *changes) { cs.elicitations = append(cs.elicitations, id) })
		}
	}
}

// announce notifies all sessions of a list change, here and, through the bus, at other servers. It
// does not block.
func (s *Server) announce(c listChange) {
	s.sessions.listsChanged(c, nil)
	for _, l := range listChanges {
		if l.bit == c {
			s.bus.publish(event{Kind: l.event})
		}
	}
}

// ListsChanged notifies clients that their lists have changed because [Options.View] returns
// another View. It notifies the clients of the principals or sessions ([Call.Session]) with the
// given IDs, or all clients if there are no IDs. Without it clients notice only when they ask
// again. It drops the encoded lists of all views. Clients continue to get updates, by URI only, of
// resources that they have subscribed to.
func (s *Server) ListsChanged(ids ...string) {
	s.listsChangedLocal(ids)
	if len(ids) == 0 {
		s.bus.publish(event{Kind: eventView})
	}
	for _, id := range ids {
		s.bus.publish(event{Kind: eventView, Name: id})
	}
}

// listsChangedLocal notifies the clients of this server.
func (s *Server) listsChangedLocal(ids []string) {
	s.tools.reset()
	s.resources.registered.reset()
	s.resources.templates.reset()
	s.prompts.reset()
	s.sessions.listsChanged(s.advertisedLists(), ids)
}

// ResourceUpdated notifies the clients that are subscribed to the resource, or to one that contains
// it, of an update. It does not wait for them. Updates in quick succession are merged.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/resources#subscriptions)
func (s *Server) ResourceUpdated(uri string) {
	s.sessions.resourceUpdated(uri)
	s.bus.publish(event{Kind: eventResource, Name: uri})
}

// taskChanged notifies the task's owner in the core protocol, or its subscribers in the extension.
// It also notifies other servers through the bus, unless the owner is a session, which is local.
func (s *Server) taskChanged(t *Task) {
	owner := ""
	if t.Core {
		owner = t.Owner
	}
	s.sessions.taskChanged(t.ID, owner)
	if owner == "" || strings.HasPrefix(owner, principalOwner("")) {
		s.bus.publish(event{Kind: eventTask, Name: t.ID, Owner: owner})
	}
}
