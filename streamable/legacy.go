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

// postLegacy answers a message of a revision with sessions
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server).
func (x *exchange) postLegacy() {
	h, m := x.h, x.delivery.Message
	if m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize && x.r.Header[headerSession] == nil {
		x.initialize()
		return
	}
	s := h.sessionOf(x.w, x.r, x.asker, x.caller)
	if s == nil {
		return
	}
	defer s.leave()
	if m.Kind != jsonrpc.KindRequest {
		s.take(x.onBehalf(x.r.Context()), x.body, m)
		x.w.WriteHeader(http.StatusAccepted)
		return
	}
	if x.takesRequests() && h.allowed(x.w, x.r, m) {
		x.await(s, nil)
	}
}

// take acts on a message that is not answered.
func (s *session) take(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	if m.Kind == jsonrpc.KindNotification {
		if !s.confirmed.Load() && string(m.Method) == mcp.NotificationInitialized {
			s.confirmed.Store(true)
		}
		s.peer.notify(ctx, frame, m)
		return
	}
	s.peer.respond(ctx, frame, m)
}

// initialize opens a session.
func (x *exchange) initialize() {
	h, w, r := x.h, x.w, x.r
	if !x.takesRequests() || !h.allowed(w, r, x.delivery.Message) {
		return
	}
	s := h.open(r, x.caller.id)
	if s == nil {
		tooMany(w, "sessions of one caller")
		return
	}
	opened := false
	defer func() {
		if !opened {
			s.close(true)
		}
	}()
	p := x.respond()
	defer p.stop()
	// It has no outlet of its own: the id of the session must be in the header of what comes first, and is not agreed on before the answer.
	var err error
	x.answer, err = s.peer.deliver(x.onBehalf(r.Context()), x.body, &x.delivery, x.answer[:0])
	if err != nil || !s.agreed(x.answer) {
		if rejectionOf(err) == nil {
			err = nil // the status is that of any other answer
		}
		p.end(x.answer, err)
		return
	}
	if _, ok := h.sessions.add(s); !ok {
		unavailable(w, "too many sessions")
		return
	}
	opened = true
	if err := h.save(r.Context(), s, x.body); err != nil {
		h.opts.Logger.Error("session not saved", "error", err)
		h.sessions.end(s, true)
		unavailable(w, "the session could not be kept")
		return
	}
	w.Header()[headerSession] = []string{s.id}
	p.end(x.answer, nil)
}

// save keeps the session for other processes.
func (h *Handler) save(ctx context.Context, s *session, body []byte) error {
	if h.opts.Sessions == nil {
		return nil
	}
	return h.asked(ctx, func(ctx context.Context) error {
		return h.opts.Sessions.Save(ctx, s.id, &SavedSession{Principal: s.owner, Initialize: slices.Clone(body)})
	})
}

// load returns a session that another process may have saved; nil if there is none.
func (h *Handler) load(ctx context.Context, id string) (saved *SavedSession, err error) {
	err = h.asked(ctx, func(ctx context.Context) (err error) {
		saved, err = h.opts.Sessions.Load(ctx, id)
		return err
	})
	return saved, err
}

// asked calls the store of sessions, which has only so much time.
func (h *Handler) asked(ctx context.Context, ask func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer contain(&err)
	return ask(ctx)
}

// sessionOf returns the session that a request names, in use until the caller leaves it, or answers the request.
func (h *Handler) sessionOf(w http.ResponseWriter, r *http.Request, from asker, c *caller) *session {
	if h.legacy == nil {
		refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "this server has no sessions")
		return nil
	}
	if !h.checkVersion(w, from.versions) {
		return nil
	}
	ids := r.Header[headerSession]
	if ids == nil && from.versions == nil && !h.plain {
		refuseID(w, http.StatusBadRequest, nil, h.versionless())
		return nil
	}
	if len(ids) != 1 || ids[0] == "" {
		refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "header Mcp-Session-Id is missing: send initialize first, or the metadata of a revision without sessions")
		return nil
	}
	owner := from.principal.ID()
	s := h.sessions.get(ids[0])
	if s == nil {
		var refused bool
		if s, refused = h.takeOver(w, r, c, ids[0], owner); refused {
			return nil
		}
	}
	if s == nil || s.owner != owner {
		if s != nil {
			s.leave()
		}
		refuse(w, http.StatusNotFound, jsonrpc.CodeInvalidRequest, "session not found: send initialize again, without Mcp-Session-Id")
		return nil
	}
	return s
}

// checkVersion refuses a request that names a version which is none of the server's. One that names another than was agreed on is let through: clients do
// that, and it means nothing.
func (h *Handler) checkVersion(w http.ResponseWriter, versions []string) bool {
	switch len(versions) {
	case 0:
		return true
	case 1:
		if revision, ok := mcp.ParseRevision(versions[0]); ok && slices.Contains(h.legacy, revision) {
			return true
		}
	}
	refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, fmt.Sprintf("unsupported MCP-Protocol-Version: this server has sessions of %v", h.legacy))
	return false
}

// maxForeignID is the longest id of a session that is looked up elsewhere.
const maxForeignID = 64

// takeOver makes a session live here that another process has opened; nil if there is none. It has
// refused the request if that cannot be told, or there is no room for the session.
func (h *Handler) takeOver(w http.ResponseWriter, r *http.Request, c *caller, id, owner string) (s *session, refused bool) {
	if h.opts.Sessions == nil || len(id) > maxForeignID {
		return nil, false
	}
	saved, err := h.load(r.Context(), id)
	if err != nil {
		h.opts.Logger.Error("session not loaded", "error", err)
		unavailable(w, "the session could not be looked up")
		return nil, true
	}
	if saved == nil || saved.Principal != owner {
		return nil, false
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(saved.Initialize, &m, 0) != nil {
		return nil, false
	}
	if s = h.open(r, c.id); s == nil {
		tooMany(w, "sessions of one caller")
		return nil, true
	}
	s.id = id
	answer, err := s.peer.deliver(s.ctx, saved.Initialize, &jsonrpc.Delivery{Message: &m}, nil)
	if err != nil || !s.agreed(answer) {
		s.close(false)
		return nil, false
	}
	s.peer.notify(s.ctx, nil, initialized)
	s.confirmed.Store(true)
	s.enter()
	kept, ok := h.sessions.add(s)
	if kept != s {
		s.close(false) // its events are those of the one that lives
	}
	if !ok {
		unavailable(w, "too many sessions")
		return nil, true
	}
	return kept, false
}

// initialized is what a client sends when it has understood the answer to initialize.
var initialized = func() *jsonrpc.Message {
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil), m, 0); err != nil {
		panic(err)
	}
	return m
}()

// await has the request handled, or the batch if entries are not nil, and answers it. It goes on when the client has gone: that is no cancellation in these
// revisions.
func (x *exchange) await(s *session, entries []jsonrpc.Entry) {
	p := x.respond()
	// A response of HTTP/1 can be ended while the handler goes on, see response.cut. One of HTTP/2 ends when this returns, so the handler must be elsewhere. To
	// have it there always would double what a quick request costs.
	if p.cuttable = x.r.ProtoMajor == 1; p.cuttable {
		p.gone = x.r.Context()
	}
	st, left := x.answers(s, p, !p.cuttable)
	x.entries = entries
	x.begun(exchangeLegacy)
	answered := false
	defer func() {
		if !answered {
			st.abandon(p)
		}
	}()
	p.keepWarmSince(st, x.at)
	if p.cuttable && !x.takes.stream { // nothing is written that would fail when the client has gone
		here := context.AfterFunc(x.r.Context(), func() { st.doubts(p) })
		defer func() {
			if !here() {
				x.watched = true
			}
		}()
	}
	if p.cuttable {
		if answered = x.run(s, st, entries) == p; answered {
			return
		}
	} else {
		x.kept = true
		s.enter()
		go func() {
			defer x.h.leave(x.caller, &x.pending)
			defer s.leave()
			x.run(s, st, entries)
		}()
		select {
		case <-left:
		case <-x.r.Context().Done():
		}
	}
	p.unanswered(x.id())
}

// run is the work of await. It returns the response that the answer has ended, which may be another by now; nil if none.
func (x *exchange) run(s *session, st *stream, entries []jsonrpc.Entry) (ended *response) {
	defer func() {
		if x.more > 0 {
			x.caller.add(-x.more)
		}
	}()
	returned := false
	defer func() {
		if !returned { // the handler has ended the goroutine
			st.finish(jsonrpc.AppendError(nil, x.id(), errExited, false), nil)
			if x.r.ProtoMajor == 1 {
				http.NewResponseController(x.w).Flush() // what net/http does at the end is not done
			}
		}
	}()
	ctx := x.onBehalf(x.r.Context())
	var err error
	if entries != nil {
		x.answer = s.batch(ctx, st, entries, x.answer[:0])
	} else {
		x.delivery.Outlet, x.delivery.Until = st, s.ctx
		x.answer, err = s.peer.deliver(ctx, x.body, &x.delivery, x.answer[:0])
		if err == nil && !s.confirmed.Load() && string(x.delivery.Message.Method) != mcp.MethodPing {
			s.confirmed.Store(true) // as good as saying so, where the server takes requests without
		}
		if statusOf(err) != http.StatusTooManyRequests && rejectionOf(err) == nil {
			err = nil // other errors of these revisions have status 200
		}
	}
	returned = true
	if st.isCarried() {
		var done func()
		done, err = x.makeRoom(s.ctx, err)
		defer done()
	}
	return st.finish(x.answer, err)
}

// get opens the stream of what belongs to no request, or resumes another
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#listening-for-messages-from-the-server).
// It reports whether a goroutine goes on with it, which has to leave then.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, from asker, c *caller) (goesOn bool) {
	if h.legacy == nil || h.asksModern(r, from) {
		h.notAllowed(w, true)
		return false
	}
	takes := acceptedOf(r)
	if !takes.stream {
		refuse(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow text/event-stream")
		return false
	}
	last := ""
	switch ids := r.Header[headerLastID]; {
	case len(ids) > 1:
		refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "there are several Last-Event-ID headers")
		return false
	case len(ids) == 1:
		last = ids[0]
	}
	s := h.sessionOf(w, r, from, c)
	if s == nil {
		return false
	}
	leave, ok := h.enterStream(w, c)
	if !ok {
		s.leave()
		return false
	}
	l := &listener{h: h, caller: c, p: h.respond(w, r, takes), leave: func() {
		leave()
		s.leave()
	}}
	defer func() { goesOn = l.served() }()
	ctx := l.begin(r)
	st := &s.news
	if last != "" {
		var err error
		if st, err = s.behind(ctx, last); err != nil {
			h.gone(w, err)
			return false
		}
	}
	l.carry(ctx, st, last)
	return // what served says
}

// carry has the listener's response carry a stream, from behind an event on, until there is no more of it, or ctx ends.
func (l *listener) carry(ctx context.Context, st *stream, from string) {
	h, p := l.h, l.p
	left, err := st.resume(ctx, p, from)
	switch {
	case err == nil && st.over() && !p.begun():
		// A stream without anything, a client would resume again, and some as the session's own, which takes the place of the one that they have.
		setHeader(p.w.Header(), sseType)
		p.w.WriteHeader(http.StatusNoContent)
		return
	case err == nil:
	case !p.begun():
		h.gone(p.w, err)
		return
	default:
		h.opts.Logger.Warn("a stream breaks off", "error", err)
		return
	}
	p.keepWarm(st)
	l.end = func(bool) { st.abandon(p) }
	if st.hold(p) {
		l.held(ctx)
		return
	}
	select {
	case <-left:
	case <-ctx.Done():
	case <-h.closed.Done():
	}
}

// gone answers a request to resume what cannot be.
func (h *Handler) gone(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrEventGone) {
		refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "the stream cannot be resumed: its events are gone, or Last-Event-ID is none of this session's")
		return
	}
	h.opts.Logger.Error("events not loaded", "error", err)
	unavailable(w, "the events could not be loaded")
}

// enterStream counts a standing stream, or refuses it.
func (h *Handler) enterStream(w http.ResponseWriter, c *caller) (leave func(), ok bool) {
	if h.streams.Add(1) > int64(h.opts.MaxStreams) {
		h.streams.Add(-1)
		unavailable(w, "too many streams are open")
		return nil, false
	}
	if !h.listeners.enter(c.id, h.opts.MaxPerCaller) {
		h.streams.Add(-1)
		tooMany(w, "streams of one caller")
		return nil, false
	}
	c.add(-1)
	return func() {
		c.add(1)
		h.listeners.leave(c.id)
		h.streams.Add(-1)
	}, true
}

// delete ends a session at its client's wish.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, from asker, c *caller) {
	if h.legacy == nil || h.asksModern(r, from) {
		h.notAllowed(w, true)
		return
	}
	s := h.sessionOf(w, r, from, c)
	if s == nil {
		return
	}
	defer s.leave()
	if h.opts.Sessions != nil {
		err := h.asked(r.Context(), func(ctx context.Context) error { return h.opts.Sessions.Delete(ctx, s.id) })
		if err != nil { // another process would take it over
			h.opts.Logger.Error("session not deleted", "error", err)
			unavailable(w, "the session could not be deleted")
			return
		}
	}
	h.sessions.end(s, true)
	w.WriteHeader(http.StatusNoContent)
}
