package translate

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// The sealed request states.
const (
	statePurpose = "bridge request state 1"
	maxState     = 1 << 10 // bytes of a sealed state
)

// A modernRounds runs the input rounds of calls: it ends a client request with the server's
// requests, and continues the call with the client's next request.
type modernRounds struct {
	*core
	server   *legacyServer
	requests *modernRequests
	inputs   *modernInputs
	calls    *modernCalls
	// nonce binds request states to this session.
	nonce string
}

// requestElicitations sends the client the URL elicitations that an error requires. The call is
// repeated afterwards. It reports if it handled the error.
func (mr *modernRounds) requestElicitations(c *modernCall, e *jsonrpc.Error) bool {
	list := era.Lookup(e.Data, "elicitations")
	if c.number == 0 || len(list) == 0 || list[0] != '[' {
		return false
	}
	var elicitations []*serverRequest
	elements := jsonwire.ArrayElements(list)
	for elements.Next() {
		q := &serverRequest{InputRequest: era.InputRequest{Method: mcp.MethodElicit, Params: elements.Value()}, urlElicitation: true, call: c, cause: mr.cause}
		if !era.IsObject(q.Params) || !q.IsURL() || len(elicitations) == maxInputs {
			return false
		}
		if required, missing := q.MissingCapability(&c.req.client, mr.modern); missing != "" {
			data := append(append([]byte(`{"requiredCapabilities":`), required...), '}')
			r := c.req
			mr.calls.release(c)
			mr.requests.fail(r, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapability, Message: "the client has not declared a required capability: " + missing, Data: data}, "-32042 → -32021")
			return true
		}
		q.InputRequest, _ = q.Convert(mr.modern, "")
		elicitations = append(elicitations, q)
	}
	if len(elicitations) == 0 || c.inputRound >= mr.opts.Limits.InputRounds {
		return false
	}
	for _, q := range elicitations {
		c.addInput(q)
	}
	c.sendAfterInput = true
	mr.send(c)
	return true
}

// send answers a client request with the server requests. The call stays pending.
func (mr *modernRounds) send(c *modernCall) {
	r := c.req
	if r == nil || len(c.unsentInputs) == 0 {
		return
	}
	mr.timers.stop(c.gatherTimer)
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
	state, _, err := mr.opts.Ring.Seal(nil, statePurpose, plain, mr.bind(c))
	if err != nil {
		mr.calls.cancel(c, "the bridge cannot seal")
		mr.requests.fail(r, internalError("the request state cannot be sealed"), "refused")
		return
	}
	result = jsonwire.AppendQuote(append(result, `},"requestState":`...), state)
	result = append(result, `,"resultType":"`+mcp.ResultTypeInputRequired+`"`...)
	result = mr.server.appendInfo(result)
	mr.calls.await(c)
	mr.requests.sendResult(r, append(result, '}'), c.sentInputs[0].Method+" → input_required", of...)
}

var errRequestState = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: params.requestState is not valid for this request, or has expired: " +
	"start over without requestState and inputResponses"}

// resume takes the input responses in a request. It returns the call to continue, or nil if it has
// rejected the request.
func (mr *modernRounds) resume(r *modernRequest, m *jsonrpc.Message, state []byte) *modernCall {
	c := mr.find(m, state)
	if c == nil || c.principal != r.principal {
		mr.requests.fail(r, errRequestState, "requestState rejected")
		return nil
	}
	answers, ok := m.Param("inputResponses")
	if ok && string(answers) != "null" && !era.IsObject(answers) {
		mr.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses is not an object"), "refused")
		return nil
	}
	given := make(map[*serverRequest][]byte)
	for _, q := range c.sentInputs {
		v := era.Lookup(answers, q.key)
		if v == nil {
			continue
		}
		if err := q.CheckResponse(v); err != nil {
			mr.requests.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: inputResponses has %s under %s", err, q.key), "refused")
			return nil
		}
		given[q] = v
	}
	mr.calls.resume(c, r)
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
		mr.inputs.respond(q, q.ConvertResponse(v, mr.server.featuresOr(mr.opts.Legacy)), "inputResponses → "+q.Method)
	}
	return c
}

// find returns the call of a request state, or nil if the state is invalid for the request or
// expired.
func (mr *modernRounds) find(m *jsonrpc.Message, state []byte) *modernCall {
	text, ok := jsonrpc.ID(state).Text()
	if !ok {
		return nil
	}
	plain, _, err := mr.opts.Ring.Open(text, maxState, statePurpose, mr.binding(string(m.Method), m.Params))
	if err != nil {
		return nil
	}
	number, n := binary.Uvarint(plain)
	if n <= 0 {
		return nil
	}
	round, _ := binary.Uvarint(plain[n:])
	c := mr.calls.awaiting[number]
	if c == nil || uint64(c.inputRound) != round {
		return nil
	}
	return c
}

// bind returns the state binding of a call and caches it. The first call must precede changes of
// the params.
func (mr *modernRounds) bind(c *modernCall) []byte {
	if c.stateBinding == nil {
		c.stateBinding = mr.binding(c.method, c.params)
	}
	return c.stateBinding
}

// binding returns a digest of what a request state is valid for: the session, the method, and the
// params that stay the same between rounds. It is the same for the result of [legacyParams].
func (mr *modernRounds) binding(method string, params []byte) []byte {
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
	for _, text := range []string{mr.nonce, method} {
		buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	}
	h.Write(buf)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		buf = jsonwire.AppendCompact(append(jsonwire.AppendQuote(buf[:0], key), ':'), byKey[key])
		h.Write(append(buf, ','))
	}
	return h.Sum(nil)
}
