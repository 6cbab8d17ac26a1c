package server

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
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
func (s *session) PrepareBatch(members []jsonrpc.Entry) error {
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

// answerLogged answers a request and logs it.
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
	return dst, err
}

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
		return answerList(newListRequest(c, KindTool, "tools"), s.srv.tools.catalog(), r, dst)
	case mcp.MethodResourcesList:
		return answerList(newListRequest(c, KindResource, "resources"), s.srv.resources.registered.catalog(), r, dst)
	case mcp.MethodResourceTemplatesList:
		return answerList(newListRequest(c, KindResourceTemplate, "resourceTemplates"), s.srv.resources.templates.catalog(), r, dst)
	case mcp.MethodPromptsList:
		return answerList(newListRequest(c, KindPrompt, "prompts"), s.srv.prompts.catalog(), r, dst)
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
		return s.subs.listen(c, r, s.srv.advertisedLists(), dst)
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

// prepareNotification returns the cost estimate of a notification.
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
	ex, err := s.handshake.openNotification(r)
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
		if c.lists&l.bit == 0 {
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
	if v[0] != '"' {
		return "", invalidParams("params.%s must be a string", name)
	}
	return jsonwire.UnquoteString(v[1 : len(v)-1]), nil
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

// unquote decodes the text of a JSON string.
func unquote(text []byte) string { return jsonwire.UnquoteString(text[1 : len(text)-1]) }
