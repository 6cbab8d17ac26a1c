package streamable

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/defaults"
)

// A SessionStore keeps the records from which another process, or the same one after a restart, can
// take over a legacy session. It must be safe for concurrent use. A key has at most 64 characters,
// all of them letters and digits.
type SessionStore interface {
	// Load returns the record of a session, or nil without an error if the store does not have it.
	// On an error the client's request fails with status 503. The caller owns the record.
	Load(ctx context.Context, key string) (*SavedSession, error)
	// Update changes a record in one atomic step: it calls change with the current record, or with
	// an empty one if there is none, and stores what change has made of it. If another process
	// changes the record meanwhile, Update calls change again, with that process's record.
	//
	// The store keeps a record until its Expires. If that is zero, it keeps the record until it has
	// been neither updated nor loaded for a time that the store chooses. The time should be at
	// least [Timeouts].Session: a session in use is loaded again after a quarter of that.
	Update(ctx context.Context, key string, change func(*SavedSession)) error
}

// A SessionWatcher is a [SessionStore] that reports changes, so that a session which is ended or
// changed at one process is at once at all. With another store, a process notices that when it next
// loads the session, which it does after a quarter of [Timeouts].Session.
type SessionWatcher interface {
	SessionStore
	// Watch calls ready once, and then changed with each record that any process changes after the
	// call of ready began; the Handler ignores a record that is older than one before. It returns
	// when ctx ends, or with an error if changes may have been missed; the Handler then calls Watch
	// again. When it is ready, the Handler loads its sessions. changed does not block, and may be
	// called by multiple goroutines at once. Calls of it may end after Watch has returned.
	Watch(ctx context.Context, ready func(), changed func(key string, s *SavedSession)) error
}

// A SessionViewer is a [SessionWatcher] that has a view of all records at this process. With it, a
// request of a session with a sealed id needs no call of the store, and works while the store is
// unavailable.
type SessionViewer interface {
	SessionWatcher
	// View returns the record of a session, or nil if there is none, without a call of the store.
	// ok is false if the view cannot tell; the Handler then calls Load. A view may be behind. How
	// far determines when an ended session ends everywhere. It must have a record before the
	// Handler is told of it by Watch. The caller owns the record.
	View(key string) (saved *SavedSession, ok bool)
}

// A SavedSession is the record of a session. It can be stored as JSON.
type SavedSession struct {
	// Version counts the changes of the record.
	Version uint64 `json:"version,omitempty"`
	// Principal is the owner's auth.Principal.ID, or "" for an anonymous client.
	Principal string `json:"principal,omitempty"`
	// Initialize is the client's initialize request. It is empty if the session's id contains it,
	// see [Options].Sessions.
	Initialize []byte `json:"initialize,omitempty"`
	// LogLevel is the level that the client has set with logging/setLevel, or "".
	LogLevel string `json:"logLevel,omitempty"`
	// Subscriptions lists the URIs that the client has subscribed to with resources/subscribe.
	Subscriptions []string `json:"subscriptions,omitempty"`
	// Listener is the node whose process carries the messages that belong to no request, or "". See
	// [Nodes].
	Listener string `json:"listener,omitempty"`
	// Ended means that the client has ended the session. Such a record has no other content.
	Ended bool `json:"ended,omitempty"`
	// Expires is the time until which the store must keep the record. See [SessionStore].
	Expires time.Time `json:"expires,omitzero"`
}

// clone returns a deep copy.
func (s *SavedSession) clone() *SavedSession {
	c := *s
	c.Initialize = bytes.Clone(s.Initialize)
	c.Subscriptions = slices.Clone(s.Subscriptions)
	return &c
}

// end makes s the record of an ended session.
func (s *SavedSession) end(expires time.Time) {
	*s = SavedSession{Version: s.Version + 1, Ended: true, Expires: expires}
}

// MemorySessionsOptions are the limits of [NewMemorySessions]. Beyond a limit, the sessions unused
// for the longest time are evicted.
type MemorySessionsOptions struct {
	// MaxSessions limits the number of sessions. Zero means 10,000.
	MaxSessions int
	// MaxBytes limits the memory of all sessions. Zero means 64 MiB.
	MaxBytes int
	// MaxIdle limits the time since a session without Expires was last updated or loaded. Zero
	// means 1 h.
	MaxIdle time.Duration
}

// sessionOverhead is the memory of a session without its texts, in bytes.
const sessionOverhead = 256

// maxUnwatched limits the changes that one Watch of memorySessions has not reported yet.
const maxUnwatched = 1024

// memorySessions is a SessionWatcher in memory.
type memorySessions struct {
	opts MemorySessionsOptions

	mu sync.Mutex
	// queue has *storedSession, the next one to evict in front.
	queue    *list.List
	byKey    map[string]*list.Element
	bytes    int
	watchers map[*sessionWatch]struct{}
}

type storedSession struct {
	key   string
	saved SavedSession
	used  time.Time
}

func (s *storedSession) size() int {
	n := sessionOverhead + len(s.key) + len(s.saved.Principal) + len(s.saved.Initialize) + len(s.saved.LogLevel) + len(s.saved.Listener)
	for _, uri := range s.saved.Subscriptions {
		n += len(uri) + 16
	}
	return n
}

// A sessionWatch is a running Watch.
type sessionWatch struct {
	// pending has the changes to report. Its capacity is maxUnwatched.
	pending chan storedSession
	// missed is closed when a change does not fit.
	missed chan struct{}
}

// NewMemorySessions returns an empty [SessionWatcher] in memory, which several handlers of a
// process can share. It has no goroutine. It copies o, which may be nil.
func NewMemorySessions(o *MemorySessionsOptions) SessionWatcher {
	m := &memorySessions{queue: list.New(), byKey: make(map[string]*list.Element), watchers: make(map[*sessionWatch]struct{})}
	if o != nil {
		m.opts = *o
	}
	defaults.IfNotPositive(&m.opts.MaxSessions, 10_000)
	defaults.IfNotPositive(&m.opts.MaxBytes, 64<<20)
	defaults.IfNotPositive(&m.opts.MaxIdle, time.Hour)
	return m
}

// Update implements [SessionStore]. It returns an error, and leaves the record as it was, if the
// new one alone exceeds MaxBytes.
func (m *memorySessions) Update(_ context.Context, key string, change func(*SavedSession)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := &storedSession{key: key, used: time.Now()}
	if old := m.findLocked(key, stored.used); old != nil {
		stored.saved = *old.saved.clone()
	}
	change(&stored.saved)
	stored.saved = *stored.saved.clone()
	if n := stored.size(); n > m.opts.MaxBytes {
		return fmt.Errorf("streamable: a session of %d bytes does not fit into a store of %d bytes", n, m.opts.MaxBytes)
	}
	m.expireLocked(stored.used)
	m.removeLocked(m.byKey[key])
	m.byKey[key] = m.queue.PushBack(stored)
	m.bytes += stored.size()
	for len(m.byKey) > m.opts.MaxSessions || m.bytes > m.opts.MaxBytes {
		m.removeLocked(m.queue.Front())
	}
	for w := range m.watchers {
		w.report(storedSession{key: key, saved: *stored.saved.clone()})
	}
	return nil
}

// report hands a change to the goroutine of Watch. The caller holds memorySessions.mu.
func (w *sessionWatch) report(s storedSession) {
	select {
	case w.pending <- s:
	default:
		select {
		case <-w.missed:
		default:
			close(w.missed)
		}
	}
}

var errSessionsMissed = errors.New("streamable: changes of sessions came faster than they were handled")

// Watch implements [SessionWatcher].
func (m *memorySessions) Watch(ctx context.Context, ready func(), changed func(key string, s *SavedSession)) error {
	w := &sessionWatch{pending: make(chan storedSession, maxUnwatched), missed: make(chan struct{})}
	m.mu.Lock()
	m.watchers[w] = struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.watchers, w)
		m.mu.Unlock()
	}()
	ready()
	for {
		select {
		case s := <-w.pending:
			changed(s.key, &s.saved)
		case <-w.missed:
			return errSessionsMissed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Load implements [SessionStore].
func (m *memorySessions) Load(_ context.Context, key string) (*SavedSession, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	s := m.findLocked(key, now)
	if s == nil {
		return nil, nil
	}
	s.used = now
	m.queue.MoveToBack(m.byKey[key])
	return s.saved.clone(), nil
}

// findLocked returns a session, or nil. It removes one that has expired.
func (m *memorySessions) findLocked(key string, now time.Time) *storedSession {
	e := m.byKey[key]
	if e == nil {
		return nil
	}
	s := e.Value.(*storedSession)
	if m.isExpired(s, now) {
		m.removeLocked(e)
		return nil
	}
	return s
}

func (m *memorySessions) isExpired(s *storedSession, now time.Time) bool {
	if expires := s.saved.Expires; !expires.IsZero() {
		return !now.Before(expires)
	}
	return now.Sub(s.used) >= m.opts.MaxIdle
}

// expireLocked removes some expired sessions.
func (m *memorySessions) expireLocked(now time.Time) {
	for range maxExpiredPerCall {
		e := m.queue.Front()
		if e == nil || !m.isExpired(e.Value.(*storedSession), now) {
			return
		}
		m.removeLocked(e)
	}
}

// removeLocked removes a session. e may be nil.
func (m *memorySessions) removeLocked(e *list.Element) {
	if e == nil {
		return
	}
	s := e.Value.(*storedSession)
	m.queue.Remove(e)
	m.bytes -= s.size()
	delete(m.byKey, s.key)
}
