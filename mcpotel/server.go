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
		if s, _ := ctx.Value(sessionKey{}).(*session); s != nil && o.revision != mcp.RevisionNone {
			s.revision.Store(uint32(o.revision))
		}
		return result, err
	}
}

// A Server serves a connection with each call of Serve; *[server.Server] is one.
type Server interface {
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// Serving returns a Server that serves as s does, and records how long each connection lasts.
func (t *Telemetry) Serving(s Server) Server { return serving{t, s} }

type serving struct {
	*Telemetry
	server Server
}

// Serve implements [Server].
func (v serving) Serve(ctx context.Context, f jsonrpc.Framer) error {
	began, s := time.Now(), new(session)
	err := v.server.Serve(context.WithValue(ctx, sessionKey{}, s), f)
	attrs := v.sessionAttributes(mcp.Revision(s.revision.Load()), err)
	v.serverSession.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(attrs...))
	return err
}
