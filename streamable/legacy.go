package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// serveLegacy answers a message of a revision with sessions
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server).
func (pr *postRequest) serveLegacy() {
	h, m := pr.h, pr.delivery.Message
	if m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize && pr.r.Header[headerSession] == nil {
		pr.serveInitialize()
		return
	}
	s := h.acquireSession(pr.w, pr.r, pr.requester, pr.caller)
	if s == nil {
		return
	}
	defer s.release()
	if m.Kind != jsonrpc.KindRequest {
		s.deliverOneWay(pr.withIdentity(pr.r.Context()), pr.body, m)
		pr.w.WriteHeader(http.StatusAccepted)
		return
	}
	if pr.admitRequest() && h.allowed(pr.w, pr.r, m) {
		pr.serveLegacyRequest(s, nil)
	}
}

// deliverOneWay acts on a message that is not answered.
func (s *session) deliverOneWay(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	if m.Kind == jsonrpc.KindNotification {
		if !s.initialized.Load() && string(m.Method) == mcp.NotificationInitialized {
			s.initialized.Store(true)
		}
		s.peer.deliverNotification(ctx, frame, m)
		return
	}
	s.peer.deliverResponse(ctx, frame, m)
}

// serveInitialize opens a session.
func (pr *postRequest) serveInitialize() {
	h, w, r := pr.h, pr.w, pr.r
	if !pr.admitRequest() || !h.allowed(w, r, pr.delivery.Message) {
		return
	}
	s := h.newSession(r, pr.caller.id)
	if s == nil {
		writeRateLimited(w, "sessions of one caller")
		return
	}
	opened := false
	defer func() {
		if !opened {
			s.close(true)
		}
	}()
	rs := pr.beginResponse()
	defer rs.stop()
	// It has no outlet of its own: the id of the session must be in the header of what comes first, and is not agreed on before the answer.
	var err error
	pr.answer, err = s.peer.deliverRequest(pr.withIdentity(r.Context()), pr.body, &pr.delivery, pr.answer[:0])
	if err != nil || !s.setNegotiated(pr.answer) {
		if rejectedError(err) == nil {
			err = nil // the status is that of any other answer
		}
		rs.end(pr.answer, err)
		return
	}
	if _, ok := h.sessions.add(s); !ok {
		writeUnavailable(w, "too many sessions")
		return
	}
	opened = true
	if err := h.saveSession(r.Context(), s, pr.body); err != nil {
		h.opts.Logger.Error("session not saved", "error", err)
		h.sessions.end(s, true)
		writeUnavailable(w, "the session could not be kept")
		return
	}
	w.Header()[headerSession] = []string{s.id}
	rs.end(pr.answer, nil)
}

// saveSession keeps the session for other processes.
func (h *Handler) saveSession(ctx context.Context, s *session, body []byte) error {
	if h.opts.Sessions == nil {
		return nil
	}
	return h.callStore(ctx, func(ctx context.Context) error {
		return h.opts.Sessions.Save(ctx, s.id, &SavedSession{Principal: s.principalID, Initialize: slices.Clone(body)})
	})
}

// loadSession returns a session that another process may have saved; nil if there is none.
func (h *Handler) loadSession(ctx context.Context, id string) (saved *SavedSession, err error) {
	err = h.callStore(ctx, func(ctx context.Context) (err error) {
		saved, err = h.opts.Sessions.Load(ctx, id)
		return err
	})
	return saved, err
}

// callStore calls the store of sessions, which has only so much time.
func (h *Handler) callStore(ctx context.Context, call func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer recoverStore(&err)
	return call(ctx)
}

// acquireSession returns the session that a request names, in use until the caller leaves it, or answers the request.
func (h *Handler) acquireSession(w http.ResponseWriter, r *http.Request, from requester, c *caller) *session {
	if h.legacy == nil {
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "this server has no sessions")
		return nil
	}
	if !h.checkLegacyVersion(w, from.versions) {
		return nil
	}
	ids := r.Header[headerSession]
	if ids == nil && from.versions == nil && !h.versionHeaderOptional {
		writeErrorID(w, http.StatusBadRequest, nil, h.missingVersionError())
		return nil
	}
	if len(ids) != 1 || ids[0] == "" {
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "header Mcp-Session-Id is missing: send initialize first, or the metadata of a revision without sessions")
		return nil
	}
	principalID := from.principal.ID()
	s := h.sessions.acquire(ids[0])
	if s == nil {
		var refused bool
		if s, refused = h.takeOver(w, r, c, ids[0], principalID); refused {
			return nil
		}
	}
	if s == nil || s.principalID != principalID {
		if s != nil {
			s.release()
		}
		writeError(w, http.StatusNotFound, jsonrpc.CodeInvalidRequest, "session not found: send initialize again, without Mcp-Session-Id")
		return nil
	}
	return s
}

// checkLegacyVersion refuses a request that names a version which is none of the server's. One that names another than was agreed on is let through: clients do
// that, and it means nothing.
func (h *Handler) checkLegacyVersion(w http.ResponseWriter, versions []string) bool {
	switch len(versions) {
	case 0:
		return true
	case 1:
		if revision, ok := mcp.ParseRevision(versions[0]); ok && slices.Contains(h.legacy, revision) {
			return true
		}
	}
	writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, fmt.Sprintf("unsupported MCP-Protocol-Version: this server has sessions of %v", h.legacy))
	return false
}

// maxStoredID is the longest id of a session that is looked up elsewhere.
const maxStoredID = 64

// takeOver makes a session live here that another process has opened; nil if there is none. It has
// refused the request if that cannot be told, or there is no room for the session.
func (h *Handler) takeOver(w http.ResponseWriter, r *http.Request, c *caller, id, principalID string) (s *session, refused bool) {
	if h.opts.Sessions == nil || len(id) > maxStoredID {
		return nil, false
	}
	saved, err := h.loadSession(r.Context(), id)
	if err != nil {
		h.opts.Logger.Error("session not loaded", "error", err)
		writeUnavailable(w, "the session could not be looked up")
		return nil, true
	}
	if saved == nil || saved.Principal != principalID {
		return nil, false
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(saved.Initialize, &m, 0) != nil {
		return nil, false
	}
	if s = h.newSession(r, c.id); s == nil {
		writeRateLimited(w, "sessions of one caller")
		return nil, true
	}
	s.id = id
	answer, err := s.peer.deliverRequest(s.ctx, saved.Initialize, &jsonrpc.Delivery{Message: &m}, nil)
	if err != nil || !s.setNegotiated(answer) {
		s.close(false)
		return nil, false
	}
	s.peer.deliverNotification(s.ctx, nil, initializedNotification)
	s.initialized.Store(true)
	s.acquire()
	live, ok := h.sessions.add(s)
	if live != s {
		s.close(false) // its events are those of the one that lives
	}
	if !ok {
		writeUnavailable(w, "too many sessions")
		return nil, true
	}
	return live, false
}

// initializedNotification is what a client sends when it has understood the answer to initialize.
var initializedNotification = func() *jsonrpc.Message {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil), m, 0); err != nil {
		panic(err)
	}
	return m
}()

// serveLegacyRequest has the request handled, or the batch if entries are not nil, and answers it. It goes on when the client has gone: that is no cancellation in these
// revisions.
func (pr *postRequest) serveLegacyRequest(s *session, entries []jsonrpc.Entry) {
	rs := pr.beginResponse()
	// A response of HTTP/1 can be ended while the handler goes on, see response.cut. One of HTTP/2 ends when this returns, so the handler must be elsewhere. To
	// have it there always would double what a quick request costs.
	if rs.hijackable = pr.r.ProtoMajor == 1; rs.hijackable {
		rs.clientGone = pr.r.Context()
	}
	st, detached := pr.beginStream(s, rs, !rs.hijackable)
	pr.batch = entries
	pr.markAbortable(postStateLegacy)
	answered := false
	defer func() {
		if !answered {
			st.detach(rs)
		}
	}()
	rs.startKeepAliveAt(st, pr.readAt)
	if rs.hijackable && !pr.accept.stream { // nothing is written that would fail when the client has gone
		stopWatch := context.AfterFunc(pr.r.Context(), func() { st.markSuspect(rs) })
		defer func() {
			if !stopWatch() {
				pr.referenced = true
			}
		}()
	}
	if rs.hijackable {
		if answered = pr.handleLegacyRequest(s, st, entries) == rs; answered {
			return
		}
	} else {
		pr.detached = true
		s.acquire()
		go func() {
			defer pr.h.releaseHTTP(pr.caller, &pr.admission)
			defer s.release()
			pr.handleLegacyRequest(s, st, entries)
		}()
		select {
		case <-detached:
		case <-pr.r.Context().Done():
		}
	}
	rs.endUnanswered(pr.id())
}

// handleLegacyRequest is the work of await. It returns the response that the answer has ended, which may be another by now; nil if none.
func (pr *postRequest) handleLegacyRequest(s *session, st *stream, entries []jsonrpc.Entry) (ended *response) {
	defer func() {
		if pr.extraRequests > 0 {
			pr.caller.add(-pr.extraRequests)
		}
	}()
	returned := false
	defer func() {
		if !returned { // the handler has ended the goroutine
			st.finish(jsonrpc.AppendError(nil, pr.id(), errHandlerExited, false), nil)
			if pr.r.ProtoMajor == 1 {
				http.NewResponseController(pr.w).Flush() // what net/http does at the end is not done
			}
		}
	}()
	ctx := pr.withIdentity(pr.r.Context())
	var err error
	if entries != nil {
		pr.answer = s.deliverBatch(ctx, st, entries, pr.answer[:0])
	} else {
		pr.delivery.Sender, pr.delivery.Lifetime = st, s.ctx
		pr.answer, err = s.peer.deliverRequest(ctx, pr.body, &pr.delivery, pr.answer[:0])
		if err == nil && !s.initialized.Load() && string(pr.delivery.Message.Method) != mcp.MethodPing {
			s.initialized.Store(true) // as good as saying so, where the server takes requests without
		}
		if statusOf(err) != http.StatusTooManyRequests && rejectedError(err) == nil {
			err = nil // other errors of these revisions have status 200
		}
	}
	returned = true
	if st.isAttached() {
		var release func()
		release, err = pr.reserveUnread(s.ctx, err)
		defer release()
	}
	return st.finish(pr.answer, err)
}

// serveGet opens the stream of what belongs to no request, or resumes another
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#listening-for-messages-from-the-server).
// It reports whether a goroutine goes on with it, which has to leave then.
func (h *Handler) serveGet(w http.ResponseWriter, r *http.Request, from requester, c *caller) (detached bool) {
	if h.legacy == nil || h.isModern(r, from) {
		h.writeMethodNotAllowed(w, true)
		return false
	}
	accept := parseAccept(r)
	if !accept.stream {
		writeError(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow text/event-stream")
		return false
	}
	last := ""
	switch ids := r.Header[headerLastID]; {
	case len(ids) > 1:
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "there are several Last-Event-ID headers")
		return false
	case len(ids) == 1:
		last = ids[0]
	}
	s := h.acquireSession(w, r, from, c)
	if s == nil {
		return false
	}
	release, ok := h.admitStream(w, c)
	if !ok {
		s.release()
		return false
	}
	ss := &standingStream{h: h, caller: c, response: h.newResponse(w, r, accept), release: func() {
		release()
		s.release()
	}}
	defer func() { detached = ss.done() }()
	ctx := ss.begin(r)
	st := &s.standalone
	if last != "" {
		var err error
		if st, err = s.streamAfter(ctx, last); err != nil {
			h.writeNotResumable(w, err)
			return false
		}
	}
	ss.serveStream(ctx, st, last)
	return // what served says
}

// serveStream has the listener's response carry a stream, from behind an event on, until there is no more of it, or ctx ends.
func (ss *standingStream) serveStream(ctx context.Context, st *stream, lastID string) {
	h, rs := ss.h, ss.response
	detached, err := st.resume(ctx, rs, lastID)
	switch {
	case err == nil && st.isComplete() && !rs.isStreaming():
		// A stream without anything, a client would resume again, and some as the session's own, which takes the place of the one that they have.
		setHeader(rs.w.Header(), sseType)
		rs.w.WriteHeader(http.StatusNoContent)
		return
	case err == nil:
	case !rs.isStreaming():
		h.writeNotResumable(rs.w, err)
		return
	default:
		h.opts.Logger.Warn("a stream breaks off", "error", err)
		return
	}
	rs.startKeepAlive(st)
	ss.end = func(bool) { st.detach(rs) }
	if st.hijack(rs) {
		ss.serveHijacked(ctx)
		return
	}
	select {
	case <-detached:
	case <-ctx.Done():
	case <-h.closed.Done():
	}
}

// writeNotResumable answers a request to resume what cannot be.
func (h *Handler) writeNotResumable(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrEventGone) {
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "the stream cannot be resumed: its events are gone, or Last-Event-ID is none of this session's")
		return
	}
	h.opts.Logger.Error("events not loaded", "error", err)
	writeUnavailable(w, "the events could not be loaded")
}

// admitStream counts a standing stream, or refuses it.
func (h *Handler) admitStream(w http.ResponseWriter, c *caller) (release func(), ok bool) {
	if h.streams.Add(1) > int64(h.opts.MaxStreams) {
		h.streams.Add(-1)
		writeUnavailable(w, "too many streams are open")
		return nil, false
	}
	if !h.streamsPerCaller.acquire(c.id, h.opts.MaxPerCaller) {
		h.streams.Add(-1)
		writeRateLimited(w, "streams of one caller")
		return nil, false
	}
	c.add(-1)
	return func() {
		c.add(1)
		h.streamsPerCaller.release(c.id)
		h.streams.Add(-1)
	}, true
}

// serveDelete ends a session at its client's wish.
func (h *Handler) serveDelete(w http.ResponseWriter, r *http.Request, from requester, c *caller) {
	if h.legacy == nil || h.isModern(r, from) {
		h.writeMethodNotAllowed(w, true)
		return
	}
	s := h.acquireSession(w, r, from, c)
	if s == nil {
		return
	}
	defer s.release()
	if h.opts.Sessions != nil {
		err := h.callStore(r.Context(), func(ctx context.Context) error { return h.opts.Sessions.Delete(ctx, s.id) })
		if err != nil { // another process would take it over
			h.opts.Logger.Error("session not deleted", "error", err)
			writeUnavailable(w, "the session could not be deleted")
			return
		}
	}
	h.sessions.end(s, true)
	w.WriteHeader(http.StatusNoContent)
}
