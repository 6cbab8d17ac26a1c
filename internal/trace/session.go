package trace

import (
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
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

const (
	maxCapabilities = 64 // names that are kept
	maxSupported    = 16 // revisions that are kept
)

// setClient takes what a client says of itself in initialize.
func (s *Session) setClient(params []byte, m *Model) {
	if v := stringText(jsonwire.Lookup(params, "protocolVersion")); v != "" && s.Offered == "" {
		s.Offered = m.intern([]byte(v))
	}
	s.Client.setImplementation(jsonwire.Lookup(params, "clientInfo"), m)
	s.Client.Capabilities = m.capabilityNames(jsonwire.Lookup(params, "capabilities"))
}

// setServer takes what a server says of itself.
func (s *Session) setServer(method string, result []byte, m *Model) {
	if method == mcp.MethodInitialize {
		s.Era = EraLegacy
		s.Negotiated = m.intern([]byte(stringText(jsonwire.Lookup(result, "protocolVersion"))))
		s.Server.setImplementation(jsonwire.Lookup(result, "serverInfo"), m)
	}
	s.Server.Capabilities = m.capabilityNames(jsonwire.Lookup(result, "capabilities"))
	s.setSupported(jsonwire.Lookup(result, "supportedVersions"), m)
}

// setSupported takes the list of revisions that a server says it knows.
func (s *Session) setSupported(list []byte, m *Model) {
	if len(list) == 0 || list[0] != '[' {
		return
	}
	s.Supported = nil
	for el := jsonwire.ArrayElements(list); el.Next() && len(s.Supported) < maxSupported; {
		if v := stringText(el.Value()); v != "" {
			s.Supported = append(s.Supported, m.intern([]byte(v)))
		}
	}
}

// setImplementation takes the text of an Implementation.
func (p *PeerInfo) setImplementation(v []byte, m *Model) {
	if name := stringText(jsonwire.Lookup(v, "name")); name != "" {
		p.Name, p.Version = m.intern([]byte(name)), m.intern([]byte(stringText(jsonwire.Lookup(v, "version"))))
	}
}

// copyTo copies what is known to another.
func (p *PeerInfo) copyTo(other *PeerInfo) {
	if p.Name != "" {
		other.Name, other.Version = p.Name, p.Version
	}
	if p.Capabilities != nil {
		other.Capabilities = p.Capabilities
	}
}

// capabilityNames returns the names of capabilities, and of what they have inside.
func (m *Model) capabilityNames(v []byte) []string {
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	list := []string{}
	for p := jsonwire.ObjectMembers(v); p.Next() && len(list) < maxCapabilities; {
		name := m.intern(p.RawKey())
		list = append(list, name)
		inner := p.Value()
		if inner[0] != '{' {
			continue
		}
		for q := jsonwire.ObjectMembers(inner); q.Next() && len(list) < maxCapabilities; {
			if v := q.Value(); string(v) != "false" {
				list = append(list, m.intern([]byte(name+"."+string(q.RawKey()[:min(len(q.RawKey()), maxName)]))))
			}
		}
	}
	slices.Sort(list)
	return list
}

// A SessionInfo sums up a session: who talks to whom, in which revision, and what they can do. Texts in it are as the peers wrote them, if not in full: see [Escape].
type SessionInfo struct {
	Capture    string    `json:"capture"`
	Session    uint64    `json:"session"`        // its number in the capture
	Side       string    `json:"side,omitempty"` // of a bridge: "downstream" or "upstream"
	Name       string    `json:"name"`           // of the server, as the user knows it
	Transport  string    `json:"transport"`
	URL        string    `json:"url,omitempty"`  // of the server
	Tool       string    `json:"tool,omitempty"` // that recorded it
	Redact     string    `json:"redact,omitempty"`
	Era        string    `json:"era,omitempty"`
	Offered    string    `json:"offered,omitempty"`   // the revision that the client asked for first
	Negotiated string    `json:"answered,omitempty"`  // the one in force
	Supported  []string  `json:"supported,omitempty"` // that the server says it knows
	Client     PeerInfo  `json:"client"`
	Server     PeerInfo  `json:"server"`
	Command    []string  `json:"command,omitempty"` // of the process: its first arguments
	PID        int       `json:"pid,omitempty"`
	Exited     bool      `json:"exited,omitempty"`
	ExitCode   int       `json:"exitCode,omitempty"`
	Signal     string    `json:"signal,omitempty"`
	Successor  uint64    `json:"next,omitempty"` // the session with the process that was started in the place of the one that has exited; 0 if there is none
	Rows       uint64    `json:"rows"`
	First      time.Time `json:"first"`
	Last       time.Time `json:"last"`
}

// Card returns what there is to know about the session. It shares nothing with it that changes.
func (s *Session) Card() SessionInfo {
	c := s.Capture
	var next uint64
	if s.Exited && c.newestProcess != nil && c.newestProcess != s {
		next = c.newestProcess.Number
	}
	url := c.URL
	if s.Side == capture.Downstream {
		url = "" // that is the server's, and clients come to the bridge
	}
	return SessionInfo{
		Capture: c.ID, Session: s.Number, Side: string(s.Side), Name: c.Name, Transport: c.Transport, URL: url, Tool: c.Tool, Redact: c.Redact,
		Era: s.Era, Offered: s.Offered, Negotiated: s.Negotiated, Supported: slices.Clone(s.Supported), Client: s.Client.clone(), Server: s.Server.clone(),
		Command: slices.Clone(s.Command), PID: s.PID, Exited: s.Exited, ExitCode: s.ExitCode, Signal: s.Signal, Successor: next, Rows: s.Rows, First: s.First, Last: s.Last,
	}
}

func (p PeerInfo) clone() PeerInfo {
	p.Capabilities = slices.Clone(p.Capabilities)
	return p
}
