package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// taskManager manages the tasks of a server with TaskOptions.
type taskManager struct {
	opts TaskOptions
	// changed is called after each change of a stored task.
	changed func(*Task)
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
	// idle is closed when there are no runs. It is nil if nobody waits for that.
	idle chan struct{}
	// wg counts the runs and their goroutines.
	wg sync.WaitGroup
}

func newTaskManager(opts TaskOptions, changed func(*Task)) *taskManager {
	if opts.Store == nil {
		opts.Store = NewTaskStore()
	} else {
		opts.Store = guardedTaskStore{opts.Store}
	}
	defaults.IfNotPositive(&opts.TTL, defaultTaskTTL)
	defaults.IfNotPositive(&opts.PollInterval, defaultTaskPoll)
	defaults.IfNotPositive(&opts.MaxTasks, defaultMaxTasks)
	defaults.IfNotPositive(&opts.MaxRunning, defaultMaxRunning)
	return &taskManager{
		opts: opts, changed: changed, slots: make(chan struct{}, opts.MaxRunning),
		runs: make(map[string]*taskRun), creating: make(map[string]chan struct{}),
	}
}

// newRun takes a slot for a tool call and prepares it to become a task. The caller must end it with
// releaseUnlessTask.
func (tm *taskManager) newRun(c *Call, owner string, args []byte, ttl time.Duration) (*taskRun, error) {
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
			ID: tm.newIDLocked(now), Owner: owner, Core: c.ex.CoreTasks, Method: c.method, Name: c.name,
			Status: mcp.TaskStatusWorking, Created: now, Updated: now, TTL: ttl, PollInterval: tm.opts.PollInterval,
		},
	}
	ctx, stop := context.WithDeadline(context.WithoutCancel(c.current()), now.Add(ttl))
	run.ctx, run.cancel = context.WithCancelCause(ctx)
	tm.runs[run.task.ID] = run
	tm.wg.Add(1)
	run.release = sync.OnceFunc(func() {
		stop()
		run.cancel(nil)
		<-tm.slots
		tm.mu.Lock()
		delete(tm.runs, run.task.ID)
		if len(tm.runs) == 0 && tm.idle != nil {
			close(tm.idle)
			tm.idle = nil
		}
		tm.mu.Unlock()
		tm.wg.Done()
	})
	c.derive(run.ctx)
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

// taskIDLen is the length of a decoded task id in bytes.
const taskIDLen = 8 + 16

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
		if err := waitClosed(ctx, other); err != nil {
			return nil, err
		}
	}
}

var errTaskEnded = errors.New("the task has already ended")

// update changes a stored task unless it has ended, and sends notifications. It also returns
// the task with errTaskEnded.
func (tm *taskManager) update(ctx context.Context, id string, change func(*Task) error) (*Task, error) {
	var ended Task
	t, err := tm.opts.Store.Update(ctx, id, func(t *Task) error {
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
		tm.changed(t)
	case errors.Is(err, errTaskEnded):
		t = &ended
	}
	return t, err
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

// cancelRun cancels the handler of a task if it runs in this process.
func (tm *taskManager) cancelRun(id string) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if run := tm.runs[id]; run != nil {
		run.cancel(errTaskCanceled)
	}
}

// endOwner cancels the runs of an owner and expires its tasks in the store.
func (tm *taskManager) endOwner(owner string) error {
	tm.mu.Lock()
	for _, run := range tm.runs {
		if run.task.Owner == owner {
			run.cancel(context.Canceled)
		}
	}
	tm.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	own, err := tm.opts.Store.Tasks(ctx, owner, "", tm.opts.MaxTasks)
	for _, t := range own {
		if err == nil {
			_, err = tm.opts.Store.Update(ctx, t.ID, func(t *Task) error { t.TTL = 0; return nil })
		}
	}
	if errors.Is(err, ErrTaskNotFound) {
		return nil
	}
	return err
}

// wait waits until there are no runs, or ctx ends.
func (tm *taskManager) wait(ctx context.Context) error {
	tm.mu.Lock()
	if len(tm.runs) == 0 {
		tm.mu.Unlock()
		return nil
	}
	if tm.idle == nil {
		tm.idle = make(chan struct{})
	}
	idle := tm.idle
	tm.mu.Unlock()
	return waitClosed(ctx, idle)
}

// close cancels all runs and waits for their handlers until ctx ends.
func (tm *taskManager) close(ctx context.Context) error {
	tm.mu.Lock()
	tm.closed = true
	for _, run := range tm.runs {
		run.cancel(errTasksClosed)
	}
	tm.mu.Unlock()
	return waitGroup(ctx, &tm.wg)
}

// A taskServer runs the tool calls of a session as tasks, and answers the task methods of both
// designs.
type taskServer struct {
	manager *taskManager
	// owner owns the tasks of the session: its principal or, without one, the session.
	owner string
	// exclusive is set if no other session can access the tasks. Processes that share a session
	// have a session each.
	exclusive bool
	// waits counts the tasks/result requests that wait.
	waits atomic.Int32
}

// newTaskServer returns the taskServer of a session. It returns nil if the server has no tasks.
func (s *Server) newTaskServer(principal string) *taskServer {
	if s.tasks == nil {
		return nil
	}
	ts := &taskServer{manager: s.tasks, owner: principalOwner(principal), exclusive: principal == ""}
	if ts.exclusive {
		ts.owner = "session " + rand.Text()
	}
	return ts
}

// share makes the tasks accessible for the session with the key in all processes. An empty key has
// no effect.
func (ts *taskServer) share(key string) {
	if key != "" && ts.exclusive {
		digest := sha256.Sum256([]byte("task owner " + key)) // the key itself opens the session
		ts.owner = "session " + base64.RawURLEncoding.EncodeToString(digest[:16])
	}
}

func principalOwner(id string) string { return "principal " + id }

// wants decides whether a tool call may become a task, and its TTL.
func (ts *taskServer) wants(c *Call, t *tool, r *rpc.Request) (ttl time.Duration, yes bool, err error) {
	switch {
	case c.ex.CoreTasks:
		task, asked := r.Param("task")
		asked = asked && string(task) != "null"
		switch {
		case !asked && t.taskSupport == mcp.TaskSupportRequired:
			return 0, false, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "tool %s only runs as a task: send params.task", t.key)
		case !asked:
			return 0, false, nil
		case t.taskSupport == mcp.TaskSupportForbidden:
			return 0, false, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "tool %s does not run as a task: omit params.task", t.key)
		}
		ttl, err = requestedTTL(task, ts.manager.opts.TTL)
		return ttl, err == nil, err
	case !c.ex.Modern || t.taskSupport == mcp.TaskSupportForbidden:
		return 0, false, nil
	case hasTasks(c):
		return ts.manager.opts.TTL, true, nil
	case t.taskSupport == mcp.TaskSupportRequired:
		return 0, false, missingTasksCapability()
	}
	return 0, false, nil
}

// requestedTTL returns the TTL that the client asks for, up to limit.
func requestedTTL(task []byte, limit time.Duration) (time.Duration, error) {
	var meta mcp.TaskMetadata
	if err := meta.UnmarshalJSON(task); err != nil {
		return 0, invalidParams("params.task: %v", err)
	}
	switch {
	case meta.TTL == nil || *meta.TTL >= limit.Milliseconds():
		return limit, nil
	case *meta.TTL <= 0:
		return 0, invalidParams("params.task.ttl must be greater than 0, not %d", *meta.TTL)
	}
	return time.Duration(*meta.TTL) * time.Millisecond, nil
}

// hasTasks reports whether the client has declared the tasks extension.
func hasTasks(c *Call) bool {
	_, ok := c.ClientExtension(mcp.ExtensionTasks)
	return ok
}

// missingTasksCapability returns the error for a client that has not declared the tasks extension.
func missingTasksCapability() *jsonrpc.Error {
	return mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{Extensions: map[string]json.RawMessage{mcp.ExtensionTasks: emptyObject}})
}

// call answers a tool call that may become a task: with the task, or with the tool's result
// if that comes first.
func (ts *taskServer) call(c *Call, t *tool, r *rpc.Request, args, dst []byte, ttl time.Duration) ([]byte, error) {
	reqCtx := c.current() // newRun replaces the call's context with the task's
	run, err := ts.manager.newRun(c, ts.ownerOf(c), args, ttl)
	if err != nil {
		return dst, err
	}
	defer run.releaseUnlessTask() // respond, below, still needs the call's context
	d := c.session.srv.inputs.stateOf(c)
	d.requester = &taskRequester{run: run, inner: d.requester}
	after := ts.manager.opts.After
	if run.task.Core || after <= 0 || t.taskSupport == mcp.TaskSupportRequired {
		if err := reqCtx.Err(); err != nil {
			return dst, err
		}
		if _, err := run.becomeTask(reqCtx); err != nil {
			return dst, tasksUnavailable(err)
		}
		run.start(t.run)
		return run.appendCreated(dst), nil
	}
	stop := context.AfterFunc(reqCtx, func() { run.cancelUnlessTask(context.Cause(reqCtx)) })
	defer stop()
	run.start(t.run)
	select {
	case <-run.done:
	case <-time.After(after):
		begun, err := run.becomeTask(reqCtx)
		if begun {
			return run.appendCreated(dst), nil
		}
		if err != nil { // waiting is better than canceling a running handler
			c.Logger().Warn("call not run as a task: waiting for its result", "error", err)
		}
		<-run.done
	}
	return c.session.srv.inputs.respond(c, r, dst, append(dst, run.out...), run.err)
}

// ownerOf returns the owner of the tasks that the call creates.
func (ts *taskServer) ownerOf(c *Call) string {
	switch p := c.identity().principal; {
	case p != "": // the session may serve several principals
		return principalOwner(p)
	case c.ex.Modern:
		return "" // anyone who knows the id
	}
	return ts.owner
}

// tasksUnavailable returns the error of a request that was not carried out because the store of
// tasks failed with err. Errors that are for the client, or not of the store, stay as they are.
func tasksUnavailable(err error) error {
	if _, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*jsonrpc.PanicError](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	return errors.Join(unavailable("the tasks are unavailable now: try again"), err)
}

func unknownTask(id string) error { return invalidParams("unknown task %q", clip.String(id, 100)) }

// find returns the task that the request names if the caller may access it.
func (ts *taskServer) find(c *Call, r *rpc.Request) (*Task, error) {
	id, err := stringParam(r, "taskId")
	if err != nil {
		return nil, err
	}
	t, err := ts.manager.opts.Store.Task(c, id)
	switch {
	case errors.Is(err, ErrTaskNotFound):
		return nil, unknownTask(id)
	case err != nil:
		return nil, tasksUnavailable(err)
	case t.Owner != ts.ownerOf(c) || t.Core != c.ex.CoreTasks:
		return nil, unknownTask(id)
	}
	return t, nil
}

// answer answers the methods of both designs of tasks.
func (ts *taskServer) answer(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	if c.ex.Modern && !hasTasks(c) {
		return dst, missingTasksCapability()
	}
	if c.method == mcp.MethodTasksList {
		return ts.list(c, r, dst)
	}
	t, err := ts.find(c, r)
	if err != nil {
		return dst, err
	}
	switch c.method {
	case mcp.MethodTasksResult:
		return ts.result(c, t, dst)
	case mcp.MethodTasksUpdate:
		if err := ts.update(c, r, t); err != nil {
			return dst, err
		}
		return c.results().empty(dst, nil), nil
	case mcp.MethodTasksCancel:
		return ts.cancel(c, t, dst)
	}
	if t.Core {
		return mcp.Append(dst, t.coreTask(), c.ex.Revision), nil
	}
	return appendDetailed(c, t, dst), nil
}

// cancel answers tasks/cancel. The core protocol returns the task, which must not have ended; the
// extension returns an empty result.
func (ts *taskServer) cancel(c *Call, t *Task, dst []byte) ([]byte, error) {
	now, err := ts.manager.update(c, t.ID, canceled("The task was cancelled by request."))
	if err == nil {
		ts.manager.cancelRun(t.ID)
	}
	switch {
	case errors.Is(err, ErrTaskNotFound):
		return dst, unknownTask(t.ID)
	case errors.Is(err, errTaskEnded) && t.Core:
		return dst, invalidParams("the task has already ended: it is %s", string(now.Status))
	case err != nil && !errors.Is(err, errTaskEnded):
		return dst, tasksUnavailable(err)
	case t.Core:
		return mcp.Append(dst, now.coreTask(), c.ex.Revision), nil
	}
	return c.results().empty(dst, nil), nil
}

// maxTaskWaits limits the tasks/result requests of one connection that wait.
const maxTaskWaits = 64

// result answers tasks/result with the task's result or error when the task has ended.
func (ts *taskServer) result(c *Call, t *Task, dst []byte) ([]byte, error) {
	if !t.Ended() {
		if ts.waits.Add(1) > maxTaskWaits {
			ts.waits.Add(-1)
			return dst, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks/result requests are waiting (limit %d)", maxTaskWaits)
		}
		defer ts.waits.Add(-1)
	}
	for !t.Ended() {
		next, err := ts.manager.opts.Store.Wait(c, t.ID, t.Version)
		if errors.Is(err, ErrTaskNotFound) {
			return dst, unknownTask(t.ID)
		}
		if err != nil {
			return dst, tasksUnavailable(err)
		}
		t = next
	}
	if t.Error != nil {
		return dst, t.Error
	}
	return append(dst, withRelatedTask(t.Result, t.ID)...), nil
}

// update stores the responses of tasks/update to pending input requests. Others are ignored.
func (ts *taskServer) update(c *Call, r *rpc.Request, t *Task) error {
	responses, ok := r.Param("inputResponses")
	if !ok || responses[0] != '{' {
		return invalidParams("params.inputResponses must be an object")
	}
	_, err := ts.manager.update(c, t.ID, func(t *Task) error {
		found, err := t.applyResponses(responses)
		if err == nil && !found {
			err = errNoResponse
		}
		return err
	})
	switch {
	case errors.Is(err, errNoResponse), errors.Is(err, errTaskEnded):
		return nil // the client need not know that nothing waits
	case errors.Is(err, ErrTaskNotFound):
		return unknownTask(t.ID)
	}
	return err
}

var errNoResponse = errors.New("no response to an input request")

// list answers tasks/list. Pages may be shorter because tasks of the extension are left out.
func (ts *taskServer) list(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	after := ""
	if cursor, ok := r.Param("cursor"); ok && string(cursor) != "null" {
		text, err := stringParam(r, "cursor")
		if err != nil {
			return dst, err
		}
		if id, err := taskIDEncoding.DecodeString(text); err != nil || len(id) != taskIDLen {
			return dst, invalidParams("params.cursor is not a cursor of this server")
		}
		after = text
	}
	pageSize := c.session.srv.opts.Limits.PageSize
	own, err := ts.manager.opts.Store.Tasks(c, ts.ownerOf(c), after, pageSize+1)
	if err != nil {
		return dst, tasksUnavailable(err)
	}
	page := mcp.ListTasksResult{Tasks: []mcp.Task{}}
	if len(own) > pageSize {
		own = own[:pageSize]
		page.NextCursor = &own[len(own)-1].ID
	}
	for _, t := range own {
		if t.Core {
			page.Tasks = append(page.Tasks, *t.coreTask())
		}
	}
	return mcp.Append(dst, &page, c.ex.Revision), nil
}

// appendDetailed appends the result of tasks/get of the extension.
func appendDetailed(c *Call, t *Task, dst []byte) []byte {
	d := t.detailedTask()
	return c.results().endWithMeta(mcp.Append(dst, &d, c.ex.Revision), nil)
}

// maxSubscribedTasks limits the tasks that the subscriptions of one connection name.
const maxSubscribedTasks = 1024

var errTooManyTasks = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks watched on this connection (limit %d)", maxSubscribedTasks)

// subscribable returns the tasks that the caller can access. A nil taskServer has none.
func (ts *taskServer) subscribable(c *Call, ids []string) (own []string, err error) {
	if len(ids) == 0 || ts == nil {
		return nil, nil
	}
	if !hasTasks(c) {
		return nil, missingTasksCapability()
	}
	if len(ids) > maxSubscribedTasks {
		return nil, errTooManyTasks
	}
	for _, id := range ids {
		if t, err := ts.manager.opts.Store.Task(c, id); err == nil && !t.Core && t.Owner == ts.ownerOf(c) {
			own = append(own, id)
		}
	}
	return own, nil
}

// end cancels the tasks that only this session can access, and expires them in the store. f are the
// features of the handshake, or nil.
func (ts *taskServer) end(f *era.Features, log *slog.Logger) {
	if f == nil || !f.CoreTasks || !ts.exclusive {
		return
	}
	if err := ts.manager.endOwner(ts.owner); err != nil {
		log.Warn("tasks of an ended session are kept until they expire", "error", err)
	}
}
