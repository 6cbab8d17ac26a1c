package server

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TaskOptions let tools run as tasks: work that goes on after the request was answered, and whose result the client comes back for. A tool takes part if its
// definition's Execution says so: with "required" it always runs as a task, with "optional" where the client can deal with one.
//
// Two designs of the protocol are served: that of 2025-11-25, in which the client asks for a task
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks), and the extension io.modelcontextprotocol/tasks of modern revisions,
// in which the server decides.
//
// The context of a handler that runs as a task does not end with its request, nor with [Options.HandlerTimeout]. It ends when the task is cancelled, when
// its TTL is over, and with [Server.Close]; that of a 2025-11-25 client without a principal also with its connection, since nobody else could ask
// for the task.
//
// A task of the extension of which the client has not been told, because it has cancelled the request or gone before the answer was written, is cancelled at
// once. After that only tasks/cancel cancels it.
type TaskOptions struct {
	Store        TaskStore     // nil keeps tasks in memory
	TTL          time.Duration // how long a task is kept after it was made, and how long it may run; a 2025-11-25 client may ask for less. 0 is an hour
	PollInterval time.Duration // how often clients should come back; 0 is a second
	MaxTasks     int           // of one caller that have not expired, with their results; who has no principal shares. 0 is 1000
	MaxRunning   int           // of the whole server, those that may yet become tasks among them; 0 is 256

	// After is when an optional tool that has not answered yet becomes a task, for clients of modern revisions. 0 is at once. What the tool asks the
	// client until then is asked in the answer to the request, see [Call.Elicit]; a tool that has asked so answers directly, and so does one that
	// cannot become a task, because the store fails or the caller has too many.
	After time.Duration
}

const (
	defaultTaskTTL    = time.Hour
	defaultTaskPoll   = time.Second
	defaultMaxTasks   = 1000
	defaultMaxRunning = 256
)

// A Task is one task, as a [TaskStore] keeps it.
type Task struct {
	ID     string // unguessable; those of one process grow
	Owner  string // who may ask for it: the principal's ID, else that of a legacy session; "" is whoever knows the ID
	Core   bool   // a task of the core protocol of 2025-11-25, not of the extension
	Method string
	Name   string // of the tool

	Status        mcp.TaskStatus
	StatusMessage string
	Created       time.Time
	Updated       time.Time
	TTL           time.Duration
	PollInterval  time.Duration

	Result json.RawMessage // of a task that has one
	Error  *jsonrpc.Error  // of one that failed with it, or was cancelled

	// Questions to the client that have no answer, and answers that the tool has not taken yet.
	InputRequests  map[string]mcp.InputRequest
	InputResponses map[string]json.RawMessage

	Version uint64 // grows with each update; the store's
}

// Expires returns when the store may forget the task.
func (t *Task) Expires() time.Time { return t.Created.Add(t.TTL) }

// Ended reports whether the status is one that nothing can change any more.
func (t *Task) Ended() bool {
	switch t.Status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed, mcp.TaskStatusCancelled:
		return true
	}
	return false
}

// ErrTaskNotFound is what a TaskStore returns for a task that it does not have, or not any more.
var ErrTaskNotFound = errors.New("there is no such task")

// A TaskStore keeps tasks until they expire. Its methods may be called by many goroutines at once; the tasks they return are the caller's, but for the
// JSON texts in them, which nobody changes. Their errors wrap [ErrTaskNotFound], or the context's, or say that the store is not available.
type TaskStore interface {
	// Create adds a copy of a task, and sets the Version of t; once it has returned, the task can be asked for.
	Create(ctx context.Context, t *Task) error
	// Task returns a task.
	Task(ctx context.Context, id string) (*Task, error)
	// Update changes a task and returns what it is then. Between the task that change sees and the one it leaves, no other update takes place; change
	// may be called more than once. If it returns an error, nothing is changed, and that error is returned.
	Update(ctx context.Context, id string, change func(*Task) error) (*Task, error)
	// Wait returns the task as soon as its version is greater.
	Wait(ctx context.Context, id string, version uint64) (*Task, error)
	// Tasks returns the owner's tasks whose ids are greater than after, in the order of their ids, which is that in which they were made.
	Tasks(ctx context.Context, owner, after string, limit int) ([]*Task, error)
}

// A taskSupport is whether a tool can run as a task.
type taskSupport uint8

const (
	taskForbidden taskSupport = iota
	taskOptional
	taskRequired
)

// taskSupportOf reads what a tool's definition says.
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
	errNoTasks     = errors.New("its execution.taskSupport says that it runs as a task: set Options.Tasks")
)

// wantsTask decides whether the call of a tool may become a task, and for how long that would be kept.
func (c *Call) wantsTask(t *tool, r *jsonrpc.Request) (ttl time.Duration, yes bool, err error) {
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
			return 0, false, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "tool %s runs as a task only: send params.task", t.key)
		case !asked:
			return 0, false, nil
		case t.taskSupport == taskForbidden:
			return 0, false, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "tool %s does not run as a task: leave out params.task", t.key)
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

// requestedTTL is what the client asks for, or what the server has at most.
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

// missingTasksCapability is the error for a client that has not declared the tasks extension.
func missingTasksCapability() *jsonrpc.Error {
	return mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{Extensions: map[string]jsonText{mcp.ExtensionTasks: jsonText("{}")}})
}

// callAsTask answers the call of a tool that may become a task: with the task, or with what the tool returned before it became one.
func (s *session) callAsTask(c *Call, t *tool, r *jsonrpc.Request, args, dst []byte, ttl time.Duration) ([]byte, error) {
	reqCtx := c.context() // from here on the Call stands for that of the task
	run, err := s.srv.tasks.newRun(c, args, ttl)
	if err != nil {
		return dst, err
	}
	defer run.releaseUnlessTask() // not before what the handler returned is settled, for which the Call must go on
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
		if err != nil { // the handler is at work, and to end it half-way is worse than to wait
			c.Logger().Warn("no task was made of a call, which is waited for", "error", err)
		}
		<-run.done
	}
	return c.respond(r, dst, append(dst, run.out...), run.err)
}

// cancelIfUnsent cancels the task that the call has become, if it has, should the client not be told of
// it: because the answer is not sent, or is an error of a middleware's, and told is false. A task of
// the core protocol goes on: its owner finds it in the list.
func (c *Call) cancelIfUnsent(r *jsonrpc.Request, sent bool) {
	run := c.run.Load()
	switch {
	case run == nil || run.task.Core || !run.isTask():
	case sent:
		r.OnUnsent(run.cancelUnsent)
	default:
		run.cancelUnsent()
	}
}

// sendNotification sends a notification that belongs to the call. What a task has to tell cannot belong to a request any more: the core protocol keeps the token
// for as long as the task goes on, the extension has neither progress nor log messages.
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
	return c.session.sendNotification(c, c, method, withRelatedTask(params, run.task.ID))
}

// anonymousTaskOwner returns who may ask for the tasks that the call makes.
func (c *Call) taskOwner() string {
	if c.ex.Modern && c.Principal().ID == "" {
		return "" // whoever knows the id
	}
	return c.session.legacyTaskOwner()
}

func unknownTask(id string) error { return invalidParams("there is no task %q", clip(id)) }

// findTask returns the task that the request names, if the caller may ask for it.
func (s *session) findTask(c *Call, r *jsonrpc.Request) (*Task, error) {
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
func (s *session) taskMethod(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
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

// cancelTask answers tasks/cancel: the core protocol with the task, which must not have ended, the extension with nothing.
func (s *session) cancelTask(c *Call, t *Task, dst []byte) ([]byte, error) {
	now, err := s.srv.updateTask(c, t.ID, canceled("The task was cancelled by request."))
	if err == nil {
		s.srv.tasks.cancelRun(t.ID)
	}
	switch {
	case errors.Is(err, ErrTaskNotFound):
		return dst, unknownTask(t.ID)
	case errors.Is(err, errTaskEnded) && t.Core:
		return dst, invalidParams("the task has ended already, it is %s", string(t.Status))
	case err != nil && !errors.Is(err, errTaskEnded):
		return dst, err
	case t.Core:
		return mcp.Append(dst, now.coreTask(), c.ex.Revision), nil
	}
	return s.srv.results.Empty(dst, c.ex.Features, nil), nil
}

// maxTaskWaits is how many tasks/result requests of one connection may wait at once.
const maxTaskWaits = 64

// taskResult answers tasks/result, when the task has ended, with what the request would have been answered with.
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

// updateTaskInput takes the answers of tasks/update to questions that are open. Others are passed over.
func (s *session) updateTaskInput(c *Call, r *jsonrpc.Request, t *Task) error {
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
	case errors.Is(err, errNoResponse), errors.Is(err, errTaskEnded): // nobody waits for it, which the client need not know
		return nil
	case errors.Is(err, ErrTaskNotFound):
		return unknownTask(t.ID)
	}
	return err
}

var errNoResponse = errors.New("no question is answered")

// listTasks answers tasks/list. Tasks of the extension, which the owner may have too, make pages shorter.
func (s *session) listTasks(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	after := ""
	if cursor, ok := r.Param("cursor"); ok && string(cursor) != "null" {
		text, err := stringParam(r, "cursor")
		if err != nil {
			return dst, err
		}
		if id, err := taskIDEncoding.DecodeString(text); err != nil || len(id) != taskIDLen {
			return dst, invalidParams("params.cursor is not one that this server gave out")
		}
		after = text
	}
	own, err := s.srv.tasks.opts.Store.Tasks(c, c.taskOwner(), after, s.srv.opts.PageSize+1)
	if err != nil {
		return dst, err
	}
	page := mcp.ListTasksResult{Tasks: []mcp.Task{}}
	if len(own) > s.srv.opts.PageSize {
		own = own[:s.srv.opts.PageSize]
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

// formatTime is the form of times in tasks.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// maxSubscribedTasks is how many tasks the subscriptions of one connection may name.
const maxSubscribedTasks = 1024

// taskChanged tells the sessions that want to know: the one of the task's owner in the core protocol, those with a subscription to it in the extension. Those at
// the other servers of the bus are told too, unless the owner is a session, which is here.
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

// taskChangedLocal is told of the owner in the core protocol only.
func (s *Server) taskChangedLocal(id, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if (owner != "" && owner == sess.legacyTaskOwner() || sess.subscribedTasks[id] > 0) && len(sess.pending.tasks) < maxPendingUpdates {
			if sess.pending.tasks == nil {
				sess.pending.tasks = make(map[string]struct{})
			}
			sess.pending.tasks[id] = struct{}{}
			sess.startNotifierLocked()
		}
	}
}

// notifyTask sends what the task is by now.
func (s *session) notifyTask(id string) {
	ctx, cancel := context.WithTimeout(s.context(), storeTimeout)
	defer cancel()
	t, err := s.srv.tasks.opts.Store.Task(ctx, id)
	if err != nil {
		s.logDropped(mcp.NotificationTasks, err)
		return
	}
	if t.Core {
		if f := s.era.Legacy(); f != nil && f.CoreTasks {
			s.notify(mcp.NotificationTaskStatus, mcp.Append(nil, t.coreTask(), mcp.RevisionNone))
		}
		return
	}
	d := t.detailedTask()
	text := mcp.Append(nil, &d, mcp.RevisionNone)
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for sub := range s.subs.active {
		for _, subscribed := range sub.tasks {
			if subscribed == id {
				s.logDropped(mcp.NotificationTasks, sub.call.Notify(mcp.NotificationTasks, sub.params(append([]byte{','}, text[1:len(text)-1]...))))
				break
			}
		}
	}
}

// legacyTaskOwner is whose tasks a legacy client of the session makes.
func (s *session) legacyTaskOwner() string {
	if s.identity.principal.ID != "" {
		return principalOwner(s.identity.principal)
	}
	return s.anonymousTaskOwner
}

func principalOwner(p *Principal) string { return "principal " + p.ID }

// subscribeTasks counts the tasks that a subscription wants to hear of, of those that the caller may ask for. It returns these.
func (s *session) subscribeTasks(c *Call, ids []string) ([]string, error) {
	if len(ids) == 0 || s.srv.tasks == nil {
		return nil, nil
	}
	if !c.hasTasks() {
		return nil, missingTasksCapability()
	}
	var own []string
	for _, id := range ids[:min(len(ids), maxSubscribedTasks)] {
		if t, err := s.srv.tasks.opts.Store.Task(c, id); err == nil && !t.Core && t.Owner == c.taskOwner() {
			own = append(own, id)
		}
	}
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if len(s.subscribedTasks)+len(own) > maxSubscribedTasks {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks watched on this connection (limit %d)", maxSubscribedTasks)
	}
	if s.subscribedTasks == nil {
		s.subscribedTasks = make(map[string]int)
	}
	for _, id := range own {
		s.subscribedTasks[id]++
	}
	return own, nil
}

func (s *session) unsubscribeTasks(ids []string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	for _, id := range ids {
		if s.subscribedTasks[id]--; s.subscribedTasks[id] <= 0 {
			delete(s.subscribedTasks, id)
		}
	}
}

type jsonText = json.RawMessage

// taskIDLen is how many bytes a task's id encodes.
const taskIDLen = 8 + 16

// coreTask returns the task in the shape of 2025-11-25.
func (t *Task) coreTask() *mcp.Task {
	ttl, poll := t.TTL.Milliseconds(), t.PollInterval.Milliseconds()
	return &mcp.Task{
		TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: formatTime(t.Created), LastUpdatedAt: formatTime(t.Updated),
		TTL: &ttl, PollInterval: &poll,
	}
}

// extensionTask returns the task in the shape of the extension.
func (t *Task) extensionTask() mcp.ExtensionTask {
	ttl, poll := t.TTL.Milliseconds(), t.PollInterval.Milliseconds()
	return mcp.ExtensionTask{
		TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: formatTime(t.Created), LastUpdatedAt: formatTime(t.Updated),
		TTLMs: &ttl, PollIntervalMs: &poll,
	}
}

// detailedTask returns the task with all that its status has: the open questions, the result or the error.
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

// appendCreated appends the answer to the request whose call has become a task.
func (tr *taskRun) appendCreated(dst []byte) []byte {
	c := tr.call
	if tr.task.Core {
		return mcp.Append(dst, &mcp.CreateTaskResult{Task: *tr.task.coreTask()}, c.ex.Revision)
	}
	t := tr.task.extensionTask()
	return c.session.srv.results.EndAs(trimObject(mcp.Append(dst, &t, c.ex.Revision)), c.ex.Features, resultTypeTask)
}

// resultTypeTask tells a task from a result.
const resultTypeTask = "task"

// appendDetailed appends the answer to tasks/get of the extension.
func (s *session) appendDetailed(c *Call, t *Task, dst []byte) []byte {
	d := t.detailedTask()
	return s.srv.results.End(trimObject(mcp.Append(dst, &d, c.ex.Revision)), c.ex.Features)
}

// trimObject takes off the brace that ends an object with members, so that more can follow.
func trimObject(dst []byte) []byte { return dst[:len(dst)-1] }
