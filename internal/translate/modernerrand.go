package translate

import (
	"bytes"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An errand is a request to the legacy server. It outlives the request of the client that it was made for: while the client answers what the server asks,
// there is none, and the request that brings the answers takes the errand up again.
type upstreamCall struct {
	id             int64  // of the call; 0 if none is under way
	method         string // that the client called
	upstreamMethod string // that the server is called by
	req            *modernRequest
	done           func(a outcome)
	params         []byte // of the call but for the progress token
	size           int
	progressToken  int64 // that the server tells progress with

	// Of requests before whose answer the client may be asked.
	number         uint64 // in request states; 0 for other requests
	stateBinding   []byte // what a state of it is good for; see bind
	inputRound     int
	unsentInputs   []*serverRequest // to be asked
	sentInputs     []*serverRequest // that the client was asked in the last round
	inputCount     int              // of questions so far
	gatherTimer    *timer           // for the first question to wait for others
	reassignTimer  *timer           // while the client is away: whether the questions are this errand's
	timeout        *timer           // the same: whether it comes back
	outcome        *outcome         // that came while the client was away
	sendAfterInput bool             // the client has to answer before the server is called, or called again
	declined       bool             // the user would not open a page

	tool           string
	taskParam      []byte // params.task, if it is to become one
	clientHasTasks bool   // the client knows tasks
	hiddenTaskID   string // the task, if the client does not
}

// callUpstream calls the server on this side's own account.
func (t *ModernToLegacy) callUpstream(method string, params []byte, rule string, done func(o outcome)) *upstreamCall {
	c := &upstreamCall{method: method, upstreamMethod: method, params: params, done: done}
	t.sendCall(c, rule)
	return c
}

// sendCall sends a call with an id of its own.
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

// withMember adds the text of a member to an object, which may be nil.
func withMember(obj, member []byte) []byte {
	if obj == nil {
		obj = []byte("{}")
	}
	return era.Rewrite(nil, obj, nil, member)
}

// startCall starts a request of the client, unless the server has questions that it can take along: those come first.
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

// setLevelAndSend sends a request of the client, after the log level that it wants.
func (t *ModernToLegacy) setLevelAndSend(c *upstreamCall) {
	c.sendAfterInput = false
	r := c.req
	if r != nil && r.logLevel != mcp.LevelNone && (t.logLevel == mcp.LevelNone || r.logLevel < t.logLevel) && era.Lookup(t.server.caps, "logging") != nil {
		t.logLevel = r.logLevel
		params := append(jsonwire.AppendQuote([]byte(`{"level":`), r.logLevel.String()), '}')
		t.callUpstream(mcp.MethodSetLevel, params, "logLevel → logging/setLevel", func(outcome) {
			t.whenReady(r, func() { // it may be that the server was lost
				if c.req == r && !r.finished {
					t.setLevelAndSend(c)
				}
			})
		})
		return
	}
	if c.tool != "" && c.taskParam == nil && t.hasTasks() {
		if r != nil && t.waitForTools(c) {
			return
		}
		t.setTaskParam(c, t.tools.byName[c.tool])
	}
	t.sendCall(c, "− _meta")
}

// handleOutcome takes the server's answer to a request of the client.
func (t *ModernToLegacy) handleOutcome(c *upstreamCall, o outcome) {
	c.id = 0
	t.timers.stop(c.gatherTimer)
	if c.req == nil && t.awaitingInput[c.number] != c { // given up
		return
	}
	if e := o.err; e != nil && !o.lost && e.Code == jsonrpc.CodeMethodNotFound && c.tool != "" && c.taskParam == nil && t.hasTasks() { // the tool is called as a task only
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
	if c.req == nil { // until the client is back
		t.keepOutcome(c, o)
		return
	}
	t.deliver(c, o)
}

// keepOutcome keeps an answer for a client that is away.
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
	t.drop("kept until the client has answered")
	t.reassignInputs(c)
}

// deliver gives the client the server's answer.
func (t *ModernToLegacy) deliver(c *upstreamCall, o outcome) {
	r := c.req
	t.release(c)
	if o.err != nil {
		e := era.ConvertError(o.err, c.method, t.modern)
		rule := ""
		if e.Code != o.err.Code {
			rule = strconv.Itoa(int(o.err.Code)) + " → " + strconv.Itoa(int(e.Code))
		}
		t.fail(r, e, rule)
		return
	}
	if c.becameTask(o) {
		t.sendResult(r, t.taskResult(o.result), "task → resultType task", o.cause)
		return
	}
	result := o.result
	if c.hiddenTaskID != "" {
		result = withoutRelatedTask(result)
	}
	if c.method == mcp.MethodToolsList && t.hasTasks() {
		result = t.learnTools(c.params, result)
	}
	t.respond(r, result, "+ resultType", o.cause)
}

// release forgets an errand, with what belongs to it. Questions that nobody was asked may find another request.
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
		t.cancelInput(q)
	}
	for _, q := range fresh {
		t.reassignInput(q)
	}
}

// cancelCall cancels an errand: the server need not go on, and gets no answers any more.
func (t *ModernToLegacy) cancelCall(c *upstreamCall, reason string) {
	var others []*serverRequest // that may be those of requests that go on
	for _, q := range append(c.unsentInputs, c.sentInputs...) {
		if q.guessed {
			others = append(others, q)
		} else {
			t.cancelInput(q)
		}
	}
	c.unsentInputs, c.sentInputs = nil, nil
	if c.hiddenTaskID != "" && t.calls[c.id] == c {
		t.callUpstream(mcp.MethodTasksCancel, taskParams(c.hiddenTaskID), "cancelled", func(outcome) {})
	}
	if c.id != 0 && t.calls[c.id] == c {
		delete(t.calls, c.id)
		t.cancelUpstream(c.id, c.upstreamMethod, reason)
	}
	t.release(c)
	for _, q := range others {
		t.reassignInput(q)
	}
}
