package streamable

import (
	"bytes"
	"cmp"
	"container/heap"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/wait"
)

// An EventStore keeps the events of legacy sessions' streams, so that a client can resume one
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
// It must be safe for concurrent use; calls for one stream come in order. The name session has at
// most 64 characters, stream at most 128. Neither has spaces.
type EventStore interface {
	// Append stores an event and returns its id: visible ASCII, unique in the session, and such
	// that After finds the stream by it. data is empty for an event that only has an id. It is
	// valid until Append returns. If Append fails, a connected client gets the event without an id,
	// and the stream can no longer be resumed.
	Append(ctx context.Context, session, stream string, data []byte) (id string, err error)
	// After returns the stream of the event with that id, and the events after it, in order. The
	// error is [ErrEventGone] if the store does not have the event. The caller may keep the data,
	// but must not change it.
	After(ctx context.Context, session, id string) (stream string, events iter.Seq2[StoredEvent, error], err error)
	// Drop removes the events of a session.
	Drop(ctx context.Context, session string) error
}

// An EventFollower is an [EventStore] that also yields the events which other processes append
// later, and whose ids of events contain the names of their streams. With another store, a process
// reads the stream of another one every second, and a stream can be resumed only while the store is
// available.
type EventFollower interface {
	EventStore
	// StreamOf returns the name of the stream of an event from its id, without a call of the store.
	// ok is false if the id is not one of this store. The store need not have the event.
	StreamOf(id string) (stream string, ok bool)
	// Follow is like After, but the events continue with those that any process appends, until ctx
	// ends. It omits none; if it may have, it ends with an error.
	Follow(ctx context.Context, session, id string) (stream string, events iter.Seq2[StoredEvent, error], err error)
}

// A StoredEvent is one event of a stream.
type StoredEvent struct {
	// ID is the id of the event.
	ID string
	// Data is empty if the event only has an id.
	Data []byte
}

// ErrEventGone is the error for an event that the store does not have. Its stream cannot be resumed
// from there.
var ErrEventGone = errors.New("no such event")

// MemoryEventsOptions are the limits of [NewMemoryEvents]. Beyond a limit, events that a client was
// sent are evicted before others, and older ones first.
type MemoryEventsOptions struct {
	// MaxBytes limits the memory for the events of all sessions. The caller with the most bytes
	// loses events first. Zero means 64 MiB.
	MaxBytes int
	// MaxSessionBytes limits the memory for the events of one session. Zero means 8 MiB.
	MaxSessionBytes int
	// MaxSessionEvents limits the events of one session, without streams whose client is away. Zero
	// means 1000.
	MaxSessionEvents int
	// MaxAge limits the age of events. Zero means 1 h.
	MaxAge time.Duration
}

// eventOverhead is the memory of an event without its data, in bytes, so that many small ones
// count.
const eventOverhead = 256

// maxExpiredPerCall limits the events that one call expires, so that each call is fast. One call
// adds fewer.
const maxExpiredPerCall = 64

// maxAway limits the time for which the events of a stream with an absent client are preferred over
// those of other streams.
const maxAway = 2 * time.Minute

// memoryEvents is an EventStore in memory. A call expires old events, which are unreachable before.
//
// Events leave a stream only at its front, unless their session is dropped. So if the stream has an
// event, it also has all later ones; no gap can go unnoticed.
type memoryEvents struct {
	opts MemoryEventsOptions

	mu sync.Mutex
	// lastNumber is the number of the newest event. Numbers are never reused.
	lastNumber uint64
	// queue has *memoryEvent in the order of their numbers.
	queue    *list.List
	sessions map[string]*memorySession
	owners   map[string]*memoryOwner
	// largest has *memoryOwner.
	largest memoryHeap
	bytes   int
}

// A memoryOwner is a caller with at least one session.
type memoryOwner struct {
	memoryUse
	id string
	// largest has *memorySession.
	largest memoryHeap
}

// A memorySession is a session with at least one event.
type memorySession struct {
	memoryUse
	id      string
	owner   *memoryOwner
	streams map[string]*memoryStream
	// free and away have events by number: away those of streams that wait for their client, free
	// the others.
	free, away list.List
}

// A memoryStream is a stream with at least one event.
type memoryStream struct {
	session *memorySession
	name    string
	events  []*memoryEvent
	// awaySince is the time when the stream began to wait for its client. It is zero if the client
	// is there.
	awaySince time.Time
}

type memoryEvent struct {
	stream *memoryStream
	// queueElement is the element of memoryEvents.queue.
	queueElement *list.Element
	// listElement is the element of free or away of the session.
	listElement *list.Element
	number      uint64
	data        []byte
	added       time.Time
}

func (e *memoryEvent) size() int { return eventOverhead + len(e.stream.name) + len(e.data) }

// id returns the event's id. The number would be enough; the stream's name is for people who read
// the traffic.
func (e *memoryEvent) id() string { return e.stream.name + "-" + strconv.FormatUint(e.number, 10) }

// A memoryUse is the memory that an item uses, and its index in a heap.
type memoryUse struct{ bytes, index int }

func (u *memoryUse) use() *memoryUse { return u }

// A memoryHeap is a heap.Interface with the largest item at its root.
type memoryHeap []interface{ use() *memoryUse }

func (h memoryHeap) Len() int           { return len(h) }
func (h memoryHeap) Less(i, j int) bool { return h[i].use().bytes > h[j].use().bytes }
func (h memoryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].use().index, h[j].use().index = i, j
}

func (h *memoryHeap) Push(x any) {
	u := x.(interface{ use() *memoryUse })
	u.use().index = len(*h)
	*h = append(*h, u)
}

func (h *memoryHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}

// NewMemoryEvents returns an empty [EventStore] in memory. It has no goroutine. An event that is
// too large to store gets an id, but the stream cannot be resumed from before it. NewMemoryEvents
// copies o, which may be nil.
func NewMemoryEvents(o *MemoryEventsOptions) EventStore {
	m := &memoryEvents{queue: list.New(), sessions: make(map[string]*memorySession), owners: make(map[string]*memoryOwner)}
	if o != nil {
		m.opts = *o
	}
	defaults.IfNotPositive(&m.opts.MaxBytes, 64<<20)
	defaults.IfNotPositive(&m.opts.MaxSessionBytes, 8<<20)
	defaults.IfNotPositive(&m.opts.MaxSessionEvents, 1000)
	defaults.IfNotPositive(&m.opts.MaxAge, time.Hour)
	return m
}

// Append implements [EventStore].
func (m *memoryEvents) Append(_ context.Context, session, stream string, data []byte) (id string, err error) {
	return m.append(session, session, stream, data, false)
}

// append is Append for a session of the owner. away means that the stream waits for its client.
func (m *memoryEvents) append(owner, session, stream string, data []byte, away bool) (id string, err error) {
	if !isVisibleASCII(stream) {
		return "", fmt.Errorf("streamable: %.100q is not a valid stream name: it must be visible ASCII", stream)
	}
	e := &memoryEvent{data: bytes.Clone(data), added: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(e.added)
	e.stream = m.streamLocked(owner, session, stream)
	e.stream.setAway(away, e.added)
	s := e.stream.session
	m.lastNumber++
	e.number = m.lastNumber
	e.queueElement = m.queue.PushBack(e)
	e.listElement = e.stream.eventList().PushBack(e)
	e.stream.events = append(e.stream.events, e)
	m.addBytesLocked(s, e.size())
	for s.free.Len() > m.opts.MaxSessionEvents {
		m.evictLocked(s.free.Front().Value.(*memoryEvent))
	}
	for s.bytes > m.opts.MaxSessionBytes {
		m.evictLocked(s.evictionCandidate(e.added))
	}
	for m.bytes > m.opts.MaxBytes {
		m.evictLocked(m.largest[0].(*memoryOwner).largest[0].(*memorySession).evictionCandidate(e.added))
	}
	return e.id(), nil
}

// streamLocked returns a stream, and creates it if necessary. The caller adds an event.
func (m *memoryEvents) streamLocked(owner, session, name string) *memoryStream {
	s := m.sessions[session]
	if s == nil {
		o := m.owners[owner]
		if o == nil {
			o = &memoryOwner{id: owner}
			m.owners[owner] = o
			heap.Push(&m.largest, o)
		}
		s = &memorySession{id: session, owner: o, streams: make(map[string]*memoryStream)}
		m.sessions[session] = s
		heap.Push(&o.largest, s)
	}
	st := s.streams[name]
	if st == nil {
		st = &memoryStream{session: s, name: name}
		s.streams[name] = st
	}
	return st
}

// addBytesLocked counts n more bytes of a session.
func (m *memoryEvents) addBytesLocked(s *memorySession, n int) {
	m.bytes += n
	s.bytes += n
	s.owner.bytes += n
	heap.Fix(&s.owner.largest, s.index)
	heap.Fix(&m.largest, s.owner.index)
}

// setAway sets whether a stream waits for its client.
func (m *memoryEvents) setAway(session, stream string, away bool) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil && s.streams[stream] != nil {
		s.streams[stream].setAway(away, now)
	}
}

// eventList returns the list that has the events of the stream.
func (st *memoryStream) eventList() *list.List {
	if st.awaySince.IsZero() {
		return &st.session.free
	}
	return &st.session.away
}

// setAway sets whether the stream waits for its client, and moves its events.
func (st *memoryStream) setAway(away bool, now time.Time) {
	if away != st.awaySince.IsZero() {
		return
	}
	from := st.eventList()
	st.awaySince = time.Time{}
	if away {
		st.awaySince = now
	}
	to := st.eventList()
	at := to.Back()
	for _, e := range slices.Backward(st.events) {
		from.Remove(e.listElement)
		for at != nil && at.Value.(*memoryEvent).number > e.number {
			at = at.Prev()
		}
		if at != nil {
			e.listElement = to.InsertAfter(e, at)
		} else {
			e.listElement = to.PushFront(e)
		}
	}
}

// evictionCandidate returns the event to evict next: a sent one, or, without any, one whose client
// is away. It is the first of its stream.
func (s *memorySession) evictionCandidate(now time.Time) *memoryEvent {
	for e := s.away.Front(); e != nil; e = s.away.Front() {
		st := e.Value.(*memoryEvent).stream
		if now.Sub(st.awaySince) < maxAway {
			break
		}
		st.setAway(false, now)
	}
	e := s.free.Front()
	if e == nil {
		e = s.away.Front()
	}
	return e.Value.(*memoryEvent)
}

// After implements [EventStore]. It returns the events stored at the time of the call.
func (m *memoryEvents) After(_ context.Context, session, id string) (stream string, events iter.Seq2[StoredEvent, error], err error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	s := m.sessions[session]
	if s == nil {
		return "", nil, ErrEventGone
	}
	st, i := s.find(id)
	if st == nil || now.Sub(st.events[i].added) >= m.opts.MaxAge {
		return "", nil, ErrEventGone
	}
	later := slices.Clone(st.events[i+1:]) // without the lock; events do not change
	return st.name, func(yield func(StoredEvent, error) bool) {
		for _, e := range later {
			if !yield(StoredEvent{ID: e.id(), Data: e.data}, nil) {
				return
			}
		}
	}, nil
}

func (m *memoryEvents) Drop(_ context.Context, session string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil {
		for _, st := range s.streams {
			for _, e := range st.events {
				m.queue.Remove(e.queueElement)
			}
		}
		m.addBytesLocked(s, -s.bytes)
		m.removeSessionLocked(s)
	}
	m.expireLocked(time.Now())
	return nil
}

// find returns the stream of an event and the event's index, or nil.
func (s *memorySession) find(id string) (*memoryStream, int) {
	dash := strings.LastIndexByte(id, '-')
	if dash < 0 {
		return nil, 0
	}
	st := s.streams[id[:dash]]
	number, err := strconv.ParseUint(id[dash+1:], 10, 64)
	if st == nil || err != nil {
		return nil, 0
	}
	i, ok := slices.BinarySearchFunc(st.events, number, func(e *memoryEvent, n uint64) int { return cmp.Compare(e.number, n) })
	if !ok || st.events[i].id() != id {
		return nil, 0
	}
	return st, i
}

// expireLocked removes some expired events.
func (m *memoryEvents) expireLocked(now time.Time) {
	for range maxExpiredPerCall {
		oldest := m.queue.Front()
		if oldest == nil || now.Sub(oldest.Value.(*memoryEvent).added) < m.opts.MaxAge {
			return
		}
		m.evictLocked(oldest.Value.(*memoryEvent))
	}
}

// evictLocked removes the first event of a stream, and its stream and session if they become empty.
func (m *memoryEvents) evictLocked(e *memoryEvent) {
	st := e.stream
	s := st.session
	m.queue.Remove(e.queueElement)
	st.eventList().Remove(e.listElement)
	st.events[0] = nil
	st.events = st.events[1:]
	m.addBytesLocked(s, -e.size())
	if len(st.events) == 0 {
		delete(s.streams, st.name)
	}
	if len(s.streams) == 0 {
		m.removeSessionLocked(s)
	}
}

// removeSessionLocked removes an empty session, and its owner with the last one.
func (m *memoryEvents) removeSessionLocked(s *memorySession) {
	delete(m.sessions, s.id)
	o := s.owner
	heap.Remove(&o.largest, s.index)
	if len(o.largest) == 0 {
		delete(m.owners, o.id)
		heap.Remove(&m.largest, o.index)
	}
}

// isVisibleASCII reports whether s has only visible ASCII, and fits a header and a field of an
// event.
func isVisibleASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

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
	// call of ready began; the Handler ignores a record that is not newer than one before. It
	// returns when ctx ends, or with an error if changes may have been missed; the Handler then
	// calls Watch again. When it is ready, the Handler loads its sessions. changed does not block,
	// and may be called by multiple goroutines at once. Calls of it may end after Watch has
	// returned.
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
	// Handler learns of it by Watch. The caller owns the record.
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

// memorySessionsLimits are the limits of memorySessions. Beyond a limit, the sessions unused for
// the longest time are evicted.
type memorySessionsLimits struct {
	sessions int
	// bytes limits the memory of all sessions.
	bytes int
	// idle limits the time since a session without Expires was last updated or loaded.
	idle time.Duration
}

// sessionOverhead is the memory of a session without its texts, in bytes.
const sessionOverhead = 256

// maxUnwatched limits the changes that one Watch of memorySessions has not reported yet.
const maxUnwatched = 1024

// memorySessions is a SessionWatcher in memory.
type memorySessions struct {
	limits memorySessionsLimits

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
	// missed has an element when a change did not fit.
	missed chan struct{}
}

// NewMemorySessions returns an empty [SessionWatcher] in memory, which several handlers of a
// process can share. It has no goroutine. It has room for 10,000 sessions and 64 MiB; beyond that,
// the sessions unused for the longest time are evicted. A session without Expires is kept for an
// hour after it was last updated or loaded.
func NewMemorySessions() SessionWatcher {
	return newMemorySessions(memorySessionsLimits{sessions: 10_000, bytes: 64 << 20, idle: time.Hour})
}

func newMemorySessions(limits memorySessionsLimits) *memorySessions {
	return &memorySessions{limits: limits, queue: list.New(), byKey: make(map[string]*list.Element), watchers: make(map[*sessionWatch]struct{})}
}

// Update implements [SessionStore]. It returns an error, and leaves the record as it was, if the
// new one alone exceeds the limit.
func (m *memorySessions) Update(_ context.Context, key string, change func(*SavedSession)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := &storedSession{key: key, used: time.Now()}
	if old := m.findLocked(key, stored.used); old != nil {
		stored.saved = *old.saved.clone()
	}
	change(&stored.saved)
	stored.saved = *stored.saved.clone()
	if n := stored.size(); n > m.limits.bytes {
		return fmt.Errorf("streamable: a session of %d bytes does not fit into a store of %d bytes", n, m.limits.bytes)
	}
	m.expireLocked(stored.used)
	m.removeLocked(m.byKey[key])
	m.byKey[key] = m.queue.PushBack(stored)
	m.bytes += stored.size()
	for len(m.byKey) > m.limits.sessions || m.bytes > m.limits.bytes {
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
		wait.Signal(w.missed)
	}
}

var errSessionsMissed = errors.New("streamable: changes of sessions came faster than they were handled")

func (m *memorySessions) Watch(ctx context.Context, ready func(), changed func(key string, s *SavedSession)) error {
	w := &sessionWatch{pending: make(chan storedSession, maxUnwatched), missed: make(chan struct{}, 1)}
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
	return now.Sub(s.used) >= m.limits.idle
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
