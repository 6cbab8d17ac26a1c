package streamable

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Relay is what a [Handler] made by [NewRelay] brings messages to: one that passes them on as they are, as a bridge does, where a [Server] answers them itself.
// Its methods may be called by many goroutines at once.
type Relay interface {
	// Revisions are those that clients may use.
	Revisions() []mcp.Revision
	// Stateless returns the peer of all requests without a session; nil if there are to be none. It is called once.
	Stateless() RelayPeer
	// Session returns the peer of one session. What belongs to no request of it goes to out. ctx has the values of the request that opens it, such as
	// [auth.PrincipalOf], and does not end. nil refuses the session.
	Session(ctx context.Context, out jsonrpc.Sender) RelayPeer
	// Serve relays what comes by a framer, of a client that pipes lines (see [Options.NDJSON]). The framer's messages have not been checked for duplicate members.
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// A RelayPeer takes the messages of one session, or those that have none. Its methods may be called by many goroutines at once. Messages and frames are good
// until the method returns.
type RelayPeer interface {
	// Request relays a request and appends the response to dst, the whole message with the id of the request. Without one it returns dst and an error: when ctx has
	// ended, or the peer was closed, or a *[RejectedError] for a request that was not relayed. Frame is the text that m was parsed from, nil if it came in a batch. What belongs to the request and goes before its response goes to out,
	// which may be nil, and fails when the method has returned.
	Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Sender, dst []byte) ([]byte, error)
	// Notification relays a notification.
	Notification(ctx context.Context, frame []byte, m *jsonrpc.Message)
	// Response relays the answer to a request that was sent to an outlet.
	Response(ctx context.Context, frame []byte, m *jsonrpc.Message)
	// Close ends the session: what is still under way is given up. It does not wait.
	Close()
}

// A RejectedError is why a [RelayPeer] has not relayed a request: too much is in flight. The client gets the status, if nothing precedes it, and so knows that the request was not
// carried out.
type RejectedError struct {
	// Status is that of the response, http.StatusTooManyRequests if the client itself has too much in flight, and otherwise http.StatusServiceUnavailable.
	Status int
	// RetryAfter is how long the client is asked to wait. It is rounded up to seconds, and at least one.
	RetryAfter time.Duration
	// Reason is the message of the JSON-RPC error, whose code is -32603.
	Reason string
}

func (e *RejectedError) Error() string { return e.Reason }

// seconds is the value of the header Retry-After.
func (e *RejectedError) seconds() string {
	return strconv.FormatInt(int64(max(e.RetryAfter+time.Second-1, time.Second)/time.Second), 10)
}

// rejectedError returns why a request was rejected; nil if err is another error, or nil.
func rejectedError(err error) *RejectedError {
	e, _ := errors.AsType[*RejectedError](err)
	return e
}

// NewRelay returns a handler that brings what clients post to a relay. It does what one of [NewHandler] does, with what it sees of the server: Mcp-Param headers, of
// which the schemas of tools tell, are held against the body once a list of the tools has passed. A message that can be read in two ways, because a member appears more than once
// in an object at any level, is refused: what is judged, by [Options.Scopes] for example, is what the relay gets. opts may be nil; it is copied. The error is that of NewHandler.
func NewRelay(r Relay, opts *Options) (*Handler, error) {
	var modern peer
	if p := r.Stateless(); p != nil {
		var modernRevisions []mcp.Revision
		for _, revision := range r.Revisions() {
			if revision.Modern() {
				modernRevisions = append(modernRevisions, revision)
			}
		}
		// Whether a method exists, and what for, is up to the other side.
		all := func([]byte) bool { return true }
		modern = &relayConn{RelayPeer: p, rules: era.NewSession(era.Config{Revisions: modernRevisions, Custom: all})}
	}
	open := func(ctx context.Context, out jsonrpc.Sender) (peer, func()) {
		p := r.Session(ctx, out)
		if p == nil {
			p = rejectingPeer{}
		}
		return &relayConn{RelayPeer: p}, p.Close
	}
	h, err := newHandler(relayBackend{r}, modern, open, opts)
	if err != nil {
		return nil, err
	}
	h.isRelay = true
	return h, nil
}

// Protect returns a handler that is to be reached by those only who may reach h: it checks host, origin and token as h does.
func (h *Handler) Protect(next http.Handler) http.Handler {
	inner := h.protect(next.ServeHTTP)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.access.check(w, r) {
			inner.ServeHTTP(w, r)
		}
	})
}

// A peer is the other side of a session, or of requests without one: a connection of a server's, or that of a relay. Frame is the text of the message, nil if it is
// not known.
type peer interface {
	deliverRequest(ctx context.Context, frame []byte, d *jsonrpc.Delivery, dst []byte) (response []byte, err error)
	deliverNotification(ctx context.Context, frame []byte, m *jsonrpc.Message)
	deliverResponse(ctx context.Context, frame []byte, m *jsonrpc.Message)
	close()
}

// An opener opens a session, and returns what ends it.
type openFunc func(ctx context.Context, out jsonrpc.Sender) (p peer, end func())

// serverConn is the peer that a server's connection is.
type serverConn struct{ *jsonrpc.Conn }

func (c serverConn) deliverRequest(ctx context.Context, _ []byte, d *jsonrpc.Delivery, dst []byte) ([]byte, error) {
	return c.Deliver(ctx, d, dst)
}

func (c serverConn) deliverNotification(ctx context.Context, _ []byte, m *jsonrpc.Message) {
	c.DeliverNotification(ctx, m)
}
func (c serverConn) deliverResponse(_ context.Context, _ []byte, m *jsonrpc.Message) {
	c.DeliverResponse(m)
}
func (c serverConn) close() { c.Close() }

// relayConn is the peer of a relay. rules are those of requests without a session; nil for others. tools are what such requests repeat in headers.
type relayConn struct {
	RelayPeer
	rules *era.Session
	tools toolHeaders
}

// deliverRequest implements peer. The error is what the response says, for the status.
func (rc *relayConn) deliverRequest(ctx context.Context, frame []byte, d *jsonrpc.Delivery, dst []byte) ([]byte, error) {
	m := d.Message
	if d.Lifetime != nil {
		ctx = &sessionContext{d.Lifetime, ctx}
	}
	err := era.CheckForwarded(frame, m)
	if err == nil && rc.rules != nil {
		err = rc.check(d)
	}
	if err != nil {
		return jsonrpc.AppendError(dst, m.ID, jsonrpc.ErrorOf(err), false), err
	}
	out, revoke := newRevocableSender(d.Sender)
	defer revoke()
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
		rc.tools.filterTools(dst[n:], &answer, slog.New(slog.DiscardHandler)) // what may be called is for the client to say
	}
	return dst, err
}

// check returns what is wrong with a request without a session.
func (rc *relayConn) check(d *jsonrpc.Delivery) error {
	m := d.Message
	if _, err := rc.rules.Open(&jsonrpc.Request{Message: *m}); err != nil {
		return err
	}
	r, ok := d.Sender.(*response) // what comes otherwise has no headers
	if !ok || string(m.Method) != mcp.MethodToolsCall {
		return nil
	}
	arguments, _ := m.Param("arguments")
	if e := rc.tools.check(r.header, string(nameOf(m)), arguments); e != nil {
		return e
	}
	return nil
}

// deliverNotification implements peer. What must not be forwarded is dropped.
func (rc *relayConn) deliverNotification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	if era.CheckForwarded(frame, m) == nil {
		rc.Notification(ctx, frame, m)
	}
}

// deliverResponse implements peer. In place of an answer that must not be forwarded the server gets an error, so that it does not wait.
func (rc *relayConn) deliverResponse(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	if err := era.CheckForwarded(frame, m); err != nil {
		frame = jsonrpc.AppendError(nil, m.ID, jsonrpc.ErrorOf(err), false)
		m = new(jsonrpc.Message)
		if jsonrpc.Parse(frame, m, 0) != nil {
			return // it has no id
		}
	}
	rc.Response(ctx, frame, m)
}

func (rc *relayConn) close() { rc.Close() }

// rejectingPeer is the peer of a session that there is not.
type rejectingPeer struct{}

func (rejectingPeer) Request(_ context.Context, _ []byte, _ *jsonrpc.Message, _ jsonrpc.Sender, dst []byte) ([]byte, error) {
	return dst, &RejectedError{Status: http.StatusServiceUnavailable, Reason: "there are too many sessions, or this bridge is shutting down"}
}
func (rejectingPeer) Notification(context.Context, []byte, *jsonrpc.Message) {}
func (rejectingPeer) Response(context.Context, []byte, *jsonrpc.Message)     {}
func (rejectingPeer) Close()                                                 {}

// relayBackend is the part of a Server that a Handler needs of a relay.
type relayBackend struct{ Relay }

func (relayBackend) WithIdentity(ctx context.Context, id, address string, _ []string, _ any) context.Context {
	return context.WithValue(ctx, callerKey{}, cmp.Or(id, address))
}

// callerKey is the key of the caller in the context of a relay's methods.
type callerKey struct{}

// CallerOf returns whose request a method of a [Relay] or [RelayPeer] was called for, by its context: the id of the principal, or the network address where there is none. Elsewhere it
// returns "".
func CallerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}

// backend is what a Handler asks a server for besides its peers.
type backend interface {
	Revisions() []mcp.Revision
	WithIdentity(ctx context.Context, id, address string, scopes []string, claims any) context.Context
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// A lent is an outlet that is used again by another request when the one that it is lent to has been answered.
type revocableSender struct {
	mu  sync.Mutex
	out jsonrpc.Sender // nil if it has been taken back
}

// newRevocableSender returns an outlet that is out until end is called; nil for nil.
func newRevocableSender(out jsonrpc.Sender) (_ jsonrpc.Sender, revoke func()) {
	if out == nil {
		return nil, func() {}
	}
	s := &revocableSender{out: out}
	return s, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out = nil
	}
}

// Send implements [jsonrpc.Sender].
func (s *revocableSender) Send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return jsonrpc.ErrRequestEnded
	}
	return s.out.Send(message)
}
