package mcpotel_test

import (
	"context"
	"fmt"
	"log"
	"net"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcpotel"
	"mcpwire/server"
)

// A server and a client in one process, so that both sides of a call can be seen. A program has one
// of them, sets the SDK up with its own exporter, and serves with stdio.Serve(ctx,
// tel.WrapServer(srv)).
func Example() {
	spans := tracetest.NewInMemoryExporter()
	tel := mcpotel.New(&mcpotel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		Transport:      "pipe",
	})

	srv := server.MustNew("calculator", "1.0.0", nil)
	srv.Use(tel.Middleware)
	if err := server.AddTool(srv, "add", "", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }); err != nil {
		log.Fatal(err)
	}
	local, otherEnd := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- tel.WrapServer(srv).Serve(context.Background(), jsonrpc.NewFramer(otherEnd, nil)) }()

	ctx := context.Background()
	c, err := tel.Dial(ctx, client.FramerTransport(jsonrpc.NewFramer(local, nil)), &client.Options{Revisions: []mcp.Revision{mcp.Revision20260728}})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Call(ctx, "tools/call", map[string]any{"name": "add", "arguments": map[string]int{"A": 1, "B": 2}}, nil); err != nil {
		log.Fatal(err)
	}
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	parents := map[string]string{"0000000000000000": "none"}
	for _, s := range spans.GetSpans() {
		parents[s.SpanContext.SpanID().String()] = s.SpanKind.String()
	}
	for _, s := range spans.GetSpans() {
		fmt.Printf("%s %q, parent: %s\n", s.SpanKind, s.Name, parents[s.Parent.SpanID().String()])
	}
	// Unordered output:
	// client "server/discover", parent: none
	// server "server/discover", parent: client
	// client "tools/call add", parent: none
	// server "tools/call add", parent: client
}
