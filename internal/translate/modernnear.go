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

func (t *ModernClient) fromNear(frame []byte, stream uint64) {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
			t.drop("malformed answer")
			return
		}
		t.emit(Out{To: Near, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, m.ID, jsonrpc.ErrorOf(err), false), Rule: "malformed"})
		return
	}
	switch m.Kind {
	case jsonrpc.KindRequest:
		t.nearRequest(&m, stream)
	case jsonrpc.KindNotification:
		t.nearNotification(&m, frame, stream)
	default:
		t.drop("modern clients send no answers")
	}
}

func (t *ModernClient) nearRequest(m *jsonrpc.Message, stream uint64) {
	x := &exchange{id: m.ID.Clone(), key: nearKey{stream, idKey(m.ID)}, method: string(m.Method), mark: t.mark}
	var refused *jsonrpc.Error
	switch {
	case t.reqs[x.key] != nil:
		refused = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is open")
	case len(t.reqs) >= t.opts.Limits.Requests+t.opts.Limits.Listens:
		refused = errTooMuch
	}
	if refused != nil {
		t.emit(Out{To: Near, Stream: stream, Final: true, Message: jsonrpc.AppendError(nil, x.id, refused, false), Rule: "refused"})
		return
	}
	t.reqs[x.key] = x
	ex, err := t.session.Open(&jsonrpc.Request{Message: *m})
	if err != nil {
		t.refuse(x, err)
		return
	}
	if x.size = len(ex.Meta.Text()) + 2*len(x.id); !t.keep(x.size) {
		x.size = 0
		t.fail(x, errTooMuch, "refused")
		return
	}
	x.client = era.Client{Info: ex.Client.Info, Capabilities: ex.Client.Capabilities}
	x.level = ex.Meta.LogLevel
	x.token = ex.Meta.ProgressToken // the Meta's own memory
	t.serve(x, m)
}

// keepFor takes note of bytes that are kept for a request, and refuses it if that is too much.
func (t *ModernClient) keepFor(x *exchange, n int) bool {
	if !t.keep(n) {
		t.fail(x, errTooMuch, "refused")
		return false
	}
	x.size += n
	return true
}

// refuse answers a request that is none of its revision, with the HTTP status that goes with that.
func (t *ModernClient) refuse(x *exchange, err error) {
	e := jsonrpc.ErrorOf(err)
	status := statusOf(e)
	var form *era.FormError
	if errors.As(err, &form) {
		status = http.StatusBadRequest
	}
	t.failWith(x, e, status, "")
}

// statusOf returns the HTTP status that modern servers answer an error with; 0 is 200.
func statusOf(e *jsonrpc.Error) int {
	switch {
	case e.Code == jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case era.IsModernError(e):
		return http.StatusBadRequest
	}
	return 0
}

func (t *ModernClient) serve(x *exchange, m *jsonrpc.Message) {
	switch x.method {
	case mcp.MethodDiscover:
		t.whenReady(x, func() { t.discover(x) })
	case mcp.MethodSubscriptionsListen:
		t.listenTo(x, m)
	case mcp.MethodTasksGet, mcp.MethodTasksUpdate, mcp.MethodTasksCancel:
		t.serveTask(x, m)
	default:
		if state, ok := m.Param("requestState"); ok && era.AllowsInput(x.method) && string(state) != "null" {
			t.resume(x, m, state)
			return
		}
		t.forward(x, m)
	}
}

// forward sends the server what a request asks for.
func (t *ModernClient) forward(x *exchange, m *jsonrpc.Message) {
	r := &errand{method: x.method, farMethod: x.method, near: x}
	r.done = func(a answer) { t.settle(r, a) }
	r.params = plainParams(m.Params, x.method)
	if era.AllowsInput(x.method) {
		t.number++
		r.number = t.number
	}
	if r.size = len(r.params); !t.keep(r.size) {
		r.size = 0
		t.fail(x, errTooMuch, "refused")
		return
	}
	if x.method == mcp.MethodToolsCall {
		r.tool = era.LookupString(m.Params, "name")
	}
	x.errand = r
	t.whenReady(x, func() { t.begin(r) })
}

// plainParams returns the params without what only modern servers understand, and without the progress token; nil if nothing is left.
func plainParams(params []byte, method string) []byte {
	input := era.AllowsInput(method)
	params = era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
		switch {
		case m.KeyIs("_meta") && era.IsObject(m.Value()):
			return without(m.Value(), mcp.MetaProtocolVersion, mcp.MetaClientCapabilities, mcp.MetaClientInfo, mcp.MetaLogLevel, mcp.MetaProgressToken)
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

func (t *ModernClient) nearNotification(m *jsonrpc.Message, frame []byte, stream uint64) {
	switch string(m.Method) {
	case mcp.NotificationCancelled:
		id, reason, _ := era.Cancellation{}.Target(m)
		if x := t.reqs[nearKey{stream, idKey(id)}]; id != nil && x != nil {
			t.cancel(x, reason)
			return
		}
		t.drop("nothing to cancel")
	case mcp.NotificationInitialized, mcp.NotificationRootsChanged, mcp.NotificationProgress:
		t.drop("modern clients do not say that")
	default:
		if protocols(string(m.Method)) {
			t.drop("that is nothing for a modern client to say")
			return
		}
		if t.phase != ready || t.down {
			t.drop("the server has not shaken hands")
			return
		}
		msg := bytes.Clone(frame)
		if meta := era.Lookup(m.Params, "_meta"); era.IsObject(meta) {
			msg = jsonrpc.AppendNotification(nil, string(m.Method), plainParams(m.Params, ""))
		}
		t.emit(Out{To: Far, Message: msg, Method: string(m.Method)})
	}
}

// cancel gives up a request, which gets no answer.
func (t *ModernClient) cancel(x *exchange, reason string) {
	if reason == "" {
		reason = "the client cancelled"
	}
	if x.listen != nil {
		t.unlisten(x)
	}
	if r := x.errand; r != nil {
		t.giveUp(r, reason)
	}
	t.end(x)
}

// end forgets a request.
func (t *ModernClient) end(x *exchange) {
	if t.reqs[x.key] == x {
		delete(t.reqs, x.key)
		t.kept -= x.size
	}
	x.over = true
	if x.listen != nil {
		t.listens = slices.DeleteFunc(t.listens, func(one *exchange) bool { return one == x })
	}
	if x.errand != nil && x.errand.near == x {
		x.errand.near = nil
	}
	x.errand = nil
}

// answer gives the client a complete result.
func (t *ModernClient) answer(x *exchange, result []byte, rule string, of ...uint64) {
	t.reply(x, era.ResultToModern(nil, result, x.method, t.server.info, t.opts.Hints), rule, of...)
}

// reply gives the client a result as it is.
func (t *ModernClient) reply(x *exchange, result []byte, rule string, of ...uint64) {
	if x.over {
		return
	}
	t.end(x)
	t.emit(Out{To: Near, Stream: x.key.stream, Final: true, Message: jsonrpc.AppendResult(nil, x.id, result), Rule: rule, Of: of})
}

// fail gives the client an error.
func (t *ModernClient) fail(x *exchange, e *jsonrpc.Error, rule string) {
	t.failWith(x, e, statusOf(e), rule)
}

func (t *ModernClient) failWith(x *exchange, e *jsonrpc.Error, status int, rule string) {
	if x.over {
		return
	}
	if r := x.errand; r != nil && r.near == x {
		t.release(r)
	}
	t.end(x)
	t.emit(Out{To: Near, Stream: x.key.stream, Final: true, Status: status, Message: jsonrpc.AppendError(nil, x.id, e, false), Rule: rule})
}
