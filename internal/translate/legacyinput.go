package translate

import (
	"bytes"
	"fmt"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxInputs = 100     // that one result may ask for
	maxKey    = 1 << 10 // bytes of what one is known by
	firstWait = 100 * time.Millisecond
	longWait  = 10 * time.Second
)

// An ask is a question of a modern server that the client gets as a request.
type ask struct {
	era.Ask
	id     int64
	key    []byte // in inputRequests, between the quotes
	page   string // elicitationId, for a URL
	req    *request
	answer []byte
	done   func(a *ask, e *jsonrpc.Error)
	giveUp *timer
}

// inputRequired asks the client what the server wants to know before it answers.
func (t *LegacyClient) inputRequired(r *request, result []byte) {
	r.round++
	r.inputs, r.state, r.marks = nil, nil, nil
	if v := era.Lookup(result, "requestState"); v != nil {
		if v[0] != '"' || !t.keep(len(v)) {
			t.fail(r, internal("the server's requestState is none"), "refused")
			return
		}
		r.size += len(v)
		r.state = bytes.Clone(v)
	}
	if r.round > t.opts.Limits.Rounds {
		t.fail(r, internal("the server asked more than %d times", t.opts.Limits.Rounds), "refused")
		return
	}
	asks, err := t.readAsks(r, era.Lookup(result, "inputRequests"))
	switch {
	case err != nil:
		t.fail(r, internal("the client cannot be asked: %s", err), "refused")
	case len(asks) > 0:
		r.asks, r.open = asks, len(asks)
		for _, a := range asks {
			a.done = t.roundAnswered
			t.ask(a, "input_required → "+a.Method)
		}
	case r.state == nil:
		t.fail(r, internal("the server requires input and does not say which"), "refused")
	default: // the server is busy, or wants the request elsewhere
		wait := firstWait << min(r.round-1, 10)
		r.pause = t.after(min(wait, longWait), func() { t.forward(r) })
		t.drop("input_required → again later")
	}
}

// readAsks takes inputRequests apart, as the client is asked for them.
func (t *LegacyClient) readAsks(r *request, requests []byte) ([]*ask, error) {
	if requests == nil {
		return nil, nil
	}
	if !era.IsObject(requests) {
		return nil, fmt.Errorf("inputRequests is no object")
	}
	var asks []*ask
	members := jsonwire.ObjectMembers(requests)
	for members.Next() {
		a, err := t.readAsk(r, members.RawKey(), members.Value())
		if err != nil {
			return nil, err
		}
		if asks = append(asks, a); len(asks) > maxInputs || len(asks)+len(t.asks) > t.opts.Limits.Asks {
			return nil, fmt.Errorf("it is asked too much at once")
		}
	}
	return asks, nil
}

func (t *LegacyClient) readAsk(r *request, key, text []byte) (*ask, error) {
	question := era.Ask{Method: era.LookupString(text, "method")}
	if p := era.Lookup(text, "params"); era.IsObject(p) {
		question.Params = p
	}
	if len(key) > maxKey {
		return nil, fmt.Errorf("a key of inputRequests is longer than %d bytes", maxKey)
	}
	if !era.IsAsk(question.Method) {
		return nil, fmt.Errorf("there is no input request %q", clip(question.Method))
	}
	if _, missing := question.Missing(&era.Client{Capabilities: t.client}, t.legacy); missing != "" {
		return nil, fmt.Errorf("it has not declared %s", missing)
	}
	a := &ask{key: bytes.Clone(key), req: r}
	if question.URL() {
		a.page = t.opts.NewID()
	}
	var err error
	a.Ask, err = question.Convert(t.legacy, a.page)
	return a, err
}

// ask sends the client a question.
func (t *LegacyClient) ask(a *ask, rule string) {
	t.askIDs++
	a.id = t.askIDs
	t.asks[a.id] = a
	a.giveUp = t.after(t.opts.Limits.HoldFor, func() {
		t.withdrawOne(a, "no answer in time")
		t.unanswered(a, internal("the user gave no answer to %s in time", a.Method))
	})
	t.emit(Out{To: Near, Stream: a.req.stream, Message: jsonrpc.AppendRequest(nil, jsonrpc.IntID(a.id), a.Method, a.Params), Rule: rule})
	a.Params = keepMode(&a.Ask)
}

// keepMode forgets all of a question that was sent but what its answer is judged by.
func keepMode(a *era.Ask) []byte {
	if a.URL() {
		return []byte(`{"mode":"url"}`)
	}
	return nil
}

// nearAnswer takes the client's answer to a question.
func (t *LegacyClient) nearAnswer(m *jsonrpc.Message) {
	id, _ := callID(m.ID)
	a := t.asks[id]
	if a == nil {
		t.drop("answers nothing that is open")
		return
	}
	delete(t.asks, id)
	t.later.stop(a.giveUp)
	if m.Kind == jsonrpc.KindError {
		e := m.Err()
		t.drop("an error cannot answer " + a.Method)
		t.unanswered(a, internal("the server needs %s, which the client refused: %s (code %d)", a.Method, clip(e.Message), int(e.Code)))
		return
	}
	if err := a.CheckAnswer(m.Result); err != nil {
		t.drop("malformed answer")
		a.done(a, internal("the client's answer is %s", err))
		return
	}
	a.answer = a.Answer(m.Result, t.modern)
	a.req.marks = append(a.req.marks, t.mark)
	if !t.keep(len(a.answer)) {
		a.done(a, errTooMuch)
		return
	}
	a.req.size += len(a.answer)
	a.done(a, nil)
}

// unanswered says to the server that the user has cancelled. What is no question to a user has no such answer, and fails the request.
func (t *LegacyClient) unanswered(a *ask, e *jsonrpc.Error) {
	if a.Method == mcp.MethodElicit {
		a.answer, e = []byte(`{"action":"cancel"}`), nil
	}
	a.done(a, e)
}

// roundAnswered sends the request again when all answers of a round are there.
func (t *LegacyClient) roundAnswered(a *ask, e *jsonrpc.Error) {
	r := a.req
	if r.over {
		return
	}
	r.open--
	if e != nil {
		t.withdraw(r, "another question of the same request was refused")
		t.fail(r, e, "refused")
		return
	}
	if a.page != "" && era.LookupString(a.answer, "action") == "accept" {
		r.pages = append(r.pages, a.page)
	}
	if r.open > 0 {
		t.drop("waits for the other answers")
		return
	}
	inputs := []byte{'{'}
	for i, a := range r.asks {
		if i > 0 {
			inputs = append(inputs, ',')
		}
		inputs = append(append(append(append(inputs, '"'), a.key...), `":`...), a.answer...)
	}
	r.inputs = append(inputs, '}')
	r.asks = nil
	t.forward(r)
}

// withdraw tells the client that it need not answer the questions of a request any more.
func (t *LegacyClient) withdraw(r *request, reason string) {
	for _, a := range r.asks {
		if t.asks[a.id] == a {
			t.withdrawOne(a, reason)
		}
	}
	r.asks, r.open = nil, 0
}

func (t *LegacyClient) withdrawOne(a *ask, reason string) {
	delete(t.asks, a.id)
	t.later.stop(a.giveUp)
	name, params := era.Cancellation{}.Notice(jsonrpc.IntID(a.id), a.Method, reason)
	t.emit(Out{To: Near, Stream: a.req.stream, Message: jsonrpc.AppendNotification(nil, name, params), Rule: "cancelled"})
}

// pagesDone tells the client that the user is done with the pages that were opened for a request.
func (t *LegacyClient) pagesDone(r *request) {
	if t.legacy.ElicitationIDs {
		for _, page := range r.pages {
			params := append(jsonwire.AppendQuote([]byte(`{"elicitationId":`), page), '}')
			t.emit(Out{To: Near, Stream: r.stream, Message: jsonrpc.AppendNotification(nil, mcp.NotificationElicitationComplete, params), Rule: "the request goes on"})
		}
	}
	r.pages = nil
}
