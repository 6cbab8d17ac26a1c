package translate

import (
	"bytes"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func (t *LegacyClient) fromFar(frame []byte, on int64) {
	if jsonrpc.IsBatch(frame) {
		t.drop("modern servers send no batches")
		return
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		t.drop("malformed")
		return
	}
	switch m.Kind {
	case jsonrpc.KindRequest:
		t.drop("modern servers send no requests")
	case jsonrpc.KindNotification:
		t.farNotification(&m, frame, on)
	default:
		t.farAnswer(&m)
	}
}

func (t *LegacyClient) farAnswer(m *jsonrpc.Message) {
	id, _ := callID(m.ID)
	c := t.calls[id]
	if c == nil {
		t.drop("answers nothing that is open")
		return
	}
	delete(t.calls, id)
	c.done(answerOf(m))
}

// answered takes the server's answer to a request of the client.
func (t *LegacyClient) answered(r *request, a answer) {
	switch {
	case r.over:
	case a.err != nil:
		t.failFrom(r, a.err)
	default:
		t.result(r, a.result)
	}
}

func (t *LegacyClient) result(r *request, result []byte) {
	switch kind := era.ResultType(result); {
	case kind == "" || kind == era.ResultComplete:
		if r.task == wantsTask {
			t.taskAtOnce(r, result)
			return
		}
		result = era.ResultToLegacy(nil, result, r.method, t.legacy)
		if r.method == mcp.MethodToolsList && t.hasTasks() {
			result = allowTasks(result)
		}
		t.pagesDone(r)
		t.answer(r, result, "− resultType")
	case kind == mcp.ResultTypeInputRequired && era.AllowsInput(r.method):
		t.inputRequired(r, result)
	case kind == resultTypeTask && r.task != noTask:
		t.taskMade(r, result)
	default:
		t.fail(r, internal("the server's result is of a type that %s has not: %s", r.method, clip(kind)), "resultType refused")
	}
}

// failFrom gives the client an error of the server's.
func (t *LegacyClient) failFrom(r *request, e *jsonrpc.Error) {
	if e.Code == mcp.CodeMissingRequiredClientCapability && t.hideTask(r, e) {
		return
	}
	t.pagesDone(r)
	converted := era.ConvertError(e, r.method, t.legacy)
	rule := ""
	if converted.Code != e.Code {
		rule = strconv.Itoa(int(e.Code)) + " → " + strconv.Itoa(int(converted.Code))
	}
	if e.Code == mcp.CodeMissingRequiredClientCapability && r.method == mcp.MethodToolsCall && r.task != wantsTask { // the model can tell the user
		t.answer(r, toolFailure(e.Message), "-32021 → isError")
		return
	}
	t.fail(r, converted, rule)
}

// toolFailure is the result of a tool that could not do its work.
func toolFailure(text string) []byte {
	result := jsonwire.AppendQuote([]byte(`{"content":[{"type":"text","text":`), text)
	return append(result, `}],"isError":true}`...)
}

func (t *LegacyClient) farNotification(m *jsonrpc.Message, frame []byte, on int64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		t.farProgress(m, frame)
	case mcp.NotificationAcknowledged:
		t.acknowledged(m)
	case mcp.NotificationCancelled:
		id, _, _ := era.Cancellation{}.Target(m)
		n, _ := callID(id)
		if n == 0 || n != t.listen.pending && n != t.listen.current {
			t.drop("no subscription that is open")
			return
		}
		t.listenEnded(n)
		t.drop("the server ends a subscription")
	case mcp.NotificationToolsChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged, mcp.NotificationResourceUpdated:
		t.farChanged(m, frame)
	case mcp.NotificationTasks:
		t.farTask(m)
	default:
		if protocols(string(m.Method)) && string(m.Method) != mcp.NotificationMessage {
			t.drop("that is nothing for a modern server to say")
			return
		}
		o := Out{To: Near, Message: bytes.Clone(frame)}
		if c := t.calls[on]; c != nil && c.req != nil && !c.req.over {
			o.Stream = c.req.stream
		}
		t.emit(o)
	}
}

// farProgress tells the client of progress by the token that it chose.
func (t *LegacyClient) farProgress(m *jsonrpc.Message, frame []byte) {
	token, _ := m.Param("progressToken")
	id, _ := jsonwire.ParseInt(token)
	c := t.calls[id]
	if c == nil || c.req == nil || c.req.over || c.req.token == nil {
		t.drop("progress of nothing that is open")
		return
	}
	v, _ := m.Param("progress")
	progress, err := strconv.ParseFloat(string(v), 64)
	if err != nil || c.req.round > 0 && progress <= c.req.progress {
		t.drop("progress of a new round that the client has seen already")
		return
	}
	c.req.progress = progress
	msg := rewriteParams(frame, func(params []byte) []byte {
		return era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
			if m.KeyIs("progressToken") {
				return c.req.token
			}
			return m.Value()
		}, nil)
	})
	t.emit(Out{To: Near, Stream: c.req.stream, Message: msg, Rule: "progressToken"})
}
