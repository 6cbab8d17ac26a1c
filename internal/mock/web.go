package mock

import (
	"context"
	"net/http"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A Web serves a [Server] over HTTP, with the sessions, streams and checks of package streamable. Make one with [Server.Web]. It may be used by many goroutines at once.
type Web struct {
	srv     *Server
	handler *streamable.Handler
}

// Web returns a handler for clients of the revisions that the capture has answers in. o may be nil. Shut it down before the server is closed.
func (s *Server) Web(o *streamable.Options) *Web {
	var opts streamable.Options
	if o != nil {
		opts = *o
	}
	opts.StreamAlways = opts.StreamAlways || s.tape.streams
	return &Web{s, streamable.NewRelay(relay{s}, &opts)}
}

// ServeHTTP implements http.Handler.
func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) { w.srv.wired(w.handler, rw, r) }

// SSE returns a handler for the older transport, see [streamable.Handler.SSE].
func (w *Web) SSE(messages string) http.Handler {
	h := w.handler.SSE(messages)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.srv.wired(h, rw, r) })
}

// Shutdown ends streams, refuses further requests and waits for those under way, see [streamable.Handler.Shutdown]. What is held back for ever is given up.
func (w *Web) Shutdown(ctx context.Context) error {
	w.srv.drain()
	return w.handler.Shutdown(ctx)
}

// A relay is the server as package streamable wants it.
type relay struct{ s *Server }

// Revisions implements streamable.Relay.
func (r relay) Revisions() []mcp.Revision { return r.s.tape.Revisions() }

// Stateless implements streamable.Relay.
func (r relay) Stateless() streamable.RelayPeer {
	if len(r.s.tape.modern) == 0 {
		return nil
	}
	return r.s.newPeer(nil, false)
}

// Session implements streamable.Relay.
func (r relay) Session(_ context.Context, out jsonrpc.Outlet) streamable.RelayPeer {
	return r.s.newPeer(out, false)
}

// Serve implements streamable.Relay.
func (r relay) Serve(ctx context.Context, f jsonrpc.Framer) error { return r.s.Serve(ctx, f) }
