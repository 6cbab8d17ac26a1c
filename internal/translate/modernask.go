package translate

import (
	"fmt"
	"strconv"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// unclaimedTimeout is how long a question that belongs to no request waits for one at most.
const unclaimedTimeout = time.Minute

// A question is a request of the legacy server, which the client gets as an input request.
type serverRequest struct {
	era.InputRequest
	cause          uint64
	id             jsonrpc.ID // of the request; nil if nobody waits for the answer
	urlElicitation bool       // it was in an error, which requires a page to be opened
	key            string     // in inputRequests
	call           *upstreamCall
	guessed        bool          // it may be that of another errand
	notFor         *upstreamCall // which it was taken from
	task           *upstreamTask // whose question it is, else nil
	timeout        *timer        // while it belongs to nothing, or to a task
	size           int
}

// appendTo appends the question as a member of inputRequests. It has params in any case, which clients are known to want, though the schema does not.
func (q *serverRequest) appendTo(dst []byte, key string) []byte {
	dst = jsonwire.AppendQuote(dst, key)
	dst = jsonwire.AppendQuote(append(dst, `:{"method":`...), q.Method)
	dst = append(dst, `,"params":`...)
	if q.Params == nil {
		return append(dst, "{}}"...)
	}
	return append(append(dst, q.Params...), '}')
}

// upstreamRequest takes what the server asks.
func (t *ModernToLegacy) upstreamRequest(m *jsonrpc.Message, call int64) {
	method := string(m.Method)
	if method == mcp.MethodPing {
		t.emit(Out{To: Upstream, Message: jsonrpc.AppendResult(nil, m.ID, []byte("{}")), Rule: "ping answered here"})
		return
	}
	q := &serverRequest{InputRequest: era.InputRequest{Method: method, Params: m.Params}, id: m.ID.Clone(), cause: t.cause}
	switch {
	case !era.IsInputRequest(method):
		t.rejectUpstream(q, jsonrpc.MethodNotFound(method))
		return
	case t.serverRequests[idKey(q.id)] != nil:
		t.rejectUpstream(q, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is open"))
		return
	case len(t.serverRequests) >= t.opts.Limits.InputRequests:
		t.rejectUpstream(q, internalError("too many questions are open"))
		return
	}
	if len(q.Params) > 0 && !era.IsObject(q.Params) {
		t.rejectUpstream(q, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params must be an object"))
		return
	}
	related := era.LookupString(q.Params, "_meta", mcp.MetaRelatedTask, "taskId")
	converted, err := q.Convert(t.modern, "")
	if err != nil {
		t.rejectUpstream(q, q.Refusal(err.Error()))
		return
	}
	q.InputRequest = era.InputRequest{Method: method, Params: append([]byte(nil), converted.Params...)}
	if converted.Params == nil {
		q.InputRequest.Params = nil
	}
	if q.size = len(q.Params) + 2*len(q.id); !t.reserve(q.size) {
		t.rejectUpstream(q, internalError("too many questions are open"))
		return
	}
	t.serverRequests[idKey(q.id)] = q
	switch {
	case related != "" && t.hiddenTasks[related] != nil:
		t.attach(q, t.hiddenTasks[related])
	case related != "" && len(related) <= maxTaskID && t.hasTasks():
		t.attachToTask(q, t.rememberTask(related))
	default:
		t.assign(q, call)
	}
}

// assign finds the request that can take a question to the client: the one on whose stream it came, or else one of those that the client waits for.
// Nothing says then whose question it is, so they take turns: the one that was asked least, and of these the last. While there is none, the question waits
// for one that begins or goes on.
func (t *ModernToLegacy) assign(q *serverRequest, call int64) {
	if c := t.calls[call]; c != nil && c.number != 0 {
		t.attach(q, c)
		return
	} else if c != nil && call != 0 {
		t.rejectUpstream(q, q.Refusal(fmt.Sprintf("a modern client cannot be asked anything before the answer to %s", clip(c.method))))
		return
	}
	best, candidates := t.candidate(q)
	if best != nil {
		q.guessed = candidates > 1 || q.notFor != nil
		t.attach(q, best)
		return
	}
	if _, missing := q.MissingCapability(&t.client, t.modern); missing != "" {
		t.rejectUpstream(q, q.Refusal("the client has not declared "+missing))
		return
	}
	t.unclaimed = append(t.unclaimed, q)
	wait := t.opts.Limits.InputTimeout
	if len(t.awaitingInput) == 0 {
		wait = min(wait, unclaimedTimeout)
	}
	q.timeout = t.after(wait, func() {
		t.removeUnclaimed(q)
		t.rejectUpstream(q, q.Refusal("a modern client can only be asked while it has a request open, and there was none"))
	})
	t.drop("waits for a request of the client")
}

// candidate returns the request that takes a question to the client, of how many that could.
func (t *ModernToLegacy) candidate(q *serverRequest) (best *upstreamCall, candidates int) {
	for _, c := range t.calls {
		if c != q.notFor && c.req != nil && c.number != 0 && t.cannotAsk(q, c) == "" && len(c.unsentInputs)+len(c.sentInputs) < maxInputs {
			candidates++
			if best == nil || c.before(best) {
				best = c
			}
		}
	}
	return best, candidates
}

// before reports whether r rather than the other takes a question to the client.
func (c *upstreamCall) before(other *upstreamCall) bool {
	if c.inputCount != other.inputCount {
		return c.inputCount < other.inputCount
	}
	return c.number > other.number
}

// cannotAsk says why the question cannot go to the client of a request; "" if it can.
func (t *ModernToLegacy) cannotAsk(q *serverRequest, c *upstreamCall) string {
	client := &t.client
	if c.req != nil {
		client = &c.req.client
	}
	if _, missing := q.MissingCapability(client, t.modern); missing != "" {
		return "the client has not declared " + missing
	}
	if c.inputRound >= t.opts.Limits.InputRounds {
		return "the client was asked too often for one request"
	}
	return ""
}

// reassignInput takes a question from an errand, for another one to take it along.
func (t *ModernToLegacy) reassignInput(q *serverRequest) {
	q.notFor, q.call = q.call, nil
	if q.id == nil || t.serverRequests[idKey(q.id)] != q {
		return
	}
	t.assign(q, 0)
}

// reassignInputs has other requests take along the questions of an errand whose client is away for long, or that was answered in the meantime, if they may be
// theirs.
func (t *ModernToLegacy) reassignInputs(c *upstreamCall) {
	open := c.sentInputs
	c.sentInputs = nil
	for _, q := range open {
		before := q.notFor
		q.notFor = c
		if other, _ := t.candidate(q); !q.guessed || other == nil {
			q.notFor = before
			c.sentInputs = append(c.sentInputs, q)
			continue
		}
		t.reassignInput(q)
	}
}

// attach has a request take a question along.
func (t *ModernToLegacy) attach(q *serverRequest, c *upstreamCall) {
	if why := t.cannotAsk(q, c); why != "" {
		t.rejectUpstream(q, q.Refusal(why))
		return
	}
	q.call = c
	c.inputCount++
	q.key = "input-" + strconv.Itoa(c.inputCount)
	c.unsentInputs = append(c.unsentInputs, q)
	t.drop("waits for others that are asked at the same time")
	if c.req != nil && len(c.unsentInputs) == 1 {
		c.gatherTimer = t.after(t.opts.Limits.GatherDelay, func() { t.sendInputRequired(c) })
	}
}

// claimInputs gives a request the questions that belong to none.
func (t *ModernToLegacy) claimInputs(c *upstreamCall) {
	for _, q := range append([]*serverRequest(nil), t.unclaimed...) {
		if t.cannotAsk(q, c) == "" && len(c.unsentInputs) < maxInputs {
			t.removeUnclaimed(q)
			q.call, q.guessed = c, true
			c.inputCount++
			q.key = "input-" + strconv.Itoa(c.inputCount)
			c.unsentInputs = append(c.unsentInputs, q)
		}
	}
}

func (t *ModernToLegacy) removeUnclaimed(q *serverRequest) {
	t.timers.stop(q.timeout)
	for i, one := range t.unclaimed {
		if one == q {
			t.unclaimed = append(t.unclaimed[:i:i], t.unclaimed[i+1:]...)
			return
		}
	}
}

// removePending takes a question off the list of those that are open.
func (t *ModernToLegacy) removePending(q *serverRequest) {
	if q.id != nil && t.serverRequests[idKey(q.id)] == q {
		delete(t.serverRequests, idKey(q.id))
		t.reserved -= q.size
	}
	t.timers.stop(q.timeout)
}

// removeAllPending forgets all questions: the server that asked is gone.
func (t *ModernToLegacy) removeAllPending() {
	for _, q := range t.serverRequests {
		t.timers.stop(q.timeout)
		t.reserved -= q.size
		q.id = nil
	}
	clear(t.serverRequests)
	t.unclaimed = nil
}

// rejectUpstream answers a question of the server with an error.
func (t *ModernToLegacy) rejectUpstream(q *serverRequest, e *jsonrpc.Error) {
	t.removePending(q)
	if q.id != nil {
		t.emit(Out{To: Upstream, Message: jsonrpc.AppendError(nil, q.id, e, false), Rule: "refused"})
	}
}

// respondUpstream answers a question of the server.
func (t *ModernToLegacy) respondUpstream(q *serverRequest, result []byte, rule string) {
	t.removePending(q)
	if q.id != nil {
		t.emit(Out{To: Upstream, Message: jsonrpc.AppendResult(nil, q.id, result), Rule: rule})
	}
}

// cancelInput answers a question that the client did not answer and will not any more.
func (t *ModernToLegacy) cancelInput(q *serverRequest) {
	if q.Method == mcp.MethodElicit {
		t.respondUpstream(q, []byte(`{"action":"cancel"}`), "the client is gone")
		return
	}
	t.rejectUpstream(q, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client did not answer"})
}

// upstreamCanceled takes back a question.
func (t *ModernToLegacy) upstreamCanceled(m *jsonrpc.Message) {
	id, _, _ := era.Cancellation{}.Target(m)
	q := t.serverRequests[idKey(id)]
	if id == nil || q == nil {
		t.drop("nothing to cancel")
		return
	}
	t.removePending(q)
	t.removeUnclaimed(q)
	if q.task != nil {
		delete(q.task.inputs, q.key)
	}
	if c := q.call; c != nil {
		c.unsentInputs = removeServerRequest(c.unsentInputs, q)
		c.sentInputs = removeServerRequest(c.sentInputs, q)
		if len(c.unsentInputs) == 0 {
			t.timers.stop(c.gatherTimer)
		}
	}
	t.drop("the server takes a question back")
}

func removeServerRequest(list []*serverRequest, q *serverRequest) []*serverRequest {
	for i, one := range list {
		if one == q {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// requestElicitations asks the client to open the pages that the server's error requires, after which the request is sent again.
func (t *ModernToLegacy) requestElicitations(c *upstreamCall, e *jsonrpc.Error) bool {
	list := era.Lookup(e.Data, "elicitations")
	if c.number == 0 || len(list) == 0 || list[0] != '[' {
		return false
	}
	var elicitations []*serverRequest
	elements := jsonwire.ArrayElements(list)
	for elements.Next() {
		q := &serverRequest{InputRequest: era.InputRequest{Method: mcp.MethodElicit, Params: elements.Value()}, urlElicitation: true, call: c, cause: t.cause}
		if !era.IsObject(q.Params) || !q.IsURL() || len(elicitations) == maxInputs {
			return false
		}
		if required, missing := q.MissingCapability(&c.req.client, t.modern); missing != "" {
			data := append(append([]byte(`{"requiredCapabilities":`), required...), '}')
			r := c.req
			t.release(c)
			t.fail(r, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapability, Message: "the client has not declared what is needed here: " + missing, Data: data}, "-32042 → -32021")
			return true
		}
		q.InputRequest, _ = q.Convert(t.modern, "")
		c.inputCount++
		q.key = "input-" + strconv.Itoa(c.inputCount)
		elicitations = append(elicitations, q)
	}
	if len(elicitations) == 0 || c.inputRound >= t.opts.Limits.InputRounds {
		return false
	}
	c.unsentInputs = append(c.unsentInputs, elicitations...)
	c.sendAfterInput = true
	t.sendInputRequired(c)
	return true
}
