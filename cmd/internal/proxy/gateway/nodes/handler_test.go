package nodes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// newHandlers returns the URLs of two gateways whose handlers share sessions as nodes of a cluster,
// with an upstream "up" of the legacy era that asks for a name and has a resource "x:a".
func newHandlers(t *testing.T) (urls [2]string, members [2]*cluster.Node) {
	backend := clustertest.NewMemory()
	for i := range urls {
		node, err := cluster.Join(t.Context(), backend, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(node.Close)
		members[i] = node
		sessions, err := node.SessionStore(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		events, err := node.EventStore(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		srv := server.MustNew("up", "1", &server.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}})
		must(server.AddTool(srv, "form", "", func(ctx context.Context, _ struct{}) (string, error) {
			res, err := server.CallOf(ctx).Elicit(ctx, "name", &mcp.ElicitRequestParams{Message: "Name?",
				RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
			if err != nil {
				return "", err
			}
			return string(res.Content), nil
		}))
		must(server.AddResource(srv, mcp.Resource{URI: "x:a", Name: "a"}, server.Static("a")))
		up := gateway.Upstream{Name: "up", Bridge: bridge.Options{Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
			ours, theirs := net.Pipe()
			go srv.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
			return jsonrpc.NewFramer(ours, nil), nil
		}}}
		g, err := gateway.New(&gateway.Options{Upstreams: []gateway.Upstream{up}, Secrets: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		h, err := streamable.NewHandler(&relay.Server{Handler: g}, &streamable.Options{Sessions: sessions, Events: events, Nodes: node.HandlerNodes("gateway")})
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(h)
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = h.Shutdown(ctx)
			web.CloseClientConnections()
			web.Close()
		})
		urls[i] = web.URL
	}
	return urls, members
}

// newSession opens a session of a legacy client at the first node. It returns a function that makes
// a request of the session at a node.
func newSession(t *testing.T, urls [2]string) (do func(node int, method, body string) *http.Response) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	session := ""
	do = func(node int, method, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, urls[node], strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
			r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		resp, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	session = do(0, "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"c","version":"1"}}}`).Header.Get("Mcp-Session-Id")
	return do
}

// TestListenerLost checks the loss of the node with the standing stream of a legacy client. When
// the client opens a stream at another node, it is notified of all changes that it may have missed.
func TestListenerLost(t *testing.T) {
	urls, members := newHandlers(t)
	do := newSession(t, urls)
	do(0, "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for id, uri := range []string{"x:a", "x:b"} {
		do(0, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"%s"}}`, id+2, uri))
	}
	do(0, "POST", `{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"x:b"}}`)
	if resp := do(0, "GET", ""); resp.StatusCode != http.StatusOK {
		t.Fatalf("GET: status %d", resp.StatusCode)
	}
	members[0].Close()
	want := map[string]bool{
		"notifications/tools/list_changed": true, "notifications/prompts/list_changed": true, "notifications/resources/list_changed": true,
		"notifications/resources/updated x:a": true,
	}
	lines := bufio.NewScanner(do(1, "GET", "").Body)
	for len(want) > 0 && lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var m struct {
			Method string
			Params struct{ URI string }
		}
		if !ok || data == "" {
			continue
		}
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		text := strings.TrimSpace(m.Method + " " + m.Params.URI)
		if !want[text] {
			t.Errorf("got %s", data)
		}
		delete(want, text)
	}
	if len(want) > 0 {
		t.Errorf("the stream ended before %v: %v", want, lines.Err())
	}
}

// TestHandlers checks that a legacy client can respond to a request of the server, and end its
// session, at another node than that of the call or the session.
func TestHandlers(t *testing.T) {
	urls, _ := newHandlers(t)
	do := newSession(t, urls)
	for node := range urls {
		lines := bufio.NewScanner(do(node, "POST", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up__form","arguments":{}}}`).Body)
		until := func(text string) string {
			t.Helper()
			for lines.Scan() {
				if strings.Contains(lines.Text(), text) {
					return lines.Text()
				}
			}
			t.Fatalf("the response of node %d ended before %q: %v", node, text, lines.Err())
			return ""
		}
		_, id, _ := strings.Cut(until(`"elicitation/create"`), `"id":`)
		id, _, _ = strings.Cut(id, ",")
		other := 1 - node
		response := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"name":"at %d"}}}`, id, other)
		if resp := do(other, "POST", response); resp.StatusCode != http.StatusAccepted {
			t.Errorf("response at node %d: got status %d", other, resp.StatusCode)
		}
		if got, want := until(`"result"`), fmt.Sprintf(`{\"name\":\"at %d\"}`, other); !strings.Contains(got, want) {
			t.Errorf("node %d: got %s, want %s", node, got, want)
		}
	}
	if resp := do(1, "DELETE", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: status %d", resp.StatusCode)
	}
	// The node that has the session learns from the backend that another one has ended it.
	for node := range urls {
		for began := time.Now(); ; {
			status := do(node, "POST", `{"jsonrpc":"2.0","id":3,"method":"ping"}`).StatusCode
			if status == http.StatusNotFound {
				break
			}
			if time.Since(began) > 10*time.Second {
				t.Fatalf("node %d: got status %d for an ended session, want 404", node, status)
			}
		}
	}
}
