package translate

import (
	"bytes"
	"fmt"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits for input requests.
const (
	// maxInputKey limits the bytes of a key in inputRequests.
	maxInputKey   = 1 << 10
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 10 * time.Second
)

// An inputRequest is an input request of a modern server. The client gets it as a request.
type inputRequest struct {
	era.InputRequest
	id int64
	// key is the key in inputRequests, without the quotes.
	key           []byte
	elicitationID string
	req           *legacyRequest
	response      []byte
	done          func(a *inputRequest, e *jsonrpc.Error)
	timeout       *timer
}

// inputRequired sends the client the input requests of an input_required result.
func (t *LegacyToModern) inputRequired(r *legacyRequest, result []byte) {
	r.inputRound++
	r.inputResponses, r.requestState, r.causes = nil, nil, nil
	if v := era.Lookup(result, "requestState"); v != nil {
		if v[0] != '"' || !t.reserve(len(v)) {
			t.fail(r, internalError("the server's requestState is invalid"), "refused")
			return
		}
		r.size += len(v)
		r.requestState = bytes.Clone(v)
	}
	if r.inputRound > t.opts.Limits.InputRounds {
		t.fail(r, internalError("the server sent more than %d input rounds", t.opts.Limits.InputRounds), "refused")
		return
	}
	inputs, err := t.parseInputRequests(r, era.Lookup(result, "inputRequests"))
	switch {
	case err != nil:
		t.fail(r, internalError("the client cannot be sent input requests: %s", err), "refused")
	case len(inputs) > 0:
		r.inputRequests, r.pendingInputs = inputs, len(inputs)
		for _, in := range inputs {
			in.done = t.inputAnswered
			t.sendInputRequest(in, "input_required → "+in.Method)
		}
	case r.requestState == nil:
		t.fail(r, internalError("the server requires input but sends no input requests"), "refused")
	default: // the server is busy or wants the request on another node
		wait := minRetryDelay << min(r.inputRound-1, 10)
		r.retryTimer = t.after(min(wait, maxRetryDelay), func() { t.forward(r) })
		t.drop("input_required → again later")
	}
}

// parseInputRequests parses inputRequests and converts them for the client.
func (t *LegacyToModern) parseInputRequests(r *legacyRequest, requests []byte) ([]*inputRequest, error) {
	if requests == nil {
		return nil, nil
	}
	if !era.IsObject(requests) {
		return nil, fmt.Errorf("inputRequests is not an object")
	}
	var inputs []*inputRequest
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		in, err := t.parseInputRequest(r, members.RawKey(), members.Value())
		if err != nil {
			return nil, err
		}
		if inputs = append(inputs, in); len(inputs) > maxInputs || len(inputs)+len(t.inputRequests) > t.opts.Limits.InputRequests {
			return nil, fmt.Errorf("too many input requests at once")
		}
	}
	return inputs, nil
}

func (t *LegacyToModern) parseInputRequest(r *legacyRequest, key, text []byte) (*inputRequest, error) {
	parsed := era.InputRequest{Method: era.LookupString(text, "method")}
	if p := era.Lookup(text, "params"); era.IsObject(p) {
		parsed.Params = p
	}
	if len(key) > maxInputKey {
		return nil, fmt.Errorf("a key of inputRequests is longer than %d bytes", maxInputKey)
	}
	if !era.IsInputRequest(parsed.Method) {
		return nil, fmt.Errorf("unknown input request %q", clip.String(parsed.Method, 100))
	}
	if _, missing := parsed.MissingCapability(&era.Client{Capabilities: t.handshake.clientCaps}, t.handshake.legacy); missing != "" {
		return nil, fmt.Errorf("it has not declared %s", missing)
	}
	in := &inputRequest{key: bytes.Clone(key), req: r}
	if parsed.IsURL() {
		in.elicitationID = t.opts.NewID()
	}
	var err error
	in.InputRequest, err = parsed.Convert(t.handshake.legacy, in.elicitationID)
	return in, err
}

// sendInputRequest sends the client an input request.
func (t *LegacyToModern) sendInputRequest(in *inputRequest, rule string) {
	t.lastInputID++
	in.id = t.lastInputID
	t.inputRequests[in.id] = in
	in.timeout = t.after(t.opts.Limits.InputTimeout, func() {
		t.cancelInput(in, "no response in time")
		t.failInput(in, internalError("no response of the user to %s in time", in.Method))
	})
	t.emit(Out{To: Downstream, Stream: in.req.stream, Message: jsonrpc.AppendRequest(nil, jsonrpc.IntID(in.id), in.Method, in.Params), Rule: rule})
	in.Params = keepMode(&in.InputRequest)
}

// keepMode returns the part of the params that is needed to check the response.
func keepMode(in *era.InputRequest) []byte {
	if in.IsURL() {
		return []byte(`{"mode":"url"}`)
	}
	return nil
}

// downstreamResponse handles the client's response to an input request.
func (t *LegacyToModern) downstreamResponse(m *jsonrpc.Message) {
	id, _ := parseCallID(m.ID)
	in := t.inputRequests[id]
	if in == nil {
		t.drop("matches no pending request")
		return
	}
	delete(t.inputRequests, id)
	t.timers.stop(in.timeout)
	if m.Kind == jsonrpc.KindError {
		e := m.Err()
		t.drop("an error cannot answer " + in.Method)
		t.failInput(in, internalError("the server needs %s, which the client rejected: %s (code %d)", in.Method, clip.String(e.Message, 100), int(e.Code)))
		return
	}
	if err := in.CheckResponse(m.Result); err != nil {
		t.drop("malformed response")
		in.done(in, internalError("the client's response is %s", err))
		return
	}
	in.response = in.ConvertResponse(m.Result, t.modern)
	in.req.causes = append(in.req.causes, t.cause)
	if !t.reserve(len(in.response)) {
		in.done(in, errOverloaded)
		return
	}
	in.req.size += len(in.response)
	in.done(in, nil)
}

// failInput answers an elicitation as canceled. Other input requests have no such response and fail
// the client's request.
func (t *LegacyToModern) failInput(in *inputRequest, e *jsonrpc.Error) {
	if in.Method == mcp.MethodElicit {
		in.response, e = []byte(`{"action":"cancel"}`), nil
	}
	in.done(in, e)
}

// inputAnswered repeats the request when all responses of a round have arrived.
func (t *LegacyToModern) inputAnswered(in *inputRequest, e *jsonrpc.Error) {
	r := in.req
	if r.finished {
		return
	}
	r.pendingInputs--
	if e != nil {
		t.cancelInputs(r, "another input request of the same request was rejected")
		t.fail(r, e, "refused")
		return
	}
	if in.elicitationID != "" && era.LookupString(in.response, "action") == "accept" {
		r.elicitationIDs = append(r.elicitationIDs, in.elicitationID)
	}
	if r.pendingInputs > 0 {
		t.drop("waits for the other responses")
		return
	}
	inputs := []byte{'{'}
	for i, in := range r.inputRequests {
		if i > 0 {
			inputs = append(inputs, ',')
		}
		inputs = append(append(append(append(inputs, '"'), in.key...), `":`...), in.response...)
	}
	r.inputResponses = append(inputs, '}')
	r.inputRequests = nil
	t.forward(r)
}

// cancelInputs cancels the pending input requests of a request.
func (t *LegacyToModern) cancelInputs(r *legacyRequest, reason string) {
	for _, in := range r.inputRequests {
		if t.inputRequests[in.id] == in {
			t.cancelInput(in, reason)
		}
	}
	r.inputRequests, r.pendingInputs = nil, 0
}

func (t *LegacyToModern) cancelInput(in *inputRequest, reason string) {
	delete(t.inputRequests, in.id)
	t.timers.stop(in.timeout)
	name, params := era.Cancellation{}.Notice(jsonrpc.IntID(in.id), in.Method, reason)
	t.emit(Out{To: Downstream, Stream: in.req.stream, Message: jsonrpc.AppendNotification(nil, name, params), Rule: "cancelled"})
}

// notifyElicitationsComplete tells the client that the URL elicitations of a request are complete.
func (t *LegacyToModern) notifyElicitationsComplete(r *legacyRequest) {
	if t.handshake.legacy.ElicitationIDs {
		for _, id := range r.elicitationIDs {
			params := append(jsonwire.AppendQuote([]byte(`{"elicitationId":`), id), '}')
			t.emit(Out{To: Downstream, Stream: r.stream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationElicitationComplete, params), Rule: "the request continues"})
		}
	}
	r.elicitationIDs = nil
}
