package translate

import (
	"bytes"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A ModernToLegacy translates requests of modern clients for one session with a legacy server. Use
// [NewModernToLegacy] to make one.
//
// The first request determines the capabilities in the handshake. The driver must not let two
// principals share a translator, and should use one for each [ClientKey].
type ModernToLegacy struct {
	*core
	// The parts. Each uses only parts above it.
	server        *legacyServer
	requests      *modernRequests
	handshake     *modernHandshake
	inputs        *modernInputs
	calls         *modernCalls
	rounds        *modernRounds
	tools         *modernTools
	tasks         *modernTasks
	subscriptions *modernSubscriptions
}

var _ Translator = (*ModernToLegacy)(nil)

// NewModernToLegacy returns a translator for one session with a legacy server. Nil options mean the
// defaults.
func NewModernToLegacy(opts *Options) *ModernToLegacy {
	c := newCore(opts)
	server := new(legacyServer)
	requests := newModernRequests(c, server)
	handshake := &modernHandshake{core: c, server: server, requests: requests}
	inputs := &modernInputs{core: c, pending: make(map[string]*serverRequest)}
	calls := newModernCalls(c, handshake, inputs)
	t := &ModernToLegacy{
		core:          c,
		server:        server,
		requests:      requests,
		handshake:     handshake,
		inputs:        inputs,
		calls:         calls,
		rounds:        &modernRounds{core: c, server: server, requests: requests, inputs: inputs, calls: calls, nonce: c.opts.NewID()},
		tasks:         &modernTasks{core: c, server: server, requests: requests, handshake: handshake, inputs: inputs, calls: calls, byID: make(map[string]*upstreamTask)},
		subscriptions: &modernSubscriptions{core: c, server: server, requests: requests, handshake: handshake, calls: calls, resources: make(map[string]*resourceSubscription)},
		tools:         &modernTools{core: c, handshake: handshake, calls: calls, byName: make(map[string][]byte)},
	}
	t.handshake.begin = t.startHandshake
	t.calls.sendInputs = t.rounds.send
	return t
}

// FromDownstream implements [Translator].
func (t *ModernToLegacy) FromDownstream(now time.Time, message []byte, stream uint64) []Out {
	return t.step(now, func() { t.fromDownstream(message, stream) })
}

// FromUpstream implements [Translator].
func (t *ModernToLegacy) FromUpstream(now time.Time, message []byte, call int64) []Out {
	return t.step(now, func() { t.fromUpstream(message, call) })
}

// StreamClosed implements [Translator].
func (t *ModernToLegacy) StreamClosed(now time.Time, stream uint64) []Out {
	return t.step(now, func() {
		for key := range t.requests.byKey { // at most one, if stream is not 0
			if r := t.requests.byKey[key]; r != nil && key.stream == stream && stream != 0 {
				t.cancel(r, "the client disconnected")
			}
		}
	})
}

// CallFailed implements [Translator].
func (t *ModernToLegacy) CallFailed(now time.Time, id int64, e *jsonrpc.Error) []Out {
	return t.step(now, func() { t.calls.fail(id, e) })
}

// UpstreamLost implements [Translator].
func (t *ModernToLegacy) UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out {
	return t.step(now, func() {
		if t.handshake.phase == handshaking {
			t.opts.HandshakeFailed()
		}
		if t.handshake.down || t.handshake.phase == handshaking {
			t.failWaiting(e)
		}
		t.handshake.lost()
		t.inputs.removeAll()
		t.calls.lost(e, unsent, t.startCall)
		t.tasks.reset()
		t.tools.changed()
		t.subscriptions.lost()
	})
}

// UpstreamReady implements [Translator].
func (t *ModernToLegacy) UpstreamReady(now time.Time) []Out {
	return t.step(now, func() {
		if t.handshake.reconnected() && (len(t.handshake.waiting) > 0 || len(t.subscriptions.open) > 0) {
			t.startHandshake()
		}
	})
}

// NotificationsLost implements [Translator].
func (t *ModernToLegacy) NotificationsLost(now time.Time) []Out {
	return t.step(now, func() {
		if t.handshake.ready() {
			t.subscriptions.announceAll(t.subscriptions.acknowledged(), "messages may have been missed")
		}
	})
}

// Close implements [Translator].
func (t *ModernToLegacy) Close(now time.Time, e *jsonrpc.Error) []Out {
	outs := t.step(now, func() {
		t.subscriptions.close()
		for _, key := range sortedKeys(t.requests.byKey) {
			if r := t.requests.byKey[key]; r != nil {
				if r.call != nil {
					t.calls.cancel(r.call, "the session has ended")
				}
				t.requests.fail(r, e, "")
			}
		}
		t.calls.cancelAll("the session has ended")
	})
	t.closed = true
	return outs
}

// Legacy implements [Translator].
func (t *ModernToLegacy) Legacy() mcp.Revision {
	if t.handshake.phase != ready {
		return mcp.RevisionNone
	}
	return t.server.features.Revision
}

// InFlight implements [Translator].
func (t *ModernToLegacy) InFlight() (requests, awaitingInput int) {
	return len(t.requests.byKey), len(t.calls.awaiting)
}

// startHandshake begins the handshake with the server.
func (t *ModernToLegacy) startHandshake() {
	t.calls.call(mcp.MethodInitialize, t.handshake.start(), "_meta → initialize", t.initialized)
}

// initialized ends the handshake and runs the requests that wait for it.
func (t *ModernToLegacy) initialized(o outcome) {
	if t.handshake.phase != handshaking {
		return
	}
	again, e := t.handshake.initialized(o)
	switch {
	case again:
		t.startHandshake()
	case e != nil:
		t.opts.HandshakeFailed()
		t.failWaiting(e)
		wanted := func() bool { return len(t.subscriptions.open) > 0 } // they wait for the server
		if wanted() {
			t.handshake.retryIf(wanted)
		}
	default:
		t.notifyUpstream(mcp.NotificationInitialized, nil, "initialize")
		acknowledged := t.subscriptions.acknowledged()
		t.handshake.waiting.run()
		t.subscriptions.resume(acknowledged)
	}
}

// failWaiting fails the requests that wait for the handshake.
func (t *ModernToLegacy) failWaiting(e *jsonrpc.Error) {
	for _, w := range t.handshake.waiting.take() {
		if c := w.req.call; c != nil && c.req == w.req {
			t.calls.release(c)
		}
		t.requests.fail(w.req, e, "initialize")
	}
}

func (t *ModernToLegacy) fromDownstream(frame []byte, stream uint64) {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		t.rejectMalformed(&m, stream, err, false)
		return
	}
	switch m.Kind {
	case jsonrpc.KindRequest:
		if r := t.requests.add(&m, stream); r != nil {
			t.serve(r, &m)
		}
	case jsonrpc.KindNotification:
		t.downstreamNotification(&m, frame, stream)
	default:
		t.drop("modern clients send no responses")
	}
}

// serve handles a request by its method.
func (t *ModernToLegacy) serve(r *modernRequest, m *jsonrpc.Message) {
	switch r.method {
	case mcp.MethodDiscover:
		t.handshake.whenReady(r, func() { t.requests.respond(r, t.handshake.discoverResult(), "initialize → server/discover") })
	case mcp.MethodSubscriptionsListen:
		t.subscriptions.subscribe(r, m)
	case mcp.MethodTasksGet, mcp.MethodTasksUpdate, mcp.MethodTasksCancel:
		t.tasks.serve(r, m)
	default:
		if state, ok := m.Param("requestState"); ok && era.AllowsInput(r.method) && string(state) != "null" {
			if c := t.rounds.resume(r, m, state); c != nil {
				t.continueCall(c)
			}
			return
		}
		t.forward(r, m)
	}
}

// forward sends a request to the server.
func (t *ModernToLegacy) forward(r *modernRequest, m *jsonrpc.Message) {
	c := t.calls.newCall(r, m)
	c.done = func(o outcome) { t.handleOutcome(c, o) }
	if c.size = len(c.params); !t.reserve(c.size) {
		c.size = 0
		t.requests.fail(r, errOverloaded, "refused")
		return
	}
	r.call = c
	t.handshake.whenReady(r, func() { t.startCall(c) })
}

// startCall starts a client request, after the client has answered unclaimed server requests.
func (t *ModernToLegacy) startCall(c *modernCall) {
	r := c.req
	if r == nil || r.finished {
		return
	}
	if c.number != 0 {
		t.calls.claim(c)
		if len(c.unsentInputs) > 0 {
			c.sendAfterInput = true
			t.rounds.send(c)
			return
		}
	}
	t.setLevelAndSend(c)
}

// setLevelAndSend sends a client request after its log level.
func (t *ModernToLegacy) setLevelAndSend(c *modernCall) {
	c.sendAfterInput = false
	r := c.req
	if r != nil && t.handshake.lowerLevel(r.logLevel) {
		params := append(jsonwire.AppendQuote([]byte(`{"level":`), r.logLevel.String()), '}')
		t.calls.call(mcp.MethodSetLevel, params, "logLevel → logging/setLevel", func(outcome) {
			t.calls.whenReady(c, func() { t.setLevelAndSend(c) }) // the server may be lost
		})
		return
	}
	if c.tool != "" && c.taskParam == nil && t.server.hasTasks() {
		if r != nil && t.tools.wait(c, func() { t.setLevelAndSend(c) }) {
			return
		}
		t.tools.setTaskParam(c)
	}
	t.calls.send(c, "− _meta")
}

// handleOutcome handles the server's response to a client request.
func (t *ModernToLegacy) handleOutcome(c *modernCall, o outcome) {
	c.id = 0
	t.timers.stop(c.gatherTimer)
	if c.req == nil && t.calls.awaiting[c.number] != c { // given up
		return
	}
	// Some tools can only be called as a task.
	if e := o.err; e != nil && !o.lost && e.Code == jsonrpc.CodeMethodNotFound && c.tool != "" && c.taskParam == nil && t.server.hasTasks() {
		c.taskParam = []byte("{}")
		t.calls.send(c, "tools/call as a task")
		return
	}
	if c.becameTask(o) && !c.clientHasTasks {
		t.rounds.bind(c) // hide changes its params
		if e := t.tasks.hide(c, o.result); e != nil {
			t.deliverOrKeep(c, outcome{err: e})
		}
		return
	}
	if o.err != nil && o.err.Code == mcp.CodeURLElicitationRequired && c.req != nil && t.rounds.requestElicitations(c, o.err) {
		return
	}
	t.deliverOrKeep(c, o)
}

// deliverOrKeep answers the client with the server's response, or keeps it until the client is
// back.
func (t *ModernToLegacy) deliverOrKeep(c *modernCall, o outcome) {
	if c.req == nil { // the client is away
		t.keepOutcome(c, o)
		return
	}
	t.deliver(c, o)
}

// deliver answers the client with the server's response.
func (t *ModernToLegacy) deliver(c *modernCall, o outcome) {
	r := c.req
	t.calls.release(c)
	if o.err != nil {
		e := era.ConvertError(o.err, c.method, t.modern)
		t.requests.fail(r, e, codeRule(o.err, e))
		return
	}
	if c.becameTask(o) {
		t.requests.sendResult(r, t.tasks.result(o.result), "task → resultType task", o.cause)
		return
	}
	result := o.result
	if c.hiddenTaskID != "" {
		result = withoutMeta(result, mcp.MetaRelatedTask)
	}
	if c.method == mcp.MethodToolsList && t.server.hasTasks() {
		result = t.tools.learnList(c.params, result)
	}
	t.requests.respond(r, result, "+ resultType", o.cause)
}

// keepOutcome stores a response for a client that is away.
func (t *ModernToLegacy) keepOutcome(c *modernCall, o outcome) {
	if o.result != nil {
		o.result = bytes.Clone(o.result)
	}
	if n := len(o.result); !t.reserve(n) {
		o = outcome{err: errOverloaded}
	} else {
		c.size += n
	}
	o.cause = t.cause
	c.outcome = &o
	t.drop("kept until the client has responded")
	t.calls.reassignAll(c)
}

// continueCall continues a call whose client is back.
func (t *ModernToLegacy) continueCall(c *modernCall) {
	switch {
	case c.outcome != nil:
		inputs := c.unsentInputs
		c.unsentInputs = nil
		for _, q := range inputs {
			if q.guessed {
				c.unsentInputs = append(c.unsentInputs, q) // they may move to other calls
			} else {
				t.inputs.cancel(q)
			}
		}
		t.deliver(c, *c.outcome)
	case c.declined:
		r := c.req
		t.calls.release(c)
		t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the server requires the user to open a page, which the user declined"), "refused")
	case len(c.unsentInputs) > 0:
		t.calls.claim(c)
		t.rounds.send(c)
	case c.sendAfterInput:
		t.handshake.whenReady(c.req, func() { t.startCall(c) })
	case c.id == 0: // the server and the call are lost
		t.deliver(c, outcome{err: internalError("the session with the server was lost before the client's retry")})
	default:
		if t.calls.claim(c); len(c.unsentInputs) > 0 {
			t.calls.gather(c)
		}
	}
}

func (t *ModernToLegacy) downstreamNotification(m *jsonrpc.Message, frame []byte, stream uint64) {
	switch string(m.Method) {
	case mcp.NotificationCancelled:
		id, reason, _ := era.Cancellation{}.Target(m)
		if r := t.requests.byKey[requestKey{stream, id.Key()}]; id != nil && r != nil {
			t.cancel(r, reason)
			return
		}
		t.drop("nothing to cancel")
	case mcp.NotificationInitialized, mcp.NotificationRootsChanged, mcp.NotificationProgress:
		t.drop("modern clients do not send this")
	default:
		if isProtocolNotification(string(m.Method)) {
			t.drop("modern clients must not send this")
			return
		}
		if !t.handshake.ready() {
			t.drop("the server has not completed the handshake")
			return
		}
		msg := bytes.Clone(frame)
		if meta := era.Lookup(m.Params, "_meta"); era.IsObject(meta) {
			msg = jsonrpc.AppendNotification(nil, string(m.Method), legacyParams(m.Params, ""))
		}
		t.emit(Out{To: Upstream, Message: msg, Method: string(m.Method)})
	}
}

// cancel gives up a request. It gets no response.
func (t *ModernToLegacy) cancel(r *modernRequest, reason string) {
	if reason == "" {
		reason = "the client cancelled"
	}
	if r.subscription != nil {
		t.subscriptions.unsubscribe(r)
	}
	if c := r.call; c != nil {
		t.calls.cancel(c, reason)
	}
	t.requests.finish(r)
}

func (t *ModernToLegacy) fromUpstream(frame []byte, call int64) {
	if rpcbatch.Is(frame) {
		entries, err := rpcbatch.Parse(frame, t.opts.Limits.Depth)
		if err != nil {
			t.drop("malformed")
			return
		}
		for i := range entries {
			if m := &entries[i]; m.Invalid == nil {
				t.handleUpstream(&m.Message, frameOf(&m.Message), call)
			} else {
				t.drop("malformed")
			}
		}
		return
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		t.drop("malformed")
		return
	}
	t.handleUpstream(&m, frame, call)
}

// handleUpstream handles one message of the server.
func (t *ModernToLegacy) handleUpstream(m *jsonrpc.Message, frame []byte, call int64) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		t.upstreamRequest(m, call)
	case jsonrpc.KindNotification:
		t.upstreamNotification(m, frame, call)
	default:
		t.calls.receive(m)
	}
}

// upstreamRequest handles a request of the server.
func (t *ModernToLegacy) upstreamRequest(m *jsonrpc.Message, call int64) {
	if string(m.Method) == mcp.MethodPing {
		t.emit(Out{To: Upstream, Message: jsonrpc.AppendResult(nil, m.ID, []byte("{}")), Rule: "ping answered here"})
		return
	}
	q, task := t.inputs.add(m)
	switch {
	case q == nil:
	case task != "" && t.calls.hidden[task] != nil:
		t.calls.attach(q, t.calls.hidden[task])
	case task != "" && len(task) <= maxTaskID && t.server.hasTasks():
		t.tasks.attach(q, t.tasks.remember(task))
	default:
		t.calls.assign(q, call)
	}
}

func (t *ModernToLegacy) upstreamNotification(m *jsonrpc.Message, frame []byte, call int64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		t.calls.progress(m, frame)
	case mcp.NotificationMessage:
		t.calls.log(m, frame, call)
	case mcp.NotificationCancelled:
		t.inputs.canceled(m)
	case mcp.NotificationToolsChanged:
		t.tools.changed()
		t.subscriptions.forward(m)
	case mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged, mcp.NotificationResourceUpdated:
		t.subscriptions.forward(m)
	case mcp.NotificationElicitationComplete:
		t.drop("modern clients retry on their own")
	case mcp.NotificationTaskStatus:
		t.drop("modern clients poll tasks")
	default:
		if isProtocolNotification(string(m.Method)) {
			t.drop("legacy servers must not send this")
			return
		}
		o := Out{To: Downstream, Message: bytes.Clone(frame)}
		if c := t.calls.byID[call]; c != nil {
			if c.req == nil {
				t.drop("the client is not connected")
				return
			}
			o.Stream = c.req.key.stream
		}
		t.emit(o)
	}
}
