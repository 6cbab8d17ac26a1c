package mcpotel

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/metric"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Client is a [client.Middleware] that records what a client sends and receives. A call is one operation, with all that it takes: the server's
// questions, and what was sent again. [Telemetry.Dial] records the session besides.
func (t *Telemetry) Client(next client.HandlerFunc) client.HandlerFunc {
	return func(ctx context.Context, m *client.Message) (json.RawMessage, error) {
		o := &operation{Telemetry: t, method: m.Method, id: m.ID, revision: m.Revision, params: m.Params}
		switch {
		case m.Direction == jsonrpc.Outgoing:
			if m.Method == mcp.MethodToolsCall || m.Method == mcp.MethodPromptsGet {
				o.target = stringMember(m.Params, "name")
			}
			return o.send(ctx, func(ctx context.Context, params []byte) (json.RawMessage, error) {
				m.Params = params
				return next(withTraceContext(ctx), m)
			})
		case m.Notification && !serverNotifications[m.Method]:
			return next(ctx, m) // a server may send as many kinds of them as it likes
		}
		return o.receive(ctx, func(ctx context.Context) (json.RawMessage, error) { return next(ctx, m) })
	}
}

// serverNotifications are those that servers send.
var serverNotifications = map[string]bool{
	mcp.NotificationCancelled:           true,
	mcp.NotificationProgress:            true,
	mcp.NotificationMessage:             true,
	mcp.NotificationToolsChanged:        true,
	mcp.NotificationResourcesChanged:    true,
	mcp.NotificationPromptsChanged:      true,
	mcp.NotificationResourceUpdated:     true,
	mcp.NotificationAcknowledged:        true,
	mcp.NotificationElicitationComplete: true,
	mcp.NotificationTaskStatus:          true,
	mcp.NotificationTasks:               true,
}

// Dial is [client.Dial] with [Telemetry.Client] as the outermost middleware, and records how long the Client lasts.
func (t *Telemetry) Dial(ctx context.Context, transport client.Transport, opts *client.Options) (*client.Client, error) {
	var o client.Options
	if opts != nil {
		o = *opts
	}
	o.Middleware = append([]client.Middleware{t.Client}, o.Middleware...)
	start, onEnd := time.Now(), o.OnEnd
	o.OnEnd = func(c *client.Client, err error) {
		attrs := t.sessionAttributes(c.Revision(), err)
		t.clientSession.Record(context.Background(), time.Since(start).Seconds(), metric.WithAttributes(attrs...))
		if onEnd != nil {
			onEnd(c, err)
		}
	}
	return client.Dial(ctx, transport, &o)
}
