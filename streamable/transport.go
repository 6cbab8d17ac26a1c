package streamable

import (
	"bytes"
	"cmp"
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

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/net/challenge"
	"mcpwire/internal/net/neterror"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/oauth"
)

// TransportOptions are the options of [NewTransport]. The zero value is ready to use; nil means the
// same.
type TransportOptions struct {
	// HTTPClient makes the requests. The transport uses its Transport and Jar. It ignores Timeout,
	// since streams last, and CheckRedirect, since redirects follow the rules of [NewTransport]. An
	// OAuth client, such as that of package oauth, is the client's Transport; it sees the values of
	// the caller's context. If it returns an [*oauth.AuthorizationError], or an error with a method
	// Denied() bool that returns true, the request fails as denied and is not repeated. Nil means a
	// private client with proxies from the environment, HTTP/2, and timeouts for connecting.
	// Timeouts for responses are up to the caller.
	HTTPClient *http.Client
	// TLS configures the private client. It must be nil if HTTPClient is set. Nil means the default
	// of crypto/tls.
	TLS *tls.Config
	// Header is sent with each request. It must not contain headers that the protocol uses.
	Header http.Header

	// MaxFrame limits an inbound message, in bytes. Zero means [jsonrpc.DefaultMaxFrame].
	MaxFrame int
	// MaxRequests limits the requests in flight, including streams. Zero means 256. Up to 4096 more
	// wait.
	MaxRequests int

	// NoListening disables the GET stream for messages that a legacy server sends outside of calls.
	// The client may miss such requests and notifications.
	NoListening bool
	// NoSSE disables the fallback to the HTTP+SSE transport of 2024-11-05 when a server refuses
	// initialize.
	NoSSE bool

	// UnavailableTimeout limits the attempts to resume a broken stream while the server's machine
	// refuses connections or responds with status 500 or higher. Zero means the same limit as for
	// an unreachable machine: some minutes.
	UnavailableTimeout time.Duration

	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

// A Transport opens connections to a server over HTTP. It is a client.Transport. Make one with
// [NewTransport]. It is safe for concurrent use and may open several connections, which share what
// it learns about the headers of the server's tools.
type Transport struct {
	opts TransportOptions
	url  *url.URL
	// err says why the options are invalid.
	err   error
	tools toolHeaders

	// template is copied for each request.
	template     *http.Request
	roundTripper http.RoundTripper
	// ownTransport is the private roundTripper. It is nil if the user gave a client.
	ownTransport *http.Transport
	// conns are the connections of ownTransport.
	conns dialedConns
	// jar may be nil.
	jar http.CookieJar
	// sawHTTP2 means that the server has responded over HTTP/2.
	sawHTTP2 atomic.Bool
}

// NewTransport returns a transport to the server at rawURL, for package client:
//
//	c, err := client.Dial(ctx, streamable.NewTransport("https://example.com/mcp", nil), nil)
//
// It sends nothing; client.Dial reports an invalid URL or option. The transport speaks Streamable
// HTTP in all revisions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http). If a
// server refuses initialize like one from before Streamable HTTP, it speaks the HTTP+SSE transport
// of 2024-11-05
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
//
// Each call is a separate HTTP request. If it fails, only its call fails, with a
// [*jsonrpc.CallError] that says whether the server may have carried it out. The error wraps a
// [*StatusError] if the server responded. The connection as a whole ends when the server has
// forgotten the session (404), and when the stream of HTTP+SSE breaks; the client then makes
// another one.
//
// The transport follows redirects of status 307 and 308 within the origin (RFC 6454), at most 3 in
// a row. Others make the call fail: the request is for this server only.
func NewTransport(rawURL string, opts *TransportOptions) *Transport {
	c := &Transport{}
	if opts != nil {
		c.opts = *opts
	}
	defaults.IfNotPositive(&c.opts.MaxFrame, jsonrpc.DefaultMaxFrame)
	defaults.IfNotPositive(&c.opts.MaxRequests, 256)
	if c.opts.Logger == nil {
		c.opts.Logger = slog.New(slog.DiscardHandler)
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

// Connect opens a connection. It sends nothing yet. The connection's own requests have the values
// of ctx. Connect returns an error if the URL or the options are invalid.
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
		return nil, fmt.Errorf("bad URL: %w", neterror.WithoutURL(err)) // which may contain secrets
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("bad URL: its scheme is %.20q, and must be https or http", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("bad URL: it has no host")
	case u.User != nil:
		return nil, errors.New("bad URL: it has credentials; give them in TransportOptions.Header")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// checkHeaderOption returns an error for a header that the transport must set itself.
func checkHeaderOption(h http.Header) error {
	for name, values := range h {
		switch key := http.CanonicalHeaderKey(name); {
		case strings.HasPrefix(key, "Mcp-"):
		// net/http repeats requests that have such a key, and all requests would have the same one.
		case key == "Idempotency-Key", key == "X-Idempotency-Key":
		case key == "Accept", key == "Content-Type", key == "Content-Length", key == "Content-Encoding", key == "Transfer-Encoding", key == "Connection", key == "Host", key == headerLastID:
		case key != name:
			return fmt.Errorf("TransportOptions.Header has %.40q: write it %.40q", name, key)
		case !isToken(name) || slices.ContainsFunc(values, func(v string) bool { return strings.ContainsFunc(v, isControl) }):
			return fmt.Errorf("TransportOptions.Header has %.40q, which is not a valid header name or value", name)
		default:
			continue
		}
		return fmt.Errorf("TransportOptions.Header has %.40q, which the protocol sets", name)
	}
	return nil
}

// Limits of the private HTTP client.
const (
	dialTimeout    = 15 * time.Second
	tlsTimeout     = 15 * time.Second
	idleTimeout    = 90 * time.Second
	pingInterval   = 30 * time.Second // without a byte, until a ping
	maxHeaderBytes = 256 << 10
	maxIdleConns   = 64
	maxRedirects   = 3
	pingTimeout    = 15 * time.Second
)

// setTransport chooses the round tripper.
func (t *Transport) setTransport() {
	given := t.opts.HTTPClient
	switch {
	case given == nil:
		t.ownTransport = t.newTransport()
		t.roundTripper = t.ownTransport
		return
	case t.err == nil && t.opts.TLS != nil:
		t.err = errors.New("TransportOptions.TLS cannot be combined with HTTPClient: configure the client's Transport")
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
		DisableCompression:     true, // little on the wire may be much in memory
	}
}

// checkProxy checks a proxy's response to CONNECT. The request itself has not been sent.
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

// sameOrigin compares origins (RFC 6454, section 5).
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), strconv.Itoa(int(impliedPort(u.Scheme))))
}

// send makes an HTTP request and follows its redirects. body may be nil; neither it nor h may
// change afterwards.
//
// It replaces http.Client, which copies the header of each request in case of a redirect.
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

// mayResend reports whether net/http gets the body a second time, which it needs to repeat a
// request. Over HTTP/1 it only repeats requests of which it has written nothing (and those with an
// idempotency key, see checkHeaderOption). Over HTTP/2 it also repeats after RST_STREAM with
// PROTOCOL_ERROR, which many servers and proxies send for a bad response: the request has been
// carried out by then. Errors show which requests were certainly not carried out, see sendError. A
// user's round tripper may need the body again, to log in.
func (t *Transport) mayResend() bool { return t.ownTransport == nil || !t.sawHTTP2.Load() }

// redirectTarget returns the target of a redirect to follow: the same request at the same origin.
// It returns nil for other responses, see describeRedirect.
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

// maxDrain limits how much of an unused body is read so that its connection can be reused, in
// bytes.
const maxDrain = 16 << 10

func drainBody(body io.Reader) { io.CopyN(io.Discard, body, maxDrain) }

// dialedConns are the network connections of a private HTTP client. They close with the last
// framer: a connection that net/http should close when idle may look busy for a moment longer, and
// would then stay open for the idle timeout, and so would one being dialed. The zero value is ready
// to use.
type dialedConns struct {
	mu      sync.Mutex
	framers int
	conns   map[*dialedConn]struct{}
}

// A dialedConn is one of the dialedConns.
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

var errTransportClosed = errors.New("the transport has no more connections")

// dialer returns a function that calls dial and adds the connection.
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
		d := &dialedConn{c, dc}
		sparse.Set(&dc.conns, d, struct{}{})
		return d, nil
	}
}

// acquire counts a framer.
func (dc *dialedConns) acquire() {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	dc.framers++
}

// release uncounts a framer, and closes all connections after the last one.
func (dc *dialedConns) release() {
	dc.mu.Lock()
	dc.framers--
	var open []*dialedConn
	if dc.framers == 0 {
		open = slices.Collect(maps.Keys(dc.conns))
	}
	dc.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// A StatusError is an HTTP response without a JSON-RPC response to the message. A
// [*jsonrpc.CallError] of this transport wraps it if the server responded at all.
type StatusError struct {
	// StatusCode is the status of the response.
	StatusCode int
	// Text is the beginning of a text body, or the message of a JSON-RPC error in the body, or
	// insufficient_scope with the scopes that the request needs. It comes from the peer and has at
	// most 200 bytes.
	Text string
	// Location is the origin that an unfollowed redirect leads to, or says why the redirect is
	// invalid.
	Location string
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
	maxErrorBody = 1 << 20 // bytes of an error's body that are read
	maxErrorText = 200     // bytes of StatusError.Text

	errorBodyTimeout = 5 * time.Second // for reading an error's body
)

// lostError is the error of a request that gets no response, though the server may have carried it
// out.
func lostError(err error) *jsonrpc.CallError {
	return &jsonrpc.CallError{Err: err, Outcome: jsonrpc.OutcomeUnknown}
}

// malformedError is the error of a request with a response that violates the protocol.
func malformedError(format string, args ...any) *jsonrpc.CallError {
	return lostError(fmt.Errorf("%w: %s", jsonrpc.ErrMalformed, fmt.Sprintf(format, args...)))
}

// checkContentEncoding returns an error for compressed content that was not requested. (A Transport
// that requested it has decompressed it.)
func checkContentEncoding(h http.Header) error {
	coding := h.Get("Content-Encoding")
	if coding == "" || strings.EqualFold(coding, "identity") {
		return nil
	}
	return fmt.Errorf("%w: the content has the coding %.40q, which was not requested", jsonrpc.ErrMalformed, coding)
}

// http2RefusedPrefixes are the beginnings of net/http's errors for requests that an HTTP/2 server
// refused before processing (RFC 9113, section 8.7), and that net/http would have repeated itself,
// see mayResend. Only the text identifies them. If it changes, the requests count as lost and are
// not repeated.
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

// sendError returns the error of a request that could not be sent. Only a failure that certainly
// precedes sending counts as unprocessed.
func sendError(err error) *jsonrpc.CallError {
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok { // from the proxy
		return &jsonrpc.CallError{Err: e.Err, Outcome: e.Outcome}
	}
	err = neterror.WithoutURL(err) // which may contain secrets
	e := lostError(err)
	var (
		login   *oauth.AuthorizationError
		denied  interface{ Denied() bool }
		op      *net.OpError
		dns     *net.DNSError
		trust   *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &login) && errors.Is(err, oauth.ErrUnreachable):
		e.Outcome = jsonrpc.OutcomeUnprocessed
	case login != nil, errors.Is(err, oauth.ErrNotReplayable): // the server rejected the login
		e.Outcome = jsonrpc.OutcomeDenied
	case errors.As(err, &denied) && denied.Denied(), errors.As(err, &trust), errors.As(err, &unknown):
		e.Outcome = jsonrpc.OutcomeDenied
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"), errors.As(err, &dns), errors.As(err, &record), isHTTP2Refused(err):
		e.Outcome = jsonrpc.OutcomeUnprocessed
	}
	return e
}

// An httpError is a response whose status is not 2xx.
type httpError struct {
	status *StatusError
	// message is the JSON-RPC error in the body, or nil.
	message    *jsonrpc.Message
	retryAfter time.Duration
}

// readHTTPError reads a response whose status is not 2xx.
func readHTTPError(resp *http.Response) *httpError {
	r := &httpError{status: &StatusError{StatusCode: resp.StatusCode}, retryAfter: parseRetryAfter(resp.Header, time.Now())}
	if resp.StatusCode/100 == 3 {
		r.status.Location = describeRedirect(resp)
	}
	late := time.AfterFunc(errorBodyTimeout, func() { resp.Body.Close() }) // keep the status
	defer late.Stop()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody+1))
	if err != nil || len(body) > maxErrorBody {
		return r
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, bom))
	var m jsonrpc.Message
	if len(body) > 0 && body[0] == '{' && jsonrpc.Parse(body, &m, 0) == nil && m.Kind == jsonrpc.KindError {
		r.message = &m
		r.status.Text = clip.String(m.Err().Message, maxErrorText)
	} else if isText(resp.Header, body) {
		r.status.Text = clip.String(body, maxErrorText)
	}
	challenges, _ := challenge.Parse(resp.Header["Www-Authenticate"])
	for _, c := range challenges {
		if c.Params["error"] == "insufficient_scope" { // the challenge says more than the body
			r.status.Text = clip.String("insufficient_scope: "+c.Params["scope"], maxErrorText)
		}
	}
	return r
}

// isText reports whether the body is readable text. Servers made with Node often send no type.
func isText(h http.Header, body []byte) bool {
	kind := mediaTypeOf(h)
	if kind == "" {
		return strings.HasPrefix(http.DetectContentType(body), "text/plain")
	}
	return kind == "text/plain" || kind == mediaJSON || kind == "application/problem+json"
}

// describeRedirect describes the target of a redirect without possible secrets.
func describeRedirect(resp *http.Response) string {
	to, err := resp.Location()
	switch {
	case err != nil:
		return "the Location is missing"
	case to.Scheme != "http" && to.Scheme != "https":
		return fmt.Sprintf("to a URL with the scheme %.20q", to.Scheme)
	case resp.Request != nil && sameOrigin(to, resp.Request.URL):
		return "the redirect stays within the origin, but does not repeat the request (only 307 and 308 do), or there are too many"
	}
	return fmt.Sprintf("to another origin, %.100q", to.Scheme+"://"+to.Host)
}

// callError returns the error of a call that got this response.
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

// A rateLimitError is the error of a request that exceeds the limits of the server.
type rateLimitError struct {
	status   *StatusError
	rpcError *jsonrpc.Error
}

func (e *rateLimitError) Error() string   { return e.status.Error() }
func (e *rateLimitError) Unwrap() []error { return []error{e.status, e.rpcError} }

// isAnswer reports whether the JSON-RPC error in the body answers the request, and isn't that of a
// server in between.
func (he *httpError) isAnswer() bool {
	if he.message == nil {
		return false
	}
	outcome := he.callError().Outcome
	return outcome == jsonrpc.OutcomeRejected || outcome == jsonrpc.OutcomeUnknown
}

// answersID reports whether the error in the body has that id.
func (he *httpError) answersID(id string) bool {
	return he.message != nil && id != "" && he.message.ID.Equal(jsonrpc.ID(id))
}

// isMethodNotFound reports whether a 404 concerns the method, and not the session.
func (he *httpError) isMethodNotFound() bool {
	return he.message != nil && he.message.Err().Code == jsonrpc.CodeMethodNotFound
}

// parseRetryAfter returns the delay of Retry-After (RFC 9110, section 10.2.3), or 0.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	delay := most // for a number that is out of range
	if strings.Trim(text, "0123456789") != "" {
		at, err := http.ParseTime(text)
		if err != nil {
			return 0
		}
		delay = at.Sub(now)
	} else if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		delay = time.Duration(seconds) * time.Second
	}
	return min(max(delay, time.Millisecond), most)
}
