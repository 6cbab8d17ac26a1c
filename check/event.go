package check

import (
	"errors"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// event has the rules look at an event, and takes note of what it says.
func (k *Checker) event(v *view) {
	e := v.e
	switch e.Kind {
	case capture.KindRequest:
		if v.x != nil {
			v.x.open(e)
		}
	case capture.KindResponse:
		if v.x != nil {
			v.x.respond(e)
		}
	case capture.KindMessage:
		k.frame(v)
		return
	}
	if v.x != nil && v.x.sess == nil && e.Kind == capture.KindRequest && v.x.method == "POST" && v.x.header("Mcp-Session-Id") == "" {
		k.facts(v) // whose it is, the body will tell
		return
	}
	v.sess = k.resolve(e, v.x, nil)
	v.sess.lastN = e.N
	v.rev, v.modern = k.eventRevision(v)
	k.facts(v)
	k.note(v)
}

// facts has the rules and the observers look at an event that holds no message.
func (k *Checker) facts(v *view) {
	if v.sess == nil {
		return
	}
	for _, r := range k.plan.events[v.e.Kind] {
		if (r.dir == "" || r.dir == v.e.Dir) && r.holds(v.rev) {
			k.run(v, r, r.check)
		}
	}
	for i := range k.plan.observers {
		o := &k.plan.observers[i]
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
func (k *Checker) eventRevision(v *view) (mcp.Revision, bool) {
	if v.x != nil && k.opts.Revision == mcp.RevisionNone {
		if v.x.call != nil {
			return v.x.call.rev, v.x.call.modern
		}
		if r, ok := mcp.ParseRevision(v.x.header("MCP-Protocol-Version")); ok {
			return r, era.Of(r).Modern
		}
	}
	return k.revisionOf(v.sess)
}

// note keeps what an event without a message says.
func (k *Checker) note(v *view) {
	e, s := v.e, v.sess
	switch e.Kind {
	case capture.KindResponse:
		if id := v.x.reply("Mcp-Session-Id"); id != "" && v.x.call != nil && v.x.call.method == mcp.MethodInitialize {
			k.named(s, id)
		}
	case capture.KindSSE:
		if v.x != nil {
			v.x.events++
		}
		if v.x != nil && e.SSE.Event == "endpoint" && v.x.method == "GET" {
			k.endpoint(v.x, e)
		}
	case capture.KindEOF:
		s.ended[e.Dir] = e.N
		if e.Dir == capture.ToServer {
			s.closedT = e.T
		}
	case capture.KindExit:
		s.exited = e.N
	case capture.KindStart:
		k.restart(s)
	case capture.KindEnd:
		if v.x != nil {
			k.end(e, v.x)
		}
	case capture.KindBad, capture.KindBody:
		if e.Cut {
			s.lostAt = max(s.lostAt, e.N)
		}
	}
}

// restart is for a server that is started again behind the same pipe: what waited is lost, the ids of before may come again, and what the client knows of the server stays.
func (k *Checker) restart(s *session) {
	if s.exited != 0 || s.messages > 0 {
		s.lostAt, s.restarted = max(s.lostAt, s.exited), true
		for _, c := range s.open {
			if s.exited == 0 || c.n < s.exited {
				k.shut(s, c)
			}
		}
		if len(s.open) == 0 { // else what was sent in between pairs with an answer of the new process
			k.numbered++
			s.number = k.numbered
		}
	}
	s.exited = 0
	clear(s.ended)
}

// end is for an HTTP exchange that is over. A modern request has no other way to its response, and a status of refusal is the answer to a legacy one: its body may have no
// id, or be no JSON.
func (k *Checker) end(e *capture.Event, x *exchange) {
	if c := x.call; c != nil && (c.modern || x.status >= 300) && !x.answered && x.sess != nil {
		k.shut(x.sess, c)
	}
	delete(k.exchanges, exchangeKey{e.Capture, e.Exchange})
}

// frame takes the bytes of a message.
func (k *Checker) frame(v *view) {
	e := v.e
	if err := jsonwire.Valid(e.Data, 0); e.Cut || err != nil {
		v.sess = k.resolve(e, v.x, nil)
		v.sess.lastN = e.N
		if syntax, ok := errors.AsType[*jsonwire.SyntaxError](err); e.Cut || ok && syntax.Depth {
			v.sess.lostAt = max(v.sess.lostAt, e.N)
			return
		}
		bad := *e
		bad.Kind = capture.KindBad
		v.e = &bad
		v.rev, v.modern = k.eventRevision(v)
		k.facts(v)
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
		k.message(v, &m)
		return
	}
	k.batch(v, data)
}

// batch takes the messages of an array.
func (k *Checker) batch(v *view, data []byte) {
	root := v.root
	any := false
	for i, raw := range elements(data) {
		if i >= maxBatch {
			if v.sess != nil {
				v.sess.lostAt = max(v.sess.lostAt, v.e.N)
			}
			break
		}
		any = true
		m := parseMessage(raw)
		m.batch, m.index = true, i
		if v.root = root; root != "" {
			v.root += pointer(i)
		}
		k.message(v, &m)
	}
	if !any {
		m := message{kind: kindOther, raw: data, batch: true}
		k.message(v, &m)
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

// message has the rules look at a message, and takes note of it.
func (k *Checker) message(v *view, m *message) {
	v.msg, v.call, v.shape, v.shaped = m, nil, nil, false
	v.badKnown = v.badKnown && m.index > 0
	v.sess = k.resolve(v.e, v.x, m)
	v.sess.lastN = v.e.N
	v.sess.messages++
	pair := k.pair(v)
	if m.is(kindResponse) && pair != nil {
		if v.call = k.calls[pair]; v.call != nil && v.call.listed != v.sess.tools.changes {
			v.call.tool = nil // it may have changed while the call was under way
		}
	}
	v.rev, v.modern = k.revisionFor(v)
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
	for _, r := range k.plan.rulesFor(m.kind, method, v.e.Dir) {
		if r.holds(v.rev) {
			k.run(v, r, r.check)
		}
	}
	k.remember(v, method)
}

// pair finds the call that a message makes or answers.
func (k *Checker) pair(v *view) *capture.Call {
	if !v.msg.paired() {
		return nil
	}
	k.scratch = v.msg.normal(k.scratch[:0])
	e := capture.Event{
		Kind: capture.KindMessage, N: v.e.N, T: v.e.T, Dir: v.e.Dir, Session: v.sess.number, Exchange: v.e.Exchange, Data: k.scratch,
	}
	for _, p := range k.pairer.Add(&e) {
		return p.Call
	}
	return nil
}

// elapsed is how much of the recording came behind a time in it.
func (r *recording) elapsed(t time.Duration) time.Duration { return time.Duration(r.lastT) - t }
