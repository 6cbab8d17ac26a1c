package trace

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// idText returns a text that is the same for equal ids.
func idText(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return strconv.Quote(s)
	}
	return string(id)
}

// allowsInputRounds reports whether a request may take several rounds.
func allowsInputRounds(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead
}

// parentOfRequest returns what a request stands in, and gives it the role.
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
	if f.isTaskRequest { // the server asks for a task of the client's
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

// roundKey are what a further round of the request is recognised by.
func (f *requestFields) roundKey(side capture.Side, method string) roundKey {
	if f.stateHash != 0 {
		return roundKey{side: side, method: method, state: f.stateHash}
	}
	return roundKey{side: side, method: method, params: f.paramsHash}
}

// awaitInput notes that a request goes on with a further round.
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

// takeAwaiting returns the request that waits for this round the longest.
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

// applyPoll takes what a poll says of a task.
func (m *Model) applyPoll(r *Row, at time.Duration, f *resultFields) {
	owner := r.Parent
	if owner == nil || owner.Task == nil {
		return
	}
	if r.Method == mcp.MethodTasksResult { // its result is the one of the task
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

// setTaskState notes the state of a task.
func (m *Model) setTaskState(owner *Row, state string, at time.Duration, isError bool) {
	t := owner.Task
	if state == "" || t.isFinal {
		return
	}
	t.State = clip(state, maxName)
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

func (m *Model) notification(s *Session, e *capture.Event, msg *jsonrpc.Message, size int64, rt *roundTrip) {
	r := m.newRow(Notification, s, e)
	r.Method, r.RequestBytes = m.intern(msg.Method), size
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

// parentOfNotification returns what a notification stands in, or nil.
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

// applyCancellation notes that a request was cancelled. A response may come all the same.
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

// hashTexts returns a hash of texts that is never 0.
func hashTexts(texts ...[]byte) uint64 {
	h := fnv.New64a()
	for _, t := range texts {
		h.Write(t)
		h.Write([]byte{0})
	}
	return h.Sum64() | 1
}
