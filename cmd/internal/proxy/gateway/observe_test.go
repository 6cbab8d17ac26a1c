package gateway

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcpotel"
	"mcpwire/middleware"
	"mcpwire/server"
)

// observeWith returns an ObserveFunc that runs operations through middleware.
func observeWith(f middleware.Func) ObserveFunc {
	chain := middleware.NewChain(f)
	return func(ctx context.Context, op *Operation, next func(context.Context, json.RawMessage) (json.RawMessage, error)) {
		m := middleware.Message{Direction: jsonrpc.Incoming, Method: op.Method, ID: op.ID, Revision: op.Revision, Params: op.Params}
		if op.Upstream != "" {
			m.ClientSide, m.Direction = true, jsonrpc.Outgoing
		}
		chain.Run(ctx, m, func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) { return next(ctx, m.Params) })
	}
}

// TestOneTrace checks that a call from a client through the gateway to a server is one trace, for
// all pairs of eras, and that the spans of the gateway have the type of a failure.
func TestOneTrace(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		for _, served := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			t.Run(revision.String()+" to "+served.String(), func(t *testing.T) {
				exporter := tracetest.NewInMemoryExporter()
				telemetry := func(who string) *mcpotel.Telemetry {
					return mcpotel.New(&mcpotel.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), Transport: who})
				}
				srv := fullServer("up", served)
				srv.Use(telemetry("server").Middleware)
				u := streamUpstream("up", srv)
				g := newGateway(t, &Options{Upstreams: []Upstream{u}, Observe: observeWith(telemetry("gateway").Middleware)})
				opts := fullClientOptions(revision)
				c, err := telemetry("client").Dial(t.Context(), client.TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
					ours, theirs := net.Pipe()
					go g.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
					return jsonrpc.NewFramer(ours, nil), nil
				}), &opts)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for _, name := range []string{"up__who", "up__fail", "up__nothing"} {
					c.CallTool(t.Context(), name, nil)
				}
				c.Close()
				g.Close()
				srv.Close(context.Background())
				type span struct{ who, kind, name string }
				byID := map[trace.SpanID]tracetest.SpanStub{}
				describe := func(s tracetest.SpanStub) span {
					who := ""
					for _, a := range s.Attributes {
						if a.Key == "network.transport" {
							who = a.Value.AsString()
						}
					}
					return span{who, s.SpanKind.String(), s.Name}
				}
				spans := exporter.GetSpans()
				for _, s := range spans {
					byID[s.SpanContext.SpanID()] = s
				}
				got := map[string]string{}
				for _, s := range spans {
					d := describe(s)
					if !strings.HasPrefix(d.name, "tools/call") {
						continue
					}
					key := d.who + " " + d.kind + " " + d.name
					failure := ""
					for _, a := range s.Attributes {
						if a.Key == "error.type" {
							failure = " " + a.Value.AsString()
						}
					}
					parent := "none"
					if p, ok := byID[s.Parent.SpanID()]; ok && p.SpanContext.TraceID() == s.SpanContext.TraceID() {
						d := describe(p)
						parent = d.who + " " + d.kind + " " + d.name
					}
					got[key] = parent + failure
				}
				want := map[string]string{
					"client client tools/call up__who":      "none",
					"gateway server tools/call up__who":     "client client tools/call up__who",
					"gateway client tools/call who":         "gateway server tools/call up__who",
					"server server tools/call who":          "gateway client tools/call who",
					"client client tools/call up__fail":     "none tool_error",
					"gateway server tools/call up__fail":    "client client tools/call up__fail tool_error",
					"gateway client tools/call fail":        "gateway server tools/call up__fail tool_error",
					"server server tools/call fail":         "gateway client tools/call fail tool_error",
					"client client tools/call up__nothing":  "none -32602",
					"gateway server tools/call up__nothing": "client client tools/call up__nothing -32602",
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("parents and errors (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestNotObserved checks that a request fails if Options.Observe does not call next.
func TestNotObserved(t *testing.T) {
	srv := server.MustNew("up", "1", nil)
	defer srv.Close(context.Background())
	g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("up", srv)}, Observe: func(context.Context, *Operation, func(context.Context, json.RawMessage) (json.RawMessage, error)) {}})
	if got := request(t, t.Context(), g.Stateless(), mcp.MethodToolsList, "{"+modernMeta+"}"); !strings.Contains(got, errNotObserved.Error()) {
		t.Errorf("got %s", got)
	}
}
