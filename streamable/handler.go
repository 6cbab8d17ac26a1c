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
	srv                   backend
	openPeer              openFunc
	opts                  Options
	access                *accessPolicy
	protected             http.Handler // behind access
	modern                peer         // nil if the server speaks no modern revision
	legacy                []mcp.Revision
	versionHeaderOptional bool // it speaks a revision whose requests do not name it in a header
	isRelay               bool // it is a relay's, which gets messages as they are
	instance              string
	clock                 clock
	events                EventStore
	memoryEvents          *MemoryEvents // that events are; nil if it is another store, which can fail, and take its time
	needsAddress          bool          // srv wants to know the addresses of those who are nobody in particular
	sessions              sessionTable
	callers               callerTable
	unread                unreadBudget
	sessionsPerCaller,
	streamsPerCaller callerCounts // who has sessions, and streams
	posts sync.Pool // of *exchange; not for all handlers, because tests have clocks of their own

	active         atomic.Int64 // requests and streams
	streams        atomic.Int64
	requests       atomic.Int64  // that were admitted
	rateLimited    atomic.Uint64 // requests that were rejected because of what their caller had in flight
	unresumable    atomic.Uint64 // streams that the store of events has not taken all of
	storeDownUntil atomic.Int64  // until when the store of events is not asked to keep any, by the clock
	overloaded     atomic.Uint64 // those because of what was in flight in all
	closing        atomic.Bool
	aborting       atomic.Bool     // what is in flight is not waited for any longer
	closed         context.Context // ends when closing is set
	close          context.CancelFunc
	forced         context.Context // ends when running requests are no longer waited for
	force          context.CancelFunc
	idle           chan struct{} // closed when nothing is active, after closing
	idleOnce       sync.Once
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
	open := func(ctx context.Context, out jsonrpc.Sender) (peer, func()) {
		c, end := srv.OpenSession(ctx, out)
		if h.opts.Sessions != nil { // what another process has asked in the session may be answered here
			c.SetCallPrefix(fmt.Sprintf("%s.%d", h.instance, opened.Add(1)))
		}
		return serverConn{c}, end
	}
	h = newHandler(srv, modern, open, opts)
	return h
}

func newHandler(srv backend, modern peer, open openFunc, opts *Options) *Handler {
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
	if h.access, err = newAccessPolicy(h.opts.Hosts, h.opts.Origins); err != nil {
		panic("streamable.NewHandler: " + err.Error())
	}
	for _, r := range srv.Revisions() {
		if !r.Modern() {
			h.legacy = append(h.legacy, r)
		}
	}
	h.versionHeaderOptional = slices.Contains(h.legacy, mcp.Revision20241105) || slices.Contains(h.legacy, mcp.Revision20250326)
	h.needsAddress = srv.WithIdentity(h.closed, "", "?", nil, nil) != h.closed
	if h.events = h.opts.Events; h.events == nil {
		h.events = NewMemoryEvents(nil)
	}
	h.memoryEvents, _ = h.events.(*MemoryEvents)
	h.sessions.init(h)
	h.protected = h.protect(h.serve)
	return h
}

// protect returns a handler that the guard stands before, if there is one.
func (h *Handler) protect(serve http.HandlerFunc) http.Handler {
	if h.opts.Guard == nil {
		return serve
	}
	return h.opts.Guard.Protect(serve)
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.access.check(w, r) {
		h.protected.ServeHTTP(w, r)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		h.servePost(w, r)
		return
	}
	from := requesterOf(w, r)
	c, _, ok := h.admitHTTP(w, r, from, nil, nil)
	if !ok {
		return
	}
	detached := false
	defer func() {
		if !detached {
			h.releaseHTTP(c, nil)
		}
	}()
	switch r.Method {
	case http.MethodGet:
		detached = h.serveGet(w, r, from, c)
	case http.MethodDelete:
		h.serveDelete(w, r, from, c)
	default:
		h.writeMethodNotAllowed(w, h.legacy == nil || h.isModern(r, from))
	}
}

// isModern reports whether a GET or DELETE is of the modern era, which has neither: it has no
// session, and the version of a modern client.
func (h *Handler) isModern(r *http.Request, from requester) bool {
	if h.modern == nil || r.Header[headerSession] != nil || len(from.versions) != 1 {
		return false
	}
	revision, ok := mcp.ParseRevision(from.versions[0])
	return revision.Modern() || !ok
}

// writeMethodNotAllowed answers a method that the endpoint does not have. modern says that it is asked as one
// of the modern era.
func (h *Handler) writeMethodNotAllowed(w http.ResponseWriter, modern bool) {
	allow := "POST, GET, DELETE"
	if modern {
		allow = "POST"
	}
	w.Header().Set("Allow", allow)
	writeError(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, "this endpoint takes "+allow)
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
		h.requestDone() // if nothing was active, nobody else says so
	}
	ended := make(chan struct{})
	aborted := make(chan struct{})
	go func() { // it ends with ctx or the requests; after that it is waited for what handlers of notifications take, which is bounded
		defer close(ended)
		if h.modern != nil {
			h.modern.close()
		}
		select {
		case <-h.idle:
		case <-aborted:
		}
		h.sessions.endAll()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	defer close(aborted)
	select {
	case <-h.idle:
		return nil
	default:
	}
	h.abortRequests()
	h.force()
	h.sessions.cancelAll()
	return ctx.Err()
}

// retryAfter is what a client is asked to wait that was refused because there is too much going on, in seconds.
const retryAfter = "1"

func writeUnavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", retryAfter)
	writeError(w, http.StatusServiceUnavailable, jsonrpc.CodeInternalError, "unavailable: "+why)
}

func writeRateLimited(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", retryAfter)
	writeError(w, http.StatusTooManyRequests, jsonrpc.CodeInternalError, "too many: "+why)
}

// writeError answers with an error that belongs to no request.
func writeError(w http.ResponseWriter, status int, code jsonrpc.Code, message string) {
	writeErrorID(w, status, nil, &jsonrpc.Error{Code: code, Message: message})
}

// writeErrorID answers with an error. An empty id is left out.
func writeErrorID(w http.ResponseWriter, status int, id jsonrpc.ID, e *jsonrpc.Error) {
	body := append(jsonrpc.AppendError(nil, id, e, false), '\n')
	setHeader(w.Header(), jsonType)
	w.WriteHeader(status)
	w.Write(body)
}

var (
	// errClientGone is why a stream ends whose client does not read.
	errClientGone = errors.New("the client is gone")
	// errClientTakesNoStream is why a question fails whose client could not be asked.
	errClientTakesNoStream = errors.New("the client takes no stream that it could be asked by")
)

// Values of headers that are the same in many responses, so that they need not be made anew.
var (
	jsonType    = []string{"application/json"}
	sseType     = []string{"text/event-stream"}
	noStore     = []string{"no-store"}
	noBuffering = []string{"no"}
)

func setHeader(header http.Header, contentType []string) {
	header["Content-Type"] = contentType
	header["Cache-Control"] = noStore
}

// A clock tells the time by asking for what has passed since another, which takes half as long as to ask for the time of day as well. Its times are good for deadlines
// and for comparing them with each other.
type clock struct{ base time.Time }

// elapsed returns what has passed since base.
func (c clock) elapsed() time.Duration { return time.Since(c.base) }

// now returns the time.
func (c clock) now() time.Time { return c.base.Add(c.elapsed()) }

// Stats are counts of a [Handler].
type Stats struct {
	InFlight int // requests being handled
	Streams  int // standing streams
	Sessions int // of legacy clients

	RateLimited uint64 // requests that were rejected with status 429 because of what their caller had in flight
	Overloaded  uint64 // requests that were rejected with status 503 because of what was in flight in all
	Unresumable uint64 // streams that cannot be resumed because the EventStore failed
}

// Stats returns the counts of now, and of all that was rejected since the handler was made.
func (h *Handler) Stats() Stats {
	return Stats{
		InFlight: int(h.requests.Load()), Streams: int(h.streams.Load()), Sessions: int(h.sessions.count.Load()),
		RateLimited: h.rateLimited.Load(), Overloaded: h.overloaded.Load(), Unresumable: h.unresumable.Load(),
	}
}
