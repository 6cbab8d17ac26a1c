package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/jsonrpc"
	"mcpwire/mcpotel"
	"mcpwire/middleware"
)

// tracesTimeout limits the export of the last spans.
const tracesTimeout = 3 * time.Second

// openTraces returns what exports spans as the variables OTEL_… say
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/), or nil if
// they name no endpoint.
func openTraces(ctx context.Context, node string) (*sdktrace.TracerProvider, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" ||
		os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if v := os.Getenv(name); v != "" && v != "http/protobuf" {
			return nil, fmt.Errorf("%s=%s: spans are only exported by http/protobuf: unset it, and name the collector's port for HTTP", name, v)
		}
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export spans: %w", err)
	}
	// What the variables say replaces the defaults.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "mcpwire-node"), attribute.String("service.instance.id", node)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// closeTraces exports the last spans.
func closeTraces(traces *sdktrace.TracerProvider, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), tracesTimeout)
	defer cancel()
	if err := traces.Shutdown(ctx); err != nil {
		log.Warn("the last spans were not exported", "error", err)
	}
}

type upstreamKey struct{}

// upstreamAttribute returns the attribute of a span that names the upstream of a gateway.
func upstreamAttribute(ctx context.Context, _ string) []attribute.KeyValue {
	name, _ := ctx.Value(upstreamKey{}).(string)
	if name == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String("mcpwire.gateway.upstream", name)}
}

// observeGateway returns the function that records the operations of a gateway.
func observeGateway(t *mcpotel.Telemetry) gateway.ObserveFunc {
	chain := middleware.NewChain(t.Middleware)
	return func(ctx context.Context, op *gateway.Operation, next func(context.Context, json.RawMessage) (json.RawMessage, error)) {
		m := middleware.Message{Direction: jsonrpc.Incoming, Method: op.Method, ID: op.ID, Revision: op.Revision, Params: op.Params}
		if op.Upstream != "" {
			m.ClientSide, m.Direction = true, jsonrpc.Outgoing
			ctx = context.WithValue(ctx, upstreamKey{}, op.Upstream)
		}
		// The operation keeps its result.
		chain.Run(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) { return next(ctx, m.Params) })
	}
}
