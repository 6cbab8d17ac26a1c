package trace

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/trace/filter"
)

// A Row is a line of the timeline. The model goes on changing it as events come; nobody else may change it. Texts in it are as the peers wrote them, if not in full: see
// [Escape].
type Row struct {
	Seq  uint64 // counts the rows of a model
	Kind Kind

	Capture *Capture
	Session *Session
	N       uint64 // of the event that it begins with
	T       time.Duration
	At      time.Time
	Dir     capture.Dir

	Method   string
	Target   string // the tool, prompt, resource … that it is about
	ID       string // of the request, as JSON text
	Revision string // that the request itself says it is of
	Excerpt  string // the beginning of what it says: arguments, params, text
	Role     Role

	Status     Status
	Code       int // of the error, or of HTTP
	Message    string
	Latency    time.Duration // until the response, or whatever ended it; 0 before. If it is Unanswered, until the last event of the session
	ClientTime time.Duration // the part of Latency for which the server waited for the client
	ResponseN  uint64        // of the event with the response
	Done       bool          // nothing more is due, but there may be
	ResultInfo ResultInfo    // about the result

	RequestBytes, ResponseBytes int64 // of the payloads on the wire

	HTTP        *HTTPInfo
	InputRounds *InputRounds // on the first of several rounds
	Task        *Task        // on the request that became one

	Parent          *Row
	Children        []*Row // the newest ones
	EvictedChildren int    // children that made room

	// Links are a bridge's, from and to messages of the other side: 64 at most.
	Links []Link

	Findings        []Finding
	OmittedFindings int // findings that are not in Findings, because there are too many
	// Events are the numbers of its events, without those of Children: at most 32.
	Events []uint64
	// Hits are what Options.Scan said of its events and of those inside it.
	Hits filter.Hits

	// Mark is for whoever shows rows. The model does not look at it.
	Mark uint8

	model         *Model
	call          *capture.Call
	token         tokenKey
	pendingInputs int // requests inside it that the client has not answered
	inputSince    time.Duration
	roundTripKey  roundTripKey
	paramsHash    uint64        // see roundKey
	abandonedAt   time.Duration // when nothing could come any more
	counted       bool          // its outcome is in the statistics
	evicted       bool
}

// ResultInfo are what is worth saying about a result.
type ResultInfo struct {
	ResultType string // the result type, if it is neither missing nor "complete"
	ListName   string // the list that Count counts: "content", "tools", "messages" …
	Count      int
	HasMore    bool // there is a next page
	Structured bool
	Text       string // the beginning of its first text
}

// A InputRounds is a request that took several rounds, because the server needed input.
type InputRounds struct {
	Count      int
	Wall       time.Duration // from the first request to the last response so far
	ServerTime time.Duration // that the server took for the rounds
	ClientTime time.Duration // between the rounds

	lastResponse time.Duration // when the last response came
	awaiting     roundKey
}

// A Task is what a request became.
type Task struct {
	ID    string
	State string // "working", "completed" …
	Polls int
	Wall  time.Duration // from the request to the end of the task, as far as it was seen

	isFinal bool
}

// HTTPInfo are what there is to say about the HTTP exchange of a row. Headers are in its events.
type HTTPInfo struct {
	Number      uint64
	Method, URL string
	Status      int // 0 before the response
	ContentType string
	Stream      bool   // the response is an event stream
	Events      int    // of the stream
	BodyBytes   int64  // that are no message
	EndReason   string // why it ended, if not in the normal way
	Ended       bool

	RequestN, ResponseN, EndN uint64 // numbers of the events
	// RecentEvents are the numbers of the newest events of the stream, wherever their rows are: 256, or some more.
	RecentEvents []uint64

	startT time.Duration
}

const maxRecentEvents = 256 // events of a stream whose numbers are kept, at least

// addStreamEvent counts an event of the stream.
func (h *HTTPInfo) addStreamEvent(n uint64) {
	h.Events++
	if len(h.RecentEvents) >= 2*maxRecentEvents {
		h.RecentEvents = h.RecentEvents[:copy(h.RecentEvents, h.RecentEvents[maxRecentEvents:])]
	}
	h.RecentEvents = append(h.RecentEvents, n)
}

// Root returns the row of the timeline that the row stands in; itself if it is one.
func (r *Row) Root() *Row {
	for r.Parent != nil {
		r = r.Parent
	}
	return r
}

func (r *Row) depth() (n int) {
	for ; r.Parent != nil; r = r.Parent {
		n++
	}
	return n
}

// All yields the row and all that is inside it.
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

// Complete reports whether the row says all that it will say in the usual case: there is a response, the last round has come, the task has ended.
func (r *Row) Complete() bool {
	switch r.Status {
	case "":
		return r.Kind != HTTP || r.Done
	case Pending, InputRequired, TaskCreated:
		return false
	}
	return r.Done
}

// ServerTime returns how long the server itself took: without the time for which it waited for the client.
func (r *Row) ServerTime() time.Duration {
	if c := r.InputRounds; c != nil {
		return c.ServerTime
	}
	return max(0, r.Latency-r.ClientTime)
}

// Wall returns how long all of it took, with the further rounds and the task.
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

// EffectiveRevision returns the revision in force: the one that the request says, or the one of the handshake.
func (r *Row) EffectiveRevision() string {
	if r.Revision != "" {
		return r.Revision
	}
	return r.Session.Negotiated
}

// Era returns "modern" if the request says its revision itself, else that of the session, which may be "".
func (r *Row) Era() string {
	if r.Revision != "" && r.Kind == Request {
		return EraModern
	}
	return r.Session.Era
}

// CodeText returns Code as text, or "" if there is none.
func (r *Row) CodeText() string {
	if r.Code == 0 {
		return ""
	}
	return strconv.Itoa(r.Code)
}

// A ResultType says what a row is.
type Kind string

// The kinds of row.
const (
	Request      Kind = "request" // with what became of it
	Notification Kind = "notification"
	Response     Kind = "response" // to no request that is known
	Invalid      Kind = "invalid"  // in the place of a message, something that is none
	Progress     Kind = "progress"
	Log          Kind = "log"
	Stdout       Kind = "stdout" // what a server on stdio wrote to its standard output besides messages
	Stderr       Kind = "stderr"
	Start        Kind = "start" // of a process
	Exit         Kind = "exit"
	EOF          Kind = "eof"
	HTTP         Kind = "http" // an HTTP exchange without a message from the client
	SSE          Kind = "sse"  // an event of a stream without a message
	Body         Kind = "body" // of an HTTP message, which is no message of the protocol
	Gap          Kind = "gap"
	Note         Kind = "note"
	Translate    Kind = "translate" // a bridge made one event into others
)

// A Status says what became of a request, or of an HTTP exchange.
type Status string

// The states. Rows that nothing can become of have none.
const (
	OK            Status = "ok"
	Failed        Status = "error"          // the response is an error, see Row.Code
	ToolFailed    Status = "iserror"        // the result of the tool says that it failed
	InputRequired Status = "input_required" // the server wants something of the user first, and the client has not come back yet
	TaskCreated   Status = "task"           // it became a task that has not ended yet
	Canceled      Status = "cancelled"
	Pending       Status = "pending"
	Unanswered    Status = "unanswered" // and nothing can come any more
	HTTPFailed    Status = "http"       // HTTP refused it, see Row.Code, without an answer in the body
)

// A Role says why a request stands inside another.
type Role string

// The roles.
const (
	ServerRequest Role = "asked" // the server sent it because of the other
	Retry         Role = "retry" // a further round of the other
	Poll          Role = "poll"  // asks for the task that the other became
)

var _ filter.Subject = (*Row)(nil)

// MatchField reports whether match is true of a value that the row, or a row inside it, has for the field.
func (r *Row) MatchField(f filter.Field, match func(string) bool) bool {
	if f == filter.Server {
		name, label := r.Capture.Name, r.Session.Label()
		return name != "" && match(name) || label != "" && match(label)
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

// sharedValue returns the value of a field that all rows inside have in common.
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

// HasEventIn reports whether one of the row's events, or of those inside it, has a number in the range.
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

// Elapsed returns how long the request took, and false if nothing ended it yet.
func (r *Row) Elapsed() (time.Duration, bool) {
	return r.Wall(), (r.Kind == Request || r.Kind == HTTP) && r.Done
}

// Bytes returns the size of the payloads of the request and its response.
func (r *Row) Bytes() int64 { return r.RequestBytes + r.ResponseBytes }

// Payloads yields the payloads of the row's events, and of those inside it, if the model knows how to load them; else the excerpts.
func (r *Row) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for x := range r.All() {
			if r.model.opts.Load == nil {
				if x.Excerpt != "" && !yield([]byte(x.Excerpt)) {
					return
				}
				continue
			}
			for _, n := range x.Events {
				if p, err := r.model.opts.Load(x.Capture.ID, n); err == nil && len(p) > 0 && !yield(p) {
					return
				}
			}
		}
	}
}

// A Finding is something that a check has found in an event.
type Finding struct {
	Rule     string `json:"rule"`     // its id
	Severity string `json:"severity"` // "error", "warning" …
	Message  string `json:"message"`
	Pointer  string `json:"pointer,omitempty"` // into the payload, a JSON pointer
	URL      string `json:"url,omitempty"`     // of the section of the specification
	Event    uint64 `json:"event"`             // set by AddFinding
}

const maxFindings = 32 // on a row

// AddFinding notes a finding on the row that has an event, and returns the change as Add does: none if there is no such row. An empty captureID means the only
// capture. A row keeps its first 32 findings, and counts the others.
func (m *Model) AddFinding(captureID string, event uint64, f Finding) []Change {
	m.changes, m.hits = m.changes[:0], 0
	r := m.Find(captureID, event)
	if r == nil {
		return nil
	}
	if f.Event = event; len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
	} else {
		r.OmittedFindings++
	}
	m.markUpdated(r)
	return m.changes
}

// CountFindings returns how many findings a row has, with those inside it.
func (r *Row) CountFindings() (n int) {
	for x := range r.All() {
		n += len(x.Findings) + x.OmittedFindings
	}
	return n
}

// WorstSeverity returns the severity of the worst finding that a row has, with those inside it: "error", "warning", "info", or "" if there is none.
func (r *Row) WorstSeverity() (worst string) {
	order := [...]string{"", "info", "warning", "error"}
	for x := range r.All() {
		for i := range x.Findings {
			if s := x.Findings[i].Severity; slices.Index(order[:], s) > slices.Index(order[:], worst) {
				worst = s
			}
		}
	}
	return worst
}

// SideLabel returns the name of a bridge's side for narrow columns: "down" or "up".
func SideLabel(s capture.Side) string { return strings.TrimSuffix(string(s), "stream") }
