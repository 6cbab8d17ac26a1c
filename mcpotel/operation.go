package mcpotel

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An operation is a message in progress.
type operation struct {
	*Telemetry
	kind   trace.SpanKind
	method string
	// target is the name of the tool or the prompt. On a server it is a registered one.
	target string
	// forwarded says that target is what the peer has sent.
	forwarded bool
	id        jsonrpc.ID
	revision  mcp.Revision
	params    []byte

	span  trace.Span
	start time.Time
}

// A nextFunc passes the message on with a context.
type nextFunc func(ctx context.Context) (json.RawMessage, error)

// run passes the message on within a span and records its duration.
func (o *operation) run(ctx context.Context, link trace.SpanContext, next nextFunc) (json.RawMessage, error) {
	o.start = time.Now()
	opts := []trace.SpanStartOption{trace.WithSpanKind(o.kind), trace.WithAttributes(o.spanAttributes(ctx)...)}
	if link.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: link}))
	}
	name := o.method
	if o.target != "" {
		name += " " + o.target
	}
	ctx, o.span = o.tracer.Start(ctx, name, opts...)
	ended := false
	defer func() {
		if ended {
			return
		}
		// It panicked or called runtime.Goexit.
		f := failure{errorType: errorPanic, message: "the handler panicked"}
		if len(o.id) > 0 {
			f.code = jsonrpc.CodeInternalError
		}
		o.end(ctx, f)
	}()
	result, err := next(ctx)
	ended = true
	f := failureOf(err, o.kind == trace.SpanKindServer && ctx.Err() == nil)
	switch {
	case err != nil:
	case o.method == mcp.MethodToolsCall && toolFailed(result):
		f.errorType = errorTool
	case o.method == mcp.MethodInitialize:
		if r, ok := mcp.ParseRevision(stringMember(result, "protocolVersion")); ok {
			o.revision = r
			o.span.SetAttributes(attrVersion.String(r.String()))
		}
	}
	if o.opts.Content && o.method == mcp.MethodToolsCall && f.errorType == "" {
		o.span.SetAttributes(attrResult.String(string(result)))
	}
	o.end(ctx, f)
	return result, err
}

// end records the result of the operation.
func (o *operation) end(ctx context.Context, f failure) {
	o.span.SetAttributes(f.attributes()...)
	if f.errorType != "" {
		o.span.SetStatus(codes.Error, f.message)
	}
	o.span.End()
	h := o.serverOperation
	if o.kind == trace.SpanKindClient {
		h = o.clientOperation
	}
	if o.kind == trace.SpanKindClient || o.forwarded {
		if o.target != "" && !o.targets.allow(o.target, f.errorType == "" || f.errorType == errorTool) {
			o.target = ""
		}
		f = f.withKnownCode()
	}
	attrs := append(o.commonAttributes(), f.attributes()...)
	h.Record(ctx, time.Since(o.start).Seconds(), metric.WithAttributes(attrs...))
}

// commonAttributes returns the attributes of both spans and metrics.
func (o *operation) commonAttributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{attrMethod.String(o.method)}
	switch o.method {
	case mcp.MethodToolsCall:
		attrs = append(attrs, attrOperation.String("execute_tool"))
		if o.target != "" {
			attrs = append(attrs, attrTool.String(o.target))
		}
	case mcp.MethodPromptsGet:
		if o.target != "" {
			attrs = append(attrs, attrPrompt.String(o.target))
		}
	}
	if o.revision != mcp.RevisionNone {
		attrs = append(attrs, attrVersion.String(o.revision.String()))
	}
	if o.opts.Transport != "" {
		attrs = append(attrs, attrTransport.String(o.opts.Transport))
	}
	return attrs
}

func (o *operation) spanAttributes(ctx context.Context) []attribute.KeyValue {
	attrs := o.commonAttributes()
	if len(o.id) > 0 {
		attrs = append(attrs, attrRequestID.String(requestID(o.id)))
	}
	if namesResource(o.method) {
		if uri := stringMember(o.params, "uri"); uri != "" {
			attrs = append(attrs, attrResource.String(uri))
		}
	}
	if o.opts.Content && o.method == mcp.MethodToolsCall {
		if args := jsonwire.Lookup(o.params, "arguments"); args != nil {
			attrs = append(attrs, attrArguments.String(string(args)))
		}
	}
	if o.opts.Attributes != nil {
		attrs = append(attrs, o.opts.Attributes(ctx, o.method)...)
	}
	return attrs
}

// receive runs an incoming operation. The peer's span is the parent; a span in ctx becomes a link.
func (o *operation) receive(ctx context.Context, next nextFunc) (json.RawMessage, error) {
	o.kind = trace.SpanKindServer
	ambient := trace.SpanContextFromContext(ctx)
	ctx = o.extract(ctx, o.params)
	if trace.SpanContextFromContext(ctx).Equal(ambient) {
		ambient = trace.SpanContext{} // already the parent
	}
	return o.run(ctx, ambient, func(ctx context.Context) (json.RawMessage, error) {
		return next(withTraceContext(ctx))
	})
}

// send runs an outgoing operation.
func (o *operation) send(ctx context.Context, next func(ctx context.Context, params []byte) (json.RawMessage, error)) (json.RawMessage, error) {
	o.kind = trace.SpanKindClient
	return o.run(ctx, trace.SpanContext{}, func(ctx context.Context) (json.RawMessage, error) {
		return next(ctx, o.inject(ctx, o.params))
	})
}

// withTraceContext makes the span in ctx the parent of messages that are sent without this package.
func withTraceContext(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if carrier["traceparent"] == "" {
		return ctx
	}
	return rpc.WithTrace(ctx, rpc.Trace{Parent: carrier["traceparent"], State: carrier["tracestate"]})
}

// A connection tracks an open connection.
type connection struct {
	// revision is that of the last request.
	revision atomic.Uint32
}

type connectionKey struct{}

// sessionAttributes returns the attributes of session metrics.
func (t *Telemetry) sessionAttributes(r mcp.Revision, err error) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if r != mcp.RevisionNone {
		attrs = append(attrs, attrVersion.String(r.String()))
	}
	if t.opts.Transport != "" {
		attrs = append(attrs, attrTransport.String(t.opts.Transport))
	}
	if f := failureOf(err, false).withKnownCode(); err != nil && f.errorType != errorCanceled {
		attrs = append(attrs, attrErrorType.String(f.errorType))
	}
	return attrs
}

// maxMetaValueBytes is the longest JSON text of a value that is read from _meta.
const maxMetaValueBytes = 8 << 10

// extract returns ctx with the trace data in the _meta of params.
func (t *Telemetry) extract(ctx context.Context, params []byte) context.Context {
	meta := jsonwire.Lookup(params, "_meta")
	if len(meta) == 0 || meta[0] != '{' {
		return ctx
	}
	carrier := propagation.MapCarrier{}
	for _, field := range t.propagator.Fields() {
		if v := jsonwire.Lookup(meta, field); len(v) > 1 && v[0] == '"' && len(v) <= maxMetaValueBytes {
			carrier[field] = jsonwire.UnquoteString(v[1 : len(v)-1])
		}
	}
	if len(carrier) == 0 {
		return ctx
	}
	return t.propagator.Extract(ctx, carrier)
}

// inject returns params with the trace data of ctx in _meta. It replaces older trace data. params
// is the text of an object or nil.
func (t *Telemetry) inject(ctx context.Context, params []byte) []byte {
	carrier := propagation.MapCarrier{}
	t.propagator.Inject(ctx, carrier)
	if len(carrier) == 0 || len(params) > 0 && params[0] != '{' {
		return params
	}
	old := jsonwire.Lookup(params, "_meta")
	if len(old) > 0 && old[0] != '{' {
		return params // invalid; the receiver reports it
	}
	meta := appendMembers([]byte("{"), old, func(key string) bool {
		// The old tracestate belongs to the replaced traceparent.
		return carrier[key] == "" && (key != "tracestate" || carrier["traceparent"] == "")
	})
	for _, key := range slices.Sorted(maps.Keys(carrier)) {
		meta = appendComma(meta)
		meta = jsonwire.AppendQuote(append(jsonwire.AppendQuote(meta, key), ':'), carrier[key])
	}
	out := append(append([]byte(`{"_meta":`), meta...), '}')
	return append(appendMembers(out, params, func(key string) bool { return key != "_meta" }), '}')
}

// appendMembers appends the members of an object for whose key keep returns true.
func appendMembers(dst, object []byte, keep func(key string) bool) []byte {
	if len(object) == 0 {
		return dst
	}
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		if key := members.KeyString(); keep(key) {
			dst = appendComma(dst)
			dst = append(append(jsonwire.AppendQuote(dst, key), ':'), members.Value()...)
		}
	}
	return dst
}

// appendComma appends a comma unless the object is empty.
func appendComma(dst []byte) []byte {
	if dst[len(dst)-1] == '{' {
		return dst
	}
	return append(dst, ',')
}
