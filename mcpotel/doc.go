// Package mcpotel records traces and metrics of MCP with OpenTelemetry. It follows
// the semantic conventions for MCP, which are in development and may change
// (https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md).
// A server:
//
//	tel := mcpotel.New(&mcpotel.Options{Transport: "pipe"})
//	srv.Use(tel.Middleware)
//	err := stdio.Serve(ctx, tel.WrapServer(srv))
//
// A client:
//
//	c, err := tel.Dial(ctx, transport, nil)
//
// Each request and each notification is a span, of kind server for incoming and of
// kind client for outgoing messages. _meta carries the trace context and the baggage
// as traceparent, tracestate and baggage
// (https://modelcontextprotocol.io/specification/2026-07-28/basic#_meta). The span of
// an incoming message is in the handler's context, so it is the parent of the
// handler's spans and of its requests to other servers.
//
// The metrics are the histograms mcp.server.operation.duration,
// mcp.client.operation.duration, mcp.server.session.duration and
// mcp.client.session.duration, in seconds. Their attributes have a bounded number of
// values, whatever peers send: a server records only names of registered tools and
// prompts, a client only names that a server has answered for. Unknown error codes of
// peers are recorded as _OTHER, and URIs are not recorded. Spans have all of these.
//
// The package depends only on the OpenTelemetry API. Without an SDK it records
// nothing, but still propagates trace contexts.
//
// # Trust
//
// The package trusts the trace data of peers: the trace of a span, the sampling
// decision (unless the sampler decides itself), and the baggage, which handlers see
// and which their requests to other servers carry. It also sends the baggage of the
// context to each peer. To trust less, set [Options.Propagator]:
// propagation.TraceContext{} neither accepts nor sends baggage. With an empty
// composite (propagation.NewCompositeTextMapPropagator()) peers do not determine the
// trace of a span either.
//
// # Concurrency
//
// A [Telemetry] may be used by multiple servers, clients and goroutines at once.
//
// # Errors
//
// The package returns no errors of the API; they go to the API's error handler. The
// attribute error.type is the code of the JSON-RPC error if there is one. It is
// tool_error for a tool's result with isError, and panic for a handler that panics
// (answered with -32603). Without a response it is timeout, cancelled (by the
// caller), closed (the connection ended), or _OTHER.
package mcpotel
