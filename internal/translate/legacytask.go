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

// coreTasks are what a client of the core protocol's tasks has to find that a server of the extension does not keep for it.
type coreTasks struct {
	made      map[string]*madeTask
	order     []string            // of made, the oldest first
	cancelled map[string]struct{} // that the client was told are cancelled: they stay so
	talks     map[string]*taskTalk
}

// A madeTask is a call that was to be a task, and was answered at once.
type madeTask struct {
	task   []byte // as tasks/get has it
	result []byte
	size   int
}

// A taskWish is in what way a call may become a task.
type taskWish uint8

const (
	noTask     taskWish = iota
	wantsTask           // the client asked for one
	hiddenTask          // the server makes nothing else of it, and the client gets what comes of it
)

// hasExtension reports whether the server has tasks.
func (t *LegacyClient) hasExtension() bool {
	return era.IsObject(era.Lookup(t.server.caps, "extensions", mcp.ExtensionTasks))
}

// hasTasks reports whether tasks of the extension are behind those of the core protocol.
func (t *LegacyClient) hasTasks() bool { return t.legacy.CoreTasks && t.hasExtension() }

// wishTask notes that a call is to become a task. Without tasks the wish means nothing.
func (t *LegacyClient) wishTask(r *request) {
	if t.hasTasks() && era.IsObject(era.Lookup(r.params, "task")) {
		r.task = wantsTask
	}
}

// hideTask calls the tool again as a client that knows tasks does, if that is what the server requires, and reports whether it did.
func (t *LegacyClient) hideTask(r *request, e *jsonrpc.Error) bool {
	required := era.Lookup(e.Data, "requiredCapabilities", "extensions", mcp.ExtensionTasks)
	if r.method != mcp.MethodToolsCall || r.task != noTask || required == nil || !t.hasExtension() {
		return false
	}
	r.task = hiddenTask
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

// taskMade answers a call that became a task, or waits for what comes of it.
func (t *LegacyClient) taskMade(r *request, result []byte) {
	if r.task == hiddenTask {
		r.hidden = era.LookupString(result, "taskId")
		r.inputs, r.state = nil, nil
		t.pollTask(r, r.hidden, make(map[string]struct{}))
		return
	}
	task := era.CoreTask([]byte(`{"task":`), result, "")
	t.answer(r, append(task, '}'), "resultType task → task")
}

// taskAtOnce makes a task of a call that the server answered without one.
func (t *LegacyClient) taskAtOnce(r *request, result []byte) {
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
	made := &madeTask{task, relate(result, id), len(result)}
	for len(t.tasks.order) > 0 && (len(t.tasks.order) >= t.opts.Limits.Tasks || t.kept+made.size > t.opts.Limits.Bytes) {
		t.forgetTask()
	}
	if !t.keep(made.size) {
		t.fail(r, errTooMuch, "refused")
		return
	}
	if t.tasks.made == nil {
		t.tasks.made = make(map[string]*madeTask)
	}
	t.tasks.made[id] = made
	t.tasks.order = append(t.tasks.order, id)
	t.answer(r, append(append([]byte(`{"task":`), task...), '}'), "resultType complete → task that is completed")
}

// forgetTask forgets the oldest result that is kept as a task.
func (t *LegacyClient) forgetTask() {
	id := t.tasks.order[0]
	t.tasks.order = slices.Delete(t.tasks.order, 0, 1)
	t.kept -= t.tasks.made[id].size
	delete(t.tasks.made, id)
}

// relate says of a result to which task it belongs.
func relate(result []byte, id string) []byte {
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
func (t *LegacyClient) serveTask(r *request) {
	id := era.LookupString(r.params, "taskId")
	made := t.tasks.made[id]
	switch {
	case !t.hasTasks():
		t.fail(r, jsonrpc.MethodNotFound(r.method), "the server has no tasks")
	case r.method == mcp.MethodTasksList:
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method not found: tasks/list: modern servers do not list tasks"), "refused")
	case id == "" || len(id) > maxTaskID:
		t.fail(r, errTaskID, "")
	case made != nil && r.method == mcp.MethodTasksGet:
		t.answer(r, bytes.Clone(made.task), "kept here")
	case made != nil && r.method == mcp.MethodTasksResult:
		t.answer(r, bytes.Clone(made.result), "kept here")
	case made != nil:
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the task has ended already"), "kept here")
	case r.method == mcp.MethodTasksGet:
		t.callTask(r, mcp.MethodTasksGet, id, nil, func(a answer) { t.taskGot(r, id, a) })
	case r.method == mcp.MethodTasksCancel:
		t.callTask(r, mcp.MethodTasksCancel, id, nil, func(a answer) { t.taskCancelled(r, id, a) })
	default:
		t.pollTask(r, id, t.takeTalk(r, id))
	}
}

// callTask calls a method of the extension for a request of the client.
func (t *LegacyClient) callTask(r *request, method, id string, more []byte, done func(a answer)) {
	if t.wait(r, func() { t.callTask(r, method, id, more, done) }) {
		return
	}
	c := t.newCall(method, r, func(a answer) {
		switch {
		case r.over:
		case a.err != nil:
			t.failFrom(r, a.err)
		default:
			done(a)
		}
	})
	c.again = func() { t.callTask(r, method, id, more, done) }
	params := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	params = append(append(params, more...), `,"_meta":`...)
	params = append(append(params, t.metaOf(nil, true, nil)...), '}')
	rule := "+ _meta"
	if method != r.method {
		rule = r.method + " → " + method
	}
	t.sendFar(c.id, method, params, rule)
}

// coreStatus returns what a task of the extension is in the core protocol, where a tool that failed makes a task that failed.
func (t *LegacyClient) coreStatus(id string, task []byte) mcp.TaskStatus {
	status := mcp.TaskStatus(era.LookupString(task, "status"))
	if _, ok := t.tasks.cancelled[id]; ok {
		return mcp.TaskStatusCancelled
	}
	if status == mcp.TaskStatusCompleted && string(era.Lookup(task, "result", "isError")) == "true" {
		return mcp.TaskStatusFailed
	}
	return status
}

func (t *LegacyClient) taskGot(r *request, id string, a answer) {
	status := t.coreStatus(id, a.result)
	if status == mcp.TaskStatusInputRequired {
		t.talk(r, id, a.result)
	} else {
		t.hush(id)
	}
	t.answer(r, era.CoreTask(nil, a.result, status), "tasks/get")
}

// taskCancelled takes the server's word that it heard. The client wants to know what became of the task.
func (t *LegacyClient) taskCancelled(r *request, id string, _ answer) {
	t.callTask(r, mcp.MethodTasksGet, id, nil, func(a answer) {
		status := t.coreStatus(id, a.result)
		if status == mcp.TaskStatusCompleted || status == mcp.TaskStatusFailed {
			t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the task has ended already"), "tasks/cancel")
			return
		}
		if t.tasks.cancelled == nil {
			t.tasks.cancelled = make(map[string]struct{})
		}
		for len(t.tasks.cancelled) >= t.opts.Limits.Tasks {
			for old := range maps.Keys(t.tasks.cancelled) {
				delete(t.tasks.cancelled, old)
				break
			}
		}
		t.tasks.cancelled[id] = struct{}{}
		t.hush(id)
		t.answer(r, era.CoreTask(nil, a.result, mcp.TaskStatusCancelled), "tasks/cancel")
	})
}
