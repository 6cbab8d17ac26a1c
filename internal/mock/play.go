package mock

import (
	"context"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A play is one request of a client, on its way to the answer.
type play struct {
	peer   *peer
	id     jsonrpc.ID
	swap   jsonrpc.ID // the id that the answer has by a fault
	method string
	modern bool
	token  []byte           // of progress; nil if the client wants none
	level  mcp.LoggingLevel // of a modern request

	// What becomes of it is one of these.
	entry *entry
	err   *jsonrpc.Error
	empty bool // {} is the answer

	missed bool
	faults []*Fault

	ctx    context.Context
	cancel context.CancelFunc
	out    jsonrpc.Outlet // takes what precedes the answer
	mute   bool           // nothing can precede it, but on another stream
	wire   *wire          // of HTTP, if faults may concern it
	asked  map[string]jsonrpc.ID
}

// end forgets the request. It must be called once.
func (a *play) end() {
	a.cancel()
	a.peer.mu.Lock()
	delete(a.peer.plays, a)
	a.peer.mu.Unlock()
}

// quick reports whether the answer comes without waiting for anything.
func (a *play) quick() bool {
	if slices.ContainsFunc(a.faults, (*Fault).waits) {
		return false
	}
	if a.entry == nil {
		return true
	}
	o := &a.peer.srv.opts
	if o.Latency.Keep || o.Latency.Fixed > 0 || !a.entry.done && a.entry.status == 0 || a.entry.isListen() {
		return false
	}
	for i := range a.entry.steps {
		if a.entry.steps[i].ask {
			return false
		}
	}
	return true
}

// run plays the request, and returns the answer. The error says that there is none.
func (a *play) run() ([]byte, error) {
	if a.refuse() {
		return nil, errEnded
	}
	if e := a.faultError(); e != nil {
		a.entry, a.err, a.empty = nil, e, false
	}
	if a.entry != nil {
		if err := a.precede(); err != nil {
			return nil, err
		}
	}
	answer, err := a.answer()
	if err != nil {
		return nil, err
	}
	if answer, err = a.spoil(answer); err != nil {
		return nil, err
	}
	if a.missed && a.peer.srv.opts.Strict {
		a.peer.srv.stop(ErrMissed)
	}
	return answer, nil
}

// precede sends what precedes the answer, and waits as long as the server took.
func (a *play) precede() error {
	keep := a.peer.srv.opts.Latency
	for i := range a.entry.steps {
		s := &a.entry.steps[i]
		if keep.Keep {
			if err := a.wait(s.gap); err != nil {
				return err
			}
		}
		to := a.out
		if s.aside {
			to = a.peer.out
		}
		if err := a.step(s, to); err != nil {
			return err
		}
	}
	if keep.Keep {
		return a.wait(a.entry.gap)
	}
	return a.wait(keep.Fixed)
}

// answer returns the text of the answer, or waits until nobody wants it any more.
func (a *play) answer() ([]byte, error) {
	id := a.id
	switch {
	case a.err != nil:
		return jsonrpc.AppendError(nil, id, a.err, false), nil
	case a.empty:
		return jsonrpc.AppendResult(nil, id, []byte("{}")), nil
	case a.entry.isListen():
		a.hold() // it has an answer only when the server ends
		if a.entry.done && a.ctx.Err() == nil {
			return withSubscription(nil, a.entry.answer.append(nil, id), id), nil
		}
		return nil, errEnded
	case a.entry.done:
		return a.entry.answer.append(nil, id), nil
	case a.entry.status != 0:
		e := jsonrpc.Errorf(jsonrpc.CodeInternalError, "when this was recorded, HTTP refused it with status %d, without an answer", a.entry.status)
		return jsonrpc.AppendError(nil, id, e, false), nil
	}
	a.peer.srv.opts.Logger.Info("the capture has no answer to this, so none is given", "n", a.entry.n, "method", clip(a.method, 128))
	a.hold()
	return nil, errEnded
}

// hold waits until nobody wants an answer any more.
func (a *play) hold() {
	select {
	case <-a.ctx.Done():
	case <-a.peer.quiet.Done():
	}
}

// wait waits, unless the request ends.
func (a *play) wait(d time.Duration) error { return waitFor(a.ctx, d) }

func waitFor(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return errEnded
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return errEnded
	}
}

// step sends one recorded message, and waits for the answer to a question. The error says that the request has ended.
func (a *play) step(s *step, to jsonrpc.Outlet) error {
	if s.ask {
		return a.question(s, to)
	}
	text := a.notice(s)
	if text == nil {
		return nil
	}
	if err := to.Send(text); err != nil && a.ctx.Err() != nil {
		return errEnded
	}
	return nil
}

// notice returns the text of a notification, nil if this client is not to have it.
func (a *play) notice(s *step) []byte {
	text := s.text.append(nil, nil)
	switch s.method {
	case mcp.NotificationProgress:
		token := a.token
		if s.of != nil && s.of != a.entry {
			a.peer.mu.Lock()
			token = a.peer.tokens[s.of]
			a.peer.mu.Unlock()
		}
		if token == nil {
			return nil
		}
		return withToken(nil, text, token)
	case mcp.NotificationMessage:
		level, _ := mcp.ParseLoggingLevel(era.LookupString(text, "params", "level"))
		if a.modern && (a.level == mcp.LevelNone || level < a.level) || !a.modern && !a.peer.hears(level) {
			return nil
		}
	case mcp.NotificationCancelled:
		if s.cancels == "" {
			return text
		}
		id := a.asked[s.cancels]
		if id == nil {
			return nil
		}
		return withMember(nil, text, id, "params", "requestId")
	}
	if a.entry != nil && a.entry.isListen() {
		return withSubscription(nil, text, a.id)
	}
	return text
}

// question asks the client what the server asked.
func (a *play) question(s *step, to jsonrpc.Outlet) error {
	log, p := a.peer.srv.opts.Logger, a.peer
	text := s.text.append(nil, jsonrpc.ID("0"))
	if name := p.missing(s.method, era.Lookup(text, "params")); name != "" {
		log.Warn("a question is left out, because the client did not declare what it takes", "n", s.n, "method", s.method, "capability", name)
		return nil
	}
	answer, id, err := p.ask(to, &s.text)
	if err != nil {
		log.Debug("a question was not sent", "n", s.n, "error", err)
		return nil
	}
	if a.asked == nil {
		a.asked = map[string]jsonrpc.ID{}
	}
	a.asked[s.asked] = id
	if !s.told {
		p.forget(id)
		return nil // the client did not answer when it was recorded
	}
	defer p.forget(id)
	t := time.NewTimer(p.srv.opts.AskTimeout)
	defer t.Stop()
	select {
	case m := <-answer:
		if m.Kind == jsonrpc.KindError {
			log.Warn("the client answers an error to a recorded question; the recorded answer is given all the same", "n", s.n, "method", s.method, "error", clip(m.Err().Message, 256))
		}
	case <-t.C:
		log.Warn("the client does not answer a recorded question; the recorded answer is given all the same", "n", s.n, "method", s.method)
	case <-a.ctx.Done():
		return errEnded
	case <-p.quiet.Done():
		return errEnded
	}
	return nil
}
