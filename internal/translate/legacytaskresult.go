package translate

import (
	"bytes"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxPollInterval is how long a task is not asked for at most.
const maxPollInterval = time.Minute

// pollTask serves tasks/result: it asks for the task until it has ended, and asks the client what the task wants to know. asked are the keys of the
// questions that it has been asked.
func (t *LegacyToModern) pollTask(r *legacyRequest, id string, asked map[string]struct{}) {
	t.callTask(r, mcp.MethodTasksGet, id, nil, func(o outcome) {
		task := o.result
		status := t.coreStatus(id, task)
		switch {
		case status == mcp.TaskStatusCancelled:
			t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the task was cancelled"), "tasks/get → "+r.method)
			return
		case era.IsTerminal(status):
			t.taskEnded(r, id, task)
			return
		case status == mcp.TaskStatusInputRequired:
			if e := t.sendTaskInputs(r, id, era.Lookup(task, "inputRequests"), asked); e != nil {
				t.abandon(r, "the task cannot go on")
				t.fail(r, e, "refused")
				return
			}
		}
		wait := t.opts.Limits.PollInterval
		if ms, ok := jsonwire.ParseInt(era.Lookup(task, "pollIntervalMs")); ok && ms > 0 && ms < maxPollInterval.Milliseconds() {
			wait = time.Duration(ms) * time.Millisecond
		}
		t.timers.stop(r.retryTimer)
		r.retryTimer = t.after(wait, func() { t.pollTask(r, id, asked) })
		t.drop("the task goes on")
	})
}

// taskEnded answers tasks/result with what the request would have got.
func (t *LegacyToModern) taskEnded(r *legacyRequest, id string, task []byte) {
	if result := era.Lookup(task, "result"); era.IsObject(result) {
		result = era.ResultToLegacy(nil, result, mcp.MethodToolsCall, t.legacy)
		if r.hiddenTaskID == "" {
			result = withRelatedTask(result, id)
		}
		t.respond(r, result, "tasks/get → "+r.method)
		return
	}
	e := internalError("the task failed, and the server does not say why")
	if text := era.Lookup(task, "error"); era.IsObject(text) {
		m := jsonrpc.Message{Kind: jsonrpc.KindError, Error: text}
		e = era.ConvertError(m.Err(), mcp.MethodToolsCall, t.legacy)
	}
	t.fail(r, e, "tasks/get → "+r.method)
}

// cancelTask ends a task that the client does not know of.
func (t *LegacyToModern) cancelTask(id string) {
	if t.upstreamDown {
		return
	}
	c := t.newCall(mcp.MethodTasksCancel, nil, func(outcome) {})
	params := append(jsonwire.AppendQuote([]byte(`{"taskId":`), id), `,"_meta":`...)
	t.sendUpstream(c.id, c.method, append(append(params, t.requestMeta(nil, true, nil)...), '}'), "cancelled")
}

// sendTaskInputs asks the client the questions of a task that it has not been asked yet.
func (t *LegacyToModern) sendTaskInputs(r *legacyRequest, id string, requests []byte, asked map[string]struct{}) *jsonrpc.Error {
	if requests == nil {
		return nil
	}
	unsent := requests
	if era.IsObject(requests) {
		unsent = era.Rewrite(nil, requests, func(m *jsonwire.Members) []byte {
			if _, ok := asked[m.KeyString()]; ok {
				return nil
			}
			return m.Value()
		}, nil)
	}
	inputs, err := t.parseInputRequests(r, unsent)
	if err != nil {
		return internalError("the client cannot be asked: %s", err)
	}
	if len(asked)+len(inputs) > t.opts.Limits.InputRequests {
		return internalError("the task asked more than %d questions", t.opts.Limits.InputRequests)
	}
	related := append(jsonwire.AppendQuote([]byte(`"`+mcp.MetaRelatedTask+`":{"taskId":`), id), '}')
	for _, in := range inputs {
		asked[unquoted(in.key)] = struct{}{}
		in.done = func(in *inputRequest, e *jsonrpc.Error) { t.updateTask(id, in, e) }
		if r.hiddenTaskID == "" {
			in.Params = addMeta(in.Params, related)
		}
		r.inputRequests = append(r.inputRequests, in)
		r.pendingInputs++
		t.sendInputRequest(in, "tasks/get → "+in.Method)
	}
	return nil
}

// updateTask hands an answer of the client to the task.
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
		t.abandon(r, "the task cannot go on")
		t.fail(r, e, "refused")
	default:
		t.sendUpdate(r, id, in)
	}
}

// unquoted is the text that stands between quotes.
func unquoted(text []byte) string { return string(jsonwire.AppendUnquote(nil, text)) }

func (t *LegacyToModern) sendUpdate(r *legacyRequest, id string, in *inputRequest) {
	if t.queueIfNotReady(r, func() { t.sendUpdate(r, id, in) }) {
		return
	}
	c := t.newCall(mcp.MethodTasksUpdate, nil, func(outcome) {})
	params := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	params = append(append(append(params, `,"inputResponses":{"`...), in.key...), `":`...)
	params = append(append(params, in.response...), `},"_meta":`...)
	params = append(append(params, t.requestMeta(nil, true, nil)...), '}')
	t.sendUpstream(c.id, c.method, params, in.Method+" → tasks/update")
}

// addMeta adds the text of a member to the _meta of params.
func addMeta(params, member []byte) []byte {
	meta := era.Lookup(params, "_meta")
	if !era.IsObject(meta) {
		meta = []byte("{}")
	}
	meta = era.Rewrite(nil, meta, nil, member)
	if !era.IsObject(params) {
		params = []byte("{}")
	}
	rest := era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
		if m.KeyIs("_meta") {
			return nil
		}
		return m.Value()
	}, nil)
	return era.Rewrite(nil, rest, nil, append([]byte(`"_meta":`), meta...))
}

// upstreamTaskStatus tells the client of a task, if the server tells of one.
func (t *LegacyToModern) upstreamTaskStatus(m *jsonrpc.Message) {
	id := era.LookupString(m.Params, "taskId")
	if !t.legacy.CoreTasks || id == "" {
		t.drop("the client knows no tasks")
		return
	}
	params := era.CoreTask(nil, m.Params, t.coreStatus(id, m.Params))
	t.emit(Out{To: Downstream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationTaskStatus, bytes.Clone(params)), Rule: "notifications/tasks → notifications/tasks/status"})
}
