package detail

import (
	"slices"
	"time"

	"mcpwire/cmd/internal/trace"
	"mcpwire/mcp"
)

// A Snapshot is a copy of the parts of a row that [Build] needs. Its size is limited, and it is
// immutable.
type Snapshot struct {
	Seq uint64
	// Record is the row without its children.
	Record trace.Record
	// T is the time since the beginning of the capture.
	T          time.Duration
	Wall       time.Duration
	ServerTime time.Duration
	// ClientTime is how long the server waited for the client.
	ClientTime time.Duration
	Done       bool

	// HTTP is nil if the row has no HTTP round trip or another row owns it.
	HTTP       *trace.HTTPInfo
	ResultInfo trace.ResultInfo
	Session    trace.SessionInfo
	Segments   []trace.Segment
	Rounds     []Round
	// Children are the newest children.
	Children []Child
	// OmittedChildren counts the other ones.
	OmittedChildren int
	// Counterparts are rows on a bridge's other side.
	Counterparts []Counterpart

	glyph string
	// isStream reports that the row lasts as long as an open stream.
	isStream bool
	// handshakeFailed reports that the row is a handshake, and no session of its capture has begun.
	handshakeFailed bool
	// responseN is the number of the event with the response.
	responseN uint64
	// lastN is the number of the last round's or last poll's response. Zero means none.
	lastN uint64
	// startN is the number of the event that started the session's process.
	startN       uint64
	translations []uint64
	// rowByEvent has the rows on a bridge's other side, by event.
	rowByEvent map[uint64]uint64
}

// A Round is one of several requests of an exchange in which the server needed input.
type Round struct {
	// Seq is the Seq of the row.
	Seq uint64 `json:"seq"`
	// N is the number of the event with the request.
	N        uint64       `json:"n"`
	Response uint64       `json:"response,omitempty"`
	Status   trace.Status `json:"status"`
	// FromMS is the time since the first round began.
	FromMS float64 `json:"fromMs"`
	WallMS float64 `json:"wallMs"`
}

// A Child summarizes a row inside another.
type Child struct {
	Seq    uint64       `json:"seq"`
	N      uint64       `json:"n"`
	Kind   trace.Kind   `json:"kind"`
	Role   trace.Role   `json:"role,omitempty"`
	Status trace.Status `json:"status,omitempty"`
	// AtMS is the time since the outer row began.
	AtMS    float64 `json:"atMs"`
	WallMS  float64 `json:"wallMs,omitempty"`
	Glyph   string  `json:"glyph"`
	Summary string  `json:"summary"`
}

// Limits of a snapshot.
const (
	maxChildren = 300
	maxRounds   = 100
)

// TakeSnapshot copies the needed parts of a row. The caller must hold the lock of the model.
func TakeSnapshot(r *trace.Row) *Snapshot {
	s := &Snapshot{
		Seq: r.Seq, Record: snapshotRecord(r), T: r.T, Wall: r.Wall(), ServerTime: r.ServerTime(), ClientTime: r.TotalClientTime(), Done: r.Done, ResultInfo: r.ResultInfo, Session: r.Session.Card(),
		Segments: r.AppendSegments(nil), OmittedChildren: r.EvictedChildren, responseN: r.ResponseN, startN: r.Session.StartN, glyph: trace.Glyph(r), isStream: r.IsStream(),
	}
	s.handshakeFailed = r.Method == mcp.MethodInitialize && !slices.ContainsFunc(r.Capture.Sessions(), func(x *trace.Session) bool { return x.Negotiated != "" })
	if r.HTTP != nil {
		h := *r.HTTP
		h.RecentEvents = slices.Clone(h.RecentEvents)
		s.HTTP = &h
	}
	for _, span := range s.Segments {
		if !s.Done {
			s.Wall = max(s.Wall, span.To-s.T)
		}
	}
	if r.Kind == trace.Translate {
		s.translations = append(s.translations, r.N)
	}
	s.addChildren(r)
	s.addLinks(r)
	return s
}

// snapshotRecord returns the record of a row, without its children.
func snapshotRecord(r *trace.Row) trace.Record {
	outer := *r
	outer.Children = nil
	rec := trace.NewRecord(&outer)
	rec.Events, rec.Findings = slices.Clone(rec.Events), slices.Clone(rec.Findings)
	return rec
}

func (s *Snapshot) addChildren(r *trace.Row) {
	if r.InputRounds != nil {
		s.Rounds = append(s.Rounds, Round{Seq: r.Seq, N: r.N, Response: r.ResponseN, Status: trace.InputRequired, WallMS: trace.Millis(r.Latency)})
	}
	for _, c := range r.Children {
		switch {
		case c.Role == trace.Retry && len(s.Rounds) < maxRounds:
			s.Rounds = append(s.Rounds, Round{Seq: c.Seq, N: c.N, Response: c.ResponseN, Status: c.Status, FromMS: trace.Millis(c.T - r.T), WallMS: trace.Millis(c.Latency)})
			if c.ResponseN != 0 {
				s.lastN = c.ResponseN
			}
		case c.Role == trace.Poll && c.ResponseN != 0 && (c.Method == mcp.MethodTasksGet || c.Method == mcp.MethodTasksResult):
			s.lastN = c.ResponseN
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
			Seq: c.Seq, N: c.N, Kind: c.Kind, Role: c.Role, Status: c.Status, AtMS: trace.Millis(c.T - r.T), WallMS: trace.Millis(c.Wall()), Glyph: trace.Glyph(c), Summary: trace.Summary(c),
		})
	}
}
