package translate

import (
	"bytes"
	"maps"
	"slices"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A farTask is a task of the core protocol as long as something of it has to be remembered: what it asked, and who wants to know what came of it.
type farTask struct {
	id        string
	collector *errand // tasks/result: what the server asks for the task comes while it is open
	asks      map[string]*question
	keys      int // of questions so far
	waiters   []taskWaiter
}

// A taskWaiter is a tasks/get of a client for a task that has ended.
type taskWaiter struct {
	x    *exchange
	task []byte
}

// hasTasks reports whether the server makes tasks of calls.
func (t *ModernClient) hasTasks() bool {
	f := t.server.features
	return f != nil && f.CoreTasks && era.Lookup(t.server.caps, "tasks", "requests", "tools", "call") != nil
}

// augment has a call become a task if the tool can only be called so, or the client knows tasks.
func (t *ModernClient) augment(r *errand, support []byte) {
	r.tasks = r.near != nil && r.near.client.Extension(t.modern, mcp.ExtensionTasks) != nil
	if string(support) == "required" || string(support) == "optional" && r.tasks {
		r.task = []byte("{}")
	}
}

// isTask reports whether the answer to an errand is that it has become a task.
func (r *errand) isTask(a answer) bool {
	return r.hidden == "" && r.task != nil && a.err == nil && era.IsObject(era.Lookup(a.result, "task"))
}

// taskResult returns the modern result for a call that has become a task.
func (t *ModernClient) taskResult(result []byte) []byte {
	added := []byte(`"resultType":"` + resultTypeTask + `"`)
	if t.server.info != nil {
		added = append(append(append(added, `,"_meta":{"`+mcp.MetaServerInfo+`":`...), t.server.info...), '}')
	}
	task := without(era.Lookup(result, "task"), "_meta")
	return era.ExtensionTask(nil, task, "", added)
}

// hideTask waits for a task whose client does not know tasks: it gets what came of it.
func (t *ModernClient) hideTask(r *errand, result []byte) {
	id := era.LookupString(result, "task", "taskId")
	if t.hidden[id] != nil || id == "" || len(id) > maxTaskID {
		t.deliverOrKeep(r, answer{err: internal("the server made a task that has no id of its own")})
		return
	}
	r.hidden, r.farMethod, r.task = id, mcp.MethodTasksResult, nil
	t.bind(r)
	r.params = taskParams(id)
	t.hidden[id] = r
	t.dispatch(r, "task → tasks/result")
	if task := t.tasks[id]; task != nil { // it has asked already
		for _, key := range slices.Sorted(maps.Keys(task.asks)) {
			q := task.asks[key]
			q.task = nil
			t.later.stop(q.giveUp)
			t.give(q, r)
		}
		clear(task.asks)
		t.forgetTask(id)
	}
}

func (t *ModernClient) deliverOrKeep(r *errand, a answer) {
	if r.near == nil {
		t.keepAnswer(r, a)
		return
	}
	t.deliver(r, a)
}

func taskParams(id string) []byte {
	return append(jsonwire.AppendQuote([]byte(`{"taskId":`), id), '}')
}

// serveTask serves the methods of the tasks extension.
func (t *ModernClient) serveTask(x *exchange, m *jsonrpc.Message) {
	if x.client.Extension(t.modern, mcp.ExtensionTasks) == nil {
		t.fail(x, errTasksUndeclared(), "")
		return
	}
	id := era.LookupString(m.Params, "taskId")
	if id == "" || len(id) > maxTaskID {
		t.fail(x, errTaskID, "")
		return
	}
	var answers []byte
	if x.method == mcp.MethodTasksUpdate {
		if answers = era.Lookup(m.Params, "inputResponses"); !era.IsObject(answers) {
			t.fail(x, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses is no object"), "")
			return
		}
		if answers = bytes.Clone(answers); !t.keepFor(x, len(answers)) {
			return
		}
	}
	t.whenReady(x, func() {
		switch {
		case !t.hasTasks():
			t.fail(x, jsonrpc.MethodNotFound(x.method), "the server has no tasks")
		case x.method == mcp.MethodTasksGet:
			t.callFor(x, mcp.MethodTasksGet, id, func(a answer) { t.taskGot(x, id, a) })
		case x.method == mcp.MethodTasksCancel:
			t.callFor(x, mcp.MethodTasksCancel, id, func(a answer) { t.taskCancelled(x, id, a) })
		default:
			t.updateTask(x, id, answers)
		}
	})
}

// errTasksUndeclared is for a client that has not declared the extension.
func errTasksUndeclared() *jsonrpc.Error {
	e := mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{})
	e.Data = []byte(`{"requiredCapabilities":{"extensions":{"` + mcp.ExtensionTasks + `":{}}}}`)
	return e
}

// callFor calls a method of the core protocol's tasks for a request of the client.
func (t *ModernClient) callFor(x *exchange, method, id string, done func(a answer)) {
	r := &errand{method: method, farMethod: method, near: x, params: taskParams(id)}
	r.done = func(a answer) {
		t.release(r)
		if x.errand = nil; !x.over {
			done(a)
		}
	}
	x.errand = r
	t.dispatch(r, x.method+" → "+method)
}

// taskGot answers tasks/get, when what came of the task is there too.
func (t *ModernClient) taskGot(x *exchange, id string, a answer) {
	if a.err != nil {
		t.fail(x, era.ConvertError(a.err, x.method, t.modern), "")
		return
	}
	switch status := mcp.TaskStatus(era.LookupString(a.result, "status")); status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed:
		if !t.keepFor(x, len(a.result)) {
			return
		}
		task := t.remember(id)
		task.waiters = slices.DeleteFunc(task.waiters, func(w taskWaiter) bool { return w.x.over })
		task.waiters = append(task.waiters, taskWaiter{x, bytes.Clone(a.result)})
		t.collect(task)
	case mcp.TaskStatusInputRequired:
		task := t.remember(id)
		t.collect(task)
		if len(task.asks) == 0 { // the server has not asked yet, or its questions were answered
			t.answer(x, era.ExtensionTask(nil, a.result, mcp.TaskStatusWorking, nil), "tasks/get")
			return
		}
		requests := []byte(`"inputRequests":{`)
		for i, key := range slices.Sorted(maps.Keys(task.asks)) {
			if i > 0 {
				requests = append(requests, ',')
			}
			requests = task.asks[key].appendTo(requests, key)
		}
		t.answer(x, era.ExtensionTask(nil, a.result, status, append(requests, '}')), "tasks/get + inputRequests")
	default:
		t.answer(x, era.ExtensionTask(nil, a.result, status, nil), "tasks/get")
	}
}

// remember returns what is known of a task, which may be nothing yet.
func (t *ModernClient) remember(id string) *farTask {
	if task := t.tasks[id]; task != nil {
		return task
	}
	for len(t.taskIDs) >= t.opts.Limits.Tasks {
		t.forgetTask(t.taskIDs[0])
	}
	task := &farTask{id: id, asks: make(map[string]*question)}
	t.tasks[id] = task
	t.taskIDs = append(t.taskIDs, id)
	return task
}

func (t *ModernClient) forgetTask(id string) {
	task := t.tasks[id]
	delete(t.tasks, id)
	t.taskIDs = slices.DeleteFunc(t.taskIDs, func(one string) bool { return one == id })
	if task == nil {
		return
	}
	if r := task.collector; r != nil {
		t.giveUp(r, "nobody asks for the task")
	}
	for _, key := range slices.Sorted(maps.Keys(task.asks)) {
		t.leave(task.asks[key])
	}
	for _, w := range task.waiters {
		t.fail(w.x, errTooMuch, "refused")
	}
}

// collect opens the call by which the server asks for the task, and which ends with what came of it.
func (t *ModernClient) collect(task *farTask) {
	if task.collector != nil {
		return
	}
	task.collector = t.callServer(mcp.MethodTasksResult, taskParams(task.id), "tasks/get → tasks/result", func(a answer) {
		task.collector = nil
		waiters := task.waiters
		task.waiters = nil
		for _, w := range waiters {
			t.taskEnded(w, a)
		}
		if t.tasks[task.id] == task {
			t.forgetTask(task.id)
		}
	})
}

// taskEnded answers tasks/get for a task that has ended. One whose tool failed has not failed itself, in the extension.
func (t *ModernClient) taskEnded(w taskWaiter, a answer) {
	if a.lost {
		t.fail(w.x, era.ConvertError(a.err, w.x.method, t.modern), "")
		return
	}
	status, added := mcp.TaskStatusCompleted, []byte(nil)
	if a.err == nil {
		added = append([]byte(`"result":`), era.ResultToModern(nil, unrelate(a.result), mcp.MethodToolsCall, nil, era.CacheHints{})...)
	} else {
		e := era.ConvertError(a.err, mcp.MethodToolsCall, t.modern)
		status = mcp.TaskStatusFailed
		added = strconv.AppendInt([]byte(`"error":{"code":`), int64(e.Code), 10)
		added = jsonwire.AppendQuote(append(added, `,"message":`...), e.Message)
		if len(e.Data) > 0 {
			added = append(append(added, `,"data":`...), e.Data...)
		}
		added = append(added, '}')
	}
	t.answer(w.x, era.ExtensionTask(nil, w.task, status, added), "tasks/result → tasks/get")
}

// giveTask notes a question of a task, for the client to find when it asks for the task.
func (t *ModernClient) giveTask(q *question, task *farTask) {
	if _, missing := q.Missing(&t.client, t.modern); missing != "" {
		t.refuseFar(q, q.Refusal("the client has not declared "+missing))
		return
	}
	task.keys++
	q.key, q.task = "input-"+strconv.Itoa(task.keys), task
	task.asks[q.key] = q
	q.giveUp = t.after(t.opts.Limits.HoldFor, func() {
		delete(task.asks, q.key)
		t.leave(q)
	})
	t.drop("waits for the client to ask for the task")
}

// updateTask hands the client's answers to the server.
func (t *ModernClient) updateTask(x *exchange, id string, answers []byte) {
	task := t.tasks[id]
	if task == nil {
		t.callFor(x, mcp.MethodTasksGet, id, func(a answer) { t.taskKnown(x, a, a.err) })
		return
	}
	given := make(map[string][]byte)
	for key, q := range task.asks {
		v := era.Lookup(answers, key)
		if v == nil {
			continue
		}
		if err := q.CheckAnswer(v); err != nil {
			t.fail(x, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses has %s under %s", err, key), "refused")
			return
		}
		given[key] = v
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		q := task.asks[key]
		delete(task.asks, key)
		t.answerFar(q, q.Answer(given[key], t.legacyFeatures()), "tasks/update → "+q.Method)
	}
	t.answer(x, []byte("{}"), "tasks/update")
}

// taskCancelled acknowledges tasks/cancel. The core protocol refuses to cancel what has ended, the extension does not.
func (t *ModernClient) taskCancelled(x *exchange, id string, a answer) {
	if a.err == nil {
		t.answer(x, []byte("{}"), "tasks/cancel")
		return
	}
	if a.lost {
		t.fail(x, era.ConvertError(a.err, x.method, t.modern), "")
		return
	}
	refusal := *a.err
	t.callFor(x, mcp.MethodTasksGet, id, func(a answer) { t.taskKnown(x, a, &refusal) })
}

// taskKnown acknowledges what changes nothing, if the task exists.
func (t *ModernClient) taskKnown(x *exchange, a answer, e *jsonrpc.Error) {
	if a.err != nil {
		t.fail(x, era.ConvertError(e, x.method, t.modern), "")
		return
	}
	t.answer(x, []byte("{}"), x.method)
}

// unrelate takes out of a result to which task it belongs.
func unrelate(result []byte) []byte {
	return era.Rewrite(nil, result, func(m *jsonwire.Members) []byte {
		if m.KeyIs("_meta") && era.IsObject(m.Value()) {
			return without(m.Value(), mcp.MetaRelatedTask)
		}
		return m.Value()
	}, nil)
}
