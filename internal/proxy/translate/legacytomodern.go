package translate

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A LegacyToModern translates one session of a legacy client for a modern server. Use
// [NewLegacyToModern] to make one.
type LegacyToModern struct {
	*core
	handshake *legacyHandshake
	inputs    *legacyInputs
	requests  *legacyRequests
	calls     map[int64]*call
	// queue holds requests that wait for the server.
	queue        waitQueue[*legacyRequest]
	subscription upstreamSubscription
	tasks        legacyTasks
}

// A call is a request to the server.
type call struct {
	id     int64
	method string
	// req is the client request, or nil.
	req  *legacyRequest
	done func(a outcome)
	// resend repeats a call that did not run; nil if it must not be repeated.
	resend func()
}

var _ Translator = (*LegacyToModern)(nil)

// NewLegacyToModern returns a translator for one legacy session. Nil options mean the defaults.
func NewLegacyToModern(opts *Options) *LegacyToModern {
	c := newCore(opts)
	handshake := newLegacyHandshake(c)
	inputs := newLegacyInputs(c, handshake)
	return &LegacyToModern{
		core:      c,
		handshake: handshake,
		inputs:    inputs,
		requests:  newLegacyRequests(c, handshake, inputs),
		calls:     make(map[int64]*call),
	}
}

// FromDownstream implements [Translator].
func (t *LegacyToModern) FromDownstream(now time.Time, message []byte, stream uint64) []Out {
	return t.step(now, func() { t.fromDownstream(message, stream) })
}

// FromUpstream implements [Translator].
func (t *LegacyToModern) FromUpstream(now time.Time, message []byte, call int64) []Out {
	return t.step(now, func() { t.fromUpstream(message, call) })
}

// StreamClosed implements [Translator].
func (t *LegacyToModern) StreamClosed(now time.Time, stream uint64) []Out {
	return t.step(now, func() { t.requests.streamClosed(stream) })
}

// CallFailed implements [Translator].
func (t *LegacyToModern) CallFailed(now time.Time, id int64, e *jsonrpc.Error) []Out {
	return t.step(now, func() {
		if c := t.calls[id]; c != nil {
			delete(t.calls, id)
			c.done(outcome{err: e, lost: true})
		}
	})
}

// UpstreamLost implements [Translator].
func (t *LegacyToModern) UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out {
	return t.step(now, func() {
		t.timers.stop(t.subscription.startTimer)
		t.subscription.startTimer = nil
		if t.upstreamDown {
			for _, w := range t.queue.take() {
				t.requests.fail(w.req, e, "")
			}
			t.failSubscribes(e)
		}
		t.upstreamDown = true
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			c := t.calls[id]
			if c == nil {
				continue
			}
			delete(t.calls, id)
			if c.resend != nil && slices.Contains(unsent, id) {
				t.queue.add(c.req, len(t.requests.byKey), c.resend)
				continue
			}
			c.done(outcome{err: e, lost: true})
		}
	})
}

// UpstreamReady implements [Translator].
func (t *LegacyToModern) UpstreamReady(now time.Time) []Out {
	return t.step(now, func() {
		if !t.upstreamDown {
			return
		}
		t.upstreamDown = false
		t.queue.run()
		t.resubscribe()
	})
}

// NotificationsLost implements [Translator]. It does nothing, because a modern server's
// notifications belong to a request, which ends when some are lost.
func (t *LegacyToModern) NotificationsLost(time.Time) []Out { return nil }

// Close implements [Translator].
func (t *LegacyToModern) Close(now time.Time, e *jsonrpc.Error) []Out {
	outs := t.step(now, func() {
		for _, key := range slices.Sorted(maps.Keys(t.requests.byKey)) {
			if r := t.requests.byKey[key]; r != nil {
				t.abandon(r, "the session has ended")
				t.requests.fail(r, e, "")
			}
		}
		for _, id := range slices.Sorted(maps.Keys(t.tasks.inputs)) {
			t.cancelTaskInput(id)
		}
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			if c := t.calls[id]; c.method != mcp.MethodTasksCancel { // sent for the same reason
				t.cancelUpstream(id, c.method, "the session has ended")
			}
		}
	})
	t.closed = true
	return outs
}

// Legacy implements [Translator].
func (t *LegacyToModern) Legacy() mcp.Revision {
	if !t.handshake.negotiated {
		return mcp.RevisionNone
	}
	return t.handshake.legacy.Revision
}

// InFlight implements [Translator].
func (t *LegacyToModern) InFlight() (requests, awaitingInput int) {
	return len(t.requests.byKey), t.requests.awaitingInput()
}

// newCall adds a call to the server. r may be nil.
func (t *LegacyToModern) newCall(method string, r *legacyRequest, done func(o outcome)) *call {
	c := &call{id: t.opts.IDs.Add(1), method: method, req: r, done: done}
	t.calls[c.id] = c
	if r != nil {
		r.callID = c.id
	}
	return c
}

func (t *LegacyToModern) fromDownstream(frame []byte, stream uint64) {
	if jsonrpc.IsBatch(frame) {
		t.downstreamBatch(frame, stream)
		return
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		t.requests.rejectMalformed(&m, stream, err)
		return
	}
	t.handleDownstream(&m, frame, stream, nil)
}

// handleDownstream handles one message of the client. b is its batch, or nil.
func (t *LegacyToModern) handleDownstream(m *jsonrpc.Message, frame []byte, stream uint64, b *batch) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		if r := t.requests.add(m, stream, b); r != nil {
			t.serve(r, m)
		}
	case jsonrpc.KindNotification:
		t.downstreamNotification(m, frame)
	default:
		t.inputs.receive(m)
	}
}

// serve handles a request by its method.
func (t *LegacyToModern) serve(r *legacyRequest, m *jsonrpc.Message) {
	switch r.method {
	case mcp.MethodInitialize:
		if e := t.handshake.initialize(m); e != nil {
			t.requests.fail(r, e, "")
		} else {
			t.discover(r, false)
		}
	case mcp.MethodPing:
		t.requests.respond(r, []byte("{}"), "ping answered here")
	case mcp.MethodSetLevel:
		if rule, e := t.handshake.setLevel(m); e != nil {
			t.requests.fail(r, e, rule)
		} else {
			t.requests.respond(r, []byte("{}"), rule)
		}
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		t.subscribe(r, m)
	// Not for legacy clients.
	case mcp.MethodDiscover, mcp.MethodSubscriptionsListen, mcp.MethodTasksUpdate:
		t.requests.fail(r, jsonrpc.MethodNotFound(r.method), "")
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksList:
		t.serveTask(r)
	case mcp.MethodToolsCall:
		t.noteTaskRequest(r)
		t.forward(r)
	default:
		t.forward(r)
	}
}

// forward sends a request to the server.
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
	t.sendUpstream(c.id, r.method, t.handshake.requestParams(r, c.id), rule, append(r.causes, r.cause)...)
}

// queueIfNotReady queues do if the server is lost or its first subscription is pending. It reports
// if it did.
func (t *LegacyToModern) queueIfNotReady(r *legacyRequest, do func()) bool {
	if !t.upstreamDown && t.subscription.startTimer == nil {
		return false
	}
	t.queue.add(r, len(t.requests.byKey), do)
	return true
}

func (t *LegacyToModern) downstreamNotification(m *jsonrpc.Message, frame []byte) {
	switch string(m.Method) {
	case mcp.NotificationInitialized:
		t.handshake.session.Initialized()
		t.drop("modern servers have no handshake")
		t.startSubscription()
	case mcp.NotificationCancelled:
		t.downstreamCanceled(m)
	case mcp.NotificationProgress:
		t.drop("modern servers do not accept progress")
	case mcp.NotificationRootsChanged:
		t.drop("modern servers ask for roots when they need them")
	case mcp.NotificationTaskStatus:
		t.drop("modern servers give clients no tasks")
	default:
		if isProtocolNotification(string(m.Method)) || t.upstreamDown {
			t.drop("clients must not send this, or the server has no use for it")
			return
		}
		t.emit(Out{To: Upstream, Method: string(m.Method), Message: bytes.Clone(frame)})
	}
}

func (t *LegacyToModern) downstreamCanceled(m *jsonrpc.Message) {
	id, reason, _ := era.Cancellation{}.Target(m)
	r := t.requests.byKey[id.Key()]
	if id == nil || r == nil || r.method == mcp.MethodInitialize {
		t.drop("nothing to cancel")
		return
	}
	if reason == "" {
		reason = "the client cancelled"
	}
	t.abandon(r, reason)
	t.requests.endCanceled(r)
}

// abandon gives up the call and the input requests of a request.
func (t *LegacyToModern) abandon(r *legacyRequest, reason string) {
	if c := t.calls[r.callID]; c != nil && c.req == r {
		delete(t.calls, c.id)
		t.cancelUpstream(c.id, c.method, reason)
	}
	if r.hiddenTaskID != "" {
		t.cancelTask(r.hiddenTaskID)
	}
	t.inputs.cancelAll(r, reason)
	t.timers.stop(r.retryTimer)
}

// downstreamBatch handles the messages of a batch.
func (t *LegacyToModern) downstreamBatch(frame []byte, stream uint64) {
	if t.handshake.negotiated && !t.handshake.legacy.Batches {
		e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: revision %s has no batches", t.handshake.legacy.Revision)
		t.emit(Out{To: Downstream, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, nil, e, t.handshake.legacy.NullErrorID), Rule: "refused"})
		return
	}
	entries, err := jsonrpc.ParseBatch(frame, t.opts.Limits.Depth)
	if err != nil {
		t.requests.rejectMalformed(&jsonrpc.Message{}, stream, err)
		return
	}
	b := &batch{stream: stream, pending: 1}
	for i := range entries {
		m := &entries[i]
		switch {
		case m.Invalid != nil && (m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError):
			t.drop("malformed response")
		case m.Invalid != nil:
			b.pending++
			t.requests.addToBatch(b, jsonrpc.AppendError(nil, m.ID, m.Invalid, t.handshake.legacy.NullErrorID))
		case m.Kind == jsonrpc.KindRequest && string(m.Method) == mcp.MethodInitialize:
			b.pending++
			e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: initialize must not be in a batch")
			t.requests.addToBatch(b, jsonrpc.AppendError(nil, m.ID, e, false))
		default:
			t.handleDownstream(&m.Message, frameOf(&m.Message), stream, b)
		}
	}
	t.requests.addToBatch(b, nil)
}

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
		t.drop("matches no pending request")
		return
	}
	delete(t.calls, id)
	c.done(outcomeOf(m))
}

// handleOutcome handles the server's response to a client request.
func (t *LegacyToModern) handleOutcome(r *legacyRequest, o outcome) {
	switch {
	case r.finished:
	case o.err != nil:
		if t.retryAsTask(r, o.err) {
			t.forward(r)
		} else {
			t.requests.forwardError(r, o.err)
		}
	default:
		t.handleResult(r, o.result)
	}
}

func (t *LegacyToModern) handleResult(r *legacyRequest, result []byte) {
	switch kind := era.ResultType(result); {
	case kind == "" || kind == mcp.ResultTypeComplete:
		if r.taskMode == wantsTask {
			t.completeAsTask(r, result)
			return
		}
		result = era.ResultToLegacy(nil, result, r.method, t.handshake.legacy)
		if r.method == mcp.MethodToolsList && t.handshake.hasTasks() {
			result = allowTasks(result)
		}
		t.inputs.notifyComplete(r)
		t.requests.respond(r, result, "− resultType")
	case kind == mcp.ResultTypeInputRequired && era.AllowsInput(r.method):
		t.inputs.begin(r, result, func(e *jsonrpc.Error) {
			if e != nil {
				t.requests.fail(r, e, "refused")
			} else {
				t.forward(r)
			}
		})
	case kind == resultTypeTask && r.taskMode != noTask:
		t.taskCreated(r, result)
	default:
		t.requests.fail(r, internalError("the server's result has a type that %s does not define: %s", r.method, clip.String(kind, 100)), "resultType rejected")
	}
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
			t.drop("no open subscription")
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
			t.drop("modern servers must not send this")
			return
		}
		o := Out{To: Downstream, Message: bytes.Clone(frame)}
		if c := t.calls[call]; c != nil && c.req != nil && !c.req.finished {
			o.Stream = c.req.stream
		}
		t.emit(o)
	}
}

// upstreamProgress forwards progress with the client's token.
func (t *LegacyToModern) upstreamProgress(m *jsonrpc.Message, frame []byte) {
	token, _ := m.Param("progressToken")
	id, _ := jsonwire.ParseInt(token)
	c := t.calls[id]
	if c == nil || c.req == nil || c.req.finished || c.req.progressToken == nil {
		t.drop("progress matches no pending request")
		return
	}
	v, _ := m.Param("progress")
	progress, err := strconv.ParseFloat(string(v), 64)
	if err != nil || c.req.inputRound > 0 && progress <= c.req.progress {
		t.drop("progress of a new round that the client has already seen")
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

// discover answers initialize by server/discover, which it sends for the second time if retry is
// set.
func (t *LegacyToModern) discover(r *legacyRequest, retry bool) {
	if t.queueIfNotReady(r, func() { t.discover(r, retry) }) {
		return
	}
	c := t.newCall(mcp.MethodDiscover, r, func(o outcome) {
		// An address may have several servers.
		if o.err != nil && !retry && t.handshake.namesOurRevision(o.err) {
			t.discover(r, true)
			return
		}
		result, e := t.handshake.discovered(o)
		if e != nil {
			t.requests.fail(r, e, "server/discover → initialize")
			return
		}
		t.subscription.setCapabilities(t.handshake.serverCaps)
		t.requests.respond(r, result, "server/discover → initialize")
	})
	c.resend = func() { t.discover(r, retry) }
	t.sendUpstream(c.id, mcp.MethodDiscover, t.handshake.params(nil, false), "initialize → server/discover")
}
