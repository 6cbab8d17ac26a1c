package taphttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
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
