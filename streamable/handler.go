package streamable

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Handler serves all revisions of the protocol at one URL. Make one with [NewHandler]. It may be used by many goroutines at once.
type Handler struct {
	srv      backend
	openPeer opener
	opts     Options
	access   *access
	inner    http.Handler // behind access
	modern   peer         // nil if the server speaks no modern revision
	legacy   []mcp.Revision
	plain    bool // it speaks a revision whose requests do not name it in a header
	instance string
	clock    clock
	events   EventStore
	inMemory bool // the events are, so that nothing waits for them
	limits   bool // srv wants to know the addresses of those who are nobody in particular
	sessions sessionTable
	sessioners,
	listeners callers // who has sessions, and streams
	exchanges sync.Pool // of *exchange; not for all handlers, because tests have clocks of their own

	active  atomic.Int64 // requests and streams
	streams atomic.Int64
	closing atomic.Bool
	closed  context.Context // ends when closing is set
	close   context.CancelFunc
	forced  context.Context // ends when what is under way is not waited for any more
	force   context.CancelFunc
	idle    chan struct{} // closed when nothing is active, after closing
	idling  sync.Once
}

// NewHandler returns a handler that brings what clients post to srv. opts may be nil; it is copied. It panics if Options.Hosts or Options.Origins hold what is
// no host or no origin. Shut it down in the end, see [Handler.Shutdown].
func NewHandler(srv Server, opts *Options) *Handler {
	var modern peer
	if c := srv.OpenStateless(); c != nil {
		modern = serverConn{c}
	}
	open := func(ctx context.Context, out jsonrpc.Outlet) (peer, func()) {
		c, end := srv.OpenSession(ctx, out)
		return serverConn{c}, end
	}
	return newHandler(srv, modern, open, opts)
}

func newHandler(srv backend, modern peer, open opener, opts *Options) *Handler {
	h := &Handler{srv: srv, modern: modern, openPeer: open, instance: rand.Text()[:8], idle: make(chan struct{}), clock: clock{time.Now()}}
	h.closed, h.close = context.WithCancel(context.Background())
	h.forced, h.force = context.WithCancel(context.Background())
	if opts != nil {
		h.opts = *opts
	}
	h.opts.setDefaults()
	var err error
	if h.access, err = newAccess(h.opts.Hosts, h.opts.Origins); err != nil {
		panic("streamable.NewHandler: " + err.Error())
	}
	for _, r := range srv.Revisions() {
		if !r.Modern() {
			h.legacy = append(h.legacy, r)
		}
	}
	h.plain = slices.Contains(h.legacy, mcp.Revision20241105) || slices.Contains(h.legacy, mcp.Revision20250326)
	h.limits = srv.OnBehalfOf(h.closed, "", "?", nil, nil) != h.closed
	if h.events = h.opts.Events; h.events == nil {
		h.events = NewMemoryEvents(nil)
	}
	_, h.inMemory = h.events.(*MemoryEvents)
	h.sessions.init(h)
	h.inner = h.guarded(h.serve)
	return h
}

// guarded returns a handler that the guard stands before, if there is one.
func (h *Handler) guarded(serve http.HandlerFunc) http.Handler {
	if h.opts.Guard == nil {
		return serve
	}
	return h.opts.Guard.Protect(serve)
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.access.admit(w, r) {
		h.inner.ServeHTTP(w, r)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if !h.enter(w, r) {
		return
	}
	goesOn := false
	defer func() {
		if !goesOn {
			h.leave()
		}
	}()
	switch r.Method {
	case http.MethodPost:
		goesOn = h.post(w, r)
	case http.MethodGet:
		goesOn = h.get(w, r)
	case http.MethodDelete:
		h.delete(w, r)
	default:
		h.notAllowed(w)
	}
}

// notAllowed answers a method that the endpoint does not have.
func (h *Handler) notAllowed(w http.ResponseWriter) {
	allow := "POST, GET, DELETE"
	if h.legacy == nil {
		allow = "POST"
	}
	w.Header().Set("Allow", allow)
	refuse(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, "this endpoint takes "+allow)
}

// Shutdown ends the standing streams and refuses further requests with status 503, waits until those under way have been answered, or ctx ends, and then ends
// the sessions. While it waits, clients may still answer what they were asked. The error is ctx's; the handlers of legacy requests are cancelled then, those of
// modern ones when their HTTP server is closed. It may be called more than once.
func (h *Handler) Shutdown(ctx context.Context) error {
	if !h.closing.Swap(true) {
		h.close()
		h.active.Add(1)
		h.leave() // if nothing was active, nobody else says so
	}
	ended := make(chan struct{})
	go func() { // it ends with ctx or the requests; after that it is waited for what handlers of notifications take, which is bounded
		defer close(ended)
		if h.modern != nil {
			h.modern.close()
		}
		select {
		case <-h.idle:
		case <-ctx.Done():
		}
		h.sessions.endAll()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	select {
	case <-h.idle:
		return nil
	default:
	}
	h.force()
	h.sessions.cancelAll()
	return ctx.Err()
}

// enter counts a request, or refuses it. Streams are none of those that are being handled.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request) bool {
	n := h.active.Add(1)
	switch {
	case h.closing.Load() && !(r.Method == http.MethodPost && r.Header[headerSession] != nil): // which may be the answer that a request waits for
		h.leave()
		w.Header()["Connection"] = closeConnection
		unavailable(w, "the server is shutting down")
		return false
	case n-h.streams.Load() > 2*int64(h.opts.MaxInFlight):
		h.leave()
		crowded(w)
		return false
	}
	return true
}

// takesRequests refuses a request, which has been counted, if no more are taken. Answers and cancellations are taken longer, so that what is under way can end.
func (h *Handler) takesRequests(w http.ResponseWriter) bool {
	switch {
	case h.closing.Load():
		unavailable(w, "the server is shutting down")
	case h.active.Load()-h.streams.Load() > int64(h.opts.MaxInFlight):
		crowded(w)
	default:
		return true
	}
	return false
}

func crowded(w http.ResponseWriter) { unavailable(w, "too many requests are being handled") }

// enterMore counts n more requests that came with one which has been counted, and reports false if that is too many.
func (h *Handler) enterMore(n int64) bool {
	if h.active.Add(n)-h.streams.Load() > int64(h.opts.MaxInFlight) {
		h.active.Add(-n)
		return false
	}
	return true
}

func (h *Handler) leave() {
	if h.active.Add(-1) == 0 && h.closing.Load() {
		h.idling.Do(func() { close(h.idle) })
	}
}

// retryAfter is what a client is asked to wait that was refused because there is too much going on, in seconds.
const retryAfter = "1"

func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", retryAfter)
	refuse(w, http.StatusServiceUnavailable, jsonrpc.CodeInternalError, "unavailable: "+why)
}

func tooMany(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", retryAfter)
	refuse(w, http.StatusTooManyRequests, jsonrpc.CodeInternalError, "too many: "+why)
}

// refuse answers with an error that belongs to no request.
func refuse(w http.ResponseWriter, status int, code jsonrpc.Code, message string) {
	refuseID(w, status, nil, &jsonrpc.Error{Code: code, Message: message})
}

// refuseID answers with an error. An empty id is left out.
func refuseID(w http.ResponseWriter, status int, id jsonrpc.ID, e *jsonrpc.Error) {
	body := append(jsonrpc.AppendError(nil, id, e, false), '\n')
	setHeader(w.Header(), jsonType)
	w.WriteHeader(status)
	w.Write(body)
}

var (
	// errGone is why a stream ends whose client does not read.
	errGone = errors.New("the client is gone")
	// errNoStream is why a question fails whose client could not be asked.
	errNoStream = errors.New("the client takes no stream that it could be asked by")
)

// Values of headers that are the same in many responses, so that they need not be made anew.
var (
	jsonType  = []string{"application/json"}
	sseType   = []string{"text/event-stream"}
	noStore   = []string{"no-store"}
	noBuffers = []string{"no"}
)

func setHeader(header http.Header, contentType []string) {
	header["Content-Type"] = contentType
	header["Cache-Control"] = noStore
}

// A clock tells the time by asking for what has passed since another, which takes half as long as to ask for the time of day as well. Its times are good for deadlines
// and for comparing them with each other.
type clock struct{ base time.Time }

// since returns what has passed since base.
func (c clock) since() time.Duration { return time.Since(c.base) }

// now returns the time.
func (c clock) now() time.Time { return c.base.Add(c.since()) }
