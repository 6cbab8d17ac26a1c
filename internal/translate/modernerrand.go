package translate

import (
	"bytes"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An errand is a request to the legacy server. It outlives the request of the client that it was made for: while the client answers what the server asks,
// there is none, and the request that brings the answers takes the errand up again.
type errand struct {
	id        int64  // of the call; 0 if none is under way
	method    string // that the client called
	farMethod string // that the server is called by
	near      *exchange
	done      func(a answer)
	params    []byte // of the call but for the progress token
	size      int
	token     int64 // that the server tells progress with

	// Of requests before whose answer the client may be asked.
	number  uint64 // in request states; 0 for other requests
	bound   []byte // what a state of it is good for; see bind
	round   int
	fresh   []*question // to be asked
	open    []*question // that the client was asked in the last round
	keys    int         // of questions so far
	gather  *timer      // for the first question to wait for others
	doubt   *timer      // while the client is away: whether the questions are this errand's
	giveUp  *timer      // the same: whether it comes back
	result  *answer     // that came while the client was away
	unsent  bool        // the client has to answer before the server is called, or called again
	refused bool        // the user would not open a page

	tool   string
	task   []byte // params.task, if it is to become one
	tasks  bool   // the client knows tasks
	hidden string // the task, if the client does not
}

// callServer calls the server on this side's own account.
func (t *ModernClient) callServer(method string, params []byte, rule string, done func(a answer)) *errand {
	r := &errand{method: method, farMethod: method, params: params, done: done}
	t.dispatch(r, rule)
	return r
}

// dispatch sends a call with an id of its own.
func (t *ModernClient) dispatch(r *errand, rule string) {
	r.id = t.opts.IDs.Add(1)
	t.errands[r.id] = r
	params := r.params
	var of uint64
	if r.near != nil {
		of = r.near.mark
	}
	if r.task != nil {
		params = withMember(params, append([]byte(`"task":`), r.task...))
	}
	if x := r.near; x != nil && x.token != nil && r.hidden == "" {
		delete(t.tokens, r.token)
		r.token = r.id
		t.tokens[r.token] = r
		params = addMeta(params, appendInt(nil, mcp.MetaProgressToken, r.token))
	}
	t.sendFar(r.id, r.farMethod, params, rule, of)
}

// withMember adds the text of a member to an object, which may be nil.
func withMember(obj, member []byte) []byte {
	if obj == nil {
		obj = []byte("{}")
	}
	return era.Rewrite(nil, obj, nil, member)
}

// begin starts a request of the client, unless the server has questions that it can take along: those come first.
func (t *ModernClient) begin(r *errand) {
	x := r.near
	if x == nil || x.over {
		return
	}
	if r.number != 0 {
		t.adoptOrphans(r)
		if len(r.fresh) > 0 {
			r.unsent = true
			t.ask(r)
			return
		}
	}
	t.sendErrand(r)
}

// sendErrand sends a request of the client, after the log level that it wants.
func (t *ModernClient) sendErrand(r *errand) {
	r.unsent = false
	x := r.near
	if x != nil && x.level != mcp.LevelNone && (t.level == mcp.LevelNone || x.level < t.level) && era.Lookup(t.server.caps, "logging") != nil {
		t.level = x.level
		params := append(jsonwire.AppendQuote([]byte(`{"level":`), x.level.String()), '}')
		t.callServer(mcp.MethodSetLevel, params, "logLevel → logging/setLevel", func(answer) {
			t.whenReady(x, func() { // it may be that the server was lost
				if r.near == x && !x.over {
					t.sendErrand(r)
				}
			})
		})
		return
	}
	if r.tool != "" && r.task == nil && t.hasTasks() {
		if x != nil && t.mustLearn(r) {
			return
		}
		t.augment(r, t.tools.support[r.tool])
	}
	t.dispatch(r, "− _meta")
}

// settle takes the server's answer to a request of the client.
func (t *ModernClient) settle(r *errand, a answer) {
	r.id = 0
	t.later.stop(r.gather)
	if r.near == nil && t.held[r.number] != r { // given up
		return
	}
	if e := a.err; e != nil && !a.lost && e.Code == jsonrpc.CodeMethodNotFound && r.tool != "" && r.task == nil && t.hasTasks() { // the tool is called as a task only
		r.task = []byte("{}")
		t.dispatch(r, "tools/call as a task")
		return
	}
	if r.isTask(a) && !r.tasks {
		t.hideTask(r, a.result)
		return
	}
	if a.err != nil && a.err.Code == mcp.CodeURLElicitationRequired && r.near != nil && t.askPages(r, a.err) {
		return
	}
	if r.near == nil { // until the client is back
		t.keepAnswer(r, a)
		return
	}
	t.deliver(r, a)
}

// keepAnswer keeps an answer for a client that is away.
func (t *ModernClient) keepAnswer(r *errand, a answer) {
	if a.result != nil {
		a.result = bytes.Clone(a.result)
	}
	if n := len(a.result); !t.keep(n) {
		a = answer{err: errTooMuch}
	} else {
		r.size += n
	}
	a.mark = t.mark
	r.result = &a
	t.drop("kept until the client has answered")
	t.doubt(r)
}

// deliver gives the client the server's answer.
func (t *ModernClient) deliver(r *errand, a answer) {
	x := r.near
	t.release(r)
	if a.err != nil {
		e := era.ConvertError(a.err, r.method, t.modern)
		rule := ""
		if e.Code != a.err.Code {
			rule = strconv.Itoa(int(a.err.Code)) + " → " + strconv.Itoa(int(e.Code))
		}
		t.fail(x, e, rule)
		return
	}
	if r.isTask(a) {
		t.reply(x, t.taskResult(a.result), "task → resultType task", a.mark)
		return
	}
	result := a.result
	if r.hidden != "" {
		result = unrelate(result)
	}
	if r.method == mcp.MethodToolsList && t.hasTasks() {
		result = t.listed(r.params, result)
	}
	t.answer(x, result, "+ resultType", a.mark)
}

// release forgets an errand, with what belongs to it. Questions that nobody was asked may find another request.
func (t *ModernClient) release(r *errand) {
	delete(t.errands, r.id)
	delete(t.tokens, r.token)
	delete(t.held, r.number)
	delete(t.hidden, r.hidden)
	t.later.stop(r.gather)
	t.later.stop(r.giveUp)
	t.later.stop(r.doubt)
	t.kept -= r.size
	r.size = 0
	r.id = 0
	fresh, open := r.fresh, r.open
	r.fresh, r.open = nil, nil
	for _, q := range open {
		t.leave(q)
	}
	for _, q := range fresh {
		t.reassign(q)
	}
}

// giveUp cancels an errand: the server need not go on, and gets no answers any more.
func (t *ModernClient) giveUp(r *errand, reason string) {
	var others []*question // that may be those of requests that go on
	for _, q := range append(r.fresh, r.open...) {
		if q.guessed {
			others = append(others, q)
		} else {
			t.leave(q)
		}
	}
	r.fresh, r.open = nil, nil
	if r.hidden != "" && t.errands[r.id] == r {
		t.callServer(mcp.MethodTasksCancel, taskParams(r.hidden), "cancelled", func(answer) {})
	}
	if r.id != 0 && t.errands[r.id] == r {
		delete(t.errands, r.id)
		t.cancelFar(r.id, r.farMethod, reason)
	}
	t.release(r)
	for _, q := range others {
		t.reassign(q)
	}
}
