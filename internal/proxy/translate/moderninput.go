package translate

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A serverRequest is a request of the legacy server. The client gets it as an input request.
type serverRequest struct {
	era.InputRequest
	cause uint64
	// id is the request id; nil if nobody waits for the response.
	id jsonrpc.ID
	// urlElicitation says that it came in a URLElicitationRequired error.
	urlElicitation bool
	// key is the key in inputRequests.
	key  string
	call *modernCall
	// guessed says that the request may belong to another call.
	guessed bool
	// notFor is the call that gave the request away.
	notFor *modernCall
	// task is the task that it belongs to, or nil.
	task *upstreamTask
	// timeout runs while the request is unclaimed or in task.
	timeout *timer
	size    int
}

// appendTo appends the request as a member of inputRequests. It always adds params, because some
// clients need them although the schema does not.
func (q *serverRequest) appendTo(dst []byte, key string) []byte {
	dst = jsonwire.AppendQuote(dst, key)
	dst = jsonwire.AppendQuote(append(dst, `:{"method":`...), q.Method)
	dst = append(dst, `,"params":`...)
	if q.Params == nil {
		return append(dst, "{}}"...)
	}
	return append(append(dst, q.Params...), '}')
}

// A modernInputs holds the requests of the legacy server that have no response yet.
type modernInputs struct {
	*core
	// pending holds the requests by the key of their ids.
	pending map[string]*serverRequest
	// unclaimed holds requests without a call.
	unclaimed []*serverRequest
}

func newModernInputs(c *core) *modernInputs {
	return &modernInputs{core: c, pending: make(map[string]*serverRequest)}
}

// add adds a request of the server. task is the task that it names, or "". The result is nil if add
// has rejected the request.
func (mi *modernInputs) add(m *jsonrpc.Message) (q *serverRequest, task string) {
	method := string(m.Method)
	q = &serverRequest{InputRequest: era.InputRequest{Method: method, Params: m.Params}, id: m.ID.Clone(), cause: mi.cause}
	switch {
	case !era.IsInputRequest(method):
		mi.reject(q, jsonrpc.MethodNotFound(method))
		return nil, ""
	case mi.pending[q.id.Key()] != nil:
		mi.reject(q, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is in flight"))
		return nil, ""
	case len(mi.pending) >= mi.opts.Limits.InputRequests:
		mi.reject(q, internalError("too many pending input requests"))
		return nil, ""
	case len(q.Params) > 0 && !era.IsObject(q.Params):
		mi.reject(q, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params must be an object"))
		return nil, ""
	}
	task = era.LookupString(q.Params, "_meta", mcp.MetaRelatedTask, "taskId")
	converted, err := q.Convert(mi.modern, "")
	if err != nil {
		mi.reject(q, q.Refusal(err.Error()))
		return nil, ""
	}
	q.InputRequest = era.InputRequest{Method: method, Params: bytes.Clone(converted.Params)}
	if q.size = len(q.Params) + 2*len(q.id); !mi.reserve(q.size) {
		mi.reject(q, internalError("too many pending input requests"))
		return nil, ""
	}
	mi.pending[q.id.Key()] = q
	return q, task
}

func (mi *modernInputs) removeUnclaimed(q *serverRequest) {
	mi.timers.stop(q.timeout)
	for i, one := range mi.unclaimed {
		if one == q {
			mi.unclaimed = append(mi.unclaimed[:i:i], mi.unclaimed[i+1:]...)
			return
		}
	}
}

// remove removes a server request from the pending ones.
func (mi *modernInputs) remove(q *serverRequest) {
	if q.id != nil && mi.pending[q.id.Key()] == q {
		delete(mi.pending, q.id.Key())
		mi.reserved -= q.size
	}
	mi.timers.stop(q.timeout)
}

// removeAll removes all server requests, because the server is gone.
func (mi *modernInputs) removeAll() {
	for _, q := range mi.pending {
		mi.timers.stop(q.timeout)
		mi.reserved -= q.size
		q.id = nil
	}
	clear(mi.pending)
	mi.unclaimed = nil
}

// reject answers a server request with an error.
func (mi *modernInputs) reject(q *serverRequest, e *jsonrpc.Error) {
	mi.remove(q)
	if q.id != nil {
		mi.emit(Out{To: Upstream, Message: jsonrpc.AppendError(nil, q.id, e, false), Rule: "refused"})
	}
}

// respond answers a server request with a result.
func (mi *modernInputs) respond(q *serverRequest, result []byte, rule string) {
	mi.remove(q)
	if q.id != nil {
		mi.emit(Out{To: Upstream, Message: jsonrpc.AppendResult(nil, q.id, result), Rule: rule})
	}
}

// cancel answers a server request for a client that will not answer it.
func (mi *modernInputs) cancel(q *serverRequest) {
	if q.Method == mcp.MethodElicit {
		mi.respond(q, []byte(`{"action":"cancel"}`), "the client disconnected")
		return
	}
	mi.reject(q, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client did not respond"})
}

// canceled handles the cancellation of a server request.
func (mi *modernInputs) canceled(m *jsonrpc.Message) {
	id, _, _ := era.Cancellation{}.Target(m)
	q := mi.pending[id.Key()]
	if id == nil || q == nil {
		mi.drop("nothing to cancel")
		return
	}
	mi.remove(q)
	mi.removeUnclaimed(q)
	if q.task != nil {
		delete(q.task.inputs, q.key)
	}
	if c := q.call; c != nil {
		c.unsentInputs = removeServerRequest(c.unsentInputs, q)
		c.sentInputs = removeServerRequest(c.sentInputs, q)
		if len(c.unsentInputs) == 0 {
			mi.timers.stop(c.gatherTimer)
		}
	}
	mi.drop("the server cancels an input request")
}

func removeServerRequest(list []*serverRequest, q *serverRequest) []*serverRequest {
	for i, one := range list {
		if one == q {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// requestElicitations sends the client the URL elicitations that an error requires. The call is
// repeated afterwards. It reports if it handled the error.
func (t *ModernToLegacy) requestElicitations(c *modernCall, e *jsonrpc.Error) bool {
	list := era.Lookup(e.Data, "elicitations")
	if c.number == 0 || len(list) == 0 || list[0] != '[' {
		return false
	}
	var elicitations []*serverRequest
	elements := jsonwire.ArrayElements(list)
	for elements.Next() {
		q := &serverRequest{InputRequest: era.InputRequest{Method: mcp.MethodElicit, Params: elements.Value()}, urlElicitation: true, call: c, cause: t.cause}
		if !era.IsObject(q.Params) || !q.IsURL() || len(elicitations) == maxInputs {
			return false
		}
		if required, missing := q.MissingCapability(&c.req.client, t.modern); missing != "" {
			data := append(append([]byte(`{"requiredCapabilities":`), required...), '}')
			r := c.req
			t.calls.release(c)
			t.requests.fail(r, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapability, Message: "the client has not declared a required capability: " + missing, Data: data}, "-32042 → -32021")
			return true
		}
		q.InputRequest, _ = q.Convert(t.modern, "")
		c.inputCount++
		q.key = "input-" + strconv.Itoa(c.inputCount)
		elicitations = append(elicitations, q)
	}
	if len(elicitations) == 0 || c.inputRound >= t.opts.Limits.InputRounds {
		return false
	}
	c.unsentInputs = append(c.unsentInputs, elicitations...)
	c.sendAfterInput = true
	t.sendInputRequired(c)
	return true
}

// The sealed request states.
const (
	statePurpose = "bridge request state 1"
	maxState     = 1 << 10 // bytes of a sealed state
)

// sendInputRequired answers a client request with the server requests. The call stays pending.
func (t *ModernToLegacy) sendInputRequired(c *modernCall) {
	r := c.req
	if r == nil || len(c.unsentInputs) == 0 {
		return
	}
	t.timers.stop(c.gatherTimer)
	c.inputRound++
	c.sentInputs = append(c.sentInputs, c.unsentInputs...)
	c.unsentInputs = nil
	result := []byte(`{"inputRequests":{`)
	var of []uint64
	for i, q := range c.sentInputs {
		of = append(of, q.cause)
		if i > 0 {
			result = append(result, ',')
		}
		result = q.appendTo(result, q.key)
	}
	plain := binary.AppendUvarint(binary.AppendUvarint(nil, c.number), uint64(c.inputRound))
	state, _, err := t.opts.Ring.Seal(nil, statePurpose, plain, t.bindState(c))
	if err != nil {
		t.calls.cancel(c, "the bridge cannot seal")
		t.requests.fail(r, internalError("the request state cannot be sealed"), "refused")
		return
	}
	result = jsonwire.AppendQuote(append(result, `},"requestState":`...), state)
	result = append(result, `,"resultType":"`+mcp.ResultTypeInputRequired+`"`...)
	result = t.server.appendInfo(result)
	t.awaitInput(c)
	t.requests.sendResult(r, append(result, '}'), c.sentInputs[0].Method+" → input_required", of...)
}

// awaitInput keeps a call whose client is away. Above the limit, it cancels the call that waits
// longest.
func (t *ModernToLegacy) awaitInput(c *modernCall) {
	if len(t.calls.awaiting) >= t.opts.Limits.AwaitingInput {
		var oldest *modernCall
		for _, one := range t.calls.awaiting {
			if oldest == nil || one.timeout.at.Before(oldest.timeout.at) || one.timeout.at.Equal(oldest.timeout.at) && one.number < oldest.number {
				oldest = one
			}
		}
		t.calls.cancel(oldest, "too many clients did not send the retry")
	}
	t.calls.awaiting[c.number] = c
	c.timeout = t.after(t.opts.Limits.InputTimeout, func() { t.calls.cancel(c, "the client did not send the retry") })
	t.scheduleReassign(c)
}

// scheduleReassign runs reassignInputs regularly while the client of a call is away.
func (t *ModernToLegacy) scheduleReassign(c *modernCall) {
	c.reassignTimer = t.after(max(t.opts.Limits.InputTimeout/5, time.Second), func() {
		t.calls.reassignAll(c)
		t.scheduleReassign(c)
	})
}

var errRequestState = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: params.requestState is not valid for this request, or has expired: " +
	"start over without requestState and inputResponses"}

// resume continues the call of a request with input responses.
func (t *ModernToLegacy) resume(r *modernRequest, m *jsonrpc.Message, state []byte) {
	c := t.callAwaiting(m, state)
	if c == nil {
		t.requests.fail(r, errRequestState, "requestState rejected")
		return
	}
	answers, ok := m.Param("inputResponses")
	if ok && string(answers) != "null" && !era.IsObject(answers) {
		t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses is not an object"), "refused")
		return
	}
	given := make(map[*serverRequest][]byte)
	for _, q := range c.sentInputs {
		v := era.Lookup(answers, q.key)
		if v == nil {
			continue
		}
		if err := q.CheckResponse(v); err != nil {
			t.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses has %s under %s", err, q.key), "refused")
			return
		}
		given[q] = v
	}
	delete(t.calls.awaiting, c.number)
	t.timers.stop(c.timeout)
	t.timers.stop(c.reassignTimer)
	c.req, r.call = r, c
	inputs := c.sentInputs
	c.sentInputs = nil
	for _, q := range inputs {
		v := given[q]
		if v == nil {
			c.unsentInputs = append(c.unsentInputs, q)
			continue
		}
		if q.urlElicitation && era.LookupString(v, "action") != "accept" {
			c.declined = true
		}
		t.inputs.respond(q, q.ConvertResponse(v, t.server.featuresOr(t.opts.Legacy)), "inputResponses → "+q.Method)
	}
	t.continueCall(c)
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
		t.sendInputRequired(c)
	case c.sendAfterInput:
		t.handshake.whenReady(c.req, func() { t.startCall(c) })
	case c.id == 0: // the server and the call are lost
		t.deliver(c, outcome{err: internalError("the session with the server was lost before the client's retry")})
	default:
		if t.calls.claim(c); len(c.unsentInputs) > 0 {
			c.gatherTimer = t.after(t.opts.Limits.GatherDelay, func() { t.sendInputRequired(c) })
		}
	}
}

// callAwaiting returns the call of a request state, or nil if the state is invalid for the request
// or expired.
func (t *ModernToLegacy) callAwaiting(m *jsonrpc.Message, state []byte) *modernCall {
	text, ok := jsonrpc.ID(state).Text()
	if !ok {
		return nil
	}
	plain, _, err := t.opts.Ring.Open(text, maxState, statePurpose, t.stateBinding(string(m.Method), m.Params))
	if err != nil {
		return nil
	}
	number, n := binary.Uvarint(plain)
	if n <= 0 {
		return nil
	}
	round, _ := binary.Uvarint(plain[n:])
	c := t.calls.awaiting[number]
	if c == nil || uint64(c.inputRound) != round {
		return nil
	}
	return c
}

// bindState returns the state binding of a call and caches it. The first call must precede changes
// of the params.
func (t *ModernToLegacy) bindState(c *modernCall) []byte {
	if c.stateBinding == nil {
		c.stateBinding = t.stateBinding(c.method, c.params)
	}
	return c.stateBinding
}

// stateBinding returns a digest of what a request state is valid for: the session, the method, and
// the params that stay the same between rounds. It is the same for the result of [legacyParams].
func (t *ModernToLegacy) stateBinding(method string, params []byte) []byte {
	byKey := make(map[string][]byte)
	members := jsonwire.ObjectMembers(params)
	for members.Next() {
		switch key := members.KeyString(); {
		case key == "_meta", key == "inputResponses", key == "requestState", key == "task" && method == mcp.MethodToolsCall:
		default:
			byKey[key] = members.Value()
		}
	}
	h := sha256.New()
	var buf []byte
	for _, text := range []string{t.nonce, method} {
		buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	}
	h.Write(buf)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		buf = jsonwire.AppendCompact(append(jsonwire.AppendQuote(buf[:0], key), ':'), byKey[key])
		h.Write(append(buf, ','))
	}
	return h.Sum(nil)
}
