package trace

import (
	"time"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const methodToolsCall = mcp.MethodToolsCall

// messageEvent takes an event with a message, or several.
func (m *Model) messageEvent(s *Session, e *capture.Event) {
	parts := m.pairer.Add(e)
	if len(parts) == 0 {
		m.invalid(s, e)
		return
	}
	rt := m.roundTrip(s, e.Exchange)
	if rt != nil && rt.http.Stream && e.Dir == capture.ToClient {
		rt.http.addStreamEvent(e.N)
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
			m.request(s, e, p, this, size, rt)
		case jsonrpc.KindNotification:
			m.notification(s, e, this, size, rt)
		default:
			m.response(s, e, p, this, size, rt)
		}
	}
}

// invalid adds a row for what is no message, though it stands where one should.
func (m *Model) invalid(s *Session, e *capture.Event) {
	r := m.newRow(Invalid, s, e)
	r.Excerpt, r.RequestBytes = excerpt(e.Data), wireLen(e)
	rt := m.roundTrip(s, e.Exchange)
	m.addRow(r, rt.parent())
	m.attachHTTP(rt, r)
}

func (m *Model) request(s *Session, e *capture.Event, p *capture.Message, msg *jsonrpc.Message, size int64, rt *roundTrip) {
	r := m.newRow(Request, s, e)
	r.Method, r.ID, r.RequestBytes, r.Status = m.intern(msg.Method), clip(string(p.ID), maxName), size, Pending
	f := m.requestFields(r.Method, msg.Params)
	r.Target, r.Excerpt = f.target, f.excerpt
	if f.revision != "" && e.Dir == capture.ToServer {
		r.Revision = f.revision
		if s.Offered == "" {
			s.Offered = f.revision
		}
		f.peer.copyTo(&s.Client)
	}
	if r.Method == mcp.MethodInitialize {
		s.setClient(msg.Params, m)
	}
	parent := m.parentOfRequest(s, r, &f, rt)
	m.addRow(r, parent)
	if r.Parent == nil || r.Parent != parent && r.Role != ServerRequest { // it has made room, or is too deep inside
		r.Role = ""
	}
	m.attachHTTP(rt, r)
	m.beginRequest(r, &f)
	if p.Call == nil { // it cannot be paired
		return
	}
	r.call = p.Call
	m.rowByCall[p.Call] = r
	k := requestKey{e.Dir, idText(p.ID)}
	s.pending[k] = r
	if e.Dir == capture.ToServer && r.Method != mcp.MethodPing && r.Method != mcp.MethodSubscriptionsListen {
		s.inFlight[r] = struct{}{}
	}
	if f.token != "" {
		r.token = tokenKey{e.Dir, f.token}
		s.tokens[r.token] = r
	}
}

// beginRequest does what the beginning of a request means for others.
func (m *Model) beginRequest(r *Row, f *requestFields) {
	st := m.stats.forRow(r)
	switch r.Role {
	case Retry:
		head := r.Parent
		c := head.InputRounds
		c.Count++
		c.ClientTime += max(0, r.T-c.lastResponse)
		c.Wall = max(c.Wall, r.T-head.T)
		st.addRetry(r)
	case ServerRequest:
		for p := r.Parent; p != nil; p = p.Parent {
			if p.Done {
				continue
			}
			if p.pendingInputs++; p.pendingInputs == 1 {
				p.inputSince = r.T
			}
		}
		st.addCall(r)
	case Poll:
		if t := r.Parent.Task; t != nil {
			t.Polls++
		}
		st.addCall(r)
	default:
		st.addCall(r)
	}
	r.paramsHash = f.paramsHash
}

func (m *Model) response(s *Session, e *capture.Event, p *capture.Message, msg *jsonrpc.Message, size int64, rt *roundTrip) {
	r := m.rowByCall[p.Call]
	if p.Call == nil || r == nil {
		if p.Call != nil && p.Call.N > 0 && m.evicted > 0 {
			return // its request has made room
		}
		r = m.newRow(Response, s, e)
		r.ID, r.RequestBytes, r.Excerpt = clip(string(msg.ID), maxName), size, excerpt(e.Data)
		m.addRow(r, rt.parent())
		m.attachHTTP(rt, r)
		return
	}
	m.addEvent(r, e.N)
	r.ResponseN, r.ResponseBytes = e.N, size
	switch {
	case r.Status == Unanswered:
		m.reopen(r)
	case r.Done: // cancelled, and answered all the same
		m.removePending(r)
		m.markUpdated(r)
		return
	}
	m.applyResponse(r, e, msg)
	m.endRequest(r, e.T)
	if rt != nil && rt.row == nil { // the client answers the server in an exchange of its own
		m.setRoundTripRow(rt, r)
	}
	m.markUpdated(r)
}

// reopen takes back that a request stays without an answer: there is one, by whoever speaks for a process that is gone.
func (m *Model) reopen(r *Row) {
	r.ClientTime -= r.inputWait()
	r.abandonedAt, r.Latency = 0, 0
	m.stats.forRow(r).removeUnanswered(r)
}

// applyResponse takes what a response says.
func (m *Model) applyResponse(r *Row, e *capture.Event, msg *jsonrpc.Message) {
	r.Latency = max(0, e.T-r.T)
	if r.pendingInputs > 0 { // it did not wait for the client after all
		r.ClientTime += max(0, e.T-r.inputSince)
		r.pendingInputs = 0
	}
	r.ClientTime = min(r.ClientTime, r.Latency)
	if msg.Kind == jsonrpc.KindError {
		r.Status = Failed
		r.Code, r.Message = parseError(msg.Error)
		if r.Code == int(mcp.CodeUnsupportedProtocolVersion) && r.Dir == capture.ToServer {
			r.Session.setSupported(jsonwire.Lookup(jsonwire.Lookup(msg.Error, "data"), "supported"), m)
		}
		return
	}
	f := m.resultFields(r.Method, msg.Result)
	r.ResultInfo = f.ResultInfo
	r.Status = OK
	switch {
	case f.ResultType == mcp.ResultTypeInputRequired:
		r.Status = InputRequired
		m.awaitInput(r, e.T, f.stateHash)
	case f.task != "" && r.Role != Poll:
		r.Status = TaskCreated
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
		m.applyPoll(r, e.T, &f)
	}
	switch r.Method {
	case mcp.MethodInitialize, mcp.MethodDiscover:
		r.Session.setServer(r.Method, msg.Result, m)
	case mcp.MethodToolsList:
		m.stats.addDefinitions(r, msg.Result)
	}
	if r.Revision != "" && r.Session.Era != EraLegacy && r.Method != mcp.MethodInitialize {
		r.Session.Era, r.Session.Negotiated = EraModern, r.Revision
		f.peer.copyTo(&r.Session.Server)
	}
}

// endRequest does what the end of a request means for others.
func (m *Model) endRequest(r *Row, at time.Duration) {
	r.Done = true
	m.removePending(r)
	st := m.stats.forRow(r)
	st.addResponse(r)
	switch r.Role {
	case Retry:
		head := r.Parent
		c := head.InputRounds
		c.ServerTime += r.Latency - r.ClientTime
		c.Wall = max(0, at-head.T)
		head.Status, head.Code, head.Message = r.Status, r.Code, r.Message
		head.ResultInfo, head.ResponseBytes = r.ResultInfo, head.ResponseBytes+r.ResponseBytes
		if r.Status != InputRequired {
			st.addOutcome(head)
		}
		m.markUpdated(head)
		return
	case ServerRequest:
		for p := r.Parent; p != nil; p = p.Parent {
			if p.pendingInputs > 0 {
				if p.pendingInputs--; p.pendingInputs == 0 && !p.Done {
					p.ClientTime += max(0, at-p.inputSince)
				}
			}
		}
	}
	if r.Status != InputRequired && r.Status != TaskCreated {
		st.addOutcome(r)
	}
}

// abandon ends a request, or an HTTP exchange, to which nothing can come any more.
func (m *Model) abandon(r *Row) {
	if r.Done {
		return
	}
	r.Done, r.abandonedAt = true, max(r.T, r.lastT())
	if r.Latency == 0 { // it has waited to the end
		r.Latency = r.abandonedAt - r.T
		r.ClientTime += r.inputWait()
	}
	m.removePending(r)
	if r.Kind == Request {
		r.Status = Unanswered
		if h := r.HTTP; h != nil && h.Status >= 400 {
			r.Status, r.Code = HTTPFailed, h.Status
		}
		m.stats.forRow(r).addOutcome(r)
		if r.Role == Retry {
			r.Parent.Status, r.Parent.Code = r.Status, r.Code
			r.Parent.InputRounds.Wall = max(r.Parent.InputRounds.Wall, r.abandonedAt-r.Parent.T)
		}
	}
	m.markUpdated(r)
}

// inputWait returns for how long the server has waited for the client when the row was abandoned.
func (r *Row) inputWait() time.Duration {
	if r.pendingInputs == 0 {
		return 0
	}
	return max(0, r.abandonedAt-r.inputSince)
}

func wireLen(e *capture.Event) int64 {
	if e.Len > 0 {
		return e.Len
	}
	return int64(len(e.Data))
}
