// Package traces records the requests of a gateway as spans of OpenTelemetry, and exports them with
// OTLP over HTTP, in its JSON encoding (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
//
// Each request of a client is a span, and the request to an upstream that it becomes is its child.
// Names and attributes are those of package mcpotel. The traceparent in _meta (SEP-414) is the
// parent, and that of the child goes to the upstream.
//
// The variables OTEL_… configure it
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/).
//
// # Concurrency
//
// The methods of a Tracer may be called by many goroutines at once. [Tracer.Close] waits for its
// goroutine.
package traces
