package translate

import (
	"maps"
	"slices"
	"strconv"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A legacyCall is a request to the modern server.
type legacyCall struct {
	id     int64
	method string
	// req is the client request, or nil.
	req  *legacyRequest
	done func(o outcome)
	// resend repeats a call that did not run; nil if it must not be repeated.
	resend func()
}

// A legacyCalls holds the pending calls to the modern server, and the requests that wait for it.
type legacyCalls struct {
	*core
	requests *legacyRequests
	byID     map[int64]*legacyCall
	// queue holds requests that wait for the server or for release.
	queue waitQueue[*legacyRequest]
	// held says that requests wait for release.
	held bool
	// down is set between UpstreamLost and UpstreamReady.
	down bool
}

// add adds a call to the server. r may be nil.
func (lc *legacyCalls) add(method string, r *legacyRequest, done func(o outcome)) *legacyCall {
	c := &legacyCall{id: lc.opts.IDs.Add(1), method: method, req: r, done: done}
	sparse.Set(&lc.byID, c.id, c)
	if r != nil {
		r.callID = c.id
	}
	return c
}

// queueIfNotReady queues do if the server is lost or requests are held. It reports if it did.
func (lc *legacyCalls) queueIfNotReady(r *legacyRequest, do func()) bool {
	if !lc.down && !lc.held {
		return false
	}
	lc.queue.add(r, len(lc.requests.byKey), do)
	return true
}

// hold queues requests until release.
func (lc *legacyCalls) hold() { lc.held = true }

// release ends the hold on requests.
func (lc *legacyCalls) release() {
	lc.held = false
	if !lc.down {
		lc.queue.run()
	}
}

// take removes a pending call and returns it, or nil.
func (lc *legacyCalls) take(id int64) *legacyCall {
	c := lc.byID[id]
	sparse.Delete(&lc.byID, id)
	return c
}

// fail ends a call that the transport lost.
func (lc *legacyCalls) fail(id int64, e *jsonrpc.Error) {
	if c := lc.take(id); c != nil {
		c.done(outcome{err: e, lost: true})
	}
}

// lost ends all calls with e, except those in unsent, which it queues.
func (lc *legacyCalls) lost(e *jsonrpc.Error, unsent []int64) {
	lc.down, lc.held = true, false
	for _, id := range slices.Sorted(maps.Keys(lc.byID)) {
		if c := lc.byID[id]; c != nil && c.resend != nil && slices.Contains(unsent, id) {
			sparse.Delete(&lc.byID, id)
			lc.queue.add(c.req, len(lc.requests.byKey), c.resend)
			continue
		}
		lc.fail(id, e)
	}
}

// reconnected runs the queued requests on the next connection. It reports if the server was lost.
func (lc *legacyCalls) reconnected() bool {
	if !lc.down {
		return false
	}
	lc.down = false
	lc.release()
	return true
}

// failQueue fails the queued requests.
func (lc *legacyCalls) failQueue(e *jsonrpc.Error) {
	for _, w := range lc.queue.take() {
		lc.requests.fail(w.req, e, "")
	}
}

// cancel cancels a call, if it is pending.
func (lc *legacyCalls) cancel(id int64, reason string) {
	if c := lc.take(id); c != nil {
		lc.cancelUpstream(id, c.method, reason)
	}
}

// cancelFor cancels the call of a client request.
func (lc *legacyCalls) cancelFor(r *legacyRequest, reason string) {
	if c := lc.byID[r.callID]; c != nil && c.req == r {
		lc.cancel(c.id, reason)
	}
}

func (lc *legacyCalls) cancelAll(reason string) {
	for _, id := range slices.Sorted(maps.Keys(lc.byID)) {
		if c := lc.byID[id]; c.method != mcp.MethodTasksCancel { // sent for the same reason
			lc.cancelUpstream(id, c.method, reason)
		}
	}
}

// streamOf returns the downstream stream of a call's client request, or 0.
func (lc *legacyCalls) streamOf(id int64) uint64 {
	if c := lc.byID[id]; c != nil && c.req != nil && !c.req.finished {
		return c.req.stream
	}
	return 0
}

// receive takes the response to a call.
func (lc *legacyCalls) receive(m *jsonrpc.Message) {
	id, _ := jsonwire.ParseInt(m.ID)
	c := lc.take(id)
	if c == nil {
		lc.drop("matches no pending request")
		return
	}
	c.done(outcomeOf(m))
}

// progress forwards progress with the client's token.
func (lc *legacyCalls) progress(m *jsonrpc.Message, frame []byte) {
	token, _ := m.Param("progressToken")
	id, _ := jsonwire.ParseInt(token)
	c := lc.byID[id]
	if c == nil || c.req == nil || c.req.finished || c.req.progressToken == nil {
		lc.drop("progress matches no pending request")
		return
	}
	v, _ := m.Param("progress")
	progress, err := strconv.ParseFloat(string(v), 64)
	if err != nil || c.req.inputRound > 0 && progress <= c.req.progress {
		lc.drop("progress of a new round that the client has already seen")
		return
	}
	c.req.progress = progress
	msg := era.RewriteMember(frame, "params", func(params []byte) []byte { return withToken(params, c.req.progressToken) })
	lc.emit(Out{To: Downstream, Stream: c.req.stream, Message: msg, Rule: "progressToken"})
}
