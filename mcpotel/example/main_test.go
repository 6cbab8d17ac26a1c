package main

import (
	"bytes"
	"log"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"mcpwire/client"
	"mcpwire/mcpotel"
	"mcpwire/mcptest"
)

// TestTrace checks that the span of a call continues the trace that the client sent.
func TestTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	srv, err := newServer(mcpotel.New(&mcpotel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
	}))
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.Connect(t, srv, nil)
	sum, err := client.CallTool[int](t.Context(), c, "add", map[string]int{"A": 1, "B": 2},
		client.WithMeta("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	if sum != 3 || err != nil {
		t.Errorf("got %d, %v, want 3", sum, err)
	}
	if err := c.Close(); err != nil { // so that all spans have ended
		t.Fatal(err)
	}
	for _, s := range spans.GetSpans() {
		if s.Name != "tools/call add" {
			continue
		}
		if got, want := s.SpanContext.TraceID().String(), "0af7651916cd43dd8448eb211c80319c"; got != want || s.SpanKind != trace.SpanKindServer {
			t.Errorf("got a %s span of trace %s, want a server span of trace %s", s.SpanKind, got, want)
		}
		return
	}
	t.Errorf("no span of the call, but %v", spans.GetSpans())
}

func TestLogExporter(t *testing.T) {
	var out bytes.Buffer
	before := log.Writer()
	log.SetOutput(&out)
	defer log.SetOutput(before)
	traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(logExporter{}))
	_, span := traces.Tracer("test").Start(t.Context(), "tools/call add")
	span.End()
	if err := traces.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := span.SpanContext().TraceID().String() + ": tools/call add took "; !strings.Contains(out.String(), want) {
		t.Errorf("got %q, want %q in it", out.String(), want)
	}
}
