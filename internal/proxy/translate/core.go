package translate

import (
	"container/heap"
	"fmt"
	"net/http"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	// maxPeerInfo limits the bytes of a peer's description and of a URI, because requests repeat
	// them.
	maxPeerInfo = 64 << 10
	// maxInputs limits the input requests in one result.
	maxInputs = 100
	// maxTaskID limits the length of a task id in bytes.
	maxTaskID = 4 << 10
	// maxBackoff limits the time between attempts at what the server rejects.
	maxBackoff = 30 * time.Second
	// resultTypeTask is the resultType of a task.
	resultTypeTask = "task"
)

// A core is what all parts of a translator share: the options, the current step, its output, the
// timers and the count of stored bytes.
type core struct {
	opts Options
	// modern is the revision of the modern side.
	modern *era.Features
	now    time.Time
	outs   []Out
	timers timers
	// cause is the event of the step's message.
	cause uint64
	// reserved counts the bytes that are stored.
	reserved int
	closed   bool
}

func newCore(opts *Options) *core {
	full := opts.orDefault()
	return &core{opts: full, modern: era.Of(full.Modern)}
}

// step runs do and returns its output.
func (c *core) step(now time.Time, do func()) []Out {
	if c.closed {
		return nil
	}
	c.now = now
	do()
	outs := c.outs
	c.outs, c.cause = nil, 0
	return outs
}

// SetCause implements [Translator].
func (c *core) SetCause(event uint64) { c.cause = event }

// Next implements [Translator].
func (c *core) Next() time.Time {
	if c.closed || len(c.timers) == 0 {
		return time.Time{}
	}
	return c.timers[0].at
}

// Tick implements [Translator].
func (c *core) Tick(now time.Time) []Out {
	return c.step(now, func() { c.timers.run(now) })
}

// after runs do after d.
func (c *core) after(d time.Duration, do func()) *timer { return c.timers.add(c.now.Add(d), do) }

// emit adds a message to the output.
func (c *core) emit(o Out) {
	if o.Message != nil {
		o.Message = jsonwire.OneLine(o.Message)
	}
	o.Causes = slices.DeleteFunc(o.Causes, func(cause uint64) bool { return cause == 0 || cause == c.cause })
	if len(o.Causes) == 0 {
		o.Causes = nil
	}
	c.outs = append(c.outs, o)
}

// drop records why a message has no output.
func (c *core) drop(rule string) { c.emit(Out{Rule: rule}) }

// sendUpstream sends the server a request that comes from messages with these causes.
func (c *core) sendUpstream(id int64, method string, params []byte, rule string, causes ...uint64) {
	c.emit(Out{To: Upstream, Message: jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), Call: id, Method: method, Rule: rule, Causes: causes})
}

// notifyUpstream sends the server a notification.
func (c *core) notifyUpstream(method string, params []byte, rule string) {
	c.emit(Out{To: Upstream, Message: jsonrpc.AppendNotification(nil, method, params), Method: method, Rule: rule})
}

// cancelUpstream gives up a call.
func (c *core) cancelUpstream(id int64, method, reason string) {
	name, params := era.Cancellation{}.Notice(jsonrpc.IntID(id), method, reason)
	o := Out{To: Upstream, Call: id, Cancel: true, Method: name, Rule: "cancelled"}
	if name != "" {
		o.Message = jsonrpc.AppendNotification(nil, name, params)
	}
	c.emit(o)
}

// reserve counts stored bytes. It reports false at the limit.
func (c *core) reserve(n int) bool {
	if c.reserved+n > c.opts.Limits.Bytes {
		return false
	}
	c.reserved += n
	return true
}

// An outcome is the end of a call: a result or an error.
type outcome struct {
	result []byte
	err    *jsonrpc.Error
	// lost says that the error is not the server's, so that the call may have run.
	lost bool
	// cause is the event of the message, if it came in an earlier step.
	cause uint64
}

// outcomeOf returns the outcome in a response.
func outcomeOf(m *jsonrpc.Message) outcome {
	if m.Kind == jsonrpc.KindError {
		return outcome{err: m.Err()}
	}
	if !era.IsObject(m.Result) {
		return outcome{err: jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's result is not an object")}
	}
	return outcome{result: m.Result}
}

// rejectMalformed answers an invalid message of a client. nullID is for an error without an id.
func (c *core) rejectMalformed(m *jsonrpc.Message, stream uint64, err error, nullID bool) {
	if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
		c.drop("malformed response")
		return
	}
	c.emit(Out{To: Downstream, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, m.ID, jsonrpc.ErrorOf(err), nullID), Rule: "malformed"})
}

// codeRule describes the conversion of an error to one with another code.
func codeRule(from, to *jsonrpc.Error) string {
	if from.Code == to.Code {
		return ""
	}
	return fmt.Sprintf("%d → %d", int(from.Code), int(to.Code))
}

// frameOf returns the text of a notification that came in a batch.
func frameOf(m *jsonrpc.Message) []byte {
	if m.Kind != jsonrpc.KindNotification {
		return nil
	}
	return jsonrpc.AppendNotification(nil, string(m.Method), m.Params)
}

// A request is a request of a client that has no response yet.
type request struct {
	id     jsonrpc.ID
	method string
	// progressToken is the client's progress token, or nil.
	progressToken []byte
	// cause is the event of the request's message.
	cause uint64
	// size counts the stored bytes.
	size     int
	finished bool
}

func (r *request) isFinished() bool { return r.finished }

// A waitQueue holds the work of requests that wait for the server.
type waitQueue[R interface{ isFinished() bool }] []waitingWork[R]

// A waitingWork continues a request.
type waitingWork[R any] struct {
	req R
	do  func()
}

// add adds work. pending is the number of pending requests: the queue forgets finished ones when it
// holds many more.
func (q *waitQueue[R]) add(req R, pending int, do func()) {
	if len(*q) > 2*pending+8 { // most were canceled
		*q = slices.DeleteFunc(*q, func(w waitingWork[R]) bool { return w.req.isFinished() })
	}
	*q = append(*q, waitingWork[R]{req, do})
}

// take removes all work and returns it.
func (q *waitQueue[R]) take() []waitingWork[R] {
	all := *q
	*q = nil
	return all
}

// run removes all work and does that of pending requests.
func (q *waitQueue[R]) run() {
	for _, w := range q.take() {
		if !w.req.isFinished() {
			w.do()
		}
	}
}

// internalError returns an error of the bridge, or one that the server is to blame for.
func internalError(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, format, args...)
}

var errOverloaded = internalError("the bridge has too many requests in flight: try again later")

var errTaskID = jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: taskId is not a string, or is empty or too long")

// A timer runs a function later.
type timer struct {
	at time.Time
	do func()
	// index is the position in the heap, or -1.
	index int
}

// timers is the heap.Interface of timers, the next one first.
type timers []*timer

func (t timers) Len() int { return len(t) }

func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

func (t *timers) Push(x any) {
	x.(*timer).index = len(*t)
	*t = append(*t, x.(*timer))
}

func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	last.index = -1
	return last
}

func (t *timers) add(at time.Time, do func()) *timer {
	x := &timer{at: at, do: do}
	heap.Push(t, x)
	return x
}

// stop stops a timer. x may be nil or stopped.
func (t *timers) stop(x *timer) {
	if x != nil && x.index >= 0 {
		heap.Remove(t, x.index)
	}
}

// run runs the timers that are due.
func (t *timers) run(now time.Time) {
	for len(*t) > 0 && !(*t)[0].at.After(now) {
		heap.Pop(t).(*timer).do()
	}
}

// isProtocolNotification reports if any revision defines the notification. Translators drop those
// that they do not convert, because the other peer could be deceived. They forward unknown
// notifications.
func isProtocolNotification(method string) bool {
	switch method {
	case mcp.NotificationInitialized, mcp.NotificationCancelled, mcp.NotificationProgress, mcp.NotificationMessage, mcp.NotificationToolsChanged,
		mcp.NotificationResourcesChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourceUpdated, mcp.NotificationRootsChanged,
		mcp.NotificationAcknowledged, mcp.NotificationElicitationComplete, mcp.NotificationTaskStatus, mcp.NotificationTasks:
		return true
	}
	return false
}
