package streamable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A session belongs to one legacy client
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management)
// and to the principal that opened it: for others it does not exist.
type session struct {
	// Hot fields first: each request touches them.
	h *Handler
	// principalID is the id of the principal, "" for an anonymous client.
	principalID string
	peer        peer
	ctx         context.Context
	// active counts requests and streams.
	active atomic.Int32
	// used is set by requests and cleared by the sweeper. A flag avoids reading the clock, which
	// would cost as much as acquire and release.
	used atomic.Bool
	// orphaned counts requests whose client is gone and cannot resume them.
	orphaned atomic.Int32

	// id is what the client sends. key, its first part, is the session's name in stores.
	id, key string
	// expires is the time when the id expires. It is zero if it doesn't.
	expires time.Time
	// callerID is the caller that the session counts for.
	callerID string
	// endPeer ends the session of the server, see [openFunc].
	endPeer func(over bool)
	cancel  context.CancelCauseFunc
	// standalone carries messages that belong to no request.
	standalone stream

	// features are those of the negotiated revision. They are nil before.
	features atomic.Pointer[era.Features]
	// initialized means that the client has sent notifications/initialized.
	initialized atomic.Bool

	// lastUsed and lastAwaited are times of the handler's clock. Once the session is listed, only
	// the sweeper uses them.
	//
	// lastUsed is the time when the session was opened, or last found used.
	lastUsed time.Duration
	// lastAwaited is the time when the session was opened, or last found with a waiting client.
	lastAwaited time.Duration
	// touched is the time when the session store was last asked for the session, by the same clock.
	touched atomic.Int64

	mu sync.Mutex
	// streams has the pending streams that have a name.
	streams map[string]*stream
	// lastStream is the number of the last named stream.
	lastStream int
	// gaps has the names of streams that lack an event in the store.
	gaps  map[string]bool
	ended bool
	// over means that the session has ended at all processes.
	over atomic.Bool

	// shared is nil if no other process can take over the session.
	shared *sharedState
}

// standaloneName is the name of the stream that belongs to no request.
const standaloneName = "s"

// newSession makes a session that is not listed yet. It returns nil if the caller has too many.
func (h *Handler) newSession(r *http.Request, caller, key string) *session {
	s := &session{h: h, id: key, key: key, principalID: principalIDOf(r), callerID: strings.Clone(caller), lastUsed: h.clock.elapsed()}
	s.lastAwaited = s.lastUsed
	s.touched.Store(int64(s.lastUsed))
	if !h.sessions.perCaller.acquire(s.callerID, h.opts.Limits.MaxPerCaller) {
		return nil
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.standalone.session, s.standalone.name, s.standalone.streaming = s, standaloneName, true
	p := auth.PrincipalOf(r.Context())
	shared := ""
	if h.opts.Sessions != nil {
		s.shared = &sharedState{session: s, identity: h.withIdentity(s.ctx, r, p)}
		shared = key
	}
	s.peer, s.endPeer = h.openPeer(h.withIdentity(r.Context(), r, p), &s.standalone, shared)
	return s
}

// close ends the session with its streams. The caller has removed it from the table. drop also
// drops its events and ends its tasks, because it ends at all processes.
func (s *session) close(drop bool) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	s.over.Store(drop)
	streams := slices.Collect(maps.Values(s.streams))
	s.mu.Unlock()
	for _, st := range append(streams, &s.standalone) {
		st.close()
	}
	var cause error
	if s.h.closed.Err() != nil {
		cause = jsonrpc.ErrShutdown
	}
	s.cancel(cause)
	s.endPeer(drop)
	s.h.sessions.perCaller.release(s.callerID)
	if !drop {
		return
	}
	if err := s.dropEvents(); err != nil {
		s.h.opts.Logger.Warn("events of a session not deleted", "error", err)
	}
}

// dropEvents removes the session's events from the store.
func (s *session) dropEvents() (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), storeTimeout)
	defer cancel()
	defer recoverStore(&err)
	return s.h.events.Drop(ctx, s.key)
}

// acquire marks the session as used until release is called.
func (s *session) acquire() { s.active.Add(1) }

func (s *session) release() {
	if !s.used.Load() {
		s.used.Store(true)
	}
	s.active.Add(-1)
}

// handshakeTimeout is the idle time after which a session expires if its client has not sent
// notifications/initialized.
const handshakeTimeout = 30 * time.Second

// isExpired reports whether the session must end, because it is idle or no client waits for its
// requests. It must not be called concurrently.
func (s *session) isExpired() bool {
	now, o := s.h.clock.elapsed(), &s.h.opts
	active, used := s.active.Load(), s.used.Swap(false)
	if late := s.pastLifetime(); late >= 0 && (active == 0 || late >= o.Timeouts.Abandon) {
		return true
	}
	if used || active > 0 {
		s.lastUsed = now
	}
	if used || active > 0 && s.isAwaited(active) {
		s.lastAwaited = now
	}
	switch {
	case active > 0:
		return now-s.lastAwaited >= o.Timeouts.Abandon
	case !s.initialized.Load():
		return now-s.lastUsed >= min(handshakeTimeout, o.Timeouts.Session)
	}
	return now-s.lastUsed >= o.Timeouts.Session
}

// pastLifetime returns the time since the session's id expired. It is negative if it is valid.
func (s *session) pastLifetime() time.Duration {
	if s.expires.IsZero() {
		return -1
	}
	return s.h.clock.now().Sub(s.expires)
}

// isAwaited reports whether a client waits for one of the active requests and streams.
func (s *session) isAwaited(active int32) bool {
	abandoned := s.orphaned.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if !st.mu.TryLock() {
			continue // a write, or a read from the store, is in progress
		}
		if st.out == nil && !st.done {
			abandoned++
		}
		st.mu.Unlock()
	}
	return active > abandoned
}

// needsTouch reports whether the session store must be asked for the session to keep it alive.
func (s *session) needsTouch() bool {
	touched := time.Duration(s.touched.Load())
	return s.lastUsed > touched && s.h.clock.elapsed()-touched >= s.h.opts.Timeouts.Session/4
}

// register names a stream so that it can be found again. The name is unique among processes if they
// share sessions.
func (s *session) register(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastStream++
	st.name = s.h.streamName(s.lastStream, st.requestID)
	if !s.ended {
		sparse.Set(&s.streams, st.name, st)
	}
}

// findStream returns a pending stream by its name, or nil.
func (s *session) findStream(name string) *stream {
	if name == standaloneName {
		return &s.standalone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[name]
}

// streamAfter returns the stream that has the event: one of this process or of another.
func (s *session) streamAfter(ctx context.Context, id string) (*stream, *remoteStream, error) {
	name, err := s.streamName(ctx, id)
	if errors.Is(err, ErrEventGone) {
		if st := s.streamEndingWith(id); st != nil {
			return st, nil, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if s.hasGap(name) {
		return nil, nil, ErrEventGone
	}
	if st := s.findStream(name); st != nil {
		return st, nil, nil
	}
	if remote := s.remoteStream(name); remote != nil {
		return nil, remote, nil
	}
	// all of it is in the store
	return &stream{session: s, name: name, done: true}, nil, nil
}

// streamName returns the name of the stream of an event. If the name is in the id, the store may
// not have the event.
func (s *session) streamName(ctx context.Context, id string) (name string, err error) {
	follower, ok := s.h.events.(EventFollower)
	if !ok {
		name, _, err = s.h.events.After(ctx, s.key, id)
		return name, err
	}
	if name, ok = follower.StreamOf(id); !ok {
		return "", ErrEventGone
	}
	return name, nil
}

// streamEndingWith returns the stream whose newest event has that id, or nil. It works without the
// store, which forgets old events: on a quiet stream nothing follows the event.
func (s *session) streamEndingWith(id string) *stream {
	s.mu.Lock()
	streams := append(slices.Collect(maps.Values(s.streams)), &s.standalone)
	s.mu.Unlock()
	for _, st := range streams {
		if st.endsWith(id) {
			return st
		}
	}
	return nil
}

// maxGaps limits the streams with gaps that a session remembers. Beyond it, none of its streams can
// be resumed.
const maxGaps = 256

// noteGap notes that a stream lacks an event, so that it must not be resumed.
func (s *session) noteGap(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.gaps) < maxGaps {
		sparse.Set(&s.gaps, name, true)
	}
}

// hasGap reports whether a stream may lack an event. The standalone stream tracks that itself.
func (s *session) hasGap(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return name != standaloneName && (s.gaps[name] || len(s.gaps) >= maxGaps)
}

func (s *session) unregister(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.name)
	s.mu.Unlock()
}

// polling reports whether clients of the session resume streams that the server closed.
func (s *session) polling() bool {
	f := s.features.Load()
	return f != nil && f.Polling
}

// setNegotiated stores the revision of the response to initialize. It reports false if that is not
// a valid result.
func (s *session) setNegotiated(answer []byte) bool {
	var m jsonrpc.Message
	if jsonrpc.Parse(answer, &m, 0) != nil || m.Kind != jsonrpc.KindResponse {
		return false
	}
	result, err := era.ReadInitialize(m.Result)
	if err != nil || len(result.Versions) == 0 {
		return false
	}
	revision, ok := mcp.ParseRevision(result.Versions[0])
	if ok {
		s.features.Store(era.Of(revision))
	}
	return ok
}

// A sessionTable has the sessions of a handler, in shards with separate locks.
type sessionTable struct {
	h     *Handler
	count atomic.Int64
	// perCaller counts the sessions of each caller.
	perCaller callerCounts
	shards    [16]struct {
		mu    sync.Mutex
		byKey map[string]*session
	}
	sweeper *time.Timer
	armed   atomic.Bool
	// startWatch starts the goroutine of watch.
	startWatch sync.Once
}

func (t *sessionTable) init(h *Handler) {
	t.h = h
	t.sweeper = time.AfterFunc(time.Hour, t.sweep)
	t.sweeper.Stop()
}

// shardOf returns the shard of the key, which is random in every character.
func shardOf(key string) int { return int(key[len(key)-1]) % 16 }

// acquire returns a session by its key, which must not be empty, or nil if it isn't listed.
func (t *sessionTable) acquire(key string) *session {
	p := &t.shards[shardOf(key)]
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.byKey[key]
	if s != nil {
		s.acquire() // so that it does not expire now
	}
	return s
}

// add lists a session, unless there are too many or the handler is shutting down. If a session with
// the key exists already, add acquires and returns that one.
func (t *sessionTable) add(s *session) (live *session, rejected *rejection) {
	if t.count.Add(1) > int64(t.h.opts.Limits.MaxSessions) {
		t.count.Add(-1)
		if t.h.admission.closing.Load() {
			return nil, rejectedByShutdown
		}
		return nil, overloadedSessions
	}
	p := &t.shards[shardOf(s.key)]
	p.mu.Lock()
	other := p.byKey[s.key]
	if other == nil {
		sparse.Set(&p.byKey, s.key, s)
	} else {
		other.acquire()
	}
	p.mu.Unlock()
	if other != nil {
		t.count.Add(-1)
		return other, nil
	}
	if !t.armed.Swap(true) {
		t.sweeper.Reset(t.sweepInterval())
	}
	if store, ok := t.h.opts.Sessions.(SessionWatcher); ok {
		t.startWatch.Do(func() { t.h.followers.Start(func() { t.watch(store) }) })
	}
	if t.h.admission.closing.Load() {
		t.end(s, t.isLocal())
		return nil, rejectedByShutdown
	}
	return s, nil
}

// isLocal reports whether no other process knows the sessions.
func (t *sessionTable) isLocal() bool { return t.h.opts.Sessions == nil }

// end removes a session and closes it.
func (t *sessionTable) end(s *session, drop bool) {
	if t.unlist(s) {
		s.close(drop)
	}
}

// unlist removes a session. It reports false if that was done before.
func (t *sessionTable) unlist(s *session) bool {
	p := &t.shards[shardOf(s.key)]
	p.mu.Lock()
	listed := p.byKey[s.key] == s
	if listed {
		delete(p.byKey, s.key)
	}
	p.mu.Unlock()
	if listed {
		t.count.Add(-1)
	}
	return listed
}

// removeIf removes and returns the sessions for which match reports true.
func (t *sessionTable) removeIf(match func(*session) bool) []*session {
	var list []*session
	for i := range t.shards {
		p := &t.shards[i]
		p.mu.Lock()
		for key, s := range p.byKey {
			if match(s) {
				delete(p.byKey, key)
				list = append(list, s)
			}
		}
		p.mu.Unlock()
	}
	t.count.Add(-int64(len(list)))
	return list
}

// sweepInterval returns the time between sweeps.
func (t *sessionTable) sweepInterval() time.Duration {
	return max(min(t.h.opts.Timeouts.Session/4, 15*time.Second), 100*time.Millisecond)
}

// sweep ends idle and abandoned sessions, and makes the store keep the others. It reschedules
// itself while there are sessions.
func (t *sessionTable) sweep() {
	var due []*session
	expired := t.removeIf(func(s *session) bool {
		if s.isExpired() {
			return true
		}
		if !t.isLocal() && s.needsTouch() {
			due = append(due, s)
		}
		return false
	})
	for _, s := range expired {
		t.h.opts.Logger.Debug("idle session ended")
		s.close(t.isLocal())
	}
	t.touch(due)
	t.armed.Store(false)
	if t.count.Load() > 0 && !t.armed.Swap(true) {
		t.sweeper.Reset(t.sweepInterval())
	}
}

func (t *sessionTable) endAll() {
	for _, s := range t.removeIf(func(*session) bool { return true }) {
		s.close(t.isLocal())
	}
	t.sweeper.Stop()
}

// cancelAll cancels the pending requests of all sessions. It does not wait.
func (t *sessionTable) cancelAll() {
	t.removeIf(func(s *session) bool {
		s.cancel(jsonrpc.ErrShutdown)
		return false
	})
}

// serveLegacy answers a message of a revision with sessions
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server).
func (pr *postRequest) serveLegacy() {
	h, m := pr.h, pr.delivery.Message
	if m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize && pr.r.Header[headerSession] == nil {
		pr.serveInitialize()
		return
	}
	if (m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError) && h.forwardUnopened(pr.r, pr.requester, m) {
		pr.w.WriteHeader(http.StatusAccepted)
		return
	}
	s := h.acquireSession(pr.w, pr.r, pr.requester, pr.slot.callerID)
	if s == nil {
		return
	}
	defer s.release()
	if m.Kind != jsonrpc.KindRequest {
		writeOneWay(pr.w, s.deliverOneWay(pr.withIdentity(pr.r.Context()), pr.body, m))
		return
	}
	if !pr.slot.admitRequest().write(pr.w) && h.allowed(pr.w, pr.r, m) {
		pr.serveLegacyRequest(s, nil)
	}
}

// deliverOneWay delivers a notification or a response, here or at the process that it is for. It
// reports false for a response to a request that no known process has sent.
func (s *session) deliverOneWay(ctx context.Context, frame []byte, m *jsonrpc.Message) bool {
	if s.h.forwarder.forward(ctx, s, m) {
		return true
	}
	if m.Kind == jsonrpc.KindNotification {
		if string(m.Method) == mcp.NotificationInitialized {
			if s.shared != nil {
				s.shared.deliverInitialized(ctx, frame, m)
				return true
			}
			s.initialized.Store(true)
		}
		s.peer.deliverNotification(ctx, frame, m)
		return true
	}
	return s.peer.deliverResponse(ctx, frame, m)
}

// serveInitialize opens a session.
func (pr *postRequest) serveInitialize() {
	h, w, r := pr.h, pr.w, pr.r
	if pr.slot.admitRequest().write(w) || !h.allowed(w, r, pr.delivery.Message) {
		return
	}
	s := h.newSession(r, pr.slot.callerID, newSessionKey())
	if s == nil {
		rateLimitedSessions.write(w)
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
	// The delivery has no Sender: the first response must carry the session's id in its header, and
	// the session is not negotiated before the result.
	var err error
	pr.answer, err = s.peer.deliverRequest(pr.withIdentity(r.Context()), pr.body, &pr.delivery, pr.answer[:0])
	if err != nil || !s.setNegotiated(pr.answer) {
		if rejectedError(err) == nil && !isDenial(err) {
			err = nil // the status is that of any other response
		}
		rs.end(pr.answer, err)
		return
	}
	s.seal(pr.delivery.Message.Params)
	if _, rejected := h.sessions.add(s); rejected.write(w) {
		return
	}
	opened = true
	if err := s.shared.save(r.Context(), pr.body); err != nil {
		h.opts.Logger.Error("session not saved", "error", err)
		h.sessions.end(s, true)
		writeUnavailable(w, "the session could not be stored")
		return
	}
	w.Header()[headerSession] = []string{s.id}
	rs.end(pr.answer, nil)
}

// acquireSession returns the session that a request names, which the caller must release. On
// failure it answers the request and returns nil.
func (h *Handler) acquireSession(w http.ResponseWriter, r *http.Request, from requester, callerID string) *session {
	if len(h.legacy) == 0 {
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "this server has no sessions")
		return nil
	}
	// A version that differs from the negotiated one has no effect: some clients send that.
	if !h.supportsLegacy(from.versions) {
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, fmt.Sprintf("unsupported MCP-Protocol-Version: this server has sessions of %v", h.legacy))
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
	var s *session
	if key := sessionKey(ids[0]); key != "" {
		if s = h.sessions.acquire(key); s == nil {
			var refused bool
			if s, refused = h.takeOver(w, r, callerID, ids[0], principalID); refused {
				return nil
			}
		}
	}
	if s == nil || s.id != ids[0] || s.principalID != principalID || s.pastLifetime() >= 0 {
		if s != nil {
			s.release()
		}
		writeError(w, http.StatusNotFound, jsonrpc.CodeInvalidRequest, "session not found: send initialize again, without Mcp-Session-Id")
		return nil
	}
	return s
}

// supportsLegacy reports whether a request that names these versions is acceptable.
func (h *Handler) supportsLegacy(versions []string) bool {
	switch len(versions) {
	case 0:
		return true
	case 1:
		revision, ok := mcp.ParseRevision(versions[0])
		return ok && slices.Contains(h.legacy, revision)
	}
	return false
}

// serveLegacyRequest handles the request, or the batch if entries is not nil, and answers it. The
// handler continues when the client disconnects: in these revisions that does not cancel a request.
func (pr *postRequest) serveLegacyRequest(s *session, entries []rpcbatch.Entry) {
	rs := pr.beginResponse()
	// Over HTTP/1 the response can end while the handler goes on, see response.endNow. Over HTTP/2
	// it ends when this function returns, so the handler needs another goroutine. Doing that for
	// HTTP/1 too would double the cost of a quick request.
	rs.hijackable = pr.r.ProtoMajor == 1
	pr.batch = entries
	st, detached := pr.beginStream(s, rs, !rs.hijackable)
	pr.markAbortable(postStateLegacy)
	answered := false
	defer func() {
		if !answered {
			st.detach(rs)
		}
	}()
	rs.startKeepAliveAt(st, pr.readAt)
	// Without a stream no write would fail when the client disconnects.
	if rs.hijackable && !pr.accept.stream {
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
		pr.referenced = true
		place := pr.slot.detach()
		s.acquire()
		go func() {
			defer place.release()
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

// handleLegacyRequest runs the handler for serveLegacyRequest. It returns the response that the
// result has ended, which may be another by now, or nil.
func (pr *postRequest) handleLegacyRequest(s *session, st *stream, entries []rpcbatch.Entry) (ended *response) {
	returned := false
	defer func() {
		if !returned { // the handler ended the goroutine
			st.finish(jsonrpc.AppendError(nil, pr.id(), errHandlerExited, false), nil, false)
			if pr.r.ProtoMajor == 1 {
				// net/http's final flush does not run
				http.NewResponseController(pr.w).Flush()
			}
		}
	}()
	ctx := pr.withIdentity(pr.r.Context())
	var err error
	if entries != nil {
		pr.answer = s.deliverBatch(ctx, st, entries, pr.answer[:0])
	} else {
		pr.delivery.Sender, pr.delivery.Lifetime = st, s.ctx
		pr.answer, err = s.deliverRequest(ctx, pr.body, &pr.delivery, pr.answer[:0])
		if err == nil && !s.initialized.Load() && string(pr.delivery.Message.Method) != mcp.MethodPing {
			s.initialized.Store(true) // the server takes requests before the notification
		}
		if statusOf(err) != http.StatusTooManyRequests && rejectedError(err) == nil && !isDenial(err) {
			err = nil // other errors of these revisions have status 200
		}
	}
	returned = true
	if st.isAttached() {
		var release func()
		release, err = pr.reserveUnread(s.ctx, err)
		defer release()
	}
	return st.finish(pr.answer, err, false)
}

// serveGet opens the standalone stream, or resumes another
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#listening-for-messages-from-the-server).
func (h *Handler) serveGet(w http.ResponseWriter, r *http.Request, from requester, place *slot) {
	accept := parseAccept(r)
	if h.refuseStream(w, accept, http.StatusMethodNotAllowed, nil) { // as without these streams
		return
	}
	last := ""
	switch ids := r.Header[headerLastID]; {
	case len(ids) > 1:
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "more than one Last-Event-ID header")
		return
	case len(ids) == 1:
		last = ids[0]
	}
	s := h.acquireSession(w, r, from, place.callerID)
	if s == nil {
		return
	}
	if place.stand().write(w) {
		s.release()
		return
	}
	ss := &standingStream{h: h, slot: place, session: s, response: h.newResponse(w, r, accept)}
	defer ss.served()
	ctx := ss.begin(r)
	s.shared.presumeInitialized() // a client that listens here may send nothing else here
	st, remote, err := &s.standalone, (*remoteStream)(nil), error(nil)
	if last != "" {
		st, remote, err = s.streamAfter(ctx, last)
	}
	if st == &s.standalone {
		s.shared.listen(ctx)
	}
	switch {
	case err != nil:
		h.writeNotResumable(w, err)
	case remote != nil:
		ss.serveRemote(ctx, remote, last)
	default:
		ss.serveStream(ctx, st, last)
	}
}

// serveStream makes the response carry st from after the event lastID until the stream is complete
// or ctx ends.
func (ss *standingStream) serveStream(ctx context.Context, st *stream, lastID string) {
	h, rs := ss.h, ss.response
	detached, err := st.resume(ctx, rs, lastID)
	if err != nil && !errors.Is(err, ErrEventGone) && !rs.isStreaming() {
		detached, err = ss.resumeLater(ctx, st, lastID)
	}
	if rest, ok := errors.AsType[*restError](err); ok {
		if err = ss.passRest(ctx, st.session.namedStream(st.name), rest.after, true); err == nil {
			return
		}
	}
	switch {
	case err == nil && st.isComplete() && !rs.isStreaming():
		rs.endEmpty()
		return
	case err == nil:
	case !rs.isStreaming():
		h.writeNotResumable(rs.w, err)
		return
	default:
		h.opts.Logger.Warn("stream aborted", "error", err)
		return
	}
	rs.startKeepAlive(st)
	st.endStoreCheckSoon(ctx, rs)
	ss.end = func(bool) {
		if !st.isComplete() {
			ss.sendRetry()
		}
		st.detach(rs)
	}
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

// resumeLater is stream.resume for a store that does not respond. The response begins, and goes on
// when the store does, within followTime.
func (ss *standingStream) resumeLater(ctx context.Context, st *stream, lastID string) (detached chan struct{}, err error) {
	if err := ss.response.writeKeepAlive(); err != nil {
		return nil, err
	}
	ss.response.startKeepAlive(nil)
	ctx, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	defer context.AfterFunc(ss.h.closed, cancel)()
	for {
		if !wait.Sleep(ctx, followRetry) {
			ss.sendRetry()
			return nil, ctx.Err()
		}
		switch err = st.session.findEvent(ctx, lastID); {
		case err == nil:
			return st.resume(ctx, ss.response, lastID)
		case errors.Is(err, ErrEventGone):
			return nil, err
		}
	}
}

// writeNotResumable responds to a GET that cannot resume its stream.
func (h *Handler) writeNotResumable(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrEventGone) {
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "the stream cannot be resumed: its events were deleted, or Last-Event-ID does not belong to this session")
		return
	}
	h.opts.Logger.Error("events not loaded", "error", err)
	writeUnavailable(w, "the events could not be loaded")
}

// serveDelete ends a session when its client asks for it.
func (h *Handler) serveDelete(w http.ResponseWriter, r *http.Request, from requester, place *slot) {
	if r.Header[headerSession] != nil {
		from.versions = nil // the client may speak another revision by now
	}
	s := h.acquireSession(w, r, from, place.callerID)
	if s == nil {
		return
	}
	defer s.release()
	if err := s.shared.end(r.Context()); err != nil { // another process would take it over
		h.opts.Logger.Error("session not deleted", "error", err)
		writeUnavailable(w, "the session could not be deleted")
		return
	}
	h.sessions.end(s, true)
	w.WriteHeader(http.StatusNoContent)
}

// A sessionContext has the values of a request, and ends with the session. values must come from
// [context.WithoutCancel], so that [context.Cause] returns the cause of the session.
type sessionContext struct {
	context.Context
	values context.Context
}

func (c *sessionContext) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}
