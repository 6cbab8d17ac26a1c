package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ErrTaskCanceled is wrapped by the error of [Task.Wait] if the task was cancelled.
var ErrTaskCanceled = errors.New("the task was cancelled")

// TaskState is what a server last said of a task, in the terms of no particular revision.
type TaskState struct {
	ID           string
	Status       mcp.TaskStatus
	Message      string // for people
	Created      time.Time
	Updated      time.Time
	TTL          time.Duration // from Created, after which the server may forget the task; negative is never
	PollInterval time.Duration // the server's wish; 0 is none
}

// A Task is a handle on a tool call that a server goes on with after it has answered. There are two designs: the extension io.modelcontextprotocol/tasks of
// modern servers, which decide themselves what to make a task of and must be told by [Options.Tasks] that they may, and that of revision 2025-11-25, where
// the client asks for one. A Task behaves the same for both. Its methods may be called by many goroutines at once.
//
// The server holds the task, not this Task: it goes on when nobody waits, and [Client.Task] makes a handle from an id that was kept.
type Task struct {
	c         *Client
	tool      string // "" if it is not known
	opts      callOptions
	callbacks *callbackQueue // for what a legacy server tells until the end; nil if nobody wants to hear it

	waitSlot     chan struct{}       // has a token while somebody waits for the end; guards:
	answeredKeys map[string]struct{} // keys of questions
	inputRounds  int                 // of questions

	mu     sync.Mutex
	state  TaskState
	ended  bool
	result []byte // text of a CallToolResult, once ended
	err    error  // instead of it
}

// taskOptions are the options of calls that become tasks.
type taskOptions struct {
	ttl    time.Duration
	status func(TaskState)
}

// WithTaskTTL tells a legacy server how long a task, and its result, should be kept. Modern servers decide that themselves.
func WithTaskTTL(d time.Duration) CallOption { return func(o *callOptions) { o.task.ttl = d } }

// WithTaskStatus has fn called with what the server says of the call's task, whenever that has changed, on the goroutine that waits for the task or polls.
func WithTaskStatus(fn func(TaskState)) CallOption {
	return func(o *callOptions) { o.task.status = fn }
}

// StartTool calls a tool as [Client.CallTool] does, without waiting for the task that the server makes of it, if it may (see [Options.Tasks]). A server
// that answers with the result right away makes a Task that has ended already, so callers need not care. A legacy server is asked for a task if the tool can
// be one (the client lists the tools if it doesn't know it). The end of ctx cancels a call that has not become a task yet, and does nothing to a task.
func (c *Client) StartTool(ctx context.Context, name string, args any, opts ...CallOption) (*Task, error) {
	startedAt := time.Now()
	info := c.tools.lookup(name)
	r, err := c.toolRequest(name, args, info, newCallOptions(opts), startedAt)
	if err != nil {
		return nil, err
	}
	asTask := false
	if c.hasCoreTasks() {
		if info == nil {
			if info, err = c.findToolWithin(ctx, r, name); err != nil {
				return nil, err
			}
			r.repeatable = c.isRepeatableTool(info)
		}
		asTask = info != nil && (info.taskSupport == mcp.TaskSupportRequired || info.taskSupport == mcp.TaskSupportOptional)
	}
	raw, task, err := c.sendTool(ctx, r, name, asTask)
	if err != nil || task != nil {
		return task, err
	}
	task = c.newTask(TaskState{Status: mcp.TaskStatusCompleted}, name, r.opts, nil)
	task.end(raw, nil)
	return task, nil
}

// requestTask makes the request one for a task of a legacy server, which tells of progress until that has ended. release undoes the latter.
func (c *Client) requestTask(r *request) (release func()) {
	r.params = appendMember(r.params, `"task":`, taskParam(r.opts.task.ttl))
	q := c.newCallbackQueue(&r.opts)
	if q != nil {
		q.register()
	}
	r.asTask, r.callbacks = true, q
	return func() { c.callbacks.remove(q) }
}

// hasCoreTasks reports whether the server takes calls of tools as tasks, by the design of 2025-11-25.
func (c *Client) hasCoreTasks() bool {
	if !era.Of(c.Revision()).CoreTasks {
		return false
	}
	tasks := c.ServerCapabilities().Tasks
	return tasks != nil && tasks.Requests != nil && tasks.Requests.Tools != nil && tasks.Requests.Tools.Call != nil
}

// taskParam is the text of params.task.
func taskParam(ttl time.Duration) []byte {
	if ttl <= 0 {
		return []byte("{}")
	}
	return append(strconv.AppendInt([]byte(`{"ttl":`), ttl.Milliseconds(), 10), '}')
}

// Task returns a handle on a task that was started before, by this client or another one of the same user. Nothing is known of its state until
// [Task.Poll] or [Task.Wait] has asked the server.
func (c *Client) Task(id string, opts ...CallOption) *Task {
	return c.newTask(TaskState{ID: id}, "", newCallOptions(opts), nil)
}

func (c *Client) newTask(state TaskState, tool string, o callOptions, q *callbackQueue) *Task {
	t := &Task{c: c, tool: tool, opts: o, state: state, callbacks: q, waitSlot: make(chan struct{}, 1), answeredKeys: make(map[string]struct{})}
	if q != nil {
		runtime.AddCleanup(t, c.callbacks.remove, q) // of a task that nobody waits for
	}
	return t
}

// ID returns the id by which the server knows the task; "" if it has answered with the result instead of making one.
func (t *Task) ID() string { return t.State().ID }

// State returns what was last heard of the task.
func (t *Task) State() TaskState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// Poll asks the server for the state of the task.
func (t *Task) Poll(ctx context.Context) (TaskState, error) {
	if t.hasEnded() {
		return t.State(), nil
	}
	state, _, err := t.refresh(ctx)
	if err != nil {
		return state, t.wrapError(err)
	}
	return state, nil
}

// Cancel asks the server to give the task up. It may take some time to do so, or be done before: [Task.Wait] tells.
func (t *Task) Cancel(ctx context.Context) error {
	if t.hasEnded() {
		return nil
	}
	// A legacy server refuses the second time.
	_, err := t.c.roundTrip(ctx, &request{method: mcp.MethodTasksCancel, params: taskParams(t.ID()), repeatable: t.c.Modern()})
	if err != nil {
		return t.wrapError(err)
	}
	return nil
}

func (t *Task) wrapError(err error) error { return fmt.Errorf("task %q: %w", t.ID(), err) }

func (t *Task) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// end records how the task has ended.
func (t *Task) end(result []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.result, t.err = true, result, err
	t.c.callbacks.remove(t.callbacks)
}

// refresh asks for the task's state and keeps it. raw is all that was answered.
func (t *Task) refresh(ctx context.Context) (state TaskState, raw []byte, err error) {
	id := t.ID()
	raw, err = t.c.roundTrip(ctx, &request{method: mcp.MethodTasksGet, params: taskParams(id), repeatable: true, callbacks: t.callbacks})
	if err != nil {
		return state, nil, err
	}
	state, ok := parseTask(raw)
	switch {
	case !ok:
		return state, nil, &ProtocolError{Method: mcp.MethodTasksGet, Reason: "the result is no task"}
	case state.ID != id:
		return state, nil, &ProtocolError{Method: mcp.MethodTasksGet, Reason: fmt.Sprintf("the result is another task, %.40q", state.ID)}
	}
	t.mu.Lock()
	changed := t.state != state
	t.state = state
	t.mu.Unlock()
	if changed && t.opts.task.status != nil {
		t.opts.task.status(state)
	}
	return state, raw, nil
}

func taskParams(id string) []byte {
	return append(jsonwire.AppendQuote([]byte(`{"taskId":`), id), '}')
}

// parseTaskResult returns the task that a tool call was answered with, nil if it was answered with something else.
func (c *Client) parseTaskResult(raw []byte) (*TaskState, error) {
	text := raw
	if c.Modern() {
		if era.ResultType(raw) != mcp.ResultTypeTask {
			return nil, nil
		}
	} else if text = jsonwire.Lookup(raw, "task"); text == nil || jsonwire.Lookup(raw, "content") != nil {
		return nil, nil
	}
	state, ok := parseTask(text)
	if !ok {
		return nil, &ProtocolError{Method: mcp.MethodToolsCall, Reason: "the result is no task, but says it is"}
	}
	return &state, nil
}

// parseTask reads a task of either design. ok is false if it has no id or no status.
func parseTask(text []byte) (s TaskState, ok bool) {
	s.TTL = -1
	millis := func(text []byte) (time.Duration, bool) {
		ms, ok := jsonwire.ParseInt(text)
		return time.Duration(min(max(ms, 0), int64(maxTTL/time.Millisecond))) * time.Millisecond, ok && ms >= 0
	}
	stamp := func(text []byte) time.Time {
		name, _ := stringValue(text)
		at, _ := time.Parse(time.RFC3339, name) // the zero time if it is malformed: it is for people
		return at
	}
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		v := members.Value()
		switch members.KeyString() {
		case "taskId":
			s.ID, _ = stringValue(v)
		case "status":
			status, _ := stringValue(v)
			s.Status = mcp.TaskStatus(status)
		case "statusMessage":
			s.Message, _ = stringValue(v)
		case "createdAt":
			s.Created = stamp(v)
		case "lastUpdatedAt":
			s.Updated = stamp(v)
		case "ttl", "ttlMs":
			if d, ok := millis(v); ok {
				s.TTL = d
			}
		case "pollInterval", "pollIntervalMs":
			s.PollInterval, _ = millis(v)
		}
	}
	return s, s.ID != "" && s.Status != ""
}

// parseError decodes the text of an error object.
func parseError(text []byte) *jsonrpc.Error {
	return (&jsonrpc.Message{Kind: jsonrpc.KindError, Error: text}).Err()
}
