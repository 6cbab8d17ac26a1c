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

func (t *LegacyToModern) fromDownstream(frame []byte, stream uint64) {
	if jsonrpc.IsBatch(frame) {
		t.downstreamBatch(frame, stream)
		return
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		t.downstreamMalformed(&m, stream, err)
		return
	}
	t.handleDownstream(&m, frame, stream, nil)
}

// downstreamMalformed answers what is no message.
func (t *LegacyToModern) downstreamMalformed(m *jsonrpc.Message, stream uint64, err error) {
	if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
		t.drop("malformed answer")
		return
	}
	e := jsonrpc.ErrorOf(err)
	t.emit(Out{To: Downstream, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, m.ID, e, t.legacy.NullErrorID), Rule: "malformed"})
}

// handleDownstream takes one message of the client; b is the batch that it came in, or nil.
func (t *LegacyToModern) handleDownstream(m *jsonrpc.Message, frame []byte, stream uint64, b *batch) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		t.downstreamRequest(m, stream, b)
	case jsonrpc.KindNotification:
		t.downstreamNotification(m, frame)
	default:
		t.downstreamResponse(m)
	}
}

func (t *LegacyToModern) downstreamRequest(m *jsonrpc.Message, stream uint64, b *batch) {
	r := &legacyRequest{id: m.ID.Clone(), key: idKey(m.ID), stream: stream, method: string(m.Method), batch: b, size: len(m.Params) + 2*len(m.ID), cause: t.cause}
	if b != nil {
		b.pending++
	}
	if t.requests[r.key] != nil {
		r.finished = true
		t.sendResponse(r, jsonrpc.AppendError(nil, r.id, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is open"), false), "")
		return
	}
	if len(t.requests) >= t.opts.Limits.Requests || !t.reserve(r.size) {
		r.finished = true
		t.sendResponse(r, jsonrpc.AppendError(nil, r.id, errOverloaded, false), "refused")
		return
	}
	t.requests[r.key] = r
	if m.Params != nil {
		r.params = bytes.Clone(m.Params)
	}
	ex, err := t.session.Open(&jsonrpc.Request{Message: *m})
	if err != nil {
		t.fail(r, jsonrpc.ErrorOf(err), "")
		return
	}
	if len(ex.Meta.ProgressToken) > 0 {
		r.progressToken = bytes.Clone(ex.Meta.ProgressToken)
	}
	t.serve(r, m)
}

// serve does for a request what becomes of its method.
func (t *LegacyToModern) serve(r *legacyRequest, m *jsonrpc.Message) {
	switch r.method {
	case mcp.MethodInitialize:
		t.initialize(r, m)
	case mcp.MethodPing:
		t.respond(r, []byte("{}"), "ping answered here")
	case mcp.MethodSetLevel:
		t.setLevel(r, m)
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		t.subscribe(r, m)
	case mcp.MethodDiscover, mcp.MethodSubscriptionsListen, mcp.MethodTasksUpdate: // a legacy client cannot mean them
		t.fail(r, jsonrpc.MethodNotFound(r.method), "")
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksList:
		t.serveTask(r)
	case mcp.MethodToolsCall:
		t.noteTaskRequest(r)
		t.forward(r)
	default:
		t.forward(r)
	}
}

// forward sends the server what a request asks for.
func (t *LegacyToModern) forward(r *legacyRequest) {
	if t.queueIfNotReady(r, func() { t.forward(r) }) {
		return
	}
	c := t.newCall(r.method, r, func(o outcome) { t.handleOutcome(r, o) })
	c.resend = func() { t.forward(r) }
	rule := "+ _meta"
	if r.inputRound > 0 {
		rule = "+ inputResponses"
	}
	t.sendUpstream(c.id, r.method, t.modernParams(r, c.id), rule, append(r.causes, r.cause)...)
}

// queueIfNotReady queues what is to be done for a request if there is no server now, or no subscription yet, and reports whether it did.
func (t *LegacyToModern) queueIfNotReady(r *legacyRequest, do func()) bool {
	if !t.upstreamDown && t.subscription.startTimer == nil {
		return false
	}
	if len(t.queue) > 2*len(t.requests)+8 { // most were cancelled
		t.queue = slices.DeleteFunc(t.queue, func(q queuedRequest) bool { return q.req.finished })
	}
	t.queue = append(t.queue, queuedRequest{r, do})
	return true
}

// modernParams returns the params with all that a modern request says.
func (t *LegacyToModern) modernParams(r *legacyRequest, id int64) []byte {
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
	if r.progressToken != nil {
		token = appendInt(nil, mcp.MetaProgressToken, id)
	}
	added := append([]byte(`"_meta":`), t.requestMeta(meta, r.taskMode != noTask, token)...)
	if r.inputResponses != nil {
		added = append(append(added, `,"inputResponses":`...), r.inputResponses...)
	}
	if r.requestState != nil {
		added = append(append(added, `,"requestState":`...), r.requestState...)
	}
	return era.Rewrite(nil, params, change, added)
}

// requestMeta returns the _meta of a modern request: what the client put there, who it is, and the text of another member.
func (t *LegacyToModern) requestMeta(own []byte, tasks bool, more []byte) []byte {
	if !era.IsObject(own) {
		own = []byte("{}")
	}
	client := t.clientMeta[0]
	if tasks {
		client = t.clientMeta[1]
	}
	added := bytes.Clone(client)
	if t.logLevel != mcp.LevelNone {
		added = jsonwire.AppendQuote(append(added, `,"`+mcp.MetaLogLevel+`":`...), t.logLevel.String())
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

func (t *LegacyToModern) setLevel(r *legacyRequest, m *jsonrpc.Message) {
	v, _ := m.Param("level")
	name, _ := jsonrpc.ID(v).Text()
	level, ok := mcp.ParseLoggingLevel(name)
	switch {
	case t.server.known && era.Lookup(t.server.caps, "logging") == nil:
		t.fail(r, jsonrpc.MethodNotFound(r.method), "the server does not log")
	case !ok:
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: level is none that there is"), "")
	default:
		t.logLevel = level
		t.respond(r, []byte("{}"), "logging/setLevel → logLevel in each _meta")
	}
}

func (t *LegacyToModern) downstreamNotification(m *jsonrpc.Message, frame []byte) {
	switch string(m.Method) {
	case mcp.NotificationInitialized:
		t.session.Initialized()
		t.drop("modern servers have no handshake")
		t.startSubscription()
	case mcp.NotificationCancelled:
		t.downstreamCanceled(m)
	case mcp.NotificationProgress:
		t.drop("modern servers are not told of progress")
	case mcp.NotificationRootsChanged:
		t.drop("modern servers ask for roots when they need them")
	case mcp.NotificationTaskStatus:
		t.drop("modern servers give clients no tasks")
	default:
		if isProtocolNotification(string(m.Method)) || t.upstreamDown {
			t.drop("that is nothing for a client to say, or nobody is there to hear it")
			return
		}
		t.emit(Out{To: Upstream, Method: string(m.Method), Message: bytes.Clone(frame)})
	}
}

func (t *LegacyToModern) downstreamCanceled(m *jsonrpc.Message) {
	id, reason, _ := era.Cancellation{}.Target(m)
	r := t.requests[idKey(id)]
	if id == nil || r == nil || r.method == mcp.MethodInitialize {
		t.drop("nothing to cancel")
		return
	}
	if reason == "" {
		reason = "the client cancelled"
	}
	t.abandon(r, reason)
	t.finish(r)
	if r.batch != nil {
		t.addBatchResponse(r.batch, nil)
	} else if r.stream != 0 { // nothing will come on it
		t.emit(Out{To: Downstream, Stream: r.stream, Final: true, Rule: "cancelled"})
	}
}

// abandon gives up what is under way for a request, with the server and with the client.
func (t *LegacyToModern) abandon(r *legacyRequest, reason string) {
	if c := t.calls[r.callID]; c != nil && c.req == r {
		delete(t.calls, c.id)
		t.cancelUpstream(c.id, c.method, reason)
	}
	if r.hiddenTaskID != "" {
		t.cancelTask(r.hiddenTaskID)
	}
	t.cancelInputs(r, reason)
	t.timers.stop(r.retryTimer)
}

// finish forgets a request.
func (t *LegacyToModern) finish(r *legacyRequest) {
	if t.requests[r.key] == r {
		delete(t.requests, r.key)
		t.reserved -= r.size
	}
	r.finished = true
	t.timers.stop(r.retryTimer)
	t.cancelInputs(r, "the request is over")
}

// respond gives the client a result.
func (t *LegacyToModern) respond(r *legacyRequest, result []byte, rule string) {
	if r.finished {
		return
	}
	t.finish(r)
	t.sendResponse(r, jsonrpc.AppendResult(nil, r.id, result), rule)
}

// fail gives the client an error.
func (t *LegacyToModern) fail(r *legacyRequest, e *jsonrpc.Error, rule string) {
	if r.finished {
		return
	}
	t.finish(r)
	t.sendResponse(r, jsonrpc.AppendError(nil, r.id, e, false), rule)
}

// sendResponse sends a response, or has its batch keep it.
func (t *LegacyToModern) sendResponse(r *legacyRequest, response []byte, rule string) {
	switch {
	case r.batch != nil:
		t.addBatchResponse(r.batch, response)
		return
	case r.id == nil: // nobody asked, see taskInput
		return
	}
	t.emit(Out{To: Downstream, Stream: r.stream, Message: response, Final: true, Rule: rule})
}
