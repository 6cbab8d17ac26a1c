package translate

import (
	"bytes"
	"fmt"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxInputs     = 100     // that one result may ask for
	maxInputKey   = 1 << 10 // bytes of what one is known by
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 10 * time.Second
)

// An ask is a question of a modern server that the client gets as a request.
type inputRequest struct {
	era.InputRequest
	id            int64
	key           []byte // in inputRequests, between the quotes
	elicitationID string // elicitationId, for a URL
	req           *legacyRequest
	response      []byte
	done          func(a *inputRequest, e *jsonrpc.Error)
	timeout       *timer
}

// inputRequired asks the client what the server wants to know before it answers.
func (t *LegacyToModern) inputRequired(r *legacyRequest, result []byte) {
	r.inputRound++
	r.inputResponses, r.requestState, r.causes = nil, nil, nil
	if v := era.Lookup(result, "requestState"); v != nil {
		if v[0] != '"' || !t.reserve(len(v)) {
			t.fail(r, internalError("the server's requestState is none"), "refused")
			return
		}
		r.size += len(v)
		r.requestState = bytes.Clone(v)
	}
	if r.inputRound > t.opts.Limits.InputRounds {
		t.fail(r, internalError("the server asked more than %d times", t.opts.Limits.InputRounds), "refused")
		return
	}
	inputs, err := t.parseInputRequests(r, era.Lookup(result, "inputRequests"))
	switch {
	case err != nil:
		t.fail(r, internalError("the client cannot be asked: %s", err), "refused")
	case len(inputs) > 0:
		r.inputRequests, r.pendingInputs = inputs, len(inputs)
		for _, in := range inputs {
			in.done = t.inputAnswered
			t.sendInputRequest(in, "input_required → "+in.Method)
		}
	case r.requestState == nil:
		t.fail(r, internalError("the server requires input and does not say which"), "refused")
	default: // the server is busy, or wants the request elsewhere
		wait := minRetryDelay << min(r.inputRound-1, 10)
		r.retryTimer = t.after(min(wait, maxRetryDelay), func() { t.forward(r) })
		t.drop("input_required → again later")
	}
}

// parseInputRequests takes inputRequests apart, as the client is asked for them.
func (t *LegacyToModern) parseInputRequests(r *legacyRequest, requests []byte) ([]*inputRequest, error) {
	if requests == nil {
		return nil, nil
	}
	if !era.IsObject(requests) {
		return nil, fmt.Errorf("inputRequests is no object")
	}
	var inputs []*inputRequest
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		in, err := t.parseInputRequest(r, members.RawKey(), members.Value())
		if err != nil {
			return nil, err
		}
		if inputs = append(inputs, in); len(inputs) > maxInputs || len(inputs)+len(t.inputRequests) > t.opts.Limits.InputRequests {
			return nil, fmt.Errorf("it is asked too much at once")
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
		return nil, fmt.Errorf("there is no input request %q", clip(parsed.Method))
	}
	if _, missing := parsed.MissingCapability(&era.Client{Capabilities: t.clientCaps}, t.legacy); missing != "" {
		return nil, fmt.Errorf("it has not declared %s", missing)
	}
	in := &inputRequest{key: bytes.Clone(key), req: r}
	if parsed.IsURL() {
		in.elicitationID = t.opts.NewID()
	}
	var err error
	in.InputRequest, err = parsed.Convert(t.legacy, in.elicitationID)
	return in, err
}

// sendInputRequest sends the client a question.
func (t *LegacyToModern) sendInputRequest(in *inputRequest, rule string) {
	t.lastInputID++
	in.id = t.lastInputID
	t.inputRequests[in.id] = in
	in.timeout = t.after(t.opts.Limits.InputTimeout, func() {
		t.cancelInput(in, "no answer in time")
		t.failInput(in, internalError("the user gave no answer to %s in time", in.Method))
	})
	t.emit(Out{To: Downstream, Stream: in.req.stream, Message: jsonrpc.AppendRequest(nil, jsonrpc.IntID(in.id), in.Method, in.Params), Rule: rule})
	in.Params = keepMode(&in.InputRequest)
}

// keepMode forgets all of a question that was sent but what its answer is judged by.
func keepMode(in *era.InputRequest) []byte {
	if in.IsURL() {
		return []byte(`{"mode":"url"}`)
	}
	return nil
}

// downstreamResponse takes the client's answer to a question.
func (t *LegacyToModern) downstreamResponse(m *jsonrpc.Message) {
	id, _ := parseCallID(m.ID)
	in := t.inputRequests[id]
	if in == nil {
		t.drop("answers nothing that is open")
		return
	}
	delete(t.inputRequests, id)
	t.timers.stop(in.timeout)
	if m.Kind == jsonrpc.KindError {
		e := m.Err()
		t.drop("an error cannot answer " + in.Method)
		t.failInput(in, internalError("the server needs %s, which the client refused: %s (code %d)", in.Method, clip(e.Message), int(e.Code)))
		return
	}
	if err := in.CheckResponse(m.Result); err != nil {
		t.drop("malformed answer")
		in.done(in, internalError("the client's answer is %s", err))
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

// failInput says to the server that the user has cancelled. What is no question to a user has no such answer, and fails the request.
func (t *LegacyToModern) failInput(in *inputRequest, e *jsonrpc.Error) {
	if in.Method == mcp.MethodElicit {
		in.response, e = []byte(`{"action":"cancel"}`), nil
	}
	in.done(in, e)
}

// inputAnswered sends the request again when all answers of a round are there.
func (t *LegacyToModern) inputAnswered(in *inputRequest, e *jsonrpc.Error) {
	r := in.req
	if r.finished {
		return
	}
	r.pendingInputs--
	if e != nil {
		t.cancelInputs(r, "another question of the same request was refused")
		t.fail(r, e, "refused")
		return
	}
	if in.elicitationID != "" && era.LookupString(in.response, "action") == "accept" {
		r.elicitationIDs = append(r.elicitationIDs, in.elicitationID)
	}
	if r.pendingInputs > 0 {
		t.drop("waits for the other answers")
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

// cancelInputs tells the client that it need not answer the questions of a request any more.
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

// notifyElicitationsComplete tells the client that the user is done with the pages that were opened for a request.
func (t *LegacyToModern) notifyElicitationsComplete(r *legacyRequest) {
	if t.legacy.ElicitationIDs {
		for _, id := range r.elicitationIDs {
			params := append(jsonwire.AppendQuote([]byte(`{"elicitationId":`), id), '}')
			t.emit(Out{To: Downstream, Stream: r.stream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationElicitationComplete, params), Rule: "the request goes on"})
		}
	}
	r.elicitationIDs = nil
}
