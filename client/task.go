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
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
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

// Wait waits for the end of the task and returns the tool's result, as [Client.CallTool] does. It asks the server for the task's state from time to
// time, at the pace that the server wishes, and at once when the server tells of a change. Questions that the task has go to the handlers of [Options].
//
// A task that failed is the *[jsonrpc.Error] that the server answers in place of a result, one that was cancelled is [ErrTaskCanceled]. When ctx ends, or the
// server cannot be reached, the task goes on and Wait can be called again.
func (t *Task) Wait(ctx context.Context) (*mcp.CallToolResult, error) {
	tr, err := t.wait(ctx)
	if err != nil {
		return nil, err
	}
	return tr.decode()
}

// WaitTask is [Task.Wait] with the result decoded as the function [CallTool] does it.
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
	if tr, err = parseToolResult(t.result); err == nil {
		err = t.c.checkOutput(ctx, t.tool, &tr)
	}
	return tr, err
}

// pollUntilDone polls until the task has ended, and returns its result or its error. If it has not, the error says why nobody follows it any more.
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
		if state.Status != "" { // a new handle knows nothing
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
				updates = t.c.subscribeTask(ctx, state.ID)
			}
		case mcp.TaskStatusInputRequired:
			if !t.c.Modern() {
				result, err, ended := t.fetchResult(ctx)
				if ended {
					t.refresh(ctx) // what has become of it; the result stands if that cannot be told
				}
				return result, err, ended
			}
			if err := t.answerInputRequests(ctx, jsonwire.Lookup(raw, "inputRequests")); err != nil {
				return nil, err, false
			}
		case mcp.TaskStatusCancelled:
			return nil, ErrTaskCanceled, true
		case mcp.TaskStatusCompleted, mcp.TaskStatusFailed:
			if !t.c.Modern() {
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

// taskOutcome takes the result or the error out of a task that has ended, as the extension has it.
func taskOutcome(status mcp.TaskStatus, raw []byte) (result []byte, err error, ended bool) {
	name := "result"
	if status == mcp.TaskStatusFailed {
		name = "error"
	}
	text := jsonwire.Lookup(raw, name)
	switch {
	case len(text) == 0 || text[0] != '{':
		return nil, &ProtocolError{Method: mcp.MethodTasksGet, Reason: fmt.Sprintf("the task has %s, but there is no %s", status, name)}, false
	case status == mcp.TaskStatusFailed:
		return nil, parseError(text), true
	}
	return text, nil, true
}

// fetchResult gets a legacy task's result, which waits for the end of the task. It is also how the server gets to ask its questions.
func (t *Task) fetchResult(ctx context.Context) (result []byte, err error, ended bool) {
	r := &request{method: mcp.MethodTasksResult, params: taskParams(t.ID()), repeatable: true, opts: callOptions{timeout: -1, maxTimeout: -1}, callbacks: t.callbacks}
	result, err = t.c.roundTrip(ctx, r)
	return result, err, err == nil || IsPeer(err)
}

// answerInputRequests has the handlers answer those of the task's questions that were not answered yet.
func (t *Task) answerInputRequests(ctx context.Context, requests []byte) error {
	var keys []string
	pending := []byte{'{'}
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		key := members.KeyString()
		if _, done := t.answeredKeys[key]; done {
			continue // the server has not taken the answer in yet
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
	if t.inputRounds >= t.c.opts.MaxRounds {
		return fmt.Errorf("%w: %d times", ErrTooManyRounds, t.inputRounds+1)
	}
	responses, err := t.c.answerInputs(ctx, append(pending, '}'))
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

// subscribeTask has the server tell of changes to a task, if it can; else nil.
func (c *Client) subscribeTask(ctx context.Context, id string) *Subscription {
	if c.noTaskUpdates.Load() {
		return nil
	}
	s := c.openSubscription(ctx, mcp.SubscriptionFilter{TaskIDs: []string{id}})
	if s == nil {
		return nil
	}
	c.goroutines.start(func() {
		select {
		case <-s.acknowledged:
			if len(s.Accepted().TaskIDs) > 0 {
				return
			}
			s.Close()
		case <-s.done:
		}
		if err := s.Err(); err == nil || IsPeer(err) {
			c.noTaskUpdates.Store(true)
		}
	})
	return s
}

// waitToolTask waits for the task that a call has become. The task is given up when nobody waits for it any more: it has no other handle.
func (c *Client) waitToolTask(ctx context.Context, t *Task, r *request) (toolResult, error) {
	ctx, cancel := c.withToolDeadline(ctx, r)
	defer cancel()
	tr, err := t.wait(ctx)
	if err == nil || t.hasEnded() {
		return tr, err
	}
	if timeoutErr, ok := errors.AsType[*TimeoutError](context.Cause(ctx)); ok {
		err = t.wrapError(timeoutErr)
	}
	c.goroutines.start(func() { c.cancelTask(t) })
	return tr, err
}

// cancelTask cancels a task that nobody waits for any more.
func (c *Client) cancelTask(t *Task) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	if err := t.Cancel(ctx); err != nil {
		c.log.Info("task not cancelled", "task", t.ID(), "error", err)
	}
}

// cancelPendingTask cancels the task that a legacy server makes of a call, once it has a name: the call itself must not be cancelled. It reports false if the
// client has ended.
func (c *Client) cancelPendingTask(p *jsonrpc.Pending) bool {
	return c.goroutines.start(func() {
		timer := time.NewTimer(cancelTimeout)
		defer timer.Stop()
		select {
		case <-p.Done():
			c.cancelLateTask(p)
		case <-timer.C:
			p.Abandon()
		}
	})
}

// cancelLateTask cancels the task that a call has become whose answer nobody else waits for. A result or
// an error is dropped.
func (c *Client) cancelLateTask(p *jsonrpc.Pending) {
	raw, err := p.Result()
	if err != nil {
		return
	}
	if state, err := c.parseTaskResult(raw); err == nil && state != nil {
		c.cancelTask(c.newTask(*state, "", callOptions{}, nil))
	}
}

// cancelPossibleTask gives up a call of which a modern server may make a task: the server is told, as
// [jsonrpc.Pending.Cancel] does it, and if it has made a task all the same, that is cancelled when
// its name gets here. It reports false if the call is to be given up like any other.
func (cn *connection) cancelPossibleTask(p *jsonrpc.Pending, reason string) bool {
	select {
	case <-p.Done():
		return false
	default:
	}
	w := &cn.c.withdrawnCalls
	evicted := w.add(p)
	name, params := era.Cancellation{}.Notice(p.ID(), mcp.MethodToolsCall, reason)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that nothing waits for a server that does not read
	if cn.rpc.Notify(ctx, name, params) != nil {
		w.remove(p)
		return false
	}
	if !cn.c.goroutines.start(func() {
		timer := time.NewTimer(cancelTimeout)
		defer timer.Stop()
		select {
		case <-p.Done():
			w.remove(p)
			cn.c.cancelLateTask(p)
		case <-timer.C:
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

// maxWithdrawn is how many calls may be withdrawn at once. One more, and the oldest is forgotten.
const maxWithdrawn = 256

// withdrawnCalls are the calls that [link.withdraw] has given up and that have no answer yet. The zero
// value has none.
type withdrawnCalls struct {
	mu    sync.Mutex
	calls []withdrawnCall // the oldest first
}

type withdrawnCall struct {
	*jsonrpc.Pending
	id      jsonrpc.ID
	evicted chan struct{} // closed when its answer is of no interest any more
}

// add lists a call.
func (w *withdrawnCalls) add(p *jsonrpc.Pending) (forgotten <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) >= maxWithdrawn {
		if oldest := w.calls[0]; oldest.Abandon() { // else its answer is about to be looked at
			close(oldest.evicted)
		}
		w.calls = slices.Delete(w.calls, 0, 1)
	}
	call := withdrawnCall{p, p.ID(), make(chan struct{})}
	w.calls = append(w.calls, call)
	return call.evicted
}

func (w *withdrawnCalls) remove(p *jsonrpc.Pending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = slices.DeleteFunc(w.calls, func(c withdrawnCall) bool { return c.Pending == p })
}

// has reports whether the call with that id is listed.
func (w *withdrawnCalls) has(id jsonrpc.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.calls, func(c withdrawnCall) bool { return c.id.Equal(id) })
}

// cancelTimeout is how long either step of the cancellation of a task may take that nobody waits for.
const cancelTimeout = 5 * time.Second

// Waits between two questions for a task's state. A server that has no wish is asked less and less often as long as nothing changes.
const (
	minTaskPoll        = 100 * time.Millisecond
	initialTaskPoll    = 500 * time.Millisecond
	maxDefaultTaskPoll = 15 * time.Second
	maxTaskPoll        = 5 * time.Minute // however long a server wishes
)

// A pollBackoff says when to ask next. The zero value is for when something has just changed.
type pollBackoff struct{ last time.Duration }

// next returns how long to wait. Some of it is left to chance, so that clients that began together do not go on together.
func (p *pollBackoff) next(requested time.Duration) time.Duration {
	d := min(max(requested, minTaskPoll), maxTaskPoll)
	if requested <= 0 {
		d = min(max(p.last*3/2, initialTaskPoll), maxDefaultTaskPoll)
	}
	p.last = d
	return d + rand.N(d/5)
}

// wait waits until it is time to ask, or until the server has news. Meanwhile it runs the callbacks of the watch.
func (p *pollBackoff) wait(ctx context.Context, requested time.Duration, updates *Subscription, q *callbackQueue) error {
	timer := time.NewTimer(p.next(requested))
	defer timer.Stop()
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
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Tasks yields the tasks that a legacy server has for this client, page by page. Modern servers do not list tasks, nor do those of revisions without
// them: the error wraps [errors.ErrUnsupported]. Keep the ids, see [Client.Task].
func (c *Client) Tasks(ctx context.Context) iter.Seq2[TaskState, error] {
	return listAll(ctx, c, mcp.MethodTasksList, c.listTasks, func(t *TaskState) string { return t.ID })
}

func (c *Client) listTasks(ctx context.Context, cursor *string) (tasks []TaskState, next *string, err error) {
	if !era.Of(c.Revision()).CoreTasks {
		return nil, nil, fmt.Errorf("list tasks: revision %v: %w", c.Revision(), errors.ErrUnsupported)
	}
	raw, err := c.roundTrip(ctx, &request{method: mcp.MethodTasksList, params: cursorParams(cursor), repeatable: true})
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
	if s, ok := stringValue(jsonwire.Lookup(raw, "nextCursor")); ok {
		next = &s
	}
	return tasks, next, nil
}
