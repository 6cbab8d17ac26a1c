package trace

import (
	"time"
)

// A Record is a row as JSON: what is known about it, without payloads. Absent members are not known or do not apply.
type Record struct {
	N               uint64    `json:"n"`
	Kind            Kind      `json:"kind"`
	At              time.Time `json:"at"`
	Seconds         float64   `json:"t"` // since the capture began
	Server          string    `json:"server,omitempty"`
	Capture         string    `json:"capture,omitempty"`
	Session         uint64    `json:"session,omitempty"`
	Side            string    `json:"side,omitempty"` // of a bridge: "downstream" or "upstream"
	Dir             string    `json:"dir,omitempty"`
	Role            Role      `json:"role,omitempty"`
	Method          string    `json:"method,omitempty"`
	Target          string    `json:"target,omitempty"`
	ID              string    `json:"id,omitempty"` // JSON text
	Era             string    `json:"era,omitempty"`
	Revision        string    `json:"revision,omitempty"`
	Status          Status    `json:"status,omitempty"`
	Code            int       `json:"code,omitempty"`
	Message         string    `json:"message,omitempty"`
	RequestBytes    int64     `json:"requestBytes,omitempty"`
	ResponseBytes   int64     `json:"responseBytes,omitempty"`
	LatencyMS       *float64  `json:"latencyMs,omitempty"`
	ServerMS        *float64  `json:"serverMs,omitempty"` // without the time for which the server waited for the client
	ClientMS        *float64  `json:"clientMs,omitempty"` // that time
	Rounds          int       `json:"rounds,omitempty"`
	Task            string    `json:"task,omitempty"`
	TaskState       string    `json:"taskState,omitempty"`
	HTTP            int       `json:"httpStatus,omitempty"`
	Summary         string    `json:"summary"`
	Excerpt         string    `json:"excerpt,omitempty"`
	Events          []uint64  `json:"events,omitempty"`
	Counterparts    []uint64  `json:"others,omitempty"` // what it was made of, or became, on a bridge's other side: the events that those rows begin with
	Children        []Record  `json:"inside,omitempty"`
	EvictedChildren int       `json:"gone,omitempty"` // of those inside
	Findings        []Finding `json:"findings,omitempty"`
}

// NewRecord returns a row as a [Record]. Texts in it are as the peers wrote them, if not in full, but for the summary.
func NewRecord(r *Row) Record {
	rec := Record{
		N: r.N, Kind: r.Kind, At: r.At, Seconds: r.T.Seconds(), Server: r.Capture.Name, Capture: r.Capture.ID, Session: r.Session.Number, Side: string(r.Session.Side), Dir: string(r.Dir),
		Role: r.Role, Method: r.Method, Target: r.Target, ID: r.ID, Status: r.Status, Code: r.Code, Message: r.Message, RequestBytes: r.RequestBytes,
		ResponseBytes: r.ResponseBytes, Summary: Summary(r), Excerpt: r.Excerpt, Events: r.Events, EvictedChildren: r.EvictedChildren, Findings: r.Findings,
	}
	if r.Kind == Request {
		rec.Era, rec.Revision = r.Era(), r.EffectiveRevision()
	}
	if _, known := r.Elapsed(); known {
		rec.LatencyMS = millis(r.Wall())
		if r.Kind == Request && r.Role != ServerRequest {
			rec.ServerMS = millis(r.ServerTime())
		}
		if h := r.totalClientTime(); h > 0 {
			rec.ClientMS = millis(h)
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

// totalClientTime is how long the server waited for the client, in one round or between several.
func (r *Row) totalClientTime() time.Duration {
	if r.InputRounds != nil {
		return r.InputRounds.ClientTime
	}
	return r.ClientTime
}

func millis(d time.Duration) *float64 {
	v := float64(d) / float64(time.Millisecond)
	return &v
}
