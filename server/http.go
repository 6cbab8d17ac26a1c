package server

import (
	"context"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// OpenSession is for transports that bring each message by itself, as HTTP does: it returns a connection (see [jsonrpc.NewDetached]) that is the session of
// one client of a legacy revision, which opens it with initialize. out takes what belongs to no request; ctx says on whose behalf the
// session is. end closes the connection and forgets the session; it must be called, once.
func (s *Server) OpenSession(ctx context.Context, out jsonrpc.Sender) (c *jsonrpc.Conn, end func()) {
	s.start()
	sess := s.newSession(ctx, s.eras.legacy)
	sess.detached = true
	sess.conn = jsonrpc.NewDetached(out, s.connOptions(sess, sess.era.Policy(false)))
	s.trackSession(sess)
	return sess.conn, sess.close
}

// close ends the session with its connection.
func (s *session) close() {
	s.conn.Close()
	s.release()
}

// OpenStateless is for the same transports: it returns a connection for the requests of all clients of modern revisions, which are to be delivered with
// [jsonrpc.Delivery.Free] set and an outlet of their own, and a context that [Server.WithIdentity] made. When it is closed, its subscriptions end; those that were
// delivered with Stand are the transport's to finish. A server that speaks no modern revision has none: c is nil.
func (s *Server) OpenStateless() (c *jsonrpc.Conn) {
	if s.eras.modern == nil {
		return nil
	}
	s.start()
	sess := s.newSession(context.Background(), s.eras.modern)
	sess.detached, sess.stateless = true, &statelessSession{session: sess}
	sess.modernSeen.Store(true)
	sess.conn = jsonrpc.NewDetached(discardSender{}, s.connOptions(sess, sess.era.Policy(true)))
	return sess.conn
}

// Revisions returns those that the server speaks, in ascending order.
func (s *Server) Revisions() []mcp.Revision { return append([]mcp.Revision(nil), s.opts.Revisions...) }

// discardSender is where messages go that belong to no request of a stateless connection. There are none.
type discardSender struct{}

func (discardSender) Send([]byte) error { return nil }

// A shared is a session that answers the requests of many clients. It has no state of theirs.
type statelessSession struct{ session *session }

// listenInOwnSession answers subscriptions/listen with a session of its own, because the limits on subscriptions are for each client.
func (ss *statelessSession) listenInOwnSession(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	parent := ss.session
	sess := &session{srv: parent.srv, era: parent.era, conn: parent.conn, log: parent.log, ctxValues: c, identity: c.identity(), detached: true}
	parent.srv.trackSession(sess)
	dst, err := sess.listen(c, r, dst)
	if deferred, ok := err.(*jsonrpc.Deferred); ok {
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

// A mirror is an outlet of a transport that repeats arguments of tools elsewhere, as HTTP does in headers. CheckHeaderParams returns the error to answer with if what
// is there does not agree with the arguments.
type headerChecker interface {
	CheckHeaderParams(params []mcp.HeaderParam, arguments []byte) error
}

// checkHeaderParams checks the arguments of a call against what the transport has of them.
func (c *Call) checkHeaderParams(r *jsonrpc.Request, t *tool, arguments []byte) error {
	if len(t.headerParams) == 0 || !c.ex.Modern {
		return nil
	}
	if m, ok := r.Sender().(headerChecker); ok {
		return m.CheckHeaderParams(t.headerParams, arguments)
	}
	return nil
}
