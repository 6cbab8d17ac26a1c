package translate

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	statePurpose = "bridge request state 1"
	maxState     = 1 << 10 // bytes of a sealed state
)

// sendInputRequired answers a request of the client with the server's questions. The call to the server stays open.
func (t *ModernToLegacy) sendInputRequired(c *upstreamCall) {
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
		t.cancelCall(c, "the bridge cannot seal")
		t.fail(r, internalError("the request state cannot be sealed"), "refused")
		return
	}
	result = jsonwire.AppendQuote(append(result, `},"requestState":`...), state)
	result = append(result, `,"resultType":"`+mcp.ResultTypeInputRequired+`"`...)
	if t.server.info != nil {
		result = append(append(result, `,"_meta":{"`+mcp.MetaServerInfo+`":`...), t.server.info...)
		result = append(result, '}')
	}
	t.awaitInput(c)
	t.sendResult(r, append(result, '}'), c.sentInputs[0].Method+" → input_required", of...)
}

// awaitInput keeps an errand for a client that is away. Beyond the limit the one that waits for the longest is given up.
func (t *ModernToLegacy) awaitInput(c *upstreamCall) {
	if len(t.awaitingInput) >= t.opts.Limits.AwaitingInput {
		var oldest *upstreamCall
		for _, one := range t.awaitingInput {
			if oldest == nil || one.timeout.at.Before(oldest.timeout.at) || one.timeout.at.Equal(oldest.timeout.at) && one.number < oldest.number {
				oldest = one
			}
		}
		t.cancelCall(oldest, "too many clients did not come back")
	}
	t.awaitingInput[c.number] = c
	c.timeout = t.after(t.opts.Limits.InputTimeout, func() { t.cancelCall(c, "the client did not come back") })
	t.scheduleReassign(c)
}

// scheduleReassign has the questions of an errand doubted from time to time while its client is away.
func (t *ModernToLegacy) scheduleReassign(c *upstreamCall) {
	c.reassignTimer = t.after(max(t.opts.Limits.InputTimeout/5, time.Second), func() {
		t.reassignInputs(c)
		t.scheduleReassign(c)
	})
}

var errRequestState = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: params.requestState is not valid for this request, or not any more: " +
	"start over without requestState and inputResponses"}

// resume takes a request that brings answers, and has the server go on.
func (t *ModernToLegacy) resume(r *modernRequest, m *jsonrpc.Message, state []byte) {
	c := t.callAwaiting(m, state)
	if c == nil {
		t.fail(r, errRequestState, "requestState refused")
		return
	}
	answers, ok := m.Param("inputResponses")
	if ok && string(answers) != "null" && !era.IsObject(answers) {
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses is no object"), "refused")
		return
	}
	given := make(map[*serverRequest][]byte)
	for _, q := range c.sentInputs {
		v := era.Lookup(answers, q.key)
		if v == nil {
			continue
		}
		if err := q.CheckResponse(v); err != nil {
			t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses has %s under %s", err, q.key), "refused")
			return
		}
		given[q] = v
	}
	delete(t.awaitingInput, c.number)
	t.timers.stop(c.timeout)
	t.timers.stop(c.reassignTimer)
	c.req, r.call = r, c
	asked := c.sentInputs
	c.sentInputs = nil
	for _, q := range asked {
		v := given[q]
		if v == nil {
			c.unsentInputs = append(c.unsentInputs, q)
			continue
		}
		if q.urlElicitation && era.LookupString(v, "action") != "accept" {
			c.declined = true
		}
		t.respondUpstream(q, q.ConvertResponse(v, t.legacyFeatures()), "inputResponses → "+q.Method)
	}
	t.continueCall(c)
}

// legacyFeatures are those of the server, or of the latest legacy revision.
func (t *ModernToLegacy) legacyFeatures() *era.Features {
	if t.server.features != nil {
		return t.server.features
	}
	return era.Of(t.opts.Legacy)
}

// continueCall does what comes next for an errand whose client is back.
func (t *ModernToLegacy) continueCall(c *upstreamCall) {
	switch {
	case c.outcome != nil:
		asked := c.unsentInputs
		c.unsentInputs = nil
		for _, q := range asked {
			if q.guessed {
				c.unsentInputs = append(c.unsentInputs, q) // for other requests
			} else {
				t.cancelInput(q)
			}
		}
		t.deliver(c, *c.outcome)
	case c.declined:
		r := c.req
		t.release(c)
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the server requires a page to be opened, which the user declined"), "refused")
	case len(c.unsentInputs) > 0:
		t.claimInputs(c)
		t.sendInputRequired(c)
	case c.sendAfterInput:
		t.whenReady(c.req, func() { t.startCall(c) })
	case c.id == 0: // the server is gone, and with it the call
		t.deliver(c, outcome{err: internalError("the session with the server was lost while the client answered")})
	default:
		if t.claimInputs(c); len(c.unsentInputs) > 0 {
			c.gatherTimer = t.after(t.opts.Limits.GatherDelay, func() { t.sendInputRequired(c) })
		}
	}
}

// callAwaiting returns the errand that a state belongs to, nil if the state is not valid for the request, or not any more.
func (t *ModernToLegacy) callAwaiting(m *jsonrpc.Message, state []byte) *upstreamCall {
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
	c := t.awaitingInput[number]
	if c == nil || uint64(c.inputRound) != round {
		return nil
	}
	return c
}

// bindState finds out what states of the errand are good for, once: few are ever asked for, and it takes a look at all params. It must be called before these change.
func (t *ModernToLegacy) bindState(c *upstreamCall) []byte {
	if c.stateBinding == nil {
		c.stateBinding = t.stateBinding(c.method, c.params)
	}
	return c.stateBinding
}

// stateBinding returns what a request's states are good for: this session, the method, and the params but for those that differ between the rounds or mean nothing: what
// [legacyParams] leaves of them gives the same.
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
