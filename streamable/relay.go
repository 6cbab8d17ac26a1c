package streamable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// newRelayHandler is NewHandler for a relay.
func newRelayHandler(r *relay.Server, opts *Options) (*Handler, error) {
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
		modern = &relayConn{Peer: p, rules: era.NewSession(era.Config{Revisions: modernRevisions, Custom: all})}
	}
	var h *Handler
	var opened atomic.Int64
	sharer, _ := r.Handler.(relay.Sharer)
	open := func(ctx context.Context, out rpc.Sender, _ string) (peer, func(bool)) {
		var p relay.Peer
		if sharer != nil && h.opts.Sessions != nil {
			p = sharer.SharedSession(ctx, out, fmt.Sprintf("%s.%d", h.instance, opened.Add(1)))
		} else {
			p = r.Session(ctx, out)
		}
		if p == nil {
			p = rejectingPeer{}
		}
		return &relayConn{Peer: p}, func(bool) { p.Close() }
	}
	h, err := newHandler(r, modern, open, opts)
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
func (c serverConn) deliverResponse(_ context.Context, _ []byte, m *jsonrpc.Message) {
	c.DeliverResponse(m)
}
func (c serverConn) close() { c.Close() }

// relayConn is the peer of a relay. For requests without a session, rules checks them and tools has
// their headers; otherwise rules is nil.
type relayConn struct {
	relay.Peer
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

func (rejectingPeer) Request(_ context.Context, _ []byte, _ *jsonrpc.Message, _ rpc.Sender, dst []byte) ([]byte, error) {
	return dst, &relay.RejectedError{Status: http.StatusServiceUnavailable, Reason: "too many sessions, or this bridge is shutting down"}
}
func (rejectingPeer) Notification(context.Context, []byte, *jsonrpc.Message) {}
func (rejectingPeer) Response(context.Context, []byte, *jsonrpc.Message)     {}
func (rejectingPeer) Close()                                                 {}

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
	out rpc.Sender
}

// newRevocableSender returns a Sender that forwards to out until revoke is called, or nil if out is
// nil.
func newRevocableSender(out rpc.Sender) (_ rpc.Sender, revoke func()) {
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

// Send implements [rpc.Sender].
func (s *revocableSender) Send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return jsonrpc.ErrRequestEnded
	}
	return s.out.Send(message)
}
