package mcpotel

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/metric"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// Server is a [server.Middleware] that records what a server receives and sends. What other middleware does is part of what is recorded if Server is
// added before it.
func (t *Telemetry) Server(next server.HandlerFunc) server.HandlerFunc {
	return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
		o := &operation{Telemetry: t, method: m.Method, id: m.ID, params: m.Params}
		if m.Call != nil {
			o.revision = m.Call.Revision()
		}
		if m.Direction == jsonrpc.Outgoing {
			return o.send(ctx, func(ctx context.Context, params []byte) (json.RawMessage, error) {
				m.Params = params
				return next(ctx, m)
			})
		}
		if m.Method == mcp.MethodToolsCall || m.Method == mcp.MethodPromptsGet {
			o.target = m.Call.Name()
		}
		result, err := o.receive(ctx, func(ctx context.Context) (json.RawMessage, error) { return next(ctx, m) })
		if s, _ := ctx.Value(connectionKey{}).(*connection); s != nil && o.revision != mcp.RevisionNone {
			s.revision.Store(uint32(o.revision))
		}
		return result, err
	}
}

// A Server serves a connection with each call of Serve; *[server.Server] is one.
type Server interface {
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// WrapServer returns a Server that serves as s does, and records how long each connection lasts.
func (t *Telemetry) WrapServer(s Server) Server { return recordingServer{t, s} }

type recordingServer struct {
	*Telemetry
	server Server
}

// Serve implements [Server].
func (rs recordingServer) Serve(ctx context.Context, f jsonrpc.Framer) error {
	start, s := time.Now(), new(connection)
	err := rs.server.Serve(context.WithValue(ctx, connectionKey{}, s), f)
	attrs := rs.sessionAttributes(mcp.Revision(s.revision.Load()), err)
	rs.serverSession.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(attrs...))
	return err
}
