package taphttp_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

type input struct {
	Name string `json:"name"`
}

// realServer is one of ours, with the endpoint at /mcp and the older transport at /sse.
func realServer(t *testing.T) (*server.Server, *httptest.Server) {
	s := server.MustNew("test", "1", nil)
	server.AddTool(s, "greet", "greets", func(ctx context.Context, a input) (string, error) { return "hello " + a.Name, nil })
	server.AddTool(s, "ask", "asks for roots", func(ctx context.Context, a input) (string, error) {
		call := server.CallOf(ctx)
		call.Progress(1, 2, "halfway")
		roots, err := call.Roots(ctx, "r")
		if err != nil {
			return "", err
		}
		return roots[0].URI, nil
	})
	server.AddTool(s, "later", "answers on another stream", func(ctx context.Context, a input) (string, error) {
		return "later", streamable.CloseStream(ctx, time.Millisecond)
	})
	h := streamable.MustHandler(s, nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	old := h.SSE("/messages")
	mux.Handle("/sse", old)
	mux.Handle("/messages", old)
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		h.Shutdown(context.Background())
		web.Close()
	})
	return s, web
}

// TestRevisions connects a client and a server through the tap in each revision, and shows that
// each request in the capture has its response.
func TestRevisions(t *testing.T) {
	for _, r := range mcp.Revisions() {
		t.Run(r.String(), func(t *testing.T) {
			_, web := realServer(t)
			p := tap(t, web.URL+"/mcp", nil, nil)
			c, err := client.Dial(t.Context(), streamable.NewTransport(p.url, nil), &client.Options{
				Revisions: []mcp.Revision{r},
				Input:     client.InputOptions{Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///a"}}, nil }},
			})
			if err != nil {
				t.Fatal(err)
			}
			if text, err := client.CallTool[string](t.Context(), c, "ask", input{}, client.WithProgress(func(*mcp.ProgressNotificationParams) {})); text != "file:///a" {
				t.Errorf("CallTool = %q, %v", text, err)
			}
			for range 20 {
				if text, err := client.CallTool[string](t.Context(), c, "greet", input{"you"}); text != "hello you" {
					t.Errorf("CallTool = %q, %v", text, err)
				}
			}
			if c.Revision() != r {
				t.Errorf("revision %v, want %v", c.Revision(), r)
			}
			c.Close()
			n := 21
			if r == mcp.LatestRevision { // the input request is in a result, and the call is retried
				n++
			}
			checkPairs(t, p, "tools/call", n)
		})
	}
}

// checkPairs checks that all requests of a capture have their response, that there are n of a
// method, and that they are in one session.
func checkPairs(t *testing.T, p *tapped, method string, n int) {
	t.Helper()
	old := strings.HasSuffix(p.url, "/sse")
	p.stop()
	calls := 0
	sessions := map[uint64]bool{}
	for x, err := range capture.Pairs(capture.NewReader(bytes.NewReader(p.file.Bytes()), nil).Events()) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Response == nil && x.Call.Method == "initialize" && old {
			continue // refused by the status
		}
		if x.Response == nil {
			t.Errorf("%s with id %s has no response", x.Call.Method, x.Call.ID)
			continue
		}
		if x.Call.Latency < 0 {
			t.Errorf("%s: response before the request", x.Call.Method)
		}
		var m jsonrpc.Message
		if err := jsonrpc.Parse(x.Response.Data, &m, 0); err != nil || m.Kind != jsonrpc.KindResponse && x.Call.Method == method {
			t.Errorf("%s: response %s", x.Call.Method, x.Response.Data)
		}
		if x.Call.Method == method {
			calls++
			sessions[x.Call.Session] = true
		}
	}
	if calls != n || len(sessions) != 1 {
		t.Errorf("%d calls of %s in %d sessions, want %d in 1", calls, method, len(sessions), n)
	}
}

// TestSubscription shows that subscriptions work through the tap in both eras, and that the end of
// their stream is recorded.
func TestSubscription(t *testing.T) {
	for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(r.String(), func(t *testing.T) {
			s, web := realServer(t)
			p := tap(t, web.URL+"/mcp", nil, nil)
			c, err := client.Dial(t.Context(), streamable.NewTransport(p.url, nil), &client.Options{Revisions: []mcp.Revision{r}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			received := make(chan client.Event, 8)
			sub, err := c.ListenFunc(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}, func(e client.Event) { received <- e })
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.CallTool[string](t.Context(), c, "greet", input{}); err != nil { // a legacy server announces nothing before it has received notifications/initialized
				t.Fatal(err)
			}
			server.AddTool(s, "another", "", func(context.Context, struct{}) (string, error) { return "", nil })
			if e := <-received; e.Kind != client.ToolsListChanged {
				t.Errorf("event %v", e.Kind)
			}
			sub.Close()
			c.Close()
			changed := 0
			for _, e := range p.events() {
				if e.Kind == capture.KindMessage && bytes.Contains(e.Data, []byte("notifications/tools/list_changed")) {
					changed++
				}
			}
			if changed != 1 {
				t.Errorf("%d notifications in the capture", changed)
			}
		})
	}
}

// TestResumption checks that a stream that the server has closed continues after its last event on
// another stream.
func TestResumption(t *testing.T) {
	_, web := realServer(t)
	p := tap(t, web.URL+"/mcp", nil, nil)
	c, err := client.Dial(t.Context(), streamable.NewTransport(p.url, nil), &client.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := client.CallTool[string](t.Context(), c, "later", input{}); text != "later" {
		t.Errorf("CallTool = %q, %v", text, err)
	}
	c.Close()
	resumed, primed := 0, 0
	for _, e := range p.events() {
		if e.Kind == capture.KindRequest && slices.ContainsFunc(e.Request.Headers, func(h capture.Header) bool { return strings.EqualFold(h.Name, "Last-Event-ID") && h.Value != "" }) {
			resumed++
		}
		if e.Kind == capture.KindSSE && e.SSE.HasID && e.SSE.HasData && len(e.Data) == 0 {
			primed++
		}
	}
	if resumed == 0 || primed == 0 {
		t.Errorf("%d requests resume, %d priming events", resumed, primed)
	}
	checkPairs(t, p, "tools/call", 1)
}

// TestOldTransport shows that a client of 2024-11-05's HTTP+SSE finds the endpoint through the tap.
func TestOldTransport(t *testing.T) {
	_, web := realServer(t)
	p := tap(t, web.URL+"/sse", nil, nil)
	c, err := client.Dial(t.Context(), streamable.NewTransport(p.url, nil), &client.Options{Revisions: []mcp.Revision{mcp.Revision20241105}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if text, err := client.CallTool[string](t.Context(), c, "greet", input{"you"}); text != "hello you" {
			t.Errorf("CallTool = %q, %v", text, err)
		}
	}
	c.Close()
	checkPairs(t, p, "tools/call", 3)
}
