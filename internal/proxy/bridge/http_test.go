package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcpclient "mcpwire/client"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/test/race"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// connectTo returns a connect function that starts a server for each connection. The server speaks
// the revisions; nil means all.
func connectTo(t *testing.T, revisions []mcp.Revision) func(context.Context, io.Writer) (jsonrpc.Framer, error) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return func(context.Context, io.Writer) (jsonrpc.Framer, error) {
		ours, theirs := net.Pipe()
		srv := newServer(t, revisions)
		wg.Go(func() {
			_ = srv.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil)) // the bridge may disconnect during a call
			theirs.Close()
		})
		return jsonrpc.NewFramer(ours, nil), nil
	}
}

func newServer(t *testing.T, revisions []mcp.Revision) *server.Server {
	srv := server.MustNew("upstream", "1", &server.Options{Revisions: revisions})
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
			megabytes := race.Choose(32, 128) // more than the client reads
			for i := range megabytes {
				if err := server.CallOf(ctx).Progress(float64(i), float64(megabytes), strings.Repeat("x", 1<<20)); err != nil {
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
	h, err := b.Handler(o)
	if err != nil {
		t.Fatal(err)
	}
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
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // pending calls are slow with the race detector
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

// TestEras checks that clients of each era can use servers of each era, with all features that both
// eras have.
func TestEras(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		for _, serverEra := range []Era{EraLegacy, EraModern} {
			for _, transport := range []string{"pipe", "http"} {
				t.Run(fmt.Sprintf("%v to %v over %s", clientEra, serverEra, transport), func(t *testing.T) {
					b := newBridge(t, &Options{Connect: connectTo(t, serverEra.Revisions())})
					var c mcpclient.Transport
					if transport == "http" {
						c = streamable.NewTransport(served(t, b, nil).URL+"/mcp", nil)
					} else {
						ours, theirs := net.Pipe()
						go b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
						c = mcpclient.FramerTransport(jsonrpc.NewFramer(ours, nil))
					}
					tryAll(t, c, clientEra)
				})
			}
		}
	}
}

func tryAll(t *testing.T, transport mcpclient.Transport, clientEra Era) {
	c, err := mcpclient.Dial(t.Context(), transport, &mcpclient.Options{
		Revisions: clientEra.Revisions(),
		Input: mcpclient.InputOptions{
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"Name":"me"}`)}, nil
			},
			Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///a"}}, nil },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.Revision().Modern(); got != (clientEra == EraModern) {
		t.Errorf("revision: got %v", c.Revision())
	}
	progress := 0
	for _, tt := range []struct{ tool, args, want string }{
		{"echo", `{"Text":"hi"}`, "hi"},
		{"steps", `{}`, "done"},
		{"ask", `{}`, "you are me"},
		{"roots", `{}`, "1"},
	} {
		got, err := mcpclient.CallTool[string](t.Context(), c, tt.tool, json.RawMessage(tt.args), mcpclient.WithProgress(func(*mcp.ProgressNotificationParams) { progress++ }))
		if err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.tool, got, err, tt.want)
		}
	}
	if progress != 1 {
		t.Errorf("%d progress notifications, want 1", progress)
	}
}

// TestHTTPCancel checks that a call is canceled if a client without a session closes its request.
func TestHTTPCancel(t *testing.T) {
	b := newBridge(t, &Options{Connect: connectTo(t, nil)})
	c, err := mcpclient.Dial(t.Context(), streamable.NewTransport(served(t, b, nil).URL+"/mcp", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := c.CallTool(ctx, "wait", struct{}{}); err == nil {
		t.Error("canceled call: got no error")
	}
	wait.Until(t, "the call to end", func() bool {
		for cl := range clientsOf(b) {
			if n := cl.inFlight(); n > 0 {
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

const httpInitialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

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

// TestStatus checks the HTTP status of errors.
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
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"x","params":{` + meta + `}}`, []string{"Mcp-Method", "x"}, 404, `-32601`},
		{"removed method", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + meta + `}}`, []string{"Mcp-Method", "ping"}, 404, `-32601`},
		{"header differs from the body", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`, []string{"Mcp-Method", "tools/call"}, 400, `-32020`},
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

// TestGroups checks that modern clients with different capabilities do not share a session with a
// legacy server, which could send an input request to the wrong one.
func TestGroups(t *testing.T) {
	connect := connectTo(t, EraLegacy.Revisions())
	var connections atomic.Int32
	b := newBridge(t, &Options{Connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		connections.Add(1)
		return connect(ctx, stderr)
	}})
	url := served(t, b, nil).URL + "/mcp"
	before := connections.Load()
	dial := func(name string, elicit bool) *mcpclient.Client {
		o := &mcpclient.Options{Info: mcp.Implementation{Name: name}, Revisions: EraModern.Revisions()}
		if elicit {
			o.Input.Elicit = func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"Name":"` + name + `"}`)}, nil
			}
		}
		c, err := mcpclient.Dial(t.Context(), streamable.NewTransport(url, nil), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	plain, able, other := dial("plain", false), dial("able", true), dial("other", true)
	if got, err := mcpclient.CallTool[string](t.Context(), plain, "ask", json.RawMessage(`{}`)); err == nil {
		t.Errorf("client without elicitation: got %q, want an error", got)
	}
	for name, c := range map[string]*mcpclient.Client{"able": able, "other": other} {
		if got, err := mcpclient.CallTool[string](t.Context(), c, "ask", json.RawMessage(`{}`)); err != nil || got != "you are "+name {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if got := connections.Load() - before; got < 3 {
		t.Errorf("got %d connections to the server for 3 clients, want 3 or more", got)
	}
}

// TestGroupsModern checks that clients with different names share one connection to a modern
// server.
func TestGroupsModern(t *testing.T) {
	connect := connectTo(t, EraModern.Revisions())
	var connections atomic.Int32
	b := newBridge(t, &Options{Connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		connections.Add(1)
		return connect(ctx, stderr)
	}})
	url := served(t, b, nil).URL + "/mcp"
	for _, name := range []string{"one", "another", "one"} {
		c, err := mcpclient.Dial(t.Context(), streamable.NewTransport(url, nil), &mcpclient.Options{Info: mcp.Implementation{Name: name}, Revisions: EraModern.Revisions()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got, err := mcpclient.CallTool[string](t.Context(), c, "echo", json.RawMessage(`{"Text":"hi"}`)); err != nil || got != "hi" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("got %d connections to the server, want 1", got)
	}
}

// upstreamHTTP returns a connect function to a modern HTTP server, whose tool "where" declares a
// header for its argument.
func upstreamHTTP(t *testing.T) func(context.Context, io.Writer) (jsonrpc.Framer, error) {
	srv := server.MustNew("upstream", "1", &server.Options{Revisions: EraModern.Revisions()})
	def := mcp.Tool{Name: "where", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)}
	err := server.AddToolWith(srv, def, func(_ context.Context, in struct {
		Region string `json:"region"`
	}) (string, error) {
		return in.Region, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := streamable.MustHandler(srv, nil)
	ts := httptest.NewServer(h)
	transport := streamable.NewTransport(ts.URL, nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		h.Shutdown(ctx)
		ts.Close()
	})
	return func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
}

// TestUpstreamHeaders checks that an HTTP server gets arguments in the headers that it declares,
// from clients of both eras that have not listed its tools.
func TestUpstreamHeaders(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		t.Run(clientEra.String(), func(t *testing.T) {
			b := newBridge(t, &Options{Connect: upstreamHTTP(t), HTTP: true})
			ours, theirs := net.Pipe()
			go b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
			c, err := mcpclient.Dial(t.Context(), mcpclient.FramerTransport(jsonrpc.NewFramer(ours, nil)), &mcpclient.Options{Revisions: clientEra.Revisions()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, region := range []string{"eu", "東京", "", " =?base64?eA==?= "} {
				got, err := mcpclient.CallTool[string](t.Context(), c, "where", map[string]string{"region": region})
				if err != nil || got != region {
					t.Errorf("got %q, %v, want %q", got, err, region)
				}
			}
		})
	}
}

// TestDownstreamHeaders checks for servers of both eras that HTTP clients must repeat arguments in
// the headers of tools that they have listed.
func TestDownstreamHeaders(t *testing.T) {
	const tools = `{"tools":[{"name":"where","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]`
	for _, serverEra := range []Era{EraLegacy, EraModern} {
		t.Run(serverEra.String(), func(t *testing.T) {
			f := newFakeServer(t)
			url := served(t, newBridge(t, &Options{Connect: f.connect, ServerEra: serverEra}), nil).URL + "/mcp"
			go func() {
				p := f.next()
				for {
					frame, err := p.f.ReadFrame()
					if err != nil {
						return
					}
					var m jsonrpc.Message
					if jsonrpc.Parse(frame, &m, 0) != nil || m.Kind != jsonrpc.KindRequest {
						continue
					}
					result := `{"content":[],"resultType":"complete"}`
					switch string(m.Method) {
					case mcp.MethodInitialize:
						result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
					case mcp.MethodToolsList:
						result = tools + `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
					}
					p.send(resultFor(string(m.ID), result))
				}
			}()
			const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			call := func(header ...string) int {
				t.Helper()
				body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"where","arguments":{"region":"東京"},` + meta + `}}`
				status, _, response := post(t, url, body, append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "where"}, header...)...)
				if bad := strings.Contains(response, `"code":-32020`); bad != (status == 400) {
					t.Errorf("status %d: %s", status, response)
				}
				return status
			}
			if got := call(); got != 200 {
				t.Errorf("before the list: got status %d, want 200", got)
			}
			list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
			if status, _, response := post(t, url, list, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"); status != 200 || !strings.Contains(response, "where") {
				t.Fatalf("status %d: %s", status, response)
			}
			for _, tt := range []struct {
				header []string
				want   int
			}{
				{nil, 400},
				{[]string{"Mcp-Param-Region", "=?base64?5p2x5Lqs?="}, 200},
				{[]string{"Mcp-Param-Region", "=?base64?5p2x5Lqs?=", "Mcp-Param-Other", "x"}, 200},
				{[]string{"Mcp-Param-Region", "=?base64?eA==?="}, 400},
				{[]string{"Mcp-Param-Region", "=?base64?not base64?="}, 400},
				{[]string{"Mcp-Param-Region", "eu"}, 400},
			} {
				if got := call(tt.header...); got != tt.want {
					t.Errorf("%q: status %d, want %d", tt.header, got, tt.want)
				}
			}
		})
	}
}

// TestForeignResponse checks that a bridge over HTTP refuses the response to a request that it has
// not sent, and accepts one that is late.
func TestForeignResponse(t *testing.T) {
	for _, serverEra := range []Era{EraLegacy, EraModern} {
		t.Run(serverEra.String(), func(t *testing.T) {
			url := served(t, newBridge(t, &Options{Connect: connectTo(t, serverEra.Revisions())}), nil).URL + "/mcp"
			_, h, _ := post(t, url, strings.Replace(httpInitialize, `"capabilities":{}`, `"capabilities":{"roots":{}}`, 1))
			headers := []string{"Mcp-Session-Id", h.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-11-25"}
			respond := func(id string) (status int) {
				status, _, _ = post(t, url, resultFor(id, `{"roots":[]}`), headers...)
				return status
			}
			post(t, url, initialized, headers...)
			r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"roots","arguments":{}}}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			var ask string
			for lines.Scan() && !strings.Contains(ask, "roots/list") {
				ask = lines.Text()
			}
			id := string(jsonwire.Lookup([]byte(strings.TrimPrefix(ask, "data: ")), "id"))
			for _, foreign := range []string{"99", `"99"`, `"x"`, `"a.1"`} {
				if got := respond(foreign); got != http.StatusBadRequest {
					t.Errorf("response to %s: status %d, want 400", foreign, got)
				}
			}
			for range 2 {
				if got := respond(id); got != http.StatusAccepted {
					t.Errorf("response to %s: status %d, want 202", id, got)
				}
			}
			for lines.Scan() && !strings.Contains(lines.Text(), `"result"`) {
			}
			if !strings.Contains(lines.Text(), `"result"`) {
				t.Error("the call has no result")
			}
		})
	}
}
