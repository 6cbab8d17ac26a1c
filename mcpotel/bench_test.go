package mcpotel_test

import (
	"context"
	"encoding/json"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"mcpwire/mcpotel"
	"mcpwire/mcptest"
	"mcpwire/middleware"
	"mcpwire/server"
)

// BenchmarkToolCall compares a call of a quick tool without middleware, with one that does nothing,
// and with telemetry that goes nowhere and to the SDK.
func BenchmarkToolCall(b *testing.B) {
	sdk := mcpotel.New(&mcpotel.Options{
		TracerProvider: sdktrace.NewTracerProvider(),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	for _, bb := range []struct {
		name       string
		middleware []middleware.Func
	}{
		{"none", nil},
		{"idle", []middleware.Func{func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) { return next(ctx, m) }
		}}},
		{"api", []middleware.Func{mcpotel.New(nil).Middleware}},
		{"sdk", []middleware.Func{sdk.Middleware}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			srv := server.MustNew("test", "1", nil)
			srv.Use(bb.middleware...)
			if err := server.AddTool(srv, "t", "", func(context.Context, struct{}) (string, error) { return "ok", nil }); err != nil {
				b.Fatal(err)
			}
			end := mcptest.Serve(b, mcptest.RerunCheck{Server: srv, Disabled: true})
			frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{` + modernMeta + `},"name":"t"}}`)
			b.ReportAllocs()
			for b.Loop() {
				if err := end.WriteFrame(frame); err != nil {
					b.Fatal(err)
				}
				if _, err := end.ReadFrame(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
