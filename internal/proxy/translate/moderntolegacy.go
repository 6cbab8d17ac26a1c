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
	// nonce binds request states to this session.
	nonce     string
	server    *legacyServer
	requests  *modernRequests
	handshake *modernHandshake
	inputs    *modernInputs

	// The pending calls: by id, by progress token, and by number while a client must respond.
	calls         map[int64]*upstreamCall
	byToken       map[int64]*upstreamCall
	awaitingInput map[uint64]*upstreamCall
	// lastNumber is the last upstreamCall.number.
	lastNumber    uint64
	subscriptions []*modernRequest
	resources     map[string]*resourceSubscription
	tasks         map[string]*upstreamTask
	// taskIDs holds the keys of tasks, oldest first.
	taskIDs []string
	tools   toolSupport
	// hiddenTasks holds calls that became tasks unknown to the client, by task.
	hiddenTasks map[string]*upstreamCall
	// abandonedCalls are calls that were given up and may still become tasks, the oldest first.
	abandonedCalls []int64
}

var _ Translator = (*ModernToLegacy)(nil)

// NewModernToLegacy returns a translator for one session with a legacy server. Nil options mean the
// defaults.
func NewModernToLegacy(opts *Options) *ModernToLegacy {
	c := newCore(opts)
	server := new(legacyServer)
	requests := newModernRequests(c, server)
	t := &ModernToLegacy{
		core:          c,
		server:        server,
		requests:      requests,
		handshake:     newModernHandshake(c, server, requests),
		calls:         make(map[int64]*upstreamCall),
		byToken:       make(map[int64]*upstreamCall),
		awaitingInput: make(map[uint64]*upstreamCall),
		inputs:        newModernInputs(c),
		resources:     make(map[string]*resourceSubscription),
		tasks:         make(map[string]*upstreamTask),
		tools:         toolSupport{byName: make(map[string][]byte)},
		hiddenTasks:   make(map[string]*upstreamCall),
	}
	t.handshake.begin = t.startHandshake
	t.nonce = t.opts.NewID()
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
	return t.step(now, func() {
		if c := t.calls[id]; c != nil {
			delete(t.calls, id)
			c.done(outcome{err: e, lost: true})
		}
	})
}

// UpstreamLost implements [Translator].
func (t *ModernToLegacy) UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out {
	return t.step(now, func() {
		if t.handshake.down || t.handshake.phase == handshaking {
			t.failWaiting(e)
		}
		t.handshake.lost()
		t.inputs.removeAll()
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			c := t.calls[id]
			if c == nil {
				continue
			}
			delete(t.calls, id)
			if c.req != nil && slices.Contains(unsent, id) {
				t.timers.stop(c.gatherTimer)
				c.id, c.unsentInputs = 0, nil // the server that asked is gone
				t.handshake.waiting.add(c.req, len(t.requests.byKey), func() { t.startCall(c) })
				continue
			}
			c.done(outcome{err: e, lost: true})
		}
		clear(t.tasks)
		t.taskIDs, t.tools.complete = nil, false
		for _, u := range t.resources {
			u.reset()
			t.syncResource(u)
		}
	})
}

// UpstreamReady implements [Translator].
func (t *ModernToLegacy) UpstreamReady(now time.Time) []Out {
	return t.step(now, func() {
		if !t.handshake.down {
			return
		}
		t.handshake.down = false
		if len(t.handshake.waiting) > 0 || len(t.subscriptions) > 0 {
			t.startHandshake()
		}
	})
}

// NotificationsLost implements [Translator].
func (t *ModernToLegacy) NotificationsLost(now time.Time) []Out {
	return t.step(now, func() {
		if t.handshake.ready() {
			t.announceAll(t.acknowledged(), "messages may have been missed")
		}
	})
}

// Close implements [Translator].
func (t *ModernToLegacy) Close(now time.Time, e *jsonrpc.Error) []Out {
	outs := t.step(now, func() {
		for _, r := range slices.Clone(t.subscriptions) {
			if r.subscription.acknowledged {
				t.endSubscription(r)
			}
		}
		t.subscriptions = nil
		for _, key := range sortedKeys(t.requests.byKey) {
			if r := t.requests.byKey[key]; r != nil {
				if r.call != nil {
					t.cancelCall(r.call, "the session has ended")
				}
				t.requests.fail(r, e, "")
			}
		}
		for _, n := range slices.Sorted(maps.Keys(t.awaitingInput)) {
			t.cancelCall(t.awaitingInput[n], "the session has ended")
		}
		for _, id := range slices.Sorted(maps.Keys(t.calls)) {
			// tasks/cancel was sent for the same reason. A call that becomes a task must not be
			// canceled.
			if c := t.calls[id]; c.upstreamMethod != mcp.MethodTasksCancel && c.taskParam == nil {
				t.cancelUpstream(id, c.upstreamMethod, "the session has ended")
			}
		}
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
	return len(t.requests.byKey), len(t.awaitingInput)
}

// failWaiting fails the requests that wait for the handshake.
func (t *ModernToLegacy) failWaiting(e *jsonrpc.Error) {
	for _, w := range t.handshake.waiting.take() {
		if c := w.req.call; c != nil && c.req == w.req {
			t.release(c)
		}
		t.requests.fail(w.req, e, "initialize")
	}
}

// startHandshake begins the handshake with the server.
func (t *ModernToLegacy) startHandshake() {
	t.callUpstream(mcp.MethodInitialize, t.handshake.start(), "_meta → initialize", t.initialized)
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
		t.failWaiting(e)
		if len(t.subscriptions) > 0 { // they wait for the server
			t.timers.stop(t.handshake.retry)
			t.handshake.retry = t.after(maxBackoff, func() {
				if t.handshake.phase == uninitialized && !t.handshake.down && len(t.subscriptions) > 0 {
					t.startHandshake()
				}
			})
		}
	default:
		t.notifyUpstream(mcp.NotificationInitialized, nil, "initialize")
		acknowledged := t.acknowledged()
		t.handshake.waiting.run()
		t.resumeSubscriptions(acknowledged)
	}
}

func (t *ModernToLegacy) fromDownstream(frame []byte, stream uint64) {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		if m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError {
			t.drop("malformed response")
			return
		}
		t.emit(Out{To: Downstream, Stream: stream, Final: true, Status: http.StatusBadRequest, Message: jsonrpc.AppendError(nil, m.ID, jsonrpc.ErrorOf(err), false), Rule: "malformed"})
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

func (t *ModernToLegacy) serve(r *modernRequest, m *jsonrpc.Message) {
	switch r.method {
	case mcp.MethodDiscover:
		t.handshake.whenReady(r, func() { t.requests.respond(r, t.handshake.discoverResult(), "initialize → server/discover") })
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

// forward sends a request to the server.
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
		t.requests.fail(r, errOverloaded, "refused")
		return
	}
	if r.method == mcp.MethodToolsCall {
		c.tool = era.LookupString(m.Params, "name")
	}
	r.call = c
	t.handshake.whenReady(r, func() { t.startCall(c) })
}

// legacyParams removes the members of the modern era and the progress token from params. It returns
// nil if nothing is left.
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
		t.unsubscribe(r)
	}
	if c := r.call; c != nil {
		t.cancelCall(c, reason)
	}
	t.requests.finish(r)
}

// An upstreamCall is a request to the legacy server. It may outlive the client's request: while the
// client prepares input, the call has no request. The client's next request continues the call.
type upstreamCall struct {
	// id is 0 unless the call is pending.
	id int64
	// method is the method of the client's request.
	method string
	// upstreamMethod is the method of the server's request.
	upstreamMethod string
	req            *modernRequest
	done           func(a outcome)
	// params exclude the progress token.
	params []byte
	size   int
	// progressToken is the token on the upstream.
	progressToken int64

	// The following fields are for requests that allow input.
	// number identifies the call in request states; 0 for other calls.
	number uint64
	// stateBinding is the result of bindState.
	stateBinding []byte
	inputRound   int
	// unsentInputs wait for the next round, sentInputs for the client's responses.
	unsentInputs []*serverRequest
	sentInputs   []*serverRequest
	// inputCount counts the input requests so far.
	inputCount int
	// gatherTimer collects input requests for one round.
	gatherTimer *timer
	// The next three are set while the client is away.
	reassignTimer *timer
	timeout       *timer
	outcome       *outcome
	// sendAfterInput sends the call, or repeats it, after the client's input.
	sendAfterInput bool
	// declined says that the user declined a URL elicitation.
	declined bool

	tool string
	// taskParam is params.task if the call is to become a task.
	taskParam []byte
	// clientHasTasks says that the client knows the extension.
	clientHasTasks bool
	// hiddenTaskID is the task that the call became, unknown to the client.
	hiddenTaskID string
}

// callUpstream sends the server a request of the translator.
func (t *ModernToLegacy) callUpstream(method string, params []byte, rule string, done func(o outcome)) *upstreamCall {
	c := &upstreamCall{method: method, upstreamMethod: method, params: params, done: done}
	t.sendCall(c, rule)
	return c
}

// sendCall sends a call with a new id.
func (t *ModernToLegacy) sendCall(c *upstreamCall, rule string) {
	c.id = t.opts.IDs.Add(1)
	t.calls[c.id] = c
	params := c.params
	var of uint64
	if c.req != nil {
		of = c.req.cause
	}
	if c.taskParam != nil {
		params = withMember(params, append([]byte(`"task":`), c.taskParam...))
	}
	if r := c.req; r != nil && r.progressToken != nil && c.hiddenTaskID == "" {
		delete(t.byToken, c.progressToken)
		c.progressToken = c.id
		t.byToken[c.progressToken] = c
		params = addMeta(params, appendInt(nil, mcp.MetaProgressToken, c.progressToken))
	}
	t.sendUpstream(c.id, c.upstreamMethod, params, rule, of)
}

// startCall starts a client request, after the client has answered unclaimed server requests.
func (t *ModernToLegacy) startCall(c *upstreamCall) {
	r := c.req
	if r == nil || r.finished {
		return
	}
	if c.number != 0 {
		t.claimInputs(c)
		if len(c.unsentInputs) > 0 {
			c.sendAfterInput = true
			t.sendInputRequired(c)
			return
		}
	}
	t.setLevelAndSend(c)
}

// setLevelAndSend sends a client request after its log level.
func (t *ModernToLegacy) setLevelAndSend(c *upstreamCall) {
	c.sendAfterInput = false
	r := c.req
	if r != nil && r.logLevel != mcp.LevelNone && (t.handshake.logLevel == mcp.LevelNone || r.logLevel < t.handshake.logLevel) && era.Lookup(t.server.caps, "logging") != nil {
		t.handshake.logLevel = r.logLevel
		params := append(jsonwire.AppendQuote([]byte(`{"level":`), r.logLevel.String()), '}')
		t.callUpstream(mcp.MethodSetLevel, params, "logLevel → logging/setLevel", func(outcome) {
			t.handshake.whenReady(r, func() { // the server may be lost
				if c.req == r && !r.finished {
					t.setLevelAndSend(c)
				}
			})
		})
		return
	}
	if c.tool != "" && c.taskParam == nil && t.server.hasTasks() {
		if r != nil && t.waitForTools(c) {
			return
		}
		t.setTaskParam(c, t.tools.byName[c.tool])
	}
	t.sendCall(c, "− _meta")
}

// handleOutcome handles the server's response to a client request.
func (t *ModernToLegacy) handleOutcome(c *upstreamCall, o outcome) {
	c.id = 0
	t.timers.stop(c.gatherTimer)
	if c.req == nil && t.awaitingInput[c.number] != c { // given up
		return
	}
	// Some tools can only be called as a task.
	if e := o.err; e != nil && !o.lost && e.Code == jsonrpc.CodeMethodNotFound && c.tool != "" && c.taskParam == nil && t.server.hasTasks() {
		c.taskParam = []byte("{}")
		t.sendCall(c, "tools/call as a task")
		return
	}
	if c.becameTask(o) && !c.clientHasTasks {
		t.awaitHiddenTask(c, o.result)
		return
	}
	if o.err != nil && o.err.Code == mcp.CodeURLElicitationRequired && c.req != nil && t.requestElicitations(c, o.err) {
		return
	}
	if c.req == nil { // the client is away
		t.keepOutcome(c, o)
		return
	}
	t.deliver(c, o)
}

// keepOutcome stores a response for a client that is away.
func (t *ModernToLegacy) keepOutcome(c *upstreamCall, o outcome) {
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
	t.reassignInputs(c)
}

// deliver answers the client with the server's response.
func (t *ModernToLegacy) deliver(c *upstreamCall, o outcome) {
	r := c.req
	t.release(c)
	if o.err != nil {
		e := era.ConvertError(o.err, c.method, t.modern)
		rule := ""
		if e.Code != o.err.Code {
			rule = strconv.Itoa(int(o.err.Code)) + " → " + strconv.Itoa(int(e.Code))
		}
		t.requests.fail(r, e, rule)
		return
	}
	if c.becameTask(o) {
		t.requests.sendResult(r, t.taskResult(o.result), "task → resultType task", o.cause)
		return
	}
	result := o.result
	if c.hiddenTaskID != "" {
		result = withoutRelatedTask(result)
	}
	if c.method == mcp.MethodToolsList && t.server.hasTasks() {
		result = t.learnTools(c.params, result)
	}
	t.requests.respond(r, result, "+ resultType", o.cause)
}

// release removes a call. Its unsent input requests may move to other calls.
func (t *ModernToLegacy) release(c *upstreamCall) {
	delete(t.calls, c.id)
	delete(t.byToken, c.progressToken)
	delete(t.awaitingInput, c.number)
	delete(t.hiddenTasks, c.hiddenTaskID)
	t.timers.stop(c.gatherTimer)
	t.timers.stop(c.timeout)
	t.timers.stop(c.reassignTimer)
	t.reserved -= c.size
	c.size = 0
	c.id = 0
	fresh, open := c.unsentInputs, c.sentInputs
	c.unsentInputs, c.sentInputs = nil, nil
	for _, q := range open {
		t.inputs.cancel(q)
	}
	for _, q := range fresh {
		t.reassignInput(q)
	}
}

// cancelCall cancels a call, with its input requests.
func (t *ModernToLegacy) cancelCall(c *upstreamCall, reason string) {
	var others []*serverRequest // may belong to other calls
	for _, q := range append(c.unsentInputs, c.sentInputs...) {
		if q.guessed {
			others = append(others, q)
		} else {
			t.inputs.cancel(q)
		}
	}
	c.unsentInputs, c.sentInputs = nil, nil
	if c.hiddenTaskID != "" && t.calls[c.id] == c {
		t.callUpstream(mcp.MethodTasksCancel, taskParams(c.hiddenTaskID), "cancelled", func(outcome) {})
	}
	if c.id != 0 && t.calls[c.id] == c {
		if c.taskParam != nil {
			t.abandonTask(c)
		} else {
			delete(t.calls, c.id)
			t.cancelUpstream(c.id, c.upstreamMethod, reason)
		}
	}
	t.release(c)
	for _, q := range others {
		t.reassignInput(q)
	}
}

func (t *ModernToLegacy) fromUpstream(frame []byte, call int64) {
	if jsonrpc.IsBatch(frame) {
		entries, err := jsonrpc.ParseBatch(frame, t.opts.Limits.Depth)
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
		id, _ := parseCallID(m.ID)
		c := t.calls[id]
		if c == nil {
			t.drop("matches no pending request")
			return
		}
		delete(t.calls, id)
		c.done(outcomeOf(m))
	}
}

func (t *ModernToLegacy) upstreamNotification(m *jsonrpc.Message, frame []byte, call int64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		t.upstreamProgress(m, frame)
	case mcp.NotificationMessage:
		t.upstreamLog(m, frame, call)
	case mcp.NotificationCancelled:
		t.inputs.canceled(m)
	case mcp.NotificationToolsChanged:
		t.tools.complete = false
		t.upstreamChanged(m)
	case mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged, mcp.NotificationResourceUpdated:
		t.upstreamChanged(m)
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
		if c := t.calls[call]; c != nil {
			if c.req == nil {
				t.drop("the client is not connected")
				return
			}
			o.Stream = c.req.key.stream
		}
		t.emit(o)
	}
}

// upstreamProgress forwards progress with the token of the pending client request.
func (t *ModernToLegacy) upstreamProgress(m *jsonrpc.Message, frame []byte) {
	v, _ := m.Param("progressToken")
	id, _ := jsonwire.ParseInt(v)
	c := t.byToken[id]
	if c == nil || c.req == nil || c.req.progressToken == nil {
		t.drop("progress matches no pending request")
		return
	}
	r := c.req
	msg := rewriteParams(frame, func(params []byte) []byte {
		return era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
			if m.KeyIs("progressToken") {
				return r.progressToken
			}
			if m.KeyIs("_meta") && era.IsObject(m.Value()) {
				return withoutMembers(m.Value(), mcp.MetaRelatedTask)
			}
			return m.Value()
		}, nil)
	})
	t.emit(Out{To: Downstream, Stream: r.key.stream, Message: msg, Rule: "progressToken"})
}

// upstreamLog forwards a log message to one request: the one on whose stream it came, or the last
// that wants it. If it may belong to other clients too, and they are isolated, it is dropped.
func (t *ModernToLegacy) upstreamLog(m *jsonrpc.Message, frame []byte, call int64) {
	v, _ := m.Param("level")
	name, _ := jsonrpc.ID(v).Text()
	level, ok := mcp.ParseLoggingLevel(name)
	wants := func(c *upstreamCall) bool {
		return c != nil && c.req != nil && c.req.logLevel != mcp.LevelNone && level >= c.req.logLevel
	}
	c := t.calls[call]
	open := 0
	if call == 0 {
		for _, one := range t.calls {
			if one.req != nil || one.number != 0 {
				open++
			}
			if wants(one) && (c == nil || one.id > c.id) {
				c = one
			}
		}
	}
	if open > 1 && t.opts.IsolateClients {
		t.drop("the log message belongs to no known request")
		return
	}
	if !ok || !wants(c) {
		t.drop("no request wants that log message")
		return
	}
	t.emit(Out{To: Downstream, Stream: c.req.key.stream, Message: bytes.Clone(frame)})
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
	case task != "" && t.hiddenTasks[task] != nil:
		t.attach(q, t.hiddenTasks[task])
	case task != "" && len(task) <= maxTaskID && t.server.hasTasks():
		t.attachToTask(q, t.rememberTask(task))
	default:
		t.assign(q, call)
	}
}
