package server

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
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
// A task of the extension is canceled at once if the client was not told of it, because it canceled
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
	Core   bool
	Method string
	// Name is the name of the tool.
	Name string

	Status        mcp.TaskStatus
	StatusMessage string
	Created       time.Time
	Updated       time.Time
	TTL           time.Duration
	PollInterval  time.Duration

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

// A taskSupport says whether a tool can run as a task.
type taskSupport uint8

const (
	taskForbidden taskSupport = iota
	taskOptional
	taskRequired
)

// taskSupportOf reads a tool's definition. It returns false for an invalid value.
func taskSupportOf(def *mcp.Tool) (taskSupport, bool) {
	if def.Execution == nil {
		return taskForbidden, true
	}
	switch def.Execution.TaskSupport {
	case "", mcp.TaskSupportForbidden:
		return taskForbidden, true
	case mcp.TaskSupportOptional:
		return taskOptional, true
	case mcp.TaskSupportRequired:
		return taskRequired, true
	}
	return taskForbidden, false
}

var (
	errTaskSupport = errors.New("execution.taskSupport must be forbidden, optional or required")
	errNoTasks     = errors.New("its execution.taskSupport allows tasks: set Options.Tasks")
)

// wantsTask decides whether a tool call may become a task, and its TTL.
func (c *Call) wantsTask(t *tool, r *rpc.Request) (ttl time.Duration, yes bool, err error) {
	tm := c.session.srv.tasks
	if tm == nil {
		return 0, false, nil
	}
	switch {
	case c.ex.CoreTasks:
		task, asked := r.Param("task")
		asked = asked && string(task) != "null"
		switch {
		case !asked && t.taskSupport == taskRequired:
			return 0, false, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "tool %s only runs as a task: send params.task", t.key)
		case !asked:
			return 0, false, nil
		case t.taskSupport == taskForbidden:
			return 0, false, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "tool %s does not run as a task: omit params.task", t.key)
		}
		ttl, err = requestedTTL(task, tm.opts.TTL)
		return ttl, err == nil, err
	case !c.ex.Modern || t.taskSupport == taskForbidden:
		return 0, false, nil
	case c.hasTasks():
		return tm.opts.TTL, true, nil
	case t.taskSupport == taskRequired:
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
		return 0, invalidParams("params.task.ttl must be greater than 0, not %s", strconv.FormatInt(*meta.TTL, 10))
	}
	return time.Duration(*meta.TTL) * time.Millisecond, nil
}

// hasTasks reports whether the client has declared the tasks extension.
func (c *Call) hasTasks() bool {
	_, ok := c.ClientExtension(mcp.ExtensionTasks)
	return ok
}

// missingTasksCapability returns the error for a client that has not declared the tasks extension.
func missingTasksCapability() *jsonrpc.Error {
	return mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{Extensions: map[string]jsonText{mcp.ExtensionTasks: jsonText("{}")}})
}

// callAsTask answers a tool call that may become a task: with the task, or with the tool's result
// if that comes first.
func (s *session) callAsTask(c *Call, t *tool, r *rpc.Request, args, dst []byte, ttl time.Duration) ([]byte, error) {
	reqCtx := c.context() // newRun replaces the call's context with the task's
	run, err := s.srv.tasks.newRun(c, args, ttl)
	if err != nil {
		return dst, err
	}
	defer run.releaseUnlessTask() // respond, below, still needs the call's context
	d := c.inputState()
	d.requester = &taskRequester{run: run, inner: d.requester}
	after := s.srv.tasks.opts.After
	if run.task.Core || after <= 0 || t.taskSupport == taskRequired {
		if err := reqCtx.Err(); err != nil {
			return dst, err
		}
		if _, err := run.becomeTask(reqCtx); err != nil {
			return dst, err
		}
		run.start(t.invoke)
		return run.appendCreated(dst), nil
	}
	stop := context.AfterFunc(reqCtx, func() { run.cancelUnlessTask(context.Cause(reqCtx)) })
	defer stop()
	run.start(t.invoke)
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-run.done:
	case <-timer.C:
		begun, err := run.becomeTask(reqCtx)
		if begun {
			return run.appendCreated(dst), nil
		}
		if err != nil { // waiting is better than canceling a running handler
			c.Logger().Warn("call not run as a task: waiting for its result", "error", err)
		}
		<-run.done
	}
	return c.respond(r, dst, append(dst, run.out...), run.err)
}

// cancelIfUnsent cancels the call's task if the client does not learn of it: because the response
// is not delivered or, if sent is false, because middleware replaced it with an error. A core task
// continues: its owner finds it in the list.
func (c *Call) cancelIfUnsent(r *rpc.Request, sent bool) {
	run := c.run.Load()
	switch {
	case run == nil || run.task.Core || !run.isTask():
	case sent:
		r.OnUnsent(run.cancelUnsent)
	default:
		run.cancelUnsent()
	}
}

// sendNotification sends a notification that belongs to the call. A task's notifications cannot
// belong to a request. In the core protocol the progress token stays valid as long as the task
// runs. The extension has neither progress nor log messages.
func (c *Call) sendNotification(method string, params []byte) error {
	run := c.run.Load()
	switch {
	case run == nil || !run.isTask():
		return c.Notify(method, params)
	case !run.task.Core:
		return nil
	case run.ctx.Err() != nil:
		return jsonrpc.ErrRequestEnded
	}
	return c.session.peer.sendNotification(c, c, method, withRelatedTask(params, run.task.ID))
}

// taskOwner returns the owner of the tasks that the call creates.
func (c *Call) taskOwner() string {
	if c.ex.Modern && c.Principal().ID == "" {
		return "" // anyone who knows the id
	}
	return c.session.legacyTaskOwner()
}

func unknownTask(id string) error { return invalidParams("unknown task %q", clip.String(id, 100)) }

// findTask returns the task that the request names if the caller may access it.
func (s *session) findTask(c *Call, r *rpc.Request) (*Task, error) {
	id, err := stringParam(r, "taskId")
	if err != nil {
		return nil, err
	}
	t, err := s.srv.tasks.opts.Store.Task(c, id)
	switch {
	case errors.Is(err, ErrTaskNotFound):
		return nil, unknownTask(id)
	case err != nil:
		return nil, err
	case t.Owner != c.taskOwner() || t.Core != c.ex.CoreTasks:
		return nil, unknownTask(id)
	}
	return t, nil
}

// taskMethod answers the methods of both designs of tasks.
func (s *session) taskMethod(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	if c.ex.Modern && !c.hasTasks() {
		return dst, missingTasksCapability()
	}
	if c.method == mcp.MethodTasksList {
		return s.listTasks(c, r, dst)
	}
	t, err := s.findTask(c, r)
	if err != nil {
		return dst, err
	}
	switch c.method {
	case mcp.MethodTasksResult:
		return s.taskResult(c, t, dst)
	case mcp.MethodTasksUpdate:
		if err := s.updateTaskInput(c, r, t); err != nil {
			return dst, err
		}
		return s.srv.results.Empty(dst, c.ex.Features, nil), nil
	case mcp.MethodTasksCancel:
		return s.cancelTask(c, t, dst)
	}
	if t.Core {
		return mcp.Append(dst, t.coreTask(), c.ex.Revision), nil
	}
	return s.appendDetailed(c, t, dst), nil
}

// cancelTask answers tasks/cancel. The core protocol returns the task, which must not have ended;
// the extension returns an empty result.
func (s *session) cancelTask(c *Call, t *Task, dst []byte) ([]byte, error) {
	now, err := s.srv.updateTask(c, t.ID, canceled("The task was cancelled by request."))
	if err == nil {
		s.srv.tasks.cancelRun(t.ID)
	}
	switch {
	case errors.Is(err, ErrTaskNotFound):
		return dst, unknownTask(t.ID)
	case errors.Is(err, errTaskEnded) && t.Core:
		return dst, invalidParams("the task has already ended: it is %s", string(now.Status))
	case err != nil && !errors.Is(err, errTaskEnded):
		return dst, err
	case t.Core:
		return mcp.Append(dst, now.coreTask(), c.ex.Revision), nil
	}
	return s.srv.results.Empty(dst, c.ex.Features, nil), nil
}

// maxTaskWaits limits the tasks/result requests of one connection that wait.
const maxTaskWaits = 64

// taskResult answers tasks/result with the task's result or error when the task has ended.
func (s *session) taskResult(c *Call, t *Task, dst []byte) ([]byte, error) {
	if !t.Ended() {
		if s.taskWaits.Add(1) > maxTaskWaits {
			s.taskWaits.Add(-1)
			return dst, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks/result requests are waiting (limit %d)", maxTaskWaits)
		}
		defer s.taskWaits.Add(-1)
	}
	for !t.Ended() {
		next, err := s.srv.tasks.opts.Store.Wait(c, t.ID, t.Version)
		if errors.Is(err, ErrTaskNotFound) {
			return dst, unknownTask(t.ID)
		}
		if err != nil {
			return dst, err
		}
		t = next
	}
	if t.Error != nil {
		return dst, t.Error
	}
	return append(dst, withRelatedTask(t.Result, t.ID)...), nil
}

// updateTaskInput stores the responses of tasks/update to pending input requests. Others are
// ignored.
func (s *session) updateTaskInput(c *Call, r *rpc.Request, t *Task) error {
	responses, ok := r.Param("inputResponses")
	if !ok || responses[0] != '{' {
		return invalidParams("params.inputResponses must be an object")
	}
	_, err := s.srv.updateTask(c, t.ID, func(t *Task) error {
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

// listTasks answers tasks/list. Pages may be shorter because tasks of the extension are left out.
func (s *session) listTasks(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
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
	own, err := s.srv.tasks.opts.Store.Tasks(c, c.taskOwner(), after, s.srv.opts.Limits.PageSize+1)
	if err != nil {
		return dst, err
	}
	page := mcp.ListTasksResult{Tasks: []mcp.Task{}}
	if len(own) > s.srv.opts.Limits.PageSize {
		own = own[:s.srv.opts.Limits.PageSize]
		page.NextCursor = &own[len(own)-1].ID
	}
	for _, t := range own {
		if !t.Core {
			continue
		}
		page.Tasks = append(page.Tasks, *t.coreTask())
	}
	return mcp.Append(dst, &page, c.ex.Revision), nil
}

// formatTime returns the format of times in tasks.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// maxSubscribedTasks limits the tasks that the subscriptions of one connection name.
const maxSubscribedTasks = 1024

var errTooManyTasks = jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks watched on this connection (limit %d)", maxSubscribedTasks)

// taskChanged notifies the task's owner in the core protocol, or its subscribers in the extension.
// It also notifies other servers through the bus, unless the owner is a session, which is local.
func (s *Server) taskChanged(t *Task) {
	owner := ""
	if t.Core {
		owner = t.Owner
	}
	s.taskChangedLocal(t.ID, owner)
	if owner == "" || strings.HasPrefix(owner, principalOwner(anonymous)) {
		s.bus.publish(Event{Kind: TaskUpdated, Name: t.ID, Owner: owner})
	}
}

// taskChangedLocal notifies the sessions of this server. owner is set for the core protocol only.
func (s *Server) taskChangedLocal(id, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if owner != "" && owner == sess.legacyTaskOwner() || sess.subs.taskIDs.has(id) {
			sess.notifier.addTask(id)
		}
	}
}

// legacyTaskOwner returns the owner of tasks that a legacy client of the session creates.
func (s *session) legacyTaskOwner() string {
	if s.identity.principal.ID != "" {
		return principalOwner(s.identity.principal)
	}
	return s.anonymousTaskOwner
}

func principalOwner(p *Principal) string { return "principal " + p.ID }

// subscribableTasks returns the tasks that the caller can access.
func (s *session) subscribableTasks(c *Call, ids []string) (own []string, err error) {
	if len(ids) == 0 || s.srv.tasks == nil {
		return nil, nil
	}
	if !c.hasTasks() {
		return nil, missingTasksCapability()
	}
	if len(ids) > maxSubscribedTasks {
		return nil, errTooManyTasks
	}
	for _, id := range ids {
		if t, err := s.srv.tasks.opts.Store.Task(c, id); err == nil && !t.Core && t.Owner == c.taskOwner() {
			own = append(own, id)
		}
	}
	return own, nil
}

type jsonText = json.RawMessage

// taskIDLen is the length of a decoded task id in bytes.
const taskIDLen = 8 + 16

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

// appendCreated appends the response to a request whose call has become a task.
func (tr *taskRun) appendCreated(dst []byte) []byte {
	c := tr.call
	if tr.task.Core {
		return mcp.Append(dst, &mcp.CreateTaskResult{Task: *tr.task.coreTask()}, c.ex.Revision)
	}
	t := tr.task.extensionTask()
	return c.session.srv.results.EndAs(trimObject(mcp.Append(dst, &t, c.ex.Revision)), c.ex.Features, mcp.ResultTypeTask)
}

// appendDetailed appends the result of tasks/get of the extension.
func (s *session) appendDetailed(c *Call, t *Task, dst []byte) []byte {
	d := t.detailedTask()
	return s.srv.results.End(trimObject(mcp.Append(dst, &d, c.ex.Revision)), c.ex.Features)
}

// trimObject removes the closing brace of a nonempty object, so that more members can follow.
func trimObject(dst []byte) []byte { return dst[:len(dst)-1] }
