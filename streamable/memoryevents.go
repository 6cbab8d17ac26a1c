package streamable

import (
	"bytes"
	"cmp"
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

// MemoryEventsOptions are the bounds of [MemoryEvents]; where one would be exceeded, the oldest events go.
type MemoryEventsOptions struct {
	MaxBytes         int           // of memory for the events of all sessions; 0 is 64 MiB
	MaxSessionBytes  int           // for those of one session; 0 is 8 MiB
	MaxSessionEvents int           // 0 is 1000
	MaxAge           time.Duration // 0 is 1 h
}

// eventCost is what an event takes besides its data, in bytes, so that many small ones are not for nothing.
const eventCost = 256

// maxExpired is how many events that are too old a call gets rid of, so that none takes long. It is more than one call adds.
const maxExpired = 64

// MemoryEvents is an [EventStore] that lasts as long as the process. It has no goroutine: what is too old is given back when the store is next used, and
// not found before that. Its methods may be called by many goroutines at once.
//
// All events are in one queue, and those of a session in one of its own, both in the order in which they came. Events leave at the front only, unless their
// session is dropped. So if an event is there, all those behind it in its session are, too; none can be missing unnoticed.
type MemoryEvents struct {
	opts MemoryEventsOptions

	mu       sync.Mutex
	last     uint64     // number of the newest event; numbers are never used again, whatever is forgotten
	queue    *list.List // of *memoryEvent
	sessions map[string]*memorySession
	bytes    int
}

// A memorySession has at least one event.
type memorySession struct {
	id     string
	events []*memoryEvent
	bytes  int
}

type memoryEvent struct {
	session *memorySession
	place   *list.Element
	stream  string
	number  uint64
	data    []byte
	at      time.Time
}

func (e *memoryEvent) size() int { return eventCost + len(e.stream) + len(e.data) }

// id returns what finds the event again. The number alone would do that; the stream is there for people who read the wire.
func (e *memoryEvent) id() string { return e.stream + "-" + strconv.FormatUint(e.number, 10) }

// NewMemoryEvents returns an empty store. o may be nil; it is copied.
func NewMemoryEvents(o *MemoryEventsOptions) *MemoryEvents {
	m := &MemoryEvents{queue: list.New(), sessions: make(map[string]*memorySession)}
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
	if !isVisible(stream) {
		return "", fmt.Errorf("streamable: %.100q cannot be the name of a stream: it has something else than visible ASCII", stream)
	}
	e := &memoryEvent{stream: stream, data: bytes.Clone(data), at: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked(e.at)
	s := m.sessions[session]
	if s == nil {
		s = &memorySession{id: session}
		m.sessions[session] = s
	}
	m.last++
	e.session, e.number = s, m.last
	e.place = m.queue.PushBack(e)
	s.events = append(s.events, e)
	s.bytes += e.size()
	m.bytes += e.size()
	for len(s.events) > m.opts.MaxSessionEvents || s.bytes > m.opts.MaxSessionBytes {
		m.evictLocked(s.events[0])
	}
	for m.bytes > m.opts.MaxBytes {
		m.evictLocked(m.oldestLocked())
	}
	return e.id(), nil
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
	i := s.find(id)
	if i < 0 || now.Sub(s.events[i].at) >= m.opts.MaxAge {
		return "", nil, ErrEventGone
	}
	stream = s.events[i].stream
	var found []StoredEvent
	for _, e := range s.events[i+1:] {
		if e.stream == stream {
			found = append(found, StoredEvent{ID: e.id(), Data: e.data})
		}
	}
	return stream, func(yield func(StoredEvent, error) bool) {
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
		for _, e := range s.events {
			m.queue.Remove(e.place)
		}
		m.bytes -= s.bytes
		delete(m.sessions, session)
	}
	m.expireLocked(time.Now())
	return nil
}

// find returns the place of an event, -1 if it is not there.
func (s *memorySession) find(id string) int {
	number, err := strconv.ParseUint(id[strings.LastIndexByte(id, '-')+1:], 10, 64)
	if err != nil {
		return -1
	}
	i, ok := slices.BinarySearchFunc(s.events, number, func(e *memoryEvent, n uint64) int { return cmp.Compare(e.number, n) })
	if !ok || s.events[i].id() != id {
		return -1
	}
	return i
}

// oldestLocked returns the event that goes next, nil if there is none.
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

// evictLocked forgets the oldest event of a session, and the session with its last one.
func (m *MemoryEvents) evictLocked(e *memoryEvent) {
	s := e.session
	m.queue.Remove(e.place)
	s.events[0] = nil
	s.events = s.events[1:]
	s.bytes -= e.size()
	m.bytes -= e.size()
	if len(s.events) == 0 {
		delete(m.sessions, s.id)
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
