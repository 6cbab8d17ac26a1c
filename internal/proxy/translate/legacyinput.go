package translate

import (
	"bytes"
	"fmt"
	"time"

	"mcpwire/internal/base/sparse"
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

// A legacyInputs holds the input requests of the server that the client has not answered. The
// legacy client gets each as a request.
type legacyInputs struct {
	*core
	handshake *legacyHandshake
	// pending holds the input requests by id.
	pending map[int64]*inputRequest
	lastID  int64
}

// begin begins an input round: it sends the client the input requests of an input_required result.
// It calls done when the request can be sent again, or with an error if it cannot.
func (li *legacyInputs) begin(r *legacyRequest, result []byte, done func(e *jsonrpc.Error)) {
	r.inputRound++
	r.inputResponses, r.requestState, r.causes = nil, nil, nil
	if v := era.Lookup(result, "requestState"); v != nil {
		if v[0] != '"' || !li.reserve(len(v)) {
			done(internalError("the server's requestState is invalid"))
			return
		}
		r.size += len(v)
		r.requestState = bytes.Clone(v)
	}
	if r.inputRound > li.opts.Limits.InputRounds {
		done(internalError("the server sent more than %d input rounds", li.opts.Limits.InputRounds))
		return
	}
	inputs, err := li.parse(r, era.Lookup(result, "inputRequests"))
	switch {
	case err != nil:
		done(internalError("the client cannot be sent input requests: %s", err))
	case len(inputs) > 0:
		r.inputRequests, r.pendingInputs = inputs, len(inputs)
		for _, in := range inputs {
			in.done = func(in *inputRequest, e *jsonrpc.Error) { li.answered(in, e, done) }
			li.send(in, "input_required → "+in.Method)
		}
	case r.requestState == nil:
		done(internalError("the server requires input but sends no input requests"))
	default: // the server is busy or wants the request on another node
		wait := minRetryDelay << min(r.inputRound-1, 10)
		r.retryTimer = li.after(min(wait, maxRetryDelay), func() { done(nil) })
		li.drop("input_required → again later")
	}
}

// parse parses inputRequests and converts them for the client.
func (li *legacyInputs) parse(r *legacyRequest, requests []byte) ([]*inputRequest, error) {
	if requests == nil {
		return nil, nil
	}
	if !era.IsObject(requests) {
		return nil, fmt.Errorf("inputRequests is not an object")
	}
	var inputs []*inputRequest
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		in, err := li.parseOne(r, members.RawKey(), members.Value())
		if err != nil {
			return nil, err
		}
		if inputs = append(inputs, in); len(inputs) > maxInputs || len(inputs)+len(li.pending) > li.opts.Limits.InputRequests {
			return nil, fmt.Errorf("too many input requests at once")
		}
	}
	return inputs, nil
}

func (li *legacyInputs) parseOne(r *legacyRequest, key, text []byte) (*inputRequest, error) {
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
	if _, missing := parsed.MissingCapability(&era.Client{Capabilities: li.handshake.clientCaps}, li.handshake.legacy); missing != "" {
		return nil, fmt.Errorf("it has not declared %s", missing)
	}
	in := &inputRequest{key: bytes.Clone(key), req: r}
	if parsed.IsURL() {
		in.elicitationID = li.opts.NewID()
	}
	var err error
	in.InputRequest, err = parsed.Convert(li.handshake.legacy, in.elicitationID)
	return in, err
}

// send sends the client an input request.
func (li *legacyInputs) send(in *inputRequest, rule string) {
	li.lastID++
	in.id = li.lastID
	sparse.Set(&li.pending, in.id, in)
	in.timeout = li.after(li.opts.Limits.InputTimeout, func() {
		li.cancel(in, "no response in time")
		li.fail(in, internalError("no response of the user to %s in time", in.Method))
	})
	li.emit(Out{To: Downstream, Stream: in.req.stream, Message: jsonrpc.AppendRequest(nil, jsonrpc.IntID(in.id), in.Method, in.Params), Rule: rule})
	if in.IsURL() { // all that is needed to check the response
		in.Params = []byte(`{"mode":"url"}`)
	} else {
		in.Params = nil
	}
}

// receive takes the client's response to an input request.
func (li *legacyInputs) receive(m *jsonrpc.Message) {
	id, _ := jsonwire.ParseInt(m.ID)
	in := li.pending[id]
	if in == nil {
		li.drop("matches no pending request")
		return
	}
	sparse.Delete(&li.pending, id)
	li.timers.stop(in.timeout)
	if m.Kind == jsonrpc.KindError {
		e := m.Err()
		li.drop("an error cannot answer " + in.Method)
		li.fail(in, internalError("the server needs %s, which the client rejected: %s (code %d)", in.Method, clip.String(e.Message, 100), int(e.Code)))
		return
	}
	if err := in.CheckResponse(m.Result); err != nil {
		li.drop("malformed response")
		in.done(in, internalError("the client's response is %s", err))
		return
	}
	in.response = in.ConvertResponse(m.Result, li.modern)
	in.req.causes = append(in.req.causes, li.cause)
	if !li.reserve(len(in.response)) {
		in.done(in, errOverloaded)
		return
	}
	in.req.size += len(in.response)
	in.done(in, nil)
}

// fail answers an elicitation as canceled. Other input requests have no such response and fail
// the client's request.
func (li *legacyInputs) fail(in *inputRequest, e *jsonrpc.Error) {
	if in.Method == mcp.MethodElicit {
		in.response, e = []byte(`{"action":"cancel"}`), nil
	}
	in.done(in, e)
}

// answered ends a round when all its responses have arrived, or when one cannot be had.
func (li *legacyInputs) answered(in *inputRequest, e *jsonrpc.Error, done func(e *jsonrpc.Error)) {
	r := in.req
	if r.finished {
		return
	}
	r.pendingInputs--
	if e != nil {
		li.cancelAll(r, "another input request of the same request was rejected")
		done(e)
		return
	}
	if in.elicitationID != "" && era.LookupString(in.response, "action") == "accept" {
		r.elicitationIDs = append(r.elicitationIDs, in.elicitationID)
	}
	if r.pendingInputs > 0 {
		li.drop("waits for the other responses")
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
	done(nil)
}

// cancelAll cancels the pending input requests of a request.
func (li *legacyInputs) cancelAll(r *legacyRequest, reason string) {
	for _, in := range r.inputRequests {
		if li.pending[in.id] == in {
			li.cancel(in, reason)
		}
	}
	r.inputRequests, r.pendingInputs = nil, 0
}

func (li *legacyInputs) cancel(in *inputRequest, reason string) {
	sparse.Delete(&li.pending, in.id)
	li.timers.stop(in.timeout)
	name, params := era.Cancellation{}.Notice(jsonrpc.IntID(in.id), in.Method, reason)
	li.emit(Out{To: Downstream, Stream: in.req.stream, Message: jsonrpc.AppendNotification(nil, name, params), Rule: "cancelled"})
}

// notifyComplete notifies the client that the URL elicitations of a request are complete.
func (li *legacyInputs) notifyComplete(r *legacyRequest) {
	if li.handshake.legacy.ElicitationIDs {
		for _, id := range r.elicitationIDs {
			params := append(jsonwire.AppendQuote([]byte(`{"elicitationId":`), id), '}')
			li.emit(Out{To: Downstream, Stream: r.stream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationElicitationComplete, params), Rule: "the request continues"})
		}
	}
	r.elicitationIDs = nil
}
