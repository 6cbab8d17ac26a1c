package translate

import (
	"bytes"
	"net/http"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func (t *LegacyClient) fromNear(frame []byte, stream uint64) {
	if jsonrpc.IsBatch(frame) {
		t.nearBatch(frame, stream)
		return
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		t.nearMalformed(&m, stream, err)
		return
	}
	t.near(&m, frame, stream, nil)
}

// nearMalformed answers what is no message.
func (t *LegacyClient) nearMalformed(m *jsonrpc.Message, stream uint64, err error) {
	if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
		t.drop("malformed answer")
		return
	}
	e := jsonrpc.ErrorOf(err)
	t.emit(Out{To: Near, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, m.ID, e, t.legacy.NullErrorID), Rule: "malformed"})
}

// near takes one message of the client; b is the batch that it came in, or nil.
func (t *LegacyClient) near(m *jsonrpc.Message, frame []byte, stream uint64, b *batch) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		t.nearRequest(m, stream, b)
	case jsonrpc.KindNotification:
		t.nearNotification(m, frame)
	default:
		t.nearAnswer(m)
	}
}

func (t *LegacyClient) nearRequest(m *jsonrpc.Message, stream uint64, b *batch) {
	r := &request{id: m.ID.Clone(), key: idKey(m.ID), stream: stream, method: string(m.Method), batch: b, size: len(m.Params) + 2*len(m.ID), mark: t.mark}
	if b != nil {
		b.open++
	}
	if t.reqs[r.key] != nil {
		r.over = true
		t.reply(r, jsonrpc.AppendError(nil, r.id, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is open"), false), "")
		return
	}
	if len(t.reqs) >= t.opts.Limits.Requests || !t.keep(r.size) {
		r.over = true
		t.reply(r, jsonrpc.AppendError(nil, r.id, errTooMuch, false), "refused")
		return
	}
	t.reqs[r.key] = r
	if m.Params != nil {
		r.params = bytes.Clone(m.Params)
	}
	ex, err := t.session.Open(&jsonrpc.Request{Message: *m})
	if err != nil {
		t.fail(r, jsonrpc.ErrorOf(err), "")
		return
	}
	if len(ex.Meta.ProgressToken) > 0 {
		r.token = bytes.Clone(ex.Meta.ProgressToken)
	}
	t.serve(r, m)
}

// serve does for a request what becomes of its method.
func (t *LegacyClient) serve(r *request, m *jsonrpc.Message) {
	switch r.method {
	case mcp.MethodInitialize:
		t.initialize(r, m)
	case mcp.MethodPing:
		t.answer(r, []byte("{}"), "ping answered here")
	case mcp.MethodSetLevel:
		t.setLevel(r, m)
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		t.subscribe(r, m)
	case mcp.MethodDiscover, mcp.MethodSubscriptionsListen, mcp.MethodTasksUpdate: // a legacy client cannot mean them
		t.fail(r, jsonrpc.MethodNotFound(r.method), "")
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksList:
		t.serveTask(r)
	case mcp.MethodToolsCall:
		t.wishTask(r)
		t.forward(r)
	default:
		t.forward(r)
	}
}

// forward sends the server what a request asks for.
func (t *LegacyClient) forward(r *request) {
	if t.wait(r, func() { t.forward(r) }) {
		return
	}
	c := t.newCall(r.method, r, func(a answer) { t.answered(r, a) })
	c.again = func() { t.forward(r) }
	rule := "+ _meta"
	if r.round > 0 {
		rule = "+ inputResponses"
	}
	t.sendFar(c.id, r.method, t.paramsOf(r, c.id), rule, append(r.marks, r.mark)...)
}

// wait queues what is to be done for a request if there is no server now, or no subscription yet, and reports whether it did.
func (t *LegacyClient) wait(r *request, do func()) bool {
	if !t.down && t.listen.begins == nil {
		return false
	}
	if len(t.queue) > 2*len(t.reqs)+8 { // most were cancelled
		t.queue = slices.DeleteFunc(t.queue, func(q queued) bool { return q.req.over })
	}
	t.queue = append(t.queue, queued{r, do})
	return true
}

// paramsOf returns the params with all that a modern request says.
func (t *LegacyClient) paramsOf(r *request, id int64) []byte {
	input := era.AllowsInput(r.method)
	change := func(m *jsonwire.Members) []byte {
		switch {
		case m.KeyIs("_meta"), r.method == mcp.MethodToolsCall && m.KeyIs("task"), input && (m.KeyIs("inputResponses") || m.KeyIs("requestState")):
			return nil
		}
		return m.Value()
	}
	params := r.params
	if !era.IsObject(params) {
		params = []byte("{}")
	}
	var meta []byte
	for members := jsonwire.ObjectMembers(params); members.Next(); {
		if members.KeyIs("_meta") {
			meta = members.Value()
		}
	}
	var token []byte
	if r.token != nil {
		token = appendInt(nil, mcp.MetaProgressToken, id)
	}
	added := append([]byte(`"_meta":`), t.metaOf(meta, r.task != noTask, token)...)
	if r.inputs != nil {
		added = append(append(added, `,"inputResponses":`...), r.inputs...)
	}
	if r.state != nil {
		added = append(append(added, `,"requestState":`...), r.state...)
	}
	return era.Rewrite(nil, params, change, added)
}

// metaOf returns the _meta of a modern request: what the client put there, who it is, and the text of another member.
func (t *LegacyClient) metaOf(own []byte, tasks bool, more []byte) []byte {
	if !era.IsObject(own) {
		own = []byte("{}")
	}
	who := t.who[0]
	if tasks {
		who = t.who[1]
	}
	added := bytes.Clone(who)
	if t.level != mcp.LevelNone {
		added = jsonwire.AppendQuote(append(added, `,"`+mcp.MetaLogLevel+`":`...), t.level.String())
	}
	if more != nil {
		added = append(append(added, ','), more...)
	}
	return era.Rewrite(nil, own, func(m *jsonwire.Members) []byte {
		for _, name := range []string{mcp.MetaProtocolVersion, mcp.MetaClientCapabilities, mcp.MetaClientInfo, mcp.MetaLogLevel, mcp.MetaProgressToken} {
			if m.KeyIs(name) {
				return nil
			}
		}
		return m.Value()
	}, added)
}

func (t *LegacyClient) setLevel(r *request, m *jsonrpc.Message) {
	v, _ := m.Param("level")
	name, _ := jsonrpc.ID(v).Text()
	level, ok := mcp.ParseLoggingLevel(name)
	switch {
	case t.server.known && era.Lookup(t.server.caps, "logging") == nil:
		t.fail(r, jsonrpc.MethodNotFound(r.method), "the server does not log")
	case !ok:
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: level is none that there is"), "")
	default:
		t.level = level
		t.answer(r, []byte("{}"), "logging/setLevel → logLevel in each _meta")
	}
}

func (t *LegacyClient) nearNotification(m *jsonrpc.Message, frame []byte) {
	switch string(m.Method) {
	case mcp.NotificationInitialized:
		t.session.Initialized()
		t.drop("modern servers have no handshake")
		t.beginListen()
	case mcp.NotificationCancelled:
		t.nearCancelled(m)
	case mcp.NotificationProgress:
		t.drop("modern servers are not told of progress")
	case mcp.NotificationRootsChanged:
		t.drop("modern servers ask for roots when they need them")
	case mcp.NotificationTaskStatus:
		t.drop("modern servers give clients no tasks")
	default:
		if protocols(string(m.Method)) || t.down {
			t.drop("that is nothing for a client to say, or nobody is there to hear it")
			return
		}
		t.emit(Out{To: Far, Method: string(m.Method), Message: bytes.Clone(frame)})
	}
}

func (t *LegacyClient) nearCancelled(m *jsonrpc.Message) {
	id, reason, _ := era.Cancellation{}.Target(m)
	r := t.reqs[idKey(id)]
	if id == nil || r == nil || r.method == mcp.MethodInitialize {
		t.drop("nothing to cancel")
		return
	}
	if reason == "" {
		reason = "the client cancelled"
	}
	t.abandon(r, reason)
	t.end(r)
	if r.batch != nil {
		t.batchDone(r.batch, nil)
	} else if r.stream != 0 { // nothing will come on it
		t.emit(Out{To: Near, Stream: r.stream, Final: true, Rule: "cancelled"})
	}
}

// abandon gives up what is under way for a request, with the server and with the client.
func (t *LegacyClient) abandon(r *request, reason string) {
	if c := t.calls[r.call]; c != nil && c.req == r {
		delete(t.calls, c.id)
		t.cancelFar(c.id, c.method, reason)
	}
	if r.hidden != "" {
		t.cancelTask(r.hidden)
	}
	t.withdraw(r, reason)
	t.later.stop(r.pause)
}

// end forgets a request.
func (t *LegacyClient) end(r *request) {
	if t.reqs[r.key] == r {
		delete(t.reqs, r.key)
		t.kept -= r.size
	}
	r.over = true
	t.later.stop(r.pause)
	t.withdraw(r, "the request is over")
}

// answer gives the client a result.
func (t *LegacyClient) answer(r *request, result []byte, rule string) {
	if r.over {
		return
	}
	t.end(r)
	t.reply(r, jsonrpc.AppendResult(nil, r.id, result), rule)
}

// fail gives the client an error.
func (t *LegacyClient) fail(r *request, e *jsonrpc.Error, rule string) {
	if r.over {
		return
	}
	t.end(r)
	t.reply(r, jsonrpc.AppendError(nil, r.id, e, false), rule)
}

// reply sends a response, or has its batch keep it.
func (t *LegacyClient) reply(r *request, response []byte, rule string) {
	switch {
	case r.batch != nil:
		t.batchDone(r.batch, response)
		return
	case r.id == nil: // nobody asked, see taskTalk
		return
	}
	t.emit(Out{To: Near, Stream: r.stream, Message: response, Final: true, Rule: rule})
}
