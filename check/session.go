package check

import (
	"bytes"
	"hash/maphash"
	"net/url"
	"reflect"
	"slices"
	"sort"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A transport is what moved the bytes.
type transport uint8

const (
	transportUnknown transport = iota
	transportStdio             // a stream of bytes each way
	transportHTTP              // Streamable HTTP
	transportSSE               // HTTP+SSE of 2024-11-05
)

// A session is a connection over stdio, a session of legacy HTTP, or what of HTTP cannot be told apart any further.
type session struct {
	key       sessionKey
	number    uint64 // given by the checker, for the pairer
	capture   *captureState
	transport transport
	tick      uint64 // when it was last used
	lastN     uint64
	messages  int

	// certain tells that all in the session is of one client and one server: ids and states may be held against each other.
	certain bool
	// startedMidway tells that the session began before the capture did.
	startedMidway bool
	// lostAt is the number of the latest event behind which some are missing; 0 if all are there. What needs the whole history, see whole.
	lostAt uint64

	// The legacy handshake.
	initialize       *call        // the request, once it was seen
	initializeCount  int          // how many
	rev              mcp.Revision // that the server answered; RevisionNone before, and if it is none that is known
	initializeResult uint64       // number of the event with a result of initialize, 0 before
	initialized      uint64       // number of the event with notifications/initialized, 0 before
	clientCaps       []byte       // JSON text of the capabilities in the handshake; nil before
	serverCaps       []byte       // from the handshake, or from server/discover
	serverVersion    string       // that the server answered
	// modern tells that the server has shown that it speaks a modern revision. That a client asked like one shows nothing of the server.
	modern bool

	exited        uint64 // number of the event with the exit of the server
	restarted     bool   // the server was started again behind the same pipe
	ended         map[capture.Dir]uint64
	clientClosedT time.Duration // when the client ended its side
	tools         toolList
	calls         map[openKey]*call // that wait
	ids           map[capture.Dir]*idSet
	answered      map[capture.Dir]*recentIDs // requests that were answered, by the side that asked
	state         states
}

type sessionKey struct {
	capture string
	number  uint64 // the capture's
	id      string // the protocol's, as it stands in the capture; "" if there is none
}

// A recording is what is known of a capture as a whole.
type captureState struct {
	id        string
	transport string
	lostAt    uint64
	tail      bool
	lastT     int64 // nanoseconds since its head
	lastN     uint64
	state     states
}

// complete reports whether nothing of the session is missing, as far as is known.
func (s *session) complete() bool {
	return s.certain && !s.startedMidway && s.lostAt == 0 && s.capture.lostAt == 0
}

// completeSince reports whether nothing is missing of what came behind event n.
func (s *session) completeSince(n uint64) bool { return s.lostAt < n && s.capture.lostAt < n }

// handshaking reports whether initialize waits for its answer.
func (s *session) handshaking() bool {
	return s.initialize != nil && s.initializeResult == 0 && s.calls[openKey{capture.ToServer, idKey(s.initialize.id)}] == s.initialize
}

const maxSessionText = 64 << 10 // bytes of a text that is kept of a session

func cloneBounded(v []byte) []byte {
	if len(v) > maxSessionText {
		return nil
	}
	return bytes.Clone(v)
}

// sessionFor returns the session with a key, a new one if there is none. It makes room by forgetting the older half.
func (ck *Checker) sessionFor(key sessionKey) *session {
	s := ck.sessions[key]
	if s == nil {
		if len(ck.sessions) >= ck.limits.MaxSessions {
			ck.evictSessions()
		}
		ck.sessionCount++
		s = &session{
			key: key, number: ck.sessionCount, capture: ck.captureOf(key.capture), lostAt: ck.sessionsEvicted,
			ended: map[capture.Dir]uint64{}, calls: map[openKey]*call{},
			ids:      map[capture.Dir]*idSet{capture.ToServer: {}, capture.ToClient: {}},
			answered: map[capture.Dir]*recentIDs{capture.ToServer: {}, capture.ToClient: {}},
		}
		ck.sessions[key] = s
	}
	ck.ticks++
	s.tick = ck.ticks
	return s
}

// evictSessions forgets the older half of the sessions. What comes of them later counts as the middle of something.
func (ck *Checker) evictSessions() {
	oldest := ck.ticks
	for _, s := range ck.sessions {
		oldest = min(oldest, s.tick)
	}
	middle := oldest + (ck.ticks-oldest)/2
	for key, s := range ck.sessions {
		if s.tick > middle {
			continue
		}
		for _, c := range s.calls {
			ck.removeCall(s, c)
		}
		delete(ck.sessions, key)
		ck.sessionsEvicted = 1
	}
	for key, s := range ck.endpoints {
		if s.tick <= middle {
			delete(ck.endpoints, key)
		}
	}
}

// captureOf returns what is known of a capture.
func (ck *Checker) captureOf(id string) *captureState {
	r := ck.captures[id]
	if r == nil {
		if len(ck.captures) >= maxCaptures {
			clear(ck.captures)
		}
		r = &captureState{id: id}
		ck.captures[id] = r
	}
	return r
}

const maxCaptures = 256

// resolve finds the session of an event that has a message or belongs to an exchange. m may be nil.
func (ck *Checker) resolve(e *capture.Event, x *exchange, m *message) *session {
	if x == nil {
		s := ck.sessionFor(sessionKey{capture: e.Capture, number: e.Session})
		if s.transport == transportUnknown {
			s.transport, s.certain = transportStdio, true
			if t := s.capture.transport; t == "http" || t == "sse" {
				s.transport, s.certain = transportHTTP, false
			}
		}
		return s
	}
	if x.session == nil {
		x.session = ck.resolveHTTP(e, x, m)
	}
	ck.ticks++
	x.session.tick = ck.ticks
	return x.session
}

// resolveHTTP finds the session of an exchange. Modern requests have none, so that all of them share one, in which nothing is held against each other that two clients
// could have sent.
func (ck *Checker) resolveHTTP(e *capture.Event, x *exchange, m *message) *session {
	shared := sessionKey{capture: e.Capture, number: e.Session}
	if post := ck.endpoints[endpointKey{e.Capture, x.url}]; post != nil && x.method == "POST" {
		return post
	}
	sh := ck.sharedHTTPOf(shared)
	if id := x.requestHeader("Mcp-Session-Id"); id != "" {
		key := sessionKey{capture: e.Capture, id: id} // whatever the recorder has counted
		_, known := ck.sessions[key]
		s := ck.sessionFor(key)
		s.transport, s.certain = transportHTTP, true
		if !known {
			s.startedMidway = true
		}
		return s
	}
	if m != nil && m.is(kindRequest) && m.method == mcp.MethodInitialize && metaVersion(m) == nil {
		ck.sessionCount++
		key := shared
		key.id = "~" + string(sessionSuffix(ck.sessionCount))
		s := ck.sessionFor(key)
		s.transport = transportHTTP
		sh.session, sh.handshakes = s, sh.handshakes+1
		return s
	}
	if sh.session != nil && sh.handshakes == 1 && !modernRequest(x, m) {
		return sh.session // the only one there was a handshake for
	}
	s := ck.sessionFor(shared)
	s.transport, s.startedMidway = transportHTTP, true
	return s
}

// sessionSuffix names the sessions that have no id of their own.
func sessionSuffix(n uint64) []byte {
	var b []byte
	for ; n > 0; n >>= 6 {
		b = append(b, '0'+byte(n&63))
	}
	return b
}

// A share is what is known of HTTP without session ids.
type sharedHTTP struct {
	session    *session // of the latest handshake
	handshakes int
}

func (ck *Checker) sharedHTTPOf(key sessionKey) *sharedHTTP {
	sh := ck.sharedHTTP[key]
	if sh == nil {
		if len(ck.sharedHTTP) >= ck.limits.MaxSessions {
			clear(ck.sharedHTTP)
			ck.sessionsEvicted = 1
		}
		sh = new(sharedHTTP)
		ck.sharedHTTP[key] = sh
	}
	return sh
}

// A endpointKey is where the messages of a session over HTTP+SSE are posted.
type endpointKey struct{ capture, url string }

// addEndpoint takes the event of an HTTP+SSE stream that says where to post.
func (ck *Checker) addEndpoint(x *exchange, e *capture.Event) {
	base, err := url.Parse(x.url)
	if err != nil {
		return
	}
	target, err := base.Parse(string(e.Data))
	if err != nil || len(ck.endpoints) >= ck.limits.MaxSessions {
		return
	}
	ck.sessionCount++
	s := ck.sessionFor(sessionKey{e.Capture, e.Session, "~" + string(sessionSuffix(ck.sessionCount))})
	s.transport, s.certain = transportSSE, true
	x.session = s
	ck.endpoints[endpointKey{e.Capture, target.RequestURI()}] = s
}

// setSessionID takes the session id that a response to initialize brings.
func (ck *Checker) setSessionID(s *session, id string) {
	key := sessionKey{capture: s.key.capture, id: id}
	if id == "" || s.key.id == id || ck.sessions[key] != nil {
		return
	}
	delete(ck.sessions, s.key)
	if sh := ck.sharedHTTPOf(sessionKey{capture: s.key.capture, number: s.key.number}); sh.session == s {
		sh.session, sh.handshakes = nil, sh.handshakes-1
	}
	s.key, s.certain = key, true
	ck.sessions[key] = s
}

// metaVersion returns the protocolVersion in the metadata of a message.
func metaVersion(m *message) []byte { return valueAt(m.params, "_meta", mcp.MetaProtocolVersion) }

// modernRequest reports whether a message of the client is one of a modern revision, by what it says itself.
func modernRequest(x *exchange, m *message) bool {
	if m != nil && (metaVersion(m) != nil || m.method == mcp.MethodDiscover || m.method == mcp.MethodSubscriptionsListen) {
		return true
	}
	r, ok := mcp.ParseRevision(x.requestHeader("MCP-Protocol-Version"))
	return ok && era.Of(r).Modern
}

// seed is for the hashes of ids.
func newSeed() maphash.Seed { return maphash.MakeSeed() }

// A states holds what rules remember of a session, a call or an exchange: one value for each type, so that the rules of one role need not know those of another. The
// zero value is empty.
type states map[reflect.Type]any

// stateOf returns the value of type T in s, a new one if there is none yet. What is in it must be bounded.
func stateOf[T any](s *states) *T {
	t := reflect.TypeFor[T]()
	if v, ok := (*s)[t]; ok {
		return v.(*T)
	}
	if *s == nil {
		*s = states{}
	}
	v := new(T)
	(*s)[t] = v
	return v
}

// An idSet remembers ids. Most peers count, so integers take the memory of the holes between them. Above its limits it stops to remember, and says of new ids that it has
// not seen them.
type idSet struct {
	ranges []idRange // in order, with holes between them
	hashes map[uint64]struct{}
}

type idRange struct{ first, last int64 }

const (
	maxRanges = 1 << 10
	maxHashes = 1 << 15
)

// add adds an id in its canonical form, and reports whether it was there before.
func (s *idSet) add(id string, seed maphash.Seed) (before bool) {
	if n, ok := jsonwire.ParseInt([]byte(id)); ok {
		return s.addInt(n)
	}
	h := maphash.String(seed, id)
	if _, ok := s.hashes[h]; ok {
		return true
	}
	if len(s.hashes) < maxHashes {
		if s.hashes == nil {
			s.hashes = map[uint64]struct{}{}
		}
		s.hashes[h] = struct{}{}
	}
	return false
}

// has reports whether an id is there.
func (s *idSet) has(id string, seed maphash.Seed) bool {
	if s == nil {
		return false
	}
	if n, ok := jsonwire.ParseInt([]byte(id)); ok {
		i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].last >= n })
		return i < len(s.ranges) && s.ranges[i].first <= n
	}
	_, ok := s.hashes[maphash.String(seed, id)]
	return ok
}

// full reports whether the set may have forgotten ids.
func (s *idSet) full() bool {
	return s != nil && (len(s.ranges) >= maxRanges || len(s.hashes) >= maxHashes)
}

func (s *idSet) addInt(n int64) (before bool) {
	// The first span that does not end before n.
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].last >= n })
	if i < len(s.ranges) && s.ranges[i].first <= n {
		return true
	}
	left := i > 0 && s.ranges[i-1].last+1 == n
	right := i < len(s.ranges) && s.ranges[i].first-1 == n
	switch {
	case left && right:
		s.ranges[i-1].last = s.ranges[i].last
		s.ranges = slices.Delete(s.ranges, i, i+1)
	case left:
		s.ranges[i-1].last = n
	case right:
		s.ranges[i].first = n
	case len(s.ranges) < maxRanges:
		s.ranges = slices.Insert(s.ranges, i, idRange{n, n})
	}
	return false
}

// A recent remembers the latest ids with a number each, up to a limit.
type recentIDs struct {
	numbers map[string]uint64
	order   []string
}

const maxRecent = 1 << 10

func (r *recentIDs) add(id string, n uint64) {
	if r.numbers == nil {
		r.numbers = map[string]uint64{}
	}
	if _, ok := r.numbers[id]; !ok {
		if len(r.order) >= maxRecent {
			delete(r.numbers, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, id)
	}
	r.numbers[id] = n
}

func (r *recentIDs) find(id string) (n uint64, ok bool) {
	n, ok = r.numbers[id]
	return n, ok
}
