package mcpotel

import (
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/propagation"

	"mcpwire/internal/jsonwire"
)

// maxMetaValueBytes is the longest value, in bytes of JSON text, that is taken from _meta.
const maxMetaValueBytes = 8 << 10

// extract returns ctx with what the _meta of params carries.
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

// inject returns params whose _meta carries what is in ctx, in place of what it carried before. params is the text of an object, or nil.
func (t *Telemetry) inject(ctx context.Context, params []byte) []byte {
	carrier := propagation.MapCarrier{}
	t.propagator.Inject(ctx, carrier)
	if len(carrier) == 0 || len(params) > 0 && params[0] != '{' {
		return params
	}
	old := jsonwire.Lookup(params, "_meta")
	if len(old) > 0 && old[0] != '{' {
		return params // it is no business of this package to mend that
	}
	meta := appendMembers([]byte("{"), old, func(key string) bool {
		return carrier[key] == "" && (key != "tracestate" || carrier["traceparent"] == "") // the state is that of the trace
	})
	for _, key := range slices.Sorted(maps.Keys(carrier)) {
		meta = appendComma(meta)
		meta = jsonwire.AppendQuote(append(jsonwire.AppendQuote(meta, key), ':'), carrier[key])
	}
	out := append(append([]byte(`{"_meta":`), meta...), '}')
	return append(appendMembers(out, params, func(key string) bool { return key != "_meta" }), '}')
}

// appendMembers appends the members of an object whose keys are to be kept.
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

// appendComma appends one unless the object has no member yet.
func appendComma(dst []byte) []byte {
	if dst[len(dst)-1] == '{' {
		return dst
	}
	return append(dst, ',')
}
