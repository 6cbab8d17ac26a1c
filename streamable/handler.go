package streamable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/backend"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Server handles the messages that a [Handler] receives. It is a *server.Server, or a type that
// embeds one. The Handler calls Serve for plain lines only, see [Options.NDJSON]; it gets all other
// messages to the embedded server.
type Server interface {
	backend.Server
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// Options are the options of [NewHandler]. The zero value, like nil, is safe on a developer's
// machine, where web pages must not reach the server.
type Options struct {
	// Hosts lists names and addresses under which clients reach the server, with or without a port,
	// in addition to localhost and the loopback addresses. Requests with another Host header are
	// rejected: a page whose name resolves to this machine (DNS rebinding) sends that name.
	Hosts []string
	// Origins lists the origins of web pages that may use the server, such as
	// https://app.example.com; they get CORS headers. Pages of the server's own origin are always
	// allowed. Others, and the origin "null", are rejected. The entry "*" is invalid: see
	// AnyOrigin.
	Origins []string
	// AnyOrigin lets web pages of all origins use the server, for public servers with clients in
	// browsers. It needs a Guard: a page must then have a token, which browsers do not add by
	// themselves as they do cookies. Hosts still applies.
	AnyOrigin bool
	// Guard accepts requests that have a valid token, see package auth. Nil accepts every request
	// with an allowed host and origin. Set the guard here, not around the Handler, because a
	// browser's preflight request has no token. Serve its [auth.Guard.Metadata] at its
	// [auth.Guard.MetadataPaths].
	Guard *auth.Guard
	// Scopes returns the scopes that a request needs, given its method and the tool, prompt, URI or
	// task that it names. A caller without them gets status 403, which makes clients request more.
	// The Handler calls it for each request of each revision, after the Guard. Nil requires no
	// scopes. A handler can also return the error of [auth.Require], with the same effect if the
	// response has not begun.
	Scopes func(method, name string) []string

	// Limits bounds what clients may use.
	Limits Limits
	// Timeouts limits how long the Handler waits for clients.
	Timeouts Timeouts
	// ClientAddr returns the address that a request comes from, for the limits by caller. Behind a
	// proxy it must read the proxy's headers, see [ForwardedFor]; give the Guard the same function.
	// If it is nil or returns an invalid address, the address of the connection counts, and all
	// clients behind one proxy are one caller.
	ClientAddr func(*http.Request) netip.Addr

	// StreamAlways makes each response an event stream if the client accepts one, even if nothing
	// precedes the result.
	StreamAlways bool

	// Events keeps the events of legacy streams, for clients that resume one. Nil keeps them in
	// memory.
	Events EventStore
	// Sessions stores legacy sessions, so that another process can take one over, and a DELETE or a
	// log level at one process counts at all. If the server has StateKeys, the id of a session
	// contains, sealed with them, what another process needs to take it over. Its processes then
	// share sessions even if Sessions is nil, but what a client sets or ends at one process has no
	// effect at others, and a session whose id would exceed 1 KiB is not shared. Nil without
	// StateKeys means that each process has its own sessions.
	Sessions SessionStore
	// Nodes connects the processes that share sessions, so that responses to input requests and
	// cancellations reach the process that they are for. Nil means that the client must send them
	// to that process; others refuse a response with status 400. It needs Sessions or StateKeys.
	Nodes Nodes
	// Retry is the delay that legacy clients are asked to wait before they resume a stream. Zero
	// means 1 s.
	Retry time.Duration

	// NDJSON also accepts bodies of type application/x-ndjson: any number of messages, with the
	// responses as lines of one body as soon as they are ready.
	NDJSON bool

	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

// Limits bounds what the clients of a [Handler] may use.
type Limits struct {
	// MaxBody limits a request's body, in bytes. Zero means 4 MiB.
	MaxBody int
	// MaxInFlight limits the requests that are handled at once, without streams. Zero means 4096.
	// With responses, notifications, GETs and DELETEs, at most twice as many are.
	MaxInFlight int
	// MaxInFlightPerCaller limits the requests of one principal, or of one network address for
	// anonymous requests, that are handled at once. With responses and notifications, at most twice
	// as many are. Zero means 512, twice what a client of [NewTransport] sends at once. A caller
	// beyond it gets status 429. When MaxInFlight is nearly reached, the callers with the most
	// requests get 429 before others get 503.
	MaxInFlightPerCaller int
	// MaxUnread limits the bytes of responses that clients have not read yet. Responses of up to 64
	// KiB do not count. Zero means 256 MiB. One caller may use a fifth of it, and gets status 429
	// beyond that. Another fifth is for responses that wait for room. One that doesn't fit within 3
	// s, or for which there is no room to wait, is dropped, and its request fails with status 500.
	MaxUnread int
	// MaxStreams limits the standing streams: subscriptions/listen, GET, NDJSON bodies. Zero means
	// 10,000.
	MaxStreams int
	// MaxPerCaller limits the streams, and separately the sessions, of one principal, or of one
	// network address (IPv6: /64) for anonymous requests. Zero means 1000.
	MaxPerCaller int
	// MaxSessions limits the sessions of legacy clients. Zero means 10,000.
	MaxSessions int
}

// Timeouts limit how long a [Handler] waits for its clients.
type Timeouts struct {
	// Body limits the time in which a request's body must arrive. Zero means 30 s.
	Body time.Duration
	// Write limits the time in which a client must read each 64 KiB. Zero means 10 s.
	Write time.Duration
	// KeepAlive is the interval between keep-alive comments on a stream, and the time after which a
	// pending response becomes a stream. Zero means 15 s.
	KeepAlive time.Duration
	// Session is the idle time after which a session without a stream or a request expires. The
	// session may live up to 30 s longer. Zero means 30 min. A session whose client has not sent
	// notifications/initialized expires after 30 s.
	Session time.Duration
	// Lifetime limits how long a session with a sealed id exists, see [Options].Sessions. Zero
	// means 24 h.
	Lifetime time.Duration
	// Abandon is the time after which the session of a client that is gone expires, though requests
	// are still being handled. A client is gone if it has no stream and sends nothing. The requests
	// are canceled. Zero means 10 min.
	Abandon time.Duration
}

func (o *Options) setDefaults() {
	defaults.IfNotPositive(&o.Limits.MaxBody, 4<<20)
	defaults.IfNotPositive(&o.Timeouts.Body, 30*time.Second)
	defaults.IfNotPositive(&o.Timeouts.Write, 10*time.Second)
	defaults.IfNotPositive(&o.Timeouts.KeepAlive, 15*time.Second)
	defaults.IfNotPositive(&o.Limits.MaxInFlight, 4096)
	defaults.IfNotPositive(&o.Limits.MaxInFlightPerCaller, 512)
	defaults.IfNotPositive(&o.Limits.MaxUnread, 256<<20)
	defaults.IfNotPositive(&o.Limits.MaxStreams, 10_000)
	defaults.IfNotPositive(&o.Limits.MaxPerCaller, 1000)
	defaults.IfNotPositive(&o.Limits.MaxSessions, 10_000)
	defaults.IfNotPositive(&o.Timeouts.Session, 30*time.Minute)
	defaults.IfNotPositive(&o.Timeouts.Lifetime, 24*time.Hour)
	defaults.IfNotPositive(&o.Timeouts.Abandon, 10*time.Minute)
	defaults.IfNotPositive(&o.Retry, time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Handler serves all revisions of the protocol at one URL. Make one with [NewHandler]. It is safe
// for concurrent use.
type Handler struct {
	srv Server
	// backend is of srv.
	backend  handlerBackend
	openPeer openFunc
	opts     Options
	access   *accessPolicy
	// protected serves requests that access and the guard accept.
	protected http.Handler
	// modern is nil if the server speaks no modern revision.
	modern peer
	legacy []mcp.Revision
	// versionHeaderOptional means that the server speaks a revision without a version header.
	versionHeaderOptional bool
	// isRelay means that the handler serves a relay, which gets messages unchanged.
	isRelay  bool
	instance string
	clock    clock
	events   EventStore
	// memoryEvents is events if that is a memoryEvents. It is nil for another store, which can fail
	// and be slow.
	memoryEvents *memoryEvents
	// needsAddress means that srv wants the addresses of anonymous callers.
	needsAddress bool
	sessions     sessionTable
	// followers are the goroutines that make sessions follow their records.
	followers wait.Group
	// forwarder is nil without Options.Nodes.
	forwarder *forwarder
	// sealer is nil if the ids of sessions are not sealed.
	sealer    *idSealer
	admission admission
	// posts pools *postRequest. It is per handler because tests have their own clocks.
	posts sync.Pool

	// unresumable counts streams that the event store has not kept completely.
	unresumable atomic.Uint64
	// degraded is the number of pending ones of these.
	degraded atomic.Int64
	// forwarded counts messages that were sent to other nodes.
	forwarded atomic.Uint64
	// unforwarded counts messages that did not reach the node that they are for.
	unforwarded atomic.Uint64
	// storeDownUntil is the clock's time until which no event is stored.
	storeDownUntil atomic.Int64
	// soleRequester means that no other process passes on the response to a request, though another
	// may get it, and that the log does not say so yet.
	soleRequester atomic.Bool
	// unflushed is done when the log says that a ResponseWriter cannot flush.
	unflushed sync.Once
	// closed ends when Shutdown is called.
	closed context.Context
	close  context.CancelFunc
	// forced ends when Shutdown no longer waits for requests.
	forced context.Context
	force  context.CancelFunc
}

// MustHandler is [NewHandler] for options that are known to be valid. It panics if NewHandler
// returns an error.
func MustHandler(srv Server, opts *Options) *Handler {
	h, err := NewHandler(srv, opts)
	if err != nil {
		panic(err)
	}
	return h
}

// NewHandler returns a handler that passes the messages of HTTP clients to srv. opts may be nil;
// NewHandler copies it. The error says which entry of Options.Hosts or Options.Origins is invalid,
// that Options.AnyOrigin lacks a guard, or that Options.Nodes failed. Shut the handler down in the
// end, see [Handler.Shutdown].
func NewHandler(srv Server, opts *Options) (*Handler, error) {
	if r, ok := srv.(*relay.Server); ok {
		return newRelayHandler(r, opts)
	}
	b := backend.Of(srv)
	var modern peer
	if c := b.OpenStateless(); c != nil {
		modern = serverConn{Conn: c}
	}
	var h *Handler
	var opened atomic.Int64
	open := func(ctx context.Context, out rpc.Sender, key string) (peer, func(bool)) {
		c, missed, end := b.OpenSession(ctx, out, key)
		// responses to requests of another process may arrive here
		if h.opts.Sessions != nil {
			c.SetCallPrefix(fmt.Sprintf("%s.%d", h.instance, opened.Add(1)))
		}
		return serverConn{c, missed}, end
	}
	h, err := newHandler(srv, b, modern, open, opts)
	if err != nil {
		return nil, err
	}
	if err := h.share(b.SharedKeys, b.HasBus()); err != nil {
		return nil, err
	}
	return h, nil
}

func newHandler(srv Server, b handlerBackend, modern peer, open openFunc, opts *Options) (*Handler, error) {
	h := &Handler{srv: srv, backend: b, modern: modern, openPeer: open, instance: rand.Text()[:8], clock: clock{time.Now()}}
	h.closed, h.close = context.WithCancel(context.Background())
	h.forced, h.force = context.WithCancel(context.Background())
	if opts != nil {
		h.opts = *opts
	}
	h.opts.setDefaults()
	h.admission.init(&h.opts)
	var err error
	if h.access, err = newAccessPolicy(h.opts.Hosts, h.opts.Origins); err != nil {
		return nil, fmt.Errorf("streamable: %w", err)
	}
	if h.access.anyOrigin = h.opts.AnyOrigin; h.opts.AnyOrigin && h.opts.Guard == nil {
		return nil, errors.New("streamable: Options.AnyOrigin needs Options.Guard, or every page that a user opens could use the server; without one, list the Origins")
	}
	h.legacy = slices.DeleteFunc(slices.Clone(b.Revisions()), mcp.Revision.Modern)
	h.versionHeaderOptional = slices.ContainsFunc(h.legacy, func(r mcp.Revision) bool { return !era.Of(r).VersionHeader })
	h.needsAddress = b.WithIdentity(h.closed, "", "?") != h.closed
	if h.events = h.opts.Events; h.events == nil {
		h.events = NewMemoryEvents(nil)
	}
	h.memoryEvents, _ = h.events.(*memoryEvents)
	h.sessions.init(h)
	h.protected = h.Protect(http.HandlerFunc(h.serve))
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.protected.ServeHTTP(w, r) }

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		h.servePost(w, r)
		return
	}
	from := requesterOf(r)
	s := new(slot)
	if !h.admit(s, w, r, from, nil) {
		return
	}
	defer s.release()
	switch {
	case len(h.legacy) == 0 || h.isModern(r, from):
		writeMethodNotAllowed(w, "POST")
	case r.Method == http.MethodGet:
		h.serveGet(w, r, from, s)
	case r.Method == http.MethodDelete:
		h.serveDelete(w, r, from, s)
	default:
		writeMethodNotAllowed(w, "POST, GET, DELETE")
	}
}

// isModern reports whether a request other than POST is of the modern era, which allows none: it
// has no session and names a modern version.
func (h *Handler) isModern(r *http.Request, from requester) bool {
	if h.modern == nil || r.Header[headerSession] != nil || len(from.versions) != 1 {
		return false
	}
	revision, ok := mcp.ParseRevision(from.versions[0])
	return revision.Modern() || !ok
}

// writeMethodNotAllowed responds to a method that the endpoint does not support.
func writeMethodNotAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	writeError(w, http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, "this endpoint accepts "+allow)
}

// Shutdown ends the standing streams, rejects further requests with status 503 and Retry-After,
// waits until pending ones are answered or ctx ends, and then ends the sessions. A subscription
// ends with its result, and the stream of a session with the delay after which its client resumes
// it, perhaps at another process. While Shutdown waits, clients with a session may still respond to
// input requests. A body of NDJSON is not read further, as standard input is not. If ctx ends
// first, Shutdown answers pending requests with an error, of status 503 if their response has not
// begun, and returns ctx's error. It then cancels the handlers of legacy requests; those of modern
// ones are canceled when their HTTP server closes. It may be called more than once.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.admission.close()
	h.close()
	ended := make(chan struct{})
	aborted := make(chan struct{})
	// This goroutine ends with ctx or the requests. After that it only waits for handlers of
	// notifications, which are bounded.
	go func() {
		defer close(ended)
		if h.modern != nil {
			h.modern.close()
		}
		select {
		case <-h.admission.idle:
		case <-aborted:
		}
		h.sessions.endAll()
		h.forwarder.close()
		h.followers.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	defer close(aborted)
	select {
	case <-h.admission.idle:
		return nil
	default:
	}
	h.admission.abort(h.opts.Logger)
	h.force()
	h.sessions.cancelAll()
	return ctx.Err()
}

// writeUnavailable responds to a request that cannot be handled now.
func writeUnavailable(w http.ResponseWriter, why string) { (&rejection{reason: why}).write(w) }

// writeError responds with an error that belongs to no request.
func writeError(w http.ResponseWriter, status int, code jsonrpc.Code, message string) {
	writeErrorID(w, status, nil, &jsonrpc.Error{Code: code, Message: message})
}

// writeErrorID responds with an error. It leaves out an empty id.
func writeErrorID(w http.ResponseWriter, status int, id jsonrpc.ID, e *jsonrpc.Error) {
	body := append(jsonrpc.AppendError(nil, id, e, false), '\n')
	setHeader(w.Header(), valueJSON)
	w.WriteHeader(status)
	w.Write(body)
}

var (
	// errClientGone ends a stream whose client does not read.
	errClientGone = errors.New("the client disconnected")
	// errClientTakesNoStream fails an input request to a client that accepts no stream.
	errClientTakesNoStream = errors.New("the client has no open stream for requests of the server")
	// errCannotFlush fails what the client must get before the response ends.
	errCannotFlush = errors.New("a middleware of this server keeps messages back until the response ends: its http.ResponseWriter has neither Flush nor Unwrap")
)

// writeOneWay responds to notifications and responses. issued is false for a response to a request
// that this process has not sent.
func writeOneWay(w http.ResponseWriter, issued bool) {
	if issued {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "this process has sent no request with the id of the response; if another process of the server has, its operator must connect them (Options.Nodes)")
}

// Header values that many responses share.
var (
	noStore     = []string{"no-store"}
	noBuffering = []string{"no"}
	// closeConnection ends a connection of HTTP/1.
	closeConnection = []string{"close"}
)

func setHeader(header http.Header, contentType []string) {
	header["Content-Type"] = contentType
	header["Cache-Control"] = noStore
}

// A clock returns monotonic time relative to base, which costs half as much as time.Now. Use its
// times for deadlines and comparisons.
type clock struct{ base time.Time }

// elapsed returns the time since base.
func (c clock) elapsed() time.Duration { return time.Since(c.base) }

// now returns base plus the elapsed time.
func (c clock) now() time.Time { return c.base.Add(c.elapsed()) }

// Stats are counters of a [Handler].
type Stats struct {
	// InFlight is the number of requests being handled.
	InFlight int
	// Streams is the number of standing streams.
	Streams int
	// Sessions is the number of legacy sessions.
	Sessions int

	// RateLimited counts requests rejected with status 429 because of their caller's requests in
	// flight.
	RateLimited uint64
	// Overloaded counts requests rejected with status 503 because of all requests in flight.
	Overloaded uint64
	// Degraded is the number of streams that go on and cannot be resumed, because the EventStore
	// has failed. A client can open the stream of a session anew, which then no longer counts.
	Degraded int
	// Unresumable counts streams that could not be resumed for that reason.
	Unresumable uint64
	// Forwarded counts responses and notifications of clients that were sent to other processes,
	// see [Options].Nodes.
	Forwarded uint64
	// Unforwarded counts responses and notifications that did not reach the process that they are
	// for, see [Options].Nodes.
	Unforwarded uint64
}

// Stats returns the current numbers, and the counts since the handler was made.
func (h *Handler) Stats() Stats {
	return Stats{
		InFlight: int(h.admission.requests.Load()), Streams: int(h.admission.streams.Load()), Sessions: int(h.sessions.count.Load()),
		RateLimited: h.admission.rateLimited.Load(), Overloaded: h.admission.overloaded.Load(), Degraded: int(h.degraded.Load()), Unresumable: h.unresumable.Load(),
		Forwarded: h.forwarded.Load(), Unforwarded: h.unforwarded.Load(),
	}
}

// newRelayHandler is NewHandler for a relay.
func newRelayHandler(r *relay.Server, opts *Options) (*Handler, error) {
	var modern peer
	if p := r.Stateless(); p != nil {
		modernRevisions := slices.DeleteFunc(slices.Clone(r.Revisions()), func(r mcp.Revision) bool { return !r.Modern() })
		// The upstream server decides which methods exist.
		all := func([]byte) bool { return true }
		modern = &relayConn{Peer: p, rules: era.NewSession(era.Config{Revisions: modernRevisions, Custom: all})}
	}
	var h *Handler
	var opened atomic.Int64
	sharer, _ := r.Handler.(relay.Sharer)
	open := func(ctx context.Context, out rpc.Sender, _ string) (peer, func(bool)) {
		var p relay.Peer
		prefix, sentIDs := "", &sentRequestIDs{}
		out = &revocableSender{out: out, sentIDs: sentIDs}
		if sharer != nil && h.opts.Sessions != nil {
			prefix = fmt.Sprintf("%s.%d", h.instance, opened.Add(1))
			p = sharer.SharedSession(ctx, out, prefix)
		} else {
			p = r.Session(ctx, out)
		}
		if p == nil {
			p = rejectingPeer{}
		}
		return &relayConn{Peer: p, callPrefix: prefix, sentIDs: sentIDs}, func(bool) { p.Close() }
	}
	h, err := newHandler(r, r, modern, open, opts)
	if err != nil {
		return nil, err
	}
	h.isRelay = true
	if sharer == nil {
		return h, nil
	}
	// Each process announces what its own peers learn.
	if err := h.share(sharer.SharedKeys, true); err != nil {
		return nil, err
	}
	return h, nil
}

// retryAfterOf returns the value of the header Retry-After for a rejected request.
func retryAfterOf(e *relay.RejectedError) string {
	return strconv.FormatInt(int64(max(e.RetryAfter+time.Second-1, time.Second)/time.Second), 10)
}

// rejectedError returns the RejectedError in err, or nil.
func rejectedError(err error) *relay.RejectedError {
	e, _ := errors.AsType[*relay.RejectedError](err)
	return e
}

// Protect returns a handler that checks host, origin and token as h does, and then calls next.
func (h *Handler) Protect(next http.Handler) http.Handler {
	if h.opts.Guard != nil {
		next = h.opts.Guard.Protect(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.access.check(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// A peer handles the messages of a session, or of requests without one: a server's connection, or a
// relay's. frame is the text of the message, or nil.
type peer interface {
	deliverRequest(ctx context.Context, frame []byte, d *rpc.Delivery, dst []byte) (response []byte, err error)
	deliverNotification(ctx context.Context, frame []byte, m *jsonrpc.Message)
	// deliverResponse reports false if it is certain that the peer has sent no request with the id.
	deliverResponse(ctx context.Context, frame []byte, m *jsonrpc.Message) (issued bool)
	// notifyMissed notifies the client of a session of everything that it may have missed.
	notifyMissed()
	close()
}

// An openFunc opens a session, and returns a function that ends it. See
// [backend.Backend.OpenSession].
type openFunc func(ctx context.Context, out rpc.Sender, key string) (p peer, end func(over bool))

// serverConn is the peer of a server's connection.
type serverConn struct {
	*rpc.Conn
	// missed is that of [backend.Backend.OpenSession]. It is nil for requests without a session.
	missed func()
}

func (c serverConn) deliverRequest(ctx context.Context, _ []byte, d *rpc.Delivery, dst []byte) ([]byte, error) {
	return c.Deliver(ctx, d, dst)
}

func (c serverConn) deliverNotification(ctx context.Context, _ []byte, m *jsonrpc.Message) {
	c.DeliverNotification(ctx, m)
}
func (c serverConn) deliverResponse(_ context.Context, _ []byte, m *jsonrpc.Message) (issued bool) {
	return c.DeliverResponse(m) || c.Issued(m.ID)
}
func (c serverConn) notifyMissed() { c.missed() }
func (c serverConn) close()        { c.Close() }

// relayConn is the peer of a relay. For requests without a session, rules checks them and tools has
// their headers; otherwise rules is nil.
type relayConn struct {
	relay.Peer
	rules *era.Session
	tools toolHeaders
	// callPrefix begins the ids of the peer's requests. It is empty if other processes have no part
	// in the session.
	callPrefix string
	// sentIDs has the ids of the peer's requests. It is nil for requests without a session.
	sentIDs *sentRequestIDs
}

// deliverRequest implements peer. It returns the response's error, for the status.
func (rc *relayConn) deliverRequest(ctx context.Context, frame []byte, d *rpc.Delivery, dst []byte) ([]byte, error) {
	m := d.Message
	if d.Lifetime != nil {
		ctx = &sessionContext{d.Lifetime, context.WithoutCancel(ctx)}
	}
	err := era.CheckForwarded(frame, m)
	if err == nil && rc.rules != nil {
		err = rc.check(d)
	}
	if err != nil {
		return jsonrpc.AppendError(dst, m.ID, jsonrpc.ErrorOf(err), false), err
	}
	var out rpc.Sender
	if d.Sender != nil {
		s := &revocableSender{out: d.Sender, sentIDs: rc.sentIDs}
		defer s.revoke()
		out = s
	}
	n := len(dst)
	dst, err = rc.Request(ctx, frame, m, out, dst)
	if e := rejectedError(err); e != nil {
		return jsonrpc.AppendError(dst[:n], m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", e.Reason), false), err
	}
	if err != nil || rc.rules == nil {
		return dst, err
	}
	var answer jsonrpc.Message
	switch {
	case jsonrpc.Parse(dst[n:], &answer, 0) != nil:
	case answer.Kind == jsonrpc.KindError:
		err = answer.Err()
	case string(m.Method) == mcp.MethodToolsList:
		// The client decides which tools it may call.
		rc.tools.filterTools(dst[n:], &answer, slog.New(slog.DiscardHandler))
	}
	return dst, err
}

// check returns an error for an invalid request without a session.
func (rc *relayConn) check(d *rpc.Delivery) error {
	m := d.Message
	if _, err := rc.rules.Open(&rpc.Request{Message: *m}); err != nil {
		return err
	}
	r, ok := d.Sender.(*response) // other senders have no headers
	if !ok || string(m.Method) != mcp.MethodToolsCall {
		return nil
	}
	arguments, _ := m.Param("arguments")
	return rc.tools.check(r.r.Header, string(nameOf(m)), arguments)
}

// deliverNotification implements peer. It drops a notification that must not be forwarded.
func (rc *relayConn) deliverNotification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	if era.CheckForwarded(frame, m) == nil {
		rc.Notification(ctx, frame, m)
	}
}

// deliverResponse implements peer. It replaces a response that must not be forwarded by an error,
// so that the server does not wait.
func (rc *relayConn) deliverResponse(ctx context.Context, frame []byte, m *jsonrpc.Message) (issued bool) {
	if rc.callPrefix != "" && !strings.HasPrefix(string(m.ID), `"`+rc.callPrefix+".") || rc.sentIDs != nil && !rc.sentIDs.has(m.ID) {
		return false
	}
	if err := era.CheckForwarded(frame, m); err != nil {
		frame = jsonrpc.AppendError(nil, m.ID, jsonrpc.ErrorOf(err), false)
		m = new(jsonrpc.Message)
		if jsonrpc.Parse(frame, m, 0) != nil {
			return true // it has no id
		}
	}
	rc.Response(ctx, frame, m)
	return true
}

func (rc *relayConn) notifyMissed() {
	if n, ok := rc.Peer.(relay.Notifier); ok {
		n.Missed()
	}
}

func (rc *relayConn) close() { rc.Close() }

// rejectingPeer is the peer of a rejected session.
type rejectingPeer struct{}

func (rejectingPeer) Request(_ context.Context, _ []byte, _ *jsonrpc.Message, _ rpc.Sender, dst []byte) ([]byte, error) {
	return dst, &relay.RejectedError{Status: http.StatusServiceUnavailable, Reason: "too many sessions, or this bridge is shutting down"}
}
func (rejectingPeer) Notification(context.Context, []byte, *jsonrpc.Message) {}
func (rejectingPeer) Response(context.Context, []byte, *jsonrpc.Message)     {}
func (rejectingPeer) Close()                                                 {}

// A handlerBackend is the part of a [backend.Backend], or of a relay, that a Handler uses in
// addition to its peers.
type handlerBackend interface {
	Revisions() []mcp.Revision
	WithIdentity(ctx context.Context, id, address string) context.Context
}

// A revocableSender is a Sender that can be revoked, because another request reuses out after this
// one was answered.
type revocableSender struct {
	mu sync.Mutex
	// out is nil after revoke.
	out rpc.Sender
	// sentIDs gets the ids of requests. It may be nil.
	sentIDs *sentRequestIDs
}

// revoke makes Send fail from now on.
func (s *revocableSender) revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = nil
}

// Send implements [rpc.Sender].
func (s *revocableSender) Send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return jsonrpc.ErrRequestEnded
	}
	if s.sentIDs != nil {
		s.sentIDs.note(message)
	}
	return s.out.Send(message)
}

// sentRequestIDs remembers the ids of the requests to a client, also after their responses: a
// client may respond late or twice. Its methods may be called by many goroutines at once.
type sentRequestIDs struct {
	mu sync.Mutex
	// keys has hashes of the ids. It is nil before the first one.
	keys map[uint64]struct{}
}

// maxSentRequestIDs limits the ids. After as many requests, the client may respond to any id.
const maxSentRequestIDs = 4096

var requestIDSeed = maphash.MakeSeed()

// note adds the id of a message that is a request.
func (a *sentRequestIDs) note(message []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) != nil || m.Kind != jsonrpc.KindRequest {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.keys) < maxSentRequestIDs {
		sparse.Set(&a.keys, maphash.Bytes(requestIDSeed, m.ID.Canonical()), struct{}{})
	}
}

// has reports false if it is certain that no request had the id.
func (a *sentRequestIDs) has(id jsonrpc.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.keys[maphash.Bytes(requestIDSeed, id.Canonical())]
	return ok || len(a.keys) >= maxSentRequestIDs
}
