package wireview

import (
	"time"
)

// A Record is a row as JSON: what is known about it, without payloads. Absent members are not known or do not apply.
type Record struct {
	N         uint64    `json:"n"`
	Kind      Kind      `json:"kind"`
	At        time.Time `json:"at"`
	Seconds   float64   `json:"t"` // since the capture began
	Server    string    `json:"server,omitempty"`
	Capture   string    `json:"capture,omitempty"`
	Session   uint64    `json:"session,omitempty"`
	Side      string    `json:"side,omitempty"` // of a bridge: "near" or "far"
	Dir       string    `json:"dir,omitempty"`
	Role      Role      `json:"role,omitempty"`
	Method    string    `json:"method,omitempty"`
	Target    string    `json:"target,omitempty"`
	ID        string    `json:"id,omitempty"` // JSON text
	Era       string    `json:"era,omitempty"`
	Revision  string    `json:"revision,omitempty"`
	Status    Status    `json:"status,omitempty"`
	Code      int       `json:"code,omitempty"`
	Message   string    `json:"message,omitempty"`
	ReqBytes  int64     `json:"requestBytes,omitempty"`
	ResBytes  int64     `json:"responseBytes,omitempty"`
	LatencyMS *float64  `json:"latencyMs,omitempty"`
	ServerMS  *float64  `json:"serverMs,omitempty"` // without the time for which the server waited for the client
	ClientMS  *float64  `json:"clientMs,omitempty"` // that time
	Rounds    int       `json:"rounds,omitempty"`
	Task      string    `json:"task,omitempty"`
	TaskState string    `json:"taskState,omitempty"`
	HTTP      int       `json:"httpStatus,omitempty"`
	Summary   string    `json:"summary"`
	Excerpt   string    `json:"excerpt,omitempty"`
	Events    []uint64  `json:"events,omitempty"`
	Others    []uint64  `json:"others,omitempty"` // what it was made of, or became, on a bridge's other side: the events that those rows begin with
	Inside    []Record  `json:"inside,omitempty"`
	Gone      int       `json:"gone,omitempty"` // of those inside
	Lints     []Lint    `json:"lints,omitempty"`
}

// Recorded returns a row as a [Record]. Texts in it are as the peers wrote them, if not in full, but for the summary.
func Recorded(r *Row) Record {
	rec := Record{
		N: r.N, Kind: r.Kind, At: r.At, Seconds: r.T.Seconds(), Server: r.Capture.Name, Capture: r.Capture.ID, Session: r.Session.Number, Side: string(r.Session.Side), Dir: string(r.Dir),
		Role: r.Role, Method: r.Method, Target: r.Target, ID: r.ID, Status: r.Status, Code: r.Code, Message: r.Message, ReqBytes: r.RequestBytes,
		ResBytes: r.ResponseBytes, Summary: Summary(r), Excerpt: r.Excerpt, Events: r.Events, Gone: r.Gone, Lints: r.Lints,
	}
	if r.Kind == Request {
		rec.Era, rec.Revision = r.Era(), r.Rev()
	}
	if _, known := r.Took(); known {
		rec.LatencyMS = millis(r.Wall())
		if r.Kind == Request && r.Role != Asked {
			rec.ServerMS = millis(r.Server())
		}
		if h := r.waited(); h > 0 {
			rec.ClientMS = millis(h)
		}
	}
	if r.Chain != nil {
		rec.Rounds = r.Chain.Rounds
	}
	if r.Task != nil {
		rec.Task, rec.TaskState = r.Task.ID, r.Task.State
	}
	if r.HTTP != nil {
		rec.HTTP = r.HTTP.Status
	}
	for _, o := range r.Others() {
		rec.Others = append(rec.Others, o.N)
	}
	for _, c := range r.Children {
		rec.Inside = append(rec.Inside, Recorded(c))
	}
	return rec
}

// waited is how long the server waited for the client, in one round or between several.
func (r *Row) waited() time.Duration {
	if r.Chain != nil {
		return r.Chain.Human
	}
	return r.Human
}

func millis(d time.Duration) *float64 {
	v := float64(d) / float64(time.Millisecond)
	return &v
}
