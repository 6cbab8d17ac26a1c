package taphttp

import (
	"crypto/sha256"
	"net/http"
	"sync"
)

// maxKnown is how many names of sessions are remembered in each of two generations.
const maxKnown = 1 << 15

// sessions gives the numbers by which a reader tells sessions and connections apart ([capture.Event.Session]).
//
// What belongs to a session of the protocol has the number of the session, whichever connection it comes by: a client answers on another connection what it
// was asked on a stream. What belongs to none has the number of its connection, since clients that know nothing of each other use the same ids. A
// session takes over the number of the request that opened it, which was recorded before the session had a name; the connection gets another then.
type sessions struct {
	mu       sync.Mutex
	last     uint64
	now, old map[[sha256.Size]byte]uint64 // by name
}

// A peer is a connection of a client.
type peer struct {
	number uint64 // 0 until there is need of one
	lent   bool   // to a request under way that may open a session
}

func (s *sessions) nextLocked() uint64 {
	s.last++
	return s.last
}

// key is of a fixed size, however long the peers' names are.
func key(space, name string) [sha256.Size]byte { return sha256.Sum256([]byte(space + "\x00" + name)) }

// The spaces of names.
const (
	bySession  = "session"
	byEndpoint = "endpoint"
	byAddress  = "address"
)

func (s *sessions) findLocked(k [sha256.Size]byte) (uint64, bool) {
	n, ok := s.now[k]
	if !ok {
		if n, ok = s.old[k]; ok {
			s.putLocked(k, n)
		}
	}
	return n, ok
}

func (s *sessions) putLocked(k [sha256.Size]byte, n uint64) {
	if s.now == nil || len(s.now) >= maxKnown {
		s.old, s.now = s.now, map[[sha256.Size]byte]uint64{}
	}
	s.now[k] = n
}

// bind gives a session the number under which its first request was recorded.
func (s *sessions) bind(space, name string, x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(key(space, name), x.session)
	if x.borrowed {
		x.borrowed = false
		x.peer.lent, x.peer.number = false, 0
	}
}

// enter finds the number of an exchange.
func (s *sessions) enter(x *exchange, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		k := key(bySession, id)
		n, ok := s.findLocked(k)
		if !ok {
			n = s.nextLocked()
			s.putLocked(k, n)
		}
		x.session = n
		return
	}
	if r.Method == http.MethodPost {
		if n, ok := s.findLocked(key(byEndpoint, r.URL.RequestURI())); ok {
			x.session = n
			return
		}
	}
	if x.peer == nil { // the listener is not ours
		k := key(byAddress, r.RemoteAddr)
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
	if opens && x.peer.lent {
		x.session = s.nextLocked()
		return
	}
	if x.peer.number == 0 {
		x.peer.number = s.nextLocked()
	}
	x.session = x.peer.number
	x.borrowed = opens
	x.peer.lent = x.peer.lent || opens
}

// leave is called when the exchange is over.
func (s *sessions) leave(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.borrowed {
		x.borrowed = false
		x.peer.lent = false
	}
}
