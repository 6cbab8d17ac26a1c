package streamable

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
)

// DialOptions are the options of [Dial]. The zero value is ready to use, and what nil means.
type DialOptions struct {
	// HTTPClient makes the requests. Of it, Transport and Jar are used. Timeout is not, since streams last, and redirects go by the rules of [Dial]. An OAuth client is a
	// Transport here, such as that of package auth; it sees the values of the caller's context. If an error that it returns is an [*auth.AuthorizationError], or has a method
	// Denied() bool that returns true, the request counts as refused for want of authorization, and is not repeated. nil is a client of this transport's own: with proxies from the environment, HTTP/2, and timeouts for connecting, but none for an answer, which is up to the caller.
	HTTPClient *http.Client
	// TLS configures the client of this transport's own; it cannot go with HTTPClient. nil is crypto/tls's default.
	TLS *tls.Config
	// Header is sent with each request. What the protocol itself has in headers cannot be set.
	Header http.Header

	MaxFrame    int // bytes of one message that is read; 0 is [jsonrpc.DefaultMaxFrame]
	MaxRequests int // that are under way at once, streams included; 0 is 256. Further ones wait, up to 4096

	NoListening bool // do not hold a GET stream open for what a legacy server has to say outside of calls: its requests and notifications may be missed
	NoSSE       bool // do not try the HTTP+SSE transport of 2024-11-05 when a server refuses initialize

	// UnavailableTimeout is how long a stream that broke is tried to be resumed while the server's machine refuses connections, or answers with a status of 500 or more: for those whom
	// an error soon serves better. 0 is as long as if the machine cannot be reached: some minutes.
	UnavailableTimeout time.Duration

	Logger *slog.Logger // nil discards
}

// A Transport opens connections to a server over HTTP. It is a client.Transport. Make one with [Dial]. It may be used by many goroutines at once, and more than once: what it
// learns of the server's tools, for the headers of their calls, serves all its connections.
type Transport struct {
	opts  DialOptions
	url   *url.URL
	err   error // why the options cannot be used
	log   *slog.Logger
	tools toolHeaders

	template     *http.Request // of each request
	roundTripper http.RoundTripper
	ownTransport *http.Transport // which transport is; nil if the user has given a client
	conns        dialedConns     // of own
	jar          http.CookieJar  // nil is none
	sawHTTP2     atomic.Bool     // the server has answered over HTTP/2
}

// Dial returns a transport to the server at rawURL, for package client:
//
//	c, err := client.Dial(ctx, streamable.Dial("https://example.com/mcp", nil), nil)
//
// Nothing is sent before that, and a bad URL or option is reported then. It speaks Streamable HTTP in all revisions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http) and, if a server refuses initialize as one from before that does, the HTTP+SSE
// transport that 2024-11-05 had (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
//
// Each call is an HTTP request of its own. One that fails makes its call fail, with a [*jsonrpc.CallError] that says whether the server may have carried it out, and around a
// [*StatusError] if the server answered; others are not affected. The connection as a whole ends when the server has forgotten the session (404), and when the stream of HTTP+SSE
// breaks; the client makes another one then.
//
// Redirects are followed if they have status 307 or 308 and stay within the origin (RFC 6454), at most 3 in a row. Others make the call fail: what the request carries is for this
// server only.
func Dial(rawURL string, opts *DialOptions) *Transport {
	c := &Transport{}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.MaxFrame <= 0 {
		c.opts.MaxFrame = jsonrpc.DefaultMaxFrame
	}
	if c.opts.MaxRequests <= 0 {
		c.opts.MaxRequests = 256
	}
	if c.log = c.opts.Logger; c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.opts.Header = c.opts.Header.Clone()
	c.url, c.err = parseURL(rawURL)
	if c.err == nil {
		c.err = checkHeaderOption(c.opts.Header)
	}
	c.template = &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	c.setTransport()
	return c
}

// A Receiver is what [Transport.Connect] returns, for who forwards what a server says and wants to know where it has said that.
type Receiver interface {
	jsonrpc.MessageTransport
	// Receive is ReadFrame. Besides it returns the context of the HTTP request by whose response the frame came, or by which a call failed; nil with other errors. It has the values of the context that the request
	// was posted with, of that of Connect if nobody posted it, and those that the round tripper gave it, if [http.Response.Request] says so.
	Receive() (frame []byte, from context.Context, err error)
}

// Connect opens a connection, which is a [Receiver]. It sends nothing yet. Requests that the connection makes by itself have the values of ctx. The error says what is wrong with the
// URL or the options.
func (t *Transport) Connect(ctx context.Context) (jsonrpc.Framer, error) {
	if t.err != nil {
		return nil, fmt.Errorf("streamable: %w", t.err)
	}
	t.conns.acquire()
	return newFramer(ctx, t), nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL, which may have secrets in it
		}
		return nil, fmt.Errorf("bad URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("bad URL: its scheme is %.20q, and must be https or http", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("bad URL: it has no host")
	case u.User != nil:
		return nil, errors.New("bad URL: it has credentials; give them in DialOptions.Header")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// checkHeaderOption complains of headers that are the transport's business.
func checkHeaderOption(h http.Header) error {
	for name, values := range h {
		switch key := http.CanonicalHeaderKey(name); {
		case strings.HasPrefix(key, "Mcp-"):
		case key == "Idempotency-Key", key == "X-Idempotency-Key": // net/http takes them as leave to send a request twice, and they would be the same for all requests
		case key == "Accept", key == "Content-Type", key == "Content-Length", key == "Content-Encoding", key == "Transfer-Encoding", key == "Connection", key == "Host", key == headerLastID:
		case key != name:
			return fmt.Errorf("DialOptions.Header has %.40q: write it %.40q", name, key)
		case !isToken(name) || slices.ContainsFunc(values, func(v string) bool { return strings.ContainsFunc(v, isControl) }):
			return fmt.Errorf("DialOptions.Header has %.40q, whose name or value fits no header", name)
		default:
			continue
		}
		return fmt.Errorf("DialOptions.Header has %.40q, which the protocol decides on", name)
	}
	return nil
}

// Bounds of the transport's own HTTP client.
const (
	dialTimeout    = 15 * time.Second
	tlsTimeout     = 15 * time.Second
	idleTimeout    = 90 * time.Second
	pingInterval   = 30 * time.Second // without a byte, after which a connection is asked whether it still works
	maxHeaderBytes = 256 << 10
	maxIdleConns   = 64
	maxRedirects   = 3
	pingTimeout    = 15 * time.Second
)

// setTransport decides on what makes the requests.
func (t *Transport) setTransport() {
	given := t.opts.HTTPClient
	switch {
	case given == nil:
		t.ownTransport = t.newTransport()
		t.roundTripper = t.ownTransport
		return
	case t.err == nil && t.opts.TLS != nil:
		t.err = errors.New("DialOptions.TLS cannot go with HTTPClient: configure that one's Transport")
	}
	t.jar = given.Jar
	if t.roundTripper = given.Transport; t.roundTripper == nil {
		t.roundTripper = http.DefaultTransport
	}
}

func (t *Transport) newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: checkProxy,
		DialContext:            t.conns.dialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: pingInterval}).DialContext),
		TLSClientConfig:        t.opts.TLS.Clone(),
		TLSHandshakeTimeout:    tlsTimeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
		MaxIdleConns:           maxIdleConns,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true, // what is small on the wire may be large in memory
	}
}

// checkProxy looks at what a proxy answers to CONNECT. Whatever it is, the request itself has not been sent.
func checkProxy(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	e := &jsonrpc.CallError{Err: fmt.Errorf("the proxy refused to connect: %w", &StatusError{StatusCode: resp.StatusCode}), Outcome: jsonrpc.OutcomeUnprocessed}
	if resp.StatusCode == http.StatusProxyAuthRequired || resp.StatusCode == http.StatusForbidden {
		e.Outcome = jsonrpc.OutcomeDenied
	}
	return e
}

// sameOrigin compares origins as RFC 6454, section 5, does.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// send makes an HTTP request, and those that redirects lead to. body is nil if it has none; neither it nor h may be changed afterwards.
//
// It does what there is of an http.Client's work: that one copies the header of each request, in case that it is redirected.
func (t *Transport) send(ctx context.Context, method string, to *url.URL, h http.Header, body []byte) (*http.Response, error) {
	for hops := 0; ; hops++ {
		resp, err := t.roundTrip(ctx, method, to, h, body)
		if err != nil {
			return nil, err
		}
		next := redirectTarget(resp, to)
		if next == nil || hops == maxRedirects {
			return resp, nil
		}
		resp.Body.Close()
		to = next
	}
}

var errNoResponse = errors.New("the RoundTripper returned neither a response nor an error")

func (t *Transport) roundTrip(ctx context.Context, method string, to *url.URL, h http.Header, body []byte) (*http.Response, error) {
	req := t.template.WithContext(ctx)
	req.Method, req.URL, req.Host, req.Header = method, to, to.Host, h
	if body != nil {
		req.ContentLength = int64(len(body))
		req.Body = io.NopCloser(bytes.NewReader(body))
		if t.mayResend() {
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		}
	}
	if t.jar != nil {
		if cookies := t.jar.Cookies(to); len(cookies) > 0 {
			req.Header = maps.Clone(h)
			for _, cookie := range cookies {
				req.AddCookie(cookie)
			}
		}
	}
	resp, err := t.roundTripper.RoundTrip(req)
	switch {
	case err != nil:
		return nil, err
	case resp == nil || resp.Body == nil:
		return nil, errNoResponse
	}
	if resp.ProtoMajor == 2 && !t.sawHTTP2.Load() {
		t.sawHTTP2.Store(true)
	}
	if resp.Request == nil {
		resp.Request = req
	}
	if t.jar != nil {
		if cookies := resp.Cookies(); len(cookies) > 0 {
			t.jar.SetCookies(to, cookies)
		}
	}
	return resp, nil
}

// mayResend reports whether net/http may have a body a second time, without which it does not send a request again. Over HTTP/1 it does that only with requests of which it has written
// nothing (and with those that have an idempotency key, see checkHeaderOption). Over HTTP/2 it also does that after RST_STREAM with PROTOCOL_ERROR, which many servers and proxies send when
// the response is bad: the request has been carried out by then. What a server certainly did not carry out is known by its error there, see sendError. Whatever round tripper the user has may
// need the body again, to log in.
func (t *Transport) mayResend() bool { return t.ownTransport == nil || !t.sawHTTP2.Load() }

// redirectTarget returns where a response leads that may be followed: one that asks for the same request at the same origin. Of others the response is returned, see describeRedirect.
func redirectTarget(resp *http.Response, from *url.URL) *url.URL {
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return nil
	}
	to, err := from.Parse(location)
	if err != nil || !sameOrigin(to, from) || to.User != nil {
		return nil
	}
	to.Fragment, to.RawFragment = "", ""
	return to
}

// maxDrain is how much of a body that is of no interest is read, so that its connection can be used again.
const maxDrain = 16 << 10

func drainBody(body io.Reader) { io.CopyN(io.Discard, body, maxDrain) }

// dialedConns are the network connections of a transport's own HTTP client. They end with the last framer: what net/http is told to close when idle may look busy for a moment longer, and
// stays for as long as it may be idle then. So does what it was about to dial. The zero value has none, and no framer.
type dialedConns struct {
	mu      sync.Mutex
	framers int
	conns   map[*dialedConn]struct{}
}

// A dialedConn is one of them.
type dialedConn struct {
	net.Conn
	set *dialedConns
}

func (c *dialedConn) Close() error {
	c.set.mu.Lock()
	delete(c.set.conns, c)
	c.set.mu.Unlock()
	return c.Conn.Close()
}

var errTransportClosed = errors.New("the transport has no connections any more")

// dialer returns a function that dials as dial does.
func (dc *dialedConns) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		dc.mu.Lock()
		defer dc.mu.Unlock()
		if dc.framers == 0 {
			c.Close()
			return nil, errTransportClosed
		}
		if dc.conns == nil {
			dc.conns = make(map[*dialedConn]struct{})
		}
		d := &dialedConn{c, dc}
		dc.conns[d] = struct{}{}
		return d, nil
	}
}

// acquire counts a framer in.
func (dc *dialedConns) acquire() {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	dc.framers++
}

// release counts a framer out, and closes everything after the last one.
func (dc *dialedConns) release() {
	dc.mu.Lock()
	dc.framers--
	var open []*dialedConn
	if dc.framers == 0 {
		for c := range dc.conns {
			open = append(open, c)
		}
	}
	dc.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// A StatusError is an HTTP response that is no answer to the message that was sent. It is what a [*jsonrpc.CallError] of this transport wraps when there was a response at all.
type StatusError struct {
	StatusCode int
	Text       string // the beginning of the body if that is text, or the message of the JSON-RPC error in it; chosen by the peer, at most 200 bytes
	Location   string // of a redirect that was not followed: the origin that it leads to, or what is wrong with it
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP status %d", e.StatusCode)
	if name := http.StatusText(e.StatusCode); name != "" {
		text += " " + name
	}
	if e.Location != "" {
		text += ", a redirect that is not followed: " + e.Location
	}
	if e.Text != "" {
		text += fmt.Sprintf(": %q", e.Text)
	}
	return text
}

const (
	maxErrorBody = 1 << 20 // bytes of the body of an error that are read
	maxErrorText = 200     // and that are told

	errorBodyTimeout = 5 * time.Second // for the body of an error
)

// errSessionGone is why a connection ends whose session the server has forgotten.
var errSessionGone = fmt.Errorf("the server has ended the session: %w", jsonrpc.ErrClosed)

// sessionGoneError is the error of a request that was refused because of that.
func sessionGoneError(r *httpError) *jsonrpc.CallError {
	return &jsonrpc.CallError{Err: fmt.Errorf("%w: %w", errSessionGone, r.status), Outcome: jsonrpc.OutcomeUnprocessed}
}

// lostError is the error of a request that cannot have an answer any more, though the server may have carried it out.
func lostError(err error) *jsonrpc.CallError {
	return &jsonrpc.CallError{Err: err, Outcome: jsonrpc.OutcomeUnknown}
}

// malformedError is the error of a request that was answered with something else than the protocol has.
func malformedError(format string, args ...any) *jsonrpc.CallError {
	return lostError(fmt.Errorf("%w: %s", jsonrpc.ErrMalformed, fmt.Sprintf(format, args...)))
}

// checkContentEncoding complains of a content that was compressed though nobody asked for that. (A Transport that did ask has undone it.)
func checkContentEncoding(h http.Header) error {
	coding := h.Get("Content-Encoding")
	if coding == "" || strings.EqualFold(coding, "identity") {
		return nil
	}
	return fmt.Errorf("%w: the content has the coding %.40q, which was not asked for", jsonrpc.ErrMalformed, coding)
}

// http2RefusedPrefixes are the errors of net/http for requests that a server has refused over HTTP/2 before it looked at them (RFC 9113, section 8.7), and that net/http would have repeated by
// itself, see mayResend. There is nothing else to tell them by. If the text changes, they count as lost, and are not repeated.
var http2RefusedPrefixes = []string{
	"http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY] ",
	"http2: Transport: cannot retry err [stream error: stream ID ",
}

func isHTTP2Refused(err error) bool {
	text := err.Error()
	if strings.HasPrefix(text, http2RefusedPrefixes[0]) {
		return true
	}
	rest, ok := strings.CutPrefix(text, http2RefusedPrefixes[1])
	return ok && strings.HasPrefix(strings.TrimLeft(rest, "0123456789"), "; REFUSED_STREAM; ")
}

// sendError says what became of a request whose sending failed. Only what certainly came before sending it counts as unsent.
func sendError(err error) *jsonrpc.CallError {
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok { // of the proxy
		return &jsonrpc.CallError{Err: e.Err, Outcome: e.Outcome}
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the URL, which may have secrets in it
	}
	e := lostError(err)
	var (
		login   *auth.AuthorizationError
		denied  interface{ Denied() bool }
		op      *net.OpError
		dns     *net.DNSError
		trust   *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &login) && errors.Is(err, auth.ErrUnreachable):
		e.Outcome = jsonrpc.OutcomeUnprocessed
	case login != nil, errors.Is(err, auth.ErrNotReplayable): // the server wanted to know first who asks
		e.Outcome = jsonrpc.OutcomeDenied
	case errors.As(err, &denied) && denied.Denied(), errors.As(err, &trust), errors.As(err, &unknown):
		e.Outcome = jsonrpc.OutcomeDenied
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"), errors.As(err, &dns), errors.As(err, &record), isHTTP2Refused(err):
		e.Outcome = jsonrpc.OutcomeUnprocessed
	}
	return e
}

// A httpError is a response whose status is none of success.
type httpError struct {
	status     *StatusError
	message    *jsonrpc.Message // the JSON-RPC error in the body; nil if there is none
	retryAfter time.Duration
}

// readHTTPError reads a response whose status is none of success.
func readHTTPError(resp *http.Response, depth int) *httpError {
	r := &httpError{status: &StatusError{StatusCode: resp.StatusCode}, retryAfter: parseRetryAfter(resp.Header, time.Now())}
	if resp.StatusCode/100 == 3 {
		r.status.Location = describeRedirect(resp)
	}
	late := time.AfterFunc(errorBodyTimeout, func() { resp.Body.Close() }) // the status is known already
	defer late.Stop()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody+1))
	if err != nil || len(body) > maxErrorBody {
		return r
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, bom))
	var m jsonrpc.Message
	if len(body) > 0 && body[0] == '{' && jsonrpc.Parse(body, &m, depth) == nil && m.Kind == jsonrpc.KindError {
		r.message = &m
		r.status.Text = clip(m.Err().Message)
	} else if isText(resp.Header) {
		r.status.Text = clip(string(body))
	}
	return r
}

// isText reports whether the body is worth showing to people.
func isText(h http.Header) bool {
	kind := mediaTypeOf(h)
	return kind == "text/plain" || kind == mediaJSON || kind == "application/problem+json"
}

func clip(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
		for len(s) > 0 && !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}

// describeRedirect says where a redirect leads, without what may be secret in it.
func describeRedirect(resp *http.Response) string {
	to, err := resp.Location()
	switch {
	case err != nil:
		return "it does not say where to"
	case to.Scheme != "http" && to.Scheme != "https":
		return fmt.Sprintf("to a URL with the scheme %.20q", to.Scheme)
	case resp.Request != nil && sameOrigin(to, resp.Request.URL):
		return "it stays within the origin but does not ask for the same request (only 307 and 308 do), or comes too often"
	}
	return fmt.Sprintf("to another origin, %.100q", to.Scheme+"://"+to.Host)
}

// callError is what a call fails with that was refused so.
func (he *httpError) callError() *jsonrpc.CallError {
	e := &jsonrpc.CallError{Err: he.status, Outcome: jsonrpc.OutcomeRejected, RetryAfter: he.retryAfter}
	if he.status.StatusCode == http.StatusTooManyRequests && he.message != nil && he.message.Err().Code == codeTooManyRequests {
		e.Err = &rateLimitError{he.status, he.message.Err()} // the error says more than the status
	}
	switch code := he.status.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired:
		e.Outcome = jsonrpc.OutcomeDenied
	case code == http.StatusTooManyRequests, code == http.StatusTooEarly, code == http.StatusServiceUnavailable && he.retryAfter > 0:
		e.Outcome = jsonrpc.OutcomeUnprocessed
	case code == http.StatusRequestTimeout, code >= 500:
		e.Outcome = jsonrpc.OutcomeUnknown
	}
	return e
}

// A rateLimitError is the error of a request that the limits of the server have refused.
type rateLimitError struct {
	status   *StatusError
	rpcError *jsonrpc.Error
}

func (e *rateLimitError) Error() string   { return e.status.Error() }
func (e *rateLimitError) Unwrap() []error { return []error{e.status, e.rpcError} }

// isAnswer reports whether the error in the body answers the request, rather than that some server on the way has something to say.
func (he *httpError) isAnswer() bool {
	if he.message == nil {
		return false
	}
	fate := he.callError().Outcome
	return fate == jsonrpc.OutcomeRejected || fate == jsonrpc.OutcomeUnknown
}

// answersID reports whether the error in the body is the answer to the request with that id.
func (he *httpError) answersID(id string) bool {
	return he.message != nil && id != "" && he.message.ID.Equal(jsonrpc.ID(id))
}

// isMethodNotFound reports whether a 404 is about the method rather than about the session.
func (he *httpError) isMethodNotFound() bool {
	return he.message != nil && he.message.Err().Code == jsonrpc.CodeMethodNotFound
}

// parseRetryAfter returns how long a Retry-After wants to be waited (RFC 9110, section 10.2.3); 0 if there is none.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return most
		}
		return min(max(time.Duration(seconds)*time.Second, time.Millisecond), most)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), time.Millisecond), most)
	}
	return 0
}
