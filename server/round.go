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
type round struct {
	call *Call

	mu      sync.Mutex
	number  int                // how often the client was asked in the rounds before
	answers map[string]*answer // by key
	pending []*question
	bad     error // an answer that this request brought cannot be used: what the handler was told, and
	badWire error // what the client is told
}

// An answer is what the client said to the question with that digest. One that came without a state is to whatever is asked first under its key.
type answer struct {
	digest digest
	loose  bool // there is no digest
	text   json.RawMessage
}

// ask implements asker. An answer counts only for the question that it was given to: if a handler that runs again asks something else under the same
// key, what the user agreed to is not what would be done, so the client is asked again.
func (a *round) ask(_ context.Context, questions []*question) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bad != nil {
		return a.bad
	}
	missing := false
	for _, q := range questions {
		got := a.answers[q.key]
		if got != nil && !got.loose && got.digest != q.digest() {
			a.call.Logger().Warn("a question changed since it was answered, and is asked again", "key", clip(q.key))
			delete(a.answers, q.key)
			got = nil
		}
		if got == nil {
			a.pending = append(a.pending, q)
			missing = true
			continue
		}
		if err := q.take(got.text); err != nil {
			a.bad, a.badWire = q.bad(err), badResponse(q.key, err)
			return a.bad
		}
		got.digest, got.loose = q.digest(), false
	}
	if missing {
		return ErrInputRequired
	}
	return nil
}

func badResponse(key string, err error) error {
	return invalidParams("params.inputResponses[%q]: %v", clip(key), err)
}

// resume takes up what the client brings of earlier rounds. It comes before anything of the handler runs.
func (c *Call) resume(r *jsonrpc.Request) error {
	var before seal.Stamp
	if c.talk.Load() != nil { // a middleware has the request handled more than once
		if d := c.talk.Swap(nil); d != nil {
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
	a := &round{call: c, answers: make(map[string]*answer)}
	d := newDialogue(a)
	var open map[string]openQuestion
	if hasState {
		m, stamp, err := c.openState(r, unquote(state), before)
		if err != nil {
			return err
		}
		a.number, open, d.stamp = m.Rounds, m.Open, stamp
		for key, got := range m.Answers {
			a.answers[key] = &answer{digest: got.Digest, text: got.Text}
		}
		for key, value := range m.Once {
			d.memos[key] = remembered(value)
		}
	}
	if hasResponses {
		if err := a.takeResponses(responses, open, !hasState); err != nil {
			return err
		}
	}
	c.talk.Store(d)
	return nil
}

// takeResponses takes the answers to the questions that are open and no other. Without a state nobody knows which are: a client that dropped it starts
// over, and its answers count for the questions with these keys.
func (a *round) takeResponses(responses []byte, open map[string]openQuestion, loose bool) error {
	seen := make(map[string]struct{})
	members := jsonwire.ObjectMembers(responses)
	for members.Next() {
		key := members.KeyString()
		if _, twice := seen[key]; twice {
			return invalidParams("params.inputResponses[%q] stands there twice", clip(key))
		}
		seen[key] = struct{}{}
		asked, wanted := open[key]
		if !wanted && !loose {
			continue
		}
		if wanted {
			if err := checkAnswer(asked.Feature, members.Value()); err != nil {
				return badResponse(key, err)
			}
		}
		a.answers[key] = &answer{digest: asked.Digest, loose: loose, text: bytes.Clone(members.Value())}
	}
	return nil
}

// checkAnswer looks at an answer as far as it can be judged before the handler runs.
func checkAnswer(f ClientFeature, text []byte) error {
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

// settle implements asker: as long as there are open questions the answer is these, whatever the handler made of it.
func (a *round) settle(d *dialogue, r *jsonrpc.Request, head, out []byte, err error) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch opts := &a.call.session.srv.opts; {
	case a.bad != nil:
		return head, a.badWire
	case len(a.pending) == 0:
		return out, err
	case a.number >= opts.MaxRounds:
		return head, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s still has questions after it was answered %d times; the limit is Options.MaxRounds",
			clip(a.call.name), a.number)
	}
	state, err := a.call.sealState(r, a.memory(d))
	if err != nil {
		return head, err
	}
	dst := append(head, `{"inputRequests":{`...)
	for i, q := range a.pending {
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
	return a.call.session.srv.identity.EndAs(dst, a.call.ex.Features, mcp.ResultTypeInputRequired), nil
}

// memory returns what the next round has to know.
func (a *round) memory(d *dialogue) *memory {
	m := &memory{
		Rounds:  a.number + 1,
		Answers: make(map[string]savedAnswer),
		Open:    make(map[string]openQuestion),
		Once:    d.remember(),
	}
	for key, got := range a.answers {
		if !got.loose { // else it was not asked for
			m.Answers[key] = savedAnswer{got.digest, got.text}
		}
	}
	for _, q := range a.pending {
		m.Open[q.key] = openQuestion{q.digest(), q.feature}
	}
	return m
}
