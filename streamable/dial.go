package streamable

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

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
