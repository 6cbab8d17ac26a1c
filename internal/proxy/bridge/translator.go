package bridge

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A translator is the codec if client and server are of different eras. Its machine, of package
// translate, decides which messages go to either side.
type translator struct {
	b        *Bridge
	upstream *upstream
	// serverEra is the era of the server.
	serverEra Era
	// shared is the upstream that modern clients share; nil if there is one client.
	shared *sharedUpstream
	// muxed is the upstream that clients of both eras share; nil if they do not.
	muxed *sharedUpstream

	// mu serializes the input and output of machine.
	mu      sync.Mutex
	clients map[*client]struct{}
	machine translate.Translator
	// callsByStream holds calls over HTTP, and of clients that share, by call.stream.
	callsByStream map[uint64]*call
	// callsByID holds calls of a byte stream, by jsonrpc.ID.Key.
	callsByID  map[string]*call
	lastStream uint64
	timer      *time.Timer
	// handshakeTimer limits the latest handshake with a legacy server. It is nil before it.
	handshakeTimer *time.Timer
	// serverRequests holds the keys of requests that the client has not answered.
	serverRequests map[string]struct{}
	// down says that machine knows that the upstream is lost.
	down   bool
	closed bool
}

// newTranslator returns a translator on up, which is not its codec yet.
func (b *Bridge) newTranslator(up *upstream, machine translate.Translator, serverEra Era) *translator {
	t := &translator{b: b, upstream: up, machine: machine, serverEra: serverEra, clients: map[*client]struct{}{}}
	t.timer = time.AfterFunc(time.Hour, t.tick)
	t.timer.Stop()
	return t
}

func (t *translator) addClient(cl *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients[cl] = struct{}{}
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
		t.sendLocked(o, Provenance{rec: rec, event: event, moreEvents: o.Causes, rule: cmp.Or(o.Rule, "id")})
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
func (t *translator) sendLocked(o *translate.Out, from Provenance) {
	if o.Withdraw {
		if t.upstream.queue.withdraw(jsonrpc.IntID(o.Call)) {
			t.forget(o.Call)
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

func (t *translator) toServerLocked(o *translate.Out, from Provenance) {
	it := queuedMessage{frame: o.Message, from: from, by: t}
	switch {
	case o.Call != 0 && !o.Cancel:
		it.id = jsonrpc.IntID(o.Call)
		t.upstream.router.track(o.Call, t, o.Message)
		if o.Method == mcp.MethodInitialize {
			t.limitHandshakeLocked(o.Call)
		}
	case o.Call != 0:
		t.forget(o.Call)
	}
	if o.Cancel {
		// The cancellation may overtake its request, which is then withdrawn.
		t.upstream.cancelCall(jsonrpc.IntID(o.Call), it)
		return
	}
	var err error
	if t.down {
		it.urgent = t.serverEra == EraModern // for headerRetries
		err = t.upstream.sendUrgent(it)      // sent first on the next connection
	} else if err = t.upstream.trySend(it); err != nil && it.id == nil {
		t.upstream.logDropped(err)
	}
	if err != nil && it.id != nil {
		t.applyLocked(from.rec, from.event, t.machine.CallFailed(time.Now(), o.Call, t.b.opts.named(t.b.opts.clientError(err))))
	}
}

// limitHandshakeLocked fails the handshake after ConnectTimeout. The requests that wait for it have
// CallTimeout, which is for a server that has said that it works.
func (t *translator) limitHandshakeLocked(call int64) {
	d := t.b.opts.timeoutFor(mcp.MethodInitialize)
	if d == 0 {
		return
	}
	if t.handshakeTimer != nil {
		t.handshakeTimer.Stop()
	}
	began := time.Now()
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.closed || timer != t.handshakeTimer {
			return
		}
		if left := t.b.remaining(d); left > 0 {
			timer.Reset(left)
			return
		}
		err := fmt.Errorf("the server has not responded to %s for %v", mcp.MethodInitialize, d)
		outs := t.machine.CallFailed(time.Now(), call, t.b.opts.named(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", err)))
		if len(outs) == 0 {
			return // the handshake is complete
		}
		t.upstream.queue.withdraw(jsonrpc.IntID(call))
		t.forget(call)
		t.b.metrics.timeouts.Add(1)
		t.b.markUnhealthy(err, nil)
		t.applyLocked(t.upstream.rec, 0, outs)
		t.upstream.checkAlive(began)
	})
	t.handshakeTimer = timer
}

// forget forgets a call that was given up.
func (t *translator) forget(call int64) {
	t.upstream.router.untrack(call)
	t.upstream.retries.forget(jsonrpc.IntID(call))
}

func (t *translator) toClientLocked(o *translate.Out, from Provenance) {
	if o.Final {
		t.answerLocked(o, o.Message, from)
		return
	}
	c := t.callsByStream[o.Stream]
	t.noteActivityLocked(c, o.Message)
	if c != nil {
		c.client.logDropped(c.client.send(c.out, o.Message, from))
		return
	}
	if t.shared != nil && o.Stream != 0 { // its client is gone
		return
	}
	for cl := range t.clients {
		cl.logDropped(cl.send(nil, o.Message, from))
	}
}

// answerLocked answers a call.
func (t *translator) answerLocked(o *translate.Out, message []byte, from Provenance) {
	if o.Stream != 0 {
		c := t.callsByStream[o.Stream]
		sparse.Delete(&t.callsByStream, o.Stream)
		if c != nil {
			c.finish(message, from)
			return
		}
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) == nil && len(m.ID) > 0 {
		if c := t.callsByID[m.ID.Key()]; c != nil {
			sparse.Delete(&t.callsByID, m.ID.Key())
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

func (t *translator) request(c *call, frame []byte, _ *jsonrpc.Message) {
	if err := t.upstream.unavailable(); err != nil {
		c.fail(t.b.opts.clientError(err))
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
		sparse.Set(&t.callsByStream, c.stream, c)
	} else {
		if t.callsByID[c.id.Key()] != nil {
			t.mu.Unlock()
			c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "another request with this id is in flight"))
			return
		}
		sparse.Set(&t.callsByID, c.id.Key(), c)
	}
	t.machine.SetCause(c.event)
	t.applyLocked(c.rec, c.event, t.machine.FromDownstream(time.Now(), frame, c.stream))
	if !c.done.Load() {
		c.startTimer(t)
	}
	t.mu.Unlock()
	wait.Signal(t.upstream.queue.notify) // the machine may wait for a connection
}

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
		sparse.Delete(&t.callsByStream, c.stream)
	}
	t.mu.Unlock()
	if c != nil && c.method != mcp.MethodInitialize {
		c.finish(nil, Provenance{})
	}
}

// canceledCallLocked returns the call that a client cancels; it gets no response. A modern client
// cancels over HTTP by disconnecting.
func (t *translator) canceledCallLocked(cl *client, id jsonrpc.ID) *call {
	if c := t.callsByID[jsonrpc.ID(id).Key()]; c != nil {
		sparse.Delete(&t.callsByID, jsonrpc.ID(id).Key())
		return c
	}
	for _, c := range t.callsByStream {
		if c.client == cl && (!c.modern || c.out == nil) && c.id.Key() == id.Key() {
			return c
		}
	}
	return nil
}

func (t *translator) response(cl *client, frame []byte, m *jsonrpc.Message, event uint64) {
	t.mu.Lock()
	sparse.Delete(&t.serverRequests, m.ID.Key())
	t.mu.Unlock()
	t.step(cl.rec, event, func(now time.Time) []translate.Out { return t.machine.FromDownstream(now, frame, 0) })
}

func (t *translator) abandon(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.stream == 0 || t.closed {
		return
	}
	t.applyLocked(c.client.rec, 0, t.machine.StreamClosed(time.Now(), c.stream))
	sparse.Delete(&t.callsByStream, c.stream)
}

func (t *translator) removeClient(cl *client) {
	if t.shared != nil {
		t.detach(cl)
		t.shared.release()
		return
	}
	if !t.shutdown() {
		return
	}
	if t.muxed != nil {
		t.upstream.router.removeTranslator(t)
		t.muxed.release()
	} else {
		t.upstream.close()
	}
}

func (t *translator) close() { t.shutdown() }

// shutdown ends all that is pending. It reports false if it was called before.
func (t *translator) shutdown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.applyLocked(t.upstream.rec, 0, t.machine.Close(time.Now(), t.b.opts.named(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the session has ended"))))
	t.closed = true
	t.timer.Stop()
	if t.handshakeTimer != nil {
		t.handshakeTimer.Stop()
	}
	return true
}

func (t *translator) received(frame []byte, _ *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	call, _ := intOf(on)
	t.step(t.upstream.rec, event, func(now time.Time) []translate.Out { return t.machine.FromUpstream(now, frame, call) })
}

func (t *translator) callFailed(id jsonrpc.ID, err error) {
	if n, ok := intOf(id); ok {
		t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out {
			return t.machine.CallFailed(now, n, t.b.opts.named(t.b.opts.clientError(err)))
		})
	}
}

func intOf(id jsonrpc.ID) (int64, bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}

func (t *translator) messagesLost() {
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out { return t.machine.NotificationsLost(now) })
}

func (t *translator) reconnected() error {
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

func (t *translator) disconnected(err error, unsent []queuedMessage) {
	t.step(t.upstream.rec, 0, func(now time.Time) []translate.Out {
		t.down = true
		unsent = append(unsent, t.upstream.queue.takeBy(t)...) // queued after the connection ended
		var calls []int64
		for _, it := range unsent {
			if n, ok := intOf(it.id); ok && err != errUpstreamClosed {
				t.upstream.router.untrack(n)
				calls = append(calls, n)
			}
		}
		return t.machine.UpstreamLost(now, t.b.opts.named(t.b.opts.clientError(err)), calls...)
	})
}

func (t *translator) wantsConnection() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	open, _ := t.machine.InFlight()
	return !t.closed && t.down && (open > 0 || t.machine.Legacy() != mcp.RevisionNone)
}

// newModernTranslator returns a translator on up, which is not its codec yet, for modern clients
// that must not see each other.
func (b *Bridge) newModernTranslator(up *upstream) *translator {
	t := b.newTranslator(up, nil, EraLegacy)
	t.machine = translate.NewModernToLegacy(&translate.Options{
		IsolateClients: true, IDs: &up.own.last, PrincipalOf: t.principalOfLocked, HandshakeFailed: b.eras.reset,
		Limits: translate.Limits{Requests: b.opts.MaxCalls, Subscriptions: b.opts.MaxSessions, AwaitingInput: max(b.opts.MaxSessions, 256), Tasks: max(b.opts.MaxSessions, 256)},
	})
	return t
}

// principalOfLocked returns the id of the principal of the call on a stream. Clients of a dedicated
// upstream have the same one.
func (t *translator) principalOfLocked(stream uint64) string {
	if c := t.callsByStream[stream]; c != nil && t.shared != nil {
		return c.principalID
	}
	return ""
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

// noteActivityLocked records a request to the client, its cancellation, or progress. Progress
// restarts the timeout of c, or of all calls by id if c is nil.
func (t *translator) noteActivityLocked(c *call, frame []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return
	}
	switch {
	case m.Kind == jsonrpc.KindRequest:
		sparse.Set(&t.serverRequests, m.ID.Key(), struct{}{})
	case string(m.Method) == mcp.NotificationCancelled:
		id, _ := m.Param("requestId")
		sparse.Delete(&t.serverRequests, jsonrpc.ID(id).Key())
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
	sparse.Delete(&t.callsByStream, c.stream)
	if t.callsByID[c.id.Key()] == c {
		sparse.Delete(&t.callsByID, c.id.Key())
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
