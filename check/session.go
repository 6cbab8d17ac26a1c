package check

import (
	"bytes"
	"hash/maphash"
	"net/url"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A transport identifies what moved the messages.
type transport uint8

const (
	transportUnknown transport = iota
	transportStdio             // a byte stream each way
	transportHTTP              // Streamable HTTP
	transportSSE               // HTTP+SSE of 2024-11-05
)

// A session is a stdio connection, a legacy HTTP session, or all HTTP traffic that cannot be
// separated further.
type session struct {
	key sessionKey
	// number is the position in the order of creation.
	number    uint64
	capture   *captureState
	transport transport
	lastUse
	lastN    uint64
	messages int

	// certain reports that the session has one client and one server, so that ids and states may be
	// compared.
	certain bool
	// startedMidway reports that the session began before the capture did.
	startedMidway bool
	// lostAt is the number of the latest event after which some are missing, or 0. See complete and
	// completeSince.
	lostAt uint64

	// The fields below describe the legacy handshake.
	// initialize is the request, or nil if none was seen.
	initialize *call
	// rev is the revision in the server's result, or RevisionNone if none came or it is unknown.
	rev mcp.Revision
	// initializeResult is the number of the event with the result of initialize, or 0.
	initializeResult uint64
	// initialized is the number of the event with notifications/initialized, or 0.
	initialized uint64
	// clientCaps is the JSON text of the client's capabilities in the handshake, or nil.
	clientCaps []byte
	// serverCaps are the server's capabilities from the handshake or from server/discover.
	serverCaps []byte
	// serverVersion is the version in the server's result.
	serverVersion string
	// modern reports that the server has shown that it speaks a modern revision. A modern request
	// of the client does not show that.
	modern bool

	// exited is the number of the event with the server's exit.
	exited uint64
	// restarted reports that the server was started again on the same pipe.
	restarted bool
	ended     map[capture.Dir]uint64
	// clientClosedT is the time at which the client closed its side.
	clientClosedT time.Duration
	tools         toolList
	// calls holds the newest pending request of each id; see pendingCall.
	calls map[openKey]*call
	ids   map[capture.Dir]*idSet
	// answered holds the answered requests, by the direction of the request.
	answered map[capture.Dir]*recentIDs
	// newestAnswered is the number of the event with the newest of the client's answered requests,
	// or 0.
	newestAnswered uint64
	state          states
}

type sessionKey struct {
	capture string
	// side keeps the two conversations of a bridge or a tap apart, which may have the same id.
	side capture.Side
	// number is the session number in the capture.
	number uint64
	// id is the Mcp-Session-Id as captured, or "".
	id string
}

// A captureState is what is known of a capture as a whole.
type captureState struct {
	transport capture.Transport
	lostAt    uint64
	// lastT is the time of the last event, in nanoseconds since the head.
	lastT int64
	lastN uint64
	state states
	lastUse
}

// complete reports whether, as far as is known, no event of the session is missing.
func (s *session) complete() bool {
	return s.certain && !s.startedMidway && s.lostAt == 0 && s.capture.lostAt == 0
}

// completeSince reports whether no event after event n is missing.
func (s *session) completeSince(n uint64) bool { return s.lostAt < n && s.capture.lostAt < n }

// handshaking reports whether initialize is pending.
func (s *session) handshaking() bool {
	return s.initialize != nil && s.initializeResult == 0 && s.pendingCall(capture.ToServer, s.initialize.id) == s.initialize
}

// maxSessionText limits a JSON text stored with a session, in bytes.
const maxSessionText = 64 << 10

func cloneBounded(v []byte) []byte {
	if len(v) > maxSessionText {
		return nil
	}
	return bytes.Clone(v)
}

// sessionFor returns the session with a key. It creates it if needed, and evicts older sessions
// when there are too many.
func (ck *Checker) sessionFor(key sessionKey) *session {
	return findOrMake(ck, ck.sessions, key, ck.limits.MaxSessions, ck.evictSessions, func() *session {
		ck.sessionCount++
		return &session{
			key: key, number: ck.sessionCount, capture: ck.captureOf(key.capture), lostAt: ck.sessionsEvicted,
			ended: map[capture.Dir]uint64{}, calls: map[openKey]*call{},
			ids:      map[capture.Dir]*idSet{capture.ToServer: {}, capture.ToClient: {}},
			answered: map[capture.Dir]*recentIDs{capture.ToServer: {}, capture.ToClient: {}},
		}
	})
}

// evictSessions evicts the older half of the sessions. Later events of these count as the middle of
// a session.
func (ck *Checker) evictSessions() {
	middle := evictOlder(ck.sessions, ck.ticks, func(s *session) {
		for c := range s.allCalls() {
			ck.removeCall(c)
		}
	})
	ck.sessionsEvicted = 1
	for key, s := range ck.endpoints {
		if s.tick <= middle {
			delete(ck.endpoints, key)
		}
	}
}

// A lastUse is when a value was last used, in uses of all values of the Checker.
type lastUse struct{ tick uint64 }

func (u *lastUse) used() *uint64 { return &u.tick }

// findOrMake returns the value of m with a key, and notes that it is used. It makes the value if
// there is none, after evict if m has limit values.
func findOrMake[K comparable, V interface{ used() *uint64 }](ck *Checker, m map[K]V, key K, limit int, evict func(), newValue func() V) V {
	v, ok := m[key]
	if !ok {
		if len(m) >= limit {
			evict()
		}
		v = newValue()
		m[key] = v
	}
	ck.ticks++
	*v.used() = ck.ticks
	return v
}

// evictOlder removes the values of m that were last used in the older half of the time since the
// oldest of them was used, and calls removed for each unless it is nil. It returns the last tick of
// that half.
func evictOlder[K comparable, V interface{ used() *uint64 }](m map[K]V, now uint64, removed func(V)) (middle uint64) {
	oldest := now
	for _, v := range m {
		oldest = min(oldest, *v.used())
	}
	middle = oldest + (now-oldest)/2
	for key, v := range m {
		if *v.used() <= middle {
			delete(m, key)
			if removed != nil {
				removed(v)
			}
		}
	}
	return middle
}

// captureOf returns the state of a capture. It evicts old ones when there are too many: if their
// events go on, some count as missing.
func (ck *Checker) captureOf(id string) *captureState {
	evict := func() {
		evictOlder(ck.captures, ck.ticks, nil)
		ck.capturesEvicted = 1
	}
	return findOrMake(ck, ck.captures, id, maxCaptures, evict, func() *captureState { return &captureState{lostAt: ck.capturesEvicted} })
}

const maxCaptures = 256

// resolve returns the session of an event. x is nil if the event belongs to no exchange, and m is
// nil if it has no message.
func (ck *Checker) resolve(e *capture.Event, x *exchange, m *message) *session {
	if x == nil {
		key := sessionKey{capture: e.Capture, side: e.Side, number: e.Session}
		s := ck.sessionFor(key)
		if s.transport == transportUnknown {
			s.transport, s.certain = transportStdio, true
			// A bridge records both transports. It may record a message to a client after the end
			// of the exchange that it belongs to.
			if t := s.capture.transport; t == capture.TransportHTTP || t == capture.TransportSSE || ck.sharedHTTP[key] != nil {
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

// resolveHTTP returns the session of an exchange. All modern requests share one session, because
// they have none; there, nothing is compared that two clients could have sent.
func (ck *Checker) resolveHTTP(e *capture.Event, x *exchange, m *message) *session {
	shared := sessionKey{capture: e.Capture, side: e.Side, number: e.Session}
	if post := ck.endpoints[endpointKey{e.Capture, e.Side, x.url}]; post != nil && x.method == "POST" {
		return post
	}
	sh := ck.sharedHTTPOf(shared)
	if id := x.requestHeader("Mcp-Session-Id"); id != "" {
		// The recorder's session number is ignored.
		key := sessionKey{capture: e.Capture, side: e.Side, id: id}
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
		key.id = unnamed(ck.sessionCount)
		s := ck.sessionFor(key)
		s.transport = transportHTTP
		sh.session, sh.handshakes = s, sh.handshakes+1
		return s
	}
	if sh.session != nil && sh.handshakes == 1 && !modernRequest(x, m) {
		// There was only this handshake.
		return sh.session
	}
	s := ck.sessionFor(shared)
	s.transport, s.startedMidway = transportHTTP, true
	return s
}

// unnamed returns the id in the key of a session that has none.
func unnamed(n uint64) string { return "~" + strconv.FormatUint(n, 36) }

// A sharedHTTP is what is known of HTTP traffic without session ids.
type sharedHTTP struct {
	// session is the session of the latest handshake.
	session    *session
	handshakes int
	lastUse
}

// sharedHTTPOf returns what is known of HTTP traffic without session ids. It evicts old traffic
// when there is too much.
func (ck *Checker) sharedHTTPOf(key sessionKey) *sharedHTTP {
	evict := func() {
		evictOlder(ck.sharedHTTP, ck.ticks, nil)
		ck.sessionsEvicted = 1
	}
	return findOrMake(ck, ck.sharedHTTP, key, ck.limits.MaxSessions, evict, func() *sharedHTTP { return new(sharedHTTP) })
}

// An endpointKey identifies the URL that an HTTP+SSE session posts to.
type endpointKey struct {
	capture string
	side    capture.Side
	url     string
}

// addEndpoint handles the endpoint event of an HTTP+SSE stream.
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
	s := ck.sessionFor(sessionKey{e.Capture, e.Side, e.Session, unnamed(ck.sessionCount)})
	s.transport, s.certain = transportSSE, true
	x.session = s
	ck.endpoints[endpointKey{e.Capture, e.Side, target.RequestURI()}] = s
}

// setSessionID assigns a session the id from the response to initialize.
func (ck *Checker) setSessionID(s *session, id string) {
	key := sessionKey{capture: s.key.capture, side: s.key.side, id: id}
	if id == "" || s.key.id == id || ck.sessions[key] != nil {
		return
	}
	delete(ck.sessions, s.key)
	if sh := ck.sharedHTTPOf(sessionKey{capture: s.key.capture, side: s.key.side, number: s.key.number}); sh.session == s {
		sh.session, sh.handshakes = nil, sh.handshakes-1
	}
	s.key, s.certain = key, true
	ck.sessions[key] = s
}

// metaVersion returns the protocolVersion in the metadata of a message.
func metaVersion(m *message) []byte {
	return jsonwire.Lookup(m.params, "_meta", mcp.MetaProtocolVersion)
}

// modernRequest reports whether a client's message is marked as modern.
func modernRequest(x *exchange, m *message) bool {
	if m != nil && (metaVersion(m) != nil || m.method == mcp.MethodDiscover || m.method == mcp.MethodSubscriptionsListen) {
		return true
	}
	r, ok := mcp.ParseRevision(x.requestHeader("MCP-Protocol-Version"))
	return ok && era.Of(r).Modern
}

// states holds what rules remember of a session, a call, an exchange or a capture: one value of
// each type, so that groups of rules stay independent. The zero value is empty.
type states map[reflect.Type]any

// stateOf returns the value of type T in s, and creates it if needed. Its contents must be bounded.
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

// An idSet is a set of ids. It stores integers as ranges, because most peers count. When it is full
// it stores no more and reports new ids as unseen.
type idSet struct {
	// ranges are ascending and not adjacent.
	ranges []idRange
	hashes map[uint64]struct{}
}

type idRange struct{ first, last int64 }

const (
	maxRanges = 1 << 10
	maxHashes = 1 << 15
)

// add adds an id in canonical form.
func (s *idSet) add(id string, seed maphash.Seed) {
	if n, ok := jsonwire.ParseInt([]byte(id)); ok {
		s.addInt(n)
		return
	}
	if len(s.hashes) < maxHashes {
		sparse.Set(&s.hashes, maphash.String(seed, id), struct{}{})
	}
}

// has reports whether the set contains an id.
func (s *idSet) has(id string, seed maphash.Seed) bool {
	if s == nil {
		return false
	}
	if n, ok := jsonwire.ParseInt([]byte(id)); ok {
		_, found := s.find(n)
		return found
	}
	_, ok := s.hashes[maphash.String(seed, id)]
	return ok
}

// full reports whether ids may have been dropped.
func (s *idSet) full() bool {
	return s != nil && (len(s.ranges) >= maxRanges || len(s.hashes) >= maxHashes)
}

// find returns the index of the first range that does not end before n, and whether n is in it.
func (s *idSet) find(n int64) (i int, found bool) {
	i = sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].last >= n })
	return i, i < len(s.ranges) && s.ranges[i].first <= n
}

func (s *idSet) addInt(n int64) {
	i, found := s.find(n)
	if found {
		return
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
}

// recentIDs maps the latest ids to numbers, up to maxRecent.
type recentIDs struct {
	numbers map[string]uint64
	order   []string
}

const maxRecent = 1 << 10

func (r *recentIDs) add(id string, n uint64) {
	if _, ok := r.numbers[id]; !ok {
		if len(r.order) >= maxRecent {
			delete(r.numbers, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, id)
	}
	sparse.Set(&r.numbers, id, n)
}

// setBounded sets m[key]. It first makes m empty if it has limit elements.
func setBounded[K comparable, V any](m *map[K]V, limit int, key K, value V) {
	if len(*m) >= limit {
		*m = nil
	}
	sparse.Set(m, key, value)
}
