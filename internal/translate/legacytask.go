package translate

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// resultTypeTask is the type of a result that is a task.
const resultTypeTask = "task"

// maxTaskID is the longest id of a task, in bytes.
const maxTaskID = 4 << 10

var errTaskID = jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: taskId is no string, or an empty one, or very long")

// legacyTasks are what a client of the core protocol's tasks has to find that a server of the extension does not keep for it.
type legacyTasks struct {
	completed map[string]*completedTask
	order     []string            // of made, the oldest first
	canceled  map[string]struct{} // that the client was told are cancelled: they stay so
	inputs    map[string]*taskInput
}

// A completedTask is a call that was to be a task, and was answered at once.
type completedTask struct {
	task   []byte // as tasks/get has it
	result []byte
	size   int
}

// A taskMode is in what way a call may become a task.
type taskMode uint8

const (
	noTask     taskMode = iota
	wantsTask           // the client asked for one
	hiddenTask          // the server makes nothing else of it, and the client gets what comes of it
)

// hasExtension reports whether the server has tasks.
func (t *LegacyToModern) hasExtension() bool {
	return era.IsObject(era.Lookup(t.server.caps, "extensions", mcp.ExtensionTasks))
}

// hasTasks reports whether tasks of the extension are behind those of the core protocol.
func (t *LegacyToModern) hasTasks() bool { return t.legacy.CoreTasks && t.hasExtension() }

// noteTaskRequest notes that a call is to become a task. Without tasks the wish means nothing.
func (t *LegacyToModern) noteTaskRequest(r *legacyRequest) {
	if t.hasTasks() && era.IsObject(era.Lookup(r.params, "task")) {
		r.taskMode = wantsTask
	}
}

// retryAsTask calls the tool again as a client that knows tasks does, if that is what the server requires, and reports whether it did.
func (t *LegacyToModern) retryAsTask(r *legacyRequest, e *jsonrpc.Error) bool {
	required := era.Lookup(e.Data, "requiredCapabilities", "extensions", mcp.ExtensionTasks)
	if r.method != mcp.MethodToolsCall || r.taskMode != noTask || required == nil || !t.hasExtension() {
		return false
	}
	r.taskMode = hiddenTask
	t.forward(r)
	return true
}

// allowTasks lets clients ask for tasks of all tools: whether it becomes one is for the server to say.
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

// taskCreated answers a call that became a task, or waits for what comes of it.
func (t *LegacyToModern) taskCreated(r *legacyRequest, result []byte) {
	if r.taskMode == hiddenTask {
		r.hiddenTaskID = era.LookupString(result, "taskId")
		r.inputResponses, r.requestState = nil, nil
		t.pollTask(r, r.hiddenTaskID, make(map[string]struct{}))
		return
	}
	task := era.CoreTask([]byte(`{"task":`), result, "")
	t.respond(r, append(task, '}'), "resultType task → task")
}

// completeAsTask makes a task of a call that the server answered without one.
func (t *LegacyToModern) completeAsTask(r *legacyRequest, result []byte) {
	result = era.ResultToLegacy(nil, result, r.method, t.legacy)
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
		t.fail(r, errOverloaded, "refused")
		return
	}
	if t.tasks.completed == nil {
		t.tasks.completed = make(map[string]*completedTask)
	}
	t.tasks.completed[id] = completed
	t.tasks.order = append(t.tasks.order, id)
	t.respond(r, append(append([]byte(`{"task":`), task...), '}'), "resultType complete → task that is completed")
}

// evictTask forgets the oldest result that is kept as a task.
func (t *LegacyToModern) evictTask() {
	id := t.tasks.order[0]
	t.tasks.order = slices.Delete(t.tasks.order, 0, 1)
	t.reserved -= t.tasks.completed[id].size
	delete(t.tasks.completed, id)
}

// withRelatedTask says of a result to which task it belongs.
func withRelatedTask(result []byte, id string) []byte {
	related := append(jsonwire.AppendQuote([]byte(`"`+mcp.MetaRelatedTask+`":{"taskId":`), id), '}')
	done := false
	result = era.Rewrite(nil, result, func(m *jsonwire.Members) []byte {
		v := m.Value()
		if done || !m.KeyIs("_meta") || !era.IsObject(v) {
			return v
		}
		done = true
		return era.Rewrite(nil, v, func(m *jsonwire.Members) []byte {
			if m.KeyIs(mcp.MetaRelatedTask) {
				return nil
			}
			return m.Value()
		}, related)
	}, nil)
	if !done {
		result = era.Rewrite(nil, result, nil, append(append([]byte(`"_meta":{`), related...), '}'))
	}
	return result
}

// serveTask serves the methods of the core protocol's tasks.
func (t *LegacyToModern) serveTask(r *legacyRequest) {
	id := era.LookupString(r.params, "taskId")
	completed := t.tasks.completed[id]
	switch {
	case !t.hasTasks():
		t.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no tasks")
	case r.method == mcp.MethodTasksList:
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method not found: tasks/list: modern servers do not list tasks"), "refused")
	case id == "" || len(id) > maxTaskID:
		t.fail(r, errTaskID, "")
	case completed != nil && r.method == mcp.MethodTasksGet:
		t.respond(r, bytes.Clone(completed.task), "kept here")
	case completed != nil && r.method == mcp.MethodTasksResult:
		t.respond(r, bytes.Clone(completed.result), "kept here")
	case completed != nil:
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the task has ended already"), "kept here")
	case r.method == mcp.MethodTasksGet:
		t.callTask(r, mcp.MethodTasksGet, id, nil, func(o outcome) { t.handleTaskGet(r, id, o) })
	case r.method == mcp.MethodTasksCancel:
		t.callTask(r, mcp.MethodTasksCancel, id, nil, func(o outcome) { t.handleTaskCancel(r, id, o) })
	default:
		t.pollTask(r, id, t.adoptTaskInput(r, id))
	}
}

// callTask calls a method of the extension for a request of the client.
func (t *LegacyToModern) callTask(r *legacyRequest, method, id string, more []byte, done func(o outcome)) {
	if t.queueIfNotReady(r, func() { t.callTask(r, method, id, more, done) }) {
		return
	}
	c := t.newCall(method, r, func(o outcome) {
		switch {
		case r.finished:
		case o.err != nil:
			t.forwardError(r, o.err)
		default:
			done(o)
		}
	})
	c.resend = func() { t.callTask(r, method, id, more, done) }
	params := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	params = append(append(params, more...), `,"_meta":`...)
	params = append(append(params, t.requestMeta(nil, true, nil)...), '}')
	rule := "+ _meta"
	if method != r.method {
		rule = r.method + " → " + method
	}
	t.sendUpstream(c.id, method, params, rule)
}

// coreStatus returns what a task of the extension is in the core protocol, where a tool that failed makes a task that failed.
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
	t.respond(r, era.CoreTask(nil, o.result, status), "tasks/get")
}

// handleTaskCancel takes the server's word that it heard. The client wants to know what became of the task.
func (t *LegacyToModern) handleTaskCancel(r *legacyRequest, id string, _ outcome) {
	t.callTask(r, mcp.MethodTasksGet, id, nil, func(o outcome) {
		status := t.coreStatus(id, o.result)
		if status == mcp.TaskStatusCompleted || status == mcp.TaskStatusFailed {
			t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the task has ended already"), "tasks/cancel")
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
		t.respond(r, era.CoreTask(nil, o.result, mcp.TaskStatusCancelled), "tasks/cancel")
	})
}
