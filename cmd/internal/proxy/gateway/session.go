package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of a session.
const (
	// maxServerRequests limits the pending requests of servers to one client.
	maxServerRequests = 1000
	// maxRemembered limits the bytes of an initialize request.
	maxRemembered = 64 << 10
)

// A session is the session of a legacy client. For each upstream that it uses, it has a session
// with a bridge, which it opens at the first request. Its methods may be called by many goroutines
// at once.
type session struct {
	g      *Gateway
	ctx    context.Context
	cancel context.CancelFunc
	// sendMu serializes Send of out.
	sendMu sync.Mutex
	out    rpc.Sender
	// recorder records the client; nil if nothing is recorded.
	recorder *bridge.ClientRecorder
	// callPrefix begins the ids of the requests to the client.
	callPrefix string

	mu sync.Mutex
	// params are those of the client's initialize request; nil before it.
	params []byte
	// revision is the negotiated one.
	revision mcp.Revision
	// capabilities are the client's.
	capabilities []byte
	// origin is the initialize request.
	origin *bridge.Origin
	// level is the params of the last logging/setLevel, or nil.
	level     []byte
	upstreams map[*upstream]*upstreamSession
	// serverRequests holds the pending requests of servers by their id for the client.
	serverRequests map[string]*serverRequest
	requested      uint64
	calls          map[string]*upstreamSession
	// subscribed has the client's URIs of the resources that it is subscribed to.
	subscribed map[string]bool
	watcher    *watcher
	// logins holds the ids of the login pages that the session waits for.
	logins map[string]bool
	closed bool
}

// An upstreamSession is the session of a client with one upstream.
type upstreamSession struct {
	s     *session
	be    *backend
	peer  relay.Peer
	scope scope
	// ready is closed when the handshake is complete or has failed with err.
	ready chan struct{}
	err   error
	// capabilities are those of the server.
	capabilities []byte
	// leveled is closed when the server has the latest log level; nil if there is none. Requests
	// wait for it. session.mu guards it.
	leveled chan struct{}
}

// A serverRequest is a pending request of a server to the client.
type serverRequest struct {
	from *upstreamSession
	// number orders the requests.
	number uint64
	// id is the server's own id.
	id jsonrpc.ID
	// token is the server's progress token, or nil.
	token jsonrpc.ID
}

// newSession returns a session for a client to which out sends.
func newSession(g *Gateway, ctx context.Context, out rpc.Sender, recorder *bridge.ClientRecorder) *session {
	s := &session{g: g, out: out, recorder: recorder}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// Close implements relay.Peer.
func (s *session) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	all := s.upstreams
	s.upstreams = nil
	w := s.watcher
	s.mu.Unlock()
	s.cancel()
	if w != nil {
		s.g.announcer.remove(w)
	}
	for _, us := range all {
		us.close()
	}
	s.recorder.End()
	s.g.mu.Lock()
	delete(s.g.sessions, s)
	s.g.mu.Unlock()
}

// forget ends the session with an upstream.
func (s *session) forget(u *upstream) {
	s.mu.Lock()
	us := s.upstreams[u]
	sparse.Delete(&s.upstreams, u)
	maps.DeleteFunc(s.serverRequests, func(_ string, a *serverRequest) bool { return a.from == us })
	s.mu.Unlock()
	if us != nil {
		us.close()
	}
}

// close ends the session with the upstream.
func (us *upstreamSession) close() {
	if us.isReady() && us.err == nil { // otherwise handshake closes it
		us.peer.Close()
		us.be.release()
	}
}

// send sends a message to the client that belongs to no request.
func (s *session) send(message []byte, from bridge.Provenance) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	s.recorder.Sent(message, from)
	return s.out.Send(message)
}

// Request implements relay.Peer.
func (s *session) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	o := s.recorder.Received(ctx, frameOf(frame, m))
	ctx = bridge.WithOrigin(ctx, o)
	var response []byte
	var err error
	if observe := s.g.state.Load().opts.Observe; observe == nil {
		response, err = s.request(ctx, o, frame, m, out, dst)
	} else {
		response, err = observe.observeClient(ctx, s.negotiated(), m, dst, func(ctx context.Context) ([]byte, error) {
			return s.request(ctx, o, frame, m, out, dst)
		})
	}
	if err != nil {
		response, err = answerError(ctx, dst, m.ID, err)
	}
	recordAnswer(o, m, response[len(dst):], err)
	return response, err
}

// negotiated returns the negotiated revision, or RevisionNone before the handshake.
func (s *session) negotiated() mcp.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// recordAnswer records the response to a request, which streamable makes of a RejectedError.
func recordAnswer(o *bridge.Origin, m *jsonrpc.Message, response []byte, err error) {
	if e, ok := errors.AsType[*relay.RejectedError](err); ok && o != nil {
		response = jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", e.Reason), false)
	}
	if len(response) > 0 {
		o.Answered(response, "answered by the gateway")
	}
}

func (s *session) request(ctx context.Context, o *bridge.Origin, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	method := string(m.Method)
	switch method {
	case mcp.MethodInitialize:
		return s.initialize(ctx, o, m, dst)
	case mcp.MethodPing:
		return jsonrpc.AppendResult(dst, m.ID, []byte("{}")), nil
	}
	s.mu.Lock()
	initialized := s.params != nil
	ctx = withApps(ctx, s.capabilities)
	s.mu.Unlock()
	if !initialized {
		return dst, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: send initialize first")
	}
	if kind, ok := kindOfList(method); ok {
		return s.g.answerList(ctx, bridge.EraLegacy, kind, m, dst)
	}
	switch method {
	case mcp.MethodSetLevel:
		return s.setLevel(m, dst)
	case mcp.MethodTasksList:
		return s.listTasks(ctx, o, m, out, dst)
	}
	response, ok, err := s.g.forward(ctx, bridge.EraLegacy, frame, m, dst, func(ctx context.Context, sc *scope, frame []byte) ([]byte, error) {
		return s.forward(ctx, o, sc, frame, m, out, dst)
	})
	if !ok {
		return dst, jsonrpc.MethodNotFound(method)
	}
	if e, ok := errors.AsType[*loginError](err); ok {
		byURL := s.showsPages()
		if byURL {
			s.announceLogin(e.page)
		}
		return s.g.answerLogin(dst, bridge.EraLegacy, byURL, m, e)
	}
	if err != nil {
		return dst, err
	}
	s.noteSubscription(m, response[len(dst):])
	return response, nil
}

// noteSubscription notes what the response to resources/subscribe or resources/unsubscribe changes.
func (s *session) noteSubscription(m *jsonrpc.Message, response []byte) {
	method := string(m.Method)
	if method != mcp.MethodResourcesSubscribe && method != mcp.MethodResourcesUnsubscribe || era.Lookup(response, "result") == nil {
		return
	}
	uri, _ := textParam(m, "uri")
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == mcp.MethodResourcesUnsubscribe {
		delete(s.subscribed, uri)
	} else if len(s.subscribed) < maxSubscribed {
		sparse.Set(&s.subscribed, uri, true)
	}
}

// isSubscribed reports if the client is subscribed to the URI of a notification.
func (s *session) isSubscribed(m *jsonrpc.Message) bool {
	uri, _ := textParam(m, "uri")
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscribed[uri]
}

// Missed implements relay.Notifier.
func (s *session) Missed() {
	s.mu.Lock()
	uris := slices.Sorted(maps.Keys(s.subscribed))
	s.mu.Unlock()
	s.g.running.Start(func() {
		for _, n := range allKinds {
			s.send(jsonrpc.AppendNotification(nil, n, nil), bridge.Provenance{})
		}
		for _, uri := range uris {
			params := append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
			s.send(jsonrpc.AppendNotification(nil, mcp.NotificationResourceUpdated, params), bridge.Provenance{})
		}
	})
}

// forward sends a request to the upstream of sc, and appends the response to dst.
func (s *session) forward(ctx context.Context, o *bridge.Origin, sc *scope, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	us, err := s.open(ctx, sc.be)
	if err != nil {
		return dst, err
	}
	key := m.ID.Key()
	s.mu.Lock()
	if s.calls[key] != nil {
		s.mu.Unlock()
		return dst, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "another request with this id is in flight")
	}
	sparse.Set(&s.calls, key, us)
	leveled := us.leveled
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		sparse.Delete(&s.calls, key)
		s.mu.Unlock()
	}()
	if leveled != nil {
		select {
		case <-leveled:
		case <-ctx.Done():
			return dst, context.Cause(ctx)
		}
	}
	var box rpc.Sender
	if out != nil {
		box = &upstreamSender{us, out, o}
	}
	return us.peer.Request(us.be.callerContext(ctx), frame, m, box, dst)
}

// initialize answers initialize.
func (s *session) initialize(ctx context.Context, o *bridge.Origin, m *jsonrpc.Message, dst []byte) ([]byte, error) {
	if len(m.Params) > maxRemembered {
		return dst, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("invalid params: more than %d bytes", maxRemembered)}
	}
	if _, ok := textParam(m, "protocolVersion"); !ok {
		return dst, missingParam("protocolVersion")
	}
	capabilities := era.Lookup(m.Params, "capabilities")
	dst, revision := s.g.answerInitialize(withApps(ctx, capabilities), m, dst)
	// Servers get the revision that the client and the gateway have agreed on.
	params := replaceText(append([]byte(nil), m.Params...), to(revision.String()), "protocolVersion")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.params != nil {
		return dst, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: initialize was already answered; it must be sent only once")
	}
	s.params, s.origin, s.revision, s.capabilities = params, o, revision, slices.Clone(capabilities)
	if !s.closed {
		s.watcher = s.g.announcer.add(withApps(s.ctx, capabilities), bridge.EraLegacy, allKinds, func(notification string) {
			s.send(jsonrpc.AppendNotification(nil, notification, nil), bridge.Provenance{})
		})
	}
	return dst, nil
}

// open returns the session with a backend. The first call for each upstream makes the handshake.
func (s *session) open(ctx context.Context, be *backend) (*upstreamSession, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, jsonrpc.ErrRequestEnded
	}
	us := s.upstreams[be.u]
	if us != nil && us.be != be && us.isReady() { // the backend was replaced
		sparse.Delete(&s.upstreams, be.u)
		defer us.close()
		us = nil
	}
	if us == nil {
		us = &upstreamSession{s: s, be: be, ready: make(chan struct{}), scope: s.g.scope(s.ctx, be, bridge.EraLegacy)}
		sparse.Set(&s.upstreams, be.u, us)
		if !s.g.running.Start(us.handshake) {
			sparse.Delete(&s.upstreams, be.u)
			s.mu.Unlock()
			return nil, ErrClosed
		}
	}
	s.mu.Unlock()
	select {
	case <-us.ready:
		return us, us.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (us *upstreamSession) isReady() bool {
	select {
	case <-us.ready:
		return true
	default:
		return false
	}
}

// handshake makes the client's handshake with the upstream.
func (us *upstreamSession) handshake() {
	s := us.s
	be, err := us.be.u.acquire(s.ctx)
	if err == nil {
		us.be = be
		err = us.initialize()
		if err != nil {
			be.release()
		}
	}
	s.mu.Lock()
	us.err = err
	if err != nil && s.upstreams[us.be.u] == us {
		sparse.Delete(&s.upstreams, us.be.u)
	}
	closed := s.upstreams[us.be.u] != us
	if err == nil && !closed && s.level != nil {
		us.setLevelLocked(s.level)
	}
	close(us.ready)
	s.mu.Unlock()
	if err == nil && closed {
		us.close()
	}
}

func (us *upstreamSession) initialize() error {
	s := us.s
	us.scope.be = us.be
	us.peer = us.be.relay.Session(us.be.callerContext(s.ctx), &upstreamSender{us, nil, nil})
	if us.peer == nil {
		return unavailable("too many sessions with " + us.be.u.name)
	}
	s.mu.Lock()
	params, ctx := string(s.params), bridge.WithOrigin(s.ctx, s.origin)
	s.mu.Unlock()
	result, err := exchange(ctx, us.peer, mcp.MethodInitialize, params)
	if err != nil {
		us.peer.Close()
		return err
	}
	us.capabilities = era.Lookup(result, "capabilities")
	notify(s.ctx, us.peer, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
	return nil
}

// setLevel answers logging/setLevel, and sets the level of all upstreams.
func (s *session) setLevel(m *jsonrpc.Message, dst []byte) ([]byte, error) {
	level, ok := textParam(m, "level")
	if _, known := mcp.ParseLoggingLevel(level); !ok || !known {
		return dst, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: unknown level " + quote(level)}
	}
	params := append(jsonwire.AppendQuote([]byte(`{"level":`), level), '}')
	s.mu.Lock()
	s.level = params
	for _, us := range s.openLocked() {
		us.setLevelLocked(params)
	}
	s.mu.Unlock()
	return jsonrpc.AppendResult(dst, m.ID, []byte("{}")), nil
}

// openLocked returns the upstream sessions whose handshake is complete.
func (s *session) openLocked() (open []*upstreamSession) {
	for _, us := range s.upstreams {
		if us.isReady() && us.err == nil {
			open = append(open, us)
		}
	}
	return open
}

// setLevelLocked begins to set the log level of the upstream, if it logs.
func (us *upstreamSession) setLevelLocked(params []byte) {
	if era.Lookup(us.capabilities, "logging") == nil {
		return
	}
	before, done := us.leveled, make(chan struct{})
	us.leveled = done
	ok := us.s.g.running.Start(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		us.setLevel(params)
	})
	if !ok {
		close(done)
	}
}

// setLevel sets the log level of the upstream. It waits for the server up to Options.ListWait.
func (us *upstreamSession) setLevel(params []byte) {
	ctx, cancel := context.WithTimeout(us.s.ctx, us.s.g.state.Load().opts.ListWait)
	defer cancel()
	if _, err := exchange(ctx, us.peer, mcp.MethodSetLevel, string(params)); err != nil && us.s.ctx.Err() == nil {
		us.s.g.state.Load().opts.Logger.Debug("the log level was not set", "upstream", us.be.u.name, "error", err)
	}
}

// Notification implements relay.Peer.
func (s *session) Notification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	frame = frameOf(frame, m)
	ctx = bridge.WithOrigin(ctx, s.recorder.Received(ctx, frame))
	switch string(m.Method) {
	case mcp.NotificationInitialized:
	case mcp.NotificationCancelled:
		s.cancelCall(ctx, frame, m)
	case mcp.NotificationProgress:
		token, _ := m.Param(mcp.MetaProgressToken)
		for us := range s.upstreamsWithToken(jsonrpc.ID(token)) {
			us.peer.Notification(us.be.callerContext(ctx), frame, m)
		}
	case mcp.NotificationTaskStatus:
		// The task belongs to the client, and nothing says which server asked for it.
	default:
		s.mu.Lock()
		open := s.openLocked()
		s.mu.Unlock()
		for _, us := range open {
			us.peer.Notification(us.be.callerContext(ctx), frame, m)
		}
	}
}

// cancelCall forwards a cancellation to the upstream that has the request. It reports if there is
// one.
func (s *session) cancelCall(ctx context.Context, frame []byte, m *jsonrpc.Message) bool {
	id, _ := m.Param("requestId")
	s.mu.Lock()
	us := s.calls[jsonrpc.ID(id).Key()]
	s.mu.Unlock()
	if us == nil {
		return false
	}
	us.peer.Notification(us.be.callerContext(ctx), frame, m)
	return true
}

// upstreamsWithToken returns the upstreams with a pending request that has the progress token.
func (s *session) upstreamsWithToken(token jsonrpc.ID) map[*upstreamSession]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[*upstreamSession]bool{}
	for _, a := range s.serverRequests {
		if a.token != nil && a.token.Equal(token) {
			found[a.from] = true
		}
	}
	return found
}

// Response implements relay.Peer.
func (s *session) Response(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	key, _ := m.ID.Text()
	frame = frameOf(frame, m)
	ctx = bridge.WithOrigin(ctx, s.recorder.Received(ctx, frame))
	s.mu.Lock()
	a := s.serverRequests[key]
	sparse.Delete(&s.serverRequests, key)
	s.mu.Unlock()
	if a == nil {
		return
	}
	frame = a.from.scope.ownRelated(bridge.WithID(frame, a.id), "result")
	respond(a.from.be.callerContext(ctx), a.from.peer, frame)
}

// An upstreamSender sends messages of an upstream to the client of a session, by out, or if that is
// nil, by the session's own sender.
type upstreamSender struct {
	us  *upstreamSession
	out rpc.Sender
	// origin is the request to whose stream out sends.
	origin *bridge.Origin
}

// Send implements rpc.Sender.
func (u *upstreamSender) Send(message []byte) error { return u.SendFrom(message, bridge.Provenance{}) }

// SendFrom implements bridge.ProvenanceSender.
func (u *upstreamSender) SendFrom(message []byte, from bridge.Provenance) error {
	us := u.us
	s := us.s
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(message, m, 0); err != nil {
		return err
	}
	frame := message
	// The client may have subscribed by the server's own URI.
	if string(m.Method) != mcp.NotificationResourceUpdated || !s.isSubscribed(m) {
		frame = us.scope.message(message, m)
	}
	key := ""
	switch {
	case m.Kind == jsonrpc.KindRequest:
		var ok bool
		if key, ok = s.addServerRequest(us, m); !ok {
			return errors.New("the session has ended")
		}
		frame = bridge.WithID(frame, jsonrpc.StringID(key))
	case string(m.Method) == mcp.NotificationCancelled:
		id, _ := m.Param("requestId")
		key := s.removeServerRequest(us, jsonrpc.ID(id))
		if key == "" {
			return nil
		}
		frame = jsonedit.Splice(frame, jsonedit.Locate(frame, "params", "requestId"), jsonrpc.StringID(key))
	case us.scope.hides(m):
		return nil
	case isListChanged(string(m.Method)):
		return nil // the catalogs receive it, too, and the gateway announces what the client sees
	}
	var err error
	if u.out != nil {
		u.origin.Sent(frame, from)
		err = u.out.Send(frame)
	} else {
		err = s.send(frame, from)
	}
	if err != nil && key != "" {
		s.mu.Lock()
		sparse.Delete(&s.serverRequests, key)
		s.mu.Unlock()
	}
	return err
}

func isListChanged(method string) bool {
	for i := range kindTexts {
		if kindTexts[i].changed == method {
			return true
		}
	}
	return false
}

// addServerRequest records a request of an upstream and returns its id for the client.
func (s *session) addServerRequest(us *upstreamSession, m *jsonrpc.Message) (id string, ok bool) {
	a := &serverRequest{from: us, id: m.ID.Clone()}
	meta, _ := m.Param("_meta")
	if token := era.Lookup(meta, mcp.MetaProgressToken); token != nil {
		a.token = jsonrpc.ID(token).Clone()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", false
	}
	if len(s.serverRequests) >= maxServerRequests {
		s.evictServerRequestLocked()
	}
	s.requested++
	a.number = s.requested
	id = fmt.Sprintf("%s%s.%d", s.callPrefix, us.be.u.name, s.requested)
	sparse.Set(&s.serverRequests, id, a)
	return id, true
}

// evictServerRequestLocked answers the oldest request of a server with an error. The call that it
// belonged to may have ended long ago.
func (s *session) evictServerRequestLocked() {
	oldest := ""
	for key, a := range s.serverRequests {
		if oldest == "" || a.number < s.serverRequests[oldest].number {
			oldest = key
		}
	}
	a := s.serverRequests[oldest]
	sparse.Delete(&s.serverRequests, oldest)
	frame := jsonrpc.AppendError(nil, a.id, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client has not answered, and %d newer requests are pending", maxServerRequests), false)
	// The bridge must not be called while it sends.
	s.g.running.Start(func() { respond(s.ctx, a.from.peer, frame) })
}

// removeServerRequest forgets a request of an upstream. It returns its id for the client, or "".
func (s *session) removeServerRequest(us *upstreamSession, id jsonrpc.ID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, a := range s.serverRequests {
		if a.from == us && a.id.Equal(id) {
			sparse.Delete(&s.serverRequests, key)
			return key
		}
	}
	return ""
}
