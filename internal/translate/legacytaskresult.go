package translate

import (
	"bytes"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxPoll is how long a task is not asked for at most.
const maxPoll = time.Minute

// pollTask serves tasks/result: it asks for the task until it has ended, and asks the client what the task wants to know. asked are the keys of the
// questions that it has been asked.
func (t *LegacyClient) pollTask(r *request, id string, asked map[string]struct{}) {
	t.callTask(r, mcp.MethodTasksGet, id, nil, func(a answer) {
		task := a.result
		status := t.coreStatus(id, task)
		switch {
		case status == mcp.TaskStatusCancelled:
			t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the task was cancelled"), "tasks/get → "+r.method)
			return
		case era.IsTerminal(status):
			t.taskEnded(r, id, task)
			return
		case status == mcp.TaskStatusInputRequired:
			if e := t.askForTask(r, id, era.Lookup(task, "inputRequests"), asked); e != nil {
				t.abandon(r, "the task cannot go on")
				t.fail(r, e, "refused")
				return
			}
		}
		wait := t.opts.Limits.Poll
		if ms, ok := jsonwire.ParseInt(era.Lookup(task, "pollIntervalMs")); ok && ms > 0 && ms < maxPoll.Milliseconds() {
			wait = time.Duration(ms) * time.Millisecond
		}
		t.later.stop(r.pause)
		r.pause = t.after(wait, func() { t.pollTask(r, id, asked) })
		t.drop("the task goes on")
	})
}

// taskEnded answers tasks/result with what the request would have got.
func (t *LegacyClient) taskEnded(r *request, id string, task []byte) {
	if result := era.Lookup(task, "result"); era.IsObject(result) {
		result = era.ResultToLegacy(nil, result, mcp.MethodToolsCall, t.legacy)
		if r.hidden == "" {
			result = relate(result, id)
		}
		t.answer(r, result, "tasks/get → "+r.method)
		return
	}
	e := internal("the task failed, and the server does not say why")
	if text := era.Lookup(task, "error"); era.IsObject(text) {
		m := jsonrpc.Message{Kind: jsonrpc.KindError, Error: text}
		e = era.ConvertError(m.Err(), mcp.MethodToolsCall, t.legacy)
	}
	t.fail(r, e, "tasks/get → "+r.method)
}

// cancelTask ends a task that the client does not know of.
func (t *LegacyClient) cancelTask(id string) {
	if t.down {
		return
	}
	c := t.newCall(mcp.MethodTasksCancel, nil, func(answer) {})
	params := append(jsonwire.AppendQuote([]byte(`{"taskId":`), id), `,"_meta":`...)
	t.sendFar(c.id, c.method, append(append(params, t.metaOf(nil, true, nil)...), '}'), "cancelled")
}

// askForTask asks the client the questions of a task that it has not been asked yet.
func (t *LegacyClient) askForTask(r *request, id string, requests []byte, asked map[string]struct{}) *jsonrpc.Error {
	if requests == nil {
		return nil
	}
	fresh := requests
	if era.IsObject(requests) {
		fresh = era.Rewrite(nil, requests, func(m *jsonwire.Members) []byte {
			if _, ok := asked[m.KeyString()]; ok {
				return nil
			}
			return m.Value()
		}, nil)
	}
	asks, err := t.readAsks(r, fresh)
	if err != nil {
		return internal("the client cannot be asked: %s", err)
	}
	if len(asked)+len(asks) > t.opts.Limits.Asks {
		return internal("the task asked more than %d questions", t.opts.Limits.Asks)
	}
	related := append(jsonwire.AppendQuote([]byte(`"`+mcp.MetaRelatedTask+`":{"taskId":`), id), '}')
	for _, a := range asks {
		asked[unquoted(a.key)] = struct{}{}
		a.done = func(a *ask, e *jsonrpc.Error) { t.updateTask(id, a, e) }
		if r.hidden == "" {
			a.Params = addMeta(a.Params, related)
		}
		r.asks = append(r.asks, a)
		r.open++
		t.ask(a, "tasks/get → "+a.Method)
	}
	return nil
}

// updateTask hands an answer of the client to the task.
func (t *LegacyClient) updateTask(id string, a *ask, e *jsonrpc.Error) {
	r := a.req
	if r.over {
		return
	}
	r.open--
	for i, one := range r.asks {
		if one == a {
			r.asks = append(r.asks[:i:i], r.asks[i+1:]...)
			break
		}
	}
	switch {
	case t.talked(id, a, e != nil):
	case e != nil:
		t.abandon(r, "the task cannot go on")
		t.fail(r, e, "refused")
	default:
		t.sendUpdate(r, id, a)
	}
}

// unquoted is the text that stands between quotes.
func unquoted(text []byte) string { return string(jsonwire.AppendUnquote(nil, text)) }

func (t *LegacyClient) sendUpdate(r *request, id string, a *ask) {
	if t.wait(r, func() { t.sendUpdate(r, id, a) }) {
		return
	}
	c := t.newCall(mcp.MethodTasksUpdate, nil, func(answer) {})
	params := jsonwire.AppendQuote([]byte(`{"taskId":`), id)
	params = append(append(append(params, `,"inputResponses":{"`...), a.key...), `":`...)
	params = append(append(params, a.answer...), `},"_meta":`...)
	params = append(append(params, t.metaOf(nil, true, nil)...), '}')
	t.sendFar(c.id, c.method, params, a.Method+" → tasks/update")
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

// farTask tells the client of a task, if the server tells of one.
func (t *LegacyClient) farTask(m *jsonrpc.Message) {
	id := era.LookupString(m.Params, "taskId")
	if !t.legacy.CoreTasks || id == "" {
		t.drop("the client knows no tasks")
		return
	}
	params := era.CoreTask(nil, m.Params, t.coreStatus(id, m.Params))
	t.emit(Out{To: Near, Message: jsonrpc.AppendNotification(nil, mcp.NotificationTaskStatus, bytes.Clone(params)), Rule: "notifications/tasks → notifications/tasks/status"})
}
