package resend

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
)

const (
	maxExchanges = 64                     // under way at once
	drainWait    = 500 * time.Millisecond // for exchanges to end by themselves
	leaveWait    = 2 * time.Second        // for the end of a session
	listenWait   = 500 * time.Millisecond // for the standing stream to be open
)

// Why an exchange was ended from this side.
var errClientClosed = errors.New("client closed")

// A web is a link of HTTP exchanges.
type web struct {
	s         *Session
	url       *url.URL
	transport http.RoundTripper
	own       *http.Transport // to be closed, if it is ours
	ctx       context.Context // of all exchanges: they outlast the calls that begin them
	cancel    context.CancelCauseFunc
	last      atomic.Uint64 // number of an exchange
	slots     chan struct{}
	posts     sync.WaitGroup // exchanges that end by themselves
	endpoint  chan struct{}  // closed when to is known; of SSE

	mu     sync.Mutex
	lines  map[uint64]*line // of exchanges under way, by their number
	to     *url.URL         // where messages are posted
	sticky http.Header      // that all requests carry: the session, and the revision that was agreed on
}

func newWeb(s *Session, u *url.URL) *web {
	w := &web{s: s, url: u, to: u, transport: s.opts.Transport, slots: make(chan struct{}, maxExchanges), endpoint: make(chan struct{}), lines: map[uint64]*line{}, sticky: http.Header{}}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	if w.transport == nil {
		w.own = &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: s.opts.TLS, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: 1 << 20,
		}
		w.transport = w.own
	}
	return w
}

// open implements link.
func (w *web) open(ctx context.Context) error {
	if w.s.o.Transport != SSE {
		return nil
	}
	x, r, err := w.begin(w.ctx, http.MethodGet, w.url, nil, nil)
	if err != nil {
		return err
	}
	x.old = true
	w.s.spawn(nil, func() {
		x.run(r)
		w.s.end(&EndedError{x.why()})
	})
	select {
	case <-w.endpoint:
		return nil
	case <-w.s.ended:
		return w.s.endErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send implements link.
func (w *web) send(ctx context.Context, message []byte) (Sent, error) {
	select {
	case w.slots <- struct{}{}:
	case <-w.s.closing:
		return Sent{}, ErrClosed
	case <-ctx.Done():
		return Sent{}, context.Cause(ctx)
	}
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	ctx, l := newLine(w.ctx)
	x, r, err := w.begin(ctx, http.MethodPost, to, message, nil)
	if err != nil {
		l.cancel(nil)
		<-w.slots
		return Sent{}, err
	}
	over := w.connect(x, l)
	x.due = dueOf(message)
	x.hello = isHello(message)
	sent := Sent{x.at, x.n}
	started := w.s.spawn(&w.posts, func() {
		x.run(r)
		over()
		x.resume()
		<-w.slots // first, since whoever takes what comes may wait for one
		w.s.deliver(&Incoming{N: x.at, Exchange: x.n, Ended: true, Status: x.status, Err: x.err})
	})
	if !started {
		over()
		<-w.slots
		return sent, ErrClosed
	}
	return sent, nil
}

// listen opens the standing stream.
func (w *web) listen(ctx context.Context) {
	x, r, err := w.begin(w.ctx, http.MethodGet, w.url, nil, nil)
	if err != nil {
		return
	}
	x.headed = make(chan struct{})
	done := make(chan struct{})
	if !w.s.spawn(nil, func() { defer close(done); x.run(r) }) {
		return
	}
	timer := time.NewTimer(listenWait)
	defer timer.Stop()
	select {
	case <-x.headed:
	case <-done:
	case <-timer.C: // some send the head with the first event
	case <-ctx.Done():
	}
}

// begin numbers an exchange, and records its request. more are fields of its header.
func (w *web) begin(ctx context.Context, method string, to *url.URL, body []byte, more http.Header) (*exchange, *http.Request, error) {
	x := &exchange{w: w, n: w.last.Add(1)}
	r, err := w.request(ctx, method, to, body)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(r.Header, more)
	x.at = x.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: &capture.Request{
		Method: method, URL: r.URL.RequestURI(), Proto: "HTTP/1.1", Headers: pairs(r),
	}})
	if body != nil {
		x.at = x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: body})
	}
	return x, r, nil
}

// greeted takes from the answer to initialize what later requests carry.
func (w *web) greeted(h http.Header, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := h.Get(headerSession); id != "" {
		w.sticky.Set(headerSession, id)
	}
	if version != "" {
		w.sticky.Set(headerVersion, version)
	}
}

// foundEndpoint learns where messages are to be posted: at the same origin, or the credentials would go elsewhere.
func (w *web) foundEndpoint(data string) error {
	to, err := w.url.Parse(data)
	switch {
	case err != nil:
		return errors.New("the endpoint is no URL")
	case to.Scheme != w.url.Scheme || to.Host != w.url.Host || to.User != nil:
		return errors.New("the endpoint is not at the same origin")
	}
	to.Fragment, to.RawFragment = "", ""
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isOpen() { // another one means nothing
		return nil
	}
	w.to = to
	close(w.endpoint)
	return nil
}

// isOpen reports whether it is known where messages are posted.
func (w *web) isOpen() bool {
	select {
	case <-w.endpoint:
		return true
	default:
		return false
	}
}

// close implements link.
func (w *web) close() {
	drained := make(chan struct{})
	w.s.wg.Go(func() {
		defer close(drained)
		w.posts.Wait()
	})
	timer := time.NewTimer(drainWait)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	}
	w.cancel(errClientClosed)
	w.s.wg.Wait()
	w.leave()
	if w.own != nil {
		w.own.CloseIdleConnections()
	}
}

// leave ends a legacy session, as far as there is one and the server cares.
func (w *web) leave() {
	if w.s.o.Transport == SSE || w.sticky.Get(headerSession) == "" {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), leaveWait, errClientClosed)
	defer cancel()
	if x, r, err := w.begin(ctx, http.MethodDelete, w.url, nil, nil); err == nil {
		x.run(r)
	}
}

// bare is an error without the URL, which may have secrets in it.
func bare(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}
