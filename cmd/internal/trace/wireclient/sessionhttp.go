package wireclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/sse"
	"mcpwire/mcp"
)

const (
	maxExchanges  = 64                     // concurrent exchanges
	drainTimeout  = 500 * time.Millisecond // for exchanges to end
	deleteTimeout = 2 * time.Second        // for the end of a session
	streamTimeout = 500 * time.Millisecond // for the standing stream to open
)

// The limits of resuming a stream that the server has closed: the number of attempts, and the pause
// between them.
const (
	maxResumes   = 20
	minRetry     = 10 * time.Millisecond
	defaultRetry = time.Second
	maxRetry     = 5 * time.Second
)

// ErrClientClosed is the cause of an exchange that this side ended.
var ErrClientClosed = errors.New("client closed")

// An httpConn is a connection of HTTP exchanges.
type httpConn struct {
	s    *Session
	http *HTTP
	// ownTransport is closed at the end. It is nil for a transport from the options.
	ownTransport *http.Transport
	// ctx is the context of all exchanges, which outlast the calls that begin them.
	ctx    context.Context
	cancel context.CancelCauseFunc
	slots  chan struct{}
	// posts counts exchanges that end by themselves.
	posts sync.WaitGroup
	// endpoint is closed when postURL is known, for HTTP+SSE.
	endpoint chan struct{}

	mu sync.Mutex
	// aborts has the pending exchanges by number.
	aborts map[uint64]*abortState
	// postURL is the URL for messages.
	postURL *url.URL
}

func newHTTPConn(s *Session) *httpConn {
	hc := &httpConn{s: s, postURL: s.target.URL, slots: make(chan struct{}, maxExchanges), endpoint: make(chan struct{}), aborts: map[uint64]*abortState{}}
	hc.ctx, hc.cancel = context.WithCancelCause(context.Background())
	hc.http = &HTTP{
		Transport: s.opts.RoundTripper, UserAgent: s.opts.UserAgent, Header: s.opts.Header,
		MaxMessage: s.opts.MaxMessage, Record: s.record, Session: 1,
	}
	if s.target.Transport == capture.TransportHTTP {
		hc.http.HeaderMirror = s.opts.HeaderMirror
	}
	if hc.http.Transport == nil {
		hc.ownTransport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: 1 << 20,
		}
		hc.http.Transport = hc.ownTransport
	}
	return hc
}

// open implements conn.
func (hc *httpConn) open(ctx context.Context) error {
	if hc.s.target.Transport != capture.TransportSSE {
		return nil
	}
	x, err := hc.newExchange(hc.ctx, &Request{Method: http.MethodGet, URL: hc.s.target.URL.String()})
	if err != nil {
		return err
	}
	x.isSSEStream = true
	hc.s.spawn(nil, func() {
		x.run()
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

// send implements conn.
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
	ctx, abort := newAbortState(hc.ctx)
	x, err := hc.newExchange(ctx, &Request{URL: to.String(), Body: message})
	if err != nil {
		abort.cancel(nil)
		<-hc.slots
		return Sent{}, err
	}
	over := hc.registerAbort(x, abort)
	x.pending = PendingOf(message)
	if list := Messages(message); len(list) == 1 {
		x.isInitialize = string(list[0].Method) == mcp.MethodInitialize
	}
	sent := Sent{x.At, x.N}
	started := hc.s.spawn(&hc.posts, func() {
		x.run()
		over()
		x.resume()
		<-hc.slots // before deliver, whose receiver may wait for a slot
		hc.s.deliver(&Incoming{N: x.At, Exchange: x.N, Ended: true, Status: x.Status(), Err: x.err})
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
	x, err := hc.newExchange(hc.ctx, &Request{Method: http.MethodGet, URL: hc.s.target.URL.String()})
	if err != nil {
		return
	}
	x.gotHead = make(chan struct{})
	done := make(chan struct{})
	if !hc.s.spawn(nil, func() { defer close(done); x.run() }) {
		return
	}
	select {
	case <-x.gotHead:
	case <-done:
	case <-time.After(streamTimeout): // some servers send the head with the first event
	case <-ctx.Done():
	}
}

// newExchange records the request of an exchange.
func (hc *httpConn) newExchange(ctx context.Context, q *Request) (*sessionExchange, error) {
	x, err := hc.http.NewExchange(ctx, q)
	if err != nil {
		return nil, err
	}
	return &sessionExchange{Exchange: x, conn: hc}, nil
}

// setEndpoint sets the URL for messages.
func (hc *httpConn) setEndpoint(data []byte) error {
	to, err := Endpoint(hc.s.target.URL, data)
	if err != nil {
		return err
	}
	hc.mu.Lock()
	defer hc.mu.Unlock()
	if hc.hasEndpoint() { // only the first endpoint counts
		return nil
	}
	hc.postURL = to
	close(hc.endpoint)
	return nil
}

// hasEndpoint reports whether the URL for messages is known.
func (hc *httpConn) hasEndpoint() bool {
	select {
	case <-hc.endpoint:
		return true
	default:
		return false
	}
}

// close implements conn.
func (hc *httpConn) close() {
	wait.Timeout(drainTimeout, hc.posts.Wait)
	hc.cancel(ErrClientClosed)
	hc.s.wg.Wait()
	if hc.s.target.Transport != capture.TransportSSE {
		hc.http.EndSession(Request{URL: hc.s.target.URL.String()})
	}
	if hc.ownTransport != nil {
		hc.ownTransport.CloseIdleConnections()
	}
}

// A sessionExchange is an exchange of a session.
type sessionExchange struct {
	*Exchange
	conn *httpConn
	// pending are the requests that the response must answer.
	pending Pending
	// isInitialize marks the handshake.
	isInitialize bool
	// isSSEStream marks the stream of HTTP+SSE.
	isSSEStream bool
	// gotHead is closed when the head of the response has come. It may be nil.
	gotHead chan struct{}
	// abort may be nil.
	abort *abortState

	// err is the reason if the exchange broke off.
	err    error
	lastID string
	retry  time.Duration
}

// run sends the request and reads the response to its end.
func (x *sessionExchange) run() {
	x.err = x.Do()
	if x.abort != nil {
		x.abort.set(&x.abort.written) // other transports may not report it
	}
	if x.err == nil {
		x.err = x.read()
	}
	x.End(x.err)
}

// endError returns the reason for the unexpected end of the exchange.
func (x *sessionExchange) endError() error {
	switch {
	case x.err != nil:
		return x.err
	case x.Status() != http.StatusOK:
		return &StatusError{Status: x.Status(), N: x.At}
	}
	return io.EOF
}

// read reads the response to its end.
func (x *sessionExchange) read() error {
	if x.isInitialize {
		x.conn.http.BeginSession(x.Response.Header, "")
	}
	if x.gotHead != nil {
		close(x.gotHead)
	}
	for {
		in, err := x.Next()
		if in != nil {
			if err := x.handle(in); err != nil {
				return err
			}
		}
		if _, ok := errors.AsType[*sse.TooLargeError](err); ok {
			continue
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// handle handles incoming data. An error ends the exchange.
func (x *sessionExchange) handle(in *Received) error {
	s := x.conn.s
	if e := in.SSE; e != nil {
		if e.HasID {
			x.lastID = e.ID
		}
		if e.HasRetry {
			x.retry = e.Retry
		}
	}
	if in.Kind == capture.KindSSE {
		if x.isSSEStream && in.SSE.Event == EventEndpoint {
			if err := x.conn.setEndpoint(in.Data); err != nil {
				s.end(&EndedError{err})
				return err
			}
		}
		return x.sessionError()
	}
	list := Messages(in.Data)
	// Set the header before delivery, since the next message needs it.
	for i := range list {
		if x.isInitialize {
			x.conn.http.BeginSession(nil, jsonwire.Text(jsonwire.Lookup(list[i].Result, "protocolVersion")))
		}
	}
	x.pending.Resolve(list, len(x.pending) == 1)
	if in.N > 0 && (!x.isSSEStream || x.conn.hasEndpoint()) { // Open does not read
		s.deliver(&Incoming{N: in.N, Exchange: x.N, Status: x.Status(), Data: in.Data})
	}
	return x.sessionError()
}

// sessionError returns the error with which the session has ended. A session that is being closed
// still records.
func (x *sessionExchange) sessionError() error {
	select {
	case <-x.conn.s.ended:
		return x.conn.s.endErr
	default:
		return nil
	}
}

// resume continues a stream that the server closed before it answered
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
func (x *sessionExchange) resume() {
	target := &x.conn.s.target
	for range maxResumes {
		if x.lastID == "" || len(x.pending) == 0 || target.Modern || x.sessionError() != nil || target.Transport == capture.TransportSSE {
			return
		}
		delay := defaultRetry
		if x.retry > 0 {
			delay = min(max(x.retry, minRetry), maxRetry)
		}
		if !wait.Sleep(x.conn.ctx, delay) {
			return
		}
		next, err := x.conn.newExchange(x.conn.ctx, &Request{Method: http.MethodGet, URL: target.URL.String(), Edit: func(r *http.Request) {
			r.Header.Set(headerLast, x.lastID)
		}})
		if err != nil {
			return
		}
		next.pending, next.lastID, next.retry = x.pending, x.lastID, x.retry
		next.run()
		x.lastID, x.retry = next.lastID, next.retry
		if next.Status() != http.StatusOK {
			return
		}
	}
}

// Abort ends the exchange of a sent message. Modern clients cancel a request over HTTP that way
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation).
// The server still receives the whole message. Abort does not wait; [Session.Next] reports the end
// of the exchange. It does nothing for an exchange that has ended, or over stdio.
func (s *Session) Abort(exchange uint64) {
	hc, ok := s.conn.(*httpConn)
	if !ok {
		return
	}
	hc.mu.Lock()
	a := hc.aborts[exchange]
	hc.mu.Unlock()
	if a != nil {
		a.set(&a.requested)
	}
}

// An abortState cancels one exchange after its request was written.
type abortState struct {
	cancel context.CancelCauseFunc

	mu sync.Mutex
	// written reports that the whole request was written, requested that Abort was called.
	written, requested bool
}

// newAbortState returns an abortState, and the context for the request of its exchange.
func newAbortState(parent context.Context) (context.Context, *abortState) {
	a := new(abortState)
	ctx, cancel := context.WithCancelCause(parent)
	a.cancel = cancel
	// message reports that the request is the message, not one for a token that it needs.
	var message atomic.Bool
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { message.Store(false) },
		WroteHeaderField: func(name string, _ []string) {
			if strings.EqualFold(name, HeaderVersion) {
				message.Store(true)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil && message.Load() {
				a.set(&a.written)
			}
		},
	}), a
}

// registerAbort lets [Session.Abort] find an exchange until over is called.
func (hc *httpConn) registerAbort(x *sessionExchange, a *abortState) (over func()) {
	x.abort = a
	hc.mu.Lock()
	hc.aborts[x.N] = a
	hc.mu.Unlock()
	return func() {
		hc.mu.Lock()
		delete(hc.aborts, x.N)
		hc.mu.Unlock()
		a.cancel(nil)
	}
}

// set sets one of the two conditions, and cancels the exchange when both are met.
func (a *abortState) set(condition *bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*condition = true
	if a.written && a.requested {
		a.cancel(ErrClientClosed)
	}
}
