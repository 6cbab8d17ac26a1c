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
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
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

// How a stream that a server has closed is resumed: so often, and with so much time in between, at least and at most.
const (
	maxResumes   = 20
	minRetry     = 10 * time.Millisecond
	defaultRetry = time.Second
	maxRetry     = 5 * time.Second
)

// An exchange is an HTTP request with its response.
type exchange struct {
	conn         *httpConn
	n            uint64
	at           uint64        // number of the event to blame: the request, or the head of the response
	pending      pendingIDs    // what the response has to answer
	isInitialize bool          // it is the handshake
	isSSEStream  bool          // it is the stream of HTTP+SSE
	gotHead      chan struct{} // closed when the head of the response has come; may be nil
	abort        *abortState   // may be nil

	status int
	err    error // why it broke off
	lastID string
	retry  time.Duration
}

func (x *exchange) record(e *capture.Event) uint64 {
	e.Session, e.Exchange = 1, x.n
	return x.conn.s.record(e)
}

// run sends the request and takes the response, to its end.
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
		end.Data = []byte(clip(x.err.Error()))
	}
	x.record(end)
}

func clip(s string) string { return s[:min(len(s), 300)] }

// endError says why the exchange is over, which should not be.
func (x *exchange) endError() error {
	switch {
	case x.err != nil:
		return x.err
	case x.status != http.StatusOK:
		return &StatusError{Status: x.status, N: x.at}
	}
	return io.EOF
}

// readResponse takes the response.
func (x *exchange) readResponse(resp *http.Response) error {
	x.status = resp.StatusCode
	x.at = x.record(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{
		Status: resp.StatusCode, Proto: resp.Proto, Headers: sortedFields(resp.Header),
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

// handleMessage records what came, and hands it over.
func (x *exchange) handleMessage(e *capture.Event) {
	list := parse(e.Data)
	if x.isInitialize { // before it is handed over: the next message is sent with what it says
		for _, m := range list {
			if m.Kind == jsonrpc.KindResponse {
				x.conn.onInitialized(nil, jsonwire.Text(jsonwire.Lookup(m.Result, "protocolVersion")))
			}
		}
	}
	x.pending.resolve(list, len(x.pending) == 1)
	n := x.record(e)
	if n > 0 && (!x.isSSEStream || x.conn.hasEndpoint()) { // Open takes nothing
		x.conn.s.deliver(&Incoming{N: n, Exchange: x.n, Status: x.status, Data: bytes.Clone(e.Data)})
	}
}

// readStream takes the events of a stream, to its end.
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

// handleEvent takes one event. The error says why no more can be taken.
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

// sessionError returns the error with which the session has ended. One that is being closed still records.
func (x *exchange) sessionError() error {
	select {
	case <-x.conn.s.ended:
		return x.conn.s.endErr
	default:
		return nil
	}
}

// resume goes on with a stream that the server has closed before it has answered
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
func (x *exchange) resume() {
	for range maxResumes {
		if x.lastID == "" || len(x.pending) == 0 || x.conn.s.o.Modern || x.sessionError() != nil || x.conn.s.o.Transport == SSE {
			return
		}
		wait := defaultRetry
		if x.retry > 0 {
			wait = min(max(x.retry, minRetry), maxRetry)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-x.conn.ctx.Done():
			timer.Stop()
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

// Abort ends the exchange of a message that was sent, from this side: that is how clients cancel a request over HTTP in the modern era
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#cancellation). The server gets all of the message before. Abort does not wait: what
// [Session.Next] returns tells that the exchange is over. It does nothing for one that is over, or over stdio.
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

// A line is the connection of one exchange, as far as it can be cut from this side.
type abortState struct {
	cancel context.CancelCauseFunc

	mu                 sync.Mutex
	written, requested bool // the whole request, and that it be cut then
}

// newAbortState returns a line, and the context for the request of its exchange.
func newAbortState(parent context.Context) (context.Context, *abortState) {
	l := new(abortState)
	ctx, cancel := context.WithCancelCause(parent)
	l.cancel = cancel
	var message atomic.Bool // what is written is the message, and not a request for a token that it needs
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

// registerAbort lets [Session.Abort] find the line of an exchange, until over is called.
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

// set sets one of the line's two conditions, and cuts it when both are met.
func (a *abortState) set(condition *bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*condition = true
	if a.written && a.requested {
		a.cancel(errClientClosed)
	}
}

// roundTrip makes the request of an exchange.
func (x *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	resp, err := x.conn.transport.RoundTrip(r)
	if x.abort != nil {
		x.abort.set(&x.abort.written) // transports that are not net/http's may say nothing
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

// request makes an HTTP request. The user's headers win; one with a single empty value takes ours out.
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
	if body != nil && hc.s.o.Transport == HTTP {
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

// setStandardHeaders sets the headers that repeat what a modern message says
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
func (hc *httpConn) setStandardHeaders(h http.Header, body []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(body, &m, 0) != nil || len(m.Method) == 0 {
		return
	}
	version := revisionOf(body)
	if version == "" && hc.s.o.Modern { // a notification need not say it
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

// paramValue returns the value of the header for the argument at a path; there is none for what is absent, null, or no scalar.
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

// headerFields are the fields of a request as it goes out, but for those that net/http adds.
func headerFields(r *http.Request) []capture.Header {
	list := []capture.Header{{Name: "Host", Value: r.Host}}
	if r.ContentLength > 0 {
		list = append(list, capture.Header{Name: "Content-Length", Value: strconv.FormatInt(r.ContentLength, 10)})
	}
	return append(list, sortedFields(r.Header)...)
}

func sortedFields(h http.Header) []capture.Header {
	var list []capture.Header
	for name, values := range h {
		for _, v := range values {
			list = append(list, capture.Header{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(list, func(a, b capture.Header) int { return strings.Compare(a.Name, b.Name) })
	return list
}
