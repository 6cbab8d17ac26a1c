package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

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
