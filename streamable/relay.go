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
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Relay handles the messages of a [Handler] made by [NewRelay]. It forwards messages unchanged,
// as a bridge does, where a [Server] answers them itself. It must be safe for concurrent use.
type Relay interface {
	// Revisions returns the revisions that clients may use.
	Revisions() []mcp.Revision
	// Stateless returns the peer of all requests without a session, or nil to reject them. It is
	// called once.
	Stateless() RelayPeer
	// Session returns the peer of one session, or nil to reject the session. The peer sends
	// messages that belong to no request to out. ctx has the values of the request that opens the
	// session, such as [auth.PrincipalOf], and does not end.
	Session(ctx context.Context, out jsonrpc.Sender) RelayPeer
	// Serve relays the messages of f, from a client that posts lines (see [Options.NDJSON]). They
	// have not been checked for duplicate members.
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// A RelayPeer receives the messages of one session, or of all requests without one. It must be safe
// for concurrent use. Messages and frames are valid until the method returns.
type RelayPeer interface {
	// Request relays a request and appends the response to dst: the whole message, with the id of
	// the request. Without a response it returns dst and an error: when ctx has ended or the peer
	// was closed, or a *[RejectedError] for a request that was not relayed. frame is the text of m,
	// or nil if m came in a batch. Messages that precede the response go to out, which may be nil,
	// and fails once the method has returned.
	Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out jsonrpc.Sender, dst []byte) ([]byte, error)
	// Notification relays a notification.
	Notification(ctx context.Context, frame []byte, m *jsonrpc.Message)
	// Response relays the response to a request that was sent to a Sender.
	Response(ctx context.Context, frame []byte, m *jsonrpc.Message)
	// Close ends the session and cancels its pending requests. It does not wait.
	Close()
}

// A RejectedError says that a [RelayPeer] has not relayed a request because of its limits. The
// client gets the status, if nothing precedes the response, and so knows that the request was not
// carried out.
type RejectedError struct {
	// Status is http.StatusTooManyRequests if the client itself exceeds a limit, and otherwise
	// http.StatusServiceUnavailable.
	Status int
	// RetryAfter is the delay that the client is asked to wait. It is rounded up to seconds, at
	// least one.
	RetryAfter time.Duration
	// Reason is the message of the JSON-RPC error, which has the code -32603.
	Reason string
}

func (e *RejectedError) Error() string { return e.Reason }

// seconds returns the value of the header Retry-After.
func (e *RejectedError) seconds() string {
	return strconv.FormatInt(int64(max(e.RetryAfter+time.Second-1, time.Second)/time.Second), 10)
}

// rejectedError returns the RejectedError in err, or nil.
func rejectedError(err error) *RejectedError {
	e, _ := errors.AsType[*RejectedError](err)
	return e
}

// NewRelay returns a handler that passes the messages of HTTP clients to a relay. It checks what
// [NewHandler] checks, as far as it can see the server: after a list of tools has passed, it
// compares Mcp-Param headers with the body. It rejects a message with a duplicate member in any
// object, so that the relay reads the message as the checks do, for example [Options.Scopes]. It
// copies opts, which may be nil. The error is that of NewHandler.
func NewRelay(r Relay, opts *Options) (*Handler, error) {
	var modern peer
	if p := r.Stateless(); p != nil {
		var modernRevisions []mcp.Revision
		for _, revision := range r.Revisions() {
			if revision.Modern() {
				modernRevisions = append(modernRevisions, revision)
			}
		}
		// The upstream server decides which methods exist.
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

// Protect returns a handler that checks host, origin and token as h does, and then calls next.
func (h *Handler) Protect(next http.Handler) http.Handler {
	inner := h.protect(next.ServeHTTP)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.access.check(w, r) {
			inner.ServeHTTP(w, r)
		}
	})
}

// A peer handles the messages of a session, or of requests without one: a server's connection, or a
// relay's. frame is the text of the message, or nil.
type peer interface {
	deliverRequest(ctx context.Context, frame []byte, d *rpc.Delivery, dst []byte) (response []byte, err error)
	deliverNotification(ctx context.Context, frame []byte, m *jsonrpc.Message)
	deliverResponse(ctx context.Context, frame []byte, m *jsonrpc.Message)
	close()
}

// An openFunc opens a session, and returns a function that ends it.
type openFunc func(ctx context.Context, out jsonrpc.Sender) (p peer, end func())

// serverConn is the peer of a server's connection.
type serverConn struct{ *rpc.Conn }

func (c serverConn) deliverRequest(ctx context.Context, _ []byte, d *rpc.Delivery, dst []byte) ([]byte, error) {
	return c.Deliver(ctx, d, dst)
}

func (c serverConn) deliverNotification(ctx context.Context, _ []byte, m *jsonrpc.Message) {
	c.DeliverNotification(ctx, m)
}
func (c serverConn) deliverResponse(_ context.Context, _ []byte, m *jsonrpc.Message) {
	c.DeliverResponse(m)
}
func (c serverConn) close() { c.Close() }

// relayConn is the peer of a relay. For requests without a session, rules checks them and tools has
// their headers; otherwise rules is nil.
type relayConn struct {
	RelayPeer
	rules *era.Session
	tools toolHeaders
}

// deliverRequest implements peer. It returns the response's error, for the status.
func (rc *relayConn) deliverRequest(ctx context.Context, frame []byte, d *rpc.Delivery, dst []byte) ([]byte, error) {
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
	if e := rc.tools.check(r.header, string(nameOf(m)), arguments); e != nil {
		return e
	}
	return nil
}

// deliverNotification implements peer. It drops a notification that must not be forwarded.
func (rc *relayConn) deliverNotification(ctx context.Context, frame []byte, m *jsonrpc.Message) {
	if era.CheckForwarded(frame, m) == nil {
		rc.Notification(ctx, frame, m)
	}
}

// deliverResponse implements peer. It replaces a response that must not be forwarded by an error,
// so that the server does not wait.
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

// rejectingPeer is the peer of a rejected session.
type rejectingPeer struct{}

func (rejectingPeer) Request(_ context.Context, _ []byte, _ *jsonrpc.Message, _ jsonrpc.Sender, dst []byte) ([]byte, error) {
	return dst, &RejectedError{Status: http.StatusServiceUnavailable, Reason: "too many sessions, or this bridge is shutting down"}
}
func (rejectingPeer) Notification(context.Context, []byte, *jsonrpc.Message) {}
func (rejectingPeer) Response(context.Context, []byte, *jsonrpc.Message)     {}
func (rejectingPeer) Close()                                                 {}

// relayBackend adapts a Relay to handlerBackend.
type relayBackend struct{ Relay }

func (relayBackend) WithIdentity(ctx context.Context, id, address string, _ []string, _ any) context.Context {
	return context.WithValue(ctx, callerKey{}, cmp.Or(id, address))
}

// callerKey is the context key of the caller in a relay's methods.
type callerKey struct{}

// CallerOf returns the caller of a [Relay] or [RelayPeer] method from its context: the id of the
// principal, or the network address of an anonymous client. For other contexts it returns "".
func CallerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}

// A handlerBackend is the part of a [backend.Backend] that a Handler uses in addition to its peers.
type handlerBackend interface {
	Revisions() []mcp.Revision
	WithIdentity(ctx context.Context, id, address string, scopes []string, claims any) context.Context
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// A revocableSender is a Sender that can be revoked, because another request reuses out after this
// one was answered.
type revocableSender struct {
	mu sync.Mutex
	// out is nil after revoke.
	out jsonrpc.Sender
}

// newRevocableSender returns a Sender that forwards to out until revoke is called, or nil if out is
// nil.
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
