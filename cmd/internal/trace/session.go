package trace

import (
	"cmp"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/cause"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// The eras of the protocol
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
const (
	EraLegacy = "legacy"
	EraModern = "modern"
)

// A Capture is a source of events.
type Capture struct {
	ID, Name, Transport, Tool string
	// Redact is the redaction of the capture.
	Redact capture.RedactionMode
	// URL is the server's URL, if known.
	URL     string
	Started time.Time
	// Index numbers the captures of a model in the order of their first events, from 0.
	Index int
	// ServerIndex numbers the names of a model's servers in the same way, see
	// [Session.ServerIndex].
	ServerIndex int

	model    *Model
	hasSides bool
	// lastPlace is the Place of the capture's last row in the timeline.
	lastPlace int64
	// firstUpstream is the name of the first server on the upstream side. hasUpstreams reports that
	// there are several, as behind a gateway.
	firstUpstream string
	hasUpstreams  bool
	// newestProcess is the session whose process started last.
	newestProcess *Session
	sessions      map[uint64]*Session
	// events has the row of each event.
	events        eventIndex
	tasks         map[taskKey]*Row
	awaitingInput map[roundKey][]*Row
}

// A captureTable has the newest captures of a [Model].
type captureTable struct {
	byID map[string]*Capture
	// order has the captures in the order of their first events.
	order []*Capture
	// count counts all captures, including those that byID no longer has.
	count int
	// servers has the indexes of servers by name.
	servers map[string]int
}

// of returns the capture that an event belongs to, and adds it if it is new.
func (t *captureTable) of(h *capture.Head, id string, m *Model) *Capture {
	if h != nil && id == "" {
		id = h.ID
	}
	if c := t.byID[id]; c != nil {
		return c
	}
	if h == nil || h.ID != id {
		h = &capture.Head{ID: id}
	}
	c := newCapture(h, m)
	c.Index, c.ServerIndex = t.count, t.serverIndex(c.Name)
	t.count++
	if len(t.order) >= maxCaptures {
		delete(t.byID, t.order[0].ID)
		t.order = slices.Delete(t.order, 0, 1)
	}
	t.byID[id] = c
	t.order = append(t.order, c)
	return c
}

// serverIndex returns the index of a name, which is new or known. Above maxCaptures names, all new
// ones share one.
func (t *captureTable) serverIndex(name string) int {
	i, known := t.servers[name]
	if !known && len(t.servers) < maxCaptures {
		i = len(t.servers)
		t.servers[name] = i
	}
	return i
}

// find returns the capture with an id, or nil. An empty id means the only capture.
func (t *captureTable) find(id string) *Capture {
	if id == "" && len(t.order) == 1 {
		return t.order[0]
	}
	return t.byID[id]
}

// An eventIndex maps event numbers to rows. Nearly all numbers of a capture have a row and are used
// in order, so that it holds them in blocks: a map with an entry for each takes two to four times
// the memory. The zero value is empty.
type eventIndex struct {
	blocks map[uint64]*eventBlock
}

// blockEvents is the number of events in a block. A block takes 144 bytes, however many of its
// events have rows. The number of blocks is limited, because the events of all rows are.
const blockEvents = 16

// An eventBlock has the rows of blockEvents consecutive numbers.
type eventBlock struct {
	rows [blockEvents]*Row
	// used counts the rows that are not nil.
	used int
}

// row returns the row of event n, or nil.
func (x *eventIndex) row(n uint64) *Row {
	if b := x.blocks[n/blockEvents]; b != nil {
		return b.rows[n%blockEvents]
	}
	return nil
}

// add sets the row of event n, unless it has one.
func (x *eventIndex) add(n uint64, r *Row) {
	b := x.blocks[n/blockEvents]
	if b == nil {
		if x.blocks == nil {
			x.blocks = map[uint64]*eventBlock{}
		}
		b = new(eventBlock)
		x.blocks[n/blockEvents] = b
	}
	if p := &b.rows[n%blockEvents]; *p == nil {
		*p = r
		b.used++
	}
}

// remove removes event n if its row is r.
func (x *eventIndex) remove(n uint64, r *Row) {
	b := x.blocks[n/blockEvents]
	if b == nil || b.rows[n%blockEvents] != r {
		return
	}
	b.rows[n%blockEvents] = nil
	if b.used--; b.used == 0 {
		delete(x.blocks, n/blockEvents)
	}
}

// A Session is a connection or session in a capture.
type Session struct {
	Capture *Capture
	// Number identifies the session in its capture.
	Number uint64
	// Side is the side of a bridge. It is empty in other captures.
	Side capture.Side

	SessionState

	// StartN is the number of the event that started the process. Zero means none.
	StartN uint64

	// lastT is the time of the last event, since the capture began.
	lastT time.Duration
	// process is what explains the end of the process.
	process processLog

	// serverName and serverIndex identify one of several servers. An empty name means that the
	// server has the name of the capture.
	serverName  string
	serverIndex int

	pending map[requestKey]*Row
	// inFlight are the client's pending requests, without streams and pings.
	inFlight map[*Row]struct{}
	tokens   map[tokenKey]*Row
}

// A SessionState is what the events of a session have told about it.
type SessionState struct {
	// Era is EraLegacy, EraModern, or "" while it is unknown.
	Era string `json:"era,omitempty"`
	// Offered is the revision that the client requested first.
	Offered string `json:"offered,omitempty"`
	// Negotiated is the revision in force: the one in the initialize result, or the one of an
	// answered modern request.
	Negotiated string `json:"answered,omitempty"`
	// Supported are the revisions that the server advertises, in its order.
	Supported []string `json:"supported,omitempty"`
	Client    PeerInfo `json:"client"`
	Server    PeerInfo `json:"server"`

	// Command has the first arguments of the server process.
	Command  []string `json:"command,omitempty"`
	PID      int      `json:"pid,omitempty"`
	Exited   bool     `json:"exited,omitempty"`
	ExitCode int      `json:"exitCode,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	// Cause is why the process ended, and Fix is what to do. Both are "" if that is unknown, or if
	// nothing is wrong.
	Cause string `json:"cause,omitempty"`
	Fix   string `json:"fix,omitempty"`

	// Rows counts the rows of the session, at all levels.
	Rows  uint64    `json:"rows"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// PeerInfo holds what a client or server announces about itself.
type PeerInfo struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// Capabilities are names such as "tools" and "tools.listChanged".
	Capabilities []string `json:"capabilities,omitempty"`
}

const (
	maxURL      = 2048 // bytes
	maxCaptures = 1024
	maxSessions = 4096 // per capture; further ones share one
)

// A processLog is what is kept of a process until it ends.
type processLog struct {
	// env has the names of its variables.
	env []string
	// lines are the last lines that it wrote outside messages.
	lines []loggedLine
	// closed reports that the client has closed the standard input.
	closed bool
}

// A loggedLine is a line of text.
type loggedLine struct {
	t      time.Duration
	text   string
	stdout bool
}

// The limits of a processLog.
const (
	maxLogLines  = 40
	maxLogLine   = 500 // bytes
	maxLogEnv    = 256
	maxLastWords = 10 * time.Second // before the end, for lines that explain it
)

func (p *processLog) add(e *capture.Event, stdout bool) {
	if len(p.lines) == maxLogLines {
		p.lines = slices.Delete(p.lines, 0, 1)
	}
	p.lines = append(p.lines, loggedLine{e.T, string(e.Data[:min(len(e.Data), maxLogLine)]), stdout})
}

// explainExit finds out why the process ended, unless that was to be expected.
func (s *Session) explainExit(t time.Duration, exit *capture.Exit) {
	log := s.process
	s.process = processLog{}
	p := cause.Process{Set: log.env, Command: s.Command, Exited: true, Code: exit.Code, Signal: exit.Signal}
	began := s.Negotiated != ""
	switch {
	case !began && log.closed && len(s.pending) > 0: // the client has given up
		p.State, p.Exited = cause.Silent, false
	case log.closed, began && (exit.Code == 0 || slices.Contains([]string{"SIGTERM", "SIGINT", "SIGHUP"}, exit.Signal)):
		return
	}
	for _, line := range log.lines {
		switch {
		case began && t-line.t > maxLastWords:
		case line.stdout:
			p.Stdout = append(p.Stdout, line.text)
		default:
			p.Stderr = append(p.Stderr, line.text)
		}
	}
	if c := p.Find(); c.Known {
		s.Cause, s.Fix = clip.String(c.What, maxExcerpt), clip.String(c.Fix, maxName)
	}
}

// removePending records that a request no longer waits for its response.
func (s *Session) removePending(r *Row) {
	if r.call == nil {
		return
	}
	r.call.Owner = nil
	k := requestKey{r.Dir, idText(r.call.ID)}
	if s.pending[k] == r {
		delete(s.pending, k)
	}
	delete(s.inFlight, r)
	r.call = nil
}

// requestKey identifies a request by direction and id.
type requestKey struct {
	dir capture.Dir
	id  string
}

// tokenKey identifies a progress token by the direction of its request.
type tokenKey struct {
	dir   capture.Dir
	token string
}

// taskKey identifies a task. Each side of a bridge has its own task ids.
type taskKey struct {
	side capture.Side
	id   string
}

// task returns the request that became the task, or nil.
func (s *Session) task(id string) *Row { return s.Capture.tasks[taskKey{s.Side, id}] }

// roundKey matches the next round of a request with the request.
type roundKey struct {
	side   capture.Side
	method string
	// state is the hash of requestState. Zero means none.
	state uint64
	// params is the hash of the other params. It is used without a state.
	params uint64
}

func newCapture(h *capture.Head, m *Model) *Capture {
	return &Capture{
		model: m, ID: h.ID, Name: clip.String(h.Name, maxName), Transport: clip.String(h.Transport, maxName), Tool: clip.String(h.Tool, maxName), Redact: capture.RedactionMode(clip.String(string(h.Redact), maxName)), URL: clip.String(h.URL, maxURL), Started: h.At,
		sessions: map[uint64]*Session{}, tasks: map[taskKey]*Row{}, awaitingInput: map[roundKey][]*Row{},
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

// Letter returns the letters that precede the numbers of the capture's events where several
// captures are shown: "a" to "z", then "aa".
func (c *Capture) Letter() string { return CaptureLetter(c.Index) }

// CaptureLetter returns the letters of the capture with an index: see [Capture.Letter].
func CaptureLetter(index int) string {
	var letters []byte
	for i := index; i >= 0; i = i/26 - 1 {
		letters = append(letters, byte('a'+i%26))
	}
	slices.Reverse(letters)
	return string(letters)
}

// HasSides reports whether the capture has the traffic of a bridge's sides.
func (c *Capture) HasSides() bool { return c.hasSides }

// HasUpstreams reports whether the capture has the traffic of several servers, as that of a gateway
// does.
func (c *Capture) HasUpstreams() bool { return c.hasUpstreams }

// Label returns the name of the server, followed by the side if a bridge recorded the session.
func (s *Session) Label() string {
	if s.Side == "" {
		return s.Capture.Name
	}
	return Join(" ", s.ServerName(), string(s.Side))
}

// ServerName returns the name of the server of the session. For the upstream side of a gateway,
// which has several servers, it is the name that the server itself has given.
func (s *Session) ServerName() string { return cmp.Or(s.serverName, s.Capture.Name) }

// ServerIndex numbers the name of the session's server among those of the model, in the order of
// their first events. Its color depends on it.
func (s *Session) ServerIndex() int {
	if s.serverName == "" {
		return s.Capture.ServerIndex
	}
	return s.serverIndex
}

// nameServer sets the name of the session's server if there are several on the upstream side. The
// first name stays: a server that gives another in each response would have all rows sent again.
func (m *Model) nameServer(s *Session) {
	c, name := s.Capture, s.Server.Name
	switch {
	case s.Side != capture.Upstream || name == "" || s.serverName != "":
	case c.hasUpstreams:
		m.setServerName(s)
	case c.firstUpstream == "":
		c.firstUpstream = name
	case name != c.firstUpstream:
		c.hasUpstreams = true
		label := Join(" ", c.Name, string(capture.Upstream))
		m.stats.rename(label, Join(" ", c.firstUpstream, string(capture.Upstream)))
		for _, other := range c.Sessions() {
			if other.Side == capture.Upstream && other.Server.Name != "" {
				m.setServerName(other)
			}
		}
	}
}

// setServerName gives the session the name that its server has given, and reports its rows as
// renamed.
func (m *Model) setServerName(s *Session) {
	s.serverName, s.serverIndex = s.Server.Name, m.captures.serverIndex(s.Server.Name)
	for _, root := range slices.Backward(m.Rows()) {
		if root.Session == s {
			for r := range root.All() {
				m.timeline.changes = append(m.timeline.changes, Change{Renamed, r})
			}
		} else if root.Capture == s.Capture && root.At.Before(s.First) {
			return // the rows of a capture are in the order of time
		}
	}
}

// onlyInFlight returns the client's request in flight if there is exactly one, or nil.
func (s *Session) onlyInFlight() *Row {
	if len(s.inFlight) == 1 {
		for r := range s.inFlight {
			return r
		}
	}
	return nil
}

// setClient sets Client from the params of initialize.
func (s *Session) setClient(params []byte, t nameTable) {
	if v := stringText(jsonwire.Lookup(params, "protocolVersion")); v != "" && s.Offered == "" {
		s.Offered = t.intern([]byte(v))
	}
	s.Client.setImplementation(jsonwire.Lookup(params, "clientInfo"), t)
	s.Client.Capabilities = t.capabilityNames(jsonwire.Lookup(params, "capabilities"))
}

// setServer sets Server from the result of initialize or server/discover.
func (s *Session) setServer(method string, result []byte, t nameTable) {
	if method == mcp.MethodInitialize {
		s.Era = EraLegacy
		s.Negotiated = t.text(jsonwire.Lookup(result, "protocolVersion"))
		s.Server.setImplementation(jsonwire.Lookup(result, "serverInfo"), t)
	}
	s.Server.Capabilities = t.capabilityNames(jsonwire.Lookup(result, "capabilities"))
	s.setSupported(jsonwire.Lookup(result, "supportedVersions"), t)
}

// setSupported sets Supported from the JSON list of revisions.
func (s *Session) setSupported(list []byte, t nameTable) {
	if len(list) == 0 || list[0] != '[' {
		return
	}
	s.Supported = nil
	for el := jsonwire.ArrayElements(list); el.Next() && len(s.Supported) < maxSupported; {
		if v := stringText(el.Value()); v != "" {
			s.Supported = append(s.Supported, t.intern([]byte(v)))
		}
	}
}

// copyTo copies the known fields to other.
func (p *PeerInfo) copyTo(other *PeerInfo) {
	if p.Name != "" {
		other.Name, other.Version = p.Name, p.Version
	}
	if p.Capabilities != nil {
		other.Capabilities = p.Capabilities
	}
}

// A SessionInfo summarizes a session: its peers, their capabilities and the revision. Its texts
// are unescaped excerpts of what the peers wrote: see [Escape].
type SessionInfo struct {
	Capture string `json:"capture"`
	// Session is the number in the capture.
	Session uint64 `json:"session"`
	// Side is the side of a bridge, as in [capture.Side].
	Side string `json:"side,omitempty"`
	// Name is the name of the server: see [Session.ServerName].
	Name      string `json:"name"`
	Transport string `json:"transport"`
	// URL is the server's URL. It is empty on a bridge's downstream side.
	URL string `json:"url,omitempty"`
	// Tool is the tool that recorded the capture.
	Tool   string                `json:"tool,omitempty"`
	Redact capture.RedactionMode `json:"redact,omitempty"`
	SessionState
	// Successor is the session of the process that replaced this session's exited one. Zero means
	// none.
	Successor uint64 `json:"next,omitempty"`
}

// Card returns a summary of the session. The result shares no mutable data with it.
func (s *Session) Card() SessionInfo {
	c := s.Capture
	info := SessionInfo{
		Capture: c.ID, Session: s.Number, Side: string(s.Side), Name: s.ServerName(), Transport: c.Transport, URL: c.URL, Tool: c.Tool, Redact: c.Redact, SessionState: s.SessionState,
	}
	if s.Side == capture.Downstream {
		info.URL = "" // clients connect to the bridge, not to this URL
	}
	if s.Exited && c.newestProcess != nil && c.newestProcess != s {
		info.Successor = c.newestProcess.Number
	}
	for _, list := range []*[]string{&info.Supported, &info.Client.Capabilities, &info.Server.Capabilities, &info.Command} {
		*list = slices.Clone(*list)
	}
	return info
}
