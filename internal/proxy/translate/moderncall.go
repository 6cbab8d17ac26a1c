package translate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// unclaimedTimeout limits how long a server request waits for a client request.
const unclaimedTimeout = time.Minute

// A modernCall is a request to the legacy server. It may outlive the client's request: while the
// client prepares input, the call has no request. The client's next request continues the call.
type modernCall struct {
	// id is 0 unless the call is pending.
	id int64
	// method is the method of the client's request.
	method string
	// upstreamMethod is the method of the server's request.
	upstreamMethod string
	req            *modernRequest
	principal      string
	done           func(o outcome)
	// params exclude the progress token.
	params []byte
	size   int
	// progressToken is the token on the upstream.
	progressToken int64

	// The following fields are for requests that allow input.
	// number identifies the call in request states; 0 for other calls.
	number uint64
	// stateBinding is the result of modernRounds.bind.
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

// before reports if c comes before other in assign.
func (c *modernCall) before(other *modernCall) bool {
	if c.inputCount != other.inputCount {
		return c.inputCount < other.inputCount
	}
	return c.number > other.number
}

// addInput gives a server request to a call, under a new key.
func (c *modernCall) addInput(q *serverRequest) {
	q.call, q.principal = c, c.principal
	c.inputCount++
	q.key = "input-" + strconv.Itoa(c.inputCount)
	c.unsentInputs = append(c.unsentInputs, q)
}

// becameTask reports if the response to a call is a task.
func (c *modernCall) becameTask(o outcome) bool {
	return c.hiddenTaskID == "" && c.taskParam != nil && o.err == nil && era.IsObject(era.Lookup(o.result, "task"))
}

// A modernCalls holds the pending calls to the legacy server. It chooses the calls that take the
// server's requests to a client.
type modernCalls struct {
	*core
	handshake *modernHandshake
	inputs    *modernInputs
	// sendInputs sends the client the unsent input requests of a call.
	sendInputs func(c *modernCall)

	byID    map[int64]*modernCall
	byToken map[int64]*modernCall
	// awaiting holds the calls whose client prepares input, by number.
	awaiting map[uint64]*modernCall
	// hidden holds calls that became tasks unknown to the client, by task.
	hidden map[string]*modernCall
	// abandoned are calls that were given up and may still become tasks, the oldest first.
	abandoned []int64
	// principals has the principals of all calls that may cause input requests.
	principals Principals
	// lastNumber is the last modernCall.number.
	lastNumber uint64
}

func newModernCalls(c *core, h *modernHandshake, inputs *modernInputs) *modernCalls {
	return &modernCalls{
		core: c, handshake: h, inputs: inputs,
		byID: make(map[int64]*modernCall), byToken: make(map[int64]*modernCall),
		awaiting: make(map[uint64]*modernCall), hidden: make(map[string]*modernCall),
	}
}

// newCall returns a call that forwards a client request. It has no id yet.
func (mc *modernCalls) newCall(r *modernRequest, m *jsonrpc.Message) *modernCall {
	c := &modernCall{method: r.method, upstreamMethod: r.method, req: r, principal: r.principal, params: legacyParams(m.Params, r.method)}
	if era.AllowsInput(r.method) {
		mc.principals.Use(c.principal)
		mc.lastNumber++
		c.number = mc.lastNumber
	}
	if r.method == mcp.MethodToolsCall {
		c.tool = era.LookupString(m.Params, "name")
	}
	return c
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

// call sends the server a request of the translator.
func (mc *modernCalls) call(method string, params []byte, rule string, done func(o outcome)) *modernCall {
	c := &modernCall{method: method, upstreamMethod: method, params: params, done: done}
	mc.send(c, rule)
	return c
}

// send sends a call with a new id.
func (mc *modernCalls) send(c *modernCall, rule string) {
	c.id = mc.opts.IDs.Add(1)
	mc.byID[c.id] = c
	params := c.params
	var of uint64
	if c.req != nil {
		of = c.req.cause
	}
	if c.taskParam != nil {
		params = withMember(params, append([]byte(`"task":`), c.taskParam...))
	}
	if r := c.req; r != nil && r.progressToken != nil && c.hiddenTaskID == "" {
		delete(mc.byToken, c.progressToken)
		c.progressToken = c.id
		mc.byToken[c.progressToken] = c
		params = addMeta(params, appendInt(nil, mcp.MetaProgressToken, c.progressToken))
	}
	mc.sendUpstream(c.id, c.upstreamMethod, params, rule, of)
}

// whenReady runs do when the handshake is complete, if the client request of c is pending until
// then.
func (mc *modernCalls) whenReady(c *modernCall, do func()) {
	r := c.req
	if r == nil {
		return
	}
	mc.handshake.whenReady(r, func() {
		if c.req == r {
			do()
		}
	})
}

// take removes a pending call and returns it, or nil.
func (mc *modernCalls) take(id int64) *modernCall {
	c := mc.byID[id]
	delete(mc.byID, id)
	return c
}

// receive takes the response to a call.
func (mc *modernCalls) receive(m *jsonrpc.Message) {
	id, _ := jsonwire.ParseInt(m.ID)
	c := mc.take(id)
	if c == nil {
		mc.drop("matches no pending request")
		return
	}
	c.done(outcomeOf(m))
}

// fail ends a call that the transport lost.
func (mc *modernCalls) fail(id int64, e *jsonrpc.Error) {
	if c := mc.take(id); c != nil {
		if c.number != 0 {
			mc.principals.GiveUp(c.principal, mc.now)
		}
		c.done(outcome{err: e, lost: true})
	}
}

// lost ends all calls with e. Those in unsent for a client request are restarted when the server is
// back.
func (mc *modernCalls) lost(e *jsonrpc.Error, unsent []int64, restart func(c *modernCall)) {
	for _, id := range slices.Sorted(maps.Keys(mc.byID)) {
		if c := mc.byID[id]; c != nil && c.req != nil && slices.Contains(unsent, id) {
			delete(mc.byID, id)
			mc.timers.stop(c.gatherTimer)
			c.id, c.unsentInputs = 0, nil // the server that asked is gone
			mc.handshake.wait(c.req, func() { restart(c) })
			continue
		}
		mc.fail(id, e)
	}
	mc.principals.Lost()
}

// release removes a call. Its unsent input requests may move to other calls.
func (mc *modernCalls) release(c *modernCall) {
	delete(mc.byID, c.id)
	delete(mc.byToken, c.progressToken)
	delete(mc.awaiting, c.number)
	delete(mc.hidden, c.hiddenTaskID)
	mc.timers.stop(c.gatherTimer)
	mc.timers.stop(c.timeout)
	mc.timers.stop(c.reassignTimer)
	mc.reserved -= c.size
	c.size = 0
	c.id = 0
	fresh, open := c.unsentInputs, c.sentInputs
	c.unsentInputs, c.sentInputs = nil, nil
	for _, q := range open {
		mc.inputs.cancel(q)
	}
	for _, q := range fresh {
		mc.reassign(q)
	}
}

// cancel cancels a call, with its input requests.
func (mc *modernCalls) cancel(c *modernCall, reason string) {
	var others []*serverRequest // may belong to other calls
	for _, q := range append(c.unsentInputs, c.sentInputs...) {
		if q.guessed {
			others = append(others, q)
		} else {
			mc.inputs.cancel(q)
		}
	}
	c.unsentInputs, c.sentInputs = nil, nil
	if c.hiddenTaskID != "" && mc.byID[c.id] == c {
		mc.call(mcp.MethodTasksCancel, taskParams(c.hiddenTaskID), "cancelled", func(outcome) {})
	}
	if c.id != 0 && mc.byID[c.id] == c {
		if c.number != 0 {
			mc.principals.GiveUp(c.principal, mc.now)
		}
		if c.taskParam != nil {
			mc.abandonTask(c)
		} else {
			delete(mc.byID, c.id)
			mc.cancelUpstream(c.id, c.upstreamMethod, reason)
		}
	}
	mc.release(c)
	for _, q := range others {
		mc.reassign(q)
	}
}

// cancelAll cancels all calls without a client request.
func (mc *modernCalls) cancelAll(reason string) {
	for _, n := range slices.Sorted(maps.Keys(mc.awaiting)) {
		mc.cancel(mc.awaiting[n], reason)
	}
	for _, id := range slices.Sorted(maps.Keys(mc.byID)) {
		// tasks/cancel was sent for the same reason. A call that becomes a task must not be
		// canceled.
		if c := mc.byID[id]; c.upstreamMethod != mcp.MethodTasksCancel && c.taskParam == nil {
			mc.cancelUpstream(id, c.upstreamMethod, reason)
		}
	}
}

// abandonTask gives up a call that becomes a task. Revision 2025-11-25 forbids
// notifications/cancelled for such a call, and tasks/cancel needs the id that only its response
// has. So the response is awaited.
// https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation#behavior-requirements
func (mc *modernCalls) abandonTask(c *modernCall) {
	if len(mc.abandoned) >= mc.opts.Limits.Tasks { // the task of the oldest runs until its TTL
		delete(mc.byID, mc.abandoned[0])
		mc.abandoned = mc.abandoned[1:]
	}
	id := c.id
	c.id = 0
	mc.byID[id] = &modernCall{id: id, method: c.method, upstreamMethod: c.upstreamMethod, taskParam: c.taskParam, done: func(o outcome) {
		mc.abandoned = slices.DeleteFunc(mc.abandoned, func(one int64) bool { return one == id })
		if o.err != nil {
			return
		}
		if task := era.LookupString(o.result, "task", "taskId"); task != "" && len(task) <= maxTaskID {
			mc.call(mcp.MethodTasksCancel, taskParams(task), "cancelled", func(outcome) {})
		}
	}}
	mc.abandoned = append(mc.abandoned, id)
	mc.emit(Out{To: Upstream, Call: id, Withdraw: true})
}

// await keeps a call whose client is away. Above the limit, it cancels the call that waits longest.
func (mc *modernCalls) await(c *modernCall) {
	if len(mc.awaiting) >= mc.opts.Limits.AwaitingInput {
		var oldest *modernCall
		for _, one := range mc.awaiting {
			if oldest == nil || one.timeout.at.Before(oldest.timeout.at) || one.timeout.at.Equal(oldest.timeout.at) && one.number < oldest.number {
				oldest = one
			}
		}
		mc.cancel(oldest, "too many clients did not send the retry")
	}
	mc.awaiting[c.number] = c
	c.timeout = mc.after(mc.opts.Limits.InputTimeout, func() { mc.cancel(c, "the client did not send the retry") })
	mc.scheduleReassign(c)
}

// scheduleReassign runs reassignAll regularly while the client of a call is away.
func (mc *modernCalls) scheduleReassign(c *modernCall) {
	c.reassignTimer = mc.after(max(mc.opts.Limits.InputTimeout/5, time.Second), func() {
		mc.reassignAll(c)
		mc.scheduleReassign(c)
	})
}

// resume gives a call whose client is back the client's next request.
func (mc *modernCalls) resume(c *modernCall, r *modernRequest) {
	delete(mc.awaiting, c.number)
	mc.timers.stop(c.timeout)
	mc.timers.stop(c.reassignTimer)
	c.req, r.call = r, c
}

// hide makes a call wait for the result of a task that it became, unknown to the client.
func (mc *modernCalls) hide(c *modernCall, task string) {
	c.hiddenTaskID, c.upstreamMethod, c.taskParam = task, mcp.MethodTasksResult, nil
	c.params = taskParams(task)
	mc.hidden[task] = c
	mc.send(c, "task → tasks/result")
}

// assign chooses the call that takes a server request to its client: the call on whose stream it
// came, or else one of the pending calls. Nothing says which one it belongs to, so they take turns:
// the one with the fewest input requests, and of these the latest. If none can, the request waits
// for a call. If calls of several principals are pending, the request is refused.
func (mc *modernCalls) assign(q *serverRequest, call int64) {
	if c := mc.byID[call]; c != nil && c.number != 0 {
		mc.attach(q, c)
		return
	} else if c != nil && call != 0 {
		mc.inputs.reject(q, q.Refusal(fmt.Sprintf("a modern client cannot be sent input requests before the response to %s", clip.String(c.method, 100))))
		return
	}
	if q.notFor == nil { // otherwise it was given to a call before
		pending := map[string]bool{}
		for _, c := range mc.byID {
			if c.number != 0 {
				pending[c.principal] = true
			}
		}
		var known bool
		if q.principal, known = mc.principals.Cause(pending, mc.now); !known {
			mc.inputs.reject(q, ErrUnknownCause)
			return
		}
	}
	best, candidates := mc.candidate(q)
	if best != nil {
		q.guessed = candidates > 1 || q.notFor != nil
		mc.attach(q, best)
		return
	}
	if _, missing := q.MissingCapability(&mc.handshake.client, mc.modern); missing != "" {
		mc.inputs.reject(q, q.Refusal("the client has not declared "+missing))
		return
	}
	wait := mc.opts.Limits.InputTimeout
	if len(mc.awaiting) == 0 {
		wait = min(wait, unclaimedTimeout)
	}
	mc.inputs.addUnclaimed(q, wait)
}

// candidate returns the call to take a server request, and how many calls could.
func (mc *modernCalls) candidate(q *serverRequest) (best *modernCall, candidates int) {
	for _, c := range mc.byID {
		if c != q.notFor && c.req != nil && c.number != 0 && c.principal == q.principal && mc.cannotTake(q, c) == "" && len(c.unsentInputs)+len(c.sentInputs) < maxInputs {
			candidates++
			if best == nil || c.before(best) {
				best = c
			}
		}
	}
	return best, candidates
}

// cannotTake returns why a call cannot take a server request, or "".
func (mc *modernCalls) cannotTake(q *serverRequest, c *modernCall) string {
	client := &mc.handshake.client
	if c.req != nil {
		client = &c.req.client
	}
	if _, missing := q.MissingCapability(client, mc.modern); missing != "" {
		return "the client has not declared " + missing
	}
	if c.inputRound >= mc.opts.Limits.InputRounds {
		return "too many input rounds for one request"
	}
	return ""
}

// reassign moves a server request to another call.
func (mc *modernCalls) reassign(q *serverRequest) {
	q.notFor, q.call = q.call, nil
	if mc.inputs.isPending(q) {
		mc.assign(q, 0)
	}
}

// reassignAll moves the server requests of a call, whose client is away or that has a response, to
// other calls if they may belong to these.
func (mc *modernCalls) reassignAll(c *modernCall) {
	open := c.sentInputs
	c.sentInputs = nil
	for _, q := range open {
		before := q.notFor
		q.notFor = c
		if other, _ := mc.candidate(q); !q.guessed || other == nil {
			q.notFor = before
			c.sentInputs = append(c.sentInputs, q)
			continue
		}
		mc.reassign(q)
	}
}

// attach gives a server request to a call.
func (mc *modernCalls) attach(q *serverRequest, c *modernCall) {
	if why := mc.cannotTake(q, c); why != "" {
		mc.inputs.reject(q, q.Refusal(why))
		return
	}
	c.addInput(q)
	mc.drop("waits for other input requests")
	if c.req != nil && len(c.unsentInputs) == 1 {
		mc.gather(c)
	}
}

// gather waits for more input requests of a call before it sends them.
func (mc *modernCalls) gather(c *modernCall) {
	c.gatherTimer = mc.after(mc.opts.Limits.GatherDelay, func() { mc.sendInputs(c) })
}

// claim gives the unclaimed server requests to a call.
func (mc *modernCalls) claim(c *modernCall) {
	for _, q := range slices.Clone(mc.inputs.unclaimed) {
		own := q.principal == c.principal || q.principal == "" && !mc.principals.several
		if own && mc.cannotTake(q, c) == "" && len(c.unsentInputs) < maxInputs {
			mc.inputs.removeUnclaimed(q)
			q.guessed = true
			c.addInput(q)
		}
	}
}

// progress forwards progress with the token of the pending client request.
func (mc *modernCalls) progress(m *jsonrpc.Message, frame []byte) {
	v, _ := m.Param("progressToken")
	id, _ := jsonwire.ParseInt(v)
	c := mc.byToken[id]
	if c == nil || c.req == nil || c.req.progressToken == nil {
		mc.drop("progress matches no pending request")
		return
	}
	r := c.req
	msg := era.RewriteMember(frame, "params", func(params []byte) []byte {
		return withToken(withoutMeta(params, mcp.MetaRelatedTask), r.progressToken)
	})
	mc.emit(Out{To: Downstream, Stream: r.key.stream, Message: msg, Rule: "progressToken"})
}

// log forwards a log message on the stream on which it came, or else to the newest request with a
// matching level. A message that may also belong to isolated clients is dropped.
func (mc *modernCalls) log(m *jsonrpc.Message, frame []byte, call int64) {
	v, _ := m.Param("level")
	name, _ := jsonrpc.ID(v).Text()
	level, ok := mcp.ParseLoggingLevel(name)
	wants := func(c *modernCall) bool {
		return c != nil && c.req != nil && c.req.logLevel != mcp.LevelNone && level >= c.req.logLevel
	}
	c := mc.byID[call]
	open := 0
	if call == 0 {
		for _, one := range mc.byID {
			if one.req != nil || one.number != 0 {
				open++
			}
			if wants(one) && (c == nil || one.id > c.id) {
				c = one
			}
		}
	}
	if open > 1 && mc.opts.IsolateClients {
		mc.drop("the log message belongs to no known request")
		return
	}
	if !ok || !wants(c) {
		mc.drop("no request wants that log message")
		return
	}
	mc.emit(Out{To: Downstream, Stream: c.req.key.stream, Message: bytes.Clone(frame)})
}
