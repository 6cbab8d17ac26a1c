package server

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/seal"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A round is one run of a handler in a modern revision, whose questions go out in the answer to the request. The client sends the request again with
// the answers (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr), to whichever process: nothing waits for it here. It is
// the asker of such a call.
type inputRound struct {
	call *Call

	mu         sync.Mutex
	rounds     int                       // how often the client was asked in the rounds before
	answers    map[string]*inputResponse // by key
	pending    []*inputRequest
	handlerErr error // an answer that this request brought cannot be used: what the handler was told, and
	wireErr    error // what the client is told
}

// An answer is what the client said to the question with that digest. One that came without a state is to whatever is asked first under its key.
type inputResponse struct {
	digest  digest
	unbound bool // there is no digest
	text    json.RawMessage
}

// ask implements asker. An answer counts only for the question that it was given to: if a handler that runs again asks something else under the same
// key, what the user agreed to is not what would be done, so the client is asked again.
func (rd *inputRound) ask(_ context.Context, requests []*inputRequest) error {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if rd.handlerErr != nil {
		return rd.handlerErr
	}
	missing := false
	for _, q := range requests {
		got := rd.answers[q.key]
		if got != nil && !got.unbound && got.digest != q.digest() {
			rd.call.Logger().Warn("a question changed since it was answered, and is asked again", "key", clip(q.key))
			delete(rd.answers, q.key)
			got = nil
		}
		if got == nil {
			rd.pending = append(rd.pending, q)
			missing = true
			continue
		}
		if err := q.decode(got.text); err != nil {
			rd.handlerErr, rd.wireErr = q.invalid(err), invalidResponse(q.key, err)
			return rd.handlerErr
		}
		got.digest, got.unbound = q.digest(), false
	}
	if missing {
		return ErrInputRequired
	}
	return nil
}

func invalidResponse(key string, err error) error {
	return invalidParams("params.inputResponses[%q]: %v", clip(key), err)
}

// resumeInput takes up what the client brings of earlier rounds. It comes before anything of the handler runs.
func (c *Call) resumeInput(r *jsonrpc.Request) error {
	var before seal.Stamp
	if c.input.Load() != nil { // a middleware has the request handled more than once
		if d := c.input.Swap(nil); d != nil {
			before = d.stamp
		}
	}
	if !c.ex.Modern {
		return nil
	}
	state, hasState := r.Param("requestState")
	responses, hasResponses := r.Param("inputResponses")
	hasState = hasState && string(state) != "null"
	hasResponses = hasResponses && string(responses) != "null"
	switch {
	case hasState && state[0] != '"':
		return invalidParams("params.requestState must be a string")
	case hasResponses && responses[0] != '{':
		return invalidParams("params.inputResponses must be an object")
	case !hasState && !hasResponses:
		return nil
	}
	rd := &inputRound{call: c, answers: make(map[string]*inputResponse)}
	d := newInputState(rd)
	var pending map[string]pendingRequest
	if hasState {
		m, stamp, err := c.openState(r, unquote(state), before)
		if err != nil {
			return err
		}
		rd.rounds, pending, d.stamp = m.Rounds, m.Open, stamp
		for key, got := range m.Answers {
			rd.answers[key] = &inputResponse{digest: got.Digest, text: got.Text}
		}
		for key, value := range m.Once {
			d.onceResults[key] = savedOnce(value)
		}
	}
	if hasResponses {
		if err := rd.readResponses(responses, pending, !hasState); err != nil {
			return err
		}
	}
	c.input.Store(d)
	return nil
}

// readResponses takes the answers to the questions that are open and no other. Without a state nobody knows which are: a client that dropped it starts
// over, and its answers count for the questions with these keys.
func (rd *inputRound) readResponses(responses []byte, pending map[string]pendingRequest, unbound bool) error {
	seen := make(map[string]struct{})
	members := jsonwire.ObjectMembers(responses)
	for members.Next() {
		key := members.KeyString()
		if _, twice := seen[key]; twice {
			return invalidParams("params.inputResponses[%q] stands there twice", clip(key))
		}
		seen[key] = struct{}{}
		asked, expected := pending[key]
		if !expected && !unbound {
			continue
		}
		if expected {
			if err := checkResponse(asked.Feature, members.Value()); err != nil {
				return invalidResponse(key, err)
			}
		}
		rd.answers[key] = &inputResponse{digest: asked.Digest, unbound: unbound, text: bytes.Clone(members.Value())}
	}
	return nil
}

// checkResponse looks at an answer as far as it can be judged before the handler runs.
func checkResponse(f ClientFeature, text []byte) error {
	switch f {
	case FormElicitation, URLElicitation:
		_, err := readElicitResult(text)
		return err
	case Sampling, SamplingTools:
		return new(mcp.CreateMessageResult).UnmarshalJSON(text)
	case Roots:
		return new(mcp.ListRootsResult).UnmarshalJSON(text)
	}
	return nil
}

// respond implements asker: as long as there are open questions the answer is these, whatever the handler made of it.
func (rd *inputRound) respond(d *inputState, r *jsonrpc.Request, head, out []byte, err error) ([]byte, error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	switch opts := &rd.call.session.srv.opts; {
	case rd.handlerErr != nil:
		return head, rd.wireErr
	case len(rd.pending) == 0:
		return out, err
	case rd.rounds >= opts.MaxRounds:
		return head, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s still has questions after it was answered %d times; the limit is Options.MaxRounds",
			clip(rd.call.name), rd.rounds)
	}
	state, err := rd.call.sealState(r, rd.requestState(d))
	if err != nil {
		return head, err
	}
	dst := append(head, `{"inputRequests":{`...)
	for i, q := range rd.pending {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, q.key)
		dst = append(jsonwire.AppendQuote(append(dst, `:{"method":`...), q.method), `,"params":`...)
		if q.params == nil {
			dst = append(dst, `{}}`...)
		} else {
			dst = append(append(dst, q.params...), '}')
		}
	}
	dst = append(append(append(dst, `},"requestState":"`...), state...), '"')
	return rd.call.session.srv.results.EndAs(dst, rd.call.ex.Features, mcp.ResultTypeInputRequired), nil
}

// requestState returns what the next round has to know.
func (rd *inputRound) requestState(d *inputState) *requestState {
	m := &requestState{
		Rounds:  rd.rounds + 1,
		Answers: make(map[string]savedResponse),
		Open:    make(map[string]pendingRequest),
		Once:    d.onceValues(),
	}
	for key, got := range rd.answers {
		if !got.unbound { // else it was not asked for
			m.Answers[key] = savedResponse{got.digest, got.text}
		}
	}
	for _, q := range rd.pending {
		m.Open[q.key] = pendingRequest{q.digest(), q.feature}
	}
	return m
}
