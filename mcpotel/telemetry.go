package mcpotel

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// Options are the options of [New]. The zero value is ready to use; a nil *Options means the same.
type Options struct {
	// TracerProvider creates the tracer. Nil means the global one.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the meter. Nil means the global one.
	MeterProvider metric.MeterProvider

	// Propagator reads and writes trace data in _meta, with its keys unprefixed. Nil means W3C
	// Trace Context and W3C Baggage, which the specification names, and not the global one.
	Propagator propagation.TextMapPropagator

	// Transport is the attribute network.transport: "pipe" for standard input and output, "tcp" or
	// "quic" for HTTP, "unix" for a socket. If it is empty, the attribute is left out.
	Transport string

	// Content records the arguments and the successful results of tools on spans, as JSON text.
	// They may contain secrets.
	Content bool

	// Attributes returns additional attributes for a message's span, for example mcp.session.id.
	// Nil adds none. It may be called by multiple goroutines at once.
	Attributes func(ctx context.Context, method string) []attribute.KeyValue
}

// A Telemetry records traces and metrics. Create one with [New].
type Telemetry struct {
	opts       Options
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	targets    nameSet

	serverOperation, clientOperation metric.Float64Histogram
	serverSession, clientSession     metric.Float64Histogram
}

const scope = "mcpwire/mcpotel"

// durationBuckets are the bucket boundaries of the conventions, in seconds.
var durationBuckets = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// New returns a Telemetry. It copies opts, which may be nil.
func New(opts *Options) *Telemetry {
	t := &Telemetry{}
	if opts != nil {
		t.opts = *opts
	}
	o := &t.opts
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if t.propagator = o.Propagator; t.propagator == nil {
		t.propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	t.tracer = o.TracerProvider.Tracer(scope)
	meter := o.MeterProvider.Meter(scope)
	t.serverOperation = histogram(meter, "mcp.server.operation.duration",
		"Duration of requests and notifications on the side that receives them.")
	t.clientOperation = histogram(meter, "mcp.client.operation.duration",
		"Duration of requests and notifications on the side that sends them.")
	t.serverSession = histogram(meter, "mcp.server.session.duration", "Duration of sessions on the server.")
	t.clientSession = histogram(meter, "mcp.client.session.duration", "Duration of sessions on the client.")
	return t
}

// histogram returns a histogram of seconds.
func histogram(m metric.Meter, name, description string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithDescription(description), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(durationBuckets...))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Histogram{}
	}
	return h
}

// Middleware records the messages of a server or a client in both directions. It is a
// [middleware.Func]. Add it before other middleware to include their time. A client's call is one
// operation, including input requests and retries; [Telemetry.Dial] also records the session.
//
// A proxy can run its messages through a [middleware.Chain] with it. The metrics then have the
// names of tools and prompts that have been answered without an error, as on a client.
func (t *Telemetry) Middleware(next middleware.Handler) middleware.Handler {
	return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		o := &operation{Telemetry: t, method: m.Method, id: m.ID, revision: m.Revision, params: m.Params}
		if m.Direction == jsonrpc.Outgoing {
			return t.send(ctx, o, m, next)
		}
		if m.ClientSide && m.Notification && !serverNotifications[m.Method] {
			return next(ctx, m) // the kinds of notifications from a server are unbounded
		}
		if !m.ClientSide && namesTarget(m.Method) {
			if c := server.CallOf(ctx); c != nil {
				o.target = c.Name()
			} else { // a proxy, which knows only what servers answer
				o.target, o.forwarded = stringMember(m.Params, "name"), true
			}
		}
		result, err := o.receive(ctx, func(ctx context.Context) (json.RawMessage, error) { return next(ctx, m) })
		if s, _ := ctx.Value(connectionKey{}).(*connection); s != nil && !m.ClientSide && o.revision != mcp.RevisionNone {
			s.revision.Store(uint32(o.revision))
		}
		return result, err
	}
}

// send records an outgoing message.
func (t *Telemetry) send(ctx context.Context, o *operation, m *middleware.Message, next middleware.Handler) (json.RawMessage, error) {
	if m.ClientSide && namesTarget(m.Method) {
		o.target = stringMember(m.Params, "name")
	}
	return o.send(ctx, func(ctx context.Context, params []byte) (json.RawMessage, error) {
		m.Params = params
		if m.ClientSide {
			ctx = withTraceContext(ctx)
		}
		return next(ctx, m)
	})
}

// namesTarget reports whether requests of the method name a tool or a prompt.
func namesTarget(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet
}

// WrapServer returns a Server that calls s and records the duration of each connection.
func (t *Telemetry) WrapServer(s jsonrpc.Server) jsonrpc.Server { return recordingServer{t, s} }

type recordingServer struct {
	*Telemetry
	server jsonrpc.Server
}

// Serve implements jsonrpc.Server.
func (rs recordingServer) Serve(ctx context.Context, f jsonrpc.Framer) error {
	start, s := time.Now(), new(connection)
	err := rs.server.Serve(context.WithValue(ctx, connectionKey{}, s), f)
	attrs := rs.sessionAttributes(mcp.Revision(s.revision.Load()), err)
	rs.serverSession.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(attrs...))
	return err
}

// serverNotifications holds the notifications that servers send.
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

// Dial is [client.Dial] with [Telemetry.Middleware] as the outermost middleware. It records the
// duration of the session.
func (t *Telemetry) Dial(ctx context.Context, transport client.Transport, opts *client.Options) (*client.Client, error) {
	var o client.Options
	if opts != nil {
		o = *opts
	}
	o.Middleware = append([]middleware.Func{t.Middleware}, o.Middleware...)
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
