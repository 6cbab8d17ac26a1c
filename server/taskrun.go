package server

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"mcpwire/internal/defaults"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// taskManager manages the tasks of a server with TaskOptions.
type taskManager struct {
	opts TaskOptions
	// slots holds one element for each running task.
	slots chan struct{}

	mu sync.Mutex
	// runs holds the runs by task ID, including those that are not tasks yet.
	runs map[string]*taskRun
	// creating holds a channel for each owner whose task is being created. It is closed afterwards.
	creating map[string]chan struct{}
	// lastID is the number in the last ID.
	lastID uint64
	closed bool
	// wg counts the runs and their goroutines.
	wg sync.WaitGroup
}

func newTaskManager(opts TaskOptions) *taskManager {
	if opts.Store == nil {
		opts.Store = NewTaskStore()
	} else {
		opts.Store = guardedTaskStore{opts.Store}
	}
	defaults.IfNotPositive(&opts.TTL, defaultTaskTTL)
	defaults.IfNotPositive(&opts.PollInterval, defaultTaskPoll)
	defaults.IfNotPositive(&opts.MaxTasks, defaultMaxTasks)
	defaults.IfNotPositive(&opts.MaxRunning, defaultMaxRunning)
	return &taskManager{opts: opts, slots: make(chan struct{}, opts.MaxRunning), runs: make(map[string]*taskRun), creating: make(map[string]chan struct{})}
}

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

// newRun takes a slot for a tool call and prepares it to become a task. The caller must end it with
// releaseUnlessTask.
func (tm *taskManager) newRun(c *Call, args []byte, ttl time.Duration) (*taskRun, error) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if tm.closed {
		return nil, errTasksClosed
	}
	select {
	case tm.slots <- struct{}{}:
	default:
		return nil, errTasksFull
	}
	now := time.Now()
	run := &taskRun{
		tasks: tm, call: c, args: append([]byte(nil), args...), done: make(chan struct{}),
		task: Task{
			ID: tm.newIDLocked(now), Owner: c.taskOwner(), Core: c.ex.CoreTasks, Method: c.method, Name: c.name,
			Status: mcp.TaskStatusWorking, Created: now, Updated: now, TTL: ttl, PollInterval: tm.opts.PollInterval,
		},
	}
	ctx, stop := context.WithDeadline(context.WithoutCancel(c.context()), now.Add(ttl))
	run.ctx, run.cancel = context.WithCancelCause(ctx)
	tm.runs[run.task.ID] = run
	tm.wg.Add(1)
	run.release = sync.OnceFunc(func() {
		stop()
		run.cancel(nil)
		<-tm.slots
		tm.mu.Lock()
		delete(tm.runs, run.task.ID)
		tm.mu.Unlock()
		tm.wg.Done()
	})
	c.derived.Store(&derivedContext{run.ctx})
	c.run.Store(run)
	return run, nil
}

// newIDLocked returns an unguessable ID that is greater than earlier ones.
func (tm *taskManager) newIDLocked(now time.Time) string {
	tm.lastID = max(tm.lastID+1, uint64(now.UnixNano())) // clocks are coarse and may go backwards
	b := make([]byte, taskIDLen)
	binary.BigEndian.PutUint64(b, tm.lastID)
	rand.Read(b[8:]) // never fails
	return taskIDEncoding.EncodeToString(b)
}

// taskIDEncoding preserves the order of IDs.
var taskIDEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// start runs the handler. If the handler exits its goroutine, only this task fails.
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
		out, err = tr.invoke(invoke)
	}()
}

// releaseUnlessTask releases the run unless it continues as a task.
func (tr *taskRun) releaseUnlessTask() {
	if !tr.isTask() {
		tr.release()
	}
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

// invoke calls the handler. If the handler panics, only this task fails.
func (tr *taskRun) invoke(invoke func(c *Call, args, dst []byte) ([]byte, error)) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return invoke(tr.call, tr.args, nil)
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

// lockOwner waits until no other call of this process creates a task of the owner, so that calls at
// once do not exceed MaxTasks. The caller must call unlock.
func (tm *taskManager) lockOwner(ctx context.Context, owner string) (unlock func(), err error) {
	for {
		tm.mu.Lock()
		other := tm.creating[owner]
		if other == nil {
			done := make(chan struct{})
			tm.creating[owner] = done
			tm.mu.Unlock()
			return func() {
				tm.mu.Lock()
				delete(tm.creating, owner)
				tm.mu.Unlock()
				close(done)
			}, nil
		}
		tm.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
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

// canceled returns the change that cancels a task, with a status message.
func canceled(message string) func(*Task) error {
	return func(t *Task) error {
		t.Status, t.StatusMessage = mcp.TaskStatusCancelled, message
		t.InputRequests, t.InputResponses = nil, nil
		t.Error = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the task was cancelled")
		return nil
	}
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

var errTaskEnded = errors.New("the task has already ended")

// storeResult stores the result of the task. A canceled task stays canceled.
func (tr *taskRun) storeResult(out []byte, err error) {
	if err != nil {
		out, err = tr.call.convertURLRequired(nil, out, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tr.ctx), storeTimeout)
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

const (
	storeTimeout       = 10 * time.Second // for a task's final updates
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
	return tr.call.session.srv.updateTask(ctx, tr.task.ID, change)
}

// updateTask changes a stored task unless it has ended, and sends notifications. It also returns
// the task with errTaskEnded.
func (s *Server) updateTask(ctx context.Context, id string, change func(*Task) error) (*Task, error) {
	var ended Task
	t, err := s.tasks.opts.Store.Update(ctx, id, func(t *Task) error {
		if t.Ended() {
			ended = *t
			return errTaskEnded
		}
		if err := change(t); err != nil {
			return err
		}
		t.Updated = time.Now()
		return nil
	})
	switch {
	case err == nil:
		s.taskChanged(t)
	case errors.Is(err, errTaskEnded):
		t = &ended
	}
	return t, err
}

// isErrorResult reports whether a tool's result has isError.
func isErrorResult(result []byte) bool {
	members := jsonwire.ObjectMembers(result)
	for members.Next() {
		if members.KeyIs("isError") {
			return string(members.Value()) == "true"
		}
	}
	return false
}

// close cancels all runs and waits for their handlers until ctx ends.
func (tm *taskManager) close(ctx context.Context) error {
	tm.mu.Lock()
	tm.closed = true
	for _, run := range tm.runs {
		run.cancel(errTasksClosed)
	}
	tm.mu.Unlock()
	done := make(chan struct{})
	go func() {
		tm.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cancelRun cancels the handler of a task if it runs in this process.
func (tm *taskManager) cancelRun(id string) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if run := tm.runs[id]; run != nil {
		run.cancel(errTaskCanceled)
	}
}

// endSession cancels the tasks that only this session can access, and expires them in the store.
func (tm *taskManager) endSession(s *session) {
	if f := s.handshake.era.Legacy(); f == nil || !f.CoreTasks || s.legacyTaskOwner() != s.anonymousTaskOwner {
		return
	}
	tm.mu.Lock()
	for _, run := range tm.runs {
		if run.task.Owner == s.anonymousTaskOwner {
			run.cancel(context.Canceled)
		}
	}
	tm.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	own, err := tm.opts.Store.Tasks(ctx, s.anonymousTaskOwner, "", tm.opts.MaxTasks)
	for _, t := range own {
		if err == nil {
			_, err = tm.opts.Store.Update(ctx, t.ID, func(t *Task) error { t.TTL = 0; return nil })
		}
	}
	if err != nil && !errors.Is(err, ErrTaskNotFound) {
		s.log.Warn("tasks of an ended session are kept until they expire", "error", err)
	}
}

// A taskRequester is the inputRequester of a call that is, or may become, a task. Before it is one,
// the requester of the era does the work.
type taskRequester struct {
	run   *taskRun
	inner inputRequester

	mu sync.Mutex
	// waiting counts the concurrent calls of askWithTask.
	waiting int
}

// inputRound returns the inputRound of a call whose input requests go into the response to the
// request. It returns nil for other calls and for tasks.
func (c *Call) inputRound() *inputRound {
	a := c.inputState().requester
	if t, ok := a.(*taskRequester); ok && !t.run.isTask() {
		a = t.inner
	}
	r, _ := a.(*inputRound)
	return r
}

// ask implements inputRequester.
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
		return rq.askWithTask(ctx, requests)
	}
	if r, ok := rq.inner.(*inputRound); ok {
		var err error
		if requests, err = r.applyEarlier(requests); err != nil || len(requests) == 0 {
			return err
		}
	}
	return rq.askInTask(ctx, requests)
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

// askWithTask sends requests that name the task. Meanwhile the task's status is input_required.
func (rq *taskRequester) askWithTask(ctx context.Context, requests []*inputRequest) error {
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

// askInTask stores the requests in the task and waits for the responses from tasks/update.
func (rq *taskRequester) askInTask(ctx context.Context, requests []*inputRequest) error {
	ctx, cancel := rq.run.call.joinContext(ctx)
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
	for _, q := range requests {
		if t.InputResponses[q.key] == nil {
			return false
		}
	}
	return true
}

// removeRequests removes input requests and their responses.
func (t *Task) removeRequests(requests []*inputRequest) {
	for _, q := range requests {
		delete(t.InputRequests, q.key)
		delete(t.InputResponses, q.key)
	}
	t.resumeIfAnswered()
}

// resumeIfAnswered sets the status to working if no input request is pending.
func (t *Task) resumeIfAnswered() {
	if len(t.InputRequests) == 0 {
		t.Status = mcp.TaskStatusWorking
	}
}

// applyResponses stores the responses to pending input requests, which are then no longer pending.
// It ignores others, fails if one is unusable, and reports whether it stored any.
func (t *Task) applyResponses(responses []byte) (found bool, err error) {
	members := jsonwire.ObjectMembers(responses)
	for members.Next() {
		key := members.KeyString()
		q, pending := t.InputRequests[key]
		if !pending {
			continue
		}
		if err := checkResponse(featureOf(q.Method), members.Value()); err != nil {
			return false, invalidResponse(key, err)
		}
		if t.InputResponses == nil {
			t.InputResponses = make(map[string]jsonText)
		}
		t.InputResponses[key] = append(jsonText(nil), members.Value()...)
		delete(t.InputRequests, key)
		found = true
	}
	t.resumeIfAnswered()
	return found, nil
}

// featureOf returns a client feature that the method belongs to.
func featureOf(method string) ClientFeature {
	switch method {
	case mcp.MethodCreateMessage:
		return Sampling
	case mcp.MethodRootsList:
		return Roots
	}
	return FormElicitation
}

// withRelatedTask returns params, an object or nil, with the task in its _meta.
func withRelatedTask(params []byte, id string) []byte {
	related := append(jsonwire.AppendQuote([]byte(`"`+mcp.MetaRelatedTask+`":{"taskId":`), id), '}')
	dst := []byte(`{"_meta":{`)
	dst = append(dst, related...)
	if params == nil {
		return append(dst, "}}"...)
	}
	var rest []byte
	members := jsonwire.ObjectMembers(params)
	for members.Next() {
		if members.KeyIs("_meta") && members.Value()[0] == '{' {
			dst = appendMembers(dst, members.Value(), mcp.MetaRelatedTask)
			continue
		}
		rest = append(append(append(append(rest, `,"`...), members.RawKey()...), `":`...), members.Value()...)
	}
	return append(append(append(dst, '}'), rest...), '}')
}

// appendMembers appends the members of an object except one, each with a leading comma.
func appendMembers(dst, object []byte, without string) []byte {
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		if !members.KeyIs(without) {
			dst = append(append(append(append(dst, `,"`...), members.RawKey()...), `":`...), members.Value()...)
		}
	}
	return dst
}
