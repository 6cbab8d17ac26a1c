package trace

import (
	"time"

	"mcpwire/capture"
)

// The eras of the protocol (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
const (
	EraLegacy = "legacy"
	EraModern = "modern"
)

// A Capture is one that events came from.
type Capture struct {
	ID, Name, Transport, Tool, Redact string
	URL                               string // of the server, if that is known
	Started                           time.Time

	hasSides      bool
	newestProcess *Session // whose process was started last
	sessions      map[uint64]*Session
	byEvent       map[uint64]*Row
	tasks         map[taskKey]*Row
	awaitingInput map[roundKey][]*Row
}

// A Session is a connection or session in a capture.
type Session struct {
	Capture *Capture
	Number  uint64       // in the capture
	Side    capture.Side // of a bridge; "" in other captures

	Era        string // "legacy", "modern", or "" as long as that is not certain
	Offered    string // the revision that the client asked for first
	Negotiated string // the revision in force: what initialize answered, or what requests say that were answered
	// Supported are the revisions that the server says it knows, in its order.
	Supported []string
	Client    PeerInfo
	Server    PeerInfo

	Command  []string // of the process: its first arguments
	StartN   uint64   // of the event that says how it was started; 0 if there is none
	PID      int
	Exited   bool
	ExitCode int
	Signal   string

	Rows        uint64 // of its timeline
	First, Last time.Time

	lastT time.Duration // of the last event, since the capture began

	pending  map[requestKey]*Row
	inFlight map[*Row]struct{} // requests of the client that wait, but for streams and pings
	tokens   map[tokenKey]*Row
}

// A PeerInfo is what a side says of itself.
type PeerInfo struct {
	Name         string   `json:"name,omitempty"`
	Version      string   `json:"version,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"` // names, such as "tools" and "tools.listChanged"
}

const (
	maxURL      = 2048 // bytes
	maxCaptures = 1024
	maxSessions = 4096 // of a capture; what is beyond shares one
)

// requestKey is who sent a request with which id.
type requestKey struct {
	dir capture.Dir
	id  string
}

// tokenKey is a progress token of the requests in a direction.
type tokenKey struct {
	dir   capture.Dir
	token string
}

// taskKey is a task that the two sides of a bridge know.
type taskKey struct {
	side capture.Side
	id   string
}

// task returns the request that became a task; nil if it is not known.
func (s *Session) task(id string) *Row { return s.Capture.tasks[taskKey{s.Side, id}] }

// roundKey is what the next round of a request is recognised by.
type roundKey struct {
	side   capture.Side
	method string
	state  uint64 // of its requestState; 0 is none
	params uint64 // of its other params, if there is no state
}

func newCapture(h *capture.Head) *Capture {
	return &Capture{
		ID: h.ID, Name: clip(h.Name, maxName), Transport: clip(h.Transport, maxName), Tool: clip(h.Tool, maxName), Redact: clip(h.Redact, maxName), URL: clip(h.URL, maxURL), Started: h.At,
		sessions: map[uint64]*Session{}, byEvent: map[uint64]*Row{}, tasks: map[taskKey]*Row{}, awaitingInput: map[roundKey][]*Row{},
	}
}

func (c *Capture) session(number uint64) (s *Session, added bool) {
	s = c.sessions[number]
	if s == nil && len(c.sessions) >= maxSessions {
		number = ^uint64(0)
		s = c.sessions[number]
	}
	if s != nil {
		return s, false
	}
	s = &Session{Capture: c, Number: number, pending: map[requestKey]*Row{}, inFlight: map[*Row]struct{}{}, tokens: map[tokenKey]*Row{}}
	c.sessions[number] = s
	return s, true
}

// HasSides reports whether a bridge has recorded both of its sides.
func (c *Capture) HasSides() bool { return c.hasSides }

// Label names what the session is with: the server, by the name of the capture, and the side if a bridge has recorded it.
func (s *Session) Label() string {
	if s.Side == "" {
		return s.Capture.Name
	}
	return joinNonEmpty(" ", s.Capture.Name, string(s.Side))
}

// onlyInFlight returns the request of the client that waits, if there is exactly one.
func (s *Session) onlyInFlight() *Row {
	if len(s.inFlight) == 1 {
		for r := range s.inFlight {
			return r
		}
	}
	return nil
}
