package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	mcpclient "mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// connectTo returns a connect function whose connections each have a server of these revisions; nil is all.
func connectTo(t *testing.T, revisions []mcp.Revision) func(context.Context, io.Writer) (jsonrpc.Framer, error) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return func(context.Context, io.Writer) (jsonrpc.Framer, error) {
		ours, theirs := net.Pipe()
		srv := newServer(t, revisions)
		wg.Go(func() {
			_ = srv.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil)) // the bridge may hang up in the middle of a call
			theirs.Close()
		})
		return jsonrpc.NewFramer(ours, nil), nil
	}
}

func newServer(t *testing.T, revisions []mcp.Revision) *server.Server {
	srv := server.New("far", "1", &server.Options{Revisions: revisions})
	for _, err := range []error{
		server.AddTool(srv, "echo", "", func(_ context.Context, in struct{ Text string }) (string, error) { return in.Text, nil }),
		server.AddTool(srv, "steps", "", func(ctx context.Context, _ struct{}) (string, error) {
			return "done", server.CallOf(ctx).Progress(1, 2, "half")
		}),
		server.AddTool(srv, "wait", "", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}),
		server.AddTool(srv, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
			a, err := server.Elicit[struct{ Name string }](ctx, "who", "Who are you?")
			return "you are " + a.Value.Name, err
		}),
		server.AddTool(srv, "big", "", func(_ context.Context, in struct{ Size int }) (string, error) {
			return strings.Repeat("x", in.Size), nil
		}),
		server.AddTool(srv, "flood", "", func(ctx context.Context, _ struct{}) (string, error) {
			for i := range flood {
				if err := server.CallOf(ctx).Progress(float64(i), flood, strings.Repeat("x", 1<<20)); err != nil {
					return "", err
				}
			}
			return "done", nil
		}),
		server.AddTool(srv, "roots", "", func(ctx context.Context, _ struct{}) (string, error) {
			roots, err := server.CallOf(ctx).Roots(ctx, "r")
			return fmt.Sprint(len(roots)), err
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return srv
}

// served serves a bridge over HTTP until the test ends.
func served(t *testing.T, b *Bridge, o *streamable.Options) *httptest.Server {
	h := b.Handler(o)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	old := h.SSE("/messages")
	mux.Handle("/sse", old)
	mux.Handle("/messages", old)
	mux.Handle("/readyz", b.Readyz(true))
	mux.Handle("/healthz", b.Healthz())
	mux.Handle("/metrics", b.Metrics())
	ts := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the race detector takes long for calls that go on
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		ts.Close()
		b.Close()
	})
	return ts
}

func newBridge(t *testing.T, o *Options) *Bridge {
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// TestEras: each client reaches each server, whatever their eras, and everything that both have crosses.
func TestEras(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		for _, serverEra := range []Era{EraLegacy, EraModern} {
			for _, transport := range []string{"pipe", "http"} {
				t.Run(fmt.Sprintf("%v to %v over %s", clientEra, serverEra, transport), func(t *testing.T) {
					b := newBridge(t, &Options{Connect: connectTo(t, serverEra.revisions())})
					var c mcpclient.Transport
					if transport == "http" {
						c = streamable.Dial(served(t, b, nil).URL+"/mcp", nil)
					} else {
						ours, theirs := net.Pipe()
						go b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
						c = mcpclient.Over(jsonrpc.NewFramer(ours, nil))
					}
					tryAll(t, c, clientEra)
				})
			}
		}
	}
}

func tryAll(t *testing.T, transport mcpclient.Transport, clientEra Era) {
	c, err := mcpclient.Dial(t.Context(), transport, &mcpclient.Options{
		Revisions: clientEra.revisions(),
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"Name":"me"}`)}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///a"}}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.Revision().Modern(); got != (clientEra == EraModern) {
		t.Errorf("the client speaks %v", c.Revision())
	}
	progress := 0
	for _, tt := range []struct{ tool, args, want string }{
		{"echo", `{"Text":"hi"}`, "hi"},
		{"steps", `{}`, "done"},
		{"ask", `{}`, "you are me"},
		{"roots", `{}`, "1"},
	} {
		got, err := mcpclient.CallTool[string](t.Context(), c, tt.tool, json.RawMessage(tt.args), mcpclient.WithProgress(func(mcp.ProgressNotificationParams) { progress++ }))
		if err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.tool, got, err, tt.want)
		}
	}
	if progress != 1 {
		t.Errorf("%d progress notifications, want 1", progress)
	}
}

// TestHTTPCancel: a client without a session that hangs up has cancelled.
func TestHTTPCancel(t *testing.T) {
	b := newBridge(t, &Options{Connect: connectTo(t, nil)})
	c, err := mcpclient.Dial(t.Context(), streamable.Dial(served(t, b, nil).URL+"/mcp", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := c.CallTool(ctx, "wait", struct{}{}); err == nil {
		t.Error("the call has succeeded")
	}
	await(t, "the call to end", func() bool {
		for cl := range clientsOf(b) {
			if n, _ := cl.inFlight(); n > 0 {
				return false
			}
		}
		return true
	})
}

func clientsOf(b *Bridge) map[*client]struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[*client]struct{}{}
	for cl := range b.clients {
		all[cl] = struct{}{}
	}
	return all
}

// await waits until something holds, and fails if it does not in a minute.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

const httpHello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// post posts a message, and returns the status, the header and the body.
func post(t *testing.T, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func TestHealth(t *testing.T) {
	var broken error
	connect := connectTo(t, nil)
	b := newBridge(t, &Options{Connect: func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
		if broken != nil {
			return nil, broken
		}
		return connect(ctx, w)
	}})
	ts := served(t, b, nil)
	get := func(path string) (int, string) {
		resp, err := http.Get(ts.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(bytes.TrimSpace(text))
	}
	broken = errTest
	if status, text := get("/readyz"); status != 503 || text != `{"status":"unavailable","error":"no such program"}` {
		t.Errorf("/readyz of a broken server: %d %s", status, text)
	}
	if status, text := get("/healthz"); status != 200 || text != `{"status":"ok"}` {
		t.Errorf("/healthz: %d %s", status, text)
	}
	broken = nil
	b.health.mu.Lock()
	b.health.lastProbe = time.Time{}
	b.health.mu.Unlock()
	if status, text := get("/readyz"); status != 200 {
		t.Errorf("/readyz: %d %s", status, text)
	}
	_, text := get("/metrics")
	for _, want := range []string{
		"# TYPE mcpwire_bridge_sessions gauge\nmcpwire_bridge_sessions 0\n", "mcpwire_bridge_request_duration_seconds_bucket{le=\"+Inf\"} 0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics: no %q in\n%s", want, text)
		}
	}
	b.Drain()
	if status, _ := get("/readyz"); status != 503 {
		t.Errorf("/readyz while draining: %d", status)
	}
}

// TestStatus: what may be said by a status is.
func TestStatus(t *testing.T) {
	b := newBridge(t, &Options{Connect: connectTo(t, nil)})
	url := served(t, b, nil).URL + "/mcp"
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	version := []string{"Mcp-Protocol-Version", "2026-07-28"}
	for _, tt := range []struct {
		name, body string
		header     []string
		status     int
		want       string
	}{
		{"modern", `{"jsonrpc":"2.0","id":"a\u0062","method":"tools/list","params":{` + meta + `}}`, []string{"Mcp-Method", "tools/list"}, 200, `"id":"a\u0062"`},
		{"no such method", `{"jsonrpc":"2.0","id":1,"method":"x","params":{` + meta + `}}`, []string{"Mcp-Method", "x"}, 404, `-32601`},
		{"removed method", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + meta + `}}`, []string{"Mcp-Method", "ping"}, 404, `-32601`},
		{"header", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`, []string{"Mcp-Method", "tools/call"}, 400, `-32020`},
		{"no metadata", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{"Mcp-Method", "tools/list"}, 400, `-32602`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, _, body := post(t, url, tt.body, append(tt.header, version...)...)
			if status != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("got %d %s, want %d with %s", status, body, tt.status, tt.want)
			}
		})
	}
}
