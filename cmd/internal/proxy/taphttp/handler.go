package taphttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/net/httpserve"
)

// A Handler forwards requests to one server and records both directions. Use [New] to create one.
// It is safe for concurrent use.
type Handler struct {
	// upstream has the scheme and host of the server.
	upstream  *url.URL
	opts      Options
	rec       recorder
	access    access
	sessions  sessions
	budget    budget
	transport *http.Transport
	// interceptor is nil unless messages are held.
	interceptor *interceptor

	// exchanges is the number of the last exchange.
	exchanges atomic.Uint64

	mu      sync.Mutex
	closing bool
	active  map[*exchange]struct{}
	// idle is closed when closing is set and active is empty.
	idle chan struct{}
}

// New returns a handler that forwards all requests to the origin of upstream and records them with
// rec. The path of upstream only identifies the MCP endpoint. The caller closes rec after
// [Handler.Shutdown]. A nil rec records nothing; only [Options.Observe] then sees events. opts may
// be nil; New copies it.
//
// The error describes an invalid URL or option.
func New(upstream *url.URL, rec *capture.Writer, opts *Options) (*Handler, error) {
	switch {
	case upstream.Scheme != "http" && upstream.Scheme != "https":
		return nil, fmt.Errorf("taphttp: %.100q has neither http nor https", upstream.Redacted())
	case upstream.Hostname() == "":
		return nil, fmt.Errorf("taphttp: %.100q names no host", upstream.Redacted())
	case upstream.User != nil:
		return nil, errors.New("taphttp: the URL has credentials, which would not be used: requests have those of the client")
	}
	h := &Handler{opts: opts.withDefaults(), active: map[*exchange]struct{}{}, idle: make(chan struct{})}
	u := *upstream
	h.upstream = &u
	var err error
	if h.access, err = newAccess(h.opts.Hosts); err != nil {
		return nil, err
	}
	h.budget.max = h.opts.MaxBuffered
	h.rec = recorder{out: rec, observe: h.opts.Observe, start: time.Now()}
	h.transport = newTransport(&h.opts)
	if b := h.opts.Breakpoints; b != nil {
		h.interceptor = &interceptor{breakpoints: b, matcher: b.NewMatcher(h.opts.Name)}
	}
	return h, nil
}

// Listener returns a listener whose connections the handler recognizes. The handler then knows
// which requests share a connection, and the order and spelling of their headers. [Handler.Serve]
// does this itself.
func (h *Handler) Listener(l net.Listener) net.Listener { return listener{l} }

// The reasons for an early end of an exchange, as causes of its context.
var (
	errClientGone = errors.New("client closed")
	errShutdown   = errors.New("tap shut down")
	errSlowReader = errors.New("the client stopped reading")
)

// ServeHTTP implements [http.Handler]. It panics with [http.ErrAbortHandler] to cut off an
// incomplete response, so that the client sees that it is incomplete.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := h.newExchange(w, r)
	defer x.finish()
	x.recordRequest()
	switch full, closing := h.admit(x); {
	case closing:
		x.refuse(http.StatusServiceUnavailable, "the tap is shutting down")
	case full:
		x.refuse(http.StatusServiceUnavailable, "too many exchanges in flight")
	case !h.access.allows(r.Host):
		x.refuse(http.StatusForbidden, "the Host header names neither localhost nor an allowed host: the request may come from a web page")
	case upgrades(r):
		x.refuse(http.StatusNotImplemented, "the tap does not forward WebSocket and other protocols than HTTP")
	case h.interceptor != nil:
		x.intercept()
	default:
		x.forward()
	}
}

// newExchange returns a new exchange.
func (h *Handler) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{h: h, down: downstream{w: w, r: r, rc: http.NewResponseController(w), opts: &h.opts, conn: connOf(r)}}
	if x.down.conn != nil {
		x.session.conn = &x.down.conn.number
	}
	x.down.ctx, x.down.cancel = context.WithCancelCause(r.Context())
	h.sessions.assign(&x.session, r)
	x.rec = h.newExchangeRecorder(x.session.number)
	x.rec.isEndpoint = r.URL.Path == h.upstream.Path || strings.TrimSuffix(r.URL.Path, "/") == strings.TrimSuffix(h.upstream.Path, "/")
	return x
}

// newExchangeRecorder numbers an exchange of a session.
func (h *Handler) newExchangeRecorder(session uint64) exchangeRecorder {
	r := exchangeRecorder{out: &h.rec, session: session, number: h.exchanges.Add(1), budget: &h.budget, maxBody: h.opts.MaxBody}
	if h.interceptor != nil {
		r.matcher = h.interceptor.matcher
	}
	return r
}

// admit adds an exchange to the active ones, unless it returns full or closing.
func (h *Handler) admit(x *exchange) (full, closing bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	full = len(h.active) >= h.opts.MaxExchanges
	if !full && !h.closing {
		h.active[x] = struct{}{}
	}
	return full, h.closing
}

func (h *Handler) remove(x *exchange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.active[x]; !ok {
		return
	}
	delete(h.active, x)
	if h.closing && len(h.active) == 0 {
		close(h.idle)
	}
}

// Shutdown passes on messages that are held, refuses further requests with status 503 and ends
// standing streams at once. It ends other exchanges after [Options.Grace] or when ctx ends, cutting
// off their responses, and waits until all of them are recorded. It may be called more than once.
// It returns nil, or the cause of ctx's end.
func (h *Handler) Shutdown(ctx context.Context) error {
	if h.interceptor != nil {
		h.interceptor.breakpoints.Stop()
	}
	h.mu.Lock()
	if !h.closing {
		h.closing = true
		if len(h.active) == 0 {
			close(h.idle)
		}
	}
	for x := range h.active {
		if x.isStandingStream() {
			x.down.abortLocked()
		}
	}
	h.mu.Unlock()
	grace := time.NewTimer(h.opts.Grace)
	defer grace.Stop()
	select {
	case <-h.idle:
	case <-grace.C:
	case <-ctx.Done():
	}
	h.mu.Lock()
	for x := range h.active {
		x.down.abortLocked()
	}
	h.mu.Unlock()
	defer h.transport.CloseIdleConnections()
	select {
	case <-h.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Options are the options of [New]. nil means defaults.
type Options struct {
	// TLS configures TLS to the server. It is copied. nil means the default of crypto/tls.
	TLS *tls.Config
	// Dial connects to the server, or to the proxy from the environment. nil means a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Hosts are names by which clients may reach the tap, in addition to localhost and all
	// addresses. "*" allows any name: pages of other sites can then reach the server through the
	// tap under their own name
	// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security-warning).
	Hosts []string
	// Origin replaces the Origin header of a request; "drop" removes it. Empty forwards it, so that
	// the server can check it. The tap always forwards an Origin that is neither this machine nor
	// in Hosts: such a page could otherwise use the server through the tap.
	Origin string

	// MaxBody limits a body or event that is recorded in one piece, and the part of a request body
	// that is read before it is forwarded, in bytes. Zero means 64 MiB.
	MaxBody int
	// MaxBuffered limits the total bytes of these bodies. What does not fit is recorded in parts,
	// or cut. Zero means 512 MiB.
	MaxBuffered int64
	// MaxHeader limits the header of a response in bytes. Zero means 1 MiB.
	MaxHeader int64
	// MaxExchanges limits concurrent exchanges. More are refused with status 503. Zero means 2048.
	MaxExchanges int

	// BodyTimeout limits the time without a byte of a request body. Zero means 2 min.
	BodyTimeout time.Duration
	// WriteTimeout limits the time in which a client must take 32 KiB of a response. Zero means 5
	// min.
	WriteTimeout time.Duration
	// Grace is the time that Shutdown leaves to requests other than standing streams. Zero means 2
	// s.
	Grace time.Duration

	// Breakpoints hold some messages, see the package comment. nil holds none, and forwards bytes
	// as they arrive. Each handler needs its own.
	Breakpoints *intercept.Breakpoints
	// Name is the name of the server for the filter of Breakpoints.
	Name string

	// Observe is called with each event before the bytes are forwarded, in the order of the
	// numbers, by one goroutine at a time. The event, with N and T set, and its Data are valid
	// until it returns. All exchanges wait for it. nil means no call.
	Observe func(*capture.Event)

	// Logger logs failures at the tap. nil discards them.
	Logger *slog.Logger
}

// withDefaults returns a copy with all defaults set.
func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	defaults.IfNotPositive(&opts.MaxBody, 64<<20)
	defaults.IfNotPositive(&opts.MaxBuffered, 512<<20)
	defaults.IfNotPositive(&opts.MaxHeader, 1<<20)
	defaults.IfNotPositive(&opts.MaxExchanges, 2048)
	defaults.IfNotPositive(&opts.BodyTimeout, 2*time.Minute)
	defaults.IfNotPositive(&opts.WriteTimeout, 5*time.Minute)
	defaults.IfNotPositive(&opts.Grace, 2*time.Second)
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}

// ServeOptions are the options of [Handler.Serve]. nil means defaults: HTTP/1.1 on a loopback
// address.
type ServeOptions struct {
	// AllowRemote permits an address that other machines can reach.
	AllowRemote bool
	// CertFile and KeyFile, in PEM, enable TLS and HTTP/2. Empty means plain HTTP/1.1.
	CertFile, KeyFile string
	// OnListen is called with the address before the first connection is accepted. nil means no
	// call.
	OnListen func(net.Addr)
}

// Serve serves connections from l until ctx ends, and then shuts down, see [Handler.Shutdown]. It
// returns nil if nothing was cut off. It closes l in any case. The error wraps
// [httpserve.ErrRemoteAddress] if other machines can reach the address and
// ServeOptions.AllowRemote is not set.
//
// Only active streams have no deadline. Connections without a request are closed after two minutes,
// and there is a deadline for the head of a request, each piece of its body, and each write.
func (h *Handler) Serve(ctx context.Context, l net.Listener, o *ServeOptions) error {
	if o == nil {
		o = new(ServeOptions)
	}
	return httpserve.Serve(ctx, h.Listener(l), http.Handler(h), &httpserve.Options{
		AllowRemote: o.AllowRemote,
		CertFile:    o.CertFile, KeyFile: o.KeyFile,
		MaxHeader:     maxRequestHeader,
		HeaderTimeout: headerTimeout,
		WriteTimeout:  h.opts.WriteTimeout,
		OnListen:      o.OnListen,
		OnShutdown:    h.Shutdown,
		Logger:        h.opts.Logger,
	})
}

const (
	maxRequestHeader = 1 << 20          // bytes, as in net/http
	headerTimeout    = 20 * time.Second // for the head of a request
)
