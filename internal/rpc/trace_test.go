package rpc

import (
	"context"
	"strings"
	"testing"
)

const (
	traceA = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceB = "00-11111111111111111111111111111111-2222222222222222-00"
)

// Spec: S24 C17
func TestTraceOf(t *testing.T) {
	tests := []struct {
		name   string
		params string
		want   Trace
	}{
		{"none", ``, Trace{}},
		{"no _meta", `{"traceparent":"` + traceA + `"}`, Trace{}},
		{"parent", `{"_meta":{"traceparent":"` + traceA + `"}}`, Trace{Parent: traceA}},
		{"parent and state", `{"a":1,"_meta":{"tracestate":"k=v","x":{},"traceparent":"` + traceA + `"}}`, Trace{traceA, "k=v"}},
		{"state without a parent", `{"_meta":{"tracestate":"traceparent"}}`, Trace{}},
		{"array", `["traceparent"]`, Trace{}},
		{"_meta is no object", `{"_meta":"traceparent"}`, Trace{}},
		{"not a string", `{"_meta":{"traceparent":5}}`, Trace{}},
		{"upper case", `{"_meta":{"traceparent":"` + strings.ToUpper(traceA) + `"}}`, Trace{}},
		{"too short", `{"_meta":{"traceparent":"00-4bf9"}}`, Trace{}},
		{"too long", `{"_meta":{"traceparent":"` + traceA + `-00"}}`, Trace{}},
		{"trace id all zero", `{"_meta":{"traceparent":"00-00000000000000000000000000000000-00f067aa0ba902b7-01"}}`, Trace{}},
		{"parent id all zero", `{"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"}}`, Trace{}},
		{"version ff", `{"_meta":{"traceparent":"ff` + traceA[2:] + `"}}`, Trace{}},
		{"later version with more fields", `{"_meta":{"traceparent":"01` + traceA[2:] + `-more"}}`, Trace{Parent: "01" + traceA[2:] + "-more"}},
		{"later version with text after the flags", `{"_meta":{"traceparent":"01` + traceA[2:] + `x"}}`, Trace{}},
		{"several states", `{"_meta":{"traceparent":"` + traceA + `","tracestate":" rojo=00f067,,\tt61@congo=a/b:c \t"}}`, Trace{traceA, " rojo=00f067,,\tt61@congo=a/b:c \t"}},
		{"state without a value", `{"_meta":{"traceparent":"` + traceA + `","tracestate":"a=b,c"}}`, Trace{Parent: traceA}},
		{"state with an empty value", `{"_meta":{"traceparent":"` + traceA + `","tracestate":"a="}}`, Trace{Parent: traceA}},
		{"state without a key", `{"_meta":{"traceparent":"` + traceA + `","tracestate":"=b"}}`, Trace{Parent: traceA}},
		{"state with two values", `{"_meta":{"traceparent":"` + traceA + `","tracestate":"a=b=c"}}`, Trace{Parent: traceA}},
		{"state in upper case", `{"_meta":{"traceparent":"` + traceA + `","tracestate":"A=b"}}`, Trace{Parent: traceA}},
		{"state on two lines", `{"_meta":{"traceparent":"` + traceA + `","tracestate":"a=b\nc"}}`, Trace{Parent: traceA}},
		{"state beyond ASCII", `{"_meta":{"traceparent":"` + traceA + `","tracestate":"a=é"}}`, Trace{Parent: traceA}},
		{"huge state", `{"_meta":{"traceparent":"` + traceA + `","tracestate":"` + strings.Repeat("a", maxTraceText) + `"}}`, Trace{Parent: traceA}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := TraceOf([]byte(test.params)); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if got, want := (Trace{Parent: traceA}).ID(), "4bf92f3577b34da6a3ce929d0e0e4736"; got != want {
		t.Errorf("ID: got %q, want %q", got, want)
	}
	if got := (Trace{Parent: "x"}).ID(); got != "" {
		t.Errorf("ID of a malformed traceparent: %q", got)
	}
}

// Spec: S24 C17
func TestOutgoing(t *testing.T) {
	own := `"traceparent":"` + traceA + `"`
	state := own + `,"tracestate":"k=\"v\""`
	tests := []struct {
		name   string
		trace  Trace
		params string
		want   string
	}{
		{"no trace", Trace{}, `{"a":1}`, `{"a":1}`},
		{"malformed trace", Trace{Parent: "00-1-2-3", State: "k=v"}, `{"a":1}`, `{"a":1}`},
		{"malformed state", Trace{traceA, "k\nv"}, `{"a":1}`, `{"_meta":{` + own + `},"a":1}`},
		{"no params", Trace{Parent: traceA}, ``, `{"_meta":{` + own + `}}`},
		{"null", Trace{Parent: traceA}, `null`, `{"_meta":{` + own + `}}`},
		{"null without trace", Trace{}, ` null `, ``},
		{"empty", Trace{Parent: traceA}, `{}`, `{"_meta":{` + own + `}}`},
		{"empty with space", Trace{Parent: traceA}, ` { } `, `{"_meta":{` + own + `}}`},
		{"no _meta", Trace{Parent: traceA}, `{"a":1}`, `{"_meta":{` + own + `},"a":1}`},
		{"empty _meta", Trace{Parent: traceA}, `{"a":1,"_meta":{},"b":2}`, `{"a":1,"_meta":{` + own + `},"b":2}`},
		{"_meta", Trace{traceA, `k="v"`}, `{"a":1,"_meta":{"x":{"y":1}}}`, `{"a":1,"_meta":{` + state + `,"x":{"y":1}}}`},
		{"escaped _meta", Trace{Parent: traceA}, `{"\u005fmeta":{"x":1}}`, `{"\u005fmeta":{` + own + `,"x":1}}`},
		{"kept", Trace{Parent: traceA}, `{"_meta":{"traceparent":"` + traceB + `"}}`, `{"_meta":{"traceparent":"` + traceB + `"}}`},
		{"_meta is no object", Trace{Parent: traceA}, `{"_meta":1}`, `{"_meta":1}`},
		{"array", Trace{Parent: traceA}, `[1]`, `[1]`},
		{"lines", Trace{}, "{\n\"a\": 1\n}", `{"a":1}`},
		{"params on several lines", Trace{Parent: traceA}, "\n{\n\"a\": 1\n}\n", `{"_meta":{` + own + `},"a":1}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var params []byte
			if test.params != "" {
				params = []byte(test.params)
			}
			got, err := prepareParams(WithTrace(context.Background(), test.trace), params)
			if err != nil || string(got) != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, test.want)
			}
			if string(params) != test.params {
				t.Errorf("the caller's params changed to %s", params)
			}
		})
	}
	for _, params := range []string{"", " ", "1", `"x"`, "true", "{", "{}{}", "[\xff]"} {
		if got, err := prepareParams(context.Background(), []byte(params)); err == nil {
			t.Errorf("params %q were accepted as %s", params, got)
		}
	}
}

func TestTraceSize(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tt := range []struct {
		state int // in bytes
		want  bool
	}{{8<<10 - 2, true}, {8<<10 - 1, false}} {
		state := "s=" + strings.Repeat("s", tt.state-2)
		got := TraceOf([]byte(`{"_meta":{"traceparent":"` + parent + `","tracestate":"` + state + `"}}`))
		if got.Parent != parent {
			t.Errorf("with a state of %d bytes, traceparent is %q", tt.state, got.Parent)
		}
		if (got.State != "") != tt.want {
			t.Errorf("a tracestate of %d bytes: kept %v, want %v", tt.state, got.State != "", tt.want)
		}
	}
}
