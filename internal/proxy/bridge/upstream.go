package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A user is what a line belongs to: it takes what the server sends, and what becomes of the connection. Its methods are called by one goroutine at a time but for
// callFailed and missed, which come between received.
type upstreamHandler interface {
	// received takes a message; frame and m are the user's.
	received(frame []byte, m *jsonrpc.Message, from origin)
	// callFailed says that a request got no answer, while the connection goes on.
	callFailed(id jsonrpc.ID, err error)
	// messagesLost says that messages which the server sent of itself may have been lost.
	messagesLost()
	// reconnected is called for each connection after the first, before anything that waits is sent. An error ends the connection.
	reconnected(ctx context.Context) error
	// disconnected says why the connection ended, or could not be made, and which messages were not sent and may go by the next connection.
	disconnected(err error, unsent []queuedMessage)
	// wantsConnection reports whether a connection is to be made again although nothing waits for it.
	wantsConnection() bool
}

// An item is a message that waits to be sent.
type queuedMessage struct {
	frame    []byte
	id       jsonrpc.ID // of a request; nil of others
	from     provenance // for the capture
	noLogin  bool       // it is of the bridge's own curiosity: nobody is to log in because of it
	queuedAt time.Time  // when the line got it first
}

// A line is a connection to the server, which is made when there is something to send, and made again when it has ended. Its methods may be called by many
// goroutines at once.
type upstream struct {
	b   *Bridge
	rec recorder

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when all has ended
	notify chan struct{} // has an element if run should look

	lastReceived atomic.Int64 // when the server has last sent something, in nanoseconds since the epoch
	deliverMu    sync.Mutex   // held while the user is given a message; it is locked before mu

	mu            sync.Mutex
	handler       upstreamHandler
	urgent        []queuedMessage // sent before the others, and while they have to wait
	queue         []queuedMessage
	queueBytes    int
	urgentBytes   int
	paused        bool          // only what is urgent is sent
	writing       bool          // a message has been taken that may not have been sent yet
	closing       bool          // nothing more is taken
	space         chan struct{} // closed when there is more room in the queue; nil if nobody waits for that
	closeTimer    *time.Timer
	conn          *connection // nil if there is none
	usable        bool        // it is, or the last one was, one that messages went by
	sent          map[string]queuedMessage
	resend        []queuedMessage     // of sent, that the server has certainly not taken
	failures      int                 // in a row, of connections that have answered no request
	everAnswered  bool                // some connection has answered something
	recoveryCalls map[string]struct{} // keys of the requests whose answers end the row of failures; nil if there is none
	lastErr       error
	nextAttempt   time.Time // when the next connection may be made
}

// newUpstream returns a line. Whoever has it makes it run.
func (b *Bridge) newUpstream(h upstreamHandler) *upstream { return b.newUpstreamWithContext(b.ctx, h) }

// newUpstreamWithContext is newUpstream with a context for what the line does, of b.ctx.
func (b *Bridge) newUpstreamWithContext(ctx context.Context, h upstreamHandler) *upstream {
	up := &upstream{b: b, handler: h, rec: b.recording.newRecorder(capture.Upstream), done: make(chan struct{}), notify: make(chan struct{}, 1), sent: map[string]queuedMessage{}}
	up.ctx, up.cancel = context.WithCancel(ctx)
	return up
}

// setHandler gives the line to another user, which gets what a prober has kept for it. Before that it calls first, which may be nil.
func (u *upstream) setHandler(h upstreamHandler, first func()) {
	u.deliverMu.Lock() // what comes now has to wait its turn
	defer u.deliverMu.Unlock()
	u.mu.Lock()
	before := u.handler
	u.handler = h
	u.mu.Unlock()
	if first != nil {
		first()
	}
	if p, ok := before.(*eraProbe); ok {
		for _, r := range p.unsolicited {
			h.received(r.frame, r.m, r.from)
		}
		p.unsolicited = nil
	}
}

func (u *upstream) currentHandler() upstreamHandler {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.handler
}

// unavailable says why nothing can be sent for a while; nil if it can, or is about to.
func (u *upstream) unavailable() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unavailableLocked()
}

func (u *upstream) unavailableLocked() error {
	if u.closing || u.ctx.Err() != nil {
		return errUpstreamClosed
	}
	if wait := time.Until(u.nextAttempt); u.lastErr != nil && u.conn == nil && wait > u.b.opts.RestartWait {
		return &retryError{u.lastErr, wait.Round(time.Second)}
	}
	return nil
}

// isDown reports whether there is no connection because the last one has ended, or could not be made, and none is being made again.
func (u *upstream) isDown() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conn == nil && u.lastErr != nil && len(u.queue)+len(u.urgent) == 0
}

// errQueueFull is why a message was not taken.
var errQueueFull = errors.New("too much waits for the server to take it already")

// trySend is send, but does not wait.
func (u *upstream) trySend(it queuedMessage) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.trySendLocked(it)
}

func (u *upstream) trySendLocked(it queuedMessage) error {
	if err := u.unavailableLocked(); err != nil {
		return err
	}
	if u.queueBytes > 0 && u.queueBytes+len(it.frame) > u.b.opts.MaxQueue {
		return errQueueFull
	}
	it.queuedAt = time.Now()
	u.queue = append(u.queue, it)
	u.queueBytes += len(it.frame)
	signal(u.notify)
	return nil
}

// errUpstreamClosed is why nothing can be sent any more.
var errUpstreamClosed = fmt.Errorf("the connection to the server is closed: %w", jsonrpc.ErrClosed)

// send has a message sent; frame is the line's from now on. It waits while too much waits already. The error says that it will not be sent.
func (u *upstream) send(ctx context.Context, it queuedMessage) error {
	for {
		u.mu.Lock()
		err := u.trySendLocked(it)
		if err == errQueueFull && u.space == nil {
			u.space = make(chan struct{})
		}
		space := u.space
		u.mu.Unlock()
		if err != errQueueFull {
			return err
		}
		select {
		case <-space:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-u.ctx.Done():
		}
	}
}

// signalSpaceLocked tells those who wait that there is more room.
func (u *upstream) signalSpaceLocked() {
	if u.space != nil {
		close(u.space)
		u.space = nil
	}
}

// sendUrgent is send for what must go before what waits. It never waits. A server that takes nothing while there is always more to tell it, cancellations or refusals, is not
// told more than there may wait at all: it hears of nothing anyway.
func (u *upstream) sendUrgent(it queuedMessage) {
	it.queuedAt = time.Now()
	u.mu.Lock()
	if n := len(it.frame); u.urgentBytes == 0 || u.urgentBytes+n <= u.b.opts.MaxQueue {
		u.urgent = append(u.urgent, it)
		u.urgentBytes += n
	}
	u.mu.Unlock()
	signal(u.notify)
}

// setPaused has what is not urgent wait, or lets it go.
func (u *upstream) setPaused(on bool) {
	u.mu.Lock()
	u.paused = on
	u.mu.Unlock()
	signal(u.notify)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// close ends the connection, after what waits was sent, which may take a moment. It does not wait for that.
func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing {
		return
	}
	u.closing = true
	if u.conn == nil || len(u.queue)+len(u.urgent) == 0 && !u.writing {
		u.cancel()
		return
	}
	u.closeTimer = time.AfterFunc(closeTimeout, u.cancel)
	signal(u.notify)
}

// finished reports whether the line is to end now, because it was closed and nothing waits.
func (u *upstream) finished() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing {
		u.cancel()
	}
	return u.closing
}

// isUp reports whether there is a connection that takes messages.
func (u *upstream) isUp() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conn != nil && !u.paused && !u.closing
}

// requeue has messages that were not sent go by the next connection, before others.
func (u *upstream) requeue(items []queuedMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, it := range items {
		u.queueBytes += len(it.frame)
	}
	u.queue = append(items, u.queue...)
}

// isQueued reports whether a request has not been sent yet.
func (u *upstream) isQueued(id jsonrpc.ID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, it := range u.queue {
		if it.id != nil && idKey(it.id) == idKey(id) {
			return true
		}
	}
	return false
}

// run makes connections as long as the line is open.
func (u *upstream) run() {
	defer close(u.done)
	for first := true; u.awaitWork(); first = false {
		if !u.waitBackoff() {
			break
		}
		err := u.serveConnection(first)
		if u.ctx.Err() != nil {
			break
		}
		u.connectionEnded(err)
	}
	u.cancel()
	u.mu.Lock()
	if u.closeTimer != nil {
		u.closeTimer.Stop()
	}
	u.mu.Unlock()
	u.rec.recordEOF(toServer)
	u.currentHandler().disconnected(errUpstreamClosed, u.takeUnsent())
}

// awaitWork waits until there is something to send.
func (u *upstream) awaitWork() bool {
	for {
		u.mu.Lock()
		some, eager := len(u.queue)+len(u.urgent) > 0, u.failures < maxEagerFailures
		u.mu.Unlock()
		some = some || eager && u.currentHandler().wantsConnection()
		if some {
			return u.ctx.Err() == nil
		}
		select {
		case <-u.notify:
		case <-u.ctx.Done():
			return false
		}
	}
}

// maxEagerFailures is how many failures in a row there are until a connection is not made any more because of what the server should remember alone.
const maxEagerFailures = 8

// waitBackoff waits until the next connection may be made.
func (u *upstream) waitBackoff() bool {
	u.mu.Lock()
	d := time.Until(u.nextAttempt)
	u.mu.Unlock()
	if d <= 0 {
		return u.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-u.ctx.Done():
		return false
	}
}

// connectionEnded takes note of the end of a connection.
func (u *upstream) connectionEnded(err error) {
	o := &u.b.opts
	u.mu.Lock()
	u.failures++
	backoff := o.MinBackoff << min(u.failures-1, 16)
	backoff = jitter(min(backoff, o.MaxBackoff))
	visible := u.b.visibleError(err)
	u.nextAttempt, u.lastErr = time.Now().Add(backoff), visible
	mayWait := u.usable || u.everAnswered && !errors.Is(err, errServerChanged)
	u.recoveryCalls = map[string]struct{}{}
	u.mu.Unlock()
	o.Logger.Warn("the connection to the server has ended", "server", o.Name, "error", err)
	u.rec.note("the connection to the server has ended: " + err.Error())
	u.b.metrics.failures.Add(1)
	if !errors.Is(err, jsonrpc.ErrClosed) { // of a session that the server has forgotten, which it has said
		u.b.markUnhealthy(visible)
	}
	unsent := u.takeUnsent()
	if !mayWait {
		unsent = nil
	}
	u.currentHandler().disconnected(visible, slices.DeleteFunc(unsent, func(it queuedMessage) bool { return u.nextAttempt.Sub(it.queuedAt) > max(o.RestartWait, 0) }))
}

// noteAnswerLocked notes that an answer has come. If it is that of a request of a client's which this connection has got after others had failed, the server is well again: the next failure is the
// first of a row. A handshake is not enough, since a server may fail behind it each time.
func (u *upstream) noteAnswerLocked(id jsonrpc.ID) {
	u.everAnswered = true
	if u.recoveryCalls == nil {
		return
	}
	if _, ok := u.recoveryCalls[idKey(id)]; ok {
		u.failures, u.recoveryCalls = 0, nil
	}
}

// takeUnsent returns what was not sent, and forgets it.
func (u *upstream) takeUnsent() []queuedMessage {
	u.mu.Lock()
	defer u.mu.Unlock()
	unsent := append(u.resend, u.queue...)
	u.resend, u.queue, u.urgent, u.queueBytes, u.urgentBytes = nil, nil, nil, 0, 0
	clear(u.sent)
	u.signalSpaceLocked()
	return unsent
}

// serveConnection makes a connection and serves it until it ends. It returns why it did.
func (u *upstream) serveConnection(first bool) error {
	ctx, cancel := u.b.withDialTimeout(u.ctx)
	u.mu.Lock()
	u.usable = false
	u.mu.Unlock()
	text := u.rec.stderr()
	defer text.Close()
	f, err := u.b.opts.Connect(context.WithValue(ctx, recorderKey{}, u.rec), text)
	cancel()
	if err != nil {
		return &connectError{err}
	}
	u.b.metrics.connections.Add(1)
	began := time.Now()
	read := make(chan error, 1)
	ended, stop := context.WithCancelCause(u.ctx)
	end := func() { stop(nil) }
	u.mu.Lock()
	u.conn, u.paused, u.usable = &connection{abort: func() { stop(errUnresponsive) }}, u.paused || !first, first
	u.mu.Unlock()
	u.b.openConnections.Add(1)
	defer u.b.openConnections.Add(-1)
	var wg sync.WaitGroup
	wg.Go(func() {
		read <- u.read(f)
		end()
	})
	wg.Go(func() { u.write(ended, f, end) })
	if !first {
		err = u.resume(ended)
	}
	if err == nil {
		<-ended.Done()
	}
	end()
	u.mu.Lock()
	u.conn = nil
	u.mu.Unlock()
	f.Close() // which makes read return
	wg.Wait()
	u.rec.flushEnds()
	if why := <-read; err == nil || errors.Is(err, context.Canceled) {
		err = why
	}
	if context.Cause(ended) == errUnresponsive {
		err = errUnresponsive
	}
	if time.Since(began) >= u.b.opts.StableAfter {
		u.mu.Lock()
		u.failures, u.recoveryCalls = 0, nil
		u.mu.Unlock()
	}
	return err
}

// resume has the user tell a new server what it should know, and lets go what waits.
func (u *upstream) resume(ctx context.Context) error {
	bounded, cancel := u.b.withConnectTimeout(ctx)
	defer cancel()
	u.b.metrics.restarts.Add(1)
	if err := u.currentHandler().reconnected(bounded); err != nil {
		return fmt.Errorf("the server was started again, and does not come up: %w", err)
	}
	u.mu.Lock()
	u.paused, u.usable = false, true
	u.mu.Unlock()
	signal(u.notify)
	return nil
}

// write sends what waits until ctx ends. If that fails, it calls end: what the server has said last is still to be read.
func (u *upstream) write(ctx context.Context, f jsonrpc.Framer, end func()) {
	for {
		it, ok := u.dequeue()
		if !ok {
			if u.finished() {
				return
			}
			select {
			case <-u.notify:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := u.transmit(f, it); err != nil {
			u.b.opts.Logger.Debug("a message was not sent", "error", err)
			u.putBack(it)
			if !u.b.opts.HTTP {
				// The reader is about to learn why, and waits no longer than this.
				timer := time.AfterFunc(closeTimeout, end)
				defer timer.Stop()
				<-ctx.Done()
			}
			end()
			return
		}
	}
}

// closeTimeout is how long a server that does not take anything any more may go on to say something.
const closeTimeout = time.Second

// dequeue returns what is to be sent next.
func (u *upstream) dequeue() (it queuedMessage, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case len(u.urgent) > 0:
		it, u.urgent = u.urgent[0], u.urgent[1:]
		u.urgentBytes -= len(it.frame)
	case len(u.queue) > 0 && !u.paused:
		it, u.queue = u.queue[0], u.queue[1:]
		u.queueBytes -= len(it.frame)
		u.signalSpaceLocked()
		if u.b.opts.HTTP && it.id != nil && len(it.frame) <= maxRetryBytes {
			u.sent[idKey(it.id)] = it
		}
		if u.recoveryCalls != nil && len(u.recoveryCalls) < maxRecoveryCalls && it.id != nil && stringOf(locate(it.frame, "method").slice(it.frame)) != mcp.MethodInitialize {
			u.recoveryCalls[idKey(it.id)] = struct{}{}
		}
	default:
		u.writing = false
		return queuedMessage{}, false
	}
	u.writing = true
	return it, true
}

// maxRecoveryCalls is how many requests are remembered of which one must be answered.
const maxRecoveryCalls = 1024

// withdraw forgets a request that is not wanted any more, and reports whether it was not even sent: then the server must not be told of it.
func (u *upstream) withdraw(id jsonrpc.ID) bool {
	key := idKey(id)
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sent, key)
	for i, it := range u.queue {
		if it.id != nil && idKey(it.id) == key {
			u.queue = slices.Delete(u.queue, i, i+1)
			u.queueBytes -= len(it.frame)
			u.signalSpaceLocked()
			return true
		}
	}
	return false
}

// maxRetryBytes is how large a request may be, in bytes, that is sent again when the server had forgotten its session.
const maxRetryBytes = 1 << 20

// putBack puts a message back.
func (u *upstream) putBack(it queuedMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.resend = append(u.resend, it)
}

// read takes what the server sends until it has ended, and returns why.
func (u *upstream) read(f jsonrpc.Framer) error {
	ownFrame := compact
	if _, ok := f.(jsonrpc.MessageTransport); ok { // its frames are ours already
		ownFrame = jsonrpc.OneLine
	}
	noise := 0
	for {
		frame, from, err := u.receive(f)
		if err != nil {
			if !u.handleError(err, from) {
				if errors.Is(err, io.EOF) {
					err = fmt.Errorf("the server has closed the connection: %w", io.EOF)
				}
				return err
			}
			continue
		}
		if !u.deliver(ownFrame(frame), from) {
			if noise++; noise == 1 {
				u.b.opts.Logger.Warn("the server writes what is no message, which is dropped; further ones are not reported", "server", u.b.opts.Name, "text", clip(frame))
			}
		}
	}
}

// handleError acts on an error of the framer that does not end the connection, and reports whether it was one.
func (u *upstream) handleError(err error, from origin) bool {
	_, ofCall := errors.AsType[*jsonrpc.CallError](err)
	if bad, ok := errors.AsType[*jsonrpc.FrameError](err); ok {
		u.b.opts.Logger.Warn("a message of the server was dropped", "error", bad)
		if !ofCall {
			u.refuseLarge(bad)
			return true
		}
	}
	if errors.Is(err, jsonrpc.ErrGap) {
		u.currentHandler().messagesLost()
		return true
	}
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok {
		return false
	}
	from.answered()
	u.mu.Lock()
	it, known := u.sent[idKey(failed.ID)]
	delete(u.sent, idKey(failed.ID))
	retry := known && failed.Outcome == jsonrpc.OutcomeUnprocessed && errors.Is(failed.Err, jsonrpc.ErrClosed) // the session is gone, and comes back
	if retry {
		u.resend = append(u.resend, it)
	}
	u.mu.Unlock()
	_, large := errors.AsType[*jsonrpc.TooLargeError](err)
	if large { // there is an answer, and only that cannot be forwarded
		u.mu.Lock()
		u.noteAnswerLocked(failed.ID)
		u.mu.Unlock()
	}
	if !retry {
		if !large && failed.Outcome != jsonrpc.OutcomeRejected && !errors.Is(failed.Err, jsonrpc.ErrClosed) {
			u.b.markUnhealthy(failed)
		}
		u.currentHandler().callFailed(failed.ID, failed)
	}
	return true
}

// refuseLarge tells the server of a request that was larger than is read, so that it does not wait.
func (u *upstream) refuseLarge(bad *jsonrpc.FrameError) {
	large, ok := errors.AsType[*jsonrpc.TooLargeError](bad)
	if ok && large.Kind == jsonrpc.KindRequest && len(large.ID) > 0 {
		u.sendUrgent(queuedMessage{frame: jsonrpc.AppendError(nil, large.ID, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason}, false)})
	}
}

// deliver hands on a message, or those of a batch, on one line. It reports false if it is none.
func (u *upstream) deliver(frame []byte, from origin) bool {
	if jsonrpc.IsBatch(frame) {
		entries, err := jsonrpc.ParseBatch(frame, 0)
		for i := range entries {
			if m := &entries[i].Message; entries[i].Invalid == nil {
				u.accept(nil, m, from)
			}
		}
		return err == nil
	}
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(frame, m, 0); err != nil {
		from.rec.recordMessage(capture.ToClient, frame)
		u.b.metrics.invalidMessages.Add(1)
		return false
	}
	u.accept(frame, m, from)
	return true
}

// accept hands on a message of the server that can be read in one way only; frame is nil if it came in a batch. In place of an answer in which a member appears twice, the client
// gets an error. The server is told of such a request, and such a notification is dropped: whom it concerns is not certain.
func (u *upstream) accept(frame []byte, m *jsonrpc.Message, from origin) {
	err := era.CheckMembers(frame, m, false)
	if frame == nil {
		frame = encodeMessage(m)
	}
	if err == nil {
		u.dispatch(frame, m, from)
		return
	}
	u.b.metrics.invalidMessages.Add(1)
	e := jsonrpc.ErrorOf(err)
	u.b.opts.Logger.Warn("a message of the server was not forwarded", "server", u.b.opts.Name, "error", e)
	from.rec.recordMessage(capture.ToClient, frame)
	switch {
	case len(m.Method) == 0 && len(m.ID) > 0:
		refusal := errorMessage(m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's answer cannot be forwarded: %s", e.Message))
		u.dispatch(encodeMessage(refusal), refusal, from)
	case m.Kind == jsonrpc.KindRequest:
		u.sendUrgent(queuedMessage{frame: jsonrpc.AppendError(nil, m.ID, e, false)})
	}
}

func (u *upstream) dispatch(frame []byte, m *jsonrpc.Message, from origin) {
	u.mu.Lock()
	if len(m.ID) > 0 && len(m.Method) == 0 {
		if u.b.opts.HTTP {
			delete(u.sent, idKey(m.ID))
		}
		u.noteAnswerLocked(m.ID)
	}
	u.mu.Unlock()
	now := time.Now().UnixNano()
	u.lastReceived.Store(now)
	u.b.health.lastSeen.Store(now)
	u.deliverMu.Lock()
	defer u.deliverMu.Unlock()
	u.currentHandler().received(frame, m, from)
	if len(m.Method) == 0 && m.ID.Equal(from.callID) {
		from.answered()
	}
}

// encodeMessage returns the text of a message that came in a batch.
func encodeMessage(m *jsonrpc.Message) []byte {
	switch m.Kind {
	case jsonrpc.KindRequest:
		return jsonrpc.AppendRequest(nil, m.ID, string(m.Method), m.Params)
	case jsonrpc.KindNotification:
		return jsonrpc.AppendNotification(nil, string(m.Method), m.Params)
	case jsonrpc.KindResponse:
		return jsonrpc.AppendResult(nil, m.ID, m.Result)
	}
	return jsonrpc.AppendError(nil, m.ID, m.Err(), false)
}

// aliveTimeout is how long a server that did not answer a request in time may take to give any sign of life.
const aliveTimeout = 10 * time.Second

// errUnresponsive is why a connection is given up that nothing comes by any more, though nobody has said that it has ended: the server hangs, or whatever is on the way has forgotten it.
var errUnresponsive = errors.New("it answers nothing any more, not even a ping")

// checkAlive is called when a request, made at that time, was not answered in time. If nothing else was heard since, the server is asked for a sign of life, and the connection ended if
// there is none, so that the next one has a better chance. Over HTTP each request has its own chance.
func (u *upstream) checkAlive(since time.Time) {
	if u.b.opts.HTTP || u.lastReceived.Load() > since.UnixNano() {
		return
	}
	u.mu.Lock()
	conn := u.conn
	doubted := conn != nil && !conn.checking
	if doubted {
		conn.checking = true
	}
	u.mu.Unlock()
	if doubted {
		u.b.spawn(func() { u.probeAlive(conn) })
	}
}

// A connection is one that a line has at the moment.
type connection struct {
	abort    func() // ends it because it is dead
	checking bool   // it is being found out whether it is; guarded by the line's lock
}

func (u *upstream) probeAlive(c *connection) {
	sentAt := time.Now().UnixNano()
	id := jsonrpc.StringID("mcpwire-alive")
	u.sendUrgent(queuedMessage{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id, noLogin: true})
	if !sleep(u.ctx, aliveTimeout) {
		return
	}
	if u.lastReceived.Load() < sentAt {
		c.abort()
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	c.checking = false
}

// writeTimeout is how long a client on a socket may take nothing of what it is sent: it may be gone without a word.
const writeTimeout = time.Minute

// writeChunk is how much of a message must be taken in that time, in bytes: a slow client may take longer for a large one.
const writeChunk = 32 << 10

// A patient connection is one whose writes have a deadline.
type deadlineConn struct{ net.Conn }

func (c deadlineConn) Write(b []byte) (written int, err error) {
	for {
		chunk := b[written:min(written+writeChunk, len(b))]
		if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(chunk)
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}
