package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/internal/base/hooks"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// BenchmarkCall measures a call of 1 KiB over HTTP: to a server, through a gateway, and through
// gateways with a recording, which nobody wants or is written. Client, gateway and server share the
// process.
func BenchmarkCall(b *testing.B) {
	srv := server.MustNew("s", "1", nil)
	must(server.AddTool(srv, "echo", "", func(_ context.Context, in struct{ Text string }) (string, error) { return in.Text, nil }))
	direct := serveBench(b, srv)
	through := func(record *capture.Writer, watched bool) string {
		transport := streamable.NewTransport(direct, &streamable.TransportOptions{HTTPClient: &http.Client{Transport: bridge.OuterTransport(bridge.Transport(&http.Transport{MaxIdleConnsPerHost: 64}))}})
		g, err := New(&Options{
			Upstreams: []Upstream{{Name: "s", Bridge: bridge.Options{HTTP: true, Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }}}},
			Record:    record, Watched: func() bool { return watched },
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { g.Close() })
		h, err := streamable.NewHandler(&relay.Server{Handler: g}, nil)
		if err != nil {
			b.Fatal(err)
		}
		return serveHandler(b, h, g.Recorded)
	}
	unwanted := capture.NewWriter(io.Discard, &capture.Options{Hooks: &hooks.Writer[capture.Event]{Want: func(int) bool { return false }}})
	defer unwanted.Close()
	written := capture.NewWriter(io.Discard, nil)
	defer written.Close()
	for _, bm := range []struct{ name, url, tool string }{
		{"direct", direct, "echo"}, {"gateway", through(nil, false), "s__echo"}, {"unwatched", through(unwanted, false), "s__echo"}, {"recorded", through(written, true), "s__echo"},
	} {
		for _, parallel := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d", bm.name, parallel), func(b *testing.B) {
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
				defer client.CloseIdleConnections()
				body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + bm.tool + `","arguments":{"Text":"` + strings.Repeat("x", 900) + `"},` + modernMeta + `}}`)
				call := func() {
					req, err := http.NewRequest(http.MethodPost, bm.url, bytes.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": mcp.MethodToolsCall, "Mcp-Name": bm.tool} {
						req.Header.Set(name, value)
					}
					resp, err := client.Do(req)
					if err != nil {
						b.Error(err)
						return
					}
					defer resp.Body.Close()
					text, err := io.ReadAll(resp.Body)
					if err != nil || !bytes.Contains(text, []byte("xxxx")) {
						b.Errorf("%v: %s", err, text)
					}
				}
				call()
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				b.SetParallelism(parallel)
				if parallel == 1 {
					for b.Loop() {
						call()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						call()
					}
				})
			})
		}
	}
}

func serveBench(b *testing.B, srv streamable.Server) string {
	b.Helper()
	h, err := streamable.NewHandler(srv, nil)
	if err != nil {
		b.Fatal(err)
	}
	return serveHandler(b, h)
}

// BenchmarkList measures a list of 40 tools of each of 50 upstreams.
func BenchmarkList(b *testing.B) {
	var o Options
	for i := range 50 {
		var tools []string
		for j := range 40 {
			tools = append(tools, fmt.Sprintf("tool%d", j))
		}
		name := fmt.Sprintf("up%d", i)
		o.Upstreams = append(o.Upstreams, streamUpstream(name, toolServer(name, tools...)))
	}
	g, err := New(&o)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	p := g.Stateless()
	frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`)
	m := new(jsonrpc.Message)
	must(jsonrpc.Parse(frame, m, 0))
	var dst []byte
	list := func() {
		if dst, err = p.Request(b.Context(), frame, m, nil, dst[:0]); err != nil {
			b.Fatal(err)
		}
	}
	list()
	if n := bytes.Count(dst, []byte(`__tool`)); n != 2000 {
		b.Fatalf("got %d tools", n)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(dst)))
	for b.Loop() {
		list()
	}
}

// BenchmarkSession measures the memory that an idle session of a legacy client takes, without the
// connection that it came by.
func BenchmarkSession(b *testing.B) {
	const handshake = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}`
	const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__who","arguments":{}}}`
	for _, bm := range []struct {
		name     string
		revision mcp.Revision
		messages []string
	}{
		{"handshake", mcp.LatestRevision, []string{handshake, initialized}},
		{"call-legacy", mcp.LatestLegacyRevision, []string{handshake, initialized, call}},
		{"call-modern", mcp.LatestRevision, []string{handshake, initialized, call}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			up := streamUpstream("s", fullServer("s", bm.revision))
			up.Bridge.MaxSessions = 1 << 20
			g, err := New(&Options{Upstreams: []Upstream{up}, MaxSessions: 1 << 20})
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			h, err := streamable.NewHandler(&relay.Server{Handler: g}, &streamable.Options{Limits: streamable.Limits{MaxSessions: 1 << 20, MaxPerCaller: 1 << 20}})
			if err != nil {
				b.Fatal(err)
			}
			ended, cancel := context.WithCancel(b.Context())
			cancel()
			defer h.Shutdown(ended)
			open := func() {
				id := ""
				for _, body := range bm.messages {
					r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Accept", "application/json, text/event-stream")
					if id != "" {
						r.Header.Set("Mcp-Session-Id", id)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if w.Code >= http.StatusMultipleChoices || strings.Contains(w.Body.String(), `"error"`) {
						b.Fatal(w.Code, w.Body.String())
					}
					if id == "" {
						id = w.Header().Get("Mcp-Session-Id")
					}
				}
			}
			for range 100 {
				open()
			}
			heap, stacks := memoryInUse()
			for b.Loop() {
				open()
			}
			heapAfter, stacksAfter := memoryInUse()
			b.ReportMetric(float64(heapAfter-heap)/float64(b.N), "heap-B/session")
			b.ReportMetric(float64(stacksAfter-stacks)/float64(b.N), "stack-B/session")
		})
	}
}

// memoryInUse returns the bytes of live objects and of stacks.
func memoryInUse() (heap, stacks int64) {
	for range 3 { // pools keep objects for two cycles
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}
