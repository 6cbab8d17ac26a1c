package translate

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// legacyTasks holds the state for clients of core tasks that a server of the extension does not
// keep.
type legacyTasks struct {
	completed map[string]*completedTask
	// order holds the keys of completed, oldest first.
	order []string
	// canceled holds tasks reported as canceled, which must stay so.
	canceled map[string]struct{}
	inputs   map[string]*taskInput
}

// A completedTask is the result of a call that should be a task but was answered at once.
type completedTask struct {
	task   []byte
	result []byte
	size   int
}

// A taskMode says how a call may become a task.
type taskMode uint8

const (
	noTask    taskMode = iota
	wantsTask          // the client requested a task
	// The server requires a task, and the client gets its result.
	hiddenTask
)

// noteTaskRequest records that the client wants a task. It ignores that if tasks are not supported.
func (t *LegacyToModern) noteTaskRequest(r *legacyRequest) {
	if t.handshake.hasTasks() && era.IsObject(era.Lookup(r.params, "task")) {
		r.taskMode = wantsTask
	}
}

// retryAsTask reports if an error requires that a tool call be repeated with support for tasks. The
// call is then a hidden task.
func (t *LegacyToModern) retryAsTask(r *legacyRequest, e *jsonrpc.Error) bool {
	if e.Code != mcp.CodeMissingRequiredClientCapability || era.Lookup(e.Data, "requiredCapabilities", "extensions", mcp.ExtensionTasks) == nil {
		return false
	}
	if r.method != mcp.MethodToolsCall || r.taskMode != noTask || !t.handshake.hasExtension() {
		return false
	}
	r.taskMode = hiddenTask
	return true
}

// allowTasks declares task support for all tools, because the server decides which calls become
// tasks.
func allowTasks(result []byte) []byte {
	return era.Rewrite(nil, result, func(m *jsonwire.Members) []byte {
		if v := m.Value(); !m.KeyIs("tools") || v[0] != '[' {
			return v
		}
		return era.RewriteArray(nil, m.Value(), func(tool []byte) []byte {
			if !era.IsObject(tool) {
				return tool
			}
			return era.Rewrite(nil, tool, func(m *jsonwire.Members) []byte {
				if m.KeyIs("execution") {
					return nil
				}
				return m.Value()
			}, []byte(`"execution":{"taskSupport":"optional"}`))
		})
	}, nil)
}

// taskCreated answers a call that became a task, or waits for the result of a hidden task.
func (t *LegacyToModern) taskCreated(r *legacyRequest, result []byte) {
	if r.taskMode == hiddenTask {
		r.hiddenTaskID = era.LookupString(result, "taskId")
		r.inputResponses, r.requestState = nil, nil
		t.pollTask(r, r.hiddenTaskID, make(map[string]struct{}))
		return
	}
	task := era.CoreTask([]byte(`{"task":`), result, "")
	t.requests.respond(r, append(task, '}'), "resultType task → task")
}

// completeAsTask answers a call with a completed task, because the server made none.
func (t *LegacyToModern) completeAsTask(r *legacyRequest, result []byte) {
	result = era.ResultToLegacy(nil, result, r.method, t.handshake.legacy)
	id := "done-" + t.opts.NewID()
	status := mcp.TaskStatusCompleted
	if string(era.Lookup(result, "isError")) == "true" {
		status = mcp.TaskStatusFailed
	}
	at := jsonwire.AppendQuote(nil, t.now.UTC().Format(time.RFC3339))
	task := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	task = append(append(task, `,"status":"`+string(status)+`","createdAt":`...), at...)
	task = append(append(append(task, `,"lastUpdatedAt":`...), at...), `,"ttl":null}`...)
	completed := &completedTask{task, withRelatedTask(result, id), len(result)}
	for len(t.tasks.order) > 0 && (len(t.tasks.order) >= t.opts.Limits.Tasks || t.reserved+completed.size > t.opts.Limits.Bytes) {
		t.evictTask()
	}
	if !t.reserve(completed.size) {
		t.requests.fail(r, errOverloaded, "refused")
		return
	}
	if t.tasks.completed == nil {
		t.tasks.completed = make(map[string]*completedTask)
	}
	t.tasks.completed[id] = completed
	t.tasks.order = append(t.tasks.order, id)
	t.requests.respond(r, append(append([]byte(`{"task":`), task...), '}'), "resultType complete → completed task")
}

// evictTask removes the oldest completed task.
func (t *LegacyToModern) evictTask() {
	id := t.tasks.order[0]
	t.tasks.order = slices.Delete(t.tasks.order, 0, 1)
	t.reserved -= t.tasks.completed[id].size
	delete(t.tasks.completed, id)
}

// serveTask serves the methods of core tasks.
func (t *LegacyToModern) serveTask(r *legacyRequest) {
	id := era.LookupString(r.params, "taskId")
	completed := t.tasks.completed[id]
	switch {
	case !t.handshake.hasTasks():
		t.requests.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no tasks")
	case r.method == mcp.MethodTasksList:
		t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method not found: tasks/list: modern servers do not list tasks"), "refused")
	case id == "" || len(id) > maxTaskID:
		t.requests.fail(r, errTaskID, "")
	case completed != nil && r.method == mcp.MethodTasksGet:
		t.requests.respond(r, bytes.Clone(completed.task), "kept here")
	case completed != nil && r.method == mcp.MethodTasksResult:
		t.requests.respond(r, bytes.Clone(completed.result), "kept here")
	case completed != nil:
		t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the task has already ended"), "kept here")
	case r.method == mcp.MethodTasksGet:
		t.callTask(r, mcp.MethodTasksGet, id, func(o outcome) { t.handleTaskGet(r, id, o) })
	case r.method == mcp.MethodTasksCancel:
		t.callTask(r, mcp.MethodTasksCancel, id, func(o outcome) { t.handleTaskCancel(r, id, o) })
	default:
		t.pollTask(r, id, t.adoptTaskInput(r, id))
	}
}

// callTask calls a method of the extension for a client request.
func (t *LegacyToModern) callTask(r *legacyRequest, method, id string, done func(o outcome)) {
	if t.calls.queueIfNotReady(r, func() { t.callTask(r, method, id, done) }) {
		return
	}
	c := t.calls.add(method, r, func(o outcome) {
		switch {
		case r.finished:
		case o.err != nil:
			t.requests.forwardError(r, o.err)
		default:
			done(o)
		}
	})
	c.resend = func() { t.callTask(r, method, id, done) }
	rule := "+ _meta"
	if method != r.method {
		rule = r.method + " → " + method
	}
	t.sendUpstream(c.id, method, t.handshake.params(taskMember(id), true), rule)
}

// coreStatus returns the core status of a task of the extension. In core tasks, a tool error is a
// failed task.
func (t *LegacyToModern) coreStatus(id string, task []byte) mcp.TaskStatus {
	status := mcp.TaskStatus(era.LookupString(task, "status"))
	if _, ok := t.tasks.canceled[id]; ok {
		return mcp.TaskStatusCancelled
	}
	if status == mcp.TaskStatusCompleted && string(era.Lookup(task, "result", "isError")) == "true" {
		return mcp.TaskStatusFailed
	}
	return status
}

func (t *LegacyToModern) handleTaskGet(r *legacyRequest, id string, o outcome) {
	status := t.coreStatus(id, o.result)
	if status == mcp.TaskStatusInputRequired {
		t.pollTaskInput(r, id, o.result)
	} else {
		t.cancelTaskInput(id)
	}
	t.requests.respond(r, era.CoreTask(nil, o.result, status), "tasks/get")
}

// handleTaskCancel handles the acknowledgment of a cancellation. The client also needs the task, so
// it sends tasks/get.
func (t *LegacyToModern) handleTaskCancel(r *legacyRequest, id string, _ outcome) {
	t.callTask(r, mcp.MethodTasksGet, id, func(o outcome) {
		status := t.coreStatus(id, o.result)
		if status == mcp.TaskStatusCompleted || status == mcp.TaskStatusFailed {
			t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the task has already ended"), "tasks/cancel")
			return
		}
		if t.tasks.canceled == nil {
			t.tasks.canceled = make(map[string]struct{})
		}
		for len(t.tasks.canceled) >= t.opts.Limits.Tasks {
			for old := range maps.Keys(t.tasks.canceled) {
				delete(t.tasks.canceled, old)
				break
			}
		}
		t.tasks.canceled[id] = struct{}{}
		t.cancelTaskInput(id)
		t.requests.respond(r, era.CoreTask(nil, o.result, mcp.TaskStatusCancelled), "tasks/cancel")
	})
}

// maxPollInterval limits the time between polls.
const maxPollInterval = time.Minute

// pollTask serves tasks/result. It polls the task until it ends, and sends its input requests to
// the client. sent holds the keys of those that were sent.
func (t *LegacyToModern) pollTask(r *legacyRequest, id string, sent map[string]struct{}) {
	t.callTask(r, mcp.MethodTasksGet, id, func(o outcome) {
		task := o.result
		status := t.coreStatus(id, task)
		switch {
		case status == mcp.TaskStatusCancelled:
			t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the task was cancelled"), "tasks/get → "+r.method)
			return
		case era.IsTerminal(status):
			t.taskEnded(r, id, task)
			return
		case status == mcp.TaskStatusInputRequired:
			if e := t.sendTaskInputs(r, id, era.Lookup(task, "inputRequests"), sent); e != nil {
				t.abandon(r, "the task cannot continue")
				t.requests.fail(r, e, "refused")
				return
			}
		}
		wait := t.opts.Limits.PollInterval
		if ms, ok := jsonwire.ParseInt(era.Lookup(task, "pollIntervalMs")); ok && ms > 0 && ms < maxPollInterval.Milliseconds() {
			wait = time.Duration(ms) * time.Millisecond
		}
		t.timers.stop(r.retryTimer)
		r.retryTimer = t.after(wait, func() { t.pollTask(r, id, sent) })
		t.drop("the task continues")
	})
}

// taskEnded answers tasks/result with the result of the task's request.
func (t *LegacyToModern) taskEnded(r *legacyRequest, id string, task []byte) {
	if result := era.Lookup(task, "result"); era.IsObject(result) {
		result = era.ResultToLegacy(nil, result, mcp.MethodToolsCall, t.handshake.legacy)
		if r.hiddenTaskID == "" {
			result = withRelatedTask(result, id)
		}
		t.requests.respond(r, result, "tasks/get → "+r.method)
		return
	}
	e := internalError("the task failed, but the server gives no reason")
	if text := era.Lookup(task, "error"); era.IsObject(text) {
		m := jsonrpc.Message{Kind: jsonrpc.KindError, Error: text}
		e = era.ConvertError(m.Err(), mcp.MethodToolsCall, t.handshake.legacy)
	}
	t.requests.fail(r, e, "tasks/get → "+r.method)
}

// cancelTask cancels a task that the client does not know.
func (t *LegacyToModern) cancelTask(id string) {
	if t.calls.down {
		return
	}
	c := t.calls.add(mcp.MethodTasksCancel, nil, func(outcome) {})
	t.sendUpstream(c.id, c.method, t.handshake.params(taskMember(id), true), "cancelled")
}

// sendTaskInputs sends the client the input requests of a task that are not in sent.
func (t *LegacyToModern) sendTaskInputs(r *legacyRequest, id string, requests []byte, sent map[string]struct{}) *jsonrpc.Error {
	if requests == nil {
		return nil
	}
	unsent := requests
	if era.IsObject(requests) {
		unsent = era.Rewrite(nil, requests, func(m *jsonwire.Members) []byte {
			if _, ok := sent[m.KeyString()]; ok {
				return nil
			}
			return m.Value()
		}, nil)
	}
	inputs, err := t.inputs.parse(r, unsent)
	if err != nil {
		return internalError("the client cannot be sent input requests: %s", err)
	}
	if len(sent)+len(inputs) > t.opts.Limits.InputRequests {
		return internalError("the task sent more than %d input requests", t.opts.Limits.InputRequests)
	}
	for _, in := range inputs {
		sent[unquoted(in.key)] = struct{}{}
		in.done = func(in *inputRequest, e *jsonrpc.Error) { t.updateTask(id, in, e) }
		if r.hiddenTaskID == "" {
			in.Params = addMeta(in.Params, relatedTask(id))
		}
		r.inputRequests = append(r.inputRequests, in)
		r.pendingInputs++
		t.inputs.send(in, "tasks/get → "+in.Method)
	}
	return nil
}

// updateTask sends a client's response to the task.
func (t *LegacyToModern) updateTask(id string, in *inputRequest, e *jsonrpc.Error) {
	r := in.req
	if r.finished {
		return
	}
	r.pendingInputs--
	for i, one := range r.inputRequests {
		if one == in {
			r.inputRequests = append(r.inputRequests[:i:i], r.inputRequests[i+1:]...)
			break
		}
	}
	switch {
	case t.taskInputAnswered(id, in, e != nil):
	case e != nil:
		t.abandon(r, "the task cannot continue")
		t.requests.fail(r, e, "refused")
	default:
		t.sendUpdate(r, id, in)
	}
}

func (t *LegacyToModern) sendUpdate(r *legacyRequest, id string, in *inputRequest) {
	if t.calls.queueIfNotReady(r, func() { t.sendUpdate(r, id, in) }) {
		return
	}
	c := t.calls.add(mcp.MethodTasksUpdate, nil, func(outcome) {})
	members := append(append(append(taskMember(id), `,"inputResponses":{"`...), in.key...), `":`...)
	members = append(append(members, in.response...), '}')
	t.sendUpstream(c.id, c.method, t.handshake.params(members, true), in.Method+" → tasks/update")
}

// upstreamTaskStatus forwards a task notification.
func (t *LegacyToModern) upstreamTaskStatus(m *jsonrpc.Message) {
	id := era.LookupString(m.Params, "taskId")
	if !t.handshake.legacy.CoreTasks || id == "" {
		t.drop("the client does not support tasks")
		return
	}
	params := era.CoreTask(nil, m.Params, t.coreStatus(id, m.Params))
	t.emit(Out{To: Downstream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationTaskStatus, bytes.Clone(params)), Rule: "notifications/tasks → notifications/tasks/status"})
}

// A taskInput holds the input requests of a task that the client polls without tasks/result. Core
// servers may send them at any time, and some clients rely on that.
type taskInput struct {
	// req owns the input requests. It is not a request of the client.
	req *legacyRequest
	// sent holds the keys that were sent to the client.
	sent map[string]struct{}
	// refused holds the keys without a response from the client.
	refused map[string]struct{}
}

// pollTaskInput sends the client the input requests of a task if it polls the task again after
// input_required, because it is then unlikely to send tasks/result.
func (t *LegacyToModern) pollTaskInput(r *legacyRequest, id string, task []byte) {
	input := t.tasks.inputs[id]
	switch {
	case input == nil && t.awaitsResult(id):
	case input == nil:
		if t.tasks.inputs == nil {
			t.tasks.inputs = make(map[string]*taskInput)
		}
		for old, one := range t.tasks.inputs {
			if len(t.tasks.inputs) >= t.opts.Limits.Tasks && one.req.pendingInputs == 0 {
				delete(t.tasks.inputs, old)
			}
		}
		if len(t.tasks.inputs) >= t.opts.Limits.Tasks {
			return // the client may send tasks/result
		}
		t.tasks.inputs[id] = &taskInput{req: &legacyRequest{request: request{method: mcp.MethodTasksResult}}, sent: make(map[string]struct{}), refused: make(map[string]struct{})}
	default:
		input.req.stream = r.stream // open until r is answered
		// An error is reported when the client sends tasks/result.
		_ = t.sendTaskInputs(input.req, id, era.Lookup(task, "inputRequests"), input.sent)
		input.req.stream = 0
	}
}

// awaitsResult reports if a tasks/result is pending for a task.
func (t *LegacyToModern) awaitsResult(id string) bool {
	for _, r := range t.requests.byKey {
		if r.method == mcp.MethodTasksResult && era.LookupString(r.params, "taskId") == id {
			return true
		}
	}
	return false
}

// cancelTaskInput cancels the input requests of a task.
func (t *LegacyToModern) cancelTaskInput(id string) {
	if input := t.tasks.inputs[id]; input != nil {
		delete(t.tasks.inputs, id)
		t.requests.finish(input.req)
	}
}

// adoptTaskInput moves the input requests of a task to its tasks/result request. It returns their
// keys.
func (t *LegacyToModern) adoptTaskInput(r *legacyRequest, id string) (sent map[string]struct{}) {
	input := t.tasks.inputs[id]
	if input == nil {
		return make(map[string]struct{})
	}
	delete(t.tasks.inputs, id)
	r.inputRequests, r.pendingInputs = input.req.inputRequests, input.req.pendingInputs
	for _, in := range r.inputRequests {
		in.req = r
	}
	for key := range input.refused {
		delete(input.sent, key)
	}
	return input.sent
}

// taskInputAnswered handles a response for a taskInput. It reports if it was one.
func (t *LegacyToModern) taskInputAnswered(id string, in *inputRequest, refused bool) bool {
	input := t.tasks.inputs[id]
	if input == nil || input.req != in.req {
		return false
	}
	if refused {
		input.refused[unquoted(in.key)] = struct{}{}
		t.drop("the task waits until the client asks for the result")
	} else {
		t.sendUpdate(in.req, id, in)
	}
	t.reserved -= in.req.size
	in.req.size, in.req.causes = 0, nil
	return true
}
