package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ErrTaskCanceled is wrapped by the error of [Task.Wait] if the task was canceled.
var ErrTaskCanceled = errors.New("the task was canceled")

// TaskState is the last known state of a task, in a form that does not depend on the revision.
type TaskState struct {
	// ID is the id that the server gave the task.
	ID     string
	Status mcp.TaskStatus
	// Message is a description for people.
	Message string
	// Created and Updated are the times of the creation and of the last change, by the server's
	// clock.
	Created time.Time
	Updated time.Time
	// TTL is the time after Created when the server may forget the task. Negative means never.
	TTL time.Duration
	// PollInterval is the interval that the server suggests. Zero means none.
	PollInterval time.Duration
}

// A Task is a handle on a tool call that the server continues after its response. Modern servers
// use the extension io.modelcontextprotocol/tasks: they decide which calls become tasks, if
// [Options.Tasks] allows it. In revision 2025-11-25, the client asks for a task. A Task behaves the
// same for both. Multiple goroutines may call its methods at once.
//
// The task belongs to the server. It goes on when nobody waits, and [Client.Task] returns a handle
// for a stored id.
type Task struct {
	c *Client
	// tool is the tool's name, or "" if unknown.
	tool string
	opts callOptions
	// callbacks receive a legacy server's notifications until the end. It is nil without callbacks.
	callbacks *callbackQueue

	// waitSlot has a token while a goroutine waits for the end. It guards the next two fields.
	waitSlot chan struct{}
	// answeredKeys are the keys of answered input requests.
	answeredKeys map[string]struct{}
	// inputRounds counts the input rounds.
	inputRounds int

	mu    sync.Mutex
	state TaskState
	ended bool
	// result is the text of a CallToolResult after the end.
	result []byte
	// err is set instead of result if the task failed.
	err error
}

// A taskTracker starts, watches and cancels the tasks of a Client.
type taskTracker struct {
	c *Client
	// withdrawn are canceled calls that may have become tasks.
	withdrawn withdrawnCalls
	// noUpdates is set if the server sends no task notifications.
	noUpdates atomic.Bool
}

// taskOptions are the options of calls that become tasks.
type taskOptions struct {
	ttl    time.Duration
	status func(TaskState)
}

// WithTaskTTL sets how long a legacy server should keep a task and its result. Modern servers
// decide that themselves.
func WithTaskTTL(d time.Duration) CallOption { return func(o *callOptions) { o.task.ttl = d } }

// WithTaskStatus sets a callback for changes of the task's state. fn runs on the goroutine that
// waits for the task or polls it.
func WithTaskStatus(fn func(TaskState)) CallOption {
	return func(o *callOptions) { o.task.status = fn }
}

// StartTool calls a tool like [Client.CallTool], but does not wait for the task that the server may
// create (see [Options.Tasks]). If the server answers with the result, the Task has already ended.
// StartTool asks a legacy server for a task if the tool supports it, and lists the tools if it does
// not know the tool. The end of ctx cancels a call that is not a task yet, but does not affect a
// task.
func (c *Client) StartTool(ctx context.Context, name string, args any, opts ...CallOption) (*Task, error) {
	info := c.tools.lookup(name)
	r := &request{opts: newCallOptions(opts)}
	if err := c.setToolParams(r, name, args, info); err != nil {
		return nil, err
	}
	asTask := false
	if c.tasks.hasCore() {
		if info == nil {
			var err error
			if info, err = c.tools.findWithin(ctx, r, name); err != nil {
				return nil, err
			}
			r.repeatable = c.tools.isRepeatable(info)
		}
		asTask = info != nil && (info.taskSupport == mcp.TaskSupportRequired || info.taskSupport == mcp.TaskSupportOptional)
	}
	tr, task, err := c.sendTool(ctx, r, name, asTask)
	if err != nil || task != nil {
		return task, err
	}
	task = c.tasks.newTask(TaskState{Status: mcp.TaskStatusCompleted}, name, r.opts, nil)
	task.end(tr.raw, nil)
	return task, nil
}

// request asks a legacy server for a task, which reports progress until its end. release stops
// the progress.
func (tt *taskTracker) request(r *request) (release func()) {
	r.params = appendMember(r.params, `"task":`, taskParam(r.opts.task.ttl))
	q := tt.c.callbacks.newQueue(&r.opts)
	if q != nil {
		q.register()
	}
	r.asTask, r.callbacks = true, q
	return func() { tt.c.callbacks.remove(q) }
}

// hasCore reports whether the server supports tool calls as tasks of revision 2025-11-25.
func (tt *taskTracker) hasCore() bool {
	if !era.Of(tt.c.Revision()).CoreTasks {
		return false
	}
	tasks := tt.c.Profile().Capabilities.Tasks
	return tasks != nil && tasks.Requests != nil && tasks.Requests.Tools != nil && tasks.Requests.Tools.Call != nil
}

// taskParam returns the text of params.task.
func taskParam(ttl time.Duration) []byte {
	if ttl <= 0 {
		return []byte("{}")
	}
	return append(strconv.AppendInt([]byte(`{"ttl":`), ttl.Milliseconds(), 10), '}')
}

// Task returns a handle on a task that this client, or another one of the same user, started
// before. Its state is unknown until [Task.Poll] or [Task.Wait] has asked the server.
func (c *Client) Task(id string, opts ...CallOption) *Task {
	return c.tasks.newTask(TaskState{ID: id}, "", newCallOptions(opts), nil)
}

func (tt *taskTracker) newTask(state TaskState, tool string, o callOptions, q *callbackQueue) *Task {
	t := &Task{c: tt.c, tool: tool, opts: o, state: state, callbacks: q, waitSlot: make(chan struct{}, 1), answeredKeys: make(map[string]struct{})}
	if q != nil {
		runtime.AddCleanup(t, tt.c.callbacks.remove, q) // for a task that nobody waits for
	}
	return t
}

// ID returns the server's id of the task, or "" if the server answered with the result.
func (t *Task) ID() string { return t.State().ID }

// State returns the last known state.
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

// Cancel asks the server to cancel the task. The server may do so later, or the task may end first:
// [Task.Wait] returns the outcome.
func (t *Task) Cancel(ctx context.Context) error {
	if t.hasEnded() {
		return nil
	}
	// A legacy server refuses to cancel a task twice.
	_, err := t.c.roundTrip(ctx, &request{method: mcp.MethodTasksCancel, params: taskParams(t.ID()), repeatable: t.c.Revision().Modern()})
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

// end records the outcome of the task.
func (t *Task) end(result []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.result, t.err = true, result, err
	t.c.callbacks.remove(t.callbacks)
}

// refresh asks the server for the task's state and stores it. raw is the whole response.
func (t *Task) refresh(ctx context.Context) (state TaskState, raw []byte, err error) {
	id := t.ID()
	raw, err = t.c.roundTrip(ctx, &request{method: mcp.MethodTasksGet, params: taskParams(id), repeatable: true, callbacks: t.callbacks})
	if err != nil {
		return state, nil, err
	}
	state, ok := parseTask(raw)
	switch {
	case !ok:
		return state, nil, &ProtocolError{Method: mcp.MethodTasksGet, Reason: "the result is not a task"}
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

// task returns the task in a result of either era, or nil if it is another result.
func (tr *toolResult) task(modern bool) (*TaskState, error) {
	text := tr.raw
	if modern {
		if tr.kind != mcp.ResultTypeTask {
			return nil, nil
		}
	} else if text = tr.coreTask; text == nil || tr.content != nil {
		return nil, nil
	}
	state, ok := parseTask(text)
	if !ok {
		return nil, &ProtocolError{Method: mcp.MethodToolsCall, Reason: "the result is not a task, but has the resultType of one"}
	}
	return &state, nil
}

// parseTask decodes a task of either era. ok is false if it has no id or no status.
func parseTask(text []byte) (s TaskState, ok bool) {
	s.TTL = -1
	millis := func(text []byte) (time.Duration, bool) {
		ms, ok := jsonwire.ParseInt(text)
		return time.Duration(min(max(ms, 0), int64(maxTTL/time.Millisecond))) * time.Millisecond, ok && ms >= 0
	}
	stamp := func(text []byte) time.Time {
		at, _ := time.Parse(time.RFC3339, jsonwire.Text(text)) // zero if malformed: for people
		return at
	}
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		v := members.Value()
		switch members.KeyString() {
		case "taskId":
			s.ID = jsonwire.Text(v)
		case "status":
			s.Status = mcp.TaskStatus(jsonwire.Text(v))
		case "statusMessage":
			s.Message = jsonwire.Text(v)
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

// Wait waits for the end of the task and returns the tool's result, as [Client.CallTool] does. It
// polls at the interval that the server suggests, and at once when the server reports a change. The
// handlers in [Options.Input] serve the task's input requests.
//
// The error of a failed task is the server's *[jsonrpc.Error], and that of a canceled task is
// [ErrTaskCanceled]. When ctx ends or the server cannot be reached, the task goes on, and Wait can
// be called again.
func (t *Task) Wait(ctx context.Context) (*mcp.CallToolResult, error) {
	tr, err := t.wait(ctx)
	if err != nil {
		return nil, err
	}
	return tr.decode(t.c)
}

// WaitTask is [Task.Wait] followed by the decoding of the function [CallTool].
func WaitTask[Out any](ctx context.Context, t *Task) (Out, error) {
	tr, err := t.wait(ctx)
	if err != nil {
		var none Out
		return none, err
	}
	return toolOutput[Out](t.c, t.tool, &tr)
}

func (t *Task) wait(ctx context.Context) (tr toolResult, err error) {
	select {
	case t.waitSlot <- struct{}{}:
		defer func() { <-t.waitSlot }()
	case <-ctx.Done():
		return tr, t.wrapError(context.Cause(ctx))
	}
	if !t.hasEnded() {
		result, err, ended := t.pollUntilDone(ctx)
		if !ended {
			return tr, t.wrapError(err)
		}
		t.end(result, err)
	}
	if t.err != nil {
		return tr, t.wrapError(t.err)
	}
	tr = parseToolMembers(t.result)
	if err = tr.check(); err == nil {
		err = t.c.tools.checkOutput(ctx, t.tool, &tr)
	}
	return tr, err
}

// pollUntilDone polls until the task has ended and returns its result or error. If ended is false,
// the error is the reason why polling stopped before.
func (t *Task) pollUntilDone(ctx context.Context) (result []byte, err error, ended bool) {
	var poll pollBackoff
	var updates *Subscription
	defer func() {
		if updates != nil {
			updates.Close()
		}
	}()
	state, raw := t.State(), []byte(nil)
	for {
		if state.Status != "" { // a new handle has no state
			if err := poll.wait(ctx, state.PollInterval, updates, t.callbacks); err != nil {
				return nil, err, false
			}
		}
		before := state
		if state, raw, err = t.refresh(ctx); err != nil {
			return nil, err, false
		}
		switch state.Status {
		case mcp.TaskStatusWorking:
			if updates == nil {
				updates = t.c.tasks.subscribe(ctx, state.ID)
			}
		case mcp.TaskStatusInputRequired:
			if !t.c.Revision().Modern() {
				result, err, ended := t.fetchResult(ctx)
				if ended {
					t.refresh(ctx) // for the final state; the result is valid without it
				}
				return result, err, ended
			}
			if err := t.answerInputRequests(ctx, jsonwire.Lookup(raw, "inputRequests")); err != nil {
				return nil, err, false
			}
		case mcp.TaskStatusCancelled:
			return nil, ErrTaskCanceled, true
		case mcp.TaskStatusCompleted, mcp.TaskStatusFailed:
			if !t.c.Revision().Modern() {
				return t.fetchResult(ctx)
			}
			return taskOutcome(state.Status, raw)
		default:
			return nil, &ProtocolError{Method: mcp.MethodTasksGet, Reason: fmt.Sprintf("status is %.40q", state.Status)}, false
		}
		if state != before {
			poll = pollBackoff{}
		}
	}
}

// taskOutcome returns the result or the error of a task of the extension that has ended.
func taskOutcome(status mcp.TaskStatus, raw []byte) (result []byte, err error, ended bool) {
	name := "result"
	if status == mcp.TaskStatusFailed {
		name = "error"
	}
	text := jsonwire.Lookup(raw, name)
	switch {
	case len(text) == 0 || text[0] != '{':
		return nil, &ProtocolError{Method: mcp.MethodTasksGet, Reason: fmt.Sprintf("the task is %s, but has no %s", status, name)}, false
	case status == mcp.TaskStatusFailed:
		return nil, (&jsonrpc.Message{Kind: jsonrpc.KindError, Error: text}).Err(), true
	}
	return text, nil, true
}

// fetchResult waits for a legacy task's end and returns the result. The server sends its input
// requests meanwhile.
func (t *Task) fetchResult(ctx context.Context) (result []byte, err error, ended bool) {
	r := &request{method: mcp.MethodTasksResult, params: taskParams(t.ID()), repeatable: true, opts: callOptions{timeout: -1, maxTimeout: -1}, callbacks: t.callbacks}
	result, err = t.c.roundTrip(ctx, r)
	return result, err, err == nil || IsServerError(err)
}

// answerInputRequests runs the handlers of the task's input requests that were not answered yet.
func (t *Task) answerInputRequests(ctx context.Context, requests []byte) error {
	var keys []string
	pending := []byte{'{'}
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		key := members.KeyString()
		if _, done := t.answeredKeys[key]; done {
			continue // the server has not processed the response yet
		}
		if len(keys) > 0 {
			pending = append(pending, ',')
		}
		keys = append(keys, key)
		pending = append(append(jsonwire.AppendQuote(pending, key), ':'), members.Value()...)
	}
	if len(keys) == 0 {
		return nil
	}
	if t.inputRounds >= t.c.opts.Input.MaxRounds {
		return fmt.Errorf("%w: %d times", errTooManyRounds, t.inputRounds+1)
	}
	responses, err := t.c.inputs.answer(ctx, append(pending, '}'))
	if err != nil {
		return err
	}
	params := appendMember(taskParams(t.ID()), `"inputResponses":`, responses)
	if _, err := t.c.roundTrip(ctx, &request{method: mcp.MethodTasksUpdate, params: params, repeatable: true}); err != nil {
		return err
	}
	t.inputRounds++
	for _, key := range keys {
		t.answeredKeys[key] = struct{}{}
	}
	return nil
}

// subscribe subscribes to changes of a task. It returns nil if the server does not support that.
func (tt *taskTracker) subscribe(ctx context.Context, id string) *Subscription {
	if tt.noUpdates.Load() {
		return nil
	}
	s := tt.c.subs.open(ctx, mcp.SubscriptionFilter{TaskIDs: []string{id}})
	if s == nil {
		return nil
	}
	tt.c.goroutines.Start(func() {
		select {
		case <-s.acknowledged:
			if len(s.Accepted().TaskIDs) > 0 {
				return
			}
			s.Close()
		case <-s.done:
		}
		if err := s.Err(); err == nil || IsServerError(err) {
			tt.noUpdates.Store(true)
		}
	})
	return s
}

// waitTool waits for the task of a tool call. It cancels the task if the wait ends first,
// because the caller has no handle.
func (tt *taskTracker) waitTool(ctx context.Context, t *Task, r *request) (toolResult, error) {
	ctx, cancel := tt.c.withToolDeadline(ctx, r)
	defer cancel()
	tr, err := t.wait(ctx)
	if err == nil || t.hasEnded() {
		return tr, err
	}
	if timeoutErr, ok := errors.AsType[*TimeoutError](context.Cause(ctx)); ok {
		err = t.wrapError(timeoutErr)
	}
	tt.c.goroutines.Start(func() { tt.cancel(t) })
	return tr, err
}

// cancel cancels a task that nobody waits for.
func (tt *taskTracker) cancel(t *Task) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	if err := t.Cancel(ctx); err != nil {
		tt.c.log.Info("task not cancelled", "task", t.ID(), "error", err)
	}
}

// cancelPending cancels the task that a legacy server creates for a call, once its id is known.
// The call itself must not be canceled. It returns false if the client has ended.
func (tt *taskTracker) cancelPending(p *rpc.Pending) bool {
	return tt.c.goroutines.Start(func() {
		select {
		case <-p.Done():
			tt.cancelLate(p)
		case <-time.After(cancelTimeout):
			p.Abandon()
		}
	})
}

// cancelLate cancels the task in the response to a call that nobody waits for. It drops a result
// or an error.
func (tt *taskTracker) cancelLate(p *rpc.Pending) {
	raw, err := p.Result()
	if err != nil {
		return
	}
	tr := parseToolMembers(raw)
	if state, err := tr.task(tt.c.Revision().Modern()); err == nil && state != nil {
		tt.cancel(tt.newTask(*state, "", callOptions{}, nil))
	}
}

// cancelPossibleTask cancels a call that a modern server may turn into a task. It notifies the
// server like [rpc.Pending.Cancel], and cancels a task that the server has created all the same
// once its id arrives. It returns false if the call must be canceled like any other.
func (cn *connection) cancelPossibleTask(p *rpc.Pending, reason string) bool {
	if len(p.Done()) > 0 { // the response came first
		return false
	}
	w := &cn.c.tasks.withdrawn
	evicted := w.add(p)
	name, params := era.Cancellation{}.Notice(p.ID(), mcp.MethodToolsCall, reason)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // do not wait for a server that does not read
	if cn.rpc.Notify(ctx, name, params) != nil {
		w.remove(p)
		return false
	}
	if !cn.c.goroutines.Start(func() {
		select {
		case <-p.Done():
			w.remove(p)
			cn.c.tasks.cancelLate(p)
		case <-time.After(cancelTimeout):
			p.Abandon()
			w.remove(p)
		case <-evicted:
		}
	}) {
		p.Abandon()
		w.remove(p)
	}
	return true
}

// maxWithdrawn limits the withdrawn calls. Beyond it, the oldest one is dropped.
const maxWithdrawn = 256

// withdrawnCalls are the calls that cancelPossibleTask has canceled and that have no response yet.
// The zero value is empty.
type withdrawnCalls struct {
	mu sync.Mutex
	// calls has the oldest call first.
	calls []withdrawnCall
}

type withdrawnCall struct {
	*rpc.Pending
	id jsonrpc.ID
	// evicted is closed when the call is dropped for a newer one.
	evicted chan struct{}
}

// add adds a call. The channel is closed when the call is evicted.
func (w *withdrawnCalls) add(p *rpc.Pending) (evicted <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) >= maxWithdrawn {
		if oldest := w.calls[0]; oldest.Abandon() { // else its response is being handled
			close(oldest.evicted)
		}
		w.calls = slices.Delete(w.calls, 0, 1)
	}
	call := withdrawnCall{p, p.ID(), make(chan struct{})}
	w.calls = append(w.calls, call)
	return call.evicted
}

func (w *withdrawnCalls) remove(p *rpc.Pending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = slices.DeleteFunc(w.calls, func(c withdrawnCall) bool { return c.Pending == p })
}

// has reports whether the call with that id is withdrawn.
func (w *withdrawnCalls) has(id jsonrpc.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.calls, func(c withdrawnCall) bool { return c.id.Equal(id) })
}

// cancelTimeout limits each step of the cancellation of a task that nobody waits for.
const cancelTimeout = 5 * time.Second

// Waits between two polls of a task. Without a suggestion by the server, they grow while the state
// stays the same.
const (
	minTaskPoll        = 100 * time.Millisecond
	initialTaskPoll    = 500 * time.Millisecond
	maxDefaultTaskPoll = 15 * time.Second
	maxTaskPoll        = 5 * time.Minute // limit of the server's suggestion
)

// A pollBackoff computes the wait before the next poll. The zero value follows a change of state.
type pollBackoff struct{ last time.Duration }

// next returns how long to wait. A random part keeps clients that started together from polling
// together.
func (p *pollBackoff) next(requested time.Duration) time.Duration {
	d := min(max(requested, minTaskPoll), maxTaskPoll)
	if requested <= 0 {
		d = min(max(p.last*3/2, initialTaskPoll), maxDefaultTaskPoll)
	}
	p.last = d
	return d + rand.N(d/5)
}

// wait waits until it is time to poll or the server reports a change. Meanwhile it runs the
// callbacks in q.
func (p *pollBackoff) wait(ctx context.Context, requested time.Duration, updates *Subscription, q *callbackQueue) error {
	late := time.After(p.next(requested))
	var ready <-chan struct{}
	if updates != nil {
		ready = updates.queue.ready
	}
	for {
		select {
		case <-ready:
			if _, ok, ended := updates.queue.tryNext(); ok {
				return nil
			} else if ended {
				ready = nil
			}
		case <-q.ready():
			q.deliver()
		case <-late:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Tasks yields the tasks that a legacy server has for this client, page by page. Modern servers,
// and legacy revisions without tasks, do not list them: the error wraps [errors.ErrUnsupported].
// Store the ids instead, see [Client.Task].
func (c *Client) Tasks(ctx context.Context) iter.Seq2[TaskState, error] {
	return listAll(ctx, c, mcp.MethodTasksList, c.tasks.list, func(t *TaskState) string { return t.ID })
}

func (tt *taskTracker) list(ctx context.Context, cursor *string) (tasks []TaskState, next *string, err error) {
	if !era.Of(tt.c.Revision()).CoreTasks {
		return nil, nil, fmt.Errorf("list tasks: revision %v: %w", tt.c.Revision(), errors.ErrUnsupported)
	}
	raw, err := tt.c.roundTrip(ctx, &request{method: mcp.MethodTasksList, params: cursorParams(cursor), repeatable: true})
	if err != nil {
		return nil, nil, err
	}
	elements := jsonwire.ArrayElements(jsonwire.Lookup(raw, "tasks"))
	for elements.Next() {
		state, ok := parseTask(elements.Value())
		if !ok {
			return nil, nil, &ProtocolError{Method: mcp.MethodTasksList, Reason: "a task has no id or no status"}
		}
		tasks = append(tasks, state)
	}
	if s, ok := jsonwire.String(jsonwire.Lookup(raw, "nextCursor")); ok {
		next = &s
	}
	return tasks, next, nil
}
