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
	maxWaiting     = 4096                   // requests that wait for others to end
	maxAside       = 64                     // notifications and answers under way at once
	maxAsides      = 1024                   // and with those that wait; further ones are dropped: a server that asks without end does not take what it is answered
	maxInbound     = 64                     // messages that were read and nobody has taken
	asideTimeout   = 30 * time.Second       // for the server to take a notification or an answer
	settleTimeout  = 500 * time.Millisecond // for what is under way when the session has ended, and for notifications at the end
	goodbyeTimeout = 2 * time.Second        // for the server to take leave, and for goroutines to end
	cancelGrace    = 10 * time.Second       // until a legacy request that was cancelled is not waited for any more
)

// A framer is one connection: a stateless one to a modern server, or a session of a legacy one. It has a goroutine for each HTTP request under way, and one for each stream that
// a legacy server keeps open. All of them send what they read to in, and end with ctx.
type framer struct {
	c   *Carrier
	log *slog.Logger

	ctx    context.Context // of all requests; ends with Close
	cancel context.CancelFunc
	own    context.Context // ctx with the values of who made the connection, for requests that nobody has asked for
	in     chan inbound
	answer func([]byte) error // takes answers that need not stand behind anything in in
	over   chan struct{}      // closed when nothing more is read; end says why
	wg     sync.WaitGroup
	asides sync.WaitGroup // notifications and answers, which are a part of wg

	work  chan *post    // for goroutines that have done with another request: their stacks have grown already
	idle  atomic.Int32  // of them
	slots chan struct{} // has an element for each request under way
	aside chan struct{} // and for each notification or answer
	told  atomic.Int32  // of those, with the ones that wait
	drop  sync.Once     // of one of them has been reported

	served atomic.Bool // a request was taken in the session

	mu      sync.Mutex
	open    map[string]*post // requests without an answer yet, by the text of their id
	version []string         // header of the last modern request
	end     error            // set before over is closed
	ended   bool
	closing bool
	closed  chan struct{} // closed when Close is done; nil before
	gate    chan struct{} // closed when the server knows that the session is initialized; nil before that is said
	last    chan struct{} // closed when the last notification has been taken
	session clientSession
	old     *oldStream // what the server speaks is HTTP+SSE; nil if it is not
}

// inbound is what Receive returns.
type inbound struct {
	frame []byte
	err   error
	from  context.Context // nil of errors but those of calls
}

func newFramer(ctx context.Context, c *Carrier) *framer {
	f := &framer{
		c: c, log: c.log,
		in:    make(chan inbound, maxInbound),
		over:  make(chan struct{}),
		work:  make(chan *post),
		slots: make(chan struct{}, c.opts.MaxRequests),
		aside: make(chan struct{}, maxAside),
		open:  make(map[string]*post),
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.own = valueContext{f.ctx, context.WithoutCancel(ctx)}
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
	case <-f.over:
	}
	select {
	case m := <-f.in: // what came before the end
		return m.frame, m.from, m.err
	default:
		return nil, nil, f.end
	}
}

// deliver hands something to the reader.
func (f *framer) deliver(m inbound) {
	select {
	case f.in <- m:
		return
	default:
	}
	select {
	case f.in <- m:
	case <-f.over:
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
		f.ended, f.end = true, err
		close(f.over)
	}
}

// Attach implements [jsonrpc.Courier].
func (f *framer) Attach(answer func([]byte) error) { f.answer = answer }

// WriteFrame implements [jsonrpc.Framer].
func (f *framer) WriteFrame(msg []byte) error { return f.Post(context.Background(), msg) }

// Post implements [jsonrpc.Courier]. What is wrong with a request becomes the error of its call.
func (f *framer) Post(ctx context.Context, msg []byte) error {
	e := readEnvelope(msg)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closing || f.ended && f.end == io.EOF:
		return fmt.Errorf("streamable: %w", jsonrpc.ErrClosed)
	case f.ended:
		return fmt.Errorf("streamable: %w", f.end)
	case e.kind == jsonrpc.KindRequest:
		f.startLocked(ctx, &e, msg)
	case e.method == mcp.NotificationCancelled:
		if f.cancelLocked(&e) {
			f.tellLocked(ctx, &e, msg)
		}
	default:
		f.tellLocked(ctx, &e, msg)
	}
	return nil
}

// startLocked has a request sent.
func (f *framer) startLocked(ctx context.Context, e *envelope, msg []byte) {
	p := &post{f: f, id: string(e.id), method: e.method, modern: e.version != nil, gate: f.gate}
	if mayAsk(e.method) {
		p.listens = f.session.listens
	}
	var err error
	switch {
	case f.session.gone:
		err = &jsonrpc.CallError{Err: errSessionGone, Fate: jsonrpc.FateUnsent}
	case len(f.open) >= f.c.opts.MaxRequests+maxWaiting:
		err = &jsonrpc.CallError{Err: fmt.Errorf("%d requests are under way or wait already", len(f.open)), Fate: jsonrpc.FateUnsent}
	case p.modern:
		f.version = versionValue(e.version)
		if p.header, err = f.c.modernHeader(e, f.version); err != nil {
			err = &jsonrpc.CallError{Err: err, Fate: jsonrpc.FateRefused}
		}
	case e.method == mcp.MethodInitialize:
		f.version = nil // notifications belong to the session from now on
		f.session = clientSession{asks: e.asks}
		f.served.Store(false)
	}
	p.ctx, p.cancel = f.context(ctx)
	if err == nil {
		p.body = append(make([]byte, 0, len(msg)), msg...)
		f.open[p.id] = p
	}
	p.refused = err
	select {
	case f.work <- p:
	default:
		f.wg.Go(func() { f.serve(p) })
	}
}

// context returns a context that ends with the framer, or when it is cancelled, and has the values of ctx, for the round tripper: a trace, or on whose behalf it is.
func (f *framer) context(ctx context.Context) (context.Context, context.CancelFunc) {
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

// maxIdle is how many goroutines wait for further requests.
const maxIdle = 64

// serve deals with a request, and with others that come later.
func (f *framer) serve(p *post) {
	for {
		if p.refused != nil {
			p.fail(p.refused)
		} else {
			p.run()
			f.forget(p)
		}
		p.cancel()
		if f.idle.Add(1) > maxIdle {
			f.idle.Add(-1)
			return
		}
		select {
		case p = <-f.work:
			f.idle.Add(-1)
		case <-f.ctx.Done():
			return
		}
	}
}

// forget takes a request out of those that are open.
func (f *framer) forget(p *post) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, p.id)
	if p.patience != nil {
		p.patience.Stop()
	}
	if f.session.gone && len(f.open) == 0 { // nothing else has to be told what became of it
		f.finishLocked(errSessionGone)
	}
}

// cancelLocked acts on the cancellation of a request of this side. It reports whether the server has to be told: a modern one sees that its response is not wanted any more.
func (f *framer) cancelLocked(e *envelope) bool {
	p := f.open[string(e.requestID)]
	switch {
	case p == nil:
		return f.old != nil // which does not keep requests open
	case p.modern || !p.sent.Load() || p.method == mcp.MethodInitialize: // of which a server must not be told that it is cancelled
		p.cancel()
		return false
	}
	p.patience = time.AfterFunc(cancelGrace, p.cancel)
	return true
}

// tellLocked has a notification or an answer sent. Notifications go one after the other.
func (f *framer) tellLocked(ctx context.Context, e *envelope, msg []byte) {
	if f.session.gone {
		return
	}
	if f.told.Load() >= maxAsides {
		f.drop.Do(func() {
			f.log.Warn("message dropped: the server does not take what it is sent. Further ones are not reported", "method", e.method)
		})
		return
	}
	f.told.Add(1)
	a := &aside{f: f, method: e.method, body: append(make([]byte, 0, len(msg)), msg...), gate: f.gate}
	a.ctx, a.cancel = context.WithTimeout(f.ctx, asideTimeout)
	a.ctx = valueContext{a.ctx, ctx}
	if modern := e.version != nil || f.version != nil; modern {
		if e.version != nil {
			f.version = versionValue(e.version)
		}
		a.header, _ = f.c.modernHeader(e, f.version)
	}
	if e.kind == jsonrpc.KindNotification && e.method != mcp.NotificationCancelled {
		a.before, a.done = f.last, make(chan struct{})
		f.last = a.done
	}
	if e.method == mcp.NotificationInitialized {
		f.gate = a.done // nothing may overtake it
		a.listens = f.willListenLocked()
	}
	f.asides.Add(1)
	f.wg.Go(func() {
		defer f.asides.Done()
		defer f.told.Add(-1)
		a.run()
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
	for _, p := range f.open {
		p.cancel()
	}
	f.mu.Unlock()
	defer close(f.closed)
	within(settleTimeout, f.asides.Wait)
	f.leave()
	f.cancel()
	if !within(goodbyeTimeout, f.wg.Wait) {
		f.log.Error("HTTP requests do not end when their context does, and are left behind")
	}
	if f.c.own != nil {
		f.c.own.CloseIdleConnections()
	}
	f.c.conns.leave()
	return nil
}

// within calls wait and reports whether it returned in time.
func within(d time.Duration, wait func()) bool {
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

// sleepFor waits, and reports whether it did to the end.
func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
