package trace

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const methodToolsCall = mcp.MethodToolsCall

// messageEvent handles an event with one message or a batch. f is nil if the payload was cut.
func (m *Model) messageEvent(s *Session, e *capture.Event, f *traffic.Frame) {
	if f == nil || len(f.Messages) == 0 {
		m.invalid(s, e)
		return
	}
	rt := m.roundTrips.of(s, e)
	if rt != nil && rt.http.Stream && e.Dir == capture.ToClient {
		rt.http.addStreamEvent(e.N)
	}
	in := incoming{session: s, event: e, roundTrip: rt, size: WireLen(e) / int64(f.Size)}
	for i := range f.Messages {
		in.msg = &f.Messages[i]
		switch in.msg.Kind {
		case jsonrpc.KindRequest:
			m.request(&in)
		case jsonrpc.KindNotification:
			m.notification(&in)
		default:
			m.response(&in)
		}
	}
}

// An incoming message is a message that is being added.
type incoming struct {
	session *Session
	event   *capture.Event
	msg     *traffic.Message
	// size is the share of the message in the bytes on the wire.
	size int64
	// roundTrip is nil unless HTTP carries the message.
	roundTrip *roundTrip
}

// invalid adds a row for an event that should contain a message, but does not.
func (m *Model) invalid(s *Session, e *capture.Event) {
	r := m.timeline.newRow(Invalid, s, e)
	r.Excerpt, r.RequestBytes = excerpt(e.Data), WireLen(e)
	rt := m.roundTrips.of(s, e)
	m.timeline.add(r, rt.parent())
	rt.attach(r)
}

func (m *Model) request(in *incoming) {
	s, e, msg, rt := in.session, in.event, in.msg, in.roundTrip
	r := m.timeline.newRow(Request, s, e)
	r.Method, r.ID, r.RequestBytes, r.Status = m.names.intern(msg.Method), clip.String(string(msg.ID), maxName), in.size, Pending
	f := m.names.requestFields(r.Method, msg.Params)
	r.Target, r.Excerpt = f.target, f.excerpt
	if f.revision != "" && e.Dir == capture.ToServer {
		r.Revision = f.revision
		if s.Offered == "" {
			s.Offered = f.revision
		}
		f.peer.copyTo(&s.Client)
	}
	if r.Method == mcp.MethodInitialize {
		s.setClient(msg.Params, m.names)
	}
	parent := m.parentOfRequest(s, r, &f, rt)
	m.timeline.add(r, parent)
	// The parent was evicted, or is nested too deeply.
	if r.Parent == nil || r.Parent != parent && r.Role != ServerRequest {
		r.Role = ""
	}
	rt.attach(r)
	m.beginRequest(r, &f)
	if msg.Call == nil { // it cannot be paired
		return
	}
	r.call = msg.Call
	msg.Call.Owner = r
	k := requestKey{e.Dir, idText(msg.ID)}
	s.pending[k] = r
	if e.Dir == capture.ToServer && r.Method != mcp.MethodPing && r.Method != mcp.MethodSubscriptionsListen {
		s.inFlight[r] = struct{}{}
	}
	if f.token != "" {
		r.token = f.token
		s.tokens[tokenKey{e.Dir, f.token}] = r
	}
}

// beginRequest updates the parents and statistics when a request begins.
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

func (m *Model) response(in *incoming) {
	s, e, msg, rt := in.session, in.event, in.msg, in.roundTrip
	var r *Row
	if msg.Call != nil {
		r, _ = msg.Call.Owner.(*Row)
	}
	if r == nil {
		if msg.Call != nil && msg.Call.N > 0 && m.timeline.evicted > 0 {
			return // its request was evicted
		}
		r = m.timeline.newRow(Response, s, e)
		r.ID, r.RequestBytes, r.Excerpt = clip.String(string(msg.ID), maxName), in.size, excerpt(e.Data)
		m.timeline.add(r, rt.parent())
		rt.attach(r)
		return
	}
	r.addEvent(e.N)
	r.ResponseN, r.ResponseBytes = e.N, in.size
	switch {
	case r.Status == Unanswered:
		m.reopen(r)
	case r.Done: // canceled, but answered nevertheless
		r.Session.removePending(r)
		m.timeline.markUpdated(r)
		return
	}
	m.applyResponse(r, e, &msg.Message)
	m.endRequest(r, e.T)
	m.nameServer(s)
	// The client answers the server in a separate HTTP round trip.
	if rt != nil && rt.row == nil {
		rt.setRow(r)
	}
	m.timeline.markUpdated(r)
}

// reopen reverts abandon: a response came after all, from the tap in place of an exited process.
func (m *Model) reopen(r *Row) {
	r.ClientTime -= r.inputWait()
	r.abandonedAt, r.Latency = 0, 0
	m.stats.forRow(r).removeUnanswered(r)
}

// applyResponse sets the fields of r that a response determines.
func (m *Model) applyResponse(r *Row, e *capture.Event, msg *jsonrpc.Message) {
	r.Latency = max(0, e.T-r.T)
	// It did not wait for the client after all.
	if r.pendingInputs > 0 {
		r.ClientTime += max(0, e.T-r.inputSince)
		r.pendingInputs = 0
	}
	r.ClientTime = min(r.ClientTime, r.Latency)
	if msg.Kind == jsonrpc.KindError {
		r.Status = Failed
		r.Code, r.Message = parseError(msg.Error)
		if r.Code == int(mcp.CodeUnsupportedProtocolVersion) && r.Dir == capture.ToServer {
			r.Session.setSupported(jsonwire.Lookup(jsonwire.Lookup(msg.Error, "data"), "supported"), m.names)
		}
		return
	}
	f := m.names.resultFields(r.Method, msg.Result)
	r.ResultInfo = f.ResultInfo
	r.Status = OK
	switch {
	case f.ResultType == string(mcp.ResultTypeInputRequired):
		r.Status = InputRequired
		m.awaitInput(r, e.T, f.stateHash)
	case f.task != "" && r.Role != Poll:
		r.Status = TaskCreated
		if r.Task == nil {
			r.Task = &Task{ID: clip.String(f.task, maxName), State: clip.String(f.taskState, maxName)}
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
		r.Session.setServer(r.Method, msg.Result, m.names)
	case mcp.MethodToolsList:
		m.stats.addDefinitions(r, msg.Result)
	}
	if r.Revision != "" && r.Session.Era != EraLegacy && r.Method != mcp.MethodInitialize {
		r.Session.Era, r.Session.Negotiated = EraModern, r.Revision
		f.peer.copyTo(&r.Session.Server)
	}
}

// endRequest updates the parents and statistics when a request ends.
func (m *Model) endRequest(r *Row, at time.Duration) {
	r.Done = true
	r.Session.removePending(r)
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
		m.timeline.markUpdated(head)
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

// abandon ends a request, or an HTTP round trip, that can receive nothing more.
func (m *Model) abandon(r *Row) {
	if r.Done {
		return
	}
	r.Done, r.abandonedAt = true, max(r.T, r.lastT())
	if r.Latency == 0 { // it was pending until the end
		r.Latency = r.abandonedAt - r.T
		r.ClientTime += r.inputWait()
	}
	r.Session.removePending(r)
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
	m.timeline.markUpdated(r)
}

// inputWait returns how long the server had waited for the client when the row was abandoned.
func (r *Row) inputWait() time.Duration {
	if r.pendingInputs == 0 {
		return 0
	}
	return max(0, r.abandonedAt-r.inputSince)
}

// WireLen returns the length of the payload of an event on the wire, in bytes.
func WireLen(e *capture.Event) int64 {
	if e.Len > 0 {
		return e.Len
	}
	return int64(len(e.Data))
}

// idText returns the same text for equal ids.
func idText(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return strconv.Quote(s)
	}
	return string(id)
}

// allowsInputRounds reports whether a request with the method may take several rounds.
func allowsInputRounds(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead
}

// parentOfRequest returns the row that contains a request, or nil, and sets the request's role.
func (m *Model) parentOfRequest(s *Session, r *Row, f *requestFields, rt *roundTrip) *Row {
	if f.isTaskRequest { // the server polls tasks of the client too
		if t := s.task(f.task); t != nil {
			r.Role = Poll
			return t
		}
	}
	if r.Dir == capture.ToServer || r.Dir == "" {
		if f.isRetry {
			if head := s.Capture.takeAwaiting(f.roundKey(s.Side, r.Method)); head != nil {
				r.Role = Retry
				return head
			}
		}
		return nil
	}
	r.Role = ServerRequest
	if t := s.task(f.relatedTask); t != nil {
		return t
	}
	if p := rt.parent(); p != nil && p.Kind == Request {
		return p
	}
	if p := s.onlyInFlight(); p != nil {
		return p
	}
	return rt.parent()
}

// roundKey returns the key that matches a retry with the request that awaits it.
func (f *requestFields) roundKey(side capture.Side, method string) roundKey {
	if f.stateHash != 0 {
		return roundKey{side: side, method: method, state: f.stateHash}
	}
	return roundKey{side: side, method: method, params: f.paramsHash}
}

// awaitInput records that a request waits for a further round.
func (m *Model) awaitInput(r *Row, at time.Duration, state uint64) {
	head := r
	if r.Role == Retry {
		head = r.Parent
	}
	c := head.InputRounds
	if c == nil {
		c = &InputRounds{Count: 1, ServerTime: r.Latency - r.ClientTime, Wall: r.Latency}
		head.InputRounds = c
	}
	c.lastResponse = at
	head.Capture.removeAwaiting(head)
	c.awaiting = roundKey{side: head.Session.Side, method: head.Method, state: state}
	if state == 0 {
		c.awaiting.params = head.paramsHash
	}
	head.Capture.awaitingInput[c.awaiting] = append(head.Capture.awaitingInput[c.awaiting], head)
}

// takeAwaiting returns the request that has waited longest for this round, and removes it.
func (c *Capture) takeAwaiting(k roundKey) *Row {
	list := c.awaitingInput[k]
	if len(list) == 0 {
		return nil
	}
	head := list[0]
	c.removeAwaiting(head)
	return head
}

func (c *Capture) removeAwaiting(head *Row) {
	k := head.InputRounds.awaiting
	if k == (roundKey{}) {
		return
	}
	head.InputRounds.awaiting = roundKey{}
	list := c.awaitingInput[k]
	if i := slices.Index(list, head); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(c.awaitingInput, k)
	} else {
		c.awaitingInput[k] = list
	}
}

// applyPoll applies the state and result in a poll's response to the task.
func (m *Model) applyPoll(r *Row, at time.Duration, f *resultFields) {
	owner := r.Parent
	if owner == nil || owner.Task == nil {
		return
	}
	// The result of tasks/result is the result of the task.
	if r.Method == mcp.MethodTasksResult {
		owner.ResultInfo = f.ResultInfo
		state := "completed"
		if f.isError {
			state = "failed"
		}
		if owner.Task.isFinal && f.isError {
			owner.Status = ToolFailed
		}
		m.setTaskState(owner, state, at, f.isError)
		m.timeline.markUpdated(owner)
		return
	}
	if f.inner != nil {
		owner.ResultInfo = *f.inner
	}
	m.setTaskState(owner, f.taskState, at, f.innerError)
}

// setTaskState sets the state of a task, unless the task has ended.
func (m *Model) setTaskState(owner *Row, state string, at time.Duration, isError bool) {
	t := owner.Task
	if state == "" || t.isFinal {
		return
	}
	t.State = clip.String(state, maxName)
	switch state {
	case "completed":
		owner.Status = OK
	case "failed":
		owner.Status = Failed
	case "cancelled":
		owner.Status, isError = Canceled, false
	default:
		m.timeline.markUpdated(owner)
		return
	}
	if isError {
		owner.Status = ToolFailed
	}
	t.isFinal = true
	t.Wall = max(0, at-owner.T)
	m.stats.forRow(owner).addOutcome(owner)
	m.timeline.markUpdated(owner)
}

func (m *Model) notification(in *incoming) {
	s, e, msg, rt := in.session, in.event, in.msg, in.roundTrip
	r := m.timeline.newRow(Notification, s, e)
	r.Method, r.RequestBytes = m.names.intern(msg.Method), in.size
	f := m.names.notificationFields(r.Method, msg.Params)
	r.Target, r.Excerpt = f.target, f.excerpt
	switch r.Method {
	case mcp.NotificationProgress:
		r.Kind = Progress
	case mcp.NotificationMessage:
		r.Kind = Log
	}
	parent := m.parentOfNotification(s, r, &f, rt)
	m.timeline.add(r, parent)
	rt.attach(r)
	if parent == nil {
		return
	}
	switch r.Method {
	case mcp.NotificationCancelled:
		m.applyCancellation(parent, e.T)
	case mcp.NotificationTasks, mcp.NotificationTaskStatus:
		if parent.Task != nil {
			if f.inner != nil {
				parent.ResultInfo = *f.inner
			}
			m.setTaskState(parent, f.taskState, e.T, f.innerError)
		}
	}
}

// parentOfNotification returns the row that contains a notification, or nil.
func (m *Model) parentOfNotification(s *Session, r *Row, f *notificationFields, rt *roundTrip) *Row {
	switch r.Method {
	case mcp.NotificationCancelled:
		return s.pending[requestKey{r.Dir, f.requestID}]
	case mcp.NotificationProgress:
		if p := s.tokens[tokenKey{Opposite(r.Dir), f.token}]; p != nil {
			return p
		}
	case mcp.NotificationTasks, mcp.NotificationTaskStatus:
		if t := s.task(f.task); t != nil {
			return t
		}
	}
	if t := s.task(f.relatedTask); t != nil {
		return t
	}
	if r.Dir != capture.ToClient {
		return nil
	}
	if p := rt.parent(); p != nil && (p.Kind == Request || r.Kind != Log) {
		return p
	}
	if f.subscription != "" {
		return s.pending[requestKey{capture.ToServer, f.subscription}]
	}
	if r.Kind == Log {
		if p := s.onlyInFlight(); p != nil {
			return p
		}
	}
	return rt.parent()
}

// applyCancellation marks a request as canceled. A response may still come.
func (m *Model) applyCancellation(r *Row, at time.Duration) {
	if r.Done || r.Kind != Request {
		return
	}
	r.Status, r.Done, r.Latency = Canceled, true, max(0, at-r.T)
	delete(r.Session.inFlight, r)
	m.stats.forRow(r).addOutcome(r)
	m.timeline.markUpdated(r)
}

// Opposite returns the other direction.
func Opposite(d capture.Dir) capture.Dir {
	if d == capture.ToServer {
		return capture.ToClient
	}
	return capture.ToServer
}

// hashTexts returns a hash of the texts. It is never 0.
func hashTexts(texts ...[]byte) uint64 {
	h := fnv.New64a()
	for _, t := range texts {
		h.Write(t)
		h.Write([]byte{0})
	}
	return h.Sum64() | 1
}
