package translate

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A legacyTasks converts the core tasks of a legacy client to tasks of the extension. It holds what
// the server does not.
type legacyTasks struct {
	*core
	handshake *legacyHandshake
	inputs    *legacyInputs
	requests  *legacyRequests
	calls     *legacyCalls

	// completed holds the results of calls that were answered at once, by task.
	completed map[string]*completedTask
	// order holds the keys of completed, oldest first.
	order []string
	// canceled holds tasks reported as canceled, which must stay so.
	canceled map[string]struct{}
	// polled holds the input requests of tasks that the client polls.
	polled map[string]*taskInput
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

// noteRequest records that the client wants a task. It ignores that if tasks are not supported.
func (lt *legacyTasks) noteRequest(r *legacyRequest) {
	if lt.handshake.hasTasks() && era.IsObject(era.Lookup(r.params, "task")) {
		r.taskMode = wantsTask
	}
}

// requiresTask reports if an error requires that a tool call be repeated with support for tasks.
// The call is then a hidden task.
func (lt *legacyTasks) requiresTask(r *legacyRequest, e *jsonrpc.Error) bool {
	if e.Code != mcp.CodeMissingRequiredClientCapability || era.Lookup(e.Data, "requiredCapabilities", "extensions", mcp.ExtensionTasks) == nil {
		return false
	}
	if r.method != mcp.MethodToolsCall || r.taskMode != noTask || !lt.handshake.hasExtension() {
		return false
	}
	r.taskMode = hiddenTask
	return true
}

// allowTasks declares task support for all tools, because the server decides which calls become
// tasks.
func allowTasks(result []byte) []byte {
	return rewriteTools(result, func(tool []byte) []byte {
		return era.Rewrite(nil, tool, era.Without("execution"), []byte(`"execution":{"taskSupport":"optional"}`))
	})
}

// created answers a call that became a task, or waits for the result of a hidden task.
func (lt *legacyTasks) created(r *legacyRequest, result []byte) {
	if r.taskMode == hiddenTask {
		r.hiddenTaskID = era.LookupString(result, "taskId")
		r.inputResponses, r.requestState = nil, nil
		lt.poll(r, r.hiddenTaskID, make(map[string]struct{}))
		return
	}
	task := era.CoreTask([]byte(`{"task":`), result, "")
	lt.requests.respond(r, append(task, '}'), "resultType task → task")
}

// complete answers a call with a completed task, because the server made none.
func (lt *legacyTasks) complete(r *legacyRequest, result []byte) {
	result = era.ResultToLegacy(nil, result, r.method, lt.handshake.legacy)
	id := "done-" + lt.opts.NewID()
	status := mcp.TaskStatusCompleted
	if string(era.Lookup(result, "isError")) == "true" {
		status = mcp.TaskStatusFailed
	}
	at := jsonwire.AppendQuote(nil, lt.now.UTC().Format(time.RFC3339))
	task := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	task = append(append(task, `,"status":"`+string(status)+`","createdAt":`...), at...)
	task = append(append(append(task, `,"lastUpdatedAt":`...), at...), `,"ttl":null}`...)
	completed := &completedTask{task, withRelatedTask(result, id), len(result)}
	for len(lt.order) > 0 && (len(lt.order) >= lt.opts.Limits.Tasks || lt.reserved+completed.size > lt.opts.Limits.Bytes) {
		lt.evict()
	}
	if !lt.reserve(completed.size) {
		lt.requests.fail(r, errOverloaded, "refused")
		return
	}
	sparse.Set(&lt.completed, id, completed)
	lt.order = append(lt.order, id)
	lt.requests.respond(r, append(append([]byte(`{"task":`), task...), '}'), "resultType complete → completed task")
}

// evict removes the oldest completed task.
func (lt *legacyTasks) evict() {
	id := lt.order[0]
	lt.order = slices.Delete(lt.order, 0, 1)
	lt.reserved -= lt.completed[id].size
	sparse.Delete(&lt.completed, id)
}

// serve serves the methods of core tasks.
func (lt *legacyTasks) serve(r *legacyRequest) {
	id := era.LookupString(r.params, "taskId")
	completed := lt.completed[id]
	switch {
	case !lt.handshake.hasTasks():
		lt.requests.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no tasks")
	case r.method == mcp.MethodTasksList:
		lt.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method not found: tasks/list: modern servers do not list tasks"), "refused")
	case id == "" || len(id) > maxTaskID:
		lt.requests.fail(r, errTaskID, "")
	case completed != nil && r.method == mcp.MethodTasksGet:
		lt.requests.respond(r, bytes.Clone(completed.task), "kept here")
	case completed != nil && r.method == mcp.MethodTasksResult:
		lt.requests.respond(r, bytes.Clone(completed.result), "kept here")
	case completed != nil:
		lt.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the task has already ended"), "kept here")
	case r.method == mcp.MethodTasksGet:
		lt.call(r, mcp.MethodTasksGet, id, func(o outcome) { lt.handleGet(r, id, o) })
	case r.method == mcp.MethodTasksCancel:
		lt.call(r, mcp.MethodTasksCancel, id, func(o outcome) { lt.handleCancel(r, id, o) })
	default:
		lt.poll(r, id, lt.adoptInput(r, id))
	}
}

// call calls a method of the extension for a client request.
func (lt *legacyTasks) call(r *legacyRequest, method, id string, done func(o outcome)) {
	if lt.calls.queueIfNotReady(r, func() { lt.call(r, method, id, done) }) {
		return
	}
	c := lt.calls.add(method, r, func(o outcome) {
		switch {
		case r.finished:
		case o.err != nil:
			lt.requests.forwardError(r, o.err)
		default:
			done(o)
		}
	})
	c.resend = func() { lt.call(r, method, id, done) }
	rule := "+ _meta"
	if method != r.method {
		rule = r.method + " → " + method
	}
	lt.sendUpstream(c.id, method, lt.handshake.params(taskMember(id), true), rule)
}

// coreStatus returns the core status of a task of the extension. In core tasks, a tool error is a
// failed task.
func (lt *legacyTasks) coreStatus(id string, task []byte) mcp.TaskStatus {
	status := mcp.TaskStatus(era.LookupString(task, "status"))
	if _, ok := lt.canceled[id]; ok {
		return mcp.TaskStatusCancelled
	}
	if status == mcp.TaskStatusCompleted && string(era.Lookup(task, "result", "isError")) == "true" {
		return mcp.TaskStatusFailed
	}
	return status
}

// handleGet answers tasks/get.
func (lt *legacyTasks) handleGet(r *legacyRequest, id string, o outcome) {
	status := lt.coreStatus(id, o.result)
	if status == mcp.TaskStatusInputRequired {
		lt.pollInput(r, id, o.result)
	} else {
		lt.cancelInput(id)
	}
	lt.requests.respond(r, era.CoreTask(nil, o.result, status), "tasks/get")
}

// handleCancel handles the acknowledgment of a cancellation. The client also needs the task, so it
// sends tasks/get.
func (lt *legacyTasks) handleCancel(r *legacyRequest, id string, _ outcome) {
	lt.call(r, mcp.MethodTasksGet, id, func(o outcome) {
		status := lt.coreStatus(id, o.result)
		if status == mcp.TaskStatusCompleted || status == mcp.TaskStatusFailed {
			lt.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the task has already ended"), "tasks/cancel")
			return
		}
		for len(lt.canceled) >= lt.opts.Limits.Tasks {
			for old := range maps.Keys(lt.canceled) {
				sparse.Delete(&lt.canceled, old)
				break
			}
		}
		sparse.Set(&lt.canceled, id, struct{}{})
		lt.cancelInput(id)
		lt.requests.respond(r, era.CoreTask(nil, o.result, mcp.TaskStatusCancelled), "tasks/cancel")
	})
}

// maxPollInterval limits the time between polls.
const maxPollInterval = time.Minute

// poll serves tasks/result. It polls the task until it ends, and sends its input requests to the
// client. sent holds the keys of those that were sent.
func (lt *legacyTasks) poll(r *legacyRequest, id string, sent map[string]struct{}) {
	lt.call(r, mcp.MethodTasksGet, id, func(o outcome) {
		task := o.result
		status := lt.coreStatus(id, task)
		switch {
		case status == mcp.TaskStatusCancelled:
			lt.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the task was cancelled"), "tasks/get → "+r.method)
			return
		case era.IsTerminal(status):
			lt.ended(r, id, task)
			return
		case status == mcp.TaskStatusInputRequired:
			if e := lt.sendInputs(r, id, era.Lookup(task, "inputRequests"), sent); e != nil {
				lt.abandon(r, "the task cannot continue")
				lt.requests.fail(r, e, "refused")
				return
			}
		}
		wait := lt.opts.Limits.PollInterval
		if ms, ok := jsonwire.ParseInt(era.Lookup(task, "pollIntervalMs")); ok && ms > 0 && ms < maxPollInterval.Milliseconds() {
			wait = time.Duration(ms) * time.Millisecond
		}
		lt.timers.stop(r.retryTimer)
		r.retryTimer = lt.after(wait, func() { lt.poll(r, id, sent) })
		lt.drop("the task continues")
	})
}

// ended answers tasks/result with the result of the task's request.
func (lt *legacyTasks) ended(r *legacyRequest, id string, task []byte) {
	if result := era.Lookup(task, "result"); era.IsObject(result) {
		result = era.ResultToLegacy(nil, result, mcp.MethodToolsCall, lt.handshake.legacy)
		if r.hiddenTaskID == "" {
			result = withRelatedTask(result, id)
		}
		lt.requests.respond(r, result, "tasks/get → "+r.method)
		return
	}
	e := internalError("the task failed, but the server gives no reason")
	if text := era.Lookup(task, "error"); era.IsObject(text) {
		m := jsonrpc.Message{Kind: jsonrpc.KindError, Error: text}
		e = era.ConvertError(m.Err(), mcp.MethodToolsCall, lt.handshake.legacy)
	}
	lt.requests.fail(r, e, "tasks/get → "+r.method)
}

// cancel cancels a task that the client does not know.
func (lt *legacyTasks) cancel(id string) {
	if lt.calls.down {
		return
	}
	c := lt.calls.add(mcp.MethodTasksCancel, nil, func(outcome) {})
	lt.sendUpstream(c.id, c.method, lt.handshake.params(taskMember(id), true), "cancelled")
}

// sendInputs sends the client the input requests of a task that are not in sent.
func (lt *legacyTasks) sendInputs(r *legacyRequest, id string, requests []byte, sent map[string]struct{}) *jsonrpc.Error {
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
	inputs, err := lt.inputs.parse(r, unsent)
	if err != nil {
		return internalError("the client cannot be sent input requests: %s", err)
	}
	if len(sent)+len(inputs) > lt.opts.Limits.InputRequests {
		return internalError("the task sent more than %d input requests", lt.opts.Limits.InputRequests)
	}
	for _, in := range inputs {
		sent[jsonwire.UnquoteString(in.key)] = struct{}{}
		in.done = func(in *inputRequest, e *jsonrpc.Error) { lt.update(id, in, e) }
		if r.hiddenTaskID == "" {
			in.Params = addMeta(in.Params, relatedTask(id))
		}
		r.inputRequests = append(r.inputRequests, in)
		r.pendingInputs++
		lt.inputs.send(in, "tasks/get → "+in.Method)
	}
	return nil
}

// update sends a client's response to the task.
func (lt *legacyTasks) update(id string, in *inputRequest, e *jsonrpc.Error) {
	r := in.req
	if r.finished {
		return
	}
	r.pendingInputs--
	r.inputRequests = without(r.inputRequests, in)
	switch {
	case lt.inputAnswered(id, in, e != nil):
	case e != nil:
		lt.abandon(r, "the task cannot continue")
		lt.requests.fail(r, e, "refused")
	default:
		lt.sendUpdate(r, id, in)
	}
}

// sendUpdate sends the server a response to an input request of a task.
func (lt *legacyTasks) sendUpdate(r *legacyRequest, id string, in *inputRequest) {
	if lt.calls.queueIfNotReady(r, func() { lt.sendUpdate(r, id, in) }) {
		return
	}
	c := lt.calls.add(mcp.MethodTasksUpdate, nil, func(outcome) {})
	members := append(append(append(taskMember(id), `,"inputResponses":{"`...), in.key...), `":`...)
	members = append(append(members, in.response...), '}')
	lt.sendUpstream(c.id, c.method, lt.handshake.params(members, true), in.Method+" → tasks/update")
}

// forwardStatus forwards a task notification.
func (lt *legacyTasks) forwardStatus(m *jsonrpc.Message) {
	id := era.LookupString(m.Params, "taskId")
	if !lt.handshake.legacy.CoreTasks || id == "" {
		lt.drop("the client does not support tasks")
		return
	}
	params := era.CoreTask(nil, m.Params, lt.coreStatus(id, m.Params))
	lt.emit(Out{To: Downstream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationTaskStatus, bytes.Clone(params)), Rule: "notifications/tasks → notifications/tasks/status"})
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

// pollInput sends the client the input requests of a task if it polls the task again after
// input_required, because it is then unlikely to send tasks/result.
func (lt *legacyTasks) pollInput(r *legacyRequest, id string, task []byte) {
	input := lt.polled[id]
	switch {
	case input == nil && lt.awaitsResult(id):
	case input == nil:
		for old, one := range lt.polled {
			if len(lt.polled) >= lt.opts.Limits.Tasks && one.req.pendingInputs == 0 {
				sparse.Delete(&lt.polled, old)
			}
		}
		if len(lt.polled) >= lt.opts.Limits.Tasks {
			return // the client may send tasks/result
		}
		sparse.Set(&lt.polled, id, &taskInput{req: &legacyRequest{request: request{method: mcp.MethodTasksResult}}, sent: make(map[string]struct{}), refused: make(map[string]struct{})})
	default:
		input.req.stream = r.stream // open until r is answered
		// An error is reported when the client sends tasks/result.
		_ = lt.sendInputs(input.req, id, era.Lookup(task, "inputRequests"), input.sent)
		input.req.stream = 0
	}
}

// awaitsResult reports if a tasks/result is pending for a task.
func (lt *legacyTasks) awaitsResult(id string) bool {
	for _, r := range lt.requests.byKey {
		if r.method == mcp.MethodTasksResult && era.LookupString(r.params, "taskId") == id {
			return true
		}
	}
	return false
}

// cancelInput cancels the input requests of a task.
func (lt *legacyTasks) cancelInput(id string) {
	if input := lt.polled[id]; input != nil {
		sparse.Delete(&lt.polled, id)
		lt.requests.finish(input.req)
	}
}

// cancelInputs cancels the input requests of all tasks that the client polls.
func (lt *legacyTasks) cancelInputs() {
	for _, id := range slices.Sorted(maps.Keys(lt.polled)) {
		lt.cancelInput(id)
	}
}

// adoptInput moves the input requests of a task to its tasks/result request. It returns their keys.
func (lt *legacyTasks) adoptInput(r *legacyRequest, id string) (sent map[string]struct{}) {
	input := lt.polled[id]
	if input == nil {
		return make(map[string]struct{})
	}
	sparse.Delete(&lt.polled, id)
	r.inputRequests, r.pendingInputs = input.req.inputRequests, input.req.pendingInputs
	for _, in := range r.inputRequests {
		in.req = r
	}
	for key := range input.refused {
		delete(input.sent, key)
	}
	return input.sent
}

// inputAnswered handles a response for a taskInput. It reports if it was one.
func (lt *legacyTasks) inputAnswered(id string, in *inputRequest, refused bool) bool {
	input := lt.polled[id]
	if input == nil || input.req != in.req {
		return false
	}
	if refused {
		input.refused[jsonwire.UnquoteString(in.key)] = struct{}{}
		lt.drop("the task waits until the client asks for the result")
	} else {
		lt.sendUpdate(in.req, id, in)
	}
	lt.reserved -= in.req.size
	in.req.size, in.req.causes = 0, nil
	return true
}

// abandon gives up the call, the hidden task and the input requests of a request.
func (lt *legacyTasks) abandon(r *legacyRequest, reason string) {
	lt.calls.cancelFor(r, reason)
	if r.hiddenTaskID != "" {
		lt.cancel(r.hiddenTaskID)
	}
	lt.inputs.cancelAll(r, reason)
	lt.timers.stop(r.retryTimer)
}
