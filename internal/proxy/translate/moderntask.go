package translate

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A modernTasks converts tasks of the extension, for modern clients, to the core tasks of a legacy
// server. It holds the input requests and results that the server expects clients to wait for.
type modernTasks struct {
	*core
	server    *legacyServer
	requests  *modernRequests
	handshake *modernHandshake
	inputs    *modernInputs
	calls     *modernCalls

	byID map[string]*upstreamTask
	// ids holds the keys of byID, oldest first.
	ids []string
}

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

// serve serves the methods of the tasks extension.
func (mt *modernTasks) serve(r *modernRequest, m *jsonrpc.Message) {
	if r.client.Extension(mt.modern, mcp.ExtensionTasks) == nil {
		mt.requests.fail(r, errTasksUndeclared(), "")
		return
	}
	id := era.LookupString(m.Params, "taskId")
	if id == "" || len(id) > maxTaskID {
		mt.requests.fail(r, errTaskID, "")
		return
	}
	var answers []byte
	if r.method == mcp.MethodTasksUpdate {
		if answers = era.Lookup(m.Params, "inputResponses"); !era.IsObject(answers) {
			mt.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses is not an object"), "")
			return
		}
		if answers = bytes.Clone(answers); !mt.requests.reserveFor(r, len(answers)) {
			return
		}
	}
	mt.handshake.whenReady(r, func() {
		switch {
		case !mt.server.hasTasks():
			mt.requests.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no tasks")
		case r.method == mcp.MethodTasksGet:
			mt.callFor(r, mcp.MethodTasksGet, id, func(o outcome) { mt.handleGet(r, id, o) })
		case r.method == mcp.MethodTasksCancel:
			mt.callFor(r, mcp.MethodTasksCancel, id, func(o outcome) { mt.handleCancel(r, id, o) })
		default:
			mt.update(r, id, answers)
		}
	})
}

// errTasksUndeclared returns the error for a client that has not declared the extension.
func errTasksUndeclared() *jsonrpc.Error {
	return mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{
		Extensions: map[string]json.RawMessage{mcp.ExtensionTasks: json.RawMessage("{}")},
	})
}

// callFor calls a method of core tasks for a client request.
func (mt *modernTasks) callFor(r *modernRequest, method, id string, done func(o outcome)) {
	c := &modernCall{method: method, upstreamMethod: method, req: r, params: taskParams(id)}
	c.done = func(o outcome) {
		mt.calls.release(c)
		if r.call = nil; !r.finished {
			done(o)
		}
	}
	r.call = c
	mt.calls.send(c, r.method+" → "+method)
}

// handleGet answers tasks/get. For a task that has ended it first gets the result.
func (mt *modernTasks) handleGet(r *modernRequest, id string, o outcome) {
	if o.err != nil {
		mt.requests.fail(r, era.ConvertError(o.err, r.method, mt.modern), "")
		return
	}
	switch status := mcp.TaskStatus(era.LookupString(o.result, "status")); status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed:
		if !mt.requests.reserveFor(r, len(o.result)) {
			return
		}
		task := mt.remember(id)
		task.waiters = slices.DeleteFunc(task.waiters, func(w taskWaiter) bool { return w.req.finished })
		task.waiters = append(task.waiters, taskWaiter{r, bytes.Clone(o.result)})
		mt.collect(task)
	case mcp.TaskStatusInputRequired:
		task := mt.remember(id)
		mt.collect(task)
		if len(task.inputs) == 0 { // no request yet, or all were answered
			mt.requests.respond(r, era.ExtensionTask(nil, o.result, mcp.TaskStatusWorking, nil), "tasks/get")
			return
		}
		requests := []byte(`"inputRequests":{`)
		for i, key := range slices.Sorted(maps.Keys(task.inputs)) {
			if i > 0 {
				requests = append(requests, ',')
			}
			requests = task.inputs[key].appendTo(requests, key)
		}
		mt.requests.respond(r, era.ExtensionTask(nil, o.result, status, append(requests, '}')), "tasks/get + inputRequests")
	default:
		mt.requests.respond(r, era.ExtensionTask(nil, o.result, status, nil), "tasks/get")
	}
}

// handleCancel acknowledges tasks/cancel. Core tasks refuse to cancel a task that has ended;
// the extension does not.
func (mt *modernTasks) handleCancel(r *modernRequest, id string, o outcome) {
	if o.err == nil {
		mt.requests.respond(r, []byte("{}"), "tasks/cancel")
		return
	}
	if o.lost {
		mt.requests.fail(r, era.ConvertError(o.err, r.method, mt.modern), "")
		return
	}
	refusal := *o.err
	mt.callFor(r, mcp.MethodTasksGet, id, func(o outcome) { mt.acknowledgeIfKnown(r, o, &refusal) })
}

// update sends the client's responses to the server.
func (mt *modernTasks) update(r *modernRequest, id string, answers []byte) {
	task := mt.byID[id]
	if task == nil {
		mt.callFor(r, mcp.MethodTasksGet, id, func(a outcome) { mt.acknowledgeIfKnown(r, a, a.err) })
		return
	}
	given := make(map[string][]byte)
	for key, q := range task.inputs {
		v := era.Lookup(answers, key)
		if v == nil {
			continue
		}
		if err := q.CheckResponse(v); err != nil {
			mt.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses has %s under %s", err, key), "refused")
			return
		}
		given[key] = v
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		q := task.inputs[key]
		delete(task.inputs, key)
		mt.inputs.respond(q, q.ConvertResponse(given[key], mt.server.featuresOr(mt.opts.Legacy)), "tasks/update → "+q.Method)
	}
	mt.requests.respond(r, []byte("{}"), "tasks/update")
}

// acknowledgeIfKnown acknowledges a request without effect if the task exists.
func (mt *modernTasks) acknowledgeIfKnown(r *modernRequest, o outcome, e *jsonrpc.Error) {
	if o.err != nil {
		mt.requests.fail(r, era.ConvertError(e, r.method, mt.modern), "")
		return
	}
	mt.requests.respond(r, []byte("{}"), r.method)
}

// remember returns the state of a task, which it may create.
func (mt *modernTasks) remember(id string) *upstreamTask {
	if task := mt.byID[id]; task != nil {
		return task
	}
	for len(mt.ids) >= mt.opts.Limits.Tasks {
		mt.forget(mt.ids[0])
	}
	task := &upstreamTask{id: id, inputs: make(map[string]*serverRequest)}
	mt.byID[id] = task
	mt.ids = append(mt.ids, id)
	return task
}

// forget removes a task, its input requests and its waiters.
func (mt *modernTasks) forget(id string) {
	task := mt.byID[id]
	delete(mt.byID, id)
	mt.ids = slices.DeleteFunc(mt.ids, func(one string) bool { return one == id })
	if task == nil {
		return
	}
	if c := task.collector; c != nil {
		mt.calls.cancel(c, "no client requests the task")
	}
	for _, key := range slices.Sorted(maps.Keys(task.inputs)) {
		mt.inputs.cancel(task.inputs[key])
	}
	for _, w := range task.waiters {
		mt.requests.fail(w.req, errOverloaded, "refused")
	}
}

// reset forgets all tasks, because the server is lost.
func (mt *modernTasks) reset() {
	clear(mt.byID)
	mt.ids = nil
}

// attach stores a server request of a task until the client gets the task.
func (mt *modernTasks) attach(q *serverRequest, task *upstreamTask) {
	if _, missing := q.MissingCapability(&mt.handshake.client, mt.modern); missing != "" {
		mt.inputs.reject(q, q.Refusal("the client has not declared "+missing))
		return
	}
	task.inputCount++
	q.key, q.task = "input-"+strconv.Itoa(task.inputCount), task
	task.inputs[q.key] = q
	q.timeout = mt.after(mt.opts.Limits.InputTimeout, func() {
		delete(task.inputs, q.key)
		mt.inputs.cancel(q)
	})
	mt.drop("waits for the client to request the task")
}

// collect sends tasks/result, unless it is pending.
func (mt *modernTasks) collect(task *upstreamTask) {
	if task.collector != nil {
		return
	}
	task.collector = mt.calls.call(mcp.MethodTasksResult, taskParams(task.id), "tasks/get → tasks/result", func(o outcome) {
		task.collector = nil
		waiters := task.waiters
		task.waiters = nil
		for _, w := range waiters {
			mt.ended(w, o)
		}
		if mt.byID[task.id] == task {
			mt.forget(task.id)
		}
	})
}

// ended answers tasks/get for a task that has ended. In the extension, a tool error is not a
// failed task.
func (mt *modernTasks) ended(w taskWaiter, o outcome) {
	if o.lost {
		mt.requests.fail(w.req, era.ConvertError(o.err, w.req.method, mt.modern), "")
		return
	}
	status, added := mcp.TaskStatusCompleted, []byte(nil)
	if o.err == nil {
		added = append([]byte(`"result":`), era.ResultToModern(nil, withoutMeta(o.result, mcp.MetaRelatedTask), mcp.MethodToolsCall, nil, era.CacheHints{})...)
	} else {
		e := era.ConvertError(o.err, mcp.MethodToolsCall, mt.modern)
		status = mcp.TaskStatusFailed
		added = strconv.AppendInt([]byte(`"error":{"code":`), int64(e.Code), 10)
		added = jsonwire.AppendQuote(append(added, `,"message":`...), e.Message)
		if len(e.Data) > 0 {
			added = append(append(added, `,"data":`...), e.Data...)
		}
		added = append(added, '}')
	}
	mt.requests.respond(w.req, era.ExtensionTask(nil, w.task, status, added), "tasks/result → tasks/get")
}

// result returns the modern result for a call that became a task.
func (mt *modernTasks) result(result []byte) []byte {
	added := []byte(`"resultType":"` + resultTypeTask + `"`)
	task := withoutMembers(era.Lookup(result, "task"), "_meta")
	return era.ExtensionTask(nil, task, "", mt.server.appendInfo(added))
}

// hide requests the result of a task with tasks/result for a client without tasks, so that the call
// returns an ordinary result.
func (mt *modernTasks) hide(c *modernCall, result []byte) *jsonrpc.Error {
	id := era.LookupString(result, "task", "taskId")
	if mt.calls.hidden[id] != nil || id == "" || len(id) > maxTaskID {
		return internalError("the server created a task without a unique id")
	}
	mt.calls.hide(c, id)
	if task := mt.byID[id]; task != nil { // it already sent requests
		for _, key := range slices.Sorted(maps.Keys(task.inputs)) {
			q := task.inputs[key]
			q.task = nil
			mt.timers.stop(q.timeout)
			mt.calls.attach(q, c)
		}
		clear(task.inputs)
		mt.forget(id)
	}
	return nil
}
