package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A taskRun is a tool call whose handler runs on its own goroutine, so that it can continue as a
// task.
//
// It is in one of three states, guarded by mu: the request waits for it; it is a task, independent
// of the request (becameTask); or it will be answered directly, because the handler has returned or
// needs input from the client first (direct).
type taskRun struct {
	tasks *taskManager
	call  *Call
	// task is the initial task. Its ID and Owner do not change.
	task Task
	args []byte

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu         sync.Mutex
	becameTask bool
	direct     bool
	// release frees the slot.
	release func()

	// done is closed when the handler has returned.
	done chan struct{}
	out  []byte
	err  error
}

var (
	errTasksFull    = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks are running on this server: try again later")
	errTaskCanceled = errors.New("the task was cancelled")
	errTasksClosed  = errors.New("the server was closed")
	errTaskExited   = errors.New("handler ended its goroutine")
)

// start runs the handler. If the handler panics or exits its goroutine, only this task fails.
func (tr *taskRun) start(invoke func(c *Call, args, dst []byte) ([]byte, error)) {
	go func() {
		defer func() {
			if tr.isTask() {
				tr.release()
			}
		}()
		defer close(tr.done)
		var out []byte
		err := errTaskExited
		defer func() { tr.handlerReturned(out, err) }()
		out, err = catchPanic(func() ([]byte, error) { return invoke(tr.call, tr.args, nil) })
	}()
}

// releaseUnlessTask releases the run unless it continues as a task.
func (tr *taskRun) releaseUnlessTask() {
	if !tr.isTask() {
		tr.release()
	}
}

// appendCreated appends the response to a request whose call has become a task.
func (tr *taskRun) appendCreated(dst []byte) []byte {
	c := tr.call
	if tr.task.Core {
		return mcp.Append(dst, &mcp.CreateTaskResult{Task: *tr.task.coreTask()}, c.ex.Revision)
	}
	t := tr.task.extensionTask()
	return c.results().endAs(mcp.Append(dst, &t, c.ex.Revision), mcp.ResultTypeTask)
}

// handlerReturned stores the handler's result.
func (tr *taskRun) handlerReturned(out []byte, err error) {
	tr.mu.Lock()
	begun := tr.becameTask
	tr.direct = !begun
	tr.out, tr.err = out, err
	tr.mu.Unlock()
	if begun {
		tr.storeResult(out, err)
	}
}

// becomeTask creates a task in the store. If it returns false, it has created no task and the
// request is answered directly.
func (tr *taskRun) becomeTask(ctx context.Context) (ok bool, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.direct {
		return false, nil
	}
	defer func() { tr.direct = !ok }()
	if err := context.Cause(tr.ctx); err != nil {
		return false, err
	}
	tm := tr.tasks
	unlock, err := tm.lockOwner(ctx, tr.task.Owner)
	if err != nil {
		return false, err
	}
	defer unlock()
	existing, err := tm.opts.Store.Tasks(ctx, tr.task.Owner, "", tm.opts.MaxTasks)
	switch {
	case err != nil:
		return false, err
	case len(existing) >= tm.opts.MaxTasks:
		return false, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks (limit %d): wait until some expire", tm.opts.MaxTasks)
	}
	if err := tm.opts.Store.Create(ctx, &tr.task); err != nil {
		return false, err
	}
	tr.becameTask = true
	tm.wg.Go(tr.watchStore)
	return true, nil
}

// isTask reports whether the run has become a task, independent of the request.
func (tr *taskRun) isTask() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.becameTask
}

// cancelUnlessTask cancels the handler when its request has ended, unless it is a task.
func (tr *taskRun) cancelUnlessTask(cause error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !tr.becameTask {
		tr.direct = true
		tr.cancel(cause)
	}
}

// cancelIfUnsent cancels a task if the client does not learn of it: because the response
// is not delivered or, if sent is false, because middleware replaced it with an error. A core task
// continues: its owner finds it in the list.
func (tr *taskRun) cancelIfUnsent(r *rpc.Request, sent bool) {
	switch {
	case tr.task.Core || !tr.isTask():
	case sent:
		r.OnUnsent(tr.cancelUnsent)
	default:
		tr.cancelUnsent()
	}
}

// cancelUnsent cancels a task whose ID the client never got. It does not block; Server.Close waits
// for it.
func (tr *taskRun) cancelUnsent() {
	tm := tr.tasks
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if tm.closed {
		return // close cancels all runs
	}
	tm.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tr.ctx), storeTimeout)
		defer cancel()
		tr.updateRetrying(ctx, canceled("The task was cancelled with its request."))
		tr.cancel(errTaskCanceled)
	})
}

// watchStore cancels the handler when the task has ended in the store, for example by another
// process, or is gone.
func (tr *taskRun) watchStore() {
	for version := tr.task.Version; ; {
		t, err := tr.tasks.opts.Store.Wait(tr.ctx, tr.task.ID, version)
		switch {
		case tr.ctx.Err() != nil:
			return
		case errors.Is(err, ErrTaskNotFound), err == nil && t.Ended():
			tr.cancel(errTaskCanceled)
			return
		case err == nil:
			version = t.Version
		case waitUntil(tr.ctx, nil, time.Now().Add(storeRetryInterval)) != nil:
			return
		}
	}
}

// storing returns a context for storing the result. The store may be unavailable for a while, and
// the task would otherwise be working forever. So the context ends only when the task has expired,
// the server was closed or the task was canceled, storeTimeout later.
func (tr *taskRun) storing() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(tr.ctx))
	stop := context.AfterFunc(tr.ctx, func() {
		wait.Sleep(ctx, storeTimeout)
		cancel()
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// storeResult stores the result of the task. A canceled task stays canceled.
func (tr *taskRun) storeResult(out []byte, err error) {
	if err != nil {
		out, err = tr.call.session.srv.inputs.convertURLRequired(tr.call, nil, out, err)
	}
	ctx, cancel := tr.storing()
	defer cancel()
	tr.updateRetrying(ctx, func(t *Task) error {
		t.InputRequests, t.InputResponses = nil, nil
		switch {
		case err != nil:
			t.Status, t.Error = mcp.TaskStatusFailed, jsonrpc.ErrorOf(err)
		default:
			t.Status, t.Result = mcp.TaskStatusCompleted, json.RawMessage(out)
			if t.Core && isErrorResult(out) {
				t.Status = mcp.TaskStatusFailed
			}
		}
		return nil
	})
	if err != nil && jsonrpc.ErrorOf(err).Code == jsonrpc.CodeInternalError && tr.ctx.Err() == nil {
		tr.call.Logger().Error("task failed", "task", tr.task.ID, "error", err)
	}
}

// notify sends a notification that belongs to the task, which cannot belong to a request. In the
// core protocol the progress token stays valid as long as the task runs. The extension has neither
// progress nor log messages.
func (tr *taskRun) notify(method string, params []byte) error {
	switch {
	case !tr.task.Core:
		return nil
	case tr.ctx.Err() != nil:
		return jsonrpc.ErrRequestEnded
	}
	return tr.call.session.peer.sendNotification(tr.call, tr.call, method, withRelatedTask(params, tr.task.ID))
}

const (
	storeTimeout       = 10 * time.Second // for updates after the end of a task or its run
	storeRetryInterval = time.Second      // between attempts if the store fails
)

// updateRetrying updates the stored task. It retries while the store fails, until ctx ends.
func (tr *taskRun) updateRetrying(ctx context.Context, change func(*Task) error) {
	for {
		_, err := tr.update(ctx, change)
		if err == nil || errors.Is(err, errTaskEnded) || errors.Is(err, ErrTaskNotFound) {
			return
		}
		if waitUntil(ctx, nil, time.Now().Add(storeRetryInterval)) != nil {
			tr.call.Logger().Error("the result of a task is lost", "task", tr.task.ID, "error", err)
			return
		}
	}
}

// update changes the stored task unless it has ended, and sends notifications.
func (tr *taskRun) update(ctx context.Context, change func(*Task) error) (*Task, error) {
	return tr.tasks.update(ctx, tr.task.ID, change)
}

// isErrorResult reports whether a tool's result has isError.
func isErrorResult(result []byte) bool {
	return string(jsonwire.Lookup(result, "isError")) == "true"
}

// A taskRequester is the inputRequester of a call that is, or may become, a task. Before it is one,
// the requester of the era does the work.
type taskRequester struct {
	run   *taskRun
	inner inputRequester

	mu sync.Mutex
	// waiting counts the concurrent calls of requestWithTask.
	waiting int
}

func (rq *taskRequester) ask(ctx context.Context, requests []*inputRequest) error {
	run := rq.run
	run.mu.Lock()
	if !run.becameTask {
		defer run.mu.Unlock()
		err := rq.inner.ask(ctx, requests)
		// If the client must respond first, no task is created.
		run.direct = run.direct || errors.Is(err, ErrInputRequired)
		return err
	}
	run.mu.Unlock()
	if run.task.Core {
		return rq.requestWithTask(ctx, requests)
	}
	if r, ok := rq.inner.(*inputRound); ok {
		var err error
		if requests, err = r.applyEarlier(requests); err != nil || len(requests) == 0 {
			return err
		}
	}
	return rq.requestInTask(ctx, requests)
}

// applyEarlier decodes the responses from input rounds before the task, and returns the requests
// without one.
func (rd *inputRound) applyEarlier(requests []*inputRequest) (pending []*inputRequest, err error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	for _, q := range requests {
		got := rd.answers[q.key]
		if got == nil || !got.unbound && got.digest != q.digest() {
			pending = append(pending, q)
		} else if err := q.decode(got.text); err != nil {
			return nil, q.invalid(err)
		}
	}
	return pending, nil
}

// respond implements inputRequester. The result of a task is not converted here but in storeResult.
func (rq *taskRequester) respond(d *inputState, r *rpc.Request, head, out []byte, err error) ([]byte, error) {
	return rq.inner.respond(d, r, head, out, err)
}

// requestWithTask sends requests that name the task. Meanwhile the task's status is input_required.
func (rq *taskRequester) requestWithTask(ctx context.Context, requests []*inputRequest) error {
	for _, q := range requests {
		q.params = withRelatedTask(q.params, rq.run.task.ID)
	}
	err := rq.addWaiting(ctx, 1, mcp.TaskStatusInputRequired)
	if err == nil {
		// The client may not know the task yet, so the requests must not belong to the original
		// one.
		err = rq.inner.ask(rpc.WithoutRequest(ctx), requests)
	}
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	if e := rq.addWaiting(ctx, -1, mcp.TaskStatusWorking); err == nil {
		err = e
	}
	return err
}

// addWaiting changes the count of waiting calls. The first and the last one update the task's
// status.
func (rq *taskRequester) addWaiting(ctx context.Context, more int, status mcp.TaskStatus) error {
	rq.mu.Lock()
	defer rq.mu.Unlock()
	others := rq.waiting + min(more, 0)
	rq.waiting += more
	if others > 0 {
		return nil
	}
	_, err := rq.run.update(ctx, func(t *Task) error { t.Status = status; return nil })
	return err
}

// cleanupContext returns a context for cleanup after ctx has ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}

// requestInTask stores the requests in the task and waits for the responses from tasks/update.
func (rq *taskRequester) requestInTask(ctx context.Context, requests []*inputRequest) error {
	ctx, cancel := joinContext(ctx, rq.run.call)
	defer cancel()
	t, err := rq.run.update(ctx, func(t *Task) error {
		if t.InputRequests == nil {
			t.InputRequests = make(map[string]mcp.InputRequest)
		}
		for _, q := range requests {
			t.InputRequests[q.key] = mcp.InputRequest{Method: q.method, Params: q.params}
		}
		t.Status = mcp.TaskStatusInputRequired
		return nil
	})
	for err == nil && !allAnswered(t, requests) {
		if t.Ended() {
			return errTaskCanceled
		}
		t, err = rq.run.tasks.opts.Store.Wait(ctx, t.ID, t.Version)
	}
	ctx, cancel = cleanupContext(ctx)
	defer cancel()
	if _, e := rq.run.update(ctx, func(t *Task) error { t.removeRequests(requests); return nil }); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	for _, q := range requests {
		if err := q.decode(t.InputResponses[q.key]); err != nil {
			return q.invalid(err)
		}
	}
	return nil
}

func allAnswered(t *Task, requests []*inputRequest) bool {
	return !slices.ContainsFunc(requests, func(q *inputRequest) bool { return t.InputResponses[q.key] == nil })
}

// withRelatedTask returns params, an object or nil, with the task in its _meta.
func withRelatedTask(params []byte, id string) []byte {
	related := append(jsonwire.AppendQuote([]byte(`"`+mcp.MetaRelatedTask+`":{"taskId":`), id), '}')
	meta := jsonwire.Lookup(params, "_meta")
	meta = era.Rewrite([]byte(`"_meta":`), meta, era.Without(mcp.MetaRelatedTask), related)
	return era.Rewrite(nil, params, era.Without("_meta"), meta)
}
