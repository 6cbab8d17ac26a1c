package streamable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Server is what a [Handler] brings messages to. *server.Server is one; its documentation says what the methods do.
type Server interface {
	Revisions() []mcp.Revision
	WithIdentity(ctx context.Context, id, address string, scopes []string, claims any) context.Context
	OpenStateless() *jsonrpc.Conn
	OpenSession(ctx context.Context, out jsonrpc.Sender) (c *jsonrpc.Conn, end func())
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// Options are the options of [NewHandler]. The zero value is ready to use, and what nil means: safe on a developer's machine, where web pages must not reach
// the server.
type Options struct {
	// Hosts are the names and addresses, with or without a port, under which the server is reached besides localhost and the loopback addresses. Requests
	// with another Host header are refused, because a page whose name points at this machine (DNS rebinding) sends that name.
	Hosts []string
	// Origins are those of web pages that may use the server, such as https://app.example.com; they get CORS headers. Pages of the server's own
	// origin may; others, and all with the origin "null", are refused. "*" is no origin here.
	Origins []string
	// Guard lets in who has a good token, see package auth; nil lets in everyone who comes by an allowed host and origin. It stands here, and not around the
	// Handler, because what browsers ask before a request has no token. Serve its [auth.Guard.Metadata] at its [auth.Guard.MetadataPaths].
	Guard *auth.Guard
	// Scopes says which scopes a request needs, by its method and by the tool, prompt, URI or task that it is about; nil is none. A caller without them gets the
	// 403 that makes clients ask for more. It is asked for each request of each revision, after the Guard has let the caller in.
	Scopes func(method, name string) []string

	MaxBody      int           // bytes of a request's body; 0 is 4 MiB
	BodyTimeout  time.Duration // for a request's body to arrive; 0 is 30 s
	WriteTimeout time.Duration // for a client to take each 64 KiB of what is written; 0 is 10 s
	KeepAlive    time.Duration // between signs of life on a stream, and until a slow answer becomes a stream; 0 is 15 s
	MaxInFlight  int           // requests being handled at once, without streams; 0 is 4096. As many answers, notifications and DELETEs besides
	// MaxInFlightPerCaller limits the requests of one principal, or of one network address where
	// there is none, that are handled at once; as many answers and notifications besides. Zero means
	// 512, twice what a client of [Dial] sends at once. A caller that has it is answered with status
	// 429; so is the one with the most in flight when MaxInFlight is nearly reached, before others
	// are answered with 503.
	MaxInFlightPerCaller int
	// ClientAddr returns the address that a request comes from, for the limits by caller. Behind a
	// proxy it has to take it from what the proxy says, see [ForwardedFor]; give the Guard the same.
	// Nil, and an invalid address, mean that of the connection: all clients behind one proxy are one
	// caller then.
	ClientAddr func(*http.Request) netip.Addr

	// MaxUnread limits the bytes of answers that clients have not taken yet, not counting answers of up
	// to 64 KiB; zero means 256 MiB. One caller may have a quarter of it, and is answered with 429 while
	// it has. An answer that finds no room for 3 s is dropped, and its request fails with status 500.
	MaxUnread int

	MaxStreams   int // standing streams at once: subscriptions/listen, GET, bodies of lines; 0 is 10,000
	MaxPerCaller int // streams, and as many sessions, of one principal, or of one network address (IPv6: /64) where there is none; 0 is 1000
	MaxSessions  int // of legacy clients at once; 0 is 10,000
	// SessionTimeout is after which a session ends that has neither a stream nor a request, or up to
	// 30 s later. Zero means 30 min. One whose client has not sent notifications/initialized ends
	// after 30 s.
	SessionTimeout time.Duration
	// AbandonTimeout is after which a session ends whose client has gone, and has neither a stream nor
	// sends anything, though requests of it are still being handled; they are canceled. Zero means
	// 10 min.
	AbandonTimeout time.Duration
	StreamAlways   bool // answer requests by event streams whenever the client takes them, even if nothing precedes the result

	Events   EventStore    // of legacy streams, for clients that resume one; nil keeps them in memory
	Sessions SessionStore  // lets another process take a legacy session over; nil does not
	Retry    time.Duration // that legacy clients are asked to wait before they resume a stream; 0 is 1 s

	NDJSON bool // also take bodies of application/x-ndjson: any number of messages, answered in one body of lines as they come

	Logger *slog.Logger // nil discards
}

func (o *Options) setDefaults() {
	setDefault(&o.MaxBody, 4<<20)
	setDefault(&o.BodyTimeout, 30*time.Second)
	setDefault(&o.WriteTimeout, 10*time.Second)
	setDefault(&o.KeepAlive, 15*time.Second)
	setDefault(&o.MaxInFlight, 4096)
	setDefault(&o.MaxInFlightPerCaller, 512)
	setDefault(&o.MaxUnread, 256<<20)
	setDefault(&o.MaxStreams, 10_000)
	setDefault(&o.MaxPerCaller, 1000)
	setDefault(&o.MaxSessions, 10_000)
	setDefault(&o.SessionTimeout, 30*time.Minute)
	setDefault(&o.AbandonTimeout, 10*time.Minute)
	setDefault(&o.Retry, time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

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

// MustHandler is [NewHandler] for options that are known to be valid: it panics instead of returning
// an error.
func MustHandler(srv Server, opts *Options) *Handler {
	h, err := NewHandler(srv, opts)
	if err != nil {
		panic(err)
	}
	return h
}

// NewHandler returns a handler that passes the messages of HTTP clients to srv. opts may be nil;
// NewHandler copies it. The error says which entry of Options.Hosts or Options.Origins is invalid.
// Shut the handler down in the end, see [Handler.Shutdown].
func NewHandler(srv Server, opts *Options) (*Handler, error) {
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
	h, err := newHandler(srv, modern, open, opts)
	return h, err
}

func newHandler(srv backend, modern peer, open openFunc, opts *Options) (*Handler, error) {
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
		return nil, fmt.Errorf("streamable: %w", err)
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
	return h, nil
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
