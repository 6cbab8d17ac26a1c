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

// orphanFor is how long a question that belongs to no request waits for one at most.
const orphanFor = time.Minute

// A question is a request of the legacy server, which the client gets as an input request.
type question struct {
	era.Ask
	mark    uint64
	id      jsonrpc.ID // of the request; nil if nobody waits for the answer
	page    bool       // it was in an error, which requires a page to be opened
	key     string     // in inputRequests
	errand  *errand
	guessed bool     // it may be that of another errand
	not     *errand  // which it was taken from
	task    *farTask // whose question it is, else nil
	giveUp  *timer   // while it belongs to nothing, or to a task
	size    int
}

// appendTo appends the question as a member of inputRequests. It has params in any case, which clients are known to want, though the schema does not.
func (q *question) appendTo(dst []byte, key string) []byte {
	dst = jsonwire.AppendQuote(dst, key)
	dst = jsonwire.AppendQuote(append(dst, `:{"method":`...), q.Method)
	dst = append(dst, `,"params":`...)
	if q.Params == nil {
		return append(dst, "{}}"...)
	}
	return append(append(dst, q.Params...), '}')
}

// farRequest takes what the server asks.
func (t *ModernClient) farRequest(m *jsonrpc.Message, on int64) {
	method := string(m.Method)
	if method == mcp.MethodPing {
		t.emit(Out{To: Far, Message: jsonrpc.AppendResult(nil, m.ID, []byte("{}")), Rule: "ping answered here"})
		return
	}
	q := &question{Ask: era.Ask{Method: method, Params: m.Params}, id: m.ID.Clone(), mark: t.mark}
	switch {
	case !era.IsAsk(method):
		t.refuseFar(q, jsonrpc.MethodNotFound(method))
		return
	case t.asks[idKey(q.id)] != nil:
		t.refuseFar(q, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is open"))
		return
	case len(t.asks) >= t.opts.Limits.Asks:
		t.refuseFar(q, internal("too many questions are open"))
		return
	}
	if len(q.Params) > 0 && !era.IsObject(q.Params) {
		t.refuseFar(q, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params must be an object"))
		return
	}
	related := era.LookupString(q.Params, "_meta", mcp.MetaRelatedTask, "taskId")
	converted, err := q.Convert(t.modern, "")
	if err != nil {
		t.refuseFar(q, q.Refusal(err.Error()))
		return
	}
	q.Ask = era.Ask{Method: method, Params: append([]byte(nil), converted.Params...)}
	if converted.Params == nil {
		q.Ask.Params = nil
	}
	if q.size = len(q.Params) + 2*len(q.id); !t.keep(q.size) {
		t.refuseFar(q, internal("too many questions are open"))
		return
	}
	t.asks[idKey(q.id)] = q
	switch {
	case related != "" && t.hidden[related] != nil:
		t.give(q, t.hidden[related])
	case related != "" && len(related) <= maxTaskID && t.hasTasks():
		t.giveTask(q, t.remember(related))
	default:
		t.assign(q, on)
	}
}

// assign finds the request that can take a question to the client: the one on whose stream it came, or else one of those that the client waits for.
// Nothing says then whose question it is, so they take turns: the one that was asked least, and of these the last. While there is none, the question waits
// for one that begins or goes on.
func (t *ModernClient) assign(q *question, on int64) {
	if r := t.errands[on]; r != nil && r.number != 0 {
		t.give(q, r)
		return
	} else if r != nil && on != 0 {
		t.refuseFar(q, q.Refusal(fmt.Sprintf("a modern client cannot be asked anything before the answer to %s", clip(r.method))))
		return
	}
	best, candidates := t.candidate(q)
	if best != nil {
		q.guessed = candidates > 1 || q.not != nil
		t.give(q, best)
		return
	}
	if _, missing := q.Missing(&t.client, t.modern); missing != "" {
		t.refuseFar(q, q.Refusal("the client has not declared "+missing))
		return
	}
	t.orphans = append(t.orphans, q)
	wait := t.opts.Limits.HoldFor
	if len(t.held) == 0 {
		wait = min(wait, orphanFor)
	}
	q.giveUp = t.after(wait, func() {
		t.unorphan(q)
		t.refuseFar(q, q.Refusal("a modern client can only be asked while it has a request open, and there was none"))
	})
	t.drop("waits for a request of the client")
}

// candidate returns the request that takes a question to the client, of how many that could.
func (t *ModernClient) candidate(q *question) (best *errand, candidates int) {
	for _, r := range t.errands {
		if r != q.not && r.near != nil && r.number != 0 && t.cannotAsk(q, r) == "" && len(r.fresh)+len(r.open) < maxInputs {
			candidates++
			if best == nil || r.asksBefore(best) {
				best = r
			}
		}
	}
	return best, candidates
}

// asksBefore reports whether r rather than the other takes a question to the client.
func (r *errand) asksBefore(other *errand) bool {
	if r.keys != other.keys {
		return r.keys < other.keys
	}
	return r.number > other.number
}

// cannotAsk says why the question cannot go to the client of a request; "" if it can.
func (t *ModernClient) cannotAsk(q *question, r *errand) string {
	client := &t.client
	if r.near != nil {
		client = &r.near.client
	}
	if _, missing := q.Missing(client, t.modern); missing != "" {
		return "the client has not declared " + missing
	}
	if r.round >= t.opts.Limits.Rounds {
		return "the client was asked too often for one request"
	}
	return ""
}

// reassign takes a question from an errand, for another one to take it along.
func (t *ModernClient) reassign(q *question) {
	q.not, q.errand = q.errand, nil
	if q.id == nil || t.asks[idKey(q.id)] != q {
		return
	}
	t.assign(q, 0)
}

// doubt has other requests take along the questions of an errand whose client is away for long, or that was answered in the meantime, if they may be
// theirs.
func (t *ModernClient) doubt(r *errand) {
	open := r.open
	r.open = nil
	for _, q := range open {
		before := q.not
		q.not = r
		if other, _ := t.candidate(q); !q.guessed || other == nil {
			q.not = before
			r.open = append(r.open, q)
			continue
		}
		t.reassign(q)
	}
}

// give has a request take a question along.
func (t *ModernClient) give(q *question, r *errand) {
	if why := t.cannotAsk(q, r); why != "" {
		t.refuseFar(q, q.Refusal(why))
		return
	}
	q.errand = r
	r.keys++
	q.key = "input-" + strconv.Itoa(r.keys)
	r.fresh = append(r.fresh, q)
	t.drop("waits for others that are asked at the same time")
	if r.near != nil && len(r.fresh) == 1 {
		r.gather = t.after(t.opts.Limits.Gather, func() { t.ask(r) })
	}
}

// adoptOrphans gives a request the questions that belong to none.
func (t *ModernClient) adoptOrphans(r *errand) {
	for _, q := range append([]*question(nil), t.orphans...) {
		if t.cannotAsk(q, r) == "" && len(r.fresh) < maxInputs {
			t.unorphan(q)
			q.errand, q.guessed = r, true
			r.keys++
			q.key = "input-" + strconv.Itoa(r.keys)
			r.fresh = append(r.fresh, q)
		}
	}
}

func (t *ModernClient) unorphan(q *question) {
	t.later.stop(q.giveUp)
	for i, one := range t.orphans {
		if one == q {
			t.orphans = append(t.orphans[:i:i], t.orphans[i+1:]...)
			return
		}
	}
}

// forget takes a question off the list of those that are open.
func (t *ModernClient) forget(q *question) {
	if q.id != nil && t.asks[idKey(q.id)] == q {
		delete(t.asks, idKey(q.id))
		t.kept -= q.size
	}
	t.later.stop(q.giveUp)
}

// forgetAsks forgets all questions: the server that asked is gone.
func (t *ModernClient) forgetAsks() {
	for _, q := range t.asks {
		t.later.stop(q.giveUp)
		t.kept -= q.size
		q.id = nil
	}
	clear(t.asks)
	t.orphans = nil
}

// refuseFar answers a question of the server with an error.
func (t *ModernClient) refuseFar(q *question, e *jsonrpc.Error) {
	t.forget(q)
	if q.id != nil {
		t.emit(Out{To: Far, Message: jsonrpc.AppendError(nil, q.id, e, false), Rule: "refused"})
	}
}

// answerFar answers a question of the server.
func (t *ModernClient) answerFar(q *question, result []byte, rule string) {
	t.forget(q)
	if q.id != nil {
		t.emit(Out{To: Far, Message: jsonrpc.AppendResult(nil, q.id, result), Rule: rule})
	}
}

// leave answers a question that the client did not answer and will not any more.
func (t *ModernClient) leave(q *question) {
	if q.Method == mcp.MethodElicit {
		t.answerFar(q, []byte(`{"action":"cancel"}`), "the client is gone")
		return
	}
	t.refuseFar(q, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client did not answer"})
}

// farCancelled takes back a question.
func (t *ModernClient) farCancelled(m *jsonrpc.Message) {
	id, _, _ := era.Cancellation{}.Target(m)
	q := t.asks[idKey(id)]
	if id == nil || q == nil {
		t.drop("nothing to cancel")
		return
	}
	t.forget(q)
	t.unorphan(q)
	if q.task != nil {
		delete(q.task.asks, q.key)
	}
	if r := q.errand; r != nil {
		r.fresh = removeQuestion(r.fresh, q)
		r.open = removeQuestion(r.open, q)
		if len(r.fresh) == 0 {
			t.later.stop(r.gather)
		}
	}
	t.drop("the server takes a question back")
}

func removeQuestion(list []*question, q *question) []*question {
	for i, one := range list {
		if one == q {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// askPages asks the client to open the pages that the server's error requires, after which the request is sent again.
func (t *ModernClient) askPages(r *errand, e *jsonrpc.Error) bool {
	list := era.Lookup(e.Data, "elicitations")
	if r.number == 0 || len(list) == 0 || list[0] != '[' {
		return false
	}
	var pages []*question
	elements := jsonwire.ArrayElements(list)
	for elements.Next() {
		q := &question{Ask: era.Ask{Method: mcp.MethodElicit, Params: elements.Value()}, page: true, errand: r, mark: t.mark}
		if !era.IsObject(q.Params) || !q.URL() || len(pages) == maxInputs {
			return false
		}
		if required, missing := q.Missing(&r.near.client, t.modern); missing != "" {
			data := append(append([]byte(`{"requiredCapabilities":`), required...), '}')
			x := r.near
			t.release(r)
			t.fail(x, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapability, Message: "the client has not declared what is needed here: " + missing, Data: data}, "-32042 → -32021")
			return true
		}
		q.Ask, _ = q.Convert(t.modern, "")
		r.keys++
		q.key = "input-" + strconv.Itoa(r.keys)
		pages = append(pages, q)
	}
	if len(pages) == 0 || r.round >= t.opts.Limits.Rounds {
		return false
	}
	r.fresh = append(r.fresh, pages...)
	r.unsent = true
	t.ask(r)
	return true
}
