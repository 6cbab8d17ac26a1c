package translate

import (
	"bytes"
	"maps"
	"slices"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An upstreamTask is the state of a core task: its input requests, and the requests that wait for
// its result.
type upstreamTask struct {
	id string
	// collector is the pending tasks/result; the task's requests come while it is open.
	collector *modernCall
	inputs    map[string]*serverRequest
	// inputCount counts the input requests so far.
	inputCount int
	waiters    []taskWaiter
}

// A taskWaiter is a tasks/get of a client for a task that has ended.
type taskWaiter struct {
	req  *modernRequest
	task []byte
}

// taskResult returns the modern result for a call that became a task.
func (t *ModernToLegacy) taskResult(result []byte) []byte {
	added := []byte(`"resultType":"` + resultTypeTask + `"`)
	task := withoutMembers(era.Lookup(result, "task"), "_meta")
	return era.ExtensionTask(nil, task, "", t.server.appendInfo(added))
}

// awaitHiddenTask waits for the result of a task whose client does not know tasks.
func (t *ModernToLegacy) awaitHiddenTask(c *modernCall, result []byte) {
	id := era.LookupString(result, "task", "taskId")
	if t.calls.hidden[id] != nil || id == "" || len(id) > maxTaskID {
		t.deliverOrKeep(c, outcome{err: internalError("the server created a task without a unique id")})
		return
	}
	c.hiddenTaskID, c.upstreamMethod, c.taskParam = id, mcp.MethodTasksResult, nil
	t.rounds.bind(c)
	c.params = taskParams(id)
	t.calls.hidden[id] = c
	t.calls.send(c, "task → tasks/result")
	if task := t.tasks[id]; task != nil { // it already sent requests
		for _, key := range slices.Sorted(maps.Keys(task.inputs)) {
			q := task.inputs[key]
			q.task = nil
			t.timers.stop(q.timeout)
			t.calls.attach(q, c)
		}
		clear(task.inputs)
		t.forgetTask(id)
	}
}

func (t *ModernToLegacy) deliverOrKeep(c *modernCall, o outcome) {
	if c.req == nil {
		t.keepOutcome(c, o)
		return
	}
	t.deliver(c, o)
}

// serveTask serves the methods of the tasks extension.
func (t *ModernToLegacy) serveTask(r *modernRequest, m *jsonrpc.Message) {
	if r.client.Extension(t.modern, mcp.ExtensionTasks) == nil {
		t.requests.fail(r, errTasksUndeclared(), "")
		return
	}
	id := era.LookupString(m.Params, "taskId")
	if id == "" || len(id) > maxTaskID {
		t.requests.fail(r, errTaskID, "")
		return
	}
	var answers []byte
	if r.method == mcp.MethodTasksUpdate {
		if answers = era.Lookup(m.Params, "inputResponses"); !era.IsObject(answers) {
			t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses is not an object"), "")
			return
		}
		if answers = bytes.Clone(answers); !t.requests.reserveFor(r, len(answers)) {
			return
		}
	}
	t.handshake.whenReady(r, func() {
		switch {
		case !t.server.hasTasks():
			t.requests.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no tasks")
		case r.method == mcp.MethodTasksGet:
			t.callFor(r, mcp.MethodTasksGet, id, func(o outcome) { t.handleTaskGet(r, id, o) })
		case r.method == mcp.MethodTasksCancel:
			t.callFor(r, mcp.MethodTasksCancel, id, func(o outcome) { t.handleTaskCancel(r, id, o) })
		default:
			t.updateTask(r, id, answers)
		}
	})
}

// errTasksUndeclared returns the error for a client that has not declared the extension.
func errTasksUndeclared() *jsonrpc.Error {
	e := mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{})
	e.Data = []byte(`{"requiredCapabilities":{"extensions":{"` + mcp.ExtensionTasks + `":{}}}}`)
	return e
}

// callFor calls a method of core tasks for a client request.
func (t *ModernToLegacy) callFor(r *modernRequest, method, id string, done func(o outcome)) {
	c := &modernCall{method: method, upstreamMethod: method, req: r, params: taskParams(id)}
	c.done = func(o outcome) {
		t.calls.release(c)
		if r.call = nil; !r.finished {
			done(o)
		}
	}
	r.call = c
	t.calls.send(c, r.method+" → "+method)
}

// handleTaskGet answers tasks/get. For a task that has ended it first gets the result.
func (t *ModernToLegacy) handleTaskGet(r *modernRequest, id string, o outcome) {
	if o.err != nil {
		t.requests.fail(r, era.ConvertError(o.err, r.method, t.modern), "")
		return
	}
	switch status := mcp.TaskStatus(era.LookupString(o.result, "status")); status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed:
		if !t.requests.reserveFor(r, len(o.result)) {
			return
		}
		task := t.rememberTask(id)
		task.waiters = slices.DeleteFunc(task.waiters, func(w taskWaiter) bool { return w.req.finished })
		task.waiters = append(task.waiters, taskWaiter{r, bytes.Clone(o.result)})
		t.collectResult(task)
	case mcp.TaskStatusInputRequired:
		task := t.rememberTask(id)
		t.collectResult(task)
		if len(task.inputs) == 0 { // no request yet, or all were answered
			t.requests.respond(r, era.ExtensionTask(nil, o.result, mcp.TaskStatusWorking, nil), "tasks/get")
			return
		}
		requests := []byte(`"inputRequests":{`)
		for i, key := range slices.Sorted(maps.Keys(task.inputs)) {
			if i > 0 {
				requests = append(requests, ',')
			}
			requests = task.inputs[key].appendTo(requests, key)
		}
		t.requests.respond(r, era.ExtensionTask(nil, o.result, status, append(requests, '}')), "tasks/get + inputRequests")
	default:
		t.requests.respond(r, era.ExtensionTask(nil, o.result, status, nil), "tasks/get")
	}
}

// rememberTask returns the state of a task, which it may create.
func (t *ModernToLegacy) rememberTask(id string) *upstreamTask {
	if task := t.tasks[id]; task != nil {
		return task
	}
	for len(t.taskIDs) >= t.opts.Limits.Tasks {
		t.forgetTask(t.taskIDs[0])
	}
	task := &upstreamTask{id: id, inputs: make(map[string]*serverRequest)}
	t.tasks[id] = task
	t.taskIDs = append(t.taskIDs, id)
	return task
}

func (t *ModernToLegacy) forgetTask(id string) {
	task := t.tasks[id]
	delete(t.tasks, id)
	t.taskIDs = slices.DeleteFunc(t.taskIDs, func(one string) bool { return one == id })
	if task == nil {
		return
	}
	if c := task.collector; c != nil {
		t.calls.cancel(c, "no client requests the task")
	}
	for _, key := range slices.Sorted(maps.Keys(task.inputs)) {
		t.inputs.cancel(task.inputs[key])
	}
	for _, w := range task.waiters {
		t.requests.fail(w.req, errOverloaded, "refused")
	}
}

// collectResult sends tasks/result, unless it is pending.
func (t *ModernToLegacy) collectResult(task *upstreamTask) {
	if task.collector != nil {
		return
	}
	task.collector = t.calls.call(mcp.MethodTasksResult, taskParams(task.id), "tasks/get → tasks/result", func(o outcome) {
		task.collector = nil
		waiters := task.waiters
		task.waiters = nil
		for _, w := range waiters {
			t.taskEnded(w, o)
		}
		if t.tasks[task.id] == task {
			t.forgetTask(task.id)
		}
	})
}

// taskEnded answers tasks/get for a task that has ended. In the extension, a tool error is not a
// failed task.
func (t *ModernToLegacy) taskEnded(w taskWaiter, o outcome) {
	if o.lost {
		t.requests.fail(w.req, era.ConvertError(o.err, w.req.method, t.modern), "")
		return
	}
	status, added := mcp.TaskStatusCompleted, []byte(nil)
	if o.err == nil {
		added = append([]byte(`"result":`), era.ResultToModern(nil, withoutRelatedTask(o.result), mcp.MethodToolsCall, nil, era.CacheHints{})...)
	} else {
		e := era.ConvertError(o.err, mcp.MethodToolsCall, t.modern)
		status = mcp.TaskStatusFailed
		added = strconv.AppendInt([]byte(`"error":{"code":`), int64(e.Code), 10)
		added = jsonwire.AppendQuote(append(added, `,"message":`...), e.Message)
		if len(e.Data) > 0 {
			added = append(append(added, `,"data":`...), e.Data...)
		}
		added = append(added, '}')
	}
	t.requests.respond(w.req, era.ExtensionTask(nil, w.task, status, added), "tasks/result → tasks/get")
}

// attachToTask stores a server request of a task until the client gets the task.
func (t *ModernToLegacy) attachToTask(q *serverRequest, task *upstreamTask) {
	if _, missing := q.MissingCapability(&t.handshake.client, t.modern); missing != "" {
		t.inputs.reject(q, q.Refusal("the client has not declared "+missing))
		return
	}
	task.inputCount++
	q.key, q.task = "input-"+strconv.Itoa(task.inputCount), task
	task.inputs[q.key] = q
	q.timeout = t.after(t.opts.Limits.InputTimeout, func() {
		delete(task.inputs, q.key)
		t.inputs.cancel(q)
	})
	t.drop("waits for the client to request the task")
}

// updateTask sends the client's responses to the server.
func (t *ModernToLegacy) updateTask(r *modernRequest, id string, answers []byte) {
	task := t.tasks[id]
	if task == nil {
		t.callFor(r, mcp.MethodTasksGet, id, func(a outcome) { t.acknowledgeIfKnown(r, a, a.err) })
		return
	}
	given := make(map[string][]byte)
	for key, q := range task.inputs {
		v := era.Lookup(answers, key)
		if v == nil {
			continue
		}
		if err := q.CheckResponse(v); err != nil {
			t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses has %s under %s", err, key), "refused")
			return
		}
		given[key] = v
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		q := task.inputs[key]
		delete(task.inputs, key)
		t.inputs.respond(q, q.ConvertResponse(given[key], t.server.featuresOr(t.opts.Legacy)), "tasks/update → "+q.Method)
	}
	t.requests.respond(r, []byte("{}"), "tasks/update")
}

// handleTaskCancel acknowledges tasks/cancel. Core tasks refuse to cancel a task that has ended;
// the extension does not.
func (t *ModernToLegacy) handleTaskCancel(r *modernRequest, id string, o outcome) {
	if o.err == nil {
		t.requests.respond(r, []byte("{}"), "tasks/cancel")
		return
	}
	if o.lost {
		t.requests.fail(r, era.ConvertError(o.err, r.method, t.modern), "")
		return
	}
	refusal := *o.err
	t.callFor(r, mcp.MethodTasksGet, id, func(o outcome) { t.acknowledgeIfKnown(r, o, &refusal) })
}

// acknowledgeIfKnown acknowledges a request without effect if the task exists.
func (t *ModernToLegacy) acknowledgeIfKnown(r *modernRequest, o outcome, e *jsonrpc.Error) {
	if o.err != nil {
		t.requests.fail(r, era.ConvertError(e, r.method, t.modern), "")
		return
	}
	t.requests.respond(r, []byte("{}"), r.method)
}
