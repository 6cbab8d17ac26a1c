package mock

import (
	"context"
	"net/http"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A Handler serves a [Server] over HTTP, with the sessions, streams and checks of package streamable. Make one with [Server.Handler]. It may be used by many goroutines at once.
type Handler struct {
	srv     *Server
	handler *streamable.Handler
}

// Handler returns a handler for clients of the revisions that the capture has answers in. o may be nil. Shut it down before the server is closed.
func (s *Server) Handler(o *streamable.Options) *Handler {
	var opts streamable.Options
	if o != nil {
		opts = *o
	}
	opts.StreamAlways = opts.StreamAlways || s.recording.streams
	return &Handler{s, streamable.NewRelay(relay{s}, &opts)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h.srv.serveWithFaults(h.handler, rw, r)
}

// SSE returns a handler for the older transport, see [streamable.Handler.SSE].
func (h *Handler) SSE(messages string) http.Handler {
	handler := h.handler.SSE(messages)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.srv.serveWithFaults(handler, rw, r) })
}

// Shutdown ends streams, refuses further requests and waits for those under way, see [streamable.Handler.Shutdown]. What is held back for ever is given up.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.srv.drain()
	return h.handler.Shutdown(ctx)
}

// A relay is the server as package streamable wants it.
type relay struct{ s *Server }

// Revisions implements streamable.Relay.
func (r relay) Revisions() []mcp.Revision { return r.s.recording.Revisions() }

// Stateless implements streamable.Relay.
func (r relay) Stateless() streamable.RelayPeer {
	if len(r.s.recording.modern) == 0 {
		return nil
	}
	return r.s.newConn(nil, false)
}

// Session implements streamable.Relay.
func (r relay) Session(_ context.Context, out jsonrpc.Sender) streamable.RelayPeer {
	return r.s.newConn(out, false)
}

// Serve implements streamable.Relay.
func (r relay) Serve(ctx context.Context, f jsonrpc.Framer) error { return r.s.Serve(ctx, f) }
