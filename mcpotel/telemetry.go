package mcpotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Options are the options of [New]. The zero value is ready to use, and what nil means.
type Options struct {
	TracerProvider trace.TracerProvider // nil is the global one
	MeterProvider  metric.MeterProvider // nil is the global one

	// Propagator reads contexts from _meta and writes them there; the keys it uses get no prefix. nil is W3C Trace Context and W3C Baggage, which the
	// specification names, whatever the global one is.
	Propagator propagation.TextMapPropagator

	// Transport is the attribute network.transport: "pipe" for standard input and output, "tcp" or "quic" for HTTP, "unix" for a socket. "" leaves it
	// out.
	Transport string

	// Content records tools' arguments, and the results of those that did not fail, on their spans, as JSON text. They may hold anything, secrets among it.
	Content bool

	// Attributes returns more attributes for the span of a message, mcp.session.id for example; nil adds none. It may be called by many goroutines at once.
	Attributes func(ctx context.Context, method string) []attribute.KeyValue
}

// A Telemetry records. Make one with [New].
type Telemetry struct {
	opts       Options
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	targets    nameSet

	serverOperation, clientOperation metric.Float64Histogram
	serverSession, clientSession     metric.Float64Histogram
}

const scope = "mcpwire/mcpotel"

// durationBuckets are those of the buckets that the conventions ask for, in seconds.
var durationBuckets = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// New returns a Telemetry. opts may be nil; it is copied.
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

func histogram(m metric.Meter, name, description string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithDescription(description), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(durationBuckets...))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Histogram{}
	}
	return h
}
