package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Bounds of one connection.
const (
	maxQueued       = 4096                   // requests that wait for others to end
	maxOneWay       = 64                     // notifications and answers under way at once
	maxQueuedOneWay = 1024                   // and with those that wait; further ones are dropped: a server that asks without end does not take what it is answered
	maxInbound      = 64                     // messages that were read and nobody has taken
	oneWayTimeout   = 30 * time.Second       // for the server to take a notification or an answer
	drainTimeout    = 500 * time.Millisecond // for what is under way when the session has ended, and for notifications at the end
	closeTimeout    = 2 * time.Second        // for the server to take leave, and for goroutines to end
	cancelGrace     = 10 * time.Second       // until a legacy request that was cancelled is not waited for any more
)

// A framer is one connection: a stateless one to a modern server, or a session of a legacy one. It has a goroutine for each HTTP request under way, and one for each stream that
// a legacy server keeps open. All of them send what they read to in, and end with ctx.
type framer struct {
	transport *Transport
	log       *slog.Logger

	ctx           context.Context // of all requests; ends with Close
	cancel        context.CancelFunc
	baseCtx       context.Context // ctx with the values of who made the connection, for requests that nobody has asked for
	in            chan inbound
	deliverAnswer func([]byte) error // takes answers that need not stand behind anything in in
	done          chan struct{}      // closed when nothing more is read; end says why
	wg            sync.WaitGroup
	oneWays       sync.WaitGroup // notifications and answers, which are a part of wg

	work        chan *post    // for goroutines that have done with another request: their stacks have grown already
	idleWorkers atomic.Int32  // of them
	slots       chan struct{} // has an element for each request under way
	oneWaySlots chan struct{} // and for each notification or answer
	oneWayCount atomic.Int32  // of those, with the ones that wait
	dropLogged  sync.Once     // of one of them has been reported

	sessionServed atomic.Bool // a request was taken in the session

	mu               sync.Mutex
	pending          map[string]*post // requests without an answer yet, by the text of their id
	modernVersion    []string         // header of the last modern request
	endErr           error            // set before over is closed
	ended            bool
	closing          bool
	closed           chan struct{} // closed when Close is done; nil before
	initialized      chan struct{} // closed when the server knows that the session is initialized; nil before that is said
	lastNotification chan struct{} // closed when the last notification has been taken
	session          clientSession
	sse              *sseConn // what the server speaks is HTTP+SSE; nil if it is not
}

// inbound is what Receive returns.
type inbound struct {
	frame []byte
	err   error
	from  context.Context // nil of errors but those of calls
}

func newFramer(ctx context.Context, t *Transport) *framer {
	f := &framer{
		transport: t, log: t.log,
		in:          make(chan inbound, maxInbound),
		done:        make(chan struct{}),
		work:        make(chan *post),
		slots:       make(chan struct{}, t.opts.MaxRequests),
		oneWaySlots: make(chan struct{}, maxOneWay),
		pending:     make(map[string]*post),
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.baseCtx = valueContext{f.ctx, context.WithoutCancel(ctx)}
	return f
}

// ReadFrame implements [jsonrpc.Framer].
func (f *framer) ReadFrame() ([]byte, error) {
	frame, _, err := f.Receive()
	return frame, err
}

// Receive implements [Receiver].
func (f *framer) Receive() ([]byte, context.Context, error) {
	select {
	case m := <-f.in:
		return m.frame, m.from, m.err
	case <-f.done:
	}
	select {
	case m := <-f.in: // what came before the end
		return m.frame, m.from, m.err
	default:
		return nil, nil, f.endErr
	}
}

// enqueue hands something to the reader.
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

// finish ends the reading.
func (f *framer) finish(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finishLocked(err)
}

func (f *framer) finishLocked(err error) {
	if !f.ended {
		f.ended, f.endErr = true, err
		close(f.done)
	}
}

// OnResponse implements [jsonrpc.MessageTransport].
func (f *framer) OnResponse(answer func([]byte) error) { f.deliverAnswer = answer }

// WriteFrame implements [jsonrpc.Framer].
func (f *framer) WriteFrame(msg []byte) error { return f.Post(context.Background(), msg) }

// Post implements [jsonrpc.MessageTransport]. What is wrong with a request becomes the error of its call.
func (f *framer) Post(ctx context.Context, msg []byte) error {
	env := readEnvelope(msg)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closing || f.ended && f.endErr == io.EOF:
		return fmt.Errorf("streamable: %w", jsonrpc.ErrClosed)
	case f.ended:
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

// startRequestLocked has a request sent.
func (f *framer) startRequestLocked(ctx context.Context, env *envelope, msg []byte) {
	p := &post{f: f, id: string(env.id), method: env.method, modern: env.version != nil, initialized: f.initialized}
	if mayAskClient(env.method) {
		p.listening = f.session.listening
	}
	var err error
	switch {
	case f.session.gone:
		err = &jsonrpc.CallError{Err: errSessionGone, Outcome: jsonrpc.OutcomeUnprocessed}
	case len(f.pending) >= f.transport.opts.MaxRequests+maxQueued:
		err = &jsonrpc.CallError{Err: fmt.Errorf("%d requests are under way or wait already", len(f.pending)), Outcome: jsonrpc.OutcomeUnprocessed}
	case p.modern:
		f.modernVersion = versionValue(env.version)
		if p.header, err = f.transport.modernHeader(env, f.modernVersion); err != nil {
			err = &jsonrpc.CallError{Err: err, Outcome: jsonrpc.OutcomeRejected}
		}
	case env.method == mcp.MethodInitialize:
		f.modernVersion = nil // notifications belong to the session from now on
		f.session = clientSession{mayAsk: env.mayAsk}
		f.sessionServed.Store(false)
	}
	p.ctx, p.cancel = f.requestContext(ctx)
	if err == nil {
		p.body = append(make([]byte, 0, len(msg)), msg...)
		f.pending[p.id] = p
	}
	p.sendErr = err
	select {
	case f.work <- p:
	default:
		f.wg.Go(func() { f.serve(p) })
	}
}

// requestContext returns a context that ends with the framer, or when it is cancelled, and has the values of ctx, for the round tripper: a trace, or on whose behalf it is.
func (f *framer) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancel(f.ctx)
	return valueContext{own, ctx}, cancel
}

// A valueContext is a context with the values of another one as well. Its own come first: the context package looks up there how to be told of the end.
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

// maxIdleWorkers is how many goroutines wait for further requests.
const maxIdleWorkers = 64

// serve deals with a request, and with others that come later.
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

// remove takes a request out of those that are open.
func (f *framer) remove(p *post) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pending, p.id)
	if p.cancelTimer != nil {
		p.cancelTimer.Stop()
	}
	if f.session.gone && len(f.pending) == 0 { // nothing else has to be told what became of it
		f.finishLocked(errSessionGone)
	}
}

// cancelLocked acts on the cancellation of a request of this side. It reports whether the server has to be told: a modern one sees that its response is not wanted any more.
func (f *framer) cancelLocked(env *envelope) bool {
	p := f.pending[string(env.requestID)]
	switch {
	case p == nil:
		return f.sse != nil // which does not keep requests open
	case p.modern || !p.sent.Load() || p.method == mcp.MethodInitialize: // of which a server must not be told that it is cancelled
		p.cancel()
		return false
	}
	p.cancelTimer = time.AfterFunc(cancelGrace, p.cancel)
	return true
}

// startOneWayLocked has a notification or an answer sent. Notifications go one after the other.
func (f *framer) startOneWayLocked(ctx context.Context, env *envelope, msg []byte) {
	if f.session.gone {
		return
	}
	if f.oneWayCount.Load() >= maxQueuedOneWay {
		f.dropLogged.Do(func() {
			f.log.Warn("message dropped: the server does not take what it is sent. Further ones are not reported", "method", env.method)
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
		f.initialized = o.done // nothing may overtake it
		o.listening = f.prepareListenLocked()
	}
	f.oneWays.Add(1)
	f.wg.Go(func() {
		defer f.oneWays.Done()
		defer f.oneWayCount.Add(-1)
		o.run()
	})
}

// Close implements [jsonrpc.Framer]. It takes leave of a legacy server, and takes no longer than 5 s.
func (f *framer) Close() error {
	f.mu.Lock()
	if f.closed != nil {
		closed := f.closed
		f.mu.Unlock()
		<-closed
		return nil
	}
	f.closing, f.closed = true, make(chan struct{})
	f.finishLocked(io.EOF)
	for _, p := range f.pending {
		p.cancel()
	}
	f.mu.Unlock()
	defer close(f.closed)
	waitTimeout(drainTimeout, f.oneWays.Wait)
	f.endSession()
	f.cancel()
	if !waitTimeout(closeTimeout, f.wg.Wait) {
		f.log.Error("HTTP requests do not end when their context does, and are left behind")
	}
	if f.transport.ownTransport != nil {
		f.transport.ownTransport.CloseIdleConnections()
	}
	f.transport.conns.release()
	return nil
}

// waitTimeout calls wait and reports whether it returned in time.
func waitTimeout(d time.Duration, wait func()) bool {
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// sleep waits, and reports whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A post is a request of this side and the HTTP request that it is. It belongs to one goroutine; cancel may be called by others.
type post struct {
	f           *framer
	id          string // JSON text
	method      string
	modern      bool
	header      http.Header // nil of a legacy request until the session says what is in it
	body        []byte
	initialized <-chan struct{} // to wait for, as is
	listening   <-chan struct{} // both may be nil

	sendErr     error           // why it is not to be sent; nil for most
	mustEnqueue bool            // there are messages in framer.in that the answer has to stand behind
	from        context.Context // of the HTTP request whose response is being read

	ctx         context.Context
	cancel      context.CancelFunc
	sent        atomic.Bool // the server may have seen it
	cancelTimer *time.Timer // ends the wait for a request that was cancelled; guarded by framer.mu
}

// run sends the request and sees to it that there is an answer, or an error.
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

// awaitClosed waits until a channel is closed, unless it is nil, and reports whether ctx did not end before.
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

// fail makes the call fail. Nobody waits for one that was cancelled.
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
	if conn := p.f.currentSSE(); conn != nil && !p.modern {
		return p.roundTripSSE(conn)
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
		return malformedError("the content type of the answer is %.100q, and must be %s or %s", kind, mediaJSON, mediaStream)
	}
}

// handleErrorStatus deals with a response that is none of success.
func (p *post) handleErrorStatus(resp *http.Response, inSession bool) error {
	if resp.StatusCode/100 == 2 {
		return malformedError("a request was answered with HTTP status %d, as if it were a notification", resp.StatusCode)
	}
	r := readHTTPError(resp, 0)
	switch {
	case p.modern:
	case inSession && p.f.isSessionRejected(r, p.id):
		p.f.loseSession()
		return sessionGoneError(r)
	case p.method == mcp.MethodInitialize && p.mayBeSSE(r):
		if conn := p.f.openSSE(p.ctx, r); conn != nil {
			return p.roundTripSSE(conn)
		}
	}
	if !r.isAnswer() {
		return r.callError()
	}
	// What error it is matters, and that it belongs to this request is certain, whatever id it has.
	return p.complete(jsonrpc.AppendError(nil, jsonrpc.ID(p.id), r.message.Err(), false))
}

// readJSON takes an answer that is one message.
func (p *post) readJSON(resp *http.Response) error {
	frame, err := readBody(resp, p.f.transport.opts.MaxFrame)
	if err != nil {
		return err
	}
	answered, err := p.handleMessage(frame, true)
	if err == nil && !answered {
		err = malformedError("the answer is to another request, or none")
	}
	return err
}

// tooLargeError is the error of a request whose answer is larger than DialOptions.MaxFrame. size is how large it is at least, in bytes; 0 if that is not known.
func tooLargeError(limit int, size int64) *jsonrpc.CallError {
	return lostError(&jsonrpc.TooLargeError{Limit: limit, Size: size, Kind: jsonrpc.KindResponse})
}

// maxPreallocated is the largest body for which memory is taken because its length is announced.
const maxPreallocated = 1 << 20

// readBody reads all of a response.
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

// handleMessage looks at a message that came as a response to the request, and passes it on if the protocol lets it come there. answered tells that it is the answer. sole tells that nothing
// else can be.
func (p *post) handleMessage(frame []byte, sole bool) (answered bool, err error) {
	frame = bytes.TrimPrefix(frame, bom)
	var m jsonrpc.Message
	if jsonrpc.IsBatch(frame) && !p.modern {
		return p.handleBatch(frame)
	}
	if err := jsonrpc.Parse(frame, &m, 0); err != nil {
		if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError && !sole {
			p.f.log.Warn("bad message", "error", err)
			return false, nil
		}
		return false, malformedError("%v", err)
	}
	switch m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		return p.handleResponse(frame, &m, sole)
	case jsonrpc.KindRequest:
		if p.modern {
			p.f.log.Warn("request dropped: a server may not send any in this revision", "method", clip(string(m.Method)))
			return false, nil
		}
	}
	if !sole {
		p.enqueue(frame)
	}
	return false, nil
}

// enqueue hands a message to the reader that is not the answer.
func (p *post) enqueue(frame []byte) {
	p.mustEnqueue = true
	p.f.enqueue(inbound{frame: frame, from: p.from})
}

// complete hands on what the call waits for.
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

// handleResponse is take for a response.
func (p *post) handleResponse(frame []byte, m *jsonrpc.Message, sole bool) (answered bool, err error) {
	switch {
	case string(m.ID) == p.id || m.ID.Equal(jsonrpc.ID(p.id)):
	case m.Kind == jsonrpc.KindError && sole && (len(m.ID) == 0 || m.ID.IsNull()):
		frame = jsonrpc.AppendError(nil, jsonrpc.ID(p.id), m.Err(), false)
	case p.modern || sole:
		p.f.log.Warn("response to another request dropped", "id", clip(string(m.ID)), "want", p.id)
		return false, nil
	default:
		p.enqueue(frame) // legacy servers replay what was meant for other streams
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

// handleBatch passes on an array of messages, which there are in one legacy revision. That the answer is in it is enough for it to be found.
func (p *post) handleBatch(frame []byte) (answered bool, err error) {
	entries, err := jsonrpc.ParseBatch(frame, 0)
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

// An aside is a notification or an answer of this side, which the server only takes note of.
type oneWayPost struct {
	f           *framer
	method      string // "" of an answer
	header      http.Header
	body        []byte
	ctx         context.Context
	cancel      context.CancelFunc
	previous    <-chan struct{} // to wait for, as is
	initialized <-chan struct{} // both may be nil
	done        chan struct{}   // closed in the end; may be nil
	listening   chan<- struct{} // closed when the server knows that somebody listens; nil unless that is to be done
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
		if !ok || e.Outcome != jsonrpc.OutcomeUnprocessed || !sleep(o.ctx, max(e.RetryAfter, minRetry<<tries)) {
			break
		}
		err = o.send()
	}
	if err != nil && o.f.ctx.Err() == nil {
		o.f.log.Warn("the server did not take a message", "method", o.method, "error", err)
	}
}

// maxOneWayTries is how often a message is sent at most that the server certainly did not take in: nobody else would send it again.
const maxOneWayTries = 4

// send posts it. Servers are not agreed on how to say that they have taken it, so each status of success will do.
func (o *oneWayPost) send() error {
	f, h, to := o.f, o.header, o.f.transport.url
	session := f.currentSession()
	if h == nil {
		h = f.transport.legacyHeader(&session)
		h["Content-Type"], h["Accept"] = valueJSON, valueAccept
		if conn := f.currentSSE(); conn != nil {
			to = conn.endpoint
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
	r := readHTTPError(resp, 0)
	if o.header == nil && (to != f.transport.url && resp.StatusCode == http.StatusNotFound || session.id != "" && f.isSessionRejected(r, "")) {
		f.loseSession()
	}
	return r.callError()
}
