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

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// tasks is what a server with TaskOptions has for them.
type tasks struct {
	opts  TaskOptions
	slots chan struct{} // one for each that runs

	mu     sync.Mutex
	runs   map[string]*taskRun // by the ids of the tasks, also while there is none yet
	lastID uint64              // what the last id began with
	closed bool
	wg     sync.WaitGroup // of runs, and what belongs to them
}

func newTasks(opts TaskOptions) *tasks {
	if opts.Store == nil {
		opts.Store = NewTaskStore()
	} else {
		opts.Store = guardedTasks{opts.Store}
	}
	if opts.TTL <= 0 {
		opts.TTL = defaultTaskTTL
	}
	if opts.PollInterval <= 0 {
		opts.PollInterval = defaultTaskPoll
	}
	if opts.MaxTasks <= 0 {
		opts.MaxTasks = defaultMaxTasks
	}
	if opts.MaxRunning <= 0 {
		opts.MaxRunning = defaultMaxRunning
	}
	return &tasks{opts: opts, slots: make(chan struct{}, opts.MaxRunning), runs: make(map[string]*taskRun)}
}

// A taskRun is a tool call whose handler has a goroutine of its own, so that it can go on as a task when the request has been answered.
//
// It is in one of three states, which mu guards: the request is waiting for it; it is a task (begun), and has nothing to do with the request any more;
// or it will be answered directly (direct), because the handler has returned or wants the client to answer questions first.
type taskRun struct {
	tasks *tasks
	call  *Call
	task  Task // as it was made; id and owner do not change
	args  []byte

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	begun   bool
	direct  bool
	release func() // of the slot

	done chan struct{} // closed when the handler has returned
	out  []byte
	err  error
}

var (
	errTasksFull   = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks are running on this server: try again later")
	errTaskStopped = errors.New("the task was cancelled")
	errTasksClosed = errors.New("the server was closed")
	errTaskExited  = errors.New("handler ended its goroutine")
)

// newRun takes a slot for the call of a tool and makes what it needs to become a task. The caller must end it with endRequest.
func (k *tasks) newRun(c *Call, args []byte, ttl time.Duration) (*taskRun, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, errTasksClosed
	}
	select {
	case k.slots <- struct{}{}:
	default:
		return nil, errTasksFull
	}
	now := time.Now()
	run := &taskRun{
		tasks: k, call: c, args: append([]byte(nil), args...), done: make(chan struct{}),
		task: Task{
			ID: k.newIDLocked(now), Owner: c.taskOwner(), Core: c.ex.CoreTasks, Method: c.method, Name: c.name,
			Status: mcp.TaskStatusWorking, Created: now, Updated: now, TTL: ttl, PollInterval: k.opts.PollInterval,
		},
	}
	ctx, stop := context.WithDeadline(context.WithoutCancel(c.context()), now.Add(ttl))
	run.ctx, run.cancel = context.WithCancelCause(ctx)
	k.runs[run.task.ID] = run
	k.wg.Add(1)
	run.release = sync.OnceFunc(func() {
		stop()
		run.cancel(nil)
		<-k.slots
		k.mu.Lock()
		delete(k.runs, run.task.ID)
		k.mu.Unlock()
		k.wg.Done()
	})
	c.limit.Store(&limited{run.ctx})
	c.run.Store(run)
	return run, nil
}

// newIDLocked returns an id that nobody can guess, and that is greater than earlier ones.
func (k *tasks) newIDLocked(now time.Time) string {
	k.lastID = max(k.lastID+1, uint64(now.UnixNano())) // clocks are coarse, and may be set back
	b := make([]byte, taskIDLen)
	binary.BigEndian.PutUint64(b, k.lastID)
	rand.Read(b[8:]) // never fails
	return taskIDs.EncodeToString(b)
}

// taskIDs keep the order of what they encode.
var taskIDs = base32.HexEncoding.WithPadding(base32.NoPadding)

// start runs the handler. Should it end its goroutine, that fails this task alone.
func (run *taskRun) start(invoke func(c *Call, args, dst []byte) ([]byte, error)) {
	go func() {
		defer func() {
			if run.isTask() {
				run.release()
			}
		}()
		defer close(run.done)
		var out []byte
		err := errTaskExited
		defer func() { run.returned(out, err) }()
		out, err = run.invoke(invoke)
	}()
}

// endRequest releases the run, unless it goes on as a task.
func (run *taskRun) endRequest() {
	if !run.isTask() {
		run.release()
	}
}

// returned takes what the handler returned.
func (run *taskRun) returned(out []byte, err error) {
	run.mu.Lock()
	begun := run.begun
	run.direct = !begun
	run.out, run.err = out, err
	run.mu.Unlock()
	if begun {
		run.finish(out, err)
	}
}

// invoke calls the handler. A panic fails this task alone.
func (run *taskRun) invoke(invoke func(c *Call, args, dst []byte) ([]byte, error)) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &jsonrpc.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return invoke(run.call, run.args, nil)
}

// begin makes a task of it, which the store has when begin returns true. If it does not, there will be none, and the request is answered directly.
func (run *taskRun) begin(ctx context.Context) (ok bool, err error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.direct {
		return false, nil
	}
	defer func() { run.direct = !ok }()
	if err := context.Cause(run.ctx); err != nil {
		return false, err
	}
	k := run.tasks
	own, err := k.opts.Store.Tasks(ctx, run.task.Owner, "", k.opts.MaxTasks)
	switch {
	case err != nil:
		return false, err
	case len(own) >= k.opts.MaxTasks:
		return false, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks (limit %d): wait until some of them expire", k.opts.MaxTasks)
	}
	if err := k.opts.Store.Create(ctx, &run.task); err != nil {
		return false, err
	}
	run.begun = true
	k.wg.Go(run.watch)
	return true, nil
}

// isTask reports whether it is a task, which has nothing to do with the request any more.
func (run *taskRun) isTask() bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.begun
}

// abandon ends the handler if the request that it serves has ended, and it is no task.
func (run *taskRun) abandon(cause error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if !run.begun {
		run.direct = true
		run.cancel(cause)
	}
}

// unanswered cancels a task whose id nobody knows, because its request has ended without an answer.
// It does not wait; Server.Close waits for it.
func (run *taskRun) unanswered() {
	k := run.tasks
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return // all tasks end
	}
	k.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), storePatience)
		defer cancel()
		run.store(ctx, cancelled("The task was cancelled with its request."))
		run.cancel(errTaskStopped)
	})
}

// cancelled returns the change to a task that somebody cancels. message says how that came about.
func cancelled(message string) func(*Task) error {
	return func(t *Task) error {
		t.Status, t.StatusMessage = mcp.TaskStatusCancelled, message
		t.InputRequests, t.InputResponses = nil, nil
		t.Error = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the task was cancelled")
		return nil
	}
}

// watch ends the handler when somebody has cancelled the task in another process, or the store has it no more.
func (run *taskRun) watch() {
	for version := run.task.Version; ; {
		t, err := run.tasks.opts.Store.Wait(run.ctx, run.task.ID, version)
		switch {
		case run.ctx.Err() != nil:
			return
		case errors.Is(err, ErrTaskNotFound), err == nil && t.Ended():
			run.cancel(errTaskStopped)
			return
		case err == nil:
			version = t.Version
		case wait(run.ctx, nil, time.Now().Add(storeRetry)) != nil:
			return
		}
	}
}

var errTaskEnded = errors.New("the task has ended already")

// finish stores what became of the task. One that was cancelled stays so.
func (run *taskRun) finish(out []byte, err error) {
	if err != nil {
		out, err = run.call.convertURLRequired(nil, out, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), storePatience)
	defer cancel()
	run.store(ctx, func(t *Task) error {
		t.InputRequests, t.InputResponses = nil, nil
		switch {
		case err != nil:
			t.Status, t.Error = mcp.TaskStatusFailed, jsonrpc.ErrorOf(err)
		default:
			t.Status, t.Result = mcp.TaskStatusCompleted, json.RawMessage(out)
			if t.Core && saysError(out) {
				t.Status = mcp.TaskStatusFailed
			}
		}
		return nil
	})
	if err != nil && jsonrpc.ErrorOf(err).Code == jsonrpc.CodeInternalError && run.ctx.Err() == nil {
		run.call.Logger().Error("task failed", "task", run.task.ID, "error", err)
	}
}

const (
	storePatience = 10 * time.Second // how long a task that ends waits for its store
	storeRetry    = time.Second      // how often it tries a store that fails
)

// store changes the stored task, if need be when the store is available again.
func (run *taskRun) store(ctx context.Context, change func(*Task) error) {
	for {
		_, err := run.update(ctx, change)
		if err == nil || errors.Is(err, errTaskEnded) || errors.Is(err, ErrTaskNotFound) {
			return
		}
		if wait(ctx, nil, time.Now().Add(storeRetry)) != nil {
			run.call.Logger().Error("what became of a task is lost", "task", run.task.ID, "error", err)
			return
		}
	}
}

// update changes the stored task, unless it has ended, and tells who wants to know.
func (run *taskRun) update(ctx context.Context, change func(*Task) error) (*Task, error) {
	return run.call.session.srv.updateTask(ctx, run.task.ID, change)
}

// updateTask changes a stored task that has not ended, and tells who wants to know.
func (s *Server) updateTask(ctx context.Context, id string, change func(*Task) error) (*Task, error) {
	t, err := s.tasks.opts.Store.Update(ctx, id, func(t *Task) error {
		if t.Ended() {
			return errTaskEnded
		}
		if err := change(t); err != nil {
			return err
		}
		t.Updated = time.Now()
		return nil
	})
	if err == nil {
		s.taskChanged(t)
	}
	return t, err
}

// saysError reports whether a tool's result has isError.
func saysError(result []byte) bool {
	members := jsonwire.ObjectMembers(result)
	for members.Next() {
		if members.KeyIs("isError") {
			return string(members.Value()) == "true"
		}
	}
	return false
}

// close ends all tasks and waits for their handlers, as long as ctx lets it.
func (k *tasks) close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	for _, run := range k.runs {
		run.cancel(errTasksClosed)
	}
	k.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		k.wg.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop ends the handler of a task that was cancelled, if it runs in this process.
func (k *tasks) stop(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if run := k.runs[id]; run != nil {
		run.cancel(errTaskStopped)
	}
}

// endSession ends the tasks that only the session could have asked for, and has the store forget them.
func (k *tasks) endSession(s *session) {
	if f := s.era.Legacy(); f == nil || !f.CoreTasks || s.ownerOfTasks() != s.taskOwner {
		return
	}
	k.mu.Lock()
	for _, run := range k.runs {
		if run.task.Owner == s.taskOwner {
			run.cancel(context.Canceled)
		}
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	own, err := k.opts.Store.Tasks(ctx, s.taskOwner, "", k.opts.MaxTasks)
	for _, t := range own {
		if err == nil {
			_, err = k.opts.Store.Update(ctx, t.ID, func(t *Task) error { t.TTL = 0; return nil })
		}
	}
	if err != nil && !errors.Is(err, ErrTaskNotFound) {
		s.log.Warn("tasks of a session that has ended are kept until they expire", "error", err)
	}
}
