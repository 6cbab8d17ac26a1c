package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
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
