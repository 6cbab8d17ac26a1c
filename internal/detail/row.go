package detail

import (
	"slices"
	"time"

	"mcpwire/internal/wireview"
	"mcpwire/mcp"
)

// A Row is what is needed of a row of the timeline to work out its [Detail]: plain values of limited size, which nobody changes.
type Row struct {
	Seq    uint64
	Record wireview.Record // without what is inside
	T      time.Duration   // since the beginning of the capture
	Wall   time.Duration
	Server time.Duration
	Human  time.Duration // that the server waited for the client
	Now    time.Duration // when the last event of the session was
	Done   bool

	HTTP   *wireview.HTTPFacts // nil if there is no HTTP exchange, or it belongs to another row
	Facts  wireview.Facts
	Card   wireview.Card
	Spans  []wireview.Span
	Rounds []Round
	Inside []Inside // the newest ones
	Gone   int      // more of them that there were
	Others []Other  // on a bridge's other side

	response uint64 // event with the response
	last     uint64 // event with the answer of the last round, or of the last poll of a task; 0 if there is none
	polled   bool   // last is the one of a poll
	startN   uint64 // event that says how the process of the session was started
	xlates   []uint64
	rowOf    map[uint64]uint64 // by the event, the rows of a bridge's other side
}

// A Round is one of several requests that make one exchange because the server needed input.
type Round struct {
	Seq      uint64          `json:"seq"` // of its row
	N        uint64          `json:"n"`   // event with the request
	Response uint64          `json:"response,omitempty"`
	Status   wireview.Status `json:"status"`
	FromMS   float64         `json:"fromMs"` // since the first round began
	WallMS   float64         `json:"wallMs"`
}

// An Inside is a row inside another, in short.
type Inside struct {
	Seq     uint64          `json:"seq"`
	N       uint64          `json:"n"`
	Kind    wireview.Kind   `json:"kind"`
	Role    wireview.Role   `json:"role,omitempty"`
	Status  wireview.Status `json:"status,omitempty"`
	AtMS    float64         `json:"atMs"` // since the outer row began
	WallMS  float64         `json:"wallMs,omitempty"`
	Glyph   string          `json:"glyph"`
	Summary string          `json:"summary"`
}

// What a snapshot has at most.
const (
	maxInside = 300
	maxRounds = 100
)

// Snapshot copies what is needed of a row. The model must be locked meanwhile.
func Snapshot(r *wireview.Row) *Row {
	s := &Row{
		Seq: r.Seq, Record: record(r), T: r.T, Wall: r.Wall(), Server: r.Server(), Human: r.Human, Now: r.T, Done: r.Done, Facts: r.Facts, Card: r.Session.Card(),
		Spans: r.Spans(nil), Gone: r.Gone, response: r.ResponseN, startN: r.Session.StartN,
	}
	if c := r.Chain; c != nil {
		s.Human = c.Human
	}
	if r.HTTP != nil {
		h := *r.HTTP
		h.Recent = slices.Clone(h.Recent)
		s.HTTP = &h
	}
	for _, span := range s.Spans {
		s.Now = max(s.Now, span.To)
	}
	if !s.Done && len(s.Spans) > 0 {
		s.Wall = max(s.Wall, s.Now-s.T)
	}
	if r.Kind == wireview.Xlate {
		s.xlates = append(s.xlates, r.N)
	}
	s.inside(r)
	s.linked(r)
	return s
}

// record is the row as a Record, with a limited number of findings, and without what is inside.
func record(r *wireview.Row) wireview.Record {
	outer := *r
	outer.Children = nil
	rec := wireview.Recorded(&outer)
	rec.Events, rec.Lints = slices.Clone(rec.Events), slices.Clone(rec.Lints)
	return rec
}

// inside takes what stands in a row.
func (s *Row) inside(r *wireview.Row) {
	if r.Chain != nil {
		s.Rounds = append(s.Rounds, Round{Seq: r.Seq, N: r.N, Response: r.ResponseN, Status: wireview.InputRequired, WallMS: ms(r.Latency)})
	}
	for _, c := range r.Children {
		switch {
		case c.Role == wireview.Retry && len(s.Rounds) < maxRounds:
			s.Rounds = append(s.Rounds, Round{Seq: c.Seq, N: c.N, Response: c.ResponseN, Status: c.Status, FromMS: ms(c.T - r.T), WallMS: ms(c.Latency)})
			if c.ResponseN != 0 {
				s.last, s.polled = c.ResponseN, false
			}
		case c.Role == wireview.Poll && c.ResponseN != 0 && (c.Method == mcp.MethodTasksGet || c.Method == mcp.MethodTasksResult):
			s.last, s.polled = c.ResponseN, true
		case c.Kind == wireview.Xlate && len(s.xlates) < maxXlates:
			s.xlates = append(s.xlates, c.N)
		}
	}
	list := r.Children
	if more := len(list) - maxInside; more > 0 {
		s.Gone += more
		list = list[more:]
	}
	for _, c := range list {
		s.Inside = append(s.Inside, Inside{
			Seq: c.Seq, N: c.N, Kind: c.Kind, Role: c.Role, Status: c.Status, AtMS: ms(c.T - r.T), WallMS: ms(c.Wall()), Glyph: wireview.Glyph(c), Summary: wireview.Summary(c),
		})
	}
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
