package trace

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/mcp"
)

// A Row is a line of the timeline. The model updates it as events come; callers must not change
// it, except Mark. Its texts are unescaped excerpts of what the peers wrote: see [Escape].
type Row struct {
	// Seq numbers the rows of a model, from 1.
	Seq  uint64
	Kind Kind

	Capture *Capture
	Session *Session
	// N is the number of the row's first event.
	N   uint64
	T   time.Duration
	At  time.Time
	Dir capture.Dir
	// Place orders the rows of the timeline; those with the same Place are ordered by Seq. It is At
	// in Unix nanoseconds, or later: rows of a capture keep their order, and very late rows come
	// last. See [Row.Before].
	Place int64

	Method string
	// Target is the tool, prompt, resource or other object of the request.
	Target string
	// ID is the request id as JSON text.
	ID string
	// Revision is the revision in the request's metadata. It is empty in the legacy era.
	Revision string
	// Excerpt is the beginning of the arguments, params or text.
	Excerpt string
	Role    Role

	Status Status
	// Code is the JSON-RPC error code, or the HTTP status.
	Code    int
	Message string
	// Latency is the time until the response or another end. It is 0 while the row is pending. If
	// Status is Unanswered, it lasts until the last event of the session.
	Latency time.Duration
	// ClientTime is the part of Latency in which the server waited for the client.
	ClientTime time.Duration
	// ResponseN is the number of the event with the response.
	ResponseN  uint64
	ResultInfo ResultInfo

	// RequestBytes and ResponseBytes are the payload sizes on the wire.
	RequestBytes, ResponseBytes int64

	HTTP *HTTPInfo
	// InputRounds is set on the first of several rounds.
	InputRounds *InputRounds
	// Task is set on a request that became a task.
	Task *Task

	Parent *Row
	// Children are the newest rows inside this one.
	Children []*Row
	// EvictedChildren counts the rows evicted from Children.
	EvictedChildren int

	// Links connect the row to messages on a bridge's other side: at most 64.
	Links []Link

	Findings []Finding
	// OmittedFindings counts findings above the limit of Findings.
	OmittedFindings int
	// Events are the numbers of the row's events, without those of Children: at most 32.
	Events []uint64
	// Hits combines the results of Options.Scan for the events of the row and of the rows inside
	// it.
	Hits filter.Hits

	// call is nil unless the row is a pending request. Its Owner is the row.
	call *traffic.Call
	// token is the progress token of the request.
	token      string
	inputSince time.Duration
	// roundTrip is the HTTP round trip whose events belong to the row, until it has ended.
	roundTrip  *roundTrip
	paramsHash uint64
	// abandonedAt is when the row could receive nothing more.
	abandonedAt time.Duration

	// The small fields are together, because a model keeps many rows and gaps would count.

	// pendingInputs counts requests inside the row that the client has not answered.
	pendingInputs int32
	// Done reports whether nothing more is expected. Events may still come.
	Done bool
	// Mark is free for use by the caller. The model ignores it.
	Mark uint8
	// counted reports whether the statistics include the outcome.
	counted bool
	evicted bool
}

// ResultInfo summarizes a result.
type ResultInfo struct {
	// ResultType is the result type. It is empty for "complete".
	ResultType string
	// ListName is the list that Count refers to: "content", "tools", "messages" and so on.
	ListName string
	Count    int
	// HasMore reports whether there is a next page.
	HasMore    bool
	Structured bool
	// Text is the beginning of the first text content.
	Text string
}

// InputRounds describes a request that took several rounds because the server needed input.
type InputRounds struct {
	Count int
	// Wall is the time from the first request to the last response so far.
	Wall time.Duration
	// ServerTime is the time that the server took, in all rounds.
	ServerTime time.Duration
	// ClientTime is the time between the rounds.
	ClientTime time.Duration

	// lastResponse is when the last response came.
	lastResponse time.Duration
	awaiting     roundKey
}

// A Task is a task that a request became.
type Task struct {
	ID string
	// State is the last known state, such as "working" or "completed".
	State string
	Polls int
	// Wall is the time from the request to the end of the task, once that is known.
	Wall time.Duration

	isFinal bool
}

// HTTPInfo describes the HTTP round trip of a row. Its headers are in its events.
type HTTPInfo struct {
	Number      uint64
	Method, URL string
	// Status is 0 before the response.
	Status      int
	ContentType string
	// Events counts the events of the stream.
	Events int
	// BodyBytes is the size of bodies that are not messages.
	BodyBytes int64
	// EndReason says why the round trip ended, if it did not end normally.
	EndReason string
	// Stream reports whether the response is an event stream.
	Stream bool
	Ended  bool

	// RequestN, ResponseN and EndN are event numbers.
	RequestN, ResponseN, EndN uint64
	// RecentEvents are the numbers of the newest events of the stream, in any row: at least the
	// last 256.
	RecentEvents []uint64
}

const maxRecentEvents = 256 // stream event numbers kept

// addStreamEvent counts an event of the stream.
func (h *HTTPInfo) addStreamEvent(n uint64) {
	h.Events++
	if len(h.RecentEvents) >= 2*maxRecentEvents {
		h.RecentEvents = h.RecentEvents[:copy(h.RecentEvents, h.RecentEvents[maxRecentEvents:])]
	}
	h.RecentEvents = append(h.RecentEvents, n)
}

// Number returns the number of the row's first event for people. The letter of the capture precedes
// it if the model has had several captures, so that it is unique: "12" or "b12".
func (r *Row) Number() string {
	if c := r.Capture; c == nil || c.model == nil || !c.model.HasSeveralCaptures() {
		return strconv.FormatUint(r.N, 10)
	}
	return r.Capture.Letter() + strconv.FormatUint(r.N, 10)
}

// Root returns the row of the timeline that contains r, or r itself.
func (r *Row) Root() *Row {
	for r.Parent != nil {
		r = r.Parent
	}
	return r
}

// Before reports whether r comes before x in the timeline.
func (r *Row) Before(x *Row) bool {
	return r.Place < x.Place || r.Place == x.Place && r.Seq < x.Seq
}

func (r *Row) depth() (n int) {
	for ; r.Parent != nil; r = r.Parent {
		n++
	}
	return n
}

// All yields the row and all rows inside it, depth first.
func (r *Row) All() iter.Seq[*Row] {
	return func(yield func(*Row) bool) { r.all(yield) }
}

func (r *Row) all(yield func(*Row) bool) bool {
	if !yield(r) {
		return false
	}
	for _, c := range r.Children {
		if !c.all(yield) {
			return false
		}
	}
	return true
}

// Complete reports whether the row is normally final: the response or the last round has come, or
// the task has ended.
func (r *Row) Complete() bool {
	switch r.Status {
	case "":
		return r.Kind != HTTP || r.Done
	case Pending, InputRequired, TaskCreated:
		return false
	}
	return r.Done
}

// ServerTime returns how long the server took, without the time in which it waited for the client.
func (r *Row) ServerTime() time.Duration {
	if c := r.InputRounds; c != nil {
		return c.ServerTime
	}
	return max(0, r.Latency-r.ClientTime)
}

// Wall returns the total time, including further rounds and the task.
func (r *Row) Wall() time.Duration {
	w := r.Latency
	if r.InputRounds != nil {
		w = max(w, r.InputRounds.Wall)
	}
	if r.Task != nil {
		w = max(w, r.Task.Wall)
	}
	return w
}

// Tool returns the tool that a request calls, or "".
func (r *Row) Tool() string {
	if r.Method == methodToolsCall {
		return r.Target
	}
	return ""
}

// EffectiveRevision returns the request's own revision, or else the negotiated one.
func (r *Row) EffectiveRevision() string { return cmp.Or(r.Revision, r.Session.Negotiated) }

// DescribesSession reports whether the row describes its session: the start of a process, or a part
// of the handshake.
func (r *Row) DescribesSession() bool {
	switch r.Method {
	case mcp.MethodInitialize, mcp.NotificationInitialized, mcp.MethodDiscover:
		return r.Kind == Request || r.Kind == Notification
	}
	return r.Kind == Start
}

// Era returns "modern" if the request carries its own revision. Otherwise it returns the era of
// the session, which may be "".
func (r *Row) Era() string {
	if r.Revision != "" && r.Kind == Request {
		return EraModern
	}
	return r.Session.Era
}

// CodeText returns Code as text, or "" if it is 0.
func (r *Row) CodeText() string {
	if r.Code == 0 {
		return ""
	}
	return strconv.Itoa(r.Code)
}

// A Kind says what a row is about.
type Kind string

// The kinds of row.
const (
	Request      Kind = "request" // with its outcome
	Notification Kind = "notification"
	Response     Kind = "response" // to an unknown request
	Invalid      Kind = "invalid"  // not a message, in a message's place
	Progress     Kind = "progress"
	Log          Kind = "log"
	Stdout       Kind = "stdout" // what a stdio server printed that is not a message
	Stderr       Kind = "stderr"
	Start        Kind = "start" // of a process
	Exit         Kind = "exit"
	EOF          Kind = "eof"
	HTTP         Kind = "http" // a round trip without a client message
	SSE          Kind = "sse"  // a stream event without a message
	Body         Kind = "body" // an HTTP body that is not a message
	Gap          Kind = "gap"
	Note         Kind = "note"
	Translate    Kind = "translate" // a bridge translated a message
)

// A Status is the outcome of a request or of an HTTP round trip.
type Status string

// The statuses. Rows without an outcome have an empty status.
const (
	OK            Status = "ok"
	Failed        Status = "error"          // error response; see Row.Code
	ToolFailed    Status = "iserror"        // the result has isError set
	InputRequired Status = "input_required" // the server waits for the client's next round
	TaskCreated   Status = "task"           // became a task that has not ended
	Canceled      Status = "cancelled"
	Pending       Status = "pending"
	Unanswered    Status = "unanswered" // and can receive nothing more
	HTTPFailed    Status = "http"       // HTTP error without a response message; see Row.Code
)

// IsFailure reports whether a request failed in any way.
func (s Status) IsFailure() bool {
	return s == Failed || s == ToolFailed || s == HTTPFailed || s == Unanswered
}

// Word returns the status in the words of all views. Filters accept them too.
func (s Status) Word() string {
	switch s {
	case ToolFailed:
		return "tool failed"
	case InputRequired:
		return "needs input"
	case Unanswered:
		return "no response"
	case HTTPFailed:
		return "HTTP error"
	}
	return string(s)
}

// A Role says why a request is inside another row.
type Role string

// The roles.
const (
	ServerRequest Role = "asked" // the server sent it during the parent
	Retry         Role = "retry" // a further round of the parent
	Poll          Role = "poll"  // queries the task of the parent
	// Forwarded is the role of what a tap made of the parent, usually the same message.
	Forwarded Role = "forwarded"
)

// Scan returns the payload terms of a filter that match an event: its message or text, or a line of
// its HTTP head. frame is the parsed payload, or nil.
func Scan(ctx context.Context, f *filter.Filter, e *capture.Event, frame *traffic.Frame) filter.Hits {
	h := f.ScanFrame(ctx, e.Data, frame)
	var headers []capture.Header
	switch {
	case e.Request != nil:
		h |= f.Scan(ctx, []byte(e.Request.Method+" "+e.Request.URL))
		headers = e.Request.Headers
	case e.Response != nil:
		headers = e.Response.Headers
	}
	for _, x := range headers {
		h |= f.Scan(ctx, []byte(x.Name+": "+x.Value))
	}
	return h
}

// Scanner returns [Scan] for [Options], or nil if the filter has no payload terms.
func Scanner(ctx context.Context, f *filter.Filter) func(*capture.Event, *traffic.Frame) filter.Hits {
	if !f.NeedsPayload() {
		return nil
	}
	return func(e *capture.Event, frame *traffic.Frame) filter.Hits { return Scan(ctx, f, e, frame) }
}

var _ filter.Subject = (*Row)(nil)

// MatchField reports whether match is true for a value of the field in the row or in a row inside
// it.
func (r *Row) MatchField(f filter.Field, match func(string) bool) bool {
	if f == filter.Server { // the names of statistics are serverOf(r)
		return slices.ContainsFunc([]string{r.Capture.Name, r.Session.ServerName(), r.Session.Label(), serverOf(r)}, func(s string) bool { return s != "" && match(s) })
	}
	if one, ok := r.sharedValue(f); ok {
		return one != "" && match(one)
	}
	for x := range r.All() {
		if x.matchOwn(f, match) {
			return true
		}
	}
	return false
}

// InsideMatch returns the first row inside r for which the filter matches r, or nil if it would
// match without the rows inside. Terms about payloads are matched with excerpts.
func (r *Row) InsideMatch(f *filter.Filter) *Row {
	if f == nil || len(r.Children) == 0 || f.Match(context.Background(), alone{r}) {
		return nil
	}
	for x := range r.All() {
		if x != r && f.Match(context.Background(), alone{x}) {
			return x
		}
	}
	return nil
}

// alone is a row without the rows inside it.
type alone struct{ *Row }

// MatchField implements [filter.Subject].
func (a alone) MatchField(f filter.Field, match func(string) bool) bool {
	if _, shared := a.sharedValue(f); shared || f == filter.Server {
		return a.Row.MatchField(f, match)
	}
	return a.matchOwn(f, match)
}

// HasEventIn implements [filter.Subject].
func (a alone) HasEventIn(from, to uint64) bool {
	return slices.ContainsFunc(a.Events, func(n uint64) bool { return n >= from && n <= to })
}

// Payloads implements [filter.Subject].
func (a alone) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { _ = a.Excerpt != "" && yield([]byte(a.Excerpt)) }
}

// sharedValue returns the value of a field that all rows inside r share.
func (r *Row) sharedValue(f filter.Field) (value string, ok bool) {
	switch f {
	case filter.Side:
		return string(r.Session.Side), true
	case filter.Session:
		return strconv.FormatUint(r.Session.Number, 10), true
	case filter.Era:
		return r.Era(), true
	case filter.Revision:
		return r.EffectiveRevision(), true
	}
	return "", false
}

func (r *Row) matchOwn(f filter.Field, match func(string) bool) bool {
	is := func(s string) bool { return s != "" && match(s) }
	switch f {
	case filter.Tool:
		return is(r.Tool())
	case filter.Target:
		return is(r.Target)
	case filter.Method:
		return is(r.Method)
	case filter.ID:
		return is(r.ID) || strings.HasPrefix(r.ID, `"`) && is(strings.Trim(r.ID, `"`))
	case filter.Task:
		return r.Task != nil && is(r.Task.ID) || r.Role == Poll && is(r.Target)
	case filter.Dir:
		return is(string(r.Dir))
	case filter.Kind:
		return is(string(r.Kind))
	case filter.Status:
		return is(string(r.Status)) || is(r.CodeText()) || r.HTTP != nil && r.HTTP.Status != 0 && is(strconv.Itoa(r.HTTP.Status))
	case filter.Finding:
		for _, l := range r.Findings {
			if is(l.Rule) || is(l.Severity) {
				return true
			}
		}
	}
	return false
}

// HasEventIn reports whether an event of the row, or of a row inside it, has a number in the
// range. Both ends are inclusive.
func (r *Row) HasEventIn(from, to uint64) bool {
	for x := range r.All() {
		for _, n := range x.Events {
			if n >= from && n <= to {
				return true
			}
		}
	}
	return false
}

// Elapsed returns the total time of a request or HTTP round trip, and whether it has ended.
func (r *Row) Elapsed() (time.Duration, bool) {
	return r.Wall(), (r.Kind == Request || r.Kind == HTTP) && r.Done
}

// Bytes returns the size of the payloads of the request and its response.
func (r *Row) Bytes() int64 { return r.RequestBytes + r.ResponseBytes }

// Payloads yields the excerpts of the row and of the rows inside it.
func (r *Row) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for x := range r.All() {
			if x.Excerpt != "" && !yield([]byte(x.Excerpt)) {
				return
			}
		}
	}
}

// find returns the row with a number, which may be r or inside it, or nil.
func (r *Row) find(seq uint64) *Row {
	for x := range r.All() {
		if x.Seq == seq {
			return x
		}
	}
	return nil
}

// addEvent records that event n belongs to the row.
func (r *Row) addEvent(n uint64) {
	if n == 0 || r.evicted || len(r.Events) >= maxEvents || slices.Contains(r.Events, n) {
		return
	}
	if len(r.Events) == cap(r.Events) { // most rows have up to 2 events, or 5 over HTTP
		r.Events = append(make([]uint64, 0, len(r.Events)+2), r.Events...)
	}
	r.Events = append(r.Events, n)
	r.Capture.events.add(n, r)
}

// A Finding is a violation that a rule reports for an event.
type Finding struct {
	// Rule is the id of the rule.
	Rule string `json:"rule"`
	// Severity is "error", "warning" or "info".
	Severity string `json:"severity"`
	Message  string `json:"message"`
	// Pointer is a JSON pointer into the payload.
	Pointer string `json:"pointer,omitempty"`
	// URL is the section of the specification.
	URL string `json:"url,omitempty"`
	// Event is the event number. AddFinding sets it.
	Event uint64 `json:"event"`
}

const maxFindings = 32 // per row

// AddFinding adds a finding to the row of an event. It returns the changes as [Model.Add] does,
// and nil if the event has no row. An empty captureID means the only capture. A row keeps its
// first 32 findings and counts the others.
func (m *Model) AddFinding(captureID string, event uint64, f Finding) []Change {
	m.timeline.begin()
	r := m.Find(captureID, event)
	if r == nil {
		return nil
	}
	if f.Event = event; len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
	} else {
		r.OmittedFindings++
	}
	m.timeline.markUpdated(r)
	return m.timeline.changes
}

// CountFindings returns the number of findings of the row and of the rows inside it.
func (r *Row) CountFindings() (n int) {
	for x := range r.All() {
		n += len(x.Findings) + x.OmittedFindings
	}
	return n
}

// SideLabel returns the name of a bridge's side for narrow columns: "down" or "up".
func SideLabel(s capture.Side) string { return strings.TrimSuffix(string(s), "stream") }
