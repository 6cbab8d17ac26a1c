package translate

import (
	"bytes"
	"errors"
	"net/http"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func (t *ModernToLegacy) fromDownstream(frame []byte, stream uint64) {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
			t.drop("malformed answer")
			return
		}
		t.emit(Out{To: Downstream, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, m.ID, jsonrpc.ErrorOf(err), false), Rule: "malformed"})
		return
	}
	switch m.Kind {
	case jsonrpc.KindRequest:
		t.downstreamRequest(&m, stream)
	case jsonrpc.KindNotification:
		t.downstreamNotification(&m, frame, stream)
	default:
		t.drop("modern clients send no answers")
	}
}

func (t *ModernToLegacy) downstreamRequest(m *jsonrpc.Message, stream uint64) {
	r := &modernRequest{id: m.ID.Clone(), key: requestKey{stream, idKey(m.ID)}, method: string(m.Method), cause: t.cause}
	var refused *jsonrpc.Error
	switch {
	case t.requests[r.key] != nil:
		refused = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is open")
	case len(t.requests) >= t.opts.Limits.Requests+t.opts.Limits.Subscriptions:
		refused = errOverloaded
	}
	if refused != nil {
		t.emit(Out{To: Downstream, Stream: stream, Final: true, Message: jsonrpc.AppendError(nil, r.id, refused, false), Rule: "refused"})
		return
	}
	t.requests[r.key] = r
	ex, err := t.session.Open(&jsonrpc.Request{Message: *m})
	if err != nil {
		t.refuse(r, err)
		return
	}
	if r.size = len(ex.Meta.Text()) + 2*len(r.id); !t.reserve(r.size) {
		r.size = 0
		t.fail(r, errOverloaded, "refused")
		return
	}
	r.client = era.Client{Info: ex.Client.Info, Capabilities: ex.Client.Capabilities}
	r.logLevel = ex.Meta.LogLevel
	r.progressToken = ex.Meta.ProgressToken // the Meta's own memory
	t.serve(r, m)
}

// reserveFor takes note of bytes that are kept for a request, and refuses it if that is too much.
func (t *ModernToLegacy) reserveFor(r *modernRequest, n int) bool {
	if !t.reserve(n) {
		t.fail(r, errOverloaded, "refused")
		return false
	}
	r.size += n
	return true
}

// refuse answers a request that is none of its revision, with the HTTP status that goes with that.
func (t *ModernToLegacy) refuse(r *modernRequest, err error) {
	e := jsonrpc.ErrorOf(err)
	status := httpStatus(e)
	var form *era.FormError
	if errors.As(err, &form) {
		status = http.StatusBadRequest
	}
	t.failWith(r, e, status, "")
}

// httpStatus returns the HTTP status that modern servers answer an error with; 0 is 200.
func httpStatus(e *jsonrpc.Error) int {
	switch {
	case e.Code == jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case era.IsModernError(e):
		return http.StatusBadRequest
	}
	return 0
}

func (t *ModernToLegacy) serve(r *modernRequest, m *jsonrpc.Message) {
	switch r.method {
	case mcp.MethodDiscover:
		t.whenReady(r, func() { t.discover(r) })
	case mcp.MethodSubscriptionsListen:
		t.subscribe(r, m)
	case mcp.MethodTasksGet, mcp.MethodTasksUpdate, mcp.MethodTasksCancel:
		t.serveTask(r, m)
	default:
		if state, ok := m.Param("requestState"); ok && era.AllowsInput(r.method) && string(state) != "null" {
			t.resume(r, m, state)
			return
		}
		t.forward(r, m)
	}
}

// forward sends the server what a request asks for.
func (t *ModernToLegacy) forward(r *modernRequest, m *jsonrpc.Message) {
	c := &upstreamCall{method: r.method, upstreamMethod: r.method, req: r}
	c.done = func(o outcome) { t.handleOutcome(c, o) }
	c.params = legacyParams(m.Params, r.method)
	if era.AllowsInput(r.method) {
		t.lastNumber++
		c.number = t.lastNumber
	}
	if c.size = len(c.params); !t.reserve(c.size) {
		c.size = 0
		t.fail(r, errOverloaded, "refused")
		return
	}
	if r.method == mcp.MethodToolsCall {
		c.tool = era.LookupString(m.Params, "name")
	}
	r.call = c
	t.whenReady(r, func() { t.startCall(c) })
}

// legacyParams returns the params without what only modern servers understand, and without the progress token; nil if nothing is left.
func legacyParams(params []byte, method string) []byte {
	input := era.AllowsInput(method)
	params = era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
		switch {
		case m.KeyIs("_meta") && era.IsObject(m.Value()):
			return withoutMembers(m.Value(), mcp.MetaProtocolVersion, mcp.MetaClientCapabilities, mcp.MetaClientInfo, mcp.MetaLogLevel, mcp.MetaProgressToken)
		case input && (m.KeyIs("inputResponses") || m.KeyIs("requestState")), method == mcp.MethodToolsCall && m.KeyIs("task"):
			return nil
		}
		return m.Value()
	}, nil)
	if string(params) == "{}" {
		return nil
	}
	return params
}

func (t *ModernToLegacy) downstreamNotification(m *jsonrpc.Message, frame []byte, stream uint64) {
	switch string(m.Method) {
	case mcp.NotificationCancelled:
		id, reason, _ := era.Cancellation{}.Target(m)
		if r := t.requests[requestKey{stream, idKey(id)}]; id != nil && r != nil {
			t.cancel(r, reason)
			return
		}
		t.drop("nothing to cancel")
	case mcp.NotificationInitialized, mcp.NotificationRootsChanged, mcp.NotificationProgress:
		t.drop("modern clients do not say that")
	default:
		if isProtocolNotification(string(m.Method)) {
			t.drop("that is nothing for a modern client to say")
			return
		}
		if t.phase != ready || t.upstreamDown {
			t.drop("the server has not shaken hands")
			return
		}
		msg := bytes.Clone(frame)
		if meta := era.Lookup(m.Params, "_meta"); era.IsObject(meta) {
			msg = jsonrpc.AppendNotification(nil, string(m.Method), legacyParams(m.Params, ""))
		}
		t.emit(Out{To: Upstream, Message: msg, Method: string(m.Method)})
	}
}

// cancel gives up a request, which gets no answer.
func (t *ModernToLegacy) cancel(r *modernRequest, reason string) {
	if reason == "" {
		reason = "the client cancelled"
	}
	if r.subscription != nil {
		t.unsubscribe(r)
	}
	if c := r.call; c != nil {
		t.cancelCall(c, reason)
	}
	t.finish(r)
}

// finish forgets a request.
func (t *ModernToLegacy) finish(r *modernRequest) {
	if t.requests[r.key] == r {
		delete(t.requests, r.key)
		t.reserved -= r.size
	}
	r.finished = true
	if r.subscription != nil {
		t.subscriptions = slices.DeleteFunc(t.subscriptions, func(one *modernRequest) bool { return one == r })
	}
	if r.call != nil && r.call.req == r {
		r.call.req = nil
	}
	r.call = nil
}

// respond gives the client a complete result.
func (t *ModernToLegacy) respond(r *modernRequest, result []byte, rule string, of ...uint64) {
	t.sendResult(r, era.ResultToModern(nil, result, r.method, t.server.info, t.opts.Hints), rule, of...)
}

// sendResult gives the client a result as it is.
func (t *ModernToLegacy) sendResult(r *modernRequest, result []byte, rule string, of ...uint64) {
	if r.finished {
		return
	}
	t.finish(r)
	t.emit(Out{To: Downstream, Stream: r.key.stream, Final: true, Message: jsonrpc.AppendResult(nil, r.id, result), Rule: rule, Causes: of})
}

// fail gives the client an error.
func (t *ModernToLegacy) fail(r *modernRequest, e *jsonrpc.Error, rule string) {
	t.failWith(r, e, httpStatus(e), rule)
}

func (t *ModernToLegacy) failWith(r *modernRequest, e *jsonrpc.Error, status int, rule string) {
	if r.finished {
		return
	}
	if c := r.call; c != nil && c.req == r {
		t.release(c)
	}
	t.finish(r)
	t.emit(Out{To: Downstream, Stream: r.key.stream, Final: true, Status: status, Message: jsonrpc.AppendError(nil, r.id, e, false), Rule: rule})
}
