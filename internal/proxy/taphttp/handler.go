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
	"mcpwire/streamable"
)

// A Handler forwards requests to one server and records what goes either way. Make one with [New]. It may be used by many goroutines at once.
type Handler struct {
	upstream  *url.URL // scheme and host are those of the server
	opts      Options
	rec       recorder
	access    access
	sessions  sessions
	budget    budget
	transport *http.Transport

	exchanges atomic.Uint64 // the number of the last

	mu      sync.Mutex
	closing bool
	active  map[*exchange]struct{}
	idle    chan struct{} // closed when closing, and active is empty
}

// New returns a handler that forwards to the origin of upstream whatever comes, and records it with rec, which stays the caller's to close, after
// [Handler.Shutdown]. The path of upstream only says which path is the MCP endpoint. rec may be nil: then events go to [Options.Observe] alone. opts may be
// nil; it is copied.
//
// The error says what is wrong with the URL or the options.
func New(upstream *url.URL, rec *capture.Writer, opts *Options) (*Handler, error) {
	switch {
	case upstream.Scheme != "http" && upstream.Scheme != "https":
		return nil, fmt.Errorf("taphttp: %.100q has neither http nor https", upstream.Redacted())
	case upstream.Hostname() == "":
		return nil, fmt.Errorf("taphttp: %.100q names no host", upstream.Redacted())
	case upstream.User != nil:
		return nil, errors.New("taphttp: the URL has credentials in it, which would not be used: requests have those of the client")
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
	return h, nil
}

// Listener returns a listener whose connections the handler recognises: it then knows which requests came on the same one, and the order and the
// spelling of their headers. [Handler.Serve] does this itself.
func (h *Handler) Listener(l net.Listener) net.Listener { return listener{l} }

// Why an exchange did not end by itself; these are the causes of its context.
var (
	errClientGone = errors.New("client closed")
	errShutdown   = errors.New("tap shut down")
	errSlowReader = errors.New("the client did not read on")
)

// ServeHTTP implements [http.Handler]. It panics with [http.ErrAbortHandler] when a response breaks off, so that the client sees that it is not whole.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := h.newExchange(w, r)
	defer x.finish()
	x.recordRequest()
	switch full, closing := h.admit(x); {
	case closing:
		x.refuse(http.StatusServiceUnavailable, "the tap is shutting down")
	case full:
		x.refuse(http.StatusServiceUnavailable, "too many exchanges are under way")
	case !h.access.allows(r.Host):
		x.refuse(http.StatusForbidden, "the Host header names neither localhost nor a host that the tap was told to allow: a web page may have sent this")
	case upgrades(r):
		x.refuse(http.StatusNotImplemented, "the tap does not forward WebSocket and other protocols than HTTP")
	default:
		x.forward()
	}
}

// newExchange numbers an exchange.
func (h *Handler) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{h: h, w: w, r: r, rc: http.NewResponseController(w), number: h.exchanges.Add(1), conn: connOf(r)}
	if x.conn != nil {
		x.connNumber = &x.conn.number
	}
	x.ctx, x.cancel = context.WithCancelCause(r.Context())
	x.isEndpoint = r.URL.Path == h.upstream.Path || strings.TrimSuffix(r.URL.Path, "/") == strings.TrimSuffix(h.upstream.Path, "/")
	h.sessions.assign(x, r)
	return x
}

// admit counts an exchange among those under way.
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

// Shutdown refuses further requests with status 503, ends standing streams at once and what else is under way after [Options.Grace], or when ctx ends, and
// waits until all of it has been recorded. Responses that had not ended break off. It may be called more than once, and returns nil, or the cause of ctx's end.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	if !h.closing {
		h.closing = true
		if len(h.active) == 0 {
			close(h.idle)
		}
	}
	for x := range h.active {
		if x.standing() {
			x.abortLocked()
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
		x.abortLocked()
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
	// TLS configures TLS to the server. It is copied. nil is crypto/tls's default.
	TLS *tls.Config
	// NoHTTP2 keeps to HTTP/1.1 where the server would speak HTTP/2, which it is asked for over TLS only.
	NoHTTP2 bool
	// Dial connects to the server, or to the proxy that the environment names. nil is a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Hosts are names under which clients may reach the tap, besides localhost and all addresses. A "*" stands for any: then pages of other sites can reach the
	// server through the tap under a name of theirs (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#security-warning).
	Hosts []string
	// Origin is put in the place of an Origin header that a request has; "drop" removes it. "" passes it on, so that the server can judge it, as it does in any case
	// with those of pages that are neither of this machine nor of Hosts: they could otherwise use the server through the tap.
	Origin string

	MaxBody      int   // bytes of a body, or of an event, that are recorded in one piece, and of a request's that are read before the server gets any; 0 is 64 MiB
	MaxBuffered  int64 // bytes of all of them at once: what does not fit is recorded in parts, or cut; 0 is 512 MiB
	MaxHeader    int64 // bytes of a response's header; 0 is 1 MiB
	MaxExchanges int   // under way at once; more are refused with status 503; 0 is 2048

	BodyTimeout  time.Duration // without a byte of a request's body; 0 is 2 min
	WriteTimeout time.Duration // for a client to take 32 KiB of a response; 0 is 5 min
	Grace        time.Duration // for requests to be answered after Shutdown was called; 0 is 2 s. Standing streams have none

	// Observe is called with each event before the bytes are forwarded, in the order of the numbers, by one goroutine at a time. The event, whose N and T are set, and its
	// Data are good until it returns. All exchanges wait for it.
	Observe func(*capture.Event)

	Logger *slog.Logger // for what goes wrong at the tap; nil discards
}

func setDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// withDefaults returns a copy that is complete.
func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	setDefault(&opts.MaxBody, 64<<20)
	setDefault(&opts.MaxBuffered, 512<<20)
	setDefault(&opts.MaxHeader, 1<<20)
	setDefault(&opts.MaxExchanges, 2048)
	setDefault(&opts.BodyTimeout, 2*time.Minute)
	setDefault(&opts.WriteTimeout, 5*time.Minute)
	setDefault(&opts.Grace, 2*time.Second)
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}

// ServeOptions are the options of [Handler.Serve]. nil means defaults: HTTP/1.1 on this machine's loopback.
type ServeOptions struct {
	// AllowRemote permits an address that other machines reach.
	AllowRemote bool
	// CertFile and KeyFile, in PEM, turn TLS on, and HTTP/2 with it.
	CertFile, KeyFile string
	// OnListen is called with the address before the first connection is accepted.
	OnListen func(net.Addr)
}

// Serve taps what comes by l until ctx ends, and then shuts down: see [Handler.Shutdown]. It returns nil if nothing had to be cut off. l is closed in any
// case. The error wraps [streamable.ErrRemoteAddress] for an address that other machines reach, without ServeOptions.AllowRemote.
//
// What has no deadline is a stream that goes on: connections without a request are closed after two minutes, and there is one for the head of a
// request, for each piece of its body, and for each write.
func (h *Handler) Serve(ctx context.Context, l net.Listener, o *ServeOptions) error {
	if o == nil {
		o = new(ServeOptions)
	}
	return streamable.Serve(ctx, h.Listener(l), http.Handler(h), &streamable.ServeOptions{
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
	maxRequestHeader = 1 << 20          // bytes, as net/http has it
	headerTimeout    = 20 * time.Second // for the head of a request
)
