package wireview

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

// mrtr reports whether a request may take several rounds.
func mrtr(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead
}

// parentOfRequest returns what a request stands in, and gives it the role.
func (m *Model) parentOfRequest(s *Session, r *Row, f *requestFacts, x *xchg) *Row {
	if r.Dir == capture.ToServer || r.Dir == "" {
		if f.polls {
			if t := s.task(f.task); t != nil {
				r.Role = Poll
				return t
			}
		}
		if f.again {
			if head := s.Capture.takeWaiting(f.keys(s.Side, r.Method)); head != nil {
				r.Role = Retry
				return head
			}
		}
		return nil
	}
	r.Role = Asked
	if f.polls { // the server asks for a task of the client's
		if t := s.task(f.task); t != nil {
			r.Role = Poll
			return t
		}
	}
	if t := s.task(f.relatedTask); t != nil {
		return t
	}
	if p := x.parent(); p != nil && p.Kind == Request {
		return p
	}
	if p := s.only(); p != nil {
		return p
	}
	return x.parent()
}

// keys are what a further round of the request is recognised by.
func (f *requestFacts) keys(side capture.Side, method string) chainKey {
	if f.state != 0 {
		return chainKey{side: side, method: method, state: f.state}
	}
	return chainKey{side: side, method: method, params: f.params}
}

// wait notes that a request goes on with a further round.
func (m *Model) wait(r *Row, at time.Duration, state uint64) {
	head := r
	if r.Role == Retry {
		head = r.Parent
	}
	c := head.Chain
	if c == nil {
		c = &Chain{Rounds: 1, Server: r.Latency - r.Human, Wall: r.Latency}
		head.Chain = c
	}
	c.last = at
	head.Capture.stopWaiting(head)
	c.waiting = chainKey{side: head.Session.Side, method: head.Method, state: state}
	if state == 0 {
		c.waiting.params = head.params
	}
	head.Capture.waiting[c.waiting] = append(head.Capture.waiting[c.waiting], head)
}

// takeWaiting returns the request that waits for this round the longest.
func (c *Capture) takeWaiting(k chainKey) *Row {
	list := c.waiting[k]
	if len(list) == 0 {
		return nil
	}
	head := list[0]
	c.stopWaiting(head)
	return head
}

func (c *Capture) stopWaiting(head *Row) {
	k := head.Chain.waiting
	if k == (chainKey{}) {
		return
	}
	head.Chain.waiting = chainKey{}
	list := c.waiting[k]
	if i := slices.Index(list, head); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(c.waiting, k)
	} else {
		c.waiting[k] = list
	}
}

// polled takes what a poll says of a task.
func (m *Model) polled(r *Row, at time.Duration, f *resultFacts) {
	owner := r.Parent
	if owner == nil || owner.Task == nil {
		return
	}
	if r.Method == mcp.MethodTasksResult { // its result is the one of the task
		owner.Facts = f.Facts
		state := "completed"
		if f.isError {
			state = "failed"
		}
		if owner.Task.ended && f.isError {
			owner.Status = ToolFailed
		}
		m.taskState(owner, state, at, f.isError)
		m.changed(owner)
		return
	}
	if f.inner != nil {
		owner.Facts = *f.inner
	}
	m.taskState(owner, f.taskState, at, f.innerError)
}

// taskState notes the state of a task.
func (m *Model) taskState(owner *Row, state string, at time.Duration, isError bool) {
	t := owner.Task
	if state == "" || t.ended {
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
		owner.Status = Cancelled
	default:
		m.changed(owner)
		return
	}
	t.ended = true
	t.Wall = max(0, at-owner.T)
	m.stats.of(owner).result(owner)
	m.changed(owner)
}

func (m *Model) notification(s *Session, e *capture.Event, msg *jsonrpc.Message, size int64, x *xchg) {
	r := m.newRow(Notification, s, e)
	r.Method, r.RequestBytes = m.name(msg.Method), size
	f := m.noteFacts(r.Method, msg.Params)
	r.Target, r.Excerpt = f.target, f.excerpt
	switch r.Method {
	case mcp.NotificationProgress:
		r.Kind = Progress
	case mcp.NotificationMessage:
		r.Kind = Log
	}
	parent := m.parentOfNote(s, r, &f, x)
	m.put(r, parent)
	m.attach(x, r)
	if parent == nil {
		return
	}
	switch r.Method {
	case mcp.NotificationCancelled:
		m.cancel(parent, e.T)
	case mcp.NotificationTasks, mcp.NotificationTaskStatus:
		if parent.Task != nil {
			if f.inner != nil {
				parent.Facts = *f.inner
			}
			m.taskState(parent, f.taskState, e.T, f.innerError)
		}
	}
}

// parentOfNote returns what a notification stands in, or nil.
func (m *Model) parentOfNote(s *Session, r *Row, f *noteFacts, x *xchg) *Row {
	switch r.Method {
	case mcp.NotificationCancelled:
		return s.pending[idKey{r.Dir, f.requestID}]
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
	if p := x.parent(); p != nil && (p.Kind == Request || r.Kind != Log) {
		return p
	}
	if f.subscription != "" {
		return s.pending[idKey{capture.ToServer, f.subscription}]
	}
	if r.Kind == Log {
		if p := s.only(); p != nil {
			return p
		}
	}
	return x.parent()
}

// cancel notes that a request was cancelled. A response may come all the same.
func (m *Model) cancel(r *Row, at time.Duration) {
	if r.Done || r.Kind != Request {
		return
	}
	r.Status, r.Done, r.Latency = Cancelled, true, max(0, at-r.T)
	delete(r.Session.open, r)
	m.stats.of(r).result(r)
	m.changed(r)
}

func opposite(d capture.Dir) capture.Dir {
	if d == capture.ToServer {
		return capture.ToClient
	}
	return capture.ToServer
}

// sum returns a hash of texts that is never 0.
func sum(texts ...[]byte) uint64 {
	h := fnv.New64a()
	for _, t := range texts {
		h.Write(t)
		h.Write([]byte{0})
	}
	return h.Sum64() | 1
}
