package trace

import (
	"iter"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/filter"
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
