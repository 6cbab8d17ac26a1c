package taphttp

import (
	"crypto/sha256"
	"net/http"
	"sync"
)

// maxSessionKeys limits the session keys in each of two generations.
const maxSessionKeys = 1 << 15

// sessions assigns the numbers that distinguish sessions and connections ([capture.Event.Session]).
//
// Traffic of a protocol session has the number of the session on every connection, since a client
// may answer on another connection than the stream with the input request. Other traffic has the
// number of its connection, since unrelated clients use the same ids. A session takes over the
// number of the request that opened it, which was recorded before the session had an id; the
// connection then gets another number.
type sessions struct {
	mu   sync.Mutex
	last uint64
	// recent and previous map keys to numbers.
	recent, previous map[[sha256.Size]byte]uint64
}

// A connNumber is the number of a client's connection.
type connNumber struct {
	// number is 0 until it is needed.
	number uint64
	// reserved reports that a pending request may open a session with this number.
	reserved bool
}

// An exchangeSession is the session of an exchange. The sessions of the handler own its fields.
type exchangeSession struct {
	// conn is nil if another listener accepted the connection.
	conn   *connNumber
	number uint64
	// overSSE reports a message of a client of HTTP+SSE.
	overSSE bool
	// provisional reports that the number is the connection's and may become a session's.
	provisional bool
}

func (s *sessions) nextLocked() uint64 {
	s.last++
	return s.last
}

// sessionKey returns a key of fixed size for a name of any length.
func sessionKey(space, name string) [sha256.Size]byte {
	return sha256.Sum256([]byte(space + "\x00" + name))
}

// The spaces of session keys.
const (
	sessionSpace  = "session"
	endpointSpace = "endpoint"
	addressSpace  = "address"
)

func (s *sessions) findLocked(k [sha256.Size]byte) (uint64, bool) {
	n, ok := s.recent[k]
	if !ok {
		if n, ok = s.previous[k]; ok {
			s.putLocked(k, n)
		}
	}
	return n, ok
}

func (s *sessions) putLocked(k [sha256.Size]byte, n uint64) {
	if s.recent == nil || len(s.recent) >= maxSessionKeys {
		s.previous, s.recent = s.recent, map[[sha256.Size]byte]uint64{}
	}
	s.recent[k] = n
}

// bind assigns the number of an exchange to the session that it opened.
func (s *sessions) bind(space, name string, x *exchangeSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(sessionKey(space, name), x.number)
	if x.provisional {
		x.provisional = false
		x.conn.reserved, x.conn.number = false, 0
	}
}

// assign sets the session number of an exchange.
func (s *sessions) assign(x *exchangeSession, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		k := sessionKey(sessionSpace, id)
		n, ok := s.findLocked(k)
		if !ok {
			n = s.nextLocked()
			s.putLocked(k, n)
		}
		x.number = n
		return
	}
	if r.Method == http.MethodPost {
		if n, ok := s.findLocked(sessionKey(endpointSpace, r.URL.RequestURI())); ok {
			x.number, x.overSSE = n, true
			return
		}
	}
	if x.conn == nil { // not a connection of our listener
		k := sessionKey(addressSpace, r.RemoteAddr)
		n, ok := s.findLocked(k)
		if !ok {
			n = s.nextLocked()
			s.putLocked(k, n)
		}
		x.number = n
		return
	}
	// Only requests without this header open sessions. Two concurrent ones, which HTTP/2 allows,
	// must not share a number.
	opens := r.Header.Get("Mcp-Protocol-Version") == ""
	if opens && x.conn.reserved {
		x.number = s.nextLocked()
		return
	}
	if x.conn.number == 0 {
		x.conn.number = s.nextLocked()
	}
	x.number = x.conn.number
	x.provisional = opens
	x.conn.reserved = x.conn.reserved || opens
}

// unassign releases the reserved number of an exchange that has ended.
func (s *sessions) unassign(x *exchangeSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.provisional {
		x.provisional = false
		x.conn.reserved = false
	}
}
