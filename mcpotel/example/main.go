// Otel is a server on standard input and output that records traces with OpenTelemetry. The trace
// goes on in the server if the client sends its own.
//
//	mcpwire call add A=1 B=2 --verbose -- go run ./mcpotel/example
package main

import (
	"context"
	"errors"
	"log"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"mcpwire/mcpotel"
	"mcpwire/server"
	"mcpwire/stdio"
)

// newServer returns a server that passes its messages through tel.
func newServer(tel *mcpotel.Telemetry) (*server.Server, error) {
	srv, err := server.New("calculator", "1.0.0", nil)
	if err != nil {
		return nil, err
	}
	srv.Use(tel.Middleware)
	err = server.AddTool(srv, "add", "Add two numbers.", func(ctx context.Context, in struct{ A, B int }) (int, error) {
		// A span that is begun with ctx is a child of the call's span.
		return in.A + in.B, nil
	})
	return srv, err
}

// A logExporter writes spans to standard error. Use an exporter for your collector instead, such as
// go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp.
type logExporter struct{}

func (logExporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		log.Printf("trace %s: %s took %v, status %s", s.SpanContext().TraceID(), s.Name(), s.EndTime().Sub(s.StartTime()), s.Status().Code)
	}
	return nil
}

func (logExporter) Shutdown(context.Context) error { return nil }

func run(ctx context.Context) error {
	traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(logExporter{}))
	tel := mcpotel.New(&mcpotel.Options{TracerProvider: traces, Transport: "pipe"})
	srv, err := newServer(tel)
	if err != nil {
		return err
	}
	// WrapServer counts connections and measures how long they last.
	err = stdio.Serve(ctx, tel.WrapServer(srv))
	return errors.Join(err, traces.Shutdown(ctx)) // Shutdown exports the last spans
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
