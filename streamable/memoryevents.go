package streamable

import (
	"bytes"
	"cmp"
	"container/heap"
	"container/list"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MemoryEventsOptions are the bounds of [MemoryEvents]. Where one would be exceeded, events go that a
// client was sent before those that none was sent yet, and the older ones first.
type MemoryEventsOptions struct {
	MaxBytes         int           // of memory for the events of all sessions; 0 is 64 MiB. The caller whose events take the most loses some first
	MaxSessionBytes  int           // for those of one session; 0 is 8 MiB
	MaxSessionEvents int           // of one session, without those of streams whose client is away; 0 is 1000
	MaxAge           time.Duration // 0 is 1 h
}

// eventCost is what an event takes besides its data, in bytes, so that many small ones are not for nothing.
const eventCost = 256

// maxExpired is how many events that are too old a call gets rid of, so that none takes long. It is more than one call adds.
const maxExpired = 64

// maxHold is how long the events of a stream are kept for a client that is away, rather than those of
// streams that have one.
const maxHold = 2 * time.Minute

// MemoryEvents is an [EventStore] that lasts as long as the process. It has no goroutine: what is too old is given back when the store is next used, and
// not found before that. Its methods may be called by many goroutines at once.
//
// Events leave a stream at the front only, unless their session is dropped. So if an event is there,
// all those behind it in its stream are, too; none can be missing unnoticed.
type MemoryEvents struct {
	opts MemoryEventsOptions

	mu       sync.Mutex
	last     uint64     // number of the newest event; numbers are never used again, whatever is forgotten
	queue    *list.List // of *memoryEvent, by number
	sessions map[string]*memorySession
	owners   map[string]*memoryOwner
	largest  memoryHeap // of *memoryOwner
	bytes    int
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
	free, held list.List
}

// A memoryStream has at least one event.
type memoryStream struct {
	session *memorySession
	name    string
	events  []*memoryEvent
	since   time.Time // when it began to wait for its client; zero if it does not
}

type memoryEvent struct {
	stream *memoryStream
	place  *list.Element // in MemoryEvents.queue
	turn   *list.Element // in free or held of its session
	number uint64
	data   []byte
	at     time.Time
}

func (e *memoryEvent) size() int { return eventCost + len(e.stream.name) + len(e.data) }

// id returns what finds the event again. The number alone would do that; the stream is there for people who read the wire.
func (e *memoryEvent) id() string { return e.stream.name + "-" + strconv.FormatUint(e.number, 10) }

// A memoryUse is what something takes, and its place in a heap.
type memoryUse struct{ bytes, at int }

func (u *memoryUse) use() *memoryUse { return u }

// A memoryHeap has what takes the most at its root.
type memoryHeap []interface{ use() *memoryUse }

func (h memoryHeap) Len() int           { return len(h) }
func (h memoryHeap) Less(i, j int) bool { return h[i].use().bytes > h[j].use().bytes }
func (h memoryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].use().at, h[j].use().at = i, j
}

// Push implements [heap.Interface].
func (h *memoryHeap) Push(x any) {
	u := x.(interface{ use() *memoryUse })
	u.use().at = len(*h)
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
	if !isVisible(stream) {
		return "", fmt.Errorf("streamable: %.100q cannot be the name of a stream: it has something else than visible ASCII", stream)
	}
	e := &memoryEvent{data: bytes.Clone(data), at: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(e.at)
	e.stream = m.streamLocked(owner, session, stream)
	e.stream.hold(away, e.at)
	s := e.stream.session
	m.last++
	e.number = m.last
	e.place = m.queue.PushBack(e)
	e.turn = e.stream.queue().PushBack(e)
	e.stream.events = append(e.stream.events, e)
	m.countLocked(s, e.size())
	for s.free.Len() > m.opts.MaxSessionEvents {
		m.evictLocked(s.free.Front().Value.(*memoryEvent))
	}
	for s.bytes > m.opts.MaxSessionBytes {
		m.evictLocked(s.next(e.at))
	}
	for m.bytes > m.opts.MaxBytes {
		m.evictLocked(m.largest[0].(*memoryOwner).largest[0].(*memorySession).next(e.at))
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

// countLocked notes that a session takes n bytes more.
func (m *MemoryEvents) countLocked(s *memorySession, n int) {
	m.bytes += n
	s.bytes += n
	s.owner.bytes += n
	heap.Fix(&s.owner.largest, s.at)
	heap.Fix(&m.largest, s.owner.at)
}

// setAway says whether the client of a stream is away, so that the stream waits for it.
func (m *MemoryEvents) setAway(session, stream string, away bool) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil && s.streams[stream] != nil {
		s.streams[stream].hold(away, now)
	}
}

// queue returns the queue that the events of the stream are in.
func (st *memoryStream) queue() *list.List {
	if st.since.IsZero() {
		return &st.session.free
	}
	return &st.session.held
}

// hold has the stream wait for its client, or not.
func (st *memoryStream) hold(away bool, now time.Time) {
	if away != st.since.IsZero() {
		return
	}
	was := st.queue()
	st.since = time.Time{}
	if away {
		st.since = now
	}
	is := st.queue()
	at := is.Back()
	for _, e := range slices.Backward(st.events) {
		was.Remove(e.turn)
		for at != nil && at.Value.(*memoryEvent).number > e.number {
			at = at.Prev()
		}
		if at != nil {
			e.turn = is.InsertAfter(e, at)
		} else {
			e.turn = is.PushFront(e)
		}
	}
}

// next returns the event that goes next: one whose client has had it, and if there is none, one whose
// client is away. It is the first of its stream.
func (s *memorySession) next(now time.Time) *memoryEvent {
	for e := s.held.Front(); e != nil; e = s.held.Front() {
		st := e.Value.(*memoryEvent).stream
		if now.Sub(st.since) < maxHold {
			break
		}
		st.hold(false, now)
	}
	e := s.free.Front()
	if e == nil {
		e = s.held.Front()
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
	if st == nil || now.Sub(st.events[i].at) >= m.opts.MaxAge {
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
				m.queue.Remove(e.place)
			}
		}
		m.countLocked(s, -s.bytes)
		m.forgetLocked(s)
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
	for range maxExpired {
		e := m.oldestLocked()
		if e == nil || now.Sub(e.at) < m.opts.MaxAge {
			return
		}
		m.evictLocked(e)
	}
}

// evictLocked forgets the first event of a stream, the stream with its last one, and so on.
func (m *MemoryEvents) evictLocked(e *memoryEvent) {
	st := e.stream
	s := st.session
	m.queue.Remove(e.place)
	st.queue().Remove(e.turn)
	st.events[0] = nil
	st.events = st.events[1:]
	m.countLocked(s, -e.size())
	if len(st.events) == 0 {
		delete(s.streams, st.name)
	}
	if len(s.streams) == 0 {
		m.forgetLocked(s)
	}
}

// forgetLocked forgets a session that has no events, and its owner with the last one.
func (m *MemoryEvents) forgetLocked(s *memorySession) {
	delete(m.sessions, s.id)
	o := s.owner
	heap.Remove(&o.largest, s.at)
	if len(o.largest) == 0 {
		delete(m.owners, o.id)
		heap.Remove(&m.largest, o.at)
	}
}

// isVisible reports whether s is of visible ASCII, so that it can stand in a header and in a field of an event.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
