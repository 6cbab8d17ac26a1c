package trace

import (
	"time"
)

// A Record is the JSON form of a row, without payloads. Members that are unknown or do not apply
// are absent.
type Record struct {
	N    uint64    `json:"n"`
	Kind Kind      `json:"kind"`
	At   time.Time `json:"at"`
	// Seconds is the time since the capture began.
	Seconds float64 `json:"t"`
	Server  string  `json:"server,omitempty"`
	Capture string  `json:"capture,omitempty"`
	Session uint64  `json:"session,omitempty"`
	// Side is the side of a bridge, as in [capture.Side].
	Side   string `json:"side,omitempty"`
	Dir    string `json:"dir,omitempty"`
	Role   Role   `json:"role,omitempty"`
	Method string `json:"method,omitempty"`
	Target string `json:"target,omitempty"`
	// ID is the request id as JSON text.
	ID            string   `json:"id,omitempty"`
	Era           string   `json:"era,omitempty"`
	Revision      string   `json:"revision,omitempty"`
	Status        Status   `json:"status,omitempty"`
	Code          int      `json:"code,omitempty"`
	Message       string   `json:"message,omitempty"`
	RequestBytes  int64    `json:"requestBytes,omitempty"`
	ResponseBytes int64    `json:"responseBytes,omitempty"`
	LatencyMS     *float64 `json:"latencyMs,omitempty"`
	// ServerMS is the latency without ClientMS, in milliseconds.
	ServerMS *float64 `json:"serverMs,omitempty"`
	// ClientMS is how long the server waited for the client, in milliseconds.
	ClientMS  *float64 `json:"clientMs,omitempty"`
	Rounds    int      `json:"rounds,omitempty"`
	Task      string   `json:"task,omitempty"`
	TaskState string   `json:"taskState,omitempty"`
	HTTP      int      `json:"httpStatus,omitempty"`
	Summary   string   `json:"summary"`
	Excerpt   string   `json:"excerpt,omitempty"`
	Events    []uint64 `json:"events,omitempty"`
	// Counterparts are the first events of the rows on a bridge's other side that this row was
	// translated from or to.
	Counterparts []uint64 `json:"others,omitempty"`
	Children     []Record `json:"inside,omitempty"`
	// EvictedChildren counts the rows evicted from Children.
	EvictedChildren int       `json:"gone,omitempty"`
	Findings        []Finding `json:"findings,omitempty"`
}

// NewRecord returns the [Record] of a row. Its texts are excerpts of what the peers wrote; only
// Summary is escaped.
func NewRecord(r *Row) Record {
	rec := Record{
		N: r.N, Kind: r.Kind, At: r.At, Seconds: r.T.Seconds(), Server: r.Session.ServerName(), Capture: r.Capture.ID, Session: r.Session.Number, Side: string(r.Session.Side), Dir: string(r.Dir),
		Role: r.Role, Method: r.Method, Target: r.Target, ID: r.ID, Status: r.Status, Code: r.Code, Message: r.Message, RequestBytes: r.RequestBytes,
		ResponseBytes: r.ResponseBytes, Summary: Summary(r), Excerpt: r.Excerpt, Events: r.Events, EvictedChildren: r.EvictedChildren, Findings: r.Findings,
	}
	if r.Kind == Request {
		rec.Era, rec.Revision = r.Era(), r.EffectiveRevision()
	}
	if _, known := r.Elapsed(); known {
		rec.LatencyMS = new(Millis(r.Wall()))
		if r.Kind == Request && r.Role != ServerRequest {
			rec.ServerMS = new(Millis(r.ServerTime()))
		}
		if h := r.TotalClientTime(); h > 0 {
			rec.ClientMS = new(Millis(h))
		}
	}
	if r.InputRounds != nil {
		rec.Rounds = r.InputRounds.Count
	}
	if r.Task != nil {
		rec.Task, rec.TaskState = r.Task.ID, r.Task.State
	}
	if r.HTTP != nil {
		rec.HTTP = r.HTTP.Status
	}
	for _, o := range r.Counterparts() {
		rec.Counterparts = append(rec.Counterparts, o.N)
	}
	for _, c := range r.Children {
		rec.Children = append(rec.Children, NewRecord(c))
	}
	return rec
}

// TotalClientTime returns how long the server waited for the client, during a round or between
// rounds.
func (r *Row) TotalClientTime() time.Duration {
	if r.InputRounds != nil {
		return r.InputRounds.ClientTime
	}
	return r.ClientTime
}

// Millis returns a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// TruncatedMillis returns a duration in milliseconds, with microsecond precision.
func TruncatedMillis(d time.Duration) float64 { return Millis(d.Truncate(time.Microsecond)) }
