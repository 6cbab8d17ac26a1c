// Package mcpotel records traces and metrics of MCP with OpenTelemetry, by its semantic conventions for MCP
// (https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md), which are in development and may change. A server:
//
//	tel := mcpotel.New(&mcpotel.Options{Transport: "pipe"})
//	srv.Use(tel.Server)
//	err := stdio.Serve(ctx, tel.WrapServer(srv))
//
// A client:
//
//	c, err := tel.Dial(ctx, carrier, nil)
//
// Each request and each notification is a span: of kind server for what comes in, of kind client for what goes out. The trace context and the
// baggage travel in _meta, as traceparent, tracestate and baggage (https://modelcontextprotocol.io/specification/2026-07-28/basic#_meta). A
// span that came in is the parent of what a handler does: its context has it, and what it sends to other servers carries it on.
//
// The metrics are the histograms mcp.server.operation.duration, mcp.client.operation.duration, mcp.server.session.duration and
// mcp.client.session.duration, in seconds. Their attributes have few values, whatever peers and models make up: names of tools and prompts only if a
// server has them registered, or a client was answered by them; of what peers answer with only codes that are known, the others being _OTHER; and never
// a URI. Spans have it all.
//
// Only the OpenTelemetry API is linked. Without an SDK that is set up nothing is recorded, but trace contexts are passed on.
//
// # Trust
//
// What a peer says of its trace is taken on trust: which trace a span is in, whether it is sampled (unless the sampler decides for itself), and the baggage,
// which handlers see and which goes out with what they send, to other servers too. And each peer is sent the baggage of the context. Where that is too
// much, set [Options.Propagator]: propagation.TraceContext{} neither takes nor sends baggage, and with an empty composite
// (propagation.NewCompositeTextMapPropagator()) no peer decides of which trace a span is.
//
// # Concurrency
//
// A [Telemetry] may be used by many servers, clients and goroutines at once.
//
// # Errors
//
// There are none: what the API complains of goes to its error handler. The attribute error.type is the JSON-RPC error code if there is one, or
// tool_error (a tool's result with isError), panic (of a handler; it is answered with -32603), and if there is no answer timeout, cancelled (by the one
// who waits for it), closed (the connection ended), or _OTHER.
package mcpotel
