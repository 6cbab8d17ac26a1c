package taphttp

import (
	"crypto/sha256"
	"net/http"
	"sync"
)

// maxSessionKeys is how many names of sessions are remembered in each of two generations.
const maxSessionKeys = 1 << 15

// sessions gives the numbers by which a reader tells sessions and connections apart ([capture.Event.Session]).
//
// What belongs to a session of the protocol has the number of the session, whichever connection it comes by: a client answers on another connection what it
// was asked on a stream. What belongs to none has the number of its connection, since clients that know nothing of each other use the same ids. A
// session takes over the number of the request that opened it, which was recorded before the session had a name; the connection gets another then.
type sessions struct {
	mu               sync.Mutex
	last             uint64
	recent, previous map[[sha256.Size]byte]uint64 // by name
}

// A peer is a connection of a client.
type connNumber struct {
	number   uint64 // 0 until there is need of one
	reserved bool   // to a request under way that may open a session
}

func (s *sessions) nextLocked() uint64 {
	s.last++
	return s.last
}

// sessionKey is of a fixed size, however long the peers' names are.
func sessionKey(space, name string) [sha256.Size]byte {
	return sha256.Sum256([]byte(space + "\x00" + name))
}

// The spaces of names.
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

// bind gives a session the number under which its first request was recorded.
func (s *sessions) bind(space, name string, x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(sessionKey(space, name), x.session)
	if x.provisional {
		x.provisional = false
		x.connNumber.reserved, x.connNumber.number = false, 0
	}
}

// assign finds the number of an exchange.
func (s *sessions) assign(x *exchange, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		k := sessionKey(sessionSpace, id)
		n, ok := s.findLocked(k)
		if !ok {
			n = s.nextLocked()
			s.putLocked(k, n)
		}
		x.session = n
		return
	}
	if r.Method == http.MethodPost {
		if n, ok := s.findLocked(sessionKey(endpointSpace, r.URL.RequestURI())); ok {
			x.session = n
			return
		}
	}
	if x.connNumber == nil { // the listener is not ours
		k := sessionKey(addressSpace, r.RemoteAddr)
		n, ok := s.findLocked(k)
		if !ok {
			n = s.nextLocked()
			s.putLocked(k, n)
		}
		x.session = n
		return
	}
	// Only requests without this header open sessions. Two of them at once, which takes HTTP/2, must not end up in one.
	opens := r.Header.Get("Mcp-Protocol-Version") == ""
	if opens && x.connNumber.reserved {
		x.session = s.nextLocked()
		return
	}
	if x.connNumber.number == 0 {
		x.connNumber.number = s.nextLocked()
	}
	x.session = x.connNumber.number
	x.provisional = opens
	x.connNumber.reserved = x.connNumber.reserved || opens
}

// unassign is called when the exchange is over.
func (s *sessions) unassign(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.provisional {
		x.provisional = false
		x.connNumber.reserved = false
	}
}
