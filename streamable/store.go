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
)

// An EventStore keeps what was sent on the streams of legacy sessions, so that a client that lost one can have the rest
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery). Its methods may be called by many goroutines at
// once; those of one stream come in order. session and stream are names of at most 64 characters without spaces.
type EventStore interface {
	// Append keeps an event and returns its id: visible ASCII, unique in the session, and such that After finds the stream by it. data is empty for an
	// event that only has an id. The slice is valid until Append returns.
	// If it fails, a client that is connected gets the event without an id, and the stream cannot be
	// resumed any more.
	Append(ctx context.Context, session, stream string, data []byte) (id string, err error)
	// After returns the stream that the event with that id is of, and the events behind it, in order. The error is [ErrEventGone] if the store does not have the
	// event (any more). The data may be kept, but not be changed.
	After(ctx context.Context, session, id string) (stream string, events iter.Seq2[StoredEvent, error], err error)
	// Drop forgets a session.
	Drop(ctx context.Context, session string) error
}

// A StoredEvent is one event of a stream.
type StoredEvent struct {
	ID   string
	Data []byte // empty if the event only has an id
}

// ErrEventGone says that a stream cannot be resumed behind an event, because the store does not have it.
var ErrEventGone = errors.New("no such event")

// A SessionStore keeps what another process, or the same one after a restart, needs to take over a session of a legacy client. Its methods may be called
// by many goroutines at once.
type SessionStore interface {
	// Save keeps a session until it is deleted, or until nobody has saved or loaded it for some time
	// that is the store's. That should be at least [Options].SessionTimeout: a session that is in use
	// is loaded again after a quarter of it.
	Save(ctx context.Context, id string, s *SavedSession) error
	// Load returns a session, nil without an error if there is none. If the error is not nil, the
	// request of the client is answered with status 503.
	Load(ctx context.Context, id string) (*SavedSession, error)
	// Delete forgets a session.
	Delete(ctx context.Context, id string) error
}

// A SavedSession is how a session came about. It can be kept as JSON.
type SavedSession struct {
	Principal  string `json:"principal,omitempty"` // whose it is, as auth.Principal.ID says; "" if nobody's in particular
	Initialize []byte `json:"initialize"`          // the client's initialize request
}

// MemoryEventsOptions are the bounds of [MemoryEvents]. Where one would be exceeded, events go that a
// client was sent before those that none was sent yet, and the older ones first.
type MemoryEventsOptions struct {
	MaxBytes         int           // of memory for the events of all sessions; 0 is 64 MiB. The caller whose events take the most loses some first
	MaxSessionBytes  int           // for those of one session; 0 is 8 MiB
	MaxSessionEvents int           // of one session, without those of streams whose client is away; 0 is 1000
	MaxAge           time.Duration // 0 is 1 h
}

// eventOverhead is what an event takes besides its data, in bytes, so that many small ones are not for nothing.
const eventOverhead = 256

// maxExpiredPerCall is how many events that are too old a call gets rid of, so that none takes long. It is more than one call adds.
const maxExpiredPerCall = 64

// maxAway is how long the events of a stream are kept for a client that is away, rather than those of
// streams that have one.
const maxAway = 2 * time.Minute

// MemoryEvents is an [EventStore] that lasts as long as the process. It has no goroutine: what is too old is given back when the store is next used, and
// not found before that. Its methods may be called by many goroutines at once.
//
// Events leave a stream at the front only, unless their session is dropped. So if an event is there,
// all those behind it in its stream are, too; none can be missing unnoticed.
type MemoryEvents struct {
	opts MemoryEventsOptions

	mu         sync.Mutex
	lastNumber uint64     // number of the newest event; numbers are never used again, whatever is forgotten
	queue      *list.List // of *memoryEvent, by number
	sessions   map[string]*memorySession
	owners     map[string]*memoryOwner
	largest    memoryHeap // of *memoryOwner
	bytes      int
}

// A memoryOwner is a caller that has sessions. It has at least one.
type memoryOwner struct {
	memoryUse
	id      string
	largest memoryHeap // of *memorySession
}

// A memorySession has at least one event.
type memorySession struct {
	memoryUse
	id      string
	owner   *memoryOwner
	streams map[string]*memoryStream
	// Events by number: held are those of streams that wait for their client, free are the others.
	free, away list.List
}

// A memoryStream has at least one event.
type memoryStream struct {
	session   *memorySession
	name      string
	events    []*memoryEvent
	awaySince time.Time // when it began to wait for its client; zero if it does not
}

type memoryEvent struct {
	stream       *memoryStream
	queueElement *list.Element // in MemoryEvents.queue
	listElement  *list.Element // in free or held of its session
	number       uint64
	data         []byte
	added        time.Time
}

func (e *memoryEvent) size() int { return eventOverhead + len(e.stream.name) + len(e.data) }

// id returns what finds the event again. The number alone would do that; the stream is there for people who read the wire.
func (e *memoryEvent) id() string { return e.stream.name + "-" + strconv.FormatUint(e.number, 10) }

// A memoryUse is what something takes, and its place in a heap.
type memoryUse struct{ bytes, index int }

func (u *memoryUse) use() *memoryUse { return u }

// A memoryHeap has what takes the most at its root.
type memoryHeap []interface{ use() *memoryUse }

func (h memoryHeap) Len() int           { return len(h) }
func (h memoryHeap) Less(i, j int) bool { return h[i].use().bytes > h[j].use().bytes }
func (h memoryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].use().index, h[j].use().index = i, j
}

// Push implements [heap.Interface].
func (h *memoryHeap) Push(x any) {
	u := x.(interface{ use() *memoryUse })
	u.use().index = len(*h)
	*h = append(*h, u)
}

// Pop implements [heap.Interface].
func (h *memoryHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}

// NewMemoryEvents returns an empty store. o may be nil; it is copied.
func NewMemoryEvents(o *MemoryEventsOptions) *MemoryEvents {
	m := &MemoryEvents{queue: list.New(), sessions: make(map[string]*memorySession), owners: make(map[string]*memoryOwner)}
	if o != nil {
		m.opts = *o
	}
	setDefault(&m.opts.MaxBytes, 64<<20)
	setDefault(&m.opts.MaxSessionBytes, 8<<20)
	setDefault(&m.opts.MaxSessionEvents, 1000)
	setDefault(&m.opts.MaxAge, time.Hour)
	return m
}

// Append implements [EventStore]. An event that is too large to be kept gets an id all the same, and no event before it can be resumed behind any more.
func (m *MemoryEvents) Append(_ context.Context, session, stream string, data []byte) (id string, err error) {
	return m.append(session, session, stream, data, false)
}

// append is Append for a session of the owner. away says that the client is, so that the stream waits
// for it.
func (m *MemoryEvents) append(owner, session, stream string, data []byte, away bool) (id string, err error) {
	if !isVisibleASCII(stream) {
		return "", fmt.Errorf("streamable: %.100q cannot be the name of a stream: it has something else than visible ASCII", stream)
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

// streamLocked returns a stream, which gets an event.
func (m *MemoryEvents) streamLocked(owner, session, name string) *memoryStream {
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

// addBytesLocked notes that a session takes n bytes more.
func (m *MemoryEvents) addBytesLocked(s *memorySession, n int) {
	m.bytes += n
	s.bytes += n
	s.owner.bytes += n
	heap.Fix(&s.owner.largest, s.index)
	heap.Fix(&m.largest, s.owner.index)
}

// setClientAway says whether the client of a stream is away, so that the stream waits for it.
func (m *MemoryEvents) setAway(session, stream string, away bool) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil && s.streams[stream] != nil {
		s.streams[stream].setAway(away, now)
	}
}

// eventList returns the queue that the events of the stream are in.
func (st *memoryStream) eventList() *list.List {
	if st.awaySince.IsZero() {
		return &st.session.free
	}
	return &st.session.away
}

// setAway has the stream wait for its client, or not.
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

// evictionCandidate returns the event that goes next: one whose client has had it, and if there is none, one whose
// client is away. It is the first of its stream.
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

// After implements [EventStore]. The events are those that were there when it was called.
func (m *MemoryEvents) After(_ context.Context, session, id string) (stream string, events iter.Seq2[StoredEvent, error], err error) {
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
	found := make([]StoredEvent, 0, len(st.events)-i-1)
	for _, e := range st.events[i+1:] {
		found = append(found, StoredEvent{ID: e.id(), Data: e.data})
	}
	return st.name, func(yield func(StoredEvent, error) bool) {
		for _, e := range found {
			if !yield(e, nil) {
				return
			}
		}
	}, nil
}

// Drop implements [EventStore].
func (m *MemoryEvents) Drop(_ context.Context, session string) error {
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

// find returns the stream of an event, and its place in there; nil if it is not there.
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

// oldestLocked returns the oldest event, nil if there is none.
func (m *MemoryEvents) oldestLocked() *memoryEvent {
	front := m.queue.Front()
	if front == nil {
		return nil
	}
	return front.Value.(*memoryEvent)
}

// expireLocked forgets some of what is too old.
func (m *MemoryEvents) expireLocked(now time.Time) {
	for range maxExpiredPerCall {
		e := m.oldestLocked()
		if e == nil || now.Sub(e.added) < m.opts.MaxAge {
			return
		}
		m.evictLocked(e)
	}
}

// evictLocked forgets the first event of a stream, the stream with its last one, and so on.
func (m *MemoryEvents) evictLocked(e *memoryEvent) {
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

// removeSessionLocked forgets a session that has no events, and its owner with the last one.
func (m *MemoryEvents) removeSessionLocked(s *memorySession) {
	delete(m.sessions, s.id)
	o := s.owner
	heap.Remove(&o.largest, s.index)
	if len(o.largest) == 0 {
		delete(m.owners, o.id)
		heap.Remove(&m.largest, o.index)
	}
}

// isVisibleASCII reports whether s is of visible ASCII, so that it can stand in a header and in a field of an event.
func isVisibleASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// MemorySessionsOptions are the bounds of [MemorySessions]. Where one would be exceeded, the sessions go that were not used for the longest time.
type MemorySessionsOptions struct {
	MaxSessions int           // 0 is 10,000
	MaxBytes    int           // of memory for all of them; 0 is 64 MiB
	MaxIdle     time.Duration // since a session was last saved or loaded; 0 is 1 h
}

// sessionOverhead is what a session takes besides its texts, in bytes.
const sessionOverhead = 256

// MemorySessions is a [SessionStore] that lasts as long as the process: it lets several handlers in it share their sessions. It has no goroutine. Its
// methods may be called by many goroutines at once.
type MemorySessions struct {
	opts MemorySessionsOptions

	mu    sync.Mutex
	queue *list.List // of *storedSession, the one that goes next in front
	byID  map[string]*list.Element
	bytes int
}

type storedSession struct {
	id    string
	saved SavedSession
	used  time.Time
}

func (s *storedSession) size() int {
	return sessionOverhead + len(s.id) + len(s.saved.Principal) + len(s.saved.Initialize)
}

// NewMemorySessions returns an empty store. o may be nil; it is copied.
func NewMemorySessions(o *MemorySessionsOptions) *MemorySessions {
	m := &MemorySessions{queue: list.New(), byID: make(map[string]*list.Element)}
	if o != nil {
		m.opts = *o
	}
	setDefault(&m.opts.MaxSessions, 10_000)
	setDefault(&m.opts.MaxBytes, 64<<20)
	setDefault(&m.opts.MaxIdle, time.Hour)
	return m
}

func (s *SavedSession) clone() SavedSession {
	c := *s
	c.Initialize = bytes.Clone(s.Initialize)
	return c
}

// Save implements [SessionStore]. A session that alone is larger than the store is an error.
func (m *MemorySessions) Save(_ context.Context, id string, s *SavedSession) error {
	stored := &storedSession{id: id, saved: s.clone(), used: time.Now()}
	if n := stored.size(); n > m.opts.MaxBytes {
		return fmt.Errorf("streamable: a session of %d bytes does not fit into a store of %d", n, m.opts.MaxBytes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(stored.used)
	m.removeLocked(m.byID[id])
	m.byID[id] = m.queue.PushBack(stored)
	m.bytes += stored.size()
	for len(m.byID) > m.opts.MaxSessions || m.bytes > m.opts.MaxBytes {
		m.removeLocked(m.queue.Front())
	}
	return nil
}

// Load implements [SessionStore]. What it returns is the caller's.
func (m *MemorySessions) Load(_ context.Context, id string) (*SavedSession, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(now)
	e := m.byID[id]
	if e == nil {
		return nil, nil
	}
	s := e.Value.(*storedSession)
	if m.isExpired(s, now) {
		m.removeLocked(e)
		return nil, nil
	}
	s.used = now
	m.queue.MoveToBack(e)
	saved := s.saved.clone()
	return &saved, nil
}

// Delete implements [SessionStore].
func (m *MemorySessions) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(m.byID[id])
	m.expireLocked(time.Now())
	return nil
}

func (m *MemorySessions) isExpired(s *storedSession, now time.Time) bool {
	return now.Sub(s.used) >= m.opts.MaxIdle
}

// expireLocked forgets some of those that nobody has used.
func (m *MemorySessions) expireLocked(now time.Time) {
	for range maxExpiredPerCall {
		e := m.queue.Front()
		if e == nil || !m.isExpired(e.Value.(*storedSession), now) {
			return
		}
		m.removeLocked(e)
	}
}

// removeLocked forgets a session; e may be nil.
func (m *MemorySessions) removeLocked(e *list.Element) {
	if e == nil {
		return
	}
	s := e.Value.(*storedSession)
	m.queue.Remove(e)
	m.bytes -= s.size()
	delete(m.byID, s.id)
}
