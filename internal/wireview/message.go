package wireview

import (
	"time"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const methodToolsCall = mcp.MethodToolsCall

// message takes an event with a message, or several.
func (m *Model) message(s *Session, e *capture.Event) {
	parts := m.pairer.Add(e)
	if len(parts) == 0 {
		m.invalid(s, e)
		return
	}
	x := m.exchange(s, e.Exchange)
	if x != nil && x.http.Stream && e.Dir == capture.ToClient {
		x.http.streamed(e.N)
	}
	var msg jsonrpc.Message
	var entries []jsonrpc.Entry
	if parts[0].Batch {
		entries, _ = jsonrpc.ParseBatch(e.Data, 0)
	} else {
		_ = jsonrpc.Parse(e.Data, &msg, 0)
	}
	for i := range parts {
		p := &parts[i]
		size := wireLen(e)
		this := &msg
		if p.Batch {
			if p.Index >= len(entries) {
				continue
			}
			this = &entries[p.Index].Message
			size /= int64(len(entries))
		}
		switch p.Kind {
		case jsonrpc.KindRequest:
			m.request(s, e, p, this, size, x)
		case jsonrpc.KindNotification:
			m.notification(s, e, this, size, x)
		default:
			m.response(s, e, p, this, size, x)
		}
	}
}

// invalid adds a row for what is no message, though it stands where one should.
func (m *Model) invalid(s *Session, e *capture.Event) {
	r := m.newRow(Invalid, s, e)
	r.Excerpt, r.RequestBytes = excerpt(e.Data), wireLen(e)
	x := m.exchange(s, e.Exchange)
	m.put(r, x.parent())
	m.attach(x, r)
}

func (m *Model) request(s *Session, e *capture.Event, p *capture.Part, msg *jsonrpc.Message, size int64, x *xchg) {
	r := m.newRow(Request, s, e)
	r.Method, r.ID, r.RequestBytes, r.Status = m.name(msg.Method), clip(string(p.ID), maxName), size, Pending
	f := m.requestFacts(r.Method, msg.Params)
	r.Target, r.Excerpt = f.target, f.excerpt
	if f.revision != "" && e.Dir == capture.ToServer {
		r.Revision = f.revision
		if s.Offered == "" {
			s.Offered = f.revision
		}
		f.peer.into(&s.Client)
	}
	if r.Method == mcp.MethodInitialize {
		s.offer(msg.Params, m)
	}
	parent := m.parentOfRequest(s, r, &f, x)
	m.put(r, parent)
	if r.Parent == nil || r.Parent != parent && r.Role != Asked { // it has made room, or is too deep inside
		r.Role = ""
	}
	m.attach(x, r)
	m.began(r, &f)
	if p.Call == nil { // it cannot be paired
		return
	}
	r.call = p.Call
	m.calls[p.Call] = r
	k := idKey{e.Dir, idText(p.ID)}
	s.pending[k] = r
	if e.Dir == capture.ToServer && r.Method != mcp.MethodPing && r.Method != mcp.MethodSubscriptionsListen {
		s.open[r] = struct{}{}
	}
	if f.token != "" {
		r.token = tokenKey{e.Dir, f.token}
		s.tokens[r.token] = r
	}
}

// began does what the beginning of a request means for others.
func (m *Model) began(r *Row, f *requestFacts) {
	st := m.stats.of(r)
	switch r.Role {
	case Retry:
		head := r.Parent
		c := head.Chain
		c.Rounds++
		c.Human += max(0, r.T-c.last)
		c.Wall = max(c.Wall, r.T-head.T)
		st.again(r)
	case Asked:
		for p := r.Parent; p != nil; p = p.Parent {
			if p.Done {
				continue
			}
			if p.asking++; p.asking == 1 {
				p.askedAt = r.T
			}
		}
		st.call(r)
	case Poll:
		if t := r.Parent.Task; t != nil {
			t.Polls++
		}
		st.call(r)
	default:
		st.call(r)
	}
	r.params = f.params
}

func (m *Model) response(s *Session, e *capture.Event, p *capture.Part, msg *jsonrpc.Message, size int64, x *xchg) {
	r := m.calls[p.Call]
	if p.Call == nil || r == nil {
		if p.Call != nil && p.Call.N > 0 && m.dropped > 0 {
			return // its request has made room
		}
		r = m.newRow(Response, s, e)
		r.ID, r.RequestBytes, r.Excerpt = clip(string(msg.ID), maxName), size, excerpt(e.Data)
		m.put(r, x.parent())
		m.attach(x, r)
		return
	}
	m.event(r, e.N)
	r.ResponseN, r.ResponseBytes = e.N, size
	switch {
	case r.Status == Unanswered:
		m.late(r)
	case r.Done: // cancelled, and answered all the same
		m.closed(r)
		m.changed(r)
		return
	}
	m.outcome(r, e, msg)
	m.ended(r, e.T)
	if x != nil && x.row == nil { // the client answers the server in an exchange of its own
		m.attachTo(x, r)
	}
	m.changed(r)
}

// late takes back that a request stays without an answer: there is one, by whoever speaks for a process that is gone.
func (m *Model) late(r *Row) {
	r.Human -= r.askingFor()
	r.until, r.Latency = 0, 0
	m.stats.of(r).unanswered(r)
}

// outcome takes what a response says.
func (m *Model) outcome(r *Row, e *capture.Event, msg *jsonrpc.Message) {
	r.Latency = max(0, e.T-r.T)
	if r.asking > 0 { // it did not wait for the client after all
		r.Human += max(0, e.T-r.askedAt)
		r.asking = 0
	}
	r.Human = min(r.Human, r.Latency)
	if msg.Kind == jsonrpc.KindError {
		r.Status = Failed
		r.Code, r.Message = errorFacts(msg.Error)
		if r.Code == int(mcp.CodeUnsupportedProtocolVersion) && r.Dir == capture.ToServer {
			r.Session.supports(jsonwire.Lookup(jsonwire.Lookup(msg.Error, "data"), "supported"), m)
		}
		return
	}
	f := m.resultFacts(r.Method, msg.Result)
	r.Facts = f.Facts
	r.Status = OK
	switch {
	case f.Kind == mcp.ResultTypeInputRequired:
		r.Status = InputRequired
		m.wait(r, e.T, f.state)
	case f.task != "" && r.Role != Poll:
		r.Status = TaskMade
		if r.Task == nil {
			r.Task = &Task{ID: clip(f.task, maxName), State: clip(f.taskState, maxName)}
			if key := (taskKey{r.Session.Side, r.Task.ID}); r.Capture.tasks[key] == nil {
				r.Capture.tasks[key] = r
			}
		}
	case f.isError:
		r.Status = ToolFailed
	}
	if r.Role == Poll {
		m.polled(r, e.T, &f)
	}
	switch r.Method {
	case mcp.MethodInitialize, mcp.MethodDiscover:
		r.Session.hello(r.Method, msg.Result, m)
	case mcp.MethodToolsList:
		m.stats.definitions(r, msg.Result)
	}
	if r.Revision != "" && r.Session.Era != Legacy && r.Method != mcp.MethodInitialize {
		r.Session.Era, r.Session.Answered = Modern, r.Revision
		f.peer.into(&r.Session.Server)
	}
}

// ended does what the end of a request means for others.
func (m *Model) ended(r *Row, at time.Duration) {
	r.Done = true
	m.closed(r)
	st := m.stats.of(r)
	st.out(r)
	switch r.Role {
	case Retry:
		head := r.Parent
		c := head.Chain
		c.Server += r.Latency - r.Human
		c.Wall = max(0, at-head.T)
		head.Status, head.Code, head.Message = r.Status, r.Code, r.Message
		head.Facts, head.ResponseBytes = r.Facts, head.ResponseBytes+r.ResponseBytes
		if r.Status != InputRequired {
			st.result(head)
		}
		m.changed(head)
		return
	case Asked:
		for p := r.Parent; p != nil; p = p.Parent {
			if p.asking > 0 {
				if p.asking--; p.asking == 0 && !p.Done {
					p.Human += max(0, at-p.askedAt)
				}
			}
		}
	}
	if r.Status != InputRequired && r.Status != TaskMade {
		st.result(r)
	}
}

// abandon ends a request, or an HTTP exchange, to which nothing can come any more.
func (m *Model) abandon(r *Row) {
	if r.Done {
		return
	}
	r.Done, r.until = true, max(r.T, r.now())
	if r.Latency == 0 { // it has waited to the end
		r.Latency = r.until - r.T
		r.Human += r.askingFor()
	}
	m.closed(r)
	if r.Kind == Request {
		r.Status = Unanswered
		if h := r.HTTP; h != nil && h.Status >= 400 {
			r.Status, r.Code = HTTPFailed, h.Status
		}
		m.stats.of(r).result(r)
		if r.Role == Retry {
			r.Parent.Status, r.Parent.Code = r.Status, r.Code
			r.Parent.Chain.Wall = max(r.Parent.Chain.Wall, r.until-r.Parent.T)
		}
	}
	m.changed(r)
}

// askingFor returns for how long the server has waited for the client when the row was abandoned.
func (r *Row) askingFor() time.Duration {
	if r.asking == 0 {
		return 0
	}
	return max(0, r.until-r.askedAt)
}

func wireLen(e *capture.Event) int64 {
	if e.Len > 0 {
		return e.Len
	}
	return int64(len(e.Data))
}
