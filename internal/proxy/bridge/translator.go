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

	"mcpwire/internal/proxy/translate"
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

// newSharedTranslator returns what modern clients share that are told alike before a legacy server: one translator, to which each of their requests is on a stream of its own,
// so that their ids may be the same. l is the line, nil for a new one.
func (b *Bridge) newSharedTranslator(s *sharedUpstream, up *upstream) *translator {
	o := b.sharedTranslateOptions()
	t := newUnboundTranslator(b, translate.NewModernToLegacy(o))
	t.shared, t.lastID, t.pings = s, o.IDs, map[int64]chan error{}
	t.bind(up)
	return t
}

// sharedTranslateOptions are the options of a translator that many clients use, who are strangers to each other.
func (b *Bridge) sharedTranslateOptions() *translate.Options {
	return &translate.Options{
		IsolateClients: true, IDs: new(atomic.Int64),
		Limits: translate.Limits{Requests: b.opts.MaxCalls, Subscriptions: b.opts.MaxSessions, AwaitingInput: max(b.opts.MaxSessions, 256), Tasks: max(b.opts.MaxSessions, 256)},
	}
}

// attach implements sharer.
func (t *translator) attach(cl *client, _ Era) forwarder {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients[cl] = struct{}{}
	return t
}

// close implements sharer.
func (t *translator) close() {
	t.shutdown()
	t.upstream.close()
}

// isUp implements sharer.
func (t *translator) isUp() bool { return t.upstream.isUp() }

// ping implements sharer. The translator does not hear of it.
func (t *translator) ping(ctx context.Context) error {
	n, answer := t.lastID.Add(1), make(chan error, 1)
	t.mu.Lock()
	t.pings[n] = answer
	t.mu.Unlock()
	defer t.finishPing(n, nil)
	id := jsonrpc.IntID(n)
	t.upstream.sendUrgent(queuedMessage{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id, noLogin: true})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finishPing ends a ping, and reports whether it was one.
func (t *translator) finishPing(n int64, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, ok := t.pings[n]
	if ok {
		delete(t.pings, n)
		answer <- err // it has room
	}
	return ok
}

// detach gives up what a client has under way that leaves the others.
func (t *translator) detach(cl *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.clients, cl)
	for n, c := range maps.Clone(t.callsByStream) {
		if c.client == cl && !t.closed {
			t.applyLocked(cl.rec, 0, t.machine.StreamClosed(time.Now(), n))
		}
	}
	maps.DeleteFunc(t.callsByStream, func(_ uint64, c *call) bool { return c.client == cl })
}

// headerRetries are what a translated party needs to make calls again whose headers the transport could not know, as a plain one does. The zero value is ready to use; the party's
// lock guards it.
type headerRetries struct {
	calls    map[int64][]byte // calls of tools without an answer, by id; nil is one that was made again
	ownCalls map[string]chan *jsonrpc.Message
	lastID   int64
}

// add takes note of a request to a modern server.
func (h *headerRetries) add(n int64, frame []byte) {
	if len(frame) > maxRetryBytes || stringOf(locate(frame, "method").slice(frame)) != mcp.MethodToolsCall {
		return
	}
	if h.calls == nil {
		h.calls = map[int64][]byte{}
	}
	h.calls[n] = frame
}

// refused returns the call that an answer refuses for its headers, if it may be made again; it may not after that.
func (h *headerRetries) refused(n int64, m *jsonrpc.Message) []byte {
	call, open := h.calls[n]
	if call == nil || m.Kind != jsonrpc.KindError || m.Err().Code != mcp.CodeHeaderMismatch {
		delete(h.calls, n)
		return nil
	}
	if open {
		h.calls[n] = nil
	}
	return call
}

// handleOwnResponse reports whether a message is an answer to the bridge itself, or a refusal after which a call is made again; then it is dealt with.
func (t *translator) handleOwnResponse(frame []byte, m *jsonrpc.Message, event uint64) bool {
	if len(m.Method) > 0 {
		return false
	}
	if t.finishOwn(m.ID, m) {
		return true
	}
	n, ok := intOf(m.ID)
	if !ok {
		return false
	}
	t.mu.Lock()
	call := t.retries.refused(n, m)
	t.mu.Unlock()
	if call == nil {
		return false
	}
	t.b.wg.Go(func() { t.retryWithHeaders(n, call, frame, event) })
	return true
}

// retryWithHeaders has the transport see the tool that a call is about, and makes the call again. refused is the answer that it had.
func (t *translator) retryWithHeaders(n int64, call, refused []byte, event uint64) {
	found := findTool(t.upstream.ctx, t.b, call, t.roundTrip)
	t.mu.Lock()
	_, open := t.retries.calls[n]
	t.mu.Unlock()
	if !open {
		return // it was given up, or the connection has ended
	}
	if found {
		t.upstream.rec.note("a call is made again, since the server asks for headers that its list of tools tells of")
		if t.upstream.send(t.upstream.ctx, queuedMessage{frame: call, id: jsonrpc.IntID(n), from: provenance{rec: t.upstream.rec, event: event, rule: "sent again"}}) == nil {
			return
		}
	}
	t.step(t.upstream.rec, event, func(now time.Time) []translate.Out { return t.machine.FromUpstream(now, refused, n) })
}

// roundTrip is an asker.
func (t *translator) roundTrip(ctx context.Context, frame func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	answer := make(chan *jsonrpc.Message, 1)
	t.mu.Lock()
	l := &t.retries
	l.lastID++
	id := jsonrpc.StringID("mcpwire-" + t.b.instance + "-" + strconv.FormatInt(l.lastID, 10))
	if l.ownCalls == nil {
		l.ownCalls = map[string]chan *jsonrpc.Message{}
	}
	l.ownCalls[idKey(id)] = answer
	t.mu.Unlock()
	defer t.finishOwn(id, nil)
	t.upstream.sendUrgent(queuedMessage{frame: frame(id), id: id})
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// finishOwn ends a request of ask's, and reports whether it was one.
func (t *translator) finishOwn(id jsonrpc.ID, m *jsonrpc.Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, ok := t.retries.ownCalls[idKey(id)]
	if ok {
		delete(t.retries.ownCalls, idKey(id))
		answer <- m // it has room
	}
	return ok
}

// failOwn ends all requests of ask's, and what would be made again, because the connection has ended.
func (t *translator) failOwn(e *jsonrpc.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, answer := range t.retries.ownCalls {
		answer <- errorMessage(nil, e)
	}
	t.retries.ownCalls, t.retries.calls = nil, nil
}

// noteActivityLocked takes note of a message for the client that is no answer: a question, which may take a user's time, the end of one, or a sign that the server is at work. c is
// the call whose stream it goes by; nil if that is not known.
func (t *translator) noteActivityLocked(c *call, frame []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return
	}
	switch {
	case m.Kind == jsonrpc.KindRequest:
		t.serverRequests[idKey(m.ID)] = struct{}{}
	case string(m.Method) == mcp.NotificationCancelled:
		id, _ := m.Param("requestId")
		delete(t.serverRequests, idKey(id))
	case string(m.Method) != mcp.NotificationProgress:
	case c != nil:
		c.resetTimer()
	default:
		for _, c := range t.callsByID {
			c.resetTimer()
		}
	}
}

// expire gives a call up for which nothing was heard for too long.
func (t *translator) expire(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.callsByStream[c.stream] != c && t.callsByID[idKey(c.id)] != c {
		return
	}
	if len(t.serverRequests) > 0 { // it may be the user whom it waits for
		c.resetTimer()
		return
	}
	delete(t.callsByStream, c.stream)
	if t.callsByID[idKey(c.id)] == c {
		delete(t.callsByID, idKey(c.id))
	}
	if c.method != mcp.MethodInitialize {
		var outs []translate.Out
		if c.modern && c.stream != 0 {
			outs = t.machine.StreamClosed(time.Now(), c.stream)
		} else {
			outs = t.machine.FromDownstream(time.Now(), cancellation(c.id, "timeout"), 0)
		}
		t.applyLocked(c.client.rec, 0, outs)
	}
	c.expire()
	t.upstream.checkAlive(c.began)
}
