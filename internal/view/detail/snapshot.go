package detail

import (
	"slices"
	"time"

	"mcpwire/internal/trace"
	"mcpwire/mcp"
)

// A Snapshot is what is needed of a row of the timeline to work out its [Detail]: plain values of limited size, which nobody changes.
type Snapshot struct {
	Seq        uint64
	Record     trace.Record  // without what is inside
	T          time.Duration // since the beginning of the capture
	Wall       time.Duration
	ServerTime time.Duration
	ClientTime time.Duration // that the server waited for the client
	LastT      time.Duration // when the last event of the session was
	Done       bool

	HTTP            *trace.HTTPInfo // nil if there is no HTTP exchange, or it belongs to another row
	ResultInfo      trace.ResultInfo
	Session         trace.SessionInfo
	Segments        []trace.Segment
	Rounds          []Round
	Children        []Child       // the newest ones
	OmittedChildren int           // more of them that there were
	Counterparts    []Counterpart // on a bridge's other side

	responseN    uint64 // event with the response
	lastN        uint64 // event with the answer of the last round, or of the last poll of a task; 0 if there is none
	lastIsPoll   bool   // last is the one of a poll
	startN       uint64 // event that says how the process of the session was started
	translations []uint64
	rowByEvent   map[uint64]uint64 // by the event, the rows of a bridge's other side
}

// A Round is one of several requests that make one exchange because the server needed input.
type Round struct {
	Seq      uint64       `json:"seq"` // of its row
	N        uint64       `json:"n"`   // event with the request
	Response uint64       `json:"response,omitempty"`
	Status   trace.Status `json:"status"`
	FromMS   float64      `json:"fromMs"` // since the first round began
	WallMS   float64      `json:"wallMs"`
}

// An Inside is a row inside another, in short.
type Child struct {
	Seq     uint64       `json:"seq"`
	N       uint64       `json:"n"`
	Kind    trace.Kind   `json:"kind"`
	Role    trace.Role   `json:"role,omitempty"`
	Status  trace.Status `json:"status,omitempty"`
	AtMS    float64      `json:"atMs"` // since the outer row began
	WallMS  float64      `json:"wallMs,omitempty"`
	Glyph   string       `json:"glyph"`
	Summary string       `json:"summary"`
}

// What a snapshot has at most.
const (
	maxChildren = 300
	maxRounds   = 100
)

// TakeSnapshot copies what is needed of a row. The model must be locked meanwhile.
func TakeSnapshot(r *trace.Row) *Snapshot {
	s := &Snapshot{
		Seq: r.Seq, Record: snapshotRecord(r), T: r.T, Wall: r.Wall(), ServerTime: r.ServerTime(), ClientTime: r.ClientTime, LastT: r.T, Done: r.Done, ResultInfo: r.ResultInfo, Session: r.Session.Card(),
		Segments: r.AppendSegments(nil), OmittedChildren: r.EvictedChildren, responseN: r.ResponseN, startN: r.Session.StartN,
	}
	if c := r.InputRounds; c != nil {
		s.ClientTime = c.ClientTime
	}
	if r.HTTP != nil {
		h := *r.HTTP
		h.RecentEvents = slices.Clone(h.RecentEvents)
		s.HTTP = &h
	}
	for _, span := range s.Segments {
		s.LastT = max(s.LastT, span.To)
	}
	if !s.Done && len(s.Segments) > 0 {
		s.Wall = max(s.Wall, s.LastT-s.T)
	}
	if r.Kind == trace.Translate {
		s.translations = append(s.translations, r.N)
	}
	s.addChildren(r)
	s.addLinks(r)
	return s
}

// snapshotRecord is the row as a Record, with a limited number of findings, and without what is inside.
func snapshotRecord(r *trace.Row) trace.Record {
	outer := *r
	outer.Children = nil
	rec := trace.NewRecord(&outer)
	rec.Events, rec.Findings = slices.Clone(rec.Events), slices.Clone(rec.Findings)
	return rec
}

// addChildren takes what stands in a row.
func (s *Snapshot) addChildren(r *trace.Row) {
	if r.InputRounds != nil {
		s.Rounds = append(s.Rounds, Round{Seq: r.Seq, N: r.N, Response: r.ResponseN, Status: trace.InputRequired, WallMS: millis(r.Latency)})
	}
	for _, c := range r.Children {
		switch {
		case c.Role == trace.Retry && len(s.Rounds) < maxRounds:
			s.Rounds = append(s.Rounds, Round{Seq: c.Seq, N: c.N, Response: c.ResponseN, Status: c.Status, FromMS: millis(c.T - r.T), WallMS: millis(c.Latency)})
			if c.ResponseN != 0 {
				s.lastN, s.lastIsPoll = c.ResponseN, false
			}
		case c.Role == trace.Poll && c.ResponseN != 0 && (c.Method == mcp.MethodTasksGet || c.Method == mcp.MethodTasksResult):
			s.lastN, s.lastIsPoll = c.ResponseN, true
		case c.Kind == trace.Translate && len(s.translations) < maxTranslations:
			s.translations = append(s.translations, c.N)
		}
	}
	list := r.Children
	if more := len(list) - maxChildren; more > 0 {
		s.OmittedChildren += more
		list = list[more:]
	}
	for _, c := range list {
		s.Children = append(s.Children, Child{
			Seq: c.Seq, N: c.N, Kind: c.Kind, Role: c.Role, Status: c.Status, AtMS: millis(c.T - r.T), WallMS: millis(c.Wall()), Glyph: trace.Glyph(c), Summary: trace.Summary(c),
		})
	}
}

// millis returns a duration in milliseconds.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
