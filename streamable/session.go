package streamable

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A session is that of one legacy client (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management). It belongs to the
// principal that opened it: to others it does not exist.
type session struct {
	// What each request looks at comes first, so that it lies together.
	h     *Handler
	owner string // the principal's id; "" if it is nobody's in particular
	peer  peer
	ctx   context.Context
	busy  atomic.Int32 // requests and streams
	used  atomic.Bool  // since it was seen; a request notes that, and not the time, which would cost as much as all the rest of leave and enter
	gone  atomic.Int32 // requests whose client has gone and has nothing to resume them with

	id     string
	caller string // who is charged for it
	over   func() // ends it on the server's side
	cancel context.CancelFunc
	news   stream // what belongs to no request

	features  atomic.Pointer[era.Features] // that initialize has agreed on; nil before
	confirmed atomic.Bool                  // the client has sent notifications/initialized

	// By the handler's clock. The sweeper's, once the session is listed.
	seen     time.Duration // when it was opened, or found to have been used
	attended time.Duration // when it was opened, or found to have a client that waits for something
	touched  time.Duration // when the store of sessions was last asked for it

	mu      sync.Mutex
	streams map[string]*stream // that have a name and are not done
	last    int                // stream named by number
	gaps    map[string]bool    // names of streams that lack an event which the store has not taken
	ended   bool
}

// newsName is the name of the stream that belongs to no request.
const newsName = "s"

// open makes a session for a client that wants to initialize one; nil if its caller has too many. It is not listed yet.
func (h *Handler) open(r *http.Request, caller string) *session {
	s := &session{h: h, id: rand.Text(), owner: ownerOf(r), caller: strings.Clone(caller), seen: h.clock.since()}
	s.attended, s.touched = s.seen, s.seen
	if !h.sessioners.enter(s.caller, h.opts.MaxPerCaller) {
		return nil
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.news.session, s.news.name, s.news.open = s, newsName, true
	s.peer, s.over = h.openPeer(h.onBehalf(r.Context(), r, auth.PrincipalOf(r.Context())), &s.news)
	return s
}

// close ends the session with everything that belongs to it. The caller has taken it out of the table. drop says that it does not live elsewhere either, so
// that nobody wants its events any more.
func (s *session) close(drop bool) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	streams := make([]*stream, 0, len(s.streams)+1)
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	for _, st := range append(streams, &s.news) {
		st.release()
	}
	s.cancel()
	s.over()
	s.h.sessioners.leave(s.caller)
	if !drop {
		return
	}
	if err := s.drop(); err != nil {
		s.h.opts.Logger.Warn("events of a session not dropped", "error", err)
	}
}

// drop forgets the events.
func (s *session) drop() (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), storeTimeout)
	defer cancel()
	defer contain(&err)
	return s.h.events.Drop(ctx, s.id)
}

// enter notes that the session is in use, until leave is called.
func (s *session) enter() { s.busy.Add(1) }

func (s *session) leave() {
	if !s.used.Load() {
		s.used.Store(true)
	}
	s.busy.Add(-1)
}

// handshakeTimeout is after which a session ends that nobody uses, and whose client has not sent
// notifications/initialized.
const handshakeTimeout = 30 * time.Second

// isOver reports whether the session is to end: because nobody uses it, or nobody waits for what it
// does. It is not called twice at once.
func (s *session) isOver() bool {
	now, o := s.h.clock.since(), &s.h.opts
	busy, used := s.busy.Load(), s.used.Swap(false)
	if used || busy > 0 {
		s.seen = now
	}
	if used || busy > 0 && s.isAttended(busy) {
		s.attended = now
	}
	switch {
	case busy > 0:
		return now-s.attended >= o.AbandonTimeout
	case !s.confirmed.Load():
		return now-s.seen >= min(handshakeTimeout, o.SessionTimeout)
	}
	return now-s.seen >= o.SessionTimeout
}

// isAttended reports whether a client waits for one of the busy requests and streams.
func (s *session) isAttended(busy int32) bool {
	abandoned := s.gone.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if !st.mu.TryLock() {
			continue // something is being written, or read from the store
		}
		if st.out == nil && !st.done {
			abandoned++
		}
		st.mu.Unlock()
	}
	return busy > abandoned
}

// isDue reports whether the store of sessions has to be asked for the session, so that it keeps one
// that is in use.
func (s *session) isDue() bool {
	return s.seen > s.touched && s.h.clock.since()-s.touched >= s.h.opts.SessionTimeout/4
}

// list names a stream, so that it can be found again. The name is one that no other process gives, if another may have the session.
func (s *session) list(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	st.name = strconv.Itoa(s.last)
	if s.h.opts.Sessions != nil {
		st.name += "." + s.h.instance
	}
	if !s.ended {
		if s.streams == nil {
			s.streams = make(map[string]*stream)
		}
		s.streams[st.name] = st
	}
}

// find returns a stream that is not done; nil if it is.
func (s *session) find(name string) *stream {
	if name == newsName {
		return &s.news
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[name]
}

// behind returns the stream that an event is of.
func (s *session) behind(ctx context.Context, id string) (*stream, error) {
	name, _, err := s.h.events.After(ctx, s.id, id)
	if errors.Is(err, ErrEventGone) {
		if st := s.ending(id); st != nil {
			return st, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if s.hasGap(name) {
		return nil, ErrEventGone
	}
	if st := s.find(name); st != nil {
		return st, nil
	}
	away := s.h.opts.Sessions != nil && !strings.HasSuffix(name, "."+s.h.instance)
	return &stream{session: s, name: name, done: true, away: away}, nil // all there is of it is in the store
}

// ending returns the stream whose newest event has that id; nil if none has. It needs no store, which forgets what is old: on a quiet stream, there is nothing
// behind an event all the same.
func (s *session) ending(id string) *stream {
	s.mu.Lock()
	streams := append(slices.Collect(maps.Values(s.streams)), &s.news)
	s.mu.Unlock()
	for _, st := range streams {
		if st.endsWith(id) {
			return st
		}
	}
	return nil
}

// maxGaps is how many streams with gaps a session remembers. When there are more, none of its
// streams is resumed any more.
const maxGaps = 256

// noteGap notes that a stream lacks an event, so that it must not be resumed.
func (s *session) noteGap(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gaps == nil {
		s.gaps = make(map[string]bool)
	}
	if len(s.gaps) < maxGaps {
		s.gaps[name] = true
	}
}

// hasGap reports whether a stream may lack an event. The one that belongs to no request knows itself.
func (s *session) hasGap(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return name != newsName && (s.gaps[name] || len(s.gaps) >= maxGaps)
}

func (s *session) forget(st *stream) {
	s.mu.Lock()
	delete(s.streams, st.name)
	s.mu.Unlock()
}

// polling reports whether clients of the session resume streams that are closed on purpose.
func (s *session) polling() bool {
	f := s.features.Load()
	return f != nil && f.Polling
}

// agreed notes what the server has answered to initialize, and reports whether that was a result.
func (s *session) agreed(answer []byte) bool {
	var m jsonrpc.Message
	if jsonrpc.Parse(answer, &m, 0) != nil || m.Kind != jsonrpc.KindResponse {
		return false
	}
	hello, err := era.ReadInitialize(m.Result)
	if err != nil || len(hello.Versions) == 0 {
		return false
	}
	revision, ok := mcp.ParseRevision(hello.Versions[0])
	if ok {
		s.features.Store(era.Of(revision))
	}
	return ok
}

// A sessionTable holds the sessions of a handler, in parts so that they do not all wait for one lock.
type sessionTable struct {
	h     *Handler
	count atomic.Int64
	parts [16]struct {
		mu sync.Mutex
		by map[string]*session
	}
	sweeper *time.Timer
	armed   atomic.Bool
}

func (t *sessionTable) init(h *Handler) {
	t.h = h
	for i := range t.parts {
		t.parts[i].by = make(map[string]*session)
	}
	t.sweeper = time.AfterFunc(time.Hour, t.sweep)
	t.sweeper.Stop()
}

// part returns the number of the part that has the id. Ids of this handler are random from their first character on.
func part(id string) int { return int(id[len(id)-1]) % 16 }

// get returns a session by its id, which must not be empty; nil if there is none.
func (t *sessionTable) get(id string) *session {
	p := &t.parts[part(id)]
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.by[id]
	if s != nil {
		s.enter() // so that it is not reaped just now
	}
	return s
}

// add lists a session, and reports false if there are too many or the handler is shutting down. One that lives already under the id is kept instead, and is in
// use until the caller leaves it.
func (t *sessionTable) add(s *session) (kept *session, ok bool) {
	if t.count.Add(1) > int64(t.h.opts.MaxSessions) {
		t.count.Add(-1)
		return nil, false
	}
	p := &t.parts[part(s.id)]
	p.mu.Lock()
	other := p.by[s.id]
	if other == nil {
		p.by[s.id] = s
	} else {
		other.enter()
	}
	p.mu.Unlock()
	if other != nil {
		t.count.Add(-1)
		return other, true
	}
	if !t.armed.Swap(true) {
		t.sweeper.Reset(t.period())
	}
	if t.h.closing.Load() {
		t.end(s, t.local())
		return nil, false
	}
	return s, true
}

// local reports whether sessions live here only.
func (t *sessionTable) local() bool { return t.h.opts.Sessions == nil }

// end takes a session out and closes it.
func (t *sessionTable) end(s *session, drop bool) {
	p := &t.parts[part(s.id)]
	p.mu.Lock()
	listed := p.by[s.id] == s
	if listed {
		delete(p.by, s.id)
	}
	p.mu.Unlock()
	if listed {
		t.count.Add(-1)
		s.close(drop)
	}
}

// take takes out the sessions for which over holds. Nobody gets hold of them any more.
func (t *sessionTable) take(over func(*session) bool) []*session {
	var list []*session
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		for id, s := range p.by {
			if over(s) {
				delete(p.by, id)
				list = append(list, s)
			}
		}
		p.mu.Unlock()
	}
	t.count.Add(-int64(len(list)))
	return list
}

// period is how often idle sessions are looked for.
func (t *sessionTable) period() time.Duration {
	return max(min(t.h.opts.SessionTimeout/4, 15*time.Second), 100*time.Millisecond)
}

// sweep ends the sessions that are idle or abandoned, and has the store keep the others. It goes on
// for as long as there are any.
func (t *sessionTable) sweep() {
	var due []*session
	over := t.take(func(s *session) bool {
		if s.isOver() {
			return true
		}
		if !t.local() && s.isDue() {
			due = append(due, s)
		}
		return false
	})
	for _, s := range over {
		t.h.opts.Logger.Debug("idle session ended")
		s.close(t.local())
	}
	t.touch(due)
	t.armed.Store(false)
	if t.count.Load() > 0 && !t.armed.Swap(true) {
		t.sweeper.Reset(t.period())
	}
}

// maxTouching bounds how long a sweep asks the store for sessions.
const maxTouching = time.Minute

// touch asks the store for sessions that are in use, which makes it keep them. What fails is tried
// again at the next sweep.
func (t *sessionTable) touch(due []*session) {
	until := t.h.clock.since() + maxTouching
	for _, s := range due {
		now := t.h.clock.since()
		if now >= until || t.h.closing.Load() {
			return
		}
		if _, err := t.h.load(t.h.closed, s.id); err != nil {
			t.h.opts.Logger.Warn("a session in use could not be kept in the store", "error", err)
			return
		}
		s.touched = now
	}
}

// endAll ends the sessions.
func (t *sessionTable) endAll() {
	for _, s := range t.take(func(*session) bool { return true }) {
		s.close(t.local())
	}
	t.sweeper.Stop()
}

// cancelAll cancels what the sessions have under way. It does not wait for anything.
func (t *sessionTable) cancelAll() {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		for _, s := range p.by {
			s.cancel()
		}
		p.mu.Unlock()
	}
}

// callers counts what each caller has open.
type callers struct {
	mu sync.Mutex
	of map[string]int
}

// enter counts one more for the caller, and reports false if that is more than max.
func (c *callers) enter(caller string, max int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[caller] >= max {
		return false
	}
	if c.of == nil {
		c.of = make(map[string]int)
	}
	c.of[caller]++
	return true
}

func (c *callers) leave(caller string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[caller]--; c.of[caller] <= 0 {
		delete(c.of, caller)
	}
}
