package mcpotel

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"mcpwire/internal/json/jsonwire"
)

const (
	parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	state  = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
)

func TestExtract(t *testing.T) {
	for _, tt := range []struct{ params, id, state, baggage string }{
		{``, "", "", ""},
		{`{}`, "", "", ""},
		{`[1]`, "", "", ""},
		{`{"_meta":null}`, "", "", ""},
		{`{"_meta":{"traceparent":"` + parent + `"}}`, "0af7651916cd43dd8448eb211c80319c", "", ""},
		{`{ "a":1, "_\u006deta" : {"tracep\u0061rent":"` + parent + `","tracestate":"` + state + `","baggage":"user=alice,n=DF%2028"} }`,
			"0af7651916cd43dd8448eb211c80319c", state, "DF 28"},
		{`{"_meta":{"baggage":"n=x"}}`, "", "", "x"},
		{`{"_meta":{"traceparent":7,"baggage":{}}}`, "", "", ""},
		{`{"_meta":{"traceparent":"nonsense","baggage":"="}}`, "", "", ""},
		{`{"_meta":{"traceparent":"00-00000000000000000000000000000000-b7ad6b7169203331-01"}}`, "", "", ""},
		{`{"_meta":{"baggage":"n=` + strings.Repeat("x", maxMetaValueBytes) + `"}}`, "", "", ""},
		{`{"_meta":{"Traceparent":"` + parent + `"}}`, "", "", ""},
	} {
		ctx := New(nil).extract(context.Background(), []byte(tt.params))
		sc := trace.SpanContextFromContext(ctx)
		id := ""
		if sc.IsValid() {
			id = sc.TraceID().String()
		}
		if got := baggage.FromContext(ctx).Member("n").Value(); id != tt.id || sc.TraceState().String() != tt.state || got != tt.baggage {
			t.Errorf("%.200s: got trace %q, state %q, baggage %q", tt.params, id, sc.TraceState(), got)
		}
	}
}

// Spec: S24
func TestInject(t *testing.T) {
	full := New(nil).extract(context.Background(), []byte(`{"_meta":{"traceparent":"`+parent+`","tracestate":"`+state+`","baggage":"user=alice"}}`))
	const own = `"baggage":"user=alice","traceparent":"` + parent + `","tracestate":"` + state + `"`
	for _, tt := range []struct{ params, want string }{
		{``, `{"_meta":{` + own + `}}`},
		{`{}`, `{"_meta":{` + own + `}}`},
		{`{"a":1,"b":{}}`, `{"_meta":{` + own + `},"a":1,"b":{}}`},
		{`{"a":1,"_meta":{"x":2},"b":3}`, `{"_meta":{"x":2,` + own + `},"a":1,"b":3}`},
		{`{ "_meta" : { "traceparent" : "old" , "x" : {} } }`, `{"_meta":{"x":{},` + own + `}}`},
		{`{"_\u006deta":{"b\u0061ggage":"old"}}`, `{"_meta":{` + own + `}}`},
		{`[1]`, `[1]`},
		{`{"_meta":7}`, `{"_meta":7}`},
	} {
		if got := string(New(nil).inject(full, []byte(tt.params))); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.params, got, tt.want)
		}
	}
	stateless := New(nil).extract(context.Background(), []byte(`{"_meta":{"traceparent":"`+parent+`"}}`))
	const old = `{"_meta":{"traceparent":"old","tracestate":"old=1","baggage":"own=1"}}`
	if got, want := string(New(nil).inject(stateless, []byte(old))), `{"_meta":{"baggage":"own=1","traceparent":"`+parent+`"}}`; got != want {
		t.Errorf("the state of another trace: got %s, want %s", got, want)
	}
	if got := string(New(nil).inject(context.Background(), []byte(`{"a":1}`))); got != `{"a":1}` {
		t.Errorf("nothing to inject: got %s", got)
	}
}

// TestPropagator shows that a Propagator can limit what is taken from peers that are not trusted.
func TestPropagator(t *testing.T) {
	const params = `{"_meta":{"traceparent":"` + parent + `","baggage":"user=alice"}}`
	trusting := New(nil).extract(context.Background(), []byte(params))
	for _, tt := range []struct {
		name       string
		propagator propagation.TextMapPropagator
		trace      bool
		sent       string
	}{
		{"trace context", propagation.TraceContext{}, true, `{"_meta":{"traceparent":"` + parent + `"}}`},
		{"nothing", propagation.NewCompositeTextMapPropagator(), false, `{}`},
	} {
		tel := New(&Options{Propagator: tt.propagator})
		ctx := tel.extract(context.Background(), []byte(params))
		if got := trace.SpanContextFromContext(ctx).IsValid(); got != tt.trace || baggage.FromContext(ctx).Len() > 0 {
			t.Errorf("%s: a trace is taken: %t; baggage %v", tt.name, got, baggage.FromContext(ctx))
		}
		if got := string(tel.inject(trusting, []byte(`{}`))); got != tt.sent {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.sent)
		}
	}
}

func FuzzInject(f *testing.F) {
	f.Add([]byte(`{"a":1,"_meta":{"x":2}}`))
	f.Add([]byte(`{"_meta":{"traceparent":"` + parent + `"},"b":[{}]}`))
	f.Add([]byte(`null`))
	t := New(nil)
	full := t.extract(context.Background(), []byte(`{"_meta":{"traceparent":"`+parent+`"}}`))
	f.Fuzz(func(tb *testing.T, params []byte) {
		if !validObject(params) {
			return
		}
		out := t.inject(full, params)
		if !validObject(out) {
			tb.Fatalf("%s became %s", params, out)
		}
		if meta := jsonwire.Lookup(params, "_meta"); meta == nil || meta[0] == '{' {
			if got := trace.SpanContextFromContext(t.extract(context.Background(), out)); got.SpanID().String() != "b7ad6b7169203331" {
				tb.Errorf("%s became %s, of which the trace is lost", params, out)
			}
		}
	})
}
