package translate

import (
	"bytes"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func (t *LegacyToModern) fromUpstream(frame []byte, call int64) {
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
		t.upstreamNotification(&m, frame, call)
	default:
		t.upstreamResponse(&m)
	}
}

func (t *LegacyToModern) upstreamResponse(m *jsonrpc.Message) {
	id, _ := parseCallID(m.ID)
	c := t.calls[id]
	if c == nil {
		t.drop("answers nothing that is open")
		return
	}
	delete(t.calls, id)
	c.done(outcomeOf(m))
}

// handleOutcome takes the server's answer to a request of the client.
func (t *LegacyToModern) handleOutcome(r *legacyRequest, o outcome) {
	switch {
	case r.finished:
	case o.err != nil:
		t.forwardError(r, o.err)
	default:
		t.handleResult(r, o.result)
	}
}

func (t *LegacyToModern) handleResult(r *legacyRequest, result []byte) {
	switch kind := era.ResultType(result); {
	case kind == "" || kind == era.ResultComplete:
		if r.taskMode == wantsTask {
			t.completeAsTask(r, result)
			return
		}
		result = era.ResultToLegacy(nil, result, r.method, t.legacy)
		if r.method == mcp.MethodToolsList && t.hasTasks() {
			result = allowTasks(result)
		}
		t.notifyElicitationsComplete(r)
		t.respond(r, result, "− resultType")
	case kind == mcp.ResultTypeInputRequired && era.AllowsInput(r.method):
		t.inputRequired(r, result)
	case kind == resultTypeTask && r.taskMode != noTask:
		t.taskCreated(r, result)
	default:
		t.fail(r, internalError("the server's result is of a type that %s has not: %s", r.method, clip(kind)), "resultType refused")
	}
}

// forwardError gives the client an error of the server's.
func (t *LegacyToModern) forwardError(r *legacyRequest, e *jsonrpc.Error) {
	if e.Code == mcp.CodeMissingRequiredClientCapability && t.retryAsTask(r, e) {
		return
	}
	t.notifyElicitationsComplete(r)
	converted := era.ConvertError(e, r.method, t.legacy)
	rule := ""
	if converted.Code != e.Code {
		rule = strconv.Itoa(int(e.Code)) + " → " + strconv.Itoa(int(converted.Code))
	}
	if e.Code == mcp.CodeMissingRequiredClientCapability && r.method == mcp.MethodToolsCall && r.taskMode != wantsTask { // the model can tell the user
		t.respond(r, toolError(e.Message), "-32021 → isError")
		return
	}
	t.fail(r, converted, rule)
}

// toolError is the result of a tool that could not do its work.
func toolError(text string) []byte {
	result := jsonwire.AppendQuote([]byte(`{"content":[{"type":"text","text":`), text)
	return append(result, `}],"isError":true}`...)
}

func (t *LegacyToModern) upstreamNotification(m *jsonrpc.Message, frame []byte, call int64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		t.upstreamProgress(m, frame)
	case mcp.NotificationAcknowledged:
		t.subscriptionAcknowledged(m)
	case mcp.NotificationCancelled:
		id, _, _ := era.Cancellation{}.Target(m)
		n, _ := parseCallID(id)
		if n == 0 || n != t.subscription.pending && n != t.subscription.current {
			t.drop("no subscription that is open")
			return
		}
		t.subscriptionEnded(n)
		t.drop("the server ends a subscription")
	case mcp.NotificationToolsChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged, mcp.NotificationResourceUpdated:
		t.upstreamChanged(m, frame)
	case mcp.NotificationTasks:
		t.upstreamTaskStatus(m)
	default:
		if isProtocolNotification(string(m.Method)) && string(m.Method) != mcp.NotificationMessage {
			t.drop("that is nothing for a modern server to say")
			return
		}
		o := Out{To: Downstream, Message: bytes.Clone(frame)}
		if c := t.calls[call]; c != nil && c.req != nil && !c.req.finished {
			o.Stream = c.req.stream
		}
		t.emit(o)
	}
}

// upstreamProgress tells the client of progress by the token that it chose.
func (t *LegacyToModern) upstreamProgress(m *jsonrpc.Message, frame []byte) {
	token, _ := m.Param("progressToken")
	id, _ := jsonwire.ParseInt(token)
	c := t.calls[id]
	if c == nil || c.req == nil || c.req.finished || c.req.progressToken == nil {
		t.drop("progress of nothing that is open")
		return
	}
	v, _ := m.Param("progress")
	progress, err := strconv.ParseFloat(string(v), 64)
	if err != nil || c.req.inputRound > 0 && progress <= c.req.progress {
		t.drop("progress of a new round that the client has seen already")
		return
	}
	c.req.progress = progress
	msg := rewriteParams(frame, func(params []byte) []byte {
		return era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
			if m.KeyIs("progressToken") {
				return c.req.progressToken
			}
			return m.Value()
		}, nil)
	})
	t.emit(Out{To: Downstream, Stream: c.req.stream, Message: msg, Rule: "progressToken"})
}
