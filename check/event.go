package check

import (
	"errors"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// handleEvent has the rules look at an event, and takes note of what it says.
func (ck *Checker) handleEvent(v *view) {
	e := v.e
	switch e.Kind {
	case capture.KindRequest:
		if v.exchange != nil {
			v.exchange.setRequest(e)
		}
	case capture.KindResponse:
		if v.exchange != nil {
			v.exchange.setResponse(e)
		}
	case capture.KindMessage:
		ck.handleFrame(v)
		return
	}
	if v.exchange != nil && v.exchange.session == nil && e.Kind == capture.KindRequest && v.exchange.method == "POST" && v.exchange.requestHeader("Mcp-Session-Id") == "" {
		ck.runEventRules(v) // whose it is, the body will tell
		return
	}
	v.session = ck.resolve(e, v.exchange, nil)
	v.session.lastN = e.N
	v.rev, v.modern = ck.eventRevision(v)
	ck.runEventRules(v)
	ck.rememberEvent(v)
}

// runEventRules has the rules and the observers look at an event that holds no message.
func (ck *Checker) runEventRules(v *view) {
	if v.session == nil {
		return
	}
	for _, r := range ck.rules.events[v.e.Kind] {
		if (r.dir == "" || r.dir == v.e.Dir) && r.appliesTo(v.rev) {
			ck.runRule(v, r, r.check)
		}
	}
	for i := range ck.rules.observers {
		o := &ck.rules.observers[i]
		if (o.dir == "" || o.dir == v.e.Dir) && hasKind(o.events, v.e.Kind) {
			o.observe(v)
		}
	}
}

func hasKind(list []capture.Kind, kind capture.Kind) bool {
	for _, k := range list {
		if k == kind {
			return true
		}
	}
	return false
}

// eventRevision returns what an event without a message is held against.
func (ck *Checker) eventRevision(v *view) (mcp.Revision, bool) {
	if v.exchange != nil && ck.opts.Revision == mcp.RevisionNone {
		if v.exchange.call != nil {
			return v.exchange.call.rev, v.exchange.call.modern
		}
		if r, ok := mcp.ParseRevision(v.exchange.requestHeader("MCP-Protocol-Version")); ok {
			return r, era.Of(r).Modern
		}
	}
	return ck.revisionOf(v.session)
}

// rememberEvent keeps what an event without a message says.
func (ck *Checker) rememberEvent(v *view) {
	e, s := v.e, v.session
	switch e.Kind {
	case capture.KindResponse:
		if id := v.exchange.responseHeader("Mcp-Session-Id"); id != "" && v.exchange.call != nil && v.exchange.call.method == mcp.MethodInitialize {
			ck.setSessionID(s, id)
		}
	case capture.KindSSE:
		if v.exchange != nil {
			v.exchange.events++
		}
		if v.exchange != nil && e.SSE.Event == "endpoint" && v.exchange.method == "GET" {
			ck.addEndpoint(v.exchange, e)
		}
	case capture.KindEOF:
		s.ended[e.Dir] = e.N
		if e.Dir == capture.ToServer {
			s.clientClosedT = e.T
		}
	case capture.KindExit:
		s.exited = e.N
	case capture.KindStart:
		ck.restart(s)
	case capture.KindEnd:
		if v.exchange != nil {
			ck.endExchange(e, v.exchange)
		}
	case capture.KindInvalid, capture.KindBody:
		if e.Cut {
			s.lostAt = max(s.lostAt, e.N)
		}
	}
}

// restart is for a server that is started again behind the same pipe: what waited is lost, the ids of before may come again, and what the client knows of the server stays.
func (ck *Checker) restart(s *session) {
	if s.exited != 0 || s.messages > 0 {
		s.lostAt, s.restarted = max(s.lostAt, s.exited), true
		for _, c := range s.calls {
			if s.exited == 0 || c.n < s.exited {
				ck.removeCall(s, c)
			}
		}
		if len(s.calls) == 0 { // else what was sent in between pairs with an answer of the new process
			ck.sessionCount++
			s.number = ck.sessionCount
		}
	}
	s.exited = 0
	clear(s.ended)
}

// endExchange is for an HTTP exchange that is over. A modern request has no other way to its response, and a status of refusal is the answer to a legacy one: its body may have no
// id, or be no JSON.
func (ck *Checker) endExchange(e *capture.Event, x *exchange) {
	if c := x.call; c != nil && (c.modern || x.status >= 300) && !x.answered && x.session != nil {
		ck.removeCall(x.session, c)
	}
	delete(ck.exchanges, exchangeKey{e.Capture, e.Exchange})
}

// handleFrame takes the bytes of a message.
func (ck *Checker) handleFrame(v *view) {
	e := v.e
	if err := jsonwire.Valid(e.Data, 0); e.Cut || err != nil {
		v.session = ck.resolve(e, v.exchange, nil)
		v.session.lastN = e.N
		if syntax, ok := errors.AsType[*jsonwire.SyntaxError](err); e.Cut || ok && syntax.Depth {
			v.session.lostAt = max(v.session.lostAt, e.N)
			return
		}
		bad := *e
		bad.Kind = capture.KindInvalid
		v.e = &bad
		v.rev, v.modern = ck.eventRevision(v)
		ck.runEventRules(v)
		return
	}
	data := trim(e.Data)
	root := "/msg"
	if hasPrefixIn(e.Redacted, "/raw") || hasPrefixIn(e.Redacted, "/b64") {
		root = "" // where it is hidden is not known
	}
	v.root = root
	if !isArray(data) {
		m := parseMessage(data)
		ck.handleMessage(v, &m)
		return
	}
	ck.handleBatch(v, data)
}

// handleBatch takes the messages of an array.
func (ck *Checker) handleBatch(v *view, data []byte) {
	root := v.root
	any := false
	for i, raw := range elements(data) {
		if i >= maxBatch {
			if v.session != nil {
				v.session.lostAt = max(v.session.lostAt, v.e.N)
			}
			break
		}
		any = true
		m := parseMessage(raw)
		m.batch, m.index = true, i
		if v.root = root; root != "" {
			v.root += pointer(i)
		}
		ck.handleMessage(v, &m)
	}
	if !any {
		m := message{kind: kindOther, raw: data, batch: true}
		ck.handleMessage(v, &m)
	}
}

const maxBatch = 1000

func hasPrefixIn(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func trim(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// handleMessage has the rules look at a message, and takes note of it.
func (ck *Checker) handleMessage(v *view, m *message) {
	v.msg, v.call, v.shapeFindings, v.shapeChecked = m, nil, nil, false
	v.invalidKnown = v.invalidKnown && m.index > 0
	v.session = ck.resolve(v.e, v.exchange, m)
	v.session.lastN = v.e.N
	v.session.messages++
	pair := ck.pair(v)
	if m.is(kindResponse) && pair != nil {
		if v.call = ck.calls[pair]; v.call != nil && v.call.listed != v.session.tools.changes {
			v.call.tool = nil // it may have changed while the call was under way
		}
	}
	v.rev, v.modern = ck.revisionFor(v)
	if m.is(kindRequest) {
		v.call = newCall(v)
		v.call.pair = pair
	}
	method := m.method
	if m.is(kindResponse) {
		method = ""
		if v.call != nil {
			method = v.call.method
		}
	}
	for _, r := range ck.rules.rulesFor(m.kind, method, v.e.Dir) {
		if r.appliesTo(v.rev) {
			ck.runRule(v, r, r.check)
		}
	}
	ck.rememberMessage(v, method)
}

// pair finds the call that a message makes or answers.
func (ck *Checker) pair(v *view) *capture.Call {
	if !v.msg.paired() {
		return nil
	}
	ck.scratch = v.msg.appendPairable(ck.scratch[:0])
	e := capture.Event{
		Kind: capture.KindMessage, N: v.e.N, T: v.e.T, Dir: v.e.Dir, Session: v.session.number, Exchange: v.e.Exchange, Data: ck.scratch,
	}
	for _, p := range ck.pairer.Add(&e) {
		return p.Call
	}
	return nil
}

// elapsed is how much of the recording came behind a time in it.
func (r *captureState) elapsed(t time.Duration) time.Duration { return time.Duration(r.lastT) - t }
