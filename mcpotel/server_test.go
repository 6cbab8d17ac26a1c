package mcpotel_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcpotel"
	"mcpwire/server"
)

const (
	modern     = "2026-07-28"
	modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	remoteID   = "0af7651916cd43dd8448eb211c80319c"
	remote     = `"traceparent":"00-` + remoteID + `-b7ad6b7169203331-01"`
)

// A recording is a Telemetry and what it recorded.
type recording struct {
	*mcpotel.Telemetry
	spans   *tracetest.SpanRecorder
	reader  *sdkmetric.ManualReader
	tracers *sdktrace.TracerProvider
}

func record(opts mcpotel.Options) *recording {
	r := &recording{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	r.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	opts.TracerProvider, opts.MeterProvider = r.tracers, sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	r.Telemetry = mcpotel.New(&opts)
	return r
}

// ended returns the spans so far, one to a line: kind, name, status, attributes.
func (r *recording) ended() []string {
	var lines []string
	for _, s := range r.spans.Ended() {
		line := s.SpanKind().String() + " " + s.Name() + ":" + attributes(s.Attributes())
		if s.Status().Code == codes.Error {
			line += " ! " + s.Status().Description
		}
		lines = append(lines, line)
	}
	return lines
}

func attributes(set []attribute.KeyValue) string {
	set = slices.Clone(set)
	slices.SortFunc(set, func(a, b attribute.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
	text := ""
	for _, kv := range set {
		text += fmt.Sprintf(" %s=%s", kv.Key, kv.Value.String())
	}
	return text
}

// span returns the one span of that name.
func (r *recording) span(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans of the name %s", len(found), name)
	}
	return found[0]
}

// metrics returns the histograms, by name: of each set of attributes the count.
func (r *recording) metrics(t *testing.T) map[string][]string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			h := m.Data.(metricdata.Histogram[float64])
			for _, p := range h.DataPoints {
				got[m.Name+" "+m.Unit] = append(got[m.Name+" "+m.Unit], fmt.Sprintf("%d:%s", p.Count, attributes(p.Attributes.ToSlice())))
				if want := []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}; !slices.Equal(p.Bounds, want) {
					t.Errorf("%s: bounds %v", m.Name, p.Bounds)
				}
			}
			slices.Sort(got[m.Name+" "+m.Unit])
		}
	}
	return got
}

// A peer is a client of a server, over a net.Pipe. It answers roots/list and keeps what it is sent.
type peer struct {
	t      *testing.T
	conn   *rpc.Conn
	served chan error
	meta   string

	mu   sync.Mutex
	sent []string
}

func connect(ctx context.Context, t *testing.T, srv jsonrpc.Server, revision string) *peer {
	t.Helper()
	local, otherEnd := net.Pipe()
	c := &peer{t: t, served: make(chan error, 1)}
	go func() { c.served <- srv.Serve(ctx, jsonrpc.NewFramer(otherEnd, nil)) }()
	c.conn = rpc.NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), &rpc.Options{Handler: rpc.HandlerFunc(c.handle)})
	go c.conn.Run(context.Background())
	if c.meta = modernMeta; revision != modern {
		c.meta = `"x":1`
		c.call("initialize", `"protocolVersion":"`+revision+`","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}`)
		if err := c.conn.Notify(context.Background(), "notifications/initialized", nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *peer) handle(_ context.Context, r *rpc.Request) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, string(r.Method)+" "+string(r.Params))
	return []byte(`{"roots":[]}`), nil
}

// call sends a request with metadata and these members.
func (c *peer) call(method, members string) error {
	if members != "" {
		members = "," + members
	}
	_, err := c.conn.Call(context.Background(), method, []byte(`{"_meta":{`+c.meta+`}`+members+`}`))
	return err
}

func (c *peer) close() {
	c.conn.Close()
	if err := <-c.served; err != nil {
		c.t.Errorf("Serve: %v", err)
	}
}

// traced returns a server with a tool that runs f and a few that fail.
func traced(t *testing.T, r *recording, f func(ctx context.Context) (string, error)) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", nil)
	srv.Use(r.Middleware)
	tool := func(name string, f func(ctx context.Context) (string, error)) error {
		return server.AddTool(srv, name, "", func(ctx context.Context, _ struct{}) (string, error) { return f(ctx) })
	}
	err := errors.Join(
		tool("t", f),
		tool("fail", func(context.Context) (string, error) { return "", errors.New("disk on fire") }),
		tool("refuse", func(context.Context) (string, error) { return "", jsonrpc.Errorf(77, "not today") }),
		tool("panic", func(context.Context) (string, error) { panic("at the disco") }),
		server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(context.Context, map[string]string) (string, error) { return "hello", nil }),
		server.AddResource(srv, mcp.Resource{URI: "x:r", Name: "r"}, server.Static("text")),
		srv.AddRawMethod("com.example/m", func(*server.Call, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("secret") }),
	)
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

func nothing(context.Context) (string, error) { return "ok", nil }

func TestServerSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{Transport: "pipe"})
		srv := traced(t, r, nothing)
		c := connect(t.Context(), t, r.WrapServer(srv), modern)
		c.call("server/discover", "")
		for _, tool := range []string{"t", "fail", "refuse", "panic", "none"} {
			c.call("tools/call", `"name":"`+tool+`"`)
		}
		c.call("prompts/get", `"name":"p"`)
		c.call("resources/read", `"uri":"x:r"`)
		c.call("com.example/m", "")
		c.call("no/such", "")
		c.close()
		const tail = " mcp.protocol.version=2026-07-28 network.transport=pipe"
		want := []string{
			"server server/discover: jsonrpc.request.id=1 mcp.method.name=server/discover" + tail,
			"server tools/call t: gen_ai.operation.name=execute_tool gen_ai.tool.name=t jsonrpc.request.id=2 mcp.method.name=tools/call" + tail,
			"server tools/call fail: error.type=tool_error gen_ai.operation.name=execute_tool gen_ai.tool.name=fail jsonrpc.request.id=3 mcp.method.name=tools/call" + tail + " ! ",
			"server tools/call refuse: error.type=77 gen_ai.operation.name=execute_tool gen_ai.tool.name=refuse jsonrpc.request.id=4 mcp.method.name=tools/call" + tail + " rpc.response.status_code=77 ! not today",
			"server tools/call panic: error.type=panic gen_ai.operation.name=execute_tool gen_ai.tool.name=panic jsonrpc.request.id=5 mcp.method.name=tools/call" + tail + " rpc.response.status_code=-32603 ! the handler panicked",
			"server tools/call: error.type=-32602 gen_ai.operation.name=execute_tool jsonrpc.request.id=6 mcp.method.name=tools/call" + tail + " rpc.response.status_code=-32602 ! unknown tool: none",
			"server prompts/get p: gen_ai.prompt.name=p jsonrpc.request.id=7 mcp.method.name=prompts/get" + tail,
			"server resources/read: jsonrpc.request.id=8 mcp.method.name=resources/read" + strings.Replace(tail, " network", " mcp.resource.uri=x:r network", 1),
			"server com.example/m: error.type=-32603 jsonrpc.request.id=9 mcp.method.name=com.example/m" + tail + " rpc.response.status_code=-32603 ! internal error",
		}
		if diff := gocmp.Diff(want, r.ended()); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		wantMetrics := map[string][]string{
			"mcp.server.operation.duration s": {
				"1: error.type=-32602 gen_ai.operation.name=execute_tool mcp.method.name=tools/call" + tail + " rpc.response.status_code=-32602",
				"1: error.type=-32603 mcp.method.name=com.example/m" + tail + " rpc.response.status_code=-32603",
				"1: error.type=77 gen_ai.operation.name=execute_tool gen_ai.tool.name=refuse mcp.method.name=tools/call" + tail + " rpc.response.status_code=77",
				"1: error.type=panic gen_ai.operation.name=execute_tool gen_ai.tool.name=panic mcp.method.name=tools/call" + tail + " rpc.response.status_code=-32603",
				"1: error.type=tool_error gen_ai.operation.name=execute_tool gen_ai.tool.name=fail mcp.method.name=tools/call" + tail,
				"1: gen_ai.operation.name=execute_tool gen_ai.tool.name=t mcp.method.name=tools/call" + tail,
				"1: gen_ai.prompt.name=p mcp.method.name=prompts/get" + tail,
				"1: mcp.method.name=resources/read" + tail,
				"1: mcp.method.name=server/discover" + tail,
			},
			"mcp.server.session.duration s": {"1:" + tail},
		}
		if diff := gocmp.Diff(wantMetrics, r.metrics(t)); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}

// TestServerTrace follows one trace: from the client through the handler to what it asks, says and
// starts.
//
// Spec: S24
func TestServerTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{})
		var inHandler trace.SpanContext
		var carried rpc.Trace
		srv := traced(t, r, func(ctx context.Context) (string, error) {
			inHandler, carried = trace.SpanContextFromContext(ctx), rpc.TraceFrom(ctx)
			if got := baggage.FromContext(ctx).Member("user").Value(); got != "alice" {
				t.Errorf("baggage: got %q", got)
			}
			_, child := r.tracers.Tracer("test").Start(ctx, "child")
			child.End()
			call := server.CallOf(ctx)
			_, err := call.Roots(ctx, "where")
			return "ok", errors.Join(err, call.Progress(1, 0, ""))
		})
		ctx, ambient := r.tracers.Tracer("test").Start(context.Background(), "ambient")
		c := connect(ctx, t, r.WrapServer(srv), "2025-06-18")
		c.meta = `"progressToken":"p","tracestate":"a=b","baggage":"user=alice",` + remote
		if err := c.call("tools/call", `"name":"t"`); err != nil {
			t.Fatal(err)
		}
		c.meta = `"x":1`
		if err := c.call("ping", ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the peer has received all
		c.close()
		ambient.End()

		call := r.span(t, "tools/call t")
		if p := call.Parent(); p.TraceID().String() != remoteID || p.SpanID().String() != "b7ad6b7169203331" || !p.IsRemote() || p.TraceState().String() != "a=b" {
			t.Errorf("the parent is %v", p)
		}
		if len(call.Links()) != 1 || call.Links()[0].SpanContext.SpanID() != ambient.SpanContext().SpanID() {
			t.Errorf("links: %v", call.Links())
		}
		if inHandler.SpanID() != call.SpanContext().SpanID() {
			t.Errorf("the handler runs in %v, not in %v", inHandler.SpanID(), call.SpanContext().SpanID())
		}
		want := rpc.Trace{Parent: "00-" + remoteID + "-" + call.SpanContext().SpanID().String() + "-01", State: "a=b"}
		if diff := gocmp.Diff(want, carried); diff != "" {
			t.Errorf("carried on (-want +got):\n%s", diff)
		}
		for _, name := range []string{"child", "roots/list", "notifications/progress"} {
			if s := r.span(t, name); s.Parent().SpanID() != call.SpanContext().SpanID() {
				t.Errorf("the parent of %s is %v", name, s.Parent().SpanID())
			}
		}
		if ping := r.span(t, "ping"); ping.Parent().SpanID() != ambient.SpanContext().SpanID() || len(ping.Links()) != 0 {
			t.Errorf("without a trace in _meta: the parent is %v, links %v", ping.Parent().SpanID(), ping.Links())
		}
		asked, progress := r.span(t, "roots/list"), r.span(t, "notifications/progress")
		meta := func(s sdktrace.ReadOnlySpan) string {
			return `"_meta":{"baggage":"user=alice","traceparent":"00-` + remoteID + `-` + s.SpanContext().SpanID().String() + `-01","tracestate":"a=b"}`
		}
		wantSent := []string{
			"roots/list {" + meta(asked) + "}",
			"notifications/progress {" + meta(progress) + `,"progressToken":"p","progress":1}`,
		}
		if diff := gocmp.Diff(wantSent, c.sent); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		if asked.SpanKind() != trace.SpanKindClient || call.SpanKind() != trace.SpanKindServer {
			t.Errorf("kinds: %v, %v", asked.SpanKind(), call.SpanKind())
		}
		if got := r.metrics(t)["mcp.client.operation.duration s"]; !slices.Contains(got, "1: mcp.method.name=roots/list mcp.protocol.version=2025-06-18") {
			t.Errorf("metrics of what was asked: %q", got)
		}
		if got := r.metrics(t)["mcp.server.session.duration s"]; !slices.Equal(got, []string{"1: mcp.protocol.version=2025-06-18"}) {
			t.Errorf("metrics of the session: %q", got)
		}
	})
}

// TestLegacySession shows that initialize has the negotiated revision, that notifications are
// spans, and that durations are right.
func TestLegacySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{})
		srv := traced(t, r, func(context.Context) (string, error) {
			<-time.After(3 * time.Second)
			return "ok", nil
		})
		c := connect(t.Context(), t, r.WrapServer(srv), "2025-03-26")
		synctest.Wait()
		c.call("tools/call", `"name":"t"`)
		c.close()
		want := []string{
			"server initialize: jsonrpc.request.id=1 mcp.method.name=initialize mcp.protocol.version=2025-03-26",
			"server notifications/initialized: mcp.method.name=notifications/initialized mcp.protocol.version=2025-03-26",
			"server tools/call t: gen_ai.operation.name=execute_tool gen_ai.tool.name=t jsonrpc.request.id=2 mcp.method.name=tools/call mcp.protocol.version=2025-03-26",
		}
		if diff := gocmp.Diff(want, r.ended()); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		var all metricdata.ResourceMetrics
		if err := r.reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		sums := map[string]float64{}
		for _, m := range all.ScopeMetrics[0].Metrics {
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				sums[m.Name] += p.Sum
			}
		}
		if diff := gocmp.Diff(map[string]float64{"mcp.server.operation.duration": 3, "mcp.server.session.duration": 3}, sums); diff != "" {
			t.Errorf("seconds (-want +got):\n%s", diff)
		}
	})
}

// TestCancelled shows that a canceled request has no JSON-RPC error, since it is not answered.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{})
		srv := traced(t, r, nothing)
		if err := srv.AddRawMethod("com.example/wait", func(c *server.Call, _ json.RawMessage) (json.RawMessage, error) {
			<-c.Done()
			return nil, c.Err()
		}); err != nil {
			t.Fatal(err)
		}
		c := connect(t.Context(), t, srv, modern)
		go c.call("com.example/wait", "")
		synctest.Wait()
		if err := c.conn.Notify(t.Context(), "notifications/cancelled", []byte(`{"requestId":1}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := []string{"server com.example/wait: error.type=cancelled jsonrpc.request.id=1 mcp.method.name=com.example/wait mcp.protocol.version=2026-07-28 ! cancelled"}
		if diff := gocmp.Diff(want, r.ended()); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		c.close()
	})
}

func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(mcpotel.Options{Content: true, Attributes: func(ctx context.Context, method string) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("mcp.session.id", server.PrincipalID(ctx)+" "+method)}
		}})
		srv := server.MustNew("test", "1", nil)
		srv.Use(r.Middleware)
		if err := server.AddTool(srv, "echo", "", func(_ context.Context, in map[string]int) (map[string]int, error) { return in, nil }); err != nil {
			t.Fatal(err)
		}
		if err := server.AddTool(srv, "fail", "", func(context.Context, struct{}) (string, error) { return "", errors.New("disk on fire") }); err != nil {
			t.Fatal(err)
		}
		c := connect(server.WithPrincipalID(t.Context(), "p"), t, srv, modern)
		c.call("tools/call", `"name":"echo","arguments":{"a":1}`)
		c.call("tools/call", `"name":"fail"`)
		c.close()
		if r.span(t, "tools/call fail"); strings.Contains(strings.Join(r.ended(), "\n"), "disk on fire") {
			t.Error("the result of a tool that failed is recorded")
		}
		span := r.span(t, "tools/call echo")
		got := attribute.NewSet(span.Attributes()...)
		for key, want := range map[attribute.Key]string{
			"mcp.session.id":             "p tools/call",
			"gen_ai.tool.call.arguments": `{"a":1}`,
			"gen_ai.tool.call.result":    `"structuredContent":{"a":1}`,
		} {
			if v, _ := got.Value(key); !strings.Contains(v.AsString(), want) {
				t.Errorf("%s: got %s, want %s in it", key, v.String(), want)
			}
		}
		for _, lines := range r.metrics(t) {
			for _, line := range lines {
				if strings.Contains(line, "session.id") || strings.Contains(line, "gen_ai.tool.call") {
					t.Errorf("a metric has too much: %s", line)
				}
			}
		}
	})
}

// TestWithoutSDK shows that without an SDK nothing is recorded, but traces are passed on.
func TestWithoutSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := mcpotel.New(nil)
		srv := server.MustNew("test", "1", nil)
		srv.Use(tel.Middleware)
		if err := server.AddTool(srv, "t", "", func(ctx context.Context, _ struct{}) (string, error) {
			return "ok", server.CallOf(ctx).Progress(1, 0, "")
		}); err != nil {
			t.Fatal(err)
		}
		c := connect(t.Context(), t, tel.WrapServer(srv), modern)
		c.meta += `,"progressToken":1,` + remote
		if err := c.call("tools/call", `"name":"t"`); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.close()
		if diff := gocmp.Diff([]string{`notifications/progress {"_meta":{` + remote + `},"progressToken":1,"progress":1}`}, c.sent); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// TestSessionError shows that a session that ends with an error says so.
func TestSessionError(t *testing.T) {
	r := record(mcpotel.Options{})
	for _, err := range []error{nil, errors.New("broken"), fmt.Errorf("serve: %w", context.Canceled), context.DeadlineExceeded} {
		if got := r.WrapServer(serveFunc(func() error { return err })).Serve(t.Context(), nil); got != err {
			t.Errorf("got %v, want %v", got, err)
		}
	}
	want := map[string][]string{"mcp.server.session.duration s": {"1: error.type=_OTHER", "1: error.type=timeout", "2:"}}
	if diff := gocmp.Diff(want, r.metrics(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type serveFunc func() error

func (f serveFunc) Serve(context.Context, jsonrpc.Framer) error { return f() }
