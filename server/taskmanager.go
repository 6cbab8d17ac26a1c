package server

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"mcpwire/internal/defaults"
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
	ctx, stop := context.WithDeadline(context.WithoutCancel(c.ctx.current()), now.Add(ttl))
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
	c.ctx.derive(run.ctx)
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
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
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
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
