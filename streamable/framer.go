package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/userwait"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of one connection.
const (
	maxQueued = 4096 // requests that wait for a slot
	maxOneWay = 64   // notifications and responses in flight
	// Pending notifications and responses; more are dropped. A server that sends requests without
	// end may not read the responses.
	maxQueuedOneWay = 1024
	maxInbound      = 64               // messages not received yet
	oneWayTimeout   = 30 * time.Second // for sending a notification or a response
	// For pending requests after the session was lost, and for notifications on Close.
	drainTimeout = 500 * time.Millisecond
	closeTimeout = 2 * time.Second  // for ending the session, and for goroutines
	cancelGrace  = 10 * time.Second // for a canceled legacy request
)

// A framer is the jsonrpc.Framer of one connection: a stateless one to a modern server, or a
// session of a legacy one. It has a goroutine for each HTTP request in flight, and one for each
// stream that a legacy server keeps open. They send received messages to in, and end with ctx.
type framer struct {
	transport *Transport
	log       *slog.Logger

	// ctx is the parent of all requests. It ends with Close.
	ctx    context.Context
	cancel context.CancelFunc
	// baseCtx is ctx with the values of Connect's context, for the connection's own requests.
	baseCtx context.Context
	in      chan inbound
	// deliverAnswer takes responses that need not keep their order with in.
	deliverAnswer func([]byte) error
	// done is closed when there is nothing more to receive; endErr has the reason.
	done chan struct{}
	wg   sync.WaitGroup
	// oneWays counts notifications and responses. wg includes them.
	oneWays sync.WaitGroup

	// work passes requests to idle workers, whose stacks have grown already.
	work chan *post
	// idleWorkers counts the goroutines that receive from work.
	idleWorkers atomic.Int32
	// slots has an element for each request in flight.
	slots chan struct{}
	// oneWaySlots has an element for each notification or response in flight.
	oneWaySlots chan struct{}
	// oneWayCount counts pending notifications and responses.
	oneWayCount atomic.Int32
	// dropLogged guards the log of the first dropped message.
	dropLogged sync.Once

	// sessionServed means that a request of the session has succeeded.
	sessionServed atomic.Bool

	mu sync.Mutex
	// pending has requests without a response yet, by the text of their id.
	pending map[string]*post
	// modernVersion is the version header of the last modern request.
	modernVersion []string
	// endErr is nil until done is closed.
	endErr error
	// closed is closed when Close is done. It is nil before Close.
	closed chan struct{}
	// initialized is closed when notifications/initialized was sent. It is nil before.
	initialized chan struct{}
	// lastNotification is closed when the last notification was sent.
	lastNotification chan struct{}
	session          clientSession
	// sse is the URL to post to if the server speaks HTTP+SSE. It is nil otherwise.
	sse *url.URL
}

// An inbound is a result of Receive.
type inbound struct {
	frame []byte
	err   error
	// from is nil for errors, except those of calls.
	from context.Context
}

func newFramer(ctx context.Context, t *Transport) *framer {
	f := &framer{
		transport: t, log: t.opts.Logger,
		in:          make(chan inbound, maxInbound),
		done:        make(chan struct{}),
		work:        make(chan *post),
		slots:       make(chan struct{}, t.opts.MaxRequests),
		oneWaySlots: make(chan struct{}, maxOneWay),
		pending:     make(map[string]*post),
	}
	f.ctx, f.cancel = context.WithCancel(userwait.Copy(context.Background(), ctx))
	f.baseCtx = valueContext{f.ctx, context.WithoutCancel(ctx)}
	return f
}

func (f *framer) ReadFrame() ([]byte, error) {
	frame, _, err := f.Receive()
	return frame, err
}

// Receive is ReadFrame, and also returns the context of the HTTP request whose response contained
// the frame, or that failed the call. The context is nil with other errors. It has the values of
// the context that the request was posted with, or of Connect's for the connection's own requests,
// and those that the round tripper added, if [http.Response.Request] has them. The bridge detects
// the method, to know which HTTP response a message came by.
func (f *framer) Receive() ([]byte, context.Context, error) {
	select {
	case m := <-f.in:
		return m.frame, m.from, m.err
	case <-f.done:
	}
	select {
	case m := <-f.in: // messages before the end
		return m.frame, m.from, m.err
	default:
		return nil, nil, f.endErr
	}
}

// enqueue passes a message or an error to the reader.
func (f *framer) enqueue(m inbound) {
	select {
	case f.in <- m:
		return
	default:
	}
	select {
	case f.in <- m:
	case <-f.done:
	case <-f.ctx.Done():
	}
}

// finish makes Receive return err after the pending messages.
func (f *framer) finish(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finishLocked(err)
}

func (f *framer) finishLocked(err error) {
	if f.endErr == nil {
		f.endErr = err
		close(f.done)
	}
}

func (f *framer) OnResponse(answer func([]byte) error) { f.deliverAnswer = answer }

func (f *framer) WriteFrame(msg []byte) error { return f.Post(context.Background(), msg) }

// Post implements [rpc.MessageTransport]. A request's error becomes the error of its call.
func (f *framer) Post(ctx context.Context, msg []byte) error {
	env := readEnvelope(msg)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed != nil:
		return fmt.Errorf("streamable: %w", jsonrpc.ErrClosed)
	case f.endErr != nil:
		return fmt.Errorf("streamable: %w", f.endErr)
	case env.kind == jsonrpc.KindRequest:
		f.startRequestLocked(ctx, &env, msg)
	case env.method == mcp.NotificationCancelled:
		if f.cancelLocked(&env) {
			f.startOneWayLocked(ctx, &env, msg)
		}
	default:
		f.startOneWayLocked(ctx, &env, msg)
	}
	return nil
}

// startRequestLocked starts a request.
func (f *framer) startRequestLocked(ctx context.Context, env *envelope, msg []byte) {
	p := &post{f: f, id: string(env.id), method: env.method, modern: env.version != nil, initialized: f.initialized}
	if era.ServerMayAsk(env.method) {
		p.listening = f.session.listening
	}
	var err error
	switch {
	case f.session.gone != nil:
		err = &jsonrpc.CallError{Err: f.session.gone, Outcome: jsonrpc.OutcomeUnprocessed}
	case len(f.pending) >= f.transport.opts.MaxRequests+maxQueued:
		err = &jsonrpc.CallError{Err: fmt.Errorf("%d requests are already in flight or queued", len(f.pending)), Outcome: jsonrpc.OutcomeUnprocessed}
	case p.modern:
		f.modernVersion = versionValue(env.version)
		if p.header, err = f.transport.modernHeader(env, f.modernVersion); err != nil {
			err = &jsonrpc.CallError{Err: err, Outcome: jsonrpc.OutcomeRejected}
		}
	case env.method == mcp.MethodInitialize:
		f.modernVersion = nil // notifications belong to the session from now on
		f.session = clientSession{mayRequest: env.mayRequest}
		f.sessionServed.Store(false)
	}
	own, cancel := context.WithCancel(f.ctx)
	p.ctx, p.cancel = valueContext{own, ctx}, cancel
	if err == nil {
		p.body = bytes.Clone(msg)
		f.pending[p.id] = p
	}
	p.sendErr = err
	select {
	case f.work <- p:
	default:
		f.wg.Go(func() { f.serve(p) })
	}
}

// A valueContext adds the values of another context, such as a trace or an identity for the round
// tripper. Its own values come first: package context looks up there how to propagate cancellation.
type valueContext struct {
	context.Context
	values context.Context
}

func (c valueContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// maxIdleWorkers limits the goroutines that wait for more requests.
const maxIdleWorkers = 64

// serve runs a request, and later ones.
func (f *framer) serve(p *post) {
	for {
		if p.sendErr != nil {
			p.fail(p.sendErr)
		} else {
			p.run()
			f.remove(p)
		}
		p.cancel()
		if f.idleWorkers.Add(1) > maxIdleWorkers {
			f.idleWorkers.Add(-1)
			return
		}
		select {
		case p = <-f.work:
			f.idleWorkers.Add(-1)
		case <-f.ctx.Done():
			return
		}
	}
}

// remove removes a request from the pending ones.
func (f *framer) remove(p *post) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending[p.id] == p { // the response to p may have caused a request with the same id
		delete(f.pending, p.id)
	}
	if p.cancelTimer != nil {
		p.cancelTimer.Stop()
	}
	if f.session.gone != nil && len(f.pending) == 0 { // no other call waits for its error
		f.finishLocked(f.session.gone)
	}
}

// cancelLocked cancels a request of this side. It reports whether the server needs the
// notification: a modern one notices the closed response.
func (f *framer) cancelLocked(env *envelope) bool {
	p := f.pending[string(env.requestID)]
	switch {
	case p == nil:
		return f.sse != nil // HTTP+SSE does not keep requests open
	// A client must not send a cancellation of initialize.
	case p.modern || !p.sent.Load() || p.method == mcp.MethodInitialize:
		p.cancel()
		return false
	}
	p.cancelTimer = time.AfterFunc(cancelGrace, p.cancel)
	return true
}

// startOneWayLocked starts the sending of a notification or a response. Notifications keep their
// order.
func (f *framer) startOneWayLocked(ctx context.Context, env *envelope, msg []byte) {
	if f.session.gone != nil {
		return
	}
	if f.oneWayCount.Load() >= maxQueuedOneWay {
		f.dropLogged.Do(func() {
			f.log.Warn("message dropped: the server does not accept messages; further ones are not reported", "method", env.method)
		})
		return
	}
	f.oneWayCount.Add(1)
	o := &oneWayPost{f: f, method: env.method, body: append(make([]byte, 0, len(msg)), msg...), initialized: f.initialized}
	o.ctx, o.cancel = context.WithTimeout(f.ctx, oneWayTimeout)
	o.ctx = valueContext{o.ctx, ctx}
	if modern := env.version != nil || f.modernVersion != nil; modern {
		if env.version != nil {
			f.modernVersion = versionValue(env.version)
		}
		o.header, _ = f.transport.modernHeader(env, f.modernVersion)
	}
	if env.kind == jsonrpc.KindNotification && env.method != mcp.NotificationCancelled {
		o.previous, o.done = f.lastNotification, make(chan struct{})
		f.lastNotification = o.done
	}
	if env.method == mcp.NotificationInitialized {
		f.initialized = o.done // no later message may overtake it
		o.listening = f.prepareListenLocked()
	}
	f.oneWays.Add(1)
	f.wg.Go(func() {
		defer f.oneWays.Done()
		defer f.oneWayCount.Add(-1)
		o.run()
	})
}

// Close implements [jsonrpc.Framer]. It ends a legacy session, and takes at most 5 s.
func (f *framer) Close() error {
	f.mu.Lock()
	if f.closed != nil {
		closed := f.closed
		f.mu.Unlock()
		<-closed
		return nil
	}
	f.closed = make(chan struct{})
	f.finishLocked(io.EOF)
	for _, p := range f.pending {
		p.cancel()
	}
	f.mu.Unlock()
	defer close(f.closed)
	wait.Timeout(drainTimeout, f.oneWays.Wait)
	f.endSession()
	f.cancel()
	if !wait.Timeout(closeTimeout, f.wg.Wait) {
		f.log.Error("HTTP requests do not end with their context: their goroutines leak")
	}
	if f.transport.ownTransport != nil {
		f.transport.ownTransport.CloseIdleConnections()
	}
	f.transport.conns.release()
	return nil
}

// A post is a request of this side and its HTTP request. One goroutine uses it; others may call
// cancel.
type post struct {
	f *framer
	// id is JSON text.
	id     string
	method string
	modern bool
	// header is nil for a legacy request until roundTrip sets it from the session.
	header http.Header
	body   []byte
	// initialized and listening are awaited before the request is sent. Both may be nil.
	initialized <-chan struct{}
	listening   <-chan struct{}

	// sendErr says why the request must not be sent. It is usually nil.
	sendErr error
	// mustEnqueue means that the response must follow messages in framer.in.
	mustEnqueue bool
	// from is the context of the HTTP request whose response is being read.
	from context.Context

	ctx    context.Context
	cancel context.CancelFunc
	// sent means that the server may have seen the request.
	sent atomic.Bool
	// cancelTimer ends the wait for a canceled request. Guarded by framer.mu.
	cancelTimer *time.Timer
}

// run sends the request and ensures that the call gets a response or an error.
func (p *post) run() {
	select {
	case p.f.slots <- struct{}{}:
		defer func() { <-p.f.slots }()
	case <-p.ctx.Done():
		return
	}
	if !awaitClosed(p.ctx, p.initialized) || !awaitClosed(p.ctx, p.listening) {
		return
	}
	if err := p.roundTrip(); err != nil {
		p.fail(err)
	}
}

// awaitClosed waits until c, which may be nil, is closed. It reports false if ctx ended first.
func awaitClosed(ctx context.Context, c <-chan struct{}) bool {
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// fail makes the call fail, unless it was canceled.
func (p *post) fail(err error) {
	if p.ctx.Err() != nil {
		return
	}
	e, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok {
		e = lostError(err)
	}
	e.ID = jsonrpc.ID(p.id)
	if large, ok := errors.AsType[*jsonrpc.TooLargeError](e.Err); ok {
		large.ID = e.ID
	}
	p.f.enqueue(inbound{err: e, from: p.from})
}

// roundTrip sends the request and reads the response to its end.
func (p *post) roundTrip() error {
	if endpoint := p.f.currentSSE(); endpoint != nil && !p.modern {
		return p.roundTripSSE(endpoint)
	}
	var session clientSession
	if !p.modern {
		session = p.f.currentSession()
		p.header = p.f.transport.legacyHeader(&session)
		p.header["Content-Type"], p.header["Accept"] = valueJSON, valueAccept
	}
	p.sent.Store(true)
	resp, err := p.f.transport.send(p.ctx, http.MethodPost, p.f.transport.url, p.header, p.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	p.from = resp.Request.Context()
	if resp.StatusCode != http.StatusOK {
		return p.handleErrorStatus(resp, session.id != "")
	}
	if session.id != "" && !p.f.sessionServed.Load() {
		p.f.sessionServed.Store(true)
	}
	if p.method == mcp.MethodInitialize && !p.modern {
		if err := p.f.setSessionID(resp.Header); err != nil {
			return err
		}
	}
	if err := checkContentEncoding(resp.Header); err != nil {
		return lostError(err)
	}
	switch kind := mediaTypeOf(resp.Header); kind {
	case mediaJSON:
		return p.readJSON(resp)
	case mediaStream:
		return p.readStream(resp.Body)
	default:
		return malformedError("the content type of the response is %.100q, but must be %s or %s", kind, mediaJSON, mediaStream)
	}
}

// handleErrorStatus handles a response with a status other than 200.
func (p *post) handleErrorStatus(resp *http.Response, inSession bool) error {
	if resp.StatusCode/100 == 2 {
		return malformedError("the response to a request has HTTP status %d, as for a notification", resp.StatusCode)
	}
	r := readHTTPError(resp)
	switch {
	case p.modern:
	case inSession && p.f.isSessionRejected(r, p.id):
		return p.f.loseSession(r.status)
	case p.method == mcp.MethodInitialize && p.mayBeSSE(r):
		if endpoint := p.f.openSSE(p.ctx); endpoint != nil {
			return p.roundTripSSE(endpoint)
		}
	}
	return p.completeHTTPError(r)
}

// completeHTTPError delivers the JSON-RPC error of a response whose status is not 2xx, or fails.
func (p *post) completeHTTPError(r *httpError) error {
	if !r.isAnswer() {
		return r.callError()
	}
	// Only the error matters. It certainly belongs to this request, whatever its id.
	return p.complete(jsonrpc.AppendError(nil, jsonrpc.ID(p.id), r.message.Err(), false))
}

// readJSON reads a response that is one message.
func (p *post) readJSON(resp *http.Response) error {
	frame, err := readBody(resp, p.f.transport.opts.MaxFrame)
	if err != nil {
		return err
	}
	answered, err := p.handleMessage(frame, true)
	if err == nil && !answered {
		err = malformedError("the response matches another request, or none")
	}
	return err
}

// tooLargeError is the error of a request whose response exceeds MaxFrame. size is its
// minimum size in bytes, or 0 if unknown.
func tooLargeError(limit int, size int64) *jsonrpc.CallError {
	return lostError(&jsonrpc.TooLargeError{Limit: limit, Size: size, Kind: jsonrpc.KindResponse})
}

// maxPreallocated is the largest buffer that is allocated for a Content-Length, in bytes.
const maxPreallocated = 1 << 20

// readBody reads the whole body of a response.
func readBody(resp *http.Response, limit int) ([]byte, error) {
	if resp.ContentLength > int64(limit) {
		return nil, tooLargeError(limit, resp.ContentLength)
	}
	if n := resp.ContentLength; n >= 0 && n <= maxPreallocated {
		body := make([]byte, n)
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			return nil, sendError(err)
		}
		return body, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, sendError(err)
	case len(body) > limit:
		return nil, tooLargeError(limit, int64(len(body)))
	}
	return body, nil
}

// handleMessage handles a message of the HTTP response, and passes it on if the protocol allows it
// there. answered means that it is the response to the request. sole means that no other message
// follows.
func (p *post) handleMessage(frame []byte, sole bool) (answered bool, err error) {
	frame = bytes.TrimPrefix(frame, bom)
	var m jsonrpc.Message
	if rpcbatch.Is(frame) && !p.modern {
		return p.handleBatch(frame)
	}
	if err := jsonrpc.Parse(frame, &m, 0); err != nil {
		if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError && !sole {
			p.f.log.Warn("invalid message", "error", err)
			return false, nil
		}
		return false, malformedError("%v", err)
	}
	switch m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		return p.handleResponse(frame, &m, sole)
	case jsonrpc.KindRequest:
		if p.modern {
			p.f.log.Warn("request dropped: a server must not send requests in this revision", "method", clip.String(m.Method, 100))
			return false, nil
		}
	}
	if !sole {
		p.enqueue(frame)
	}
	return false, nil
}

// enqueue passes a message other than the response to the reader.
func (p *post) enqueue(frame []byte) {
	p.mustEnqueue = true
	p.f.enqueue(inbound{frame: frame, from: p.from})
}

// complete delivers the response.
func (p *post) complete(frame []byte) error {
	if p.mustEnqueue || p.f.deliverAnswer == nil {
		p.f.enqueue(inbound{frame: frame, from: p.from})
		return nil
	}
	if err := p.f.deliverAnswer(frame); err != nil {
		return malformedError("%v", err)
	}
	return nil
}

// handleResponse is handleMessage for a response.
func (p *post) handleResponse(frame []byte, m *jsonrpc.Message, sole bool) (answered bool, err error) {
	switch {
	case string(m.ID) == p.id || m.ID.Equal(jsonrpc.ID(p.id)):
	case m.Kind == jsonrpc.KindError && sole && (len(m.ID) == 0 || m.ID.IsNull()):
		frame = jsonrpc.AppendError(nil, jsonrpc.ID(p.id), m.Err(), false)
	case p.modern || sole:
		p.f.log.Warn("response to another request dropped", "id", clip.String(m.ID, 100), "want", p.id)
		return false, nil
	default:
		p.enqueue(frame) // legacy servers replay messages of other streams
		return false, nil
	}
	switch {
	case p.modern && p.method == mcp.MethodToolsList:
		frame = p.f.transport.tools.filterTools(frame, m, p.f.log)
	case !p.modern && p.method == mcp.MethodInitialize:
		p.f.setNegotiated(m)
	}
	return true, p.complete(frame)
}

// handleBatch passes on an array of messages, which one legacy revision allows. The reader finds
// the response in it.
func (p *post) handleBatch(frame []byte) (answered bool, err error) {
	entries, err := rpcbatch.Parse(frame, 0)
	if err != nil {
		return false, malformedError("%v", err)
	}
	for i := range entries {
		e := &entries[i]
		answered = answered || (e.Kind == jsonrpc.KindResponse || e.Kind == jsonrpc.KindError) && e.ID.Equal(jsonrpc.ID(p.id))
	}
	p.f.enqueue(inbound{frame: frame, from: p.from})
	return answered, nil
}

// A oneWayPost is a notification or a response of this side, which gets no JSON-RPC response.
type oneWayPost struct {
	f *framer
	// method is "" for a response.
	method string
	header http.Header
	body   []byte
	ctx    context.Context
	cancel context.CancelFunc
	// previous and initialized are awaited before the message is sent. Both may be nil.
	previous    <-chan struct{}
	initialized <-chan struct{}
	// done is closed at the end. It may be nil.
	done chan struct{}
	// listening is closed when the server knows the client's stream. It is nil unless this message
	// starts that stream.
	listening chan<- struct{}
}

func (o *oneWayPost) run() {
	defer o.cancel()
	o.sendInOrder()
	if o.done != nil {
		close(o.done)
	}
	if o.listening != nil {
		o.f.startListening(o.listening)
	}
}

func (o *oneWayPost) sendInOrder() {
	select {
	case o.f.oneWaySlots <- struct{}{}:
		defer func() { <-o.f.oneWaySlots }()
	case <-o.ctx.Done():
		return
	}
	if !awaitClosed(o.ctx, o.previous) || !awaitClosed(o.ctx, o.initialized) {
		return
	}
	err := o.send()
	for tries := 1; err != nil && tries < maxOneWayTries; tries++ {
		e, ok := errors.AsType[*jsonrpc.CallError](err)
		if !ok || e.Outcome != jsonrpc.OutcomeUnprocessed || !wait.Sleep(o.ctx, max(e.RetryAfter, minRetry<<tries)) {
			break
		}
		err = o.send()
	}
	if err != nil && o.f.ctx.Err() == nil {
		o.f.log.Warn("the server did not accept a message", "method", o.method, "error", err)
	}
}

// maxOneWayTries limits the attempts to send a message that the server certainly did not process:
// the caller would not repeat it.
const maxOneWayTries = 4

// send posts the message. Servers confirm with various statuses, so each 2xx counts as success.
func (o *oneWayPost) send() error {
	f, h, to := o.f, o.header, o.f.transport.url
	session := f.currentSession()
	if h == nil {
		h = f.transport.legacyHeader(&session)
		h["Content-Type"], h["Accept"] = valueJSON, valueAccept
		if endpoint := f.currentSSE(); endpoint != nil {
			to = endpoint
		}
	}
	resp, err := f.transport.send(o.ctx, http.MethodPost, to, h, o.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		linger(resp.Body, o.cancel)
		return nil
	}
	r := readHTTPError(resp)
	if o.header == nil && (to != f.transport.url && resp.StatusCode == http.StatusNotFound || session.id != "" && f.isSessionRejected(r, "")) {
		f.loseSession(r.status)
	}
	return r.callError()
}
