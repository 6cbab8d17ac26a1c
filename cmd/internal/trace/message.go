package trace

import (
	"bytes"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
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
	rt := m.roundTrip(s, e.Exchange)
	if rt != nil && rt.http.Stream && e.Dir == capture.ToClient {
		rt.http.addStreamEvent(e.N)
	}
	in := incoming{session: s, event: e, roundTrip: rt, size: wireLen(e) / int64(f.Size)}
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
	r := m.newRow(Invalid, s, e)
	r.Excerpt, r.RequestBytes = excerpt(e.Data), wireLen(e)
	rt := m.roundTrip(s, e.Exchange)
	m.addRow(r, rt.parent())
	m.attachHTTP(rt, r)
}

func (m *Model) request(in *incoming) {
	s, e, msg, rt := in.session, in.event, in.msg, in.roundTrip
	r := m.newRow(Request, s, e)
	r.Method, r.ID, r.RequestBytes, r.Status = m.intern(msg.Method), clip.String(string(msg.ID), maxName), in.size, Pending
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
	// The parent was evicted, or is nested too deeply.
	if r.Parent == nil || r.Parent != parent && r.Role != ServerRequest {
		r.Role = ""
	}
	m.attachHTTP(rt, r)
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
		if msg.Call != nil && msg.Call.N > 0 && m.evicted > 0 {
			return // its request was evicted
		}
		r = m.newRow(Response, s, e)
		r.ID, r.RequestBytes, r.Excerpt = clip.String(string(msg.ID), maxName), in.size, excerpt(e.Data)
		m.addRow(r, rt.parent())
		m.attachHTTP(rt, r)
		return
	}
	m.addEvent(r, e.N)
	r.ResponseN, r.ResponseBytes = e.N, in.size
	switch {
	case r.Status == Unanswered:
		m.reopen(r)
	case r.Done: // canceled, but answered nevertheless
		m.removePending(r)
		m.markUpdated(r)
		return
	}
	m.applyResponse(r, e, &msg.Message)
	m.endRequest(r, e.T)
	m.nameServer(s)
	// The client answers the server in a separate HTTP round trip.
	if rt != nil && rt.row == nil {
		m.setRoundTripRow(rt, r)
	}
	m.markUpdated(r)
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
			r.Session.setSupported(jsonwire.Lookup(jsonwire.Lookup(msg.Error, "data"), "supported"), m)
		}
		return
	}
	f := m.resultFields(r.Method, msg.Result)
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
		r.Session.setServer(r.Method, msg.Result, m)
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

// inputWait returns how long the server had waited for the client when the row was abandoned.
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
	if r.Dir == capture.ToServer || r.Dir == "" {
		if f.isTaskRequest {
			if t := s.task(f.task); t != nil {
				r.Role = Poll
				return t
			}
		}
		if f.isRetry {
			if head := s.Capture.takeAwaiting(f.roundKey(s.Side, r.Method)); head != nil {
				r.Role = Retry
				return head
			}
		}
		return nil
	}
	r.Role = ServerRequest
	// The server polls a task of the client.
	if f.isTaskRequest {
		if t := s.task(f.task); t != nil {
			r.Role = Poll
			return t
		}
	}
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
		m.markUpdated(owner)
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
		if isError {
			owner.Status = ToolFailed
		}
	case "failed":
		owner.Status = Failed
		if isError {
			owner.Status = ToolFailed
		}
	case "cancelled":
		owner.Status = Canceled
	default:
		m.markUpdated(owner)
		return
	}
	t.isFinal = true
	t.Wall = max(0, at-owner.T)
	m.stats.forRow(owner).addOutcome(owner)
	m.markUpdated(owner)
}

func (m *Model) notification(in *incoming) {
	s, e, msg, rt := in.session, in.event, in.msg, in.roundTrip
	r := m.newRow(Notification, s, e)
	r.Method, r.RequestBytes = m.intern(msg.Method), in.size
	f := m.notificationFields(r.Method, msg.Params)
	r.Target, r.Excerpt = f.target, f.excerpt
	switch r.Method {
	case mcp.NotificationProgress:
		r.Kind = Progress
	case mcp.NotificationMessage:
		r.Kind = Log
	}
	parent := m.parentOfNotification(s, r, &f, rt)
	m.addRow(r, parent)
	m.attachHTTP(rt, r)
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
		if p := s.tokens[tokenKey{opposite(r.Dir), f.token}]; p != nil {
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
	m.markUpdated(r)
}

func opposite(d capture.Dir) capture.Dir {
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

// The functions below expect JSON that jsonrpc.Parse has validated.

// requestFields holds the fields of a request's params that the model uses.
type requestFields struct {
	target, excerpt string
	// revision is the protocol version in _meta.
	revision string
	peer     PeerInfo
	// token is the progress token.
	token       string
	task        string
	relatedTask string
	// isTaskRequest reports whether the method begins with "tasks/".
	isTaskRequest bool
	// isRetry reports whether the request is a further round.
	isRetry bool
	// stateHash is the hash of requestState. Zero means none.
	stateHash uint64
	// paramsHash is the hash of the other params, if the method allows rounds.
	paramsHash uint64
}

func (m *Model) requestFields(method string, params []byte) (f requestFields) {
	if len(params) == 0 || params[0] != '{' {
		return f
	}
	f.isTaskRequest = strings.HasPrefix(method, "tasks/")
	key := targetKey(method)
	var arguments []byte
	for p := jsonwire.ObjectMembers(params); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs("_meta"):
			m.parseRequestMeta(&f, v)
			continue
		case p.KeyIs("inputResponses"):
			f.isRetry = true
			continue
		case p.KeyIs("requestState"):
			f.isRetry, f.stateHash = true, hashTexts(v)
			continue
		case p.KeyIs("taskId"):
			f.task = stringText(v)
		case p.KeyIs("arguments"):
			arguments = v
		}
		if key != "" && p.KeyIs(key) {
			f.target = m.intern([]byte(stringText(v)))
		}
		// The sum does not depend on the order of the members.
		if allowsInputRounds(method) {
			f.paramsHash += hashTexts(p.RawKey(), v)
		}
	}
	if f.target == "" && method == mcp.MethodComplete {
		f.target = m.completionTarget(params)
	}
	switch {
	case len(arguments) > 0:
		f.excerpt = excerptOfMembers(arguments)
	case key == "" || method == mcp.MethodCreateMessage:
		f.excerpt = excerptOfMembers(params)
	}
	return f
}

// targetKey returns the member of the params that names the target of a request, or "".
func targetKey(method string) string {
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet:
		return "name"
	case mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe, mcp.NotificationResourceUpdated:
		return "uri"
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return "taskId"
	case mcp.MethodSetLevel, mcp.NotificationMessage:
		return "level"
	case mcp.MethodElicit:
		return "message"
	case mcp.MethodInitialize:
		return "protocolVersion"
	}
	return ""
}

func (m *Model) completionTarget(params []byte) string {
	ref := jsonwire.Lookup(params, "ref")
	if v := jsonwire.Lookup(ref, "name"); v != nil {
		return m.intern([]byte(stringText(v)))
	}
	return m.intern([]byte(stringText(jsonwire.Lookup(ref, "uri"))))
}

func (m *Model) parseRequestMeta(f *requestFields, meta []byte) {
	if len(meta) == 0 || meta[0] != '{' {
		return
	}
	for p := jsonwire.ObjectMembers(meta); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs(mcp.MetaProtocolVersion):
			f.revision = m.intern([]byte(stringText(v)))
		case p.KeyIs(mcp.MetaClientInfo):
			f.peer.setImplementation(v, m)
		case p.KeyIs(mcp.MetaClientCapabilities):
			f.peer.Capabilities = m.capabilityNames(v)
		case p.KeyIs(mcp.MetaProgressToken):
			f.token = scalarKey(v)
		case p.KeyIs(mcp.MetaRelatedTask):
			f.relatedTask = stringText(jsonwire.Lookup(v, "taskId"))
		}
	}
}

// resultFields holds the fields of a result that the model uses.
type resultFields struct {
	ResultInfo
	isError         bool
	stateHash       uint64
	task, taskState string
	peer            PeerInfo
	// inner describes the result inside a task.
	inner      *ResultInfo
	innerError bool
}

func (m *Model) resultFields(method string, result []byte) (f resultFields) {
	if len(result) == 0 || result[0] != '{' {
		return f
	}
	for p := jsonwire.ObjectMembers(result); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs("resultType"):
			if t := stringText(v); t != string(mcp.ResultTypeComplete) {
				f.ResultType = m.intern([]byte(t))
			}
		case p.KeyIs("isError"):
			f.isError = string(v) == "true"
		case p.KeyIs("requestState"):
			f.stateHash = hashTexts(v)
		case p.KeyIs("structuredContent"):
			f.Structured = true
		case p.KeyIs("nextCursor"):
			f.HasMore = true
		case p.KeyIs("taskId"):
			f.task = stringText(v)
		case p.KeyIs("status"):
			f.taskState = stringText(v)
		case p.KeyIs("task"): // revision 2025-11-25
			f.task, f.taskState = stringText(jsonwire.Lookup(v, "taskId")), stringText(jsonwire.Lookup(v, "status"))
		case p.KeyIs("inputRequests"):
			f.ListName, f.Count = "inputs", count(v)
		case p.KeyIs("result"):
			inner := m.resultFields("", v)
			f.inner, f.innerError = &inner.ResultInfo, inner.isError
		case p.KeyIs("_meta"):
			f.peer.setImplementation(jsonwire.Lookup(v, mcp.MetaServerInfo), m)
		default:
			f.addList(&p, v)
		}
	}
	if method != mcp.MethodToolsCall && !strings.HasPrefix(method, "tasks/") && f.ResultType != "task" {
		f.task = ""
	}
	return f
}

// addList sets ListName, Count and Text if the member is a known list.
func (f *resultFields) addList(p *jsonwire.Members, v []byte) {
	for _, name := range [...]string{"content", "contents", "messages", "tools", "prompts", "resources", "resourceTemplates", "roots", "tasks"} {
		if !p.KeyIs(name) || len(v) == 0 || v[0] != '[' {
			continue
		}
		f.ListName, f.Count = name, count(v)
		if name != "content" {
			return
		}
		for el := jsonwire.ArrayElements(v); el.Next(); {
			if t := jsonwire.Lookup(el.Value(), "text"); t != nil {
				f.Text = clip.String(stringText(t), maxExcerpt)
				return
			}
		}
		return
	}
}

// notificationFields holds the fields of a notification's params that the model uses.
type notificationFields struct {
	target, excerpt          string
	requestID, token         string
	task, taskState          string
	relatedTask              string
	subscription             string
	inner                    *ResultInfo
	innerError               bool
	progress, total, message string
}

func (m *Model) notificationFields(method string, params []byte) (f notificationFields) {
	if len(params) == 0 || params[0] != '{' {
		return f
	}
	f.excerpt = excerptOfMembers(params)
	key := targetKey(method)
	for p := jsonwire.ObjectMembers(params); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs("_meta"):
			f.relatedTask = stringText(jsonwire.Lookup(jsonwire.Lookup(v, mcp.MetaRelatedTask), "taskId"))
			f.subscription = scalarKey(jsonwire.Lookup(v, mcp.MetaSubscriptionID))
		case p.KeyIs("requestId"):
			f.requestID = scalarKey(v)
		case p.KeyIs("progressToken"):
			f.token = scalarKey(v)
		case p.KeyIs("progress"):
			f.progress = clip.String(string(v), 32)
		case p.KeyIs("total"):
			f.total = clip.String(string(v), 32)
		case p.KeyIs("message"), p.KeyIs("data"), p.KeyIs("reason"):
			if v[0] == '"' {
				f.excerpt = clip.String(stringText(v), maxExcerpt)
			} else {
				f.excerpt = excerpt(v)
			}
			f.message = f.excerpt
		case p.KeyIs("taskId"):
			f.task = stringText(v)
		case p.KeyIs("status"):
			f.taskState = stringText(v)
		case p.KeyIs("result"):
			inner := m.resultFields("", v)
			f.inner, f.innerError = &inner.ResultInfo, inner.isError
		}
		if key != "" && p.KeyIs(key) {
			f.target = m.intern([]byte(stringText(v)))
		}
	}
	if method == mcp.NotificationProgress {
		f.target = f.progress
		if f.total != "" {
			f.target += "/" + f.total
		}
		f.excerpt = f.message
	}
	if f.task != "" {
		f.target, f.excerpt = clip.String(f.task, maxName), f.taskState
	}
	return f
}

func parseError(e []byte) (code int, message string) {
	n, _ := jsonwire.ParseInt(jsonwire.Lookup(e, "code"))
	return int(n), clip.String(stringText(jsonwire.Lookup(e, "message")), maxExcerpt)
}

// stringText returns the beginning of a JSON string, unquoted, or "" for any other value.
func stringText(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	raw := v[1 : len(v)-1]
	// Cut before an escape that may be incomplete: a surrogate pair has twelve characters.
	if len(raw) > 8*maxName {
		raw = raw[:8*maxName]
		if i := bytes.IndexByte(raw[len(raw)-12:], '\\'); i >= 0 {
			raw = raw[:len(raw)-12+i]
		}
		// An odd number of backslashes would escape what follows.
		if n := len(raw) - len(bytes.TrimRight(raw, `\`)); n%2 == 1 {
			raw = raw[:len(raw)-1]
		}
	}
	return jsonwire.UnquoteString(raw)
}

// scalarKey returns the same text for equal strings and numbers.
func scalarKey(v []byte) string {
	if len(v) == 0 || len(v) > maxName {
		return ""
	}
	return idText(jsonrpc.ID(v))
}

// count returns the number of elements or members of v.
func count(v []byte) (n int) {
	switch {
	case len(v) == 0:
	case v[0] == '[':
		for el := jsonwire.ArrayElements(v); el.Next(); {
			n++
		}
	case v[0] == '{':
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			n++
		}
	}
	return n
}

// excerpt returns the beginning of a payload.
func excerpt(b []byte) string {
	const more = 4 // so that clip sees the cut
	return clip.String(string(b[:min(len(b), maxExcerpt+more)]), maxExcerpt)
}

// excerptOfMembers returns the members of an object without _meta: the texts, then others as
// name=value. It returns the beginning of any other value.
func excerptOfMembers(object []byte) string {
	if len(object) == 0 || object[0] != '{' {
		return excerpt(object)
	}
	var texts, pairs []byte
	for p := jsonwire.ObjectMembers(object); len(texts) <= maxExcerpt && p.Next(); {
		v := p.Value()
		if text := stringText(v); text != "" {
			texts = append(append(texts, text...), "  "...)
		} else if !p.KeyIs("_meta") && len(pairs) <= maxExcerpt {
			pairs = append(append(append(pairs, p.KeyString()...), '='), v[:min(len(v), maxExcerpt)]...)
			pairs = append(pairs, "  "...)
		}
	}
	return excerpt(bytes.TrimRight(append(texts, pairs...), " "))
}
