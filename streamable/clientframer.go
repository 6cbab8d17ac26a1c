package streamable

import (
	"context"
	"fmt"
	"io"
	"log/slog"
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
