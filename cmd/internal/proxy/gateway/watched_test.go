package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestWatched checks that exchanges are recorded from the moment that somebody wants them.
func TestWatched(t *testing.T) {
	h, err := streamable.NewHandler(fullServer("up", mcp.LatestRevision), nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Transport{}
	defer web.CloseIdleConnections()
	upstream := streamable.NewTransport(serveHandler(t, h), &streamable.TransportOptions{HTTPClient: &http.Client{Transport: bridge.OuterTransport(bridge.Transport(web))}})
	var file bytes.Buffer
	var watched atomic.Bool
	w := capture.NewWriter(&file, nil)
	g := newGateway(t, &Options{Upstreams: []Upstream{{Name: "up", Bridge: bridge.Options{HTTP: true, Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
		return upstream.Connect(ctx)
	}}}}, Record: w, Watched: watched.Load})
	front, err := streamable.NewHandler(&relay.Server{Handler: g}, nil)
	if err != nil {
		t.Fatal(err)
	}
	recorded := g.Recorded(front)
	call := func(id string) {
		body := `{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"up__who","arguments":{},` + modernMeta + `}}`
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": mcp.LatestRevision.String(), "Mcp-Method": mcp.MethodToolsCall, "Mcp-Name": "up__who"} {
			req.Header.Set(name, value)
		}
		resp := httptest.NewRecorder()
		if recorded.ServeHTTP(resp, req); !strings.Contains(resp.Body.String(), `"text":"up"`) {
			t.Fatalf("got %s", resp.Body)
		}
	}
	call("connects")
	call("nobody watches")
	watched.Store(true)
	call("watched")
	g.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The kinds of the events in the exchanges of calls.
	got := map[capture.Side][]capture.Kind{}
	calls := map[uint64]bool{}
	messages := 0
	r := capture.NewReader(&file, nil)
	defer r.Close()
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Request != nil && slices.Contains(e.Request.Headers, capture.Header{Name: "Mcp-Method", Value: mcp.MethodToolsCall}) {
			calls[e.Exchange] = true
		}
		if calls[e.Exchange] {
			got[e.Side] = append(got[e.Side], e.Kind)
		} else if e.Kind == capture.KindMessage && e.Side == capture.Downstream {
			messages++
		}
	}
	exchange := []capture.Kind{capture.KindRequest, capture.KindMessage, capture.KindResponse, capture.KindMessage, capture.KindEnd}
	if diff := cmp.Diff(map[capture.Side][]capture.Kind{capture.Downstream: exchange, capture.Upstream: exchange}, got); diff != "" {
		t.Errorf("exchanges (-want +got):\n%s", diff)
	}
	if messages != 4 {
		t.Errorf("%d messages were recorded while nobody watched, want those of two calls", messages)
	}
}
