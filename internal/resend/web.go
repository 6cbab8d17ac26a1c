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
	maxExchanges  = 64                     // under way at once
	drainTimeout  = 500 * time.Millisecond // for exchanges to end by themselves
	deleteTimeout = 2 * time.Second        // for the end of a session
	streamTimeout = 500 * time.Millisecond // for the standing stream to be open
)

// Why an exchange was ended from this side.
var errClientClosed = errors.New("client closed")

// A web is a link of HTTP exchanges.
type httpConn struct {
	s            *Session
	url          *url.URL
	transport    http.RoundTripper
	ownTransport *http.Transport // to be closed, if it is ours
	ctx          context.Context // of all exchanges: they outlast the calls that begin them
	cancel       context.CancelCauseFunc
	last         atomic.Uint64 // number of an exchange
	slots        chan struct{}
	posts        sync.WaitGroup // exchanges that end by themselves
	endpoint     chan struct{}  // closed when to is known; of SSE

	mu            sync.Mutex
	aborts        map[uint64]*abortState // of exchanges under way, by their number
	postURL       *url.URL               // where messages are posted
	sessionHeader http.Header            // that all requests carry: the session, and the revision that was agreed on
}

func newWeb(s *Session, u *url.URL) *httpConn {
	w := &httpConn{s: s, url: u, postURL: u, transport: s.opts.Transport, slots: make(chan struct{}, maxExchanges), endpoint: make(chan struct{}), aborts: map[uint64]*abortState{}, sessionHeader: http.Header{}}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	if w.transport == nil {
		w.ownTransport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: s.opts.TLS, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: 1 << 20,
		}
		w.transport = w.ownTransport
	}
	return w
}

// open implements link.
func (hc *httpConn) open(ctx context.Context) error {
	if hc.s.o.Transport != SSE {
		return nil
	}
	x, r, err := hc.newExchange(hc.ctx, http.MethodGet, hc.url, nil, nil)
	if err != nil {
		return err
	}
	x.isSSEStream = true
	hc.s.spawn(nil, func() {
		x.run(r)
		hc.s.end(&EndedError{x.endError()})
	})
	select {
	case <-hc.endpoint:
		return nil
	case <-hc.s.ended:
		return hc.s.endErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send implements link.
func (hc *httpConn) send(ctx context.Context, message []byte) (Sent, error) {
	select {
	case hc.slots <- struct{}{}:
	case <-hc.s.closing:
		return Sent{}, ErrClosed
	case <-ctx.Done():
		return Sent{}, context.Cause(ctx)
	}
	hc.mu.Lock()
	to := hc.postURL
	hc.mu.Unlock()
	ctx, l := newAbortState(hc.ctx)
	x, r, err := hc.newExchange(ctx, http.MethodPost, to, message, nil)
	if err != nil {
		l.cancel(nil)
		<-hc.slots
		return Sent{}, err
	}
	over := hc.registerAbort(x, l)
	x.pending = pendingOf(message)
	x.isInitialize = isInitialize(message)
	sent := Sent{x.at, x.n}
	started := hc.s.spawn(&hc.posts, func() {
		x.run(r)
		over()
		x.resume()
		<-hc.slots // first, since whoever takes what comes may wait for one
		hc.s.deliver(&Incoming{N: x.at, Exchange: x.n, Ended: true, Status: x.status, Err: x.err})
	})
	if !started {
		over()
		<-hc.slots
		return sent, ErrClosed
	}
	return sent, nil
}

// openStream opens the standing stream.
func (hc *httpConn) openStream(ctx context.Context) {
	x, r, err := hc.newExchange(hc.ctx, http.MethodGet, hc.url, nil, nil)
	if err != nil {
		return
	}
	x.gotHead = make(chan struct{})
	done := make(chan struct{})
	if !hc.s.spawn(nil, func() { defer close(done); x.run(r) }) {
		return
	}
	timer := time.NewTimer(streamTimeout)
	defer timer.Stop()
	select {
	case <-x.gotHead:
	case <-done:
	case <-timer.C: // some send the head with the first event
	case <-ctx.Done():
	}
}

// newExchange numbers an exchange, and records its request. more are fields of its header.
func (hc *httpConn) newExchange(ctx context.Context, method string, to *url.URL, body []byte, more http.Header) (*exchange, *http.Request, error) {
	x := &exchange{conn: hc, n: hc.last.Add(1)}
	r, err := hc.request(ctx, method, to, body)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(r.Header, more)
	x.at = x.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: &capture.Request{
		Method: method, URL: r.URL.RequestURI(), Proto: "HTTP/1.1", Headers: headerFields(r),
	}})
	if body != nil {
		x.at = x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: body})
	}
	return x, r, nil
}

// onInitialized takes from the answer to initialize what later requests carry.
func (hc *httpConn) onInitialized(h http.Header, version string) {
	hc.mu.Lock()
	defer hc.mu.Unlock()
	if id := h.Get(headerSession); id != "" {
		hc.sessionHeader.Set(headerSession, id)
	}
	if version != "" {
		hc.sessionHeader.Set(headerVersion, version)
	}
}

// setEndpoint learns where messages are to be posted: at the same origin, or the credentials would go elsewhere.
func (hc *httpConn) setEndpoint(data string) error {
	to, err := hc.url.Parse(data)
	switch {
	case err != nil:
		return errors.New("the endpoint is no URL")
	case to.Scheme != hc.url.Scheme || to.Host != hc.url.Host || to.User != nil:
		return errors.New("the endpoint is not at the same origin")
	}
	to.Fragment, to.RawFragment = "", ""
	hc.mu.Lock()
	defer hc.mu.Unlock()
	if hc.hasEndpoint() { // another one means nothing
		return nil
	}
	hc.postURL = to
	close(hc.endpoint)
	return nil
}

// hasEndpoint reports whether it is known where messages are posted.
func (hc *httpConn) hasEndpoint() bool {
	select {
	case <-hc.endpoint:
		return true
	default:
		return false
	}
}

// close implements link.
func (hc *httpConn) close() {
	drained := make(chan struct{})
	hc.s.wg.Go(func() {
		defer close(drained)
		hc.posts.Wait()
	})
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	}
	hc.cancel(errClientClosed)
	hc.s.wg.Wait()
	hc.deleteSession()
	if hc.ownTransport != nil {
		hc.ownTransport.CloseIdleConnections()
	}
}

// deleteSession ends a legacy session, as far as there is one and the server cares.
func (hc *httpConn) deleteSession() {
	if hc.s.o.Transport == SSE || hc.sessionHeader.Get(headerSession) == "" {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), deleteTimeout, errClientClosed)
	defer cancel()
	if x, r, err := hc.newExchange(ctx, http.MethodDelete, hc.url, nil, nil); err == nil {
		x.run(r)
	}
}

// withoutURL is an error without the URL, which may have secrets in it.
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}
