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

// A translator is the forwarder if client and server are of different eras. Its machine, of package
// translate, decides which messages go to either side. It handles an upstream by itself, or with
// others under a mux.
type translator struct {
	b        *Bridge
	upstream *upstream
	// mux is nil if the translator handles the upstream itself.
	mux *mux
	// shared is the upstream that modern clients share; nil if there is one client.
	shared *sharedUpstream

	// mu serializes the input and output of machine.
	mu      sync.Mutex
	clients map[*client]struct{}
	machine translate.Translator
	// callsByStream holds calls over HTTP, and of clients that share, by call.stream.
	callsByStream map[uint64]*call
	// callsByID holds calls of a byte stream, by idKey.
	callsByID  map[string]*call
	lastStream uint64
	timer      *time.Timer
	// serverRequests holds the keys of requests that the client has not answered.
	serverRequests map[string]struct{}
	// down says that machine knows that the upstream is lost.
	down   bool
	closed bool

	// lastID is the last request id, if clients share the upstream.
	lastID *atomic.Int64
	// pings holds the pending pings of the bridge.
	pings map[int64]chan error

	// mayLackHeaders says that calls may need headers that the transport does not know.
	mayLackHeaders bool
	retries        headerRetries
}

// newTranslator returns the forwarder of a client of an era, on up, or on a new upstream if up is
// nil.
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

// newUnboundTranslator returns a translator without an upstream.
func newUnboundTranslator(b *Bridge, machine translate.Translator) *translator {
	t := &translator{b: b, machine: machine, clients: map[*client]struct{}{}, callsByStream: map[uint64]*call{}, callsByID: map[string]*call{}, serverRequests: map[string]struct{}{}}
	t.timer = time.AfterFunc(time.Hour, t.tick)
	t.timer.Stop()
	return t
}

// bind makes the translator the handler of up, or of a new upstream if up is nil.
func (t *translator) bind(up *upstream) {
	if up != nil {
		t.upstream = up
		up.setHandler(t, nil)
		return
	}
	t.upstream = t.b.newUpstream(t)
	t.b.wg.Go(t.upstream.run)
}

// step gives machine an input and sends its output. event is the cause, in the capture.
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

// sendLocked sends one output message.
func (t *translator) sendLocked(o *translate.Out, from provenance) {
	if o.Withdraw {
		if t.upstream.withdraw(jsonrpc.IntID(o.Call)) {
			if t.mux != nil {
				t.mux.untrack(o.Call)
			}
			delete(t.retries.calls, o.Call)
			t.applyLocked(from.rec, from.event, t.machine.CallFailed(time.Now(), o.Call, jsonrpc.Errorf(jsonrpc.CodeInternalError, "withdrawn")))
		}
		return
	}
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
		return // the cancellation overtook its request, which is now withdrawn
	}
	var err error
	if o.Cancel || t.down {
		err = t.upstream.sendUrgent(it) // sent first on the next connection
	} else if err = t.upstream.trySend(it); err != nil && it.id == nil {
		t.upstream.logDropped(err)
	}
	if err != nil && it.id != nil {
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
	if t.shared != nil && o.Stream != 0 { // its client is gone
		return
	}
	for cl := range t.clients {
		t.sendToClientLocked(cl, nil, o.Message, from)
	}
}

// sendToClientLocked sends a client a message that is not a response.
func (t *translator) sendToClientLocked(cl *client, out jsonrpc.Sender, message []byte, from provenance) {
	if err := cl.send(out, message, from); err != nil {
		t.b.opts.Logger.Debug("message dropped", "error", err)
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
		if c := t.callsByID[m.ID.Key()]; c != nil {
			delete(t.callsByID, m.ID.Key())
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

// request implements forwarder.
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
		if t.callsByID[c.id.Key()] != nil {
			t.mu.Unlock()
			c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "another request with this id is in flight"))
			return
		}
		t.callsByID[c.id.Key()] = c
	}
	t.machine.SetCause(c.event)
	t.applyLocked(c.rec, c.event, t.machine.FromDownstream(time.Now(), frame, c.stream))
	if !c.done.Load() {
		c.startTimer(func() { t.expire(c) })
	}
	t.mu.Unlock()
	signal(t.upstream.notify) // the machine may wait for a connection
}

// notification implements forwarder.
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
	if c != nil { // only now, because machine may send to it
		delete(t.callsByStream, c.stream)
	}
	t.mu.Unlock()
	if c != nil && c.method != mcp.MethodInitialize {
		c.finish(nil, provenance{})
	}
}

// canceledCallLocked returns the call that a client cancels; it gets no response. A modern client
// cancels over HTTP by disconnecting.
func (t *translator) canceledCallLocked(cl *client, id jsonrpc.ID) *call {
	if c := t.callsByID[jsonrpc.ID(id).Key()]; c != nil {
		delete(t.callsByID, jsonrpc.ID(id).Key())
		return c
	}
	for _, c := range t.callsByStream {
		if c.client == cl && (!c.modern || c.out == nil) && c.id.Key() == id.Key() {
			return c
		}
	}
	return nil
}

// response implements forwarder.
func (t *translator) response(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	t.mu.Lock()
	delete(t.serverRequests, m.ID.Key())
	t.mu.Unlock()
	t.step(cl.rec, event, func(now time.Time) []translate.Out { return t.machine.FromDownstream(now, frame, 0) })
}

// abandon implements forwarder.
func (t *translator) abandon(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.stream == 0 || t.closed {
		return
	}
	t.applyLocked(c.client.rec, 0, t.machine.StreamClosed(time.Now(), c.stream))
	delete(t.callsByStream, c.stream)
}

// removeClient implements forwarder.
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

// shutdown ends all that is pending. It reports false if it was called before.
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

// received implements upstreamHandler.
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

// callFailed implements upstreamHandler.
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

// messagesLost implements upstreamHandler.
func (t *translator) messagesLost() {
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out { return t.machine.NotificationsLost(now) })
}

// reconnected implements upstreamHandler.
func (t *translator) reconnected(context.Context) error {
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out {
		if !t.down {
			return nil
		}
		return t.machine.UpstreamReady(now) // while down is set, these messages are urgent
	})
	t.mu.Lock()
	t.down = false
	t.mu.Unlock()
	return nil
}

// disconnected implements upstreamHandler.
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

// wantsConnection implements upstreamHandler.
func (t *translator) wantsConnection() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	open, _ := t.machine.InFlight()
	return !t.closed && t.down && (open > 0 || t.machine.Legacy() != mcp.RevisionNone)
}

// newSharedTranslator returns the handler for modern clients with the same translate.ClientKey on a
// legacy server. Each request has its own stream, so that ids may repeat. up may be nil for a new
// upstream.
func (b *Bridge) newSharedTranslator(s *sharedUpstream, up *upstream) *translator {
	o := b.sharedTranslateOptions()
	t := newUnboundTranslator(b, translate.NewModernToLegacy(o))
	t.shared, t.lastID, t.pings = s, o.IDs, map[int64]chan error{}
	t.bind(up)
	return t
}

// sharedTranslateOptions returns the options of a translator whose clients must not see each other.
func (b *Bridge) sharedTranslateOptions() *translate.Options {
	return &translate.Options{
		IsolateClients: true, IDs: new(atomic.Int64),
		Limits: translate.Limits{Requests: b.opts.MaxCalls, Subscriptions: b.opts.MaxSessions, AwaitingInput: max(b.opts.MaxSessions, 256), Tasks: max(b.opts.MaxSessions, 256)},
	}
}

// attach implements sharedHandler.
func (t *translator) attach(cl *client, _ Era) forwarder {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients[cl] = struct{}{}
	return t
}

// close implements sharedHandler.
func (t *translator) close() {
	t.shutdown()
	t.upstream.close()
}

// isUp implements sharedHandler.
func (t *translator) isUp() bool { return t.upstream.isUp() }

// ping implements sharedHandler. It bypasses machine.
func (t *translator) ping(ctx context.Context) error {
	n, answer := t.lastID.Add(1), make(chan error, 1)
	t.mu.Lock()
	t.pings[n] = answer
	t.mu.Unlock()
	defer t.finishPing(n, nil)
	id := jsonrpc.IntID(n)
	if err := t.upstream.sendUrgent(queuedMessage{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id, noLogin: true}); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finishPing ends a ping. It reports if n was one.
func (t *translator) finishPing(n int64, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, ok := t.pings[n]
	if ok {
		delete(t.pings, n)
		answer <- err // the channel has room
	}
	return ok
}

// detach gives up the calls of a client that leaves.
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

// headerRetries holds the state to retry calls that lacked headers, as passthrough does. The zero
// value is ready to use. The lock of the translator guards it.
type headerRetries struct {
	// calls holds the pending tools/call requests by id; nil after a retry.
	calls    map[int64][]byte
	ownCalls map[string]chan *jsonrpc.Message
	lastID   int64
}

// add records a request to a modern server.
func (h *headerRetries) add(n int64, frame []byte) {
	if len(frame) > maxRetryBytes || stringOf(locate(frame, "method").slice(frame)) != mcp.MethodToolsCall {
		return
	}
	if h.calls == nil {
		h.calls = map[int64][]byte{}
	}
	h.calls[n] = frame
}

// refused returns the call that a response rejects because of its headers, once, or nil.
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

// handleOwnResponse handles a response to the bridge's own request, or one that causes a retry. It
// reports if the message was one of these.
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

// retryWithHeaders lists tools until the transport has seen the tool of a call, and retries the
// call. refused is the response to the first attempt.
func (t *translator) retryWithHeaders(n int64, call, refused []byte, event uint64) {
	found := findTool(t.upstream.ctx, t.b, call, t.roundTrip)
	t.mu.Lock()
	_, open := t.retries.calls[n]
	t.mu.Unlock()
	if !open {
		return // given up or disconnected
	}
	if found {
		t.upstream.rec.note("repeating a call, because the server requires headers from its list of tools")
		if t.upstream.send(t.upstream.ctx, queuedMessage{frame: call, id: jsonrpc.IntID(n), from: provenance{rec: t.upstream.rec, event: event, rule: "sent again"}}) == nil {
			return
		}
	}
	t.step(t.upstream.rec, event, func(now time.Time) []translate.Out { return t.machine.FromUpstream(now, refused, n) })
}

// roundTrip is a roundTripFunc.
func (t *translator) roundTrip(ctx context.Context, frame func(id jsonrpc.ID) []byte) (*jsonrpc.Message, error) {
	answer := make(chan *jsonrpc.Message, 1)
	t.mu.Lock()
	l := &t.retries
	l.lastID++
	id := jsonrpc.StringID("mcpwire-" + t.b.instance + "-" + strconv.FormatInt(l.lastID, 10))
	if l.ownCalls == nil {
		l.ownCalls = map[string]chan *jsonrpc.Message{}
	}
	l.ownCalls[jsonrpc.ID(id).Key()] = answer
	t.mu.Unlock()
	defer t.finishOwn(id, nil)
	if err := t.upstream.sendUrgent(queuedMessage{frame: frame(id), id: id}); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// finishOwn ends a request of roundTrip. It reports if id was one.
func (t *translator) finishOwn(id jsonrpc.ID, m *jsonrpc.Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, ok := t.retries.ownCalls[jsonrpc.ID(id).Key()]
	if ok {
		delete(t.retries.ownCalls, jsonrpc.ID(id).Key())
		answer <- m // the channel has room
	}
	return ok
}

// failOwn fails the requests of roundTrip, and forgets the calls, after the connection has ended.
func (t *translator) failOwn(e *jsonrpc.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, answer := range t.retries.ownCalls {
		answer <- errorMessage(nil, e)
	}
	t.retries.ownCalls, t.retries.calls = nil, nil
}

// noteActivityLocked records a request to the client, its cancellation, or progress. Progress
// restarts the timeout of c, or of all calls by id if c is nil.
func (t *translator) noteActivityLocked(c *call, frame []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return
	}
	switch {
	case m.Kind == jsonrpc.KindRequest:
		t.serverRequests[m.ID.Key()] = struct{}{}
	case string(m.Method) == mcp.NotificationCancelled:
		id, _ := m.Param("requestId")
		delete(t.serverRequests, jsonrpc.ID(id).Key())
	case string(m.Method) != mcp.NotificationProgress:
	case c != nil:
		c.resetTimer()
	default:
		for _, c := range t.callsByID {
			c.resetTimer()
		}
	}
}

// expire gives up a call that timed out.
func (t *translator) expire(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.callsByStream[c.stream] != c && t.callsByID[c.id.Key()] != c {
		return
	}
	if len(t.serverRequests) > 0 { // the call may wait for the user
		c.resetTimer()
		return
	}
	delete(t.callsByStream, c.stream)
	if t.callsByID[c.id.Key()] == c {
		delete(t.callsByID, c.id.Key())
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
