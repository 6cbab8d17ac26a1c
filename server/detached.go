package server

import (
	"context"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// OpenSession is for carriers that bring each message by itself, as HTTP does: it returns a connection (see [jsonrpc.NewDetached]) that is the session of
// one client of a legacy revision, which opens it with initialize. out takes what belongs to no request; ctx says on whose behalf the
// session is. end closes the connection and forgets the session; it must be called, once.
func (s *Server) OpenSession(ctx context.Context, out jsonrpc.Outlet) (c *jsonrpc.Conn, end func()) {
	s.link()
	x := s.newSession(ctx, s.eras.legacy)
	x.detached = true
	x.conn = jsonrpc.NewDetached(out, s.connOptions(x, x.era.Policy(false)))
	s.enlist(x)
	return x.conn, x.close
}

// close ends the session with its connection.
func (s *session) close() {
	s.conn.Close()
	s.end()
}

// OpenStateless is for the same carriers: it returns a connection for the requests of all clients of modern revisions, which are to be delivered with
// [jsonrpc.Delivery.Free] set and an outlet of their own, and a context that [Server.OnBehalfOf] made. When it is closed, its subscriptions end; those that were
// delivered with Stand are the carrier's to finish. A server that speaks no modern revision has none: c is nil.
func (s *Server) OpenStateless() (c *jsonrpc.Conn) {
	if s.eras.modern == nil {
		return nil
	}
	s.link()
	x := s.newSession(context.Background(), s.eras.modern)
	x.detached, x.shared = true, &shared{session: x}
	x.modernSeen.Store(true)
	x.conn = jsonrpc.NewDetached(nowhere{}, s.connOptions(x, x.era.Policy(true)))
	return x.conn
}

// Revisions returns those that the server speaks, in ascending order.
func (s *Server) Revisions() []mcp.Revision { return append([]mcp.Revision(nil), s.opts.Revisions...) }

// nowhere is where messages go that belong to no request of a stateless connection. There are none.
type nowhere struct{}

func (nowhere) Send([]byte) error { return nil }

// A shared is a session that answers the requests of many clients. It has no state of theirs.
type shared struct{ session *session }

// listenAlone answers subscriptions/listen with a session of its own, because the limits on subscriptions are for each client.
func (h *shared) listenAlone(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	of := h.session
	x := &session{srv: of.srv, era: of.era, conn: of.conn, log: of.log, values: c, behalf: c.who(), detached: true}
	of.srv.enlist(x)
	dst, err := x.listen(c, r, dst)
	if standing, ok := err.(*jsonrpc.Outstanding); ok {
		end := standing.End
		standing.End = func(dst []byte) []byte {
			x.leave()
			return end(dst)
		}
		return dst, standing
	}
	x.leave()
	return dst, err
}

// A mirror is an outlet of a carrier that repeats arguments of tools elsewhere, as HTTP does in headers. CheckMirror returns the error to answer with if what
// is there does not agree with the arguments.
type mirror interface {
	CheckMirror(params []mcp.HeaderParam, arguments []byte) error
}

// checkMirror checks the arguments of a call against what the carrier has of them.
func (c *Call) checkMirror(r *jsonrpc.Request, t *tool, arguments []byte) error {
	if len(t.headers) == 0 || !c.ex.Modern {
		return nil
	}
	if m, ok := r.Outlet().(mirror); ok {
		return m.CheckMirror(t.headers, arguments)
	}
	return nil
}
