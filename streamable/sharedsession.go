package streamable

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/seal"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A session can be at several processes at once: each request takes it over where it arrives. What
// the processes share is its record, a SavedSession. A session with a sealed id has one only after
// its client has set something, or has ended it.

// A sharedState is what a client sets in a session by requests, and what other processes must know.
// Its methods may be called on nil, for a session of this process alone.
type sharedState struct {
	session *session
	// identity is the context for requests that repeat those of the client elsewhere.
	identity context.Context
	// presumed guards deliverInitialized.
	presumed sync.Once

	// listener is the node whose process carries the standalone stream. It is nil if none does.
	listener atomic.Pointer[string]
	queue    listenerQueue

	// mu is held while a request that changes the state is handled, and while the state follows
	// the record.
	mu sync.Mutex
	// known is the state of this process. Its Version is the version of the loaded record.
	known SavedSession
	// followed is known.Version, for readers that do not wait for mu.
	followed atomic.Uint64

	pendingMu sync.Mutex
	// pending is a record that the state does not follow yet, or nil.
	pending *SavedSession
	// following is set while a goroutine applies pending.
	following bool
}

// share connects the sessions of the handler to those of other processes, if the server has keys,
// which seal the ids of sessions, or the options a store. announces is that of a [forwarder].
func (h *Handler) share(keys func() (*seal.Ring, string), announces bool) (err error) {
	if ring, name := keys(); ring != nil {
		h.sealer = &idSealer{ring: ring, server: name, lifetime: h.opts.Timeouts.Lifetime}
		if h.opts.Sessions == nil {
			h.opts.Sessions = NewMemorySessions()
		}
	}
	if h.opts.Sessions != nil {
		h.forwarder, err = newForwarder(h, h.opts.Nodes, announces)
		h.soleRequester.Store(h.forwarder == nil)
	}
	return err
}

// seal seals the id of a negotiated session, unless that would be too long.
func (s *session) seal(params []byte) {
	if s.h.sealer == nil {
		return
	}
	content := &sealedSession{expires: s.h.clock.now().Add(s.h.sealer.lifetime), revision: s.features.Load().Revision, params: params}
	if id, ok := s.h.sealer.seal(s.key, s.principalID, content); ok {
		s.id, s.expires = id, content.expires
	}
}

// save stores the record of a new session, unless its id contains everything.
func (ss *sharedState) save(ctx context.Context, initialize []byte) error {
	if ss == nil || !ss.session.expires.IsZero() {
		return nil
	}
	return ss.update(ctx, func(saved *SavedSession) {
		saved.Principal, saved.Initialize = ss.session.principalID, slices.Clone(initialize)
		saved.Version++
	})
}

// end stores that the client has ended the session.
func (ss *sharedState) end(ctx context.Context) error {
	if ss == nil {
		return nil
	}
	return ss.update(ctx, func(saved *SavedSession) { saved.end(ss.session.expires) })
}

// update changes the record in the store.
func (ss *sharedState) update(ctx context.Context, change func(*SavedSession)) error {
	h := ss.session.h
	return h.callStore(ctx, func(ctx context.Context) error { return h.opts.Sessions.Update(ctx, ss.session.key, change) })
}

// changeRecord changes the record in the store unless the session has ended, and returns the record
// of then. The caller holds mu.
func (ss *sharedState) changeRecord(ctx context.Context, change func(*SavedSession)) (saved *SavedSession, err error) {
	err = ss.update(ctx, func(record *SavedSession) {
		if !record.Ended {
			change(record)
			record.Version = max(record.Version, ss.known.Version) + 1 // the store may have lost it
			record.Principal, record.Expires = ss.session.principalID, ss.session.expires
		}
		saved = record.clone()
	})
	return saved, err
}

// loadSession returns the record of a session, or nil if there is none. It does not call the store
// if the id of the session is sealed and the store has a view of it. The record of another session
// may have been created a moment ago.
func (h *Handler) loadSession(ctx context.Context, key string, sealed bool) (saved *SavedSession, err error) {
	if viewer, ok := h.opts.Sessions.(SessionViewer); ok && sealed {
		if saved, ok := viewer.View(key); ok {
			return saved, nil
		}
	}
	err = h.callStore(ctx, func(ctx context.Context) (err error) {
		saved, err = h.opts.Sessions.Load(ctx, key)
		return err
	})
	return saved, err
}

// callStore calls the session store with storeTimeout.
func (h *Handler) callStore(ctx context.Context, call func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer recoverStore(&err)
	return call(ctx)
}

// takeOver opens a session here that another process has opened, or returns nil. refused means
// that it has answered the request, because the store failed or there are too many sessions.
func (h *Handler) takeOver(w http.ResponseWriter, r *http.Request, callerID, id, principalID string) (s *session, refused bool) {
	if h.opts.Sessions == nil {
		return nil, false
	}
	key := sessionKey(id)
	var sealed *sealedSession
	if key != id {
		if h.sealer == nil {
			return nil, false
		}
		if sealed = h.sealer.open(id, principalID, h.clock.now()); sealed == nil {
			return nil, false
		}
	}
	saved, err := h.loadSession(r.Context(), key, sealed != nil)
	if err != nil {
		h.opts.Logger.Error("session not loaded", "error", err)
		writeUnavailable(w, "the session could not be looked up")
		return nil, true
	}
	var initialize []byte
	switch {
	case saved != nil && saved.Ended:
		return nil, false
	case sealed != nil:
		initialize = jsonrpc.AppendRequest(nil, jsonrpc.ID("0"), mcp.MethodInitialize, sealed.params)
	case saved != nil && saved.Principal == principalID:
		initialize = saved.Initialize
	}
	var m jsonrpc.Message
	if initialize == nil || jsonrpc.Parse(initialize, &m, 0) != nil {
		return nil, false
	}
	if s = h.newSession(r, callerID, key); s == nil {
		rateLimitedSessions.write(w)
		return nil, true
	}
	s.id = id
	if sealed != nil {
		s.expires = sealed.expires
	}
	answer, err := s.peer.deliverRequest(s.ctx, initialize, &rpc.Delivery{Message: &m}, nil)
	if err != nil || !s.setNegotiated(answer) || sealed != nil && s.features.Load() != era.Of(sealed.revision) {
		s.close(false)
		return nil, false
	}
	s.shared.presumeInitialized()
	s.shared.follow(saved)
	s.acquire()
	live, rejected := h.sessions.add(s)
	if live != s {
		s.close(false) // keep the events of the live one
	}
	if rejected.write(w) {
		return nil, true
	}
	if _, ok := h.opts.Sessions.(SessionWatcher); ok && live == s {
		// a change before the session was listed has not been noticed
		if saved, err = h.loadSession(r.Context(), key, sealed != nil); err == nil {
			h.sessions.changed(key, saved)
		}
	}
	return live, false
}

// deliverRequest has the session's peer handle a request. The result of one that changes the shared
// state says that the record has changed too.
func (s *session) deliverRequest(ctx context.Context, frame []byte, d *rpc.Delivery, dst []byte) ([]byte, error) {
	if s.shared != nil {
		if !s.initialized.Load() && string(d.Message.Method) != mcp.MethodPing {
			s.shared.presumeInitialized()
		}
		if change := changeOf(d.Message); change != nil {
			return s.shared.deliver(ctx, frame, d, dst, change)
		}
	}
	return s.peer.deliverRequest(ctx, frame, d, dst)
}

// presumeInitialized delivers notifications/initialized, which may have reached another process:
// the server does not notify the client before. ss may be nil.
func (ss *sharedState) presumeInitialized() {
	if ss == nil {
		return
	}
	frame := jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil)
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) == nil { // always
		ss.deliverInitialized(ss.session.ctx, frame, &m)
	}
}

// deliverInitialized delivers notifications/initialized, unless it was presumed before.
func (ss *sharedState) deliverInitialized(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	ss.presumed.Do(func() {
		ss.session.peer.deliverNotification(ctx, frame, m)
		ss.session.initialized.Store(true)
	})
}

// changeOf returns what a request changes in a record, or nil.
func changeOf(m *jsonrpc.Message) func(*SavedSession) {
	switch string(m.Method) {
	case mcp.MethodSetLevel:
		if level := string(stringParam(m, "level")); level != "" {
			return func(s *SavedSession) { s.LogLevel = level }
		}
	case mcp.MethodResourcesSubscribe:
		if uri := string(stringParam(m, "uri")); uri != "" {
			return func(s *SavedSession) {
				if !slices.Contains(s.Subscriptions, uri) {
					s.Subscriptions = append(s.Subscriptions, uri)
				}
			}
		}
	case mcp.MethodResourcesUnsubscribe:
		if uri := string(stringParam(m, "uri")); uri != "" {
			return func(s *SavedSession) {
				s.Subscriptions = slices.DeleteFunc(s.Subscriptions, func(other string) bool { return other == uri })
			}
		}
	}
	return nil
}

var (
	errStateNotStored = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the change could not be stored for the other processes of this server: try again")
	errSessionEnded   = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the session has ended")
)

// deliver handles a request that makes a change.
func (ss *sharedState) deliver(ctx context.Context, frame []byte, d *rpc.Delivery, dst []byte, change func(*SavedSession)) ([]byte, error) {
	dst, version, err := ss.change(ctx, frame, d, dst, change)
	if version > 0 {
		ss.waitForListener(ss.session.ctx, version)
	}
	return dst, err
}

// change handles a request that makes a change, and returns the version of the record that has it,
// or 0.
func (ss *sharedState) change(ctx context.Context, frame []byte, d *rpc.Delivery, dst []byte, change func(*SavedSession)) (_ []byte, version uint64, err error) {
	s := ss.session
	ss.mu.Lock()
	defer ss.mu.Unlock()
	n := len(dst)
	dst, err = s.peer.deliverRequest(ctx, frame, d, dst)
	var m jsonrpc.Message
	if err != nil || jsonrpc.Parse(dst[n:], &m, 0) != nil || m.Kind != jsonrpc.KindResponse {
		return dst, 0, err
	}
	change(&ss.known)
	saved, err := ss.changeRecord(s.ctx, change)
	switch {
	case err != nil:
		s.h.opts.Logger.Error("change of a session not stored", "error", err)
		return jsonrpc.AppendError(dst[:n], d.Message.ID, errStateNotStored, false), 0, nil
	case saved.Ended:
		s.h.sessions.end(s, true)
		return jsonrpc.AppendError(dst[:n], d.Message.ID, errSessionEnded, false), 0, nil
	}
	ss.followLocked(saved)
	return dst, saved.Version, nil
}

const (
	// listenerTime limits the time that a response waits for the listener.
	listenerTime = 500 * time.Millisecond
	// listenerInterval is the first time between questions to it. It doubles.
	listenerInterval = time.Millisecond
)

// waitForListener waits until the process where the client listens follows the record, so that the
// client gets the notifications that it has just subscribed to. That process learns of the record
// from the store.
func (ss *sharedState) waitForListener(ctx context.Context, version uint64) {
	node := ss.elsewhere()
	if node == "" {
		return
	}
	s := ss.session
	ctx, cancel := context.WithTimeout(ctx, listenerTime)
	defer cancel()
	for interval := listenerInterval; ; interval *= 2 {
		reply, err := s.h.forwarder.request(ctx, node, &nodeMessage{Session: s.key, Principal: s.principalID, Version: true})
		if err != nil || reply.Version >= version {
			return
		}
		// 0: the node has lost the session, or is of a version that does not know the question.
		if reply.Version == 0 || !wait.Sleep(ctx, interval) {
			return
		}
	}
}

// follow makes the state follow a record, which may be nil.
func (ss *sharedState) follow(saved *SavedSession) {
	if saved == nil {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.followLocked(saved)
}

// followLocked repeats the requests that clients have made elsewhere. It ignores a record that is
// not newer than the state.
func (ss *sharedState) followLocked(saved *SavedSession) {
	if saved.Version <= ss.known.Version {
		return
	}
	if saved.LogLevel != ss.known.LogLevel && saved.LogLevel != "" {
		ss.repeat(mcp.MethodSetLevel, "level", saved.LogLevel)
	}
	for _, uri := range saved.Subscriptions {
		if !slices.Contains(ss.known.Subscriptions, uri) {
			ss.repeat(mcp.MethodResourcesSubscribe, "uri", uri)
		}
	}
	for _, uri := range ss.known.Subscriptions {
		if !slices.Contains(saved.Subscriptions, uri) {
			ss.repeat(mcp.MethodResourcesUnsubscribe, "uri", uri)
		}
	}
	ss.setListener(saved.Listener)
	ss.known = SavedSession{Version: saved.Version, LogLevel: saved.LogLevel, Subscriptions: slices.Clone(saved.Subscriptions), Listener: saved.Listener}
	ss.followed.Store(saved.Version)
}

// repeat has the session's peer handle a request with one parameter.
func (ss *sharedState) repeat(method, name, value string) {
	ss.presumeInitialized() // or the server rejects it
	params := append(jsonwire.AppendQuote(append(jsonwire.AppendQuote([]byte{'{'}, name), ':'), value), '}')
	frame := jsonrpc.AppendRequest(nil, jsonrpc.ID("0"), method, params)
	var m, answer jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return // not reached: the request is well-formed
	}
	text, err := ss.session.peer.deliverRequest(ss.identity, frame, &rpc.Delivery{Message: &m, Lifetime: ss.session.ctx}, nil)
	if err == nil && jsonrpc.Parse(text, &answer, 0) == nil && answer.Kind == jsonrpc.KindError {
		err = answer.Err()
	}
	if err != nil { // for example because the resource is gone
		ss.session.h.opts.Logger.Debug("state of a session not restored", "method", method, "error", err)
	}
}

// followSoon makes the state follow a record, without blocking.
func (ss *sharedState) followSoon(saved *SavedSession) {
	ss.pendingMu.Lock()
	defer ss.pendingMu.Unlock()
	if ss.pending == nil || saved.Version > ss.pending.Version {
		ss.pending = saved
	}
	if ss.following {
		return
	}
	ss.following = ss.session.h.followers.Start(func() {
		for {
			ss.pendingMu.Lock()
			saved := ss.pending
			if ss.pending = nil; saved == nil || ss.session.ctx.Err() != nil {
				ss.following = false
				ss.pendingMu.Unlock()
				return
			}
			ss.pendingMu.Unlock()
			ss.follow(saved)
		}
	})
}

// changed makes a session follow its record, which may be nil. It does not block.
func (t *sessionTable) changed(key string, saved *SavedSession) {
	if saved == nil || sessionKey(key) != key {
		return
	}
	s := t.acquire(key)
	if s == nil {
		return
	}
	defer s.active.Add(-1) // this is no use by the client
	switch {
	case !saved.Ended:
		s.shared.followSoon(saved)
	case t.unlist(s) && !t.h.followers.Start(func() { s.close(true) }): // which calls the store
		s.close(true)
	}
}

// watch makes sessions follow their records until the handler shuts down.
func (t *sessionTable) watch(store SessionWatcher) {
	h := t.h
	for {
		err := t.watchOnce(store)
		if h.closed.Err() != nil {
			return
		}
		h.opts.Logger.Warn("changes of sessions may have been missed", "error", err)
		if !wait.Sleep(h.closed, time.Second) {
			return
		}
	}
}

func (t *sessionTable) watchOnce(store SessionWatcher) (err error) {
	defer recoverStore(&err)
	if err = store.Watch(t.h.closed, t.touchAll, t.changed); err == nil {
		err = errors.New("the store stopped")
	}
	return err
}

func (t *sessionTable) touchAll() {
	var all []*session
	t.removeIf(func(s *session) bool {
		all = append(all, s)
		return false
	})
	t.touch(all)
}

// maxTouchTime limits the time that a sweep spends asking the store for sessions.
const maxTouchTime = time.Minute

// touch asks the store for sessions that are in use, which makes it keep them, and makes them
// follow their records. The next sweep retries failed ones.
func (t *sessionTable) touch(due []*session) {
	until := t.h.clock.elapsed() + maxTouchTime
	for _, s := range due {
		now := t.h.clock.elapsed()
		if now >= until || t.h.admission.closing.Load() {
			return
		}
		saved, err := t.h.loadSession(t.h.closed, s.key, !s.expires.IsZero())
		if err != nil {
			t.h.opts.Logger.Warn("the store could not keep a session in use", "error", err)
			return
		}
		s.touched.Store(int64(now))
		t.changed(s.key, saved)
	}
}

// The id of a session is its key, or, if the server has StateKeys, the key, a dot and a sealed
// text: what another process with the keys needs to take over the session. The key is random. It
// names the session in stores.
//
// The sealed text is bound to the key, the principal and the server's name. It consists of the time
// at which the id expires, the negotiated revision, and the params of initialize.

const (
	// keyLength is the length of a session's key: rand.Text has 128 bits in Base32.
	keyLength = 26
	// maxSessionID limits the length of a session's id.
	maxSessionID = 1024
	// maxSealedParams limits the inflated params of initialize.
	maxSealedParams = 64 << 10

	sessionPurpose = "session 1" // increment for each format of sealedSession
)

// newSessionKey returns a random key.
func newSessionKey() string { return rand.Text() }

// sessionKey returns the key of the session with the id, or "" if no session has such an id.
func sessionKey(id string) string {
	if len(id) > maxSessionID || len(id) < keyLength || len(id) > keyLength && id[keyLength] != '.' {
		return ""
	}
	for i := range keyLength {
		if c := id[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return ""
		}
	}
	return id[:keyLength]
}

// A sealedSession is the content of a sealed id.
type sealedSession struct {
	expires  time.Time
	revision mcp.Revision
	// params are those of initialize.
	params []byte
}

// An idSealer seals the ids of a handler's sessions.
type idSealer struct {
	ring *seal.Ring
	// server is the server's name.
	server   string
	lifetime time.Duration
}

// binding returns what the sealed text is valid for.
func (sealer *idSealer) binding(key, principalID string) []byte {
	var binding []byte
	for _, text := range []string{sealer.server, principalID, key} {
		binding = append(binary.AppendUvarint(binding, uint64(len(text))), text...)
	}
	return binding
}

// Forms of the params in a sealed id.
const (
	paramsPlain    = 0
	paramsDeflated = 1
)

// seal returns the id of a session. ok is false if it would be too long.
func (sealer *idSealer) seal(key, principalID string, s *sealedSession) (id string, ok bool) {
	head := binary.AppendUvarint(nil, uint64(s.expires.Unix()))
	revision := s.revision.String()
	head = append(binary.AppendUvarint(head, uint64(len(revision))), revision...)
	plain := append(append(bytes.Clone(head), paramsPlain), s.params...)
	room := maxSessionID - keyLength - 1
	if seal.Len(len(plain)) > room {
		if len(s.params) > maxSealedParams {
			return "", false
		}
		if plain = deflate(append(head, paramsDeflated), s.params); seal.Len(len(plain)) > room {
			return "", false
		}
	}
	text, _, err := sealer.ring.Seal(append([]byte(key), '.'), sessionPurpose, plain, sealer.binding(key, principalID))
	return string(text), err == nil
}

// open returns the content of a sealed id, or nil if the id is not valid for the principal now.
func (sealer *idSealer) open(id, principalID string, now time.Time) *sealedSession {
	key, text, ok := strings.Cut(id, ".")
	if !ok {
		return nil
	}
	plain, _, err := sealer.ring.Open(text, maxSessionID, sessionPurpose, sealer.binding(key, principalID))
	if err != nil {
		return nil
	}
	return readSealedSession(plain, now)
}

// readSealedSession reads the content of a sealed id. It returns nil if that has expired, or has
// another format.
func readSealedSession(plain []byte, now time.Time) *sealedSession {
	seconds, n := binary.Uvarint(plain)
	if n <= 0 || seconds > 1<<40 {
		return nil
	}
	s := &sealedSession{expires: time.Unix(int64(seconds), 0)}
	plain = plain[n:]
	length, n := binary.Uvarint(plain)
	if n <= 0 || length >= uint64(len(plain)-n) || !now.Before(s.expires) {
		return nil
	}
	plain = plain[n:]
	var ok bool
	if s.revision, ok = mcp.ParseRevision(string(plain[:length])); !ok {
		return nil
	}
	form, params := plain[length], plain[length+1:]
	switch form {
	case paramsPlain:
		s.params = params
	case paramsDeflated:
		var err error
		if s.params, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(params)), maxSealedParams+1)); err != nil || len(s.params) > maxSealedParams {
			return nil
		}
	default:
		return nil
	}
	return s
}

// deflate appends the deflated text to dst.
func deflate(dst, text []byte) []byte {
	b := bytes.NewBuffer(dst)
	w, err := flate.NewWriter(b, flate.BestCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	w.Write(text) // a bytes.Buffer does not fail
	w.Close()
	return b.Bytes()
}
