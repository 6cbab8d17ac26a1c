package streamable

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

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
