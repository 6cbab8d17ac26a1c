package check

import (
	"bytes"
	"hash/maphash"
	"net/url"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// A carrier is what moved the bytes.
type carrier uint8

const (
	carrierUnknown carrier = iota
	carrierStdio           // a stream of bytes each way
	carrierHTTP            // Streamable HTTP
	carrierSSE             // HTTP+SSE of 2024-11-05
)

// A session is a connection over stdio, a session of legacy HTTP, or what of HTTP cannot be told apart any further.
type session struct {
	key      sessionKey
	number   uint64 // given by the checker, for the pairer
	capture  *recording
	carrier  carrier
	tick     uint64 // when it was last used
	lastN    uint64
	messages int

	// certain tells that all in the session is of one client and one server: ids and states may be held against each other.
	certain bool
	// midway tells that the session began before the capture did.
	midway bool
	// lostAt is the number of the latest event behind which some are missing; 0 if all are there. What needs the whole history, see whole.
	lostAt uint64

	// The legacy handshake.
	initialize    *call        // the request, once it was seen
	initializes   int          // how many
	rev           mcp.Revision // that the server answered; RevisionNone before, and if it is none that is known
	shaken        uint64       // number of the event with a result of initialize, 0 before
	initialized   uint64       // number of the event with notifications/initialized, 0 before
	clientCaps    []byte       // JSON text of the capabilities in the handshake; nil before
	serverCaps    []byte       // from the handshake, or from server/discover
	serverVersion string       // that the server answered
	// modern tells that the server has shown that it speaks a modern revision. That a client asked like one shows nothing of the server.
	modern bool

	exited    uint64 // number of the event with the exit of the server
	restarted bool   // the server was started again behind the same pipe
	ended     map[capture.Dir]uint64
	closedT   time.Duration // when the client ended its side
	tools     toolbox
	open      map[openKey]*call // that wait
	ids       map[capture.Dir]*idSet
	answered  map[capture.Dir]*recent // requests that were answered, by the side that asked
	state     states
}

type sessionKey struct {
	capture string
	number  uint64 // the capture's
	id      string // the protocol's, as it stands in the capture; "" if there is none
}

// A recording is what is known of a capture as a whole.
type recording struct {
	id        string
	transport string
	lostAt    uint64
	tail      bool
	lastT     int64 // nanoseconds since its head
	lastN     uint64
	state     states
}

// whole reports whether nothing of the session is missing, as far as is known.
func (s *session) whole() bool {
	return s.certain && !s.midway && s.lostAt == 0 && s.capture.lostAt == 0
}

// wholeSince reports whether nothing is missing of what came behind event n.
func (s *session) wholeSince(n uint64) bool { return s.lostAt < n && s.capture.lostAt < n }

// shaking reports whether initialize waits for its answer.
func (s *session) shaking() bool {
	return s.initialize != nil && s.shaken == 0 && s.open[openKey{capture.ToServer, canonical(s.initialize.id)}] == s.initialize
}

const maxSessionText = 64 << 10 // bytes of a text that is kept of a session

func keep(v []byte) []byte {
	if len(v) > maxSessionText {
		return nil
	}
	return bytes.Clone(v)
}

// sessionFor returns the session with a key, a new one if there is none. It makes room by forgetting the older half.
func (k *Checker) sessionFor(key sessionKey) *session {
	s := k.sessions[key]
	if s == nil {
		if len(k.sessions) >= k.limits.MaxSessions {
			k.dropSessions()
		}
		k.numbered++
		s = &session{
			key: key, number: k.numbered, capture: k.recordingOf(key.capture), lostAt: k.forgotten,
			ended: map[capture.Dir]uint64{}, open: map[openKey]*call{},
			ids:      map[capture.Dir]*idSet{capture.ToServer: {}, capture.ToClient: {}},
			answered: map[capture.Dir]*recent{capture.ToServer: {}, capture.ToClient: {}},
		}
		k.sessions[key] = s
	}
	k.ticks++
	s.tick = k.ticks
	return s
}

// dropSessions forgets the older half of the sessions. What comes of them later counts as the middle of something.
func (k *Checker) dropSessions() {
	oldest := k.ticks
	for _, s := range k.sessions {
		oldest = min(oldest, s.tick)
	}
	middle := oldest + (k.ticks-oldest)/2
	for key, s := range k.sessions {
		if s.tick > middle {
			continue
		}
		for _, c := range s.open {
			k.shut(s, c)
		}
		delete(k.sessions, key)
		k.forgotten = 1
	}
	for key, s := range k.posts {
		if s.tick <= middle {
			delete(k.posts, key)
		}
	}
}

// recordingOf returns what is known of a capture.
func (k *Checker) recordingOf(id string) *recording {
	r := k.recordings[id]
	if r == nil {
		if len(k.recordings) >= maxRecordings {
			clear(k.recordings)
		}
		r = &recording{id: id}
		k.recordings[id] = r
	}
	return r
}

const maxRecordings = 256

// resolve finds the session of an event that has a message or belongs to an exchange. m may be nil.
func (k *Checker) resolve(e *capture.Event, x *exchange, m *message) *session {
	if x == nil {
		s := k.sessionFor(sessionKey{capture: e.Capture, number: e.Session})
		if s.carrier == carrierUnknown {
			s.carrier, s.certain = carrierStdio, true
			if t := s.capture.transport; t == "http" || t == "sse" {
				s.carrier, s.certain = carrierHTTP, false
			}
		}
		return s
	}
	if x.sess == nil {
		x.sess = k.resolveHTTP(e, x, m)
	}
	k.ticks++
	x.sess.tick = k.ticks
	return x.sess
}

// resolveHTTP finds the session of an exchange. Modern requests have none, so that all of them share one, in which nothing is held against each other that two clients
// could have sent.
func (k *Checker) resolveHTTP(e *capture.Event, x *exchange, m *message) *session {
	shared := sessionKey{capture: e.Capture, number: e.Session}
	if post := k.posts[postKey{e.Capture, x.url}]; post != nil && x.method == "POST" {
		return post
	}
	sh := k.shareOf(shared)
	if id := x.header("Mcp-Session-Id"); id != "" {
		key := sessionKey{capture: e.Capture, id: id} // whatever the recorder has counted
		_, known := k.sessions[key]
		s := k.sessionFor(key)
		s.carrier, s.certain = carrierHTTP, true
		if !known {
			s.midway = true
		}
		return s
	}
	if m != nil && m.is(kindRequest) && m.method == mcp.MethodInitialize && metaVersion(m) == nil {
		k.numbered++
		key := shared
		key.id = "~" + string(count(k.numbered))
		s := k.sessionFor(key)
		s.carrier = carrierHTTP
		sh.sess, sh.handshakes = s, sh.handshakes+1
		return s
	}
	if sh.sess != nil && sh.handshakes == 1 && !modernRequest(x, m) {
		return sh.sess // the only one there was a handshake for
	}
	s := k.sessionFor(shared)
	s.carrier, s.midway = carrierHTTP, true
	return s
}

// count names the sessions that have no id of their own.
func count(n uint64) []byte {
	var b []byte
	for ; n > 0; n >>= 6 {
		b = append(b, '0'+byte(n&63))
	}
	return b
}

// A share is what is known of HTTP without session ids.
type share struct {
	sess       *session // of the latest handshake
	handshakes int
}

func (k *Checker) shareOf(key sessionKey) *share {
	sh := k.shared[key]
	if sh == nil {
		if len(k.shared) >= k.limits.MaxSessions {
			clear(k.shared)
			k.forgotten = 1
		}
		sh = new(share)
		k.shared[key] = sh
	}
	return sh
}

// A postKey is where the messages of a session over HTTP+SSE are posted.
type postKey struct{ capture, url string }

// endpoint takes the event of an HTTP+SSE stream that says where to post.
func (k *Checker) endpoint(x *exchange, e *capture.Event) {
	base, err := url.Parse(x.url)
	if err != nil {
		return
	}
	target, err := base.Parse(string(e.Data))
	if err != nil || len(k.posts) >= k.limits.MaxSessions {
		return
	}
	k.numbered++
	s := k.sessionFor(sessionKey{e.Capture, e.Session, "~" + string(count(k.numbered))})
	s.carrier, s.certain = carrierSSE, true
	x.sess = s
	k.posts[postKey{e.Capture, target.RequestURI()}] = s
}

// named takes the session id that a response to initialize brings.
func (k *Checker) named(s *session, id string) {
	key := sessionKey{capture: s.key.capture, id: id}
	if id == "" || s.key.id == id || k.sessions[key] != nil {
		return
	}
	delete(k.sessions, s.key)
	if sh := k.shareOf(sessionKey{capture: s.key.capture, number: s.key.number}); sh.sess == s {
		sh.sess, sh.handshakes = nil, sh.handshakes-1
	}
	s.key, s.certain = key, true
	k.sessions[key] = s
}

// metaVersion returns the protocolVersion in the metadata of a message.
func metaVersion(m *message) []byte { return at(m.params, "_meta", mcp.MetaProtocolVersion) }

// modernRequest reports whether a message of the client is one of a modern revision, by what it says itself.
func modernRequest(x *exchange, m *message) bool {
	if m != nil && (metaVersion(m) != nil || m.method == mcp.MethodDiscover || m.method == mcp.MethodSubscriptionsListen) {
		return true
	}
	r, ok := mcp.ParseRevision(x.header("MCP-Protocol-Version"))
	return ok && era.Of(r).Modern
}

// seed is for the hashes of ids.
func newSeed() maphash.Seed { return maphash.MakeSeed() }
