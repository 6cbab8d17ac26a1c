package streamable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	forwards bool // it is a relay's, which gets messages as they are
	instance string
	clock    clock
	events   EventStore
	memory   *MemoryEvents // that events are; nil if it is another store, which can fail, and take its time
	limits   bool          // srv wants to know the addresses of those who are nobody in particular
	sessions sessionTable
	callers  callerTable
	unread   unreadBudget
	sessioners,
	listeners callers // who has sessions, and streams
	exchanges sync.Pool // of *exchange; not for all handlers, because tests have clocks of their own

	active      atomic.Int64 // requests and streams
	streams     atomic.Int64
	requests    atomic.Int64  // that were admitted
	limited     atomic.Uint64 // requests that were rejected because of what their caller had in flight
	unresumable atomic.Uint64 // streams that the store of events has not taken all of
	storeDown   atomic.Int64  // until when the store of events is not asked to keep any, by the clock
	overloaded  atomic.Uint64 // those because of what was in flight in all
	closing     atomic.Bool
	cutting     atomic.Bool     // what is in flight is not waited for any longer
	closed      context.Context // ends when closing is set
	close       context.CancelFunc
	forced      context.Context // ends when running requests are no longer waited for
	force       context.CancelFunc
	idle        chan struct{} // closed when nothing is active, after closing
	idling      sync.Once
}

// NewHandler returns a handler that brings what clients post to srv. opts may be nil; it is copied. It panics if Options.Hosts or Options.Origins hold what is
// no host or no origin. Shut it down in the end, see [Handler.Shutdown].
func NewHandler(srv Server, opts *Options) *Handler {
	var modern peer
	if c := srv.OpenStateless(); c != nil {
		modern = serverConn{c}
	}
	var h *Handler
	var opened atomic.Int64
	open := func(ctx context.Context, out jsonrpc.Outlet) (peer, func()) {
		c, end := srv.OpenSession(ctx, out)
		if h.opts.Sessions != nil { // what another process has asked in the session may be answered here
			c.SetCallPrefix(fmt.Sprintf("%s.%d", h.instance, opened.Add(1)))
		}
		return serverConn{c}, end
	}
	h = newHandler(srv, modern, open, opts)
	return h
}

func newHandler(srv backend, modern peer, open opener, opts *Options) *Handler {
	h := &Handler{srv: srv, modern: modern, openPeer: open, instance: rand.Text()[:8], idle: make(chan struct{}), clock: clock{time.Now()}}
	h.closed, h.close = context.WithCancel(context.Background())
	h.forced, h.force = context.WithCancel(context.Background())
	if opts != nil {
		h.opts = *opts
	}
	h.opts.setDefaults()
	h.callers.init()
	h.unread.max = h.opts.MaxUnread
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
	h.memory, _ = h.events.(*MemoryEvents)
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
	if r.Method == http.MethodPost {
		h.servePost(w, r)
		return
	}
	from := askerOf(w, r)
	c, _, ok := h.enter(w, r, from, nil, nil)
	if !ok {
		return
	}
	goesOn := false
	defer func() {
		if !goesOn {
			h.leave(c, nil)
		}
	}()
	switch r.Method {
	case http.MethodGet:
		goesOn = h.get(w, r, from, c)
	case http.MethodDelete:
		h.delete(w, r, from, c)
	default:
		h.notAllowed(w, h.legacy == nil || h.asksModern(r, from))
	}
}

// asksModern reports whether a GET or DELETE is of the modern era, which has neither: it has no
// session, and the version of a modern client.
func (h *Handler) asksModern(r *http.Request, from asker) bool {
	if h.modern == nil || r.Header[headerSession] != nil || len(from.versions) != 1 {
		return false
	}
	revision, ok := mcp.ParseRevision(from.versions[0])
	return revision.Modern() || !ok
}

// notAllowed answers a method that the endpoint does not have. modern says that it is asked as one
// of the modern era.
func (h *Handler) notAllowed(w http.ResponseWriter, modern bool) {
	allow := "POST, GET, DELETE"
	if modern {
		allow = "POST"
	}
	w.Header().Set("Allow", allow)
	refuse(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, "this endpoint takes "+allow)
}

// Shutdown ends the standing streams and refuses further requests with status 503, waits until those under way have been answered, or ctx ends, and then ends
// the sessions. While it waits, clients may still answer what they were asked. If ctx ends first, the
// requests under way are answered with an error, of status 503 if their response has not begun, and
// the error is ctx's; the handlers of legacy requests are cancelled then, those of
// modern ones when their HTTP server is closed. It may be called more than once.
func (h *Handler) Shutdown(ctx context.Context) error {
	if !h.closing.Swap(true) {
		h.close()
		h.active.Add(1)
		h.finished() // if nothing was active, nobody else says so
	}
	ended := make(chan struct{})
	cut := make(chan struct{})
	go func() { // it ends with ctx or the requests; after that it is waited for what handlers of notifications take, which is bounded
		defer close(ended)
		if h.modern != nil {
			h.modern.close()
		}
		select {
		case <-h.idle:
		case <-cut:
		}
		h.sessions.endAll()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	defer close(cut)
	select {
	case <-h.idle:
		return nil
	default:
	}
	h.cutOff()
	h.force()
	h.sessions.cancelAll()
	return ctx.Err()
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

// Stats are counts of a [Handler].
type Stats struct {
	InFlight int // requests being handled
	Streams  int // standing streams
	Sessions int // of legacy clients

	Limited     uint64 // requests that were rejected with status 429 because of what their caller had in flight
	Overloaded  uint64 // requests that were rejected with status 503 because of what was in flight in all
	Unresumable uint64 // streams that cannot be resumed because the EventStore failed
}

// Stats returns the counts of now, and of all that was rejected since the handler was made.
func (h *Handler) Stats() Stats {
	return Stats{
		InFlight: int(h.requests.Load()), Streams: int(h.streams.Load()), Sessions: int(h.sessions.count.Load()),
		Limited: h.limited.Load(), Overloaded: h.overloaded.Load(), Unresumable: h.unresumable.Load(),
	}
}
