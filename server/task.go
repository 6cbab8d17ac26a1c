package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TaskOptions lets tools run as tasks: the work continues after the request was answered, and the
// client fetches the result later. The Execution of a tool's definition decides: with "required"
// the tool always runs as a task, with "optional" if the client supports tasks.
//
// The server supports both designs of the protocol. In 2025-11-25 the client asks for a task
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks). With the
// extension io.modelcontextprotocol/tasks of modern revisions the server decides.
//
// The context of a task's handler does not end with its request or with [Limits.HandlerTimeout].
// It ends when the task is canceled, when its TTL expires, and with [Server.Close]. For a
// 2025-11-25 client without a principal it also ends with the connection, since no other connection
// can access the task.
//
// A task of the extension is canceled at once if the client did not get its id, because it canceled
// the request or disconnected before the response was written. Otherwise only tasks/cancel cancels
// it.
type TaskOptions struct {
	// Store keeps the tasks. Nil keeps them in memory.
	Store TaskStore

	// TTL is how long a task is kept after its creation, and how long it may run. A 2025-11-25
	// client may ask for less. Zero means 1 hour.
	TTL time.Duration

	// PollInterval is how often clients should poll a task. Zero means 1 second.
	PollInterval time.Duration

	// MaxTasks limits the unexpired tasks of one owner, including finished ones. Modern callers
	// without a principal share one limit. Processes that share a Store may exceed it by one task
	// each if they create tasks at the same time. Zero means 1000.
	MaxTasks int

	// MaxRunning limits the running tasks of the whole server, including calls that may yet become
	// tasks. Zero means 256.
	MaxRunning int

	// After is the time after which a running call of an optional tool becomes a task, for clients
	// of modern revisions. Zero means at once. Input requests before that are sent in the response
	// to the request, see [Call.Elicit]. The call then never becomes a task. It also continues as a
	// plain call if the store fails or the caller has too many tasks.
	After time.Duration
}

const (
	defaultTaskTTL    = time.Hour
	defaultTaskPoll   = time.Second
	defaultMaxTasks   = 1000
	defaultMaxRunning = 256
)

// A Task is the state of a task in a [TaskStore].
type Task struct {
	// ID is unguessable. IDs of one process are in ascending order.
	ID string

	// Owner identifies who may access the task: a principal or a legacy session. If it is empty,
	// anyone who knows the ID may.
	Owner string

	// Core is set for tasks of the core protocol of 2025-11-25. Others belong to the extension.
	Core bool
	// Method is the method of the request that runs as the task: tools/call.
	Method string
	// Name is the name of the tool.
	Name string

	// Status is the state of the task. StatusMessage describes it to people; it may be empty.
	Status        mcp.TaskStatus
	StatusMessage string
	// Created and Updated are the times of the creation and of the last change.
	Created time.Time
	Updated time.Time
	// TTL is how long after Created the store keeps the task, see [Task.Expires].
	TTL time.Duration
	// PollInterval is how often clients should poll the task.
	PollInterval time.Duration

	// Result is the result of a completed task, or of a core task that failed with isError.
	Result json.RawMessage

	// Error is the error of a failed or canceled task.
	Error *jsonrpc.Error

	// InputRequests holds the pending input requests; InputResponses holds the responses that the
	// tool has not processed yet.
	InputRequests  map[string]mcp.InputRequest
	InputResponses map[string]json.RawMessage

	// Version grows with each update. The store sets it.
	Version uint64
}

// Expires returns the time after which the store may delete the task.
func (t *Task) Expires() time.Time { return t.Created.Add(t.TTL) }

// Ended reports whether the status is final.
func (t *Task) Ended() bool {
	switch t.Status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed, mcp.TaskStatusCancelled:
		return true
	}
	return false
}

// ErrTaskNotFound is returned by a TaskStore for an unknown or expired task.
var ErrTaskNotFound = errors.New("unknown task")

// A TaskStore keeps tasks until they expire. Its methods may be called by multiple goroutines at
// once. The caller owns the returned tasks but must not modify the JSON texts in them. Errors wrap
// [ErrTaskNotFound] or the context's error, or report that the store is unavailable.
type TaskStore interface {
	// Create stores a copy of t and sets t.Version. When it returns, the task is accessible.
	Create(ctx context.Context, t *Task) error
	// Task returns a task.
	Task(ctx context.Context, id string) (*Task, error)
	// Update changes a task atomically and returns the new state. It may call change more than
	// once. If change returns an error, Update changes nothing and returns that error.
	Update(ctx context.Context, id string, change func(*Task) error) (*Task, error)
	// Wait returns the task as soon as its version is greater than version.
	Wait(ctx context.Context, id string, version uint64) (*Task, error)
	// Tasks returns up to limit tasks of the owner with IDs greater than after, in order of ID,
	// which is the order of creation.
	Tasks(ctx context.Context, owner, after string, limit int) ([]*Task, error)
}

// taskSupportOf returns whether a tool can run as a task. ok is false for an invalid value.
func taskSupportOf(def *mcp.Tool) (support mcp.TaskSupport, ok bool) {
	if def.Execution == nil || def.Execution.TaskSupport == "" {
		return mcp.TaskSupportForbidden, true
	}
	switch support = def.Execution.TaskSupport; support {
	case mcp.TaskSupportForbidden, mcp.TaskSupportOptional, mcp.TaskSupportRequired:
		return support, true
	}
	return support, false
}

var (
	errTaskSupport = errors.New("execution.taskSupport must be forbidden, optional or required")
	errNoTasks     = errors.New("its execution.taskSupport allows tasks: set Options.Tasks")
)

// formatTime returns the format of times in tasks.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// coreTask returns the task in the form of 2025-11-25.
func (t *Task) coreTask() *mcp.Task {
	ttl, poll := t.TTL.Milliseconds(), t.PollInterval.Milliseconds()
	return &mcp.Task{
		TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: formatTime(t.Created), LastUpdatedAt: formatTime(t.Updated),
		TTL: &ttl, PollInterval: &poll,
	}
}

// extensionTask returns the task in the form of the extension.
func (t *Task) extensionTask() mcp.ExtensionTask {
	ttl, poll := t.TTL.Milliseconds(), t.PollInterval.Milliseconds()
	return mcp.ExtensionTask{
		TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: formatTime(t.Created), LastUpdatedAt: formatTime(t.Updated),
		TTLMs: &ttl, PollIntervalMs: &poll,
	}
}

// detailedTask returns the task with the data of its status: the pending input requests, the result
// or the error.
func (t *Task) detailedTask() mcp.DetailedTask {
	d := mcp.DetailedTask{ExtensionTask: t.extensionTask()}
	switch t.Status {
	case mcp.TaskStatusInputRequired:
		d.InputRequests = t.InputRequests
	case mcp.TaskStatusCompleted:
		d.Result = t.Result
	case mcp.TaskStatusFailed:
		d.Error = t.Error
	}
	return d
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
		sparse.Set(&t.InputResponses, key, json.RawMessage(bytes.Clone(members.Value())))
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

// A memoryTaskStore is a TaskStore in memory. It removes expired tasks when tasks are created or
// updated, so the limit on tasks for each caller and the rate of new callers bound its size.
type memoryTaskStore struct {
	mu    sync.Mutex
	tasks map[string]*storedTask
	// nextExpiry is when the next task expires.
	nextExpiry time.Time
}

type storedTask struct {
	Task
	// changed is closed at the next update.
	changed chan struct{}
}

// NewTaskStore returns a store that keeps tasks in memory.
func NewTaskStore() TaskStore { return &memoryTaskStore{tasks: make(map[string]*storedTask)} }

func (t *Task) clone() *Task {
	c := *t
	c.InputRequests, c.InputResponses = maps.Clone(t.InputRequests), maps.Clone(t.InputResponses)
	if t.Error != nil {
		e := *t.Error
		c.Error = &e
	}
	return &c
}

func (m *memoryTaskStore) Create(_ context.Context, t *Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeExpired()
	if m.tasks[t.ID] != nil {
		return fmt.Errorf("task %s already exists", t.ID)
	}
	t.Version = 1
	st := &storedTask{Task: *t.clone(), changed: make(chan struct{})}
	m.tasks[t.ID] = st
	m.scheduleExpiry(st.Expires())
	return nil
}

// scheduleExpiry makes removeExpired check at the given time or earlier.
func (m *memoryTaskStore) scheduleExpiry(at time.Time) {
	if m.nextExpiry.IsZero() || at.Before(m.nextExpiry) {
		m.nextExpiry = at
	}
}

func (m *memoryTaskStore) removeExpired() {
	now := time.Now()
	if m.nextExpiry.IsZero() || now.Before(m.nextExpiry) {
		return
	}
	m.nextExpiry = time.Time{}
	for id, st := range m.tasks {
		switch at := st.Expires(); {
		case !now.Before(at):
			delete(m.tasks, id)
			close(st.changed)
		default:
			m.scheduleExpiry(at)
		}
	}
}

// find returns a task that has not expired.
func (m *memoryTaskStore) find(id string) (*storedTask, error) {
	st := m.tasks[id]
	if st == nil || !time.Now().Before(st.Expires()) {
		return nil, ErrTaskNotFound
	}
	return st, nil
}

func (m *memoryTaskStore) Task(_ context.Context, id string) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := m.find(id)
	if err != nil {
		return nil, err
	}
	return st.clone(), nil
}

func (m *memoryTaskStore) Update(_ context.Context, id string, change func(*Task) error) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := m.find(id)
	if err != nil {
		return nil, err
	}
	t := st.clone()
	if err := change(t); err != nil {
		return nil, err
	}
	t.Version = st.Version + 1
	st.Task = *t.clone()
	close(st.changed)
	st.changed = make(chan struct{})
	m.scheduleExpiry(st.Expires())
	m.removeExpired()
	return t, nil
}

func (m *memoryTaskStore) Wait(ctx context.Context, id string, version uint64) (*Task, error) {
	for {
		m.mu.Lock()
		st, err := m.find(id)
		if err != nil {
			m.mu.Unlock()
			return nil, err
		}
		if st.Version > version {
			t := st.clone()
			m.mu.Unlock()
			return t, nil
		}
		changed, expires := st.changed, st.Expires()
		m.mu.Unlock()
		if err := waitUntil(ctx, changed, expires); err != nil {
			return nil, err
		}
	}
}

// waitClosed waits until done is closed. It returns an error if ctx ends first.
func waitClosed(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waitGroup waits until no goroutine of wg runs. It returns an error if ctx ends first; a goroutine
// remains until then.
func waitGroup(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return waitClosed(ctx, done)
}

// waitUntil waits for the channel or the deadline. It returns an error if ctx ends first.
func waitUntil(ctx context.Context, changed <-chan struct{}, deadline time.Time) error {
	select {
	case <-changed:
	case <-time.After(time.Until(deadline)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (m *memoryTaskStore) Tasks(_ context.Context, owner, after string, limit int) ([]*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var own []*Task
	now := time.Now()
	for id, st := range m.tasks {
		if st.Owner == owner && id > after && now.Before(st.Expires()) {
			own = append(own, &st.Task)
		}
	}
	slices.SortFunc(own, func(a, b *Task) int { return strings.Compare(a.ID, b.ID) })
	own = own[:min(limit, len(own))]
	for i, t := range own {
		own[i] = t.clone()
	}
	return own, nil
}

// A guardedTaskStore wraps a TaskStore of the user. Many of its calls are on goroutines that belong
// to no request, so it converts panics to errors.
type guardedTaskStore struct{ TaskStore }

func catchPanic[T any](fn func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &jsonrpc.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return fn()
}

func (g guardedTaskStore) Create(ctx context.Context, t *Task) error {
	_, err := catchPanic(func() (*Task, error) { return t, g.TaskStore.Create(ctx, t) })
	return err
}

func (g guardedTaskStore) Task(ctx context.Context, id string) (*Task, error) {
	return catchPanic(func() (*Task, error) { return g.TaskStore.Task(ctx, id) })
}

func (g guardedTaskStore) Update(ctx context.Context, id string, change func(*Task) error) (*Task, error) {
	return catchPanic(func() (*Task, error) { return g.TaskStore.Update(ctx, id, change) })
}

func (g guardedTaskStore) Wait(ctx context.Context, id string, version uint64) (*Task, error) {
	return catchPanic(func() (*Task, error) { return g.TaskStore.Wait(ctx, id, version) })
}

func (g guardedTaskStore) Tasks(ctx context.Context, owner, after string, limit int) ([]*Task, error) {
	return catchPanic(func() ([]*Task, error) { return g.TaskStore.Tasks(ctx, owner, after, limit) })
}
