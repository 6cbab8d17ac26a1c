package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/neterror"
	"mcpwire/internal/proxy/resume"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A codec forwards messages between clients and a server on an upstream: a [passthrough] as they
// are, a [translator] in the other era. One goroutine at a time calls its methods for the server's
// side, except that callFailed and messagesLost may be called between calls of received.
type codec interface {
	forwarder
	// received takes a message of the server. The codec owns frame and m. on is the request on
	// whose stream the message came; nil if that is unknown. event is the message in the capture.
	received(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64)
	// callFailed says that a request failed while the connection continues.
	callFailed(id jsonrpc.ID, err error)
	// messagesLost says that notifications of the server may have been lost.
	messagesLost()
	// reconnected is called for each connection after the first, before queued
	// messages are sent. An error ends the connection.
	reconnected() error
	// disconnected says why the connection ended or failed, and which messages were not sent and
	// may use the next connection.
	disconnected(err error, unsent []queuedMessage)
	// wantsConnection reports if the upstream is to reconnect without queued messages.
	wantsConnection() bool
	// close ends everything that is pending.
	close()
}

// An upstream is a server as one client uses it, or several that share it. It connects when there
// is a message to send, and reconnects after the connection ended. It makes the bridge's own
// requests, repeats calls and the state of a session, and chooses the codec for the server's
// messages. Its methods may be called by many goroutines at once.
type upstream struct {
	b       *Bridge
	rec     recorder
	queue   sendQueue
	backoff backoff
	own     ownRequests
	retries headerRetries
	// resume is the state of a legacy session that a new server must get.
	resume    resume.State[[]byte, *client]
	abandoned abandonedCalls
	router    router

	// base is the parent of ctx.
	base   context.Context
	ctx    context.Context
	cancel context.CancelFunc
	// done is closed when run returns.
	done chan struct{}

	// inputEnded says that the end of the server's input is recorded. It belongs to run.
	inputEnded bool
	// lastReceived is the time of the server's last message, in nanoseconds since the epoch.
	lastReceived atomic.Int64
	// deliverMu is held while a codec takes a message of the server. It is locked before mu.
	deliverMu sync.Mutex
	// unclaimed holds the messages that came before there was a codec. deliverMu guards it and
	// unclaimedBytes.
	unclaimed      []unclaimedMessage
	unclaimedBytes int

	mu sync.Mutex
	// closing says that no more messages are accepted.
	closing    bool
	closeTimer *time.Timer
	// conn is nil while disconnected.
	conn *connection
	// principalID is the id of the principal whose clients share the upstream.
	principalID string
}

// newUpstream returns an upstream without a codec.
func (b *Bridge) newUpstream() *upstream { return b.newUpstreamWithContext(b.ctx) }

// newUpstreamWithContext is newUpstream with a context derived from b.ctx.
func (b *Bridge) newUpstreamWithContext(ctx context.Context) *upstream {
	u := &upstream{b: b, base: ctx, rec: b.recording.newRecorder(capture.Upstream), done: make(chan struct{}), queue: sendQueue{limit: b.opts.MaxQueue, keepSent: b.opts.HTTP, notify: make(chan struct{}, 1)}}
	u.own.prefix = "mcpwire-" + b.instance + "-"
	u.ctx, u.cancel = context.WithCancel(ctx)
	b.wg.Go(u.run)
	return u
}

// principalKey is the context key of the principal of a shared upstream.
type principalKey struct{}

// PrincipalID returns the id of the principal whose clients share the connection that
// Options.Connect makes, from its context. It returns "" for clients without a principal, and
// without Options.Shared.
func PrincipalID(ctx context.Context) string {
	id, _ := ctx.Value(principalKey{}).(string)
	return id
}

func (u *upstream) setPrincipal(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.principalID = id
}

func (u *upstream) principal() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.principalID
}

// An unclaimedMessage is a message of the server that waits for a codec.
type unclaimedMessage struct {
	frame []byte
	m     *jsonrpc.Message
	on    jsonrpc.ID
	event uint64
}

// Limits for the unclaimed messages: their number, and their bytes, which the first message may
// exceed.
const (
	maxUnclaimed      = 256
	maxUnclaimedBytes = 1 << 20
)

// setCodec makes c the codec for all clients of the upstream. It calls first, which may be nil,
// before c gets the messages that came during the detection of the era.
func (u *upstream) setCodec(c codec, first func()) {
	u.deliverMu.Lock() // new messages must wait
	defer u.deliverMu.Unlock()
	u.router.setOnly(c)
	if first != nil {
		first()
	}
	u.claimLocked()
}

// mux prepares the upstream for clients of both eras.
func (u *upstream) mux() {
	u.deliverMu.Lock()
	defer u.deliverMu.Unlock()
	u.own.chooseAllIDs()
	u.router.mux()
	u.claimLocked()
}

// claimLocked gives the codecs the unclaimed messages. It needs deliverMu.
func (u *upstream) claimLocked() {
	waiting := u.unclaimed
	u.unclaimed, u.unclaimedBytes = nil, 0
	for _, w := range waiting {
		u.route(w.frame, w.m, w.on, w.event)
	}
}

// unavailable returns an error if the upstream cannot send for some time, or nil.
func (u *upstream) unavailable() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing || u.ctx.Err() != nil {
		return errUpstreamClosed
	}
	if u.conn != nil {
		return nil
	}
	next, err := u.backoff.last()
	if wait := time.Until(next); err != nil && wait > u.b.opts.RestartWait {
		return &retryError{err, wait.Round(time.Second)}
	}
	return nil
}

// isDown reports if the last connection ended or failed and nothing waits for the next.
func (u *upstream) isDown() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	empty, _ := u.queue.isEmpty()
	_, err := u.backoff.last()
	return u.conn == nil && err != nil && empty
}

// trySend is send, but returns errQueueFull instead of waiting.
func (u *upstream) trySend(it queuedMessage) error {
	if err := u.unavailable(); err != nil {
		return err
	}
	_, err := u.queue.push(it)
	return err
}

// errUpstreamClosed is the error of a closed upstream.
var errUpstreamClosed = fmt.Errorf("the connection to the server is closed: %w", jsonrpc.ErrClosed)

// send queues a message. It waits while the queue is full. The upstream owns the frame. After an
// error the message is not sent.
func (u *upstream) send(ctx context.Context, it queuedMessage) error {
	for {
		if err := u.unavailable(); err != nil {
			return err
		}
		room, err := u.queue.push(it)
		if err == nil {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-u.ctx.Done():
		}
	}
}

// sendUrgent queues a message before all others. It never waits. If MaxQueue is reached, it drops
// the message, logs that, and returns [errUrgentFull]: the caller must fail what waits for an
// answer.
func (u *upstream) sendUrgent(it queuedMessage) error {
	err := u.queue.pushUrgent(it)
	if err != nil {
		u.logDropped(err)
	}
	return err
}

// logDropped logs that a message to the server was dropped. That a closed upstream drops messages
// is expected.
func (u *upstream) logDropped(err error) {
	level := slog.LevelWarn
	if errors.Is(err, jsonrpc.ErrClosed) {
		level = slog.LevelDebug
	}
	u.b.opts.Logger.Log(u.ctx, level, "a message to the server was dropped", "server", u.b.opts.Name, "error", err)
}

// close ends the connection after queued messages are sent, or after a second. It does not wait.
func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing {
		return
	}
	u.closing = true
	if _, idle := u.queue.isEmpty(); u.conn == nil || idle {
		u.cancel()
		return
	}
	u.closeTimer = time.AfterFunc(closeTimeout, u.cancel)
	wait.Signal(u.queue.notify)
}

// finished reports if the upstream was closed. It then ends the upstream, because nothing is
// queued.
func (u *upstream) finished() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing {
		u.cancel()
	}
	return u.closing
}

// isUp reports if there is a connection that takes messages.
func (u *upstream) isUp() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conn != nil && !u.queue.isPaused() && !u.closing
}

// run connects again and again until the upstream is closed.
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
	if !u.inputEnded {
		u.rec.recordEOF(capture.ToServer)
	}
	u.disconnected(errUpstreamClosed, u.queue.takeUnsent())
}

// awaitWork waits until there is a message to send.
func (u *upstream) awaitWork() bool {
	for {
		empty, _ := u.queue.isEmpty()
		some := !empty || u.backoff.isEager() && slices.ContainsFunc(u.router.codecs(), codec.wantsConnection)
		if some {
			return u.ctx.Err() == nil
		}
		select {
		case <-u.queue.notify:
		case <-u.ctx.Done():
			return false
		}
	}
}

// waitBackoff waits until the next connection may be made.
func (u *upstream) waitBackoff() bool {
	next, _ := u.backoff.last()
	if d := time.Until(next); d > 0 {
		return wait.Sleep(u.ctx, d)
	}
	return u.ctx.Err() == nil
}

// connectionEnded records the end of a connection, and informs the codecs.
func (u *upstream) connectionEnded(err error) {
	o := &u.b.opts
	visible := u.b.opts.visibleError(err)
	next, mayWait := u.backoff.failed(o, err, visible)
	o.Logger.Warn("the connection to the server has ended", "server", o.Name, "error", err)
	u.rec.note("the connection to the server has ended: " + err.Error())
	u.b.metrics.failures.Add(1)
	// An HTTP session that the server has ended is not a failure.
	if !errors.Is(err, jsonrpc.ErrClosed) {
		u.b.markUnhealthy(visible, err)
	}
	unsent := u.queue.takeUnsent()
	if !mayWait {
		unsent = nil
	}
	u.disconnected(visible, slices.DeleteFunc(unsent, func(it queuedMessage) bool { return next.Sub(it.queuedAt) > max(o.RestartWait, 0) }))
}

// disconnected ends what the last connection had begun. err is the reason that clients may see.
func (u *upstream) disconnected(err error, unsent []queuedMessage) {
	// The answers may cause a new codec. Its messages are for the next connection.
	informCodecs := u.router.disconnected(err, unsent)
	u.own.answerAll(ownAnswer{err: err})
	u.retries.disconnected(unsent)
	informCodecs()
}

// serveConnection makes a connection and serves it until it ends. It returns the reason.
func (u *upstream) serveConnection(first bool) error {
	started, err := u.begin()
	if err != nil {
		return err
	}
	defer started()
	ctx, cancel := u.b.opts.withDialTimeout(u.ctx)
	u.backoff.setUsable(false)
	text := u.rec.stderr()
	defer text.Close()
	ctx = context.WithValue(context.WithValue(ctx, recorderKey{}, u.rec), principalKey{}, u.principal())
	f, err := u.b.opts.Connect(ctx, text)
	cancel()
	if err != nil {
		return &connectError{err}
	}
	u.b.metrics.connections.Add(1)
	began := time.Now()
	read := make(chan error, 1)
	ended, stop := context.WithCancelCause(u.ctx)
	end := func() { stop(nil) }
	if !first {
		u.queue.setPaused(true) // until the server has the state of the old one
	}
	u.backoff.setUsable(first)
	c := &connection{u: u, f: f, started: started, abort: func() { stop(errUnresponsive) }}
	u.b.openConnections.Add(1)
	defer u.b.openConnections.Add(-1)
	u.mu.Lock()
	u.conn = c
	u.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		read <- c.read()
		end()
	})
	wg.Go(func() { c.write(ended, end) })
	if !first {
		err = u.reconnected(ended)
	}
	if err == nil {
		<-ended.Done()
	}
	if u.inputEnded = err != nil || u.ctx.Err() != nil || context.Cause(ended) == errUnresponsive; u.inputEnded {
		u.rec.recordEOF(capture.ToServer) // the server does not end by itself
	}
	end()
	u.mu.Lock()
	u.conn = nil
	u.mu.Unlock()
	f.Close() // makes read return
	wg.Wait()
	u.rec.flushEnds()
	if why := <-read; err == nil || errors.Is(err, context.Canceled) {
		err = why
	}
	if context.Cause(ended) == errUnresponsive {
		err = errUnresponsive
	}
	if time.Since(began) >= u.b.opts.StableAfter {
		u.backoff.reset()
	}
	return err
}

// reconnected gives a new server the state of the old one, and releases the queue.
func (u *upstream) reconnected(ctx context.Context) error {
	ctx, cancel := u.b.withConnectTimeout(ctx)
	defer cancel()
	u.b.metrics.restarts.Add(1)
	var err error
	for _, c := range u.router.codecs() {
		err = errors.Join(err, c.reconnected())
	}
	if err == nil {
		err = u.restoreSession(ctx)
	}
	if err != nil {
		return fmt.Errorf("the server was restarted, but does not respond: %w", err)
	}
	u.backoff.setUsable(true)
	u.queue.setPaused(false)
	return nil
}

// errServerChanged is the error of a new connection whose server has another revision.
var errServerChanged = errors.New("the server has changed")

// restoreSession repeats the handshake, the log level and the subscriptions of a legacy session, if
// there was one.
func (u *upstream) restoreSession(ctx context.Context) error {
	frames := u.resume.Replay()
	if len(frames) == 0 {
		return nil
	}
	initialize, before := u.resume.Handshake()
	result, err := u.roundTrip(ctx, func(id jsonrpc.ID) []byte { return WithID(initialize, id) })
	if err != nil {
		u.b.eras.reset() // it may be another server
		return fmt.Errorf("handshake: %w", err)
	}
	if before, now := versionIn(before), versionIn(result); before != now {
		return fmt.Errorf("%w: the server now speaks revision %s; it spoke %s before", errServerChanged, now, before)
	}
	for _, frame := range frames[1:] {
		if jsonwire.Lookup(frame, "id") == nil {
			if err := u.sendOwn(frame); err != nil {
				return fmt.Errorf("handshake: %w", err)
			}
		} else if err := u.replay(frame); err != nil {
			return fmt.Errorf("restore the session: %w", err)
		}
	}
	u.resume.SetHandshake(initialize, result)
	u.messagesLost()
	return nil
}

func versionIn(result []byte) string {
	return jsonwire.Text(jsonwire.Lookup(result, "protocolVersion"))
}

// messagesLost informs the codecs that notifications of the server may have been lost.
func (u *upstream) messagesLost() {
	for _, c := range u.router.codecs() {
		c.messagesLost()
	}
}

// closeTimeout limits how long a closing upstream may write, and a server that accepts nothing may
// be read.
const closeTimeout = time.Second

// A connection is a connection of an upstream to the server.
type connection struct {
	u *upstream
	f jsonrpc.Framer
	// started says that the server has sent something.
	started func()
	// abort ends a dead connection.
	abort func()
	// checking says that probeAlive runs. The lock of the upstream guards it.
	checking bool
}

// write sends queued messages until ctx ends. After a write error it waits for the reader, which
// may get the server's last messages, and calls end.
func (c *connection) write(ctx context.Context, end func()) {
	for {
		it, urgent, ok := c.u.queue.next()
		if !ok {
			if c.u.finished() {
				return
			}
			select {
			case <-c.u.queue.notify:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !urgent {
			c.u.backoff.sent(it)
		}
		if err := c.transmit(it); err != nil {
			c.u.b.opts.Logger.Debug("message not sent", "error", err)
			c.u.queue.putBack(it)
			if !c.u.b.opts.HTTP {
				// The reader is about to learn the reason. Wait no longer than this.
				timer := time.AfterFunc(closeTimeout, end)
				defer timer.Stop()
				<-ctx.Done()
			}
			end()
			return
		}
	}
}

// read handles the messages of the server until the connection ends, and returns the reason.
func (c *connection) read() error {
	ownFrame := compact
	if _, ok := c.f.(rpc.MessageTransport); ok { // its frames are owned by the reader
		ownFrame = jsonwire.OneLine
	}
	noise := 0
	for {
		frame, from, err := c.receive()
		c.started()
		if err != nil {
			if !c.handleError(err, from) {
				if errors.Is(err, io.EOF) {
					err = fmt.Errorf("the server has closed the connection: %w", io.EOF)
				}
				return err
			}
			continue
		}
		if !c.deliver(ownFrame(frame), from) {
			if noise++; noise == 1 {
				c.u.b.opts.Logger.Warn("dropped output of the server that is not a message; further output is not reported", "server", c.u.b.opts.Name, "text", clip.Quote(frame, 120))
			}
		}
	}
}

// handleError handles an error of the framer that does not end the connection. It reports if err
// was one.
func (c *connection) handleError(err error, from origin) bool {
	_, ofCall := errors.AsType[*jsonrpc.CallError](err)
	if bad, ok := errors.AsType[*jsonrpc.FrameError](err); ok {
		c.u.b.opts.Logger.Warn("message of the server dropped", "error", bad)
		if !ofCall {
			c.refuseLarge(bad)
			return true
		}
	}
	if errors.Is(err, jsonrpc.ErrGap) {
		c.u.messagesLost()
		return true
	}
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok {
		return false
	}
	from.answered()
	unprocessed := failed.Outcome == jsonrpc.OutcomeUnprocessed
	if unprocessed && neterror.IsRefused(failed) && c.u.repeatRefused(failed.ID) {
		c.u.b.markUnhealthy(failed, nil)
		return true
	}
	// The HTTP session is gone, and a new one follows.
	retry := c.u.queue.failed(failed.ID, unprocessed && errors.Is(failed.Err, jsonrpc.ErrClosed))
	_, large := errors.AsType[*jsonrpc.TooLargeError](err)
	if large { // there is a response, but it cannot be forwarded
		c.u.backoff.answered(failed.ID)
	}
	if !retry {
		if !large && failed.Outcome != jsonrpc.OutcomeRejected && !errors.Is(failed.Err, jsonrpc.ErrClosed) {
			c.u.b.markUnhealthy(failed, nil)
		}
		c.u.callFailed(failed.ID, failed)
	}
	return true
}

// repeatRefused sends a request again after a pause. It reports false if the request must not wait.
func (u *upstream) repeatRefused(id jsonrpc.ID) bool {
	if !u.b.responded.Load() {
		return false
	}
	pause, ok := u.queue.refused(id, &u.b.opts)
	return ok && u.b.spawn(func() {
		if wait.Sleep(u.ctx, pause) {
			u.queue.repeat(id)
		}
	})
}

// refuseLarge answers a request of the server that exceeds the size limit.
func (c *connection) refuseLarge(bad *jsonrpc.FrameError) {
	large, ok := errors.AsType[*jsonrpc.TooLargeError](bad)
	if ok && large.Kind == jsonrpc.KindRequest && len(large.ID) > 0 {
		c.u.sendUrgent(queuedMessage{frame: jsonrpc.AppendError(nil, large.ID, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason}, false)})
	}
}

// deliver handles a message, or the messages of a batch. It reports false if the frame is invalid.
func (c *connection) deliver(frame []byte, from origin) bool {
	if rpcbatch.Is(frame) {
		entries, err := rpcbatch.Parse(frame, 0)
		for i := range entries {
			if m := &entries[i].Message; entries[i].Invalid == nil {
				c.accept(nil, m, from)
			}
		}
		return err == nil
	}
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(frame, m, 0); err != nil {
		from.rec.recordMessage(capture.ToClient, frame)
		c.u.b.metrics.invalidMessages.Add(1)
		id, isResponse := m.ID, m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError
		if !isResponse {
			id, isResponse = rpc.BrokenResponse(frame)
		}
		if isResponse {
			c.refuseResponse(id, jsonrpc.ErrorOf(err), from)
		}
		return isResponse
	}
	c.accept(frame, m, from)
	return true
}

// refuseResponse gives the client an error in place of a response of the server.
func (c *connection) refuseResponse(id jsonrpc.ID, e *jsonrpc.Error, from origin) {
	c.u.b.opts.Logger.Warn("response of the server not forwarded", "server", c.u.b.opts.Name, "id", clip.String(id, 100), "error", e)
	if len(id) > 0 {
		refusal := errorMessage(id, c.u.b.opts.named(jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's response cannot be forwarded: %s", e.Message)))
		c.u.dispatch(encodeMessage(refusal), refusal, from)
	}
}

// accept passes on a message of the server if it is unambiguous. frame is nil if it came in a
// batch. If a member name occurs twice, the client gets an error in place of a response, the server
// gets an error for a request, and a notification is dropped.
func (c *connection) accept(frame []byte, m *jsonrpc.Message, from origin) {
	err := era.CheckMembers(frame, m, false)
	if frame == nil {
		frame = encodeMessage(m)
	}
	if err == nil {
		c.u.dispatch(frame, m, from)
		return
	}
	c.u.b.metrics.invalidMessages.Add(1)
	e := jsonrpc.ErrorOf(err)
	from.rec.recordMessage(capture.ToClient, frame)
	if len(m.Method) == 0 && len(m.ID) > 0 {
		c.refuseResponse(m.ID, e, from)
		return
	}
	c.u.b.opts.Logger.Warn("message of the server not forwarded", "server", c.u.b.opts.Name, "error", e)
	if m.Kind == jsonrpc.KindRequest {
		c.u.sendUrgent(queuedMessage{frame: jsonrpc.AppendError(nil, m.ID, e, false)})
	}
}

// cancelCall withdraws a request, or sends the server its cancellation if the request was sent.
func (u *upstream) cancelCall(id jsonrpc.ID, cancellation queuedMessage) {
	if !u.queue.withdraw(id) {
		u.sendUrgent(cancellation)
	}
}

// callFailed fails a request while the connection continues.
func (u *upstream) callFailed(id jsonrpc.ID, err error) {
	if u.own.answer(id, ownAnswer{err: err}) {
		return
	}
	u.retries.forget(id)
	if c := u.router.codecOfFailed(id); c != nil {
		u.rec.note(u.b.opts.clientError(err).Message)
		c.callFailed(id, err)
	}
}

func (u *upstream) dispatch(frame []byte, m *jsonrpc.Message, from origin) {
	var request queuedMessage
	if len(m.ID) > 0 && len(m.Method) == 0 {
		request = u.queue.answered(m.ID)
		u.backoff.answered(m.ID)
	}
	now := time.Now().UnixNano()
	u.lastReceived.Store(now)
	u.b.health.lastSeen.Store(now)
	u.b.responded.Store(true)
	u.deliverMu.Lock()
	defer u.deliverMu.Unlock()
	event := from.rec.recordMessage(capture.ToClient, frame)
	if len(m.Method) > 0 || !u.takeResponse(frame, m, request, event) {
		u.route(frame, m, from.callID, event)
	}
	if len(m.Method) == 0 && m.ID.Equal(from.callID) {
		from.answered()
	}
}

// takeResponse handles a response to a request of the bridge itself, or one that causes a retry of
// the request. It reports if it was one of these.
func (u *upstream) takeResponse(frame []byte, m *jsonrpc.Message, request queuedMessage, event uint64) bool {
	if u.own.answer(m.ID, ownAnswer{m: m, frame: frame, event: event}) {
		return true
	}
	if !u.router.hasCodec() { // all requests are the bridge's
		if len(m.ID) == 0 || m.ID.IsNull() {
			u.own.answerAll(ownAnswer{m: m, frame: frame, event: event})
		}
		return true
	}
	call, ctx := u.retries.refused(u.ctx, m, request)
	if call == nil {
		return false
	}
	u.b.wg.Go(func() { u.retryWithHeaders(ctx, call, frame, m, event) })
	return true
}

// route gives a message of the server to the codec that it is for. It needs deliverMu.
func (u *upstream) route(frame []byte, m *jsonrpc.Message, on jsonrpc.ID, event uint64) {
	switch c, addressed := u.router.codecOf(m, on); {
	case c != nil:
		c.received(frame, m, on, event)
	case !u.router.hasCodec():
		if len(u.unclaimed) == 0 || len(u.unclaimed) < maxUnclaimed && u.unclaimedBytes+len(frame) <= maxUnclaimedBytes {
			u.unclaimed = append(u.unclaimed, unclaimedMessage{frame, m, on, event})
			u.unclaimedBytes += len(frame)
		}
	case addressed:
		u.b.metrics.unmatchedResponses.Add(1)
	default:
		u.noteUnroutable(event)
	}
}

// noteUnroutable records that a message was dropped.
func (u *upstream) noteUnroutable(event uint64) {
	u.rec.note("message " + strconv.FormatUint(event, 10) + " not forwarded: it belongs to no client")
}

// encodeMessage returns the text of a message.
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

// aliveTimeout limits how long a server may take to answer a ping after a request timed out.
const aliveTimeout = 10 * time.Second

// errUnresponsive is the error of a connection that is silent but not closed, because the server or
// the network hangs.
var errUnresponsive = errors.New("it no longer responds, not even to a ping")

// checkAlive pings the server after a request from the given time timed out, if no message came
// since. It ends the connection if the server stays silent. Over HTTP requests are independent, so
// it does nothing.
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

func (u *upstream) probeAlive(c *connection) {
	sentAt := time.Now().UnixNano()
	id := jsonrpc.StringID("mcpwire-alive")
	// If there is no room for the ping, the server has not read for long, and only a message of it
	// shows that it is alive.
	u.sendUrgent(queuedMessage{frame: jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil), id: id, noLogin: true})
	if !wait.Sleep(u.ctx, aliveTimeout) {
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

// writeTimeout limits how long a client on a socket may accept no data before it counts as gone.
const writeTimeout = time.Minute

// writeChunk is the number of bytes that writeTimeout applies to, so that a slow client may take
// longer for a large message.
const writeChunk = 32 << 10

// A deadlineConn is a connection with a deadline for writes.
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

// A backoff decides when an upstream connects again. Its methods may be called by many goroutines
// at once.
type backoff struct {
	mu sync.Mutex
	// usable says that the current or last connection could take messages.
	usable bool
	// failures counts the connections in a row that answered no request.
	failures int
	// everAnswered says that some connection had a response.
	everAnswered bool
	// recoveryCalls holds the keys of requests whose responses reset failures; nil if failures is
	// reset.
	recoveryCalls map[string]struct{}
	// err is the error of the last connection; nil before its end.
	err error
	// next is the earliest time of the next attempt.
	next time.Time
}

// maxRecoveryCalls limits recoveryCalls.
const maxRecoveryCalls = 1024

// maxEagerFailures is the number of failures in a row after which the upstream does not reconnect
// for wantsConnection alone.
const maxEagerFailures = 8

// setUsable says whether the connection takes messages.
func (b *backoff) setUsable(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usable = on
}

// last returns the earliest time of the next attempt, and the error of the last connection, as
// clients may see it.
func (b *backoff) last() (next time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next, b.err
}

// isEager reports if the upstream may connect without a message to send.
func (b *backoff) isEager() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures < maxEagerFailures
}

// failed records the end of a connection. visible is err as clients may see it. It returns the
// earliest time of the next attempt, and reports if messages may wait for it.
func (b *backoff) failed(o *Options, err, visible error) (next time.Time, mayWait bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	pause := wait.Backoff(o.MinBackoff, o.MaxBackoff, b.failures, rand.Float64())
	b.next, b.err = time.Now().Add(pause), visible
	b.recoveryCalls = map[string]struct{}{}
	return b.next, b.usable || b.everAnswered && !errors.Is(err, errServerChanged)
}

// sent records a message of a client that is about to be sent.
func (b *backoff) sent(it queuedMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recoveryCalls != nil && len(b.recoveryCalls) < maxRecoveryCalls && it.id != nil && jsonwire.Text(jsonwire.Lookup(it.frame, "method")) != mcp.MethodInitialize {
		b.recoveryCalls[it.id.Key()] = struct{}{}
	}
}

// answered records a response. The response to a client's request that this connection sent after
// failures resets the backoff. A handshake does not, because a server may fail after it each time.
func (b *backoff) answered(id jsonrpc.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.everAnswered = true
	if b.recoveryCalls == nil {
		return
	}
	if _, ok := b.recoveryCalls[id.Key()]; ok {
		b.failures, b.recoveryCalls = 0, nil
	}
}

// reset says that a connection was stable.
func (b *backoff) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.recoveryCalls = 0, nil
}
