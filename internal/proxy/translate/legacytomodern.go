package translate

import (
	"bytes"
	"net/http"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A LegacyToModern translates one session of a legacy client for a modern server. Use
// [NewLegacyToModern] to make one.
type LegacyToModern struct {
	*core
	// The parts. Each uses only parts above it.
	handshake    *legacyHandshake
	inputs       *legacyInputs
	requests     *legacyRequests
	calls        *legacyCalls
	subscription *legacySubscription
	tasks        *legacyTasks
}

var _ Translator = (*LegacyToModern)(nil)

// NewLegacyToModern returns a translator for one legacy session. Nil options mean the defaults.
func NewLegacyToModern(opts *Options) *LegacyToModern {
	c := newCore(opts)
	handshake := newLegacyHandshake(c)
	inputs := &legacyInputs{core: c, handshake: handshake}
	requests := &legacyRequests{core: c, handshake: handshake, inputs: inputs}
	calls := &legacyCalls{core: c, requests: requests}
	return &LegacyToModern{
		core:         c,
		handshake:    handshake,
		inputs:       inputs,
		requests:     requests,
		calls:        calls,
		subscription: &legacySubscription{core: c, handshake: handshake, requests: requests, calls: calls},
		tasks:        &legacyTasks{core: c, handshake: handshake, inputs: inputs, requests: requests, calls: calls},
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
	return t.step(now, func() { t.calls.fail(id, e) })
}

// UpstreamLost implements [Translator].
func (t *LegacyToModern) UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out {
	return t.step(now, func() {
		t.subscription.lost()
		if t.calls.down {
			t.calls.failQueue(e)
			t.subscription.failWaiting(e)
		}
		t.calls.lost(e, unsent)
	})
}

// UpstreamReady implements [Translator].
func (t *LegacyToModern) UpstreamReady(now time.Time) []Out {
	return t.step(now, func() {
		if t.calls.reconnected() {
			t.subscription.renew()
		}
	})
}

// NotificationsLost implements [Translator]. It does nothing, because a modern server's
// notifications belong to a request, which ends when some are lost.
func (t *LegacyToModern) NotificationsLost(time.Time) []Out { return nil }

// Close implements [Translator].
func (t *LegacyToModern) Close(now time.Time, e *jsonrpc.Error) []Out {
	outs := t.step(now, func() {
		for _, r := range t.requests.all() {
			t.tasks.abandon(r, "the session has ended")
			t.requests.fail(r, e, "")
		}
		t.tasks.cancelInputs()
		t.calls.cancelAll("the session has ended")
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

func (t *LegacyToModern) fromDownstream(frame []byte, stream uint64) {
	if rpcbatch.Is(frame) {
		t.downstreamBatch(frame, stream)
		return
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		t.rejectMalformed(&m, stream, err, t.handshake.legacy.NullErrorID)
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
		t.subscription.subscribe(r, m)
	// Not for legacy clients.
	case mcp.MethodDiscover, mcp.MethodSubscriptionsListen, mcp.MethodTasksUpdate:
		t.requests.fail(r, jsonrpc.MethodNotFound(r.method), "")
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksList:
		t.tasks.serve(r)
	case mcp.MethodToolsCall:
		t.tasks.noteRequest(r)
		t.forward(r)
	default:
		t.forward(r)
	}
}

// discover answers initialize by server/discover, which it sends for the second time if retry is
// set.
func (t *LegacyToModern) discover(r *legacyRequest, retry bool) {
	if t.calls.queueIfNotReady(r, func() { t.discover(r, retry) }) {
		return
	}
	c := t.calls.add(mcp.MethodDiscover, r, func(o outcome) {
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

// forward sends a request to the server.
func (t *LegacyToModern) forward(r *legacyRequest) {
	if t.calls.queueIfNotReady(r, func() { t.forward(r) }) {
		return
	}
	c := t.calls.add(r.method, r, func(o outcome) { t.handleOutcome(r, o) })
	c.resend = func() { t.forward(r) }
	rule := "+ _meta"
	if r.inputRound > 0 {
		rule = "+ inputResponses"
	}
	t.sendUpstream(c.id, r.method, t.handshake.requestParams(r, c.id), rule, append(r.causes, r.cause)...)
}

func (t *LegacyToModern) downstreamNotification(m *jsonrpc.Message, frame []byte) {
	switch string(m.Method) {
	case mcp.NotificationInitialized:
		t.handshake.session.Initialized()
		t.drop("modern servers have no handshake")
		t.subscription.start()
	case mcp.NotificationCancelled:
		t.downstreamCanceled(m)
	case mcp.NotificationProgress:
		t.drop("modern servers do not accept progress")
	case mcp.NotificationRootsChanged:
		t.drop("modern servers ask for roots when they need them")
	case mcp.NotificationTaskStatus:
		t.drop("modern servers give clients no tasks")
	default:
		if isProtocolNotification(string(m.Method)) || t.calls.down {
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
	t.tasks.abandon(r, reason)
	t.requests.endCanceled(r)
}

// downstreamBatch handles the messages of a batch.
func (t *LegacyToModern) downstreamBatch(frame []byte, stream uint64) {
	if t.handshake.negotiated && !t.handshake.legacy.Batches {
		e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: revision %s has no batches", t.handshake.legacy.Revision)
		t.emit(Out{To: Downstream, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, nil, e, t.handshake.legacy.NullErrorID), Rule: "refused"})
		return
	}
	entries, err := rpcbatch.Parse(frame, t.opts.Limits.Depth)
	if err != nil {
		t.rejectMalformed(&jsonrpc.Message{}, stream, err, t.handshake.legacy.NullErrorID)
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
	if rpcbatch.Is(frame) {
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
		t.calls.receive(&m)
	}
}

// handleOutcome handles the server's response to a client request.
func (t *LegacyToModern) handleOutcome(r *legacyRequest, o outcome) {
	switch {
	case r.finished:
	case o.err != nil:
		if t.tasks.requiresTask(r, o.err) {
			t.forward(r)
		} else {
			t.requests.forwardError(r, o.err)
		}
	default:
		t.handleResult(r, o.result)
	}
}

// handleResult handles the server's result for a client request.
func (t *LegacyToModern) handleResult(r *legacyRequest, result []byte) {
	switch kind := era.ResultType(result); {
	case kind == "" || kind == mcp.ResultTypeComplete:
		if r.taskMode == wantsTask {
			t.tasks.complete(r, result)
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
		t.tasks.created(r, result)
	default:
		t.requests.fail(r, internalError("the server's result has a type that %s does not define: %s", r.method, clip.String(kind, 100)), "resultType rejected")
	}
}

func (t *LegacyToModern) upstreamNotification(m *jsonrpc.Message, frame []byte, call int64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		t.calls.progress(m, frame)
	case mcp.NotificationAcknowledged:
		t.subscription.acknowledged(m)
	case mcp.NotificationCancelled:
		t.subscription.canceled(m)
	case mcp.NotificationToolsChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged, mcp.NotificationResourceUpdated:
		t.subscription.forward(m, frame)
	case mcp.NotificationTasks:
		t.tasks.forwardStatus(m)
	default:
		if isProtocolNotification(string(m.Method)) && string(m.Method) != mcp.NotificationMessage {
			t.drop("modern servers must not send this")
			return
		}
		t.emit(Out{To: Downstream, Stream: t.calls.streamOf(call), Message: bytes.Clone(frame)})
	}
}
