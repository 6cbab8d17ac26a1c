package bridge

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A translated is the party where clients and the server are of different eras: package translate decides what is said to either. It is the user of its line, or one of several
// on a trunk.
type translator struct {
	b        *Bridge
	upstream *upstream
	mux      *mux            // nil if the line is its own
	shared   *sharedUpstream // that modern clients share; nil if there is one client

	mu             sync.Mutex // serialises what the translator is told and what it says
	clients        map[*client]struct{}
	machine        translate.Translator
	callsByStream  map[uint64]*call // of HTTP
	callsByID      map[string]*call // of a stream, by the key of the id
	lastStream     uint64
	timer          *time.Timer
	serverRequests map[string]struct{} // keys of the ids of questions that the client has not answered
	down           bool                // the translator was told so
	closed         bool

	lastID *atomic.Int64        // of requests to the server, if clients share it
	pings  map[int64]chan error // of the bridge's own, under way

	mayLackHeaders bool // calls may lack headers that the server asks for
	retries        headerRetries
}

// newTranslator returns the party of a client of the era near, on a line that there is already, or one of its own if l is nil.
func (b *Bridge) newTranslator(cl *client, clientEra Era, up *upstream) *translator {
	var t *translator
	if clientEra == EraModern {
		var o *translate.Options
		if cl.aggregate {
			o = b.sharedTranslateOptions()
		}
		t = newUnboundTranslator(b, translate.NewModernToLegacy(o))
	} else {
		t = newUnboundTranslator(b, translate.NewLegacyToModern(nil))
		t.mayLackHeaders = b.opts.HTTP
	}
	t.clients[cl] = struct{}{}
	t.bind(up)
	return t
}

// newUnboundTranslator returns a party without a line.
func newUnboundTranslator(b *Bridge, machine translate.Translator) *translator {
	t := &translator{b: b, machine: machine, clients: map[*client]struct{}{}, callsByStream: map[uint64]*call{}, callsByID: map[string]*call{}, serverRequests: map[string]struct{}{}}
	t.timer = time.AfterFunc(time.Hour, t.tick)
	t.timer.Stop()
	return t
}

// bind makes the party the user of a line, of its own if l is nil.
func (t *translator) bind(up *upstream) {
	if up != nil {
		t.upstream = up
		up.setHandler(t, nil)
		return
	}
	t.upstream = t.b.newUpstream(t)
	t.b.wg.Go(t.upstream.run)
}

// step tells the translator something, and does what it says. of is the event that is the reason.
func (t *translator) step(rec recorder, event uint64, f func(now time.Time) []translate.Out) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.machine.SetCause(event)
		t.applyLocked(rec, event, f(time.Now()))
	}
}

func (t *translator) applyLocked(rec recorder, event uint64, outs []translate.Out) {
	sent, why := false, ""
	for i := range outs {
		o := &outs[i]
		sent = sent || len(o.Message) > 0
		if o.To == translate.Dropped {
			why = o.Rule
		}
		t.sendLocked(o, provenance{rec: rec, event: event, moreEvents: o.Causes, rule: cmp.Or(o.Rule, "id")})
	}
	if !sent && why != "" && event != 0 {
		rec.note("message " + strconv.FormatUint(event, 10) + ": " + why)
	}
	next := t.machine.Next()
	if next.IsZero() {
		t.timer.Stop()
	} else {
		t.timer.Reset(max(time.Until(next), 0))
	}
}

func (t *translator) tick() {
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out { return t.machine.Tick(now) })
}

// sendLocked sends one message.
func (t *translator) sendLocked(o *translate.Out, from provenance) {
	if len(o.Message) == 0 {
		if o.To == translate.Downstream && o.Final {
			t.answerLocked(o, nil, from)
		}
		return
	}
	switch o.To {
	case translate.Upstream:
		t.toServerLocked(o, from)
	case translate.Downstream:
		t.toClientLocked(o, from)
	}
}

func (t *translator) toServerLocked(o *translate.Out, from provenance) {
	it := queuedMessage{frame: o.Message, from: from}
	switch {
	case o.Call != 0 && !o.Cancel:
		it.id = jsonrpc.IntID(o.Call)
		if t.mayLackHeaders {
			t.retries.add(o.Call, o.Message)
		}
		if t.mux != nil {
			t.mux.track(o.Call, t, o.Message)
		}
	case o.Call != 0 && t.mux != nil:
		t.mux.untrack(o.Call)
	case o.Call != 0:
		delete(t.retries.calls, o.Call)
	}
	if o.Cancel && t.upstream.withdraw(jsonrpc.IntID(o.Call)) {
		return // what gives it up goes before all that waits, so before the request too
	}
	if o.Cancel || t.down {
		t.upstream.sendUrgent(it) // p.lost: what goes before all that waits, once there is a server again
		return
	}
	if err := t.upstream.trySend(it); err != nil && it.id != nil {
		t.applyLocked(from.rec, from.event, t.machine.CallFailed(time.Now(), o.Call, clientError(err)))
	}
}

func (t *translator) toClientLocked(o *translate.Out, from provenance) {
	if o.Final {
		t.answerLocked(o, o.Message, from)
		return
	}
	c := t.callsByStream[o.Stream]
	t.noteActivityLocked(c, o.Message)
	if c != nil {
		t.sendToClientLocked(c.client, c.out, o.Message, from)
		return
	}
	if t.shared != nil && o.Stream != 0 { // whoever it was for is gone
		return
	}
	for cl := range t.clients {
		t.sendToClientLocked(cl, nil, o.Message, from)
	}
}

// sendToClientLocked sends a client what is no answer.
func (t *translator) sendToClientLocked(cl *client, out jsonrpc.Sender, message []byte, from provenance) {
	if err := cl.send(out, message, from); err != nil {
		t.b.opts.Logger.Debug("a message was dropped", "error", err)
	}
}

// answerLocked answers a call.
func (t *translator) answerLocked(o *translate.Out, message []byte, from provenance) {
	if o.Stream != 0 {
		c := t.callsByStream[o.Stream]
		delete(t.callsByStream, o.Stream)
		if c != nil {
			c.finish(message, from)
			return
		}
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) == nil && len(m.ID) > 0 {
		if c := t.callsByID[idKey(m.ID)]; c != nil {
			delete(t.callsByID, idKey(m.ID))
			c.finish(message, from)
			return
		}
	}
	if message == nil || t.shared != nil {
		return
	}
	for cl := range t.clients {
		cl.send(nil, message, from)
	}
}

// request implements party.
func (t *translator) request(c *call, frame []byte, _ *jsonrpc.Message) {
	if err := t.upstream.unavailable(); err != nil {
		c.fail(clientError(err))
		return
	}
	t.mu.Lock()
	if t.closed || c.done.Load() {
		t.mu.Unlock()
		c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended"))
		return
	}
	if c.out != nil || t.shared != nil {
		t.lastStream++
		c.stream = t.lastStream
		t.callsByStream[c.stream] = c
	} else {
		if t.callsByID[idKey(c.id)] != nil {
			t.mu.Unlock()
			c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "the id is that of another request which is under way"))
			return
		}
		t.callsByID[idKey(c.id)] = c
	}
	t.machine.SetCause(c.event)
	t.applyLocked(c.rec, c.event, t.machine.FromDownstream(time.Now(), frame, c.stream))
	if !c.done.Load() {
		c.startTimer(func() { t.expire(c) })
	}
	t.mu.Unlock()
	signal(t.upstream.notify) // the translator may wait for a server
}

// notification implements party.
func (t *translator) notification(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	var c *call
	id, cancels := m.Param("requestId")
	cancels = cancels && string(m.Method) == mcp.NotificationCancelled
	t.mu.Lock()
	if cancels {
		c = t.canceledCallLocked(cl, id)
	}
	if !t.closed {
		var stream uint64
		if c != nil && t.shared != nil {
			stream = c.stream
		}
		t.applyLocked(cl.rec, event, t.machine.FromDownstream(time.Now(), frame, stream))
	}
	if c != nil { // afterwards: what is done about a message may need to know of its request
		delete(t.callsByStream, c.stream)
	}
	t.mu.Unlock()
	if c != nil && c.method != mcp.MethodInitialize {
		c.finish(nil, provenance{})
	}
}

// canceledCallLocked returns the request that a client has cancelled, which is to have no answer. A modern client on HTTP hangs up instead.
func (t *translator) canceledCallLocked(cl *client, id jsonrpc.ID) *call {
	if c := t.callsByID[idKey(id)]; c != nil {
		delete(t.callsByID, idKey(id))
		return c
	}
	for _, c := range t.callsByStream {
		if c.client == cl && (!c.modern || c.out == nil) && idKey(c.id) == idKey(id) {
			return c
		}
	}
	return nil
}

// response implements party.
func (t *translator) response(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	t.mu.Lock()
	delete(t.serverRequests, idKey(m.ID))
	t.mu.Unlock()
	t.step(cl.rec, event, func(now time.Time) []translate.Out { return t.machine.FromDownstream(now, frame, 0) })
}

// abandon implements party.
func (t *translator) abandon(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.stream == 0 || t.closed {
		return
	}
	t.applyLocked(c.client.rec, 0, t.machine.StreamClosed(time.Now(), c.stream))
	delete(t.callsByStream, c.stream)
}

// removeClient implements party.
func (t *translator) removeClient(cl *client) {
	if t.shared != nil {
		t.detach(cl)
		t.shared.release()
		return
	}
	if !t.shutdown() {
		return
	}
	if t.mux != nil {
		t.mux.removeTranslator(t)
	} else {
		t.upstream.close()
	}
}

// shutdown ends what the translator has under way, and reports false if that was done before.
func (t *translator) shutdown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.applyLocked(t.upstream.rec, 0, t.machine.Close(time.Now(), jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended")))
	t.closed = true
	t.timer.Stop()
	return true
}

// received implements user.
func (t *translator) received(frame []byte, m *jsonrpc.Message, from origin) {
	call, _ := intOf(from.callID)
	event := from.rec.recordMessage(toClient, frame)
	if n, ok := intOf(m.ID); ok && len(m.Method) == 0 && t.finishPing(n, nil) {
		return
	}
	if t.mayLackHeaders && t.handleOwnResponse(frame, m, event) {
		return
	}
	t.step(t.upstream.rec, event, func(now time.Time) []translate.Out { return t.machine.FromUpstream(now, frame, call) })
}

// callFailed implements user.
func (t *translator) callFailed(id jsonrpc.ID, err error) {
	e := clientError(err)
	n, ok := intOf(id)
	if !ok {
		t.finishOwn(id, errorMessage(id, e))
		return
	}
	if t.finishPing(n, e) {
		return
	}
	t.upstream.rec.note(e.Message)
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out { return t.machine.CallFailed(now, n, e) })
}

func intOf(id jsonrpc.ID) (int64, bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}

// messagesLost implements user.
func (t *translator) messagesLost() {
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out { return t.machine.NotificationsLost(now) })
}

// reconnected implements user.
func (t *translator) reconnected(context.Context) error {
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out {
		if !t.down {
			return nil
		}
		return t.machine.UpstreamReady(now) // whose messages go before those that wait, since lost still holds
	})
	t.mu.Lock()
	t.down = false
	t.mu.Unlock()
	return nil
}

// disconnected implements user.
func (t *translator) disconnected(err error, unsent []queuedMessage) {
	t.mu.Lock()
	pings := slices.Collect(maps.Keys(t.pings))
	t.mu.Unlock()
	for _, n := range pings {
		t.finishPing(n, err)
	}
	t.failOwn(clientError(err))
	var calls []int64
	if err != errUpstreamClosed {
		for _, it := range unsent {
			if n, ok := intOf(it.id); ok {
				calls = append(calls, n)
			}
		}
	}
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out {
		t.down = true
		return t.machine.UpstreamLost(now, clientError(err), calls...)
	})
}

// wantsConnection implements user.
func (t *translator) wantsConnection() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	open, _ := t.machine.InFlight()
	return !t.closed && t.down && (open > 0 || t.machine.Legacy() != mcp.RevisionNone)
}
