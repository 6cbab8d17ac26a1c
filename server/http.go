package server

import (
	"context"

	"mcpwire/internal/rpc"
	"mcpwire/internal/seal"
	"mcpwire/mcp"
)

// A transportBackend is the server as package backend has it, for transports that deliver each
// message separately.
type transportBackend struct{ srv *Server }

// OpenSession implements [backend.Backend].
func (b transportBackend) OpenSession(ctx context.Context, out rpc.Sender, key string) (c *rpc.Conn, missed func(), end func(over bool)) {
	s := b.srv
	s.start()
	sess := s.newSession(ctx, s.eras.legacy)
	sess.detached = true
	sess.attach(rpc.NewDetached(out, s.connOptions(sess)))
	if sess.tasks != nil {
		sess.tasks.share(key)
	}
	s.sessions.add(sess)
	return sess.peer.conn, func() { s.sessions.missed(sess) }, func(over bool) {
		sess.peer.conn.Close()
		if over || key == "" {
			sess.release()
		} else {
			sess.untrack()
		}
	}
}

// OpenStateless implements [backend.Backend].
func (b transportBackend) OpenStateless() *rpc.Conn {
	s := b.srv
	if s.eras.modern == nil {
		return nil
	}
	s.start()
	sess := s.newSession(context.Background(), s.eras.modern)
	sess.detached, sess.stateless = true, true
	sess.handshake.modern.Store(true)
	sess.attach(rpc.NewDetached(discardSender{}, s.connOptions(sess)))
	return sess.peer.conn
}

// Revisions implements [backend.Backend].
func (b transportBackend) Revisions() []mcp.Revision {
	return append([]mcp.Revision(nil), b.srv.opts.Revisions...)
}

// SharedKeys implements [backend.Backend].
func (b transportBackend) SharedKeys() (ring *seal.Ring, name string) {
	if !b.srv.keysGiven {
		return nil, b.srv.name
	}
	return &b.srv.opts.StateKeys.ring, b.srv.name
}

// HasBus implements [backend.Backend].
func (b transportBackend) HasBus() bool { return b.srv.bus != nil }

// WithIdentity implements [backend.Backend].
func (b transportBackend) WithIdentity(ctx context.Context, id, address string, scopes []string, claims any) context.Context {
	p := anonymous
	switch {
	case id != "":
		p = &Principal{ID: id, Scopes: scopes, Claims: claims}
	case b.srv.limits == nil && !b.srv.opts.Input.SingleUseState:
		return ctx // the identity is never used
	}
	return context.WithValue(ctx, identityKey{}, &identity{p, address})
}

// discardSender is the Sender of a stateless connection for messages that belong to no request.
// There are no such messages.
type discardSender struct{}

func (discardSender) Send([]byte) error { return nil }

// listenInOwnSession answers subscriptions/listen with a new session, because the limits on
// subscriptions apply to each client.
func (s *session) listenInOwnSession(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	sess := &session{srv: s.srv, log: s.log, detached: true, identity: c.identity(), peer: s.peer, tasks: s.tasks}
	sess.handshake.era, sess.peer.values = s.handshake.era, c
	sess.init()
	s.srv.sessions.add(sess)
	dst, err := sess.subs.listen(c, r, s.srv.advertisedLists(), dst)
	if deferred, ok := err.(*rpc.Deferred); ok {
		end := deferred.Result
		deferred.Result = func(dst []byte) []byte {
			sess.untrack()
			return end(dst)
		}
		return dst, deferred
	}
	sess.untrack()
	return dst, err
}

// A headerChecker is a Sender whose transport repeats arguments of tools in headers, as HTTP does.
// CheckHeaderParams returns an error if the headers do not match the arguments.
type headerChecker interface {
	CheckHeaderParams(params []mcp.HeaderParam, arguments []byte) error
}

// checkHeaderParams checks the arguments of a call against their copies in the transport's headers.
func (t *tool) checkHeaderParams(c *Call, r *rpc.Request, arguments []byte) error {
	if len(t.headerParams) == 0 || !c.ex.Modern {
		return nil
	}
	if m, ok := r.Sender().(headerChecker); ok {
		return m.CheckHeaderParams(t.headerParams, arguments)
	}
	return nil
}
