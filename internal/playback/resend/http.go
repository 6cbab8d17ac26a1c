package resend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/sse"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/trace/httphead"
	"mcpwire/internal/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	maxExchanges  = 64                     // concurrent exchanges
	drainTimeout  = 500 * time.Millisecond // for exchanges to end
	deleteTimeout = 2 * time.Second        // for the end of a session
	streamTimeout = 500 * time.Millisecond // for the standing stream to open
)

// errClientClosed is the cause of an exchange that this side ended.
var errClientClosed = errors.New("client closed")

// An httpConn is a connection of HTTP exchanges.
type httpConn struct {
	s         *Session
	url       *url.URL
	transport http.RoundTripper
	// ownTransport is closed at the end. It is nil for a transport from the options.
	ownTransport *http.Transport
	// ctx is the context of all exchanges, which outlast the calls that begin them.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// last is the number of the last exchange.
	last  atomic.Uint64
	slots chan struct{}
	// posts counts exchanges that end by themselves.
	posts sync.WaitGroup
	// endpoint is closed when postURL is known, for HTTP+SSE.
	endpoint chan struct{}

	mu sync.Mutex
	// aborts has the pending exchanges by number.
	aborts map[uint64]*abortState
	// postURL is the URL for messages.
	postURL *url.URL
	// sessionHeader has the session id and the negotiated revision for all requests.
	sessionHeader http.Header
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

// open implements conn.
func (hc *httpConn) open(ctx context.Context) error {
	if hc.s.o.Transport != capture.TransportSSE {
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
		<-hc.slots // before deliver, whose receiver may wait for a slot
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
	case <-timer.C: // some servers send the head with the first event
	case <-ctx.Done():
	}
}

// newExchange numbers an exchange and records its request. more has additional header fields.
func (hc *httpConn) newExchange(ctx context.Context, method string, to *url.URL, body []byte, more http.Header) (*exchange, *http.Request, error) {
	x := &exchange{conn: hc, n: hc.last.Add(1)}
	r, err := hc.request(ctx, method, to, body)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(r.Header, more)
	x.at = x.record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Request: httphead.ClientRequest(r)})
	if body != nil {
		x.at = x.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: body})
	}
	return x, r, nil
}

// onInitialized stores the header values of later requests from the answer to initialize.
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

// setEndpoint sets the URL for messages. It must have the same origin, since the credentials would
// go elsewhere otherwise.
func (hc *httpConn) setEndpoint(data string) error {
	to, err := hc.url.Parse(data)
	switch {
	case err != nil:
		return errors.New("the endpoint is not a URL")
	case to.Scheme != hc.url.Scheme || to.Host != hc.url.Host || to.User != nil:
		return errors.New("the endpoint is not at the same origin")
	}
	to.Fragment, to.RawFragment = "", ""
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

// deleteSession ends a legacy session, if there is one.
func (hc *httpConn) deleteSession() {
	if hc.s.o.Transport == capture.TransportSSE || hc.sessionHeader.Get(headerSession) == "" {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), deleteTimeout, errClientClosed)
	defer cancel()
	if x, r, err := hc.newExchange(ctx, http.MethodDelete, hc.url, nil, nil); err == nil {
		x.run(r)
	}
}

// withoutURL returns an error without the URL, which may contain secrets.
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

// The limits of resuming a stream that the server has closed: the number of attempts, and the pause
// between them.
const (
	maxResumes   = 20
	minRetry     = 10 * time.Millisecond
	defaultRetry = time.Second
	maxRetry     = 5 * time.Second
)

// An exchange is an HTTP request with its response.
type exchange struct {
	conn *httpConn
	n    uint64
	// at is the number of the event to report: the request, or the head of the response.
	at uint64
	// pending are the requests that the response must answer.
	pending pendingIDs
	// isInitialize marks the handshake.
	isInitialize bool
	// isSSEStream marks the stream of HTTP+SSE.
	isSSEStream bool
	// gotHead is closed when the head of the response has come. It may be nil.
	gotHead chan struct{}
	// abort may be nil.
	abort *abortState

	status int
	// err is the reason if the exchange broke off.
	err    error
	lastID string
	retry  time.Duration
}

func (x *exchange) record(e *capture.Event) uint64 {
	e.Session, e.Exchange = 1, x.n
	return x.conn.s.record(e)
}

// run sends the request and reads the response to its end.
func (x *exchange) run(r *http.Request) {
	end := &capture.Event{Kind: capture.KindEnd}
	resp, err := x.roundTrip(r)
	if err == nil {
		defer resp.Body.Close()
		err = x.readResponse(resp)
	}
	if err != nil {
		if cause := context.Cause(r.Context()); cause != nil {
			err = cause
		}
		x.err = withoutURL(err)
		end.Data = []byte(clip.String(x.err.Error(), 300))
	}
	x.record(end)
}

// endError returns the reason for the unexpected end of the exchange.
func (x *exchange) endError() error {
	switch {
	case x.err != nil:
		return x.err
	case x.status != http.StatusOK:
		return &StatusError{Status: x.status, N: x.at}
	}
	return io.EOF
}

// readResponse reads the response.
func (x *exchange) readResponse(resp *http.Response) error {
	x.status = resp.StatusCode
	x.at = x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: resp.StatusCode, Proto: resp.Proto, Headers: httphead.Headers(resp.Header, false),
	}})
	if x.isInitialize {
		x.conn.onInitialized(resp.Header, "")
	}
	if x.gotHead != nil {
		close(x.gotHead)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media == typeEvents && resp.StatusCode == http.StatusOK {
		return x.readStream(resp.Body)
	}
	most := int64(x.conn.s.opts.MaxMessage)
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	e := &capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Data: body}
	if int64(len(body)) > most {
		e.Data, e.Cut, err = body[:most], true, fmt.Errorf("resend: a body above %d bytes: %w", most, ErrTooLarge)
	}
	if media == typeJSON || len(parse(body)) > 0 {
		e.Kind = capture.KindMessage
	}
	if len(body) > 0 {
		x.handleMessage(e)
	}
	return err
}

// handleMessage records and delivers incoming data.
func (x *exchange) handleMessage(e *capture.Event) {
	list := parse(e.Data)
	// Set the headers before delivery, since the next message needs them.
	if x.isInitialize {
		for _, m := range list {
			if m.Kind == jsonrpc.KindResponse {
				x.conn.onInitialized(nil, jsonwire.Text(jsonwire.Lookup(m.Result, "protocolVersion")))
			}
		}
	}
	x.pending.resolve(list, len(x.pending) == 1)
	n := x.record(e)
	if n > 0 && (!x.isSSEStream || x.conn.hasEndpoint()) { // Open does not read
		x.conn.s.deliver(&Incoming{N: n, Exchange: x.n, Status: x.status, Data: bytes.Clone(e.Data)})
	}
}

// readStream reads the events of a stream to its end.
func (x *exchange) readStream(body io.Reader) error {
	reader := sse.NewReader(body, x.conn.s.opts.MaxMessage)
	for {
		e, err := reader.Read()
		if large, ok := errors.AsType[*sse.TooLargeError](err); ok {
			x.record(&capture.Event{Kind: capture.KindNote, Dir: capture.ToClient, Data: []byte(large.Error())})
			continue
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := x.handleEvent(&e); err != nil {
			return err
		}
	}
}

// handleEvent handles one event. An error ends the stream.
func (x *exchange) handleEvent(e *sse.Event) error {
	if e.HasID {
		x.lastID = string(e.ID)
	}
	if e.HasRetry {
		x.retry = e.Retry
	}
	facts := &capture.SSE{Event: e.Name, ID: string(e.ID), HasID: e.HasID, Retry: e.Retry, HasRetry: e.HasRetry, HasData: e.Data != nil}
	out := &capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Data: bytes.Clone(e.Data), SSE: facts}
	if len(e.Data) > 0 && e.Name == "" && jsonwire.Valid(e.Data, 0) == nil {
		out.Kind = capture.KindMessage
		x.handleMessage(out)
		return x.sessionError()
	}
	x.record(out)
	if x.isSSEStream && e.Name == eventEndpoint {
		if err := x.conn.setEndpoint(string(bytes.TrimSpace(e.Data))); err != nil {
			x.conn.s.end(&EndedError{err})
			return err
		}
	}
	return x.sessionError()
}

// sessionError returns the error with which the session has ended. A session that is being closed
// still records.
func (x *exchange) sessionError() error {
	select {
	case <-x.conn.s.ended:
		return x.conn.s.endErr
	default:
		return nil
	}
}

// resume continues a stream that the server closed before it answered
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
func (x *exchange) resume() {
	for range maxResumes {
		if x.lastID == "" || len(x.pending) == 0 || x.conn.s.o.Modern || x.sessionError() != nil || x.conn.s.o.Transport == capture.TransportSSE {
			return
		}
		delay := defaultRetry
		if x.retry > 0 {
			delay = min(max(x.retry, minRetry), maxRetry)
		}
		if !wait.Sleep(x.conn.ctx, delay) {
			return
		}
		next, r, err := x.conn.newExchange(x.conn.ctx, http.MethodGet, x.conn.url, nil, http.Header{headerLast: {x.lastID}})
		if err != nil {
			return
		}
		next.pending, next.lastID, next.retry = x.pending, x.lastID, x.retry
		next.run(r)
		x.lastID, x.retry = next.lastID, next.retry
		if next.status != http.StatusOK {
			return
		}
	}
}

// Abort ends the exchange of a sent message. Modern clients cancel a request over HTTP that way
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation).
// The server still receives the whole message. Abort does not wait; [Session.Next] reports the end
// of the exchange. It does nothing for an exchange that has ended, or over stdio.
func (s *Session) Abort(exchange uint64) {
	w, ok := s.conn.(*httpConn)
	if !ok {
		return
	}
	w.mu.Lock()
	l := w.aborts[exchange]
	w.mu.Unlock()
	if l != nil {
		l.set(&l.requested)
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
	l := new(abortState)
	ctx, cancel := context.WithCancelCause(parent)
	l.cancel = cancel
	// message reports that the request is the message, not one for a token that it needs.
	var message atomic.Bool
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { message.Store(false) },
		WroteHeaderField: func(name string, _ []string) {
			if strings.EqualFold(name, headerVersion) {
				message.Store(true)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil && message.Load() {
				l.set(&l.written)
			}
		},
	}), l
}

// registerAbort lets [Session.Abort] find an exchange until over is called.
func (hc *httpConn) registerAbort(x *exchange, l *abortState) (over func()) {
	x.abort = l
	hc.mu.Lock()
	hc.aborts[x.n] = l
	hc.mu.Unlock()
	return func() {
		hc.mu.Lock()
		delete(hc.aborts, x.n)
		hc.mu.Unlock()
		l.cancel(nil)
	}
}

// set sets one of the two conditions, and cancels the exchange when both are met.
func (a *abortState) set(condition *bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*condition = true
	if a.written && a.requested {
		a.cancel(errClientClosed)
	}
}

// roundTrip sends the request of an exchange.
func (x *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	resp, err := x.conn.transport.RoundTrip(r)
	if x.abort != nil {
		x.abort.set(&x.abort.written) // other transports may not report it
	}
	return resp, err
}

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerLast    = "Last-Event-Id"

	typeJSON   = "application/json"
	typeEvents = "text/event-stream"

	eventEndpoint = "endpoint"
)

// request returns an HTTP request. The user's headers replace the default ones; a single empty
// value removes one.
func (hc *httpConn) request(ctx context.Context, method string, to *url.URL, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, withoutURL(err)
	}
	if body == nil {
		r.Body, r.GetBody, r.ContentLength = nil, nil, 0
	}
	name, _, _ := strings.Cut(hc.s.opts.Tool, " ")
	r.Header.Set("User-Agent", name)
	switch method {
	case http.MethodPost:
		r.Header.Set("Content-Type", typeJSON)
		r.Header.Set("Accept", typeJSON+", "+typeEvents)
	case http.MethodGet:
		r.Header.Set("Accept", typeEvents)
	}
	hc.mu.Lock()
	for name, values := range hc.sessionHeader {
		r.Header[name] = slices.Clone(values)
	}
	hc.mu.Unlock()
	if body != nil && hc.s.o.Transport == capture.TransportHTTP {
		hc.setStandardHeaders(r.Header, body)
	}
	for name, values := range hc.s.opts.Headers {
		name = http.CanonicalHeaderKey(name)
		switch {
		case name == "Host" && len(values) > 0:
			r.Host = values[0]
		case len(values) == 1 && values[0] == "":
			r.Header.Del(name)
		default:
			r.Header[name] = slices.Clone(values)
		}
	}
	return r, nil
}

// setStandardHeaders sets the headers that repeat parts of a modern message
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
func (hc *httpConn) setStandardHeaders(h http.Header, body []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(body, &m, 0) != nil || len(m.Method) == 0 {
		return
	}
	version := revisionOf(body)
	if version == "" && hc.s.o.Modern { // optional in notifications
		version = hc.s.o.Revision
	}
	if version == "" {
		return
	}
	h.Set(headerVersion, era.EncodeHeaderValue(version))
	h.Set(headerMethod, era.EncodeHeaderValue(string(m.Method)))
	param := era.NameParam(m.Method)
	text, _ := m.Param(param)
	if param == "" || len(text) == 0 || text[0] != '"' {
		return
	}
	name := jsonwire.Text(text)
	h.Set(headerName, era.EncodeHeaderValue(name))
	if string(m.Method) != mcp.MethodToolsCall {
		return
	}
	arguments, _ := m.Param("arguments")
	for _, p := range hc.s.o.Params[name] {
		if value, ok := paramValue(arguments, p.Path); ok {
			h[http.CanonicalHeaderKey(headerParam+p.Header)] = []string{value}
		}
	}
}

// paramValue returns the header value for the argument at a path. It returns false if the argument
// is absent, null, or not a scalar.
func paramValue(arguments []byte, path []string) (string, bool) {
	value := arguments
	for _, name := range path {
		if value = jsonwire.Lookup(value, name); value == nil {
			return "", false
		}
	}
	if len(value) == 0 {
		return "", false
	}
	switch value[0] {
	case '"':
		return era.EncodeHeaderValue(jsonwire.Text(value)), true
	case 't', 'f':
		return string(value), true
	case 'n', '{', '[':
		return "", false
	}
	f, _ := strconv.ParseFloat(string(value), 64)
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 && bytes.ContainsAny(value, ".eE") {
		return strconv.FormatFloat(f, 'f', 0, 64), true // 42.0 is an integer
	}
	return string(value), true
}
