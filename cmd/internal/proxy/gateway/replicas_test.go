package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"mcpwire/client"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A replicaSet is several gateways with the same secrets behind a proxy that sends each request to
// the next one.
type replicaSet struct {
	t        *testing.T
	url      string
	options  Options
	handlers []atomic.Pointer[streamable.Handler]
	next     atomic.Uint64
}

func newReplicaSet(t *testing.T, n int, upstreams ...Upstream) *replicaSet {
	rs := &replicaSet{t: t, options: Options{ListWait: testTimeout, Secrets: [][]byte{[]byte("0123456789abcdef0123456789abcdef")}, Upstreams: upstreams}, handlers: make([]atomic.Pointer[streamable.Handler], n)}
	for i := range rs.handlers {
		rs.restart(i)
	}
	web := httptest.NewServer(rs)
	t.Cleanup(func() {
		for i := range rs.handlers {
			shutdownNow(rs.handlers[i].Load())
		}
		web.CloseClientConnections()
		web.Close()
	})
	rs.url = web.URL
	return rs
}

func shutdownNow(h *streamable.Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Shutdown(ctx)
}

// restart replaces a replica by a new one.
func (rs *replicaSet) restart(i int) {
	rs.t.Helper()
	o := rs.options
	g := newGateway(rs.t, &o)
	h, err := streamable.NewHandler(&relay.Server{Handler: g}, nil)
	if err != nil {
		rs.t.Fatal(err)
	}
	if old := rs.handlers[i].Swap(h); old != nil {
		shutdownNow(old)
	}
}

// ServeHTTP sends the request to the next replica, or to the one that a header names.
func (rs *replicaSet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i := rs.next.Add(1) % uint64(len(rs.handlers))
	if at := r.Header.Get("Replica"); at != "" {
		i = uint64(at[0] - '0')
	}
	rs.handlers[i].Load().ServeHTTP(w, r)
}

func (rs *replicaSet) dial(opts client.Options) *client.Client {
	rs.t.Helper()
	opts.Reconnect = client.ReconnectPolicy{Disabled: true}
	return dial(rs.t, streamable.NewTransport(rs.url, &streamable.TransportOptions{HTTPClient: &http.Client{Transport: ownTransport(rs.t)}}), opts)
}

// TestReplicas has clients of both eras use replicas that share only keys, in front of servers of
// both eras over HTTP.
func TestReplicas(t *testing.T) {
	old, modern := fullServer("old", mcp.LatestLegacyRevision), fullServer("new", mcp.LatestRevision)
	for _, srv := range []*server.Server{old, modern} {
		t.Cleanup(func() { srv.Close(context.Background()) })
	}
	for i := range 5 { // two pages
		must(server.AddToolWith(modern, mcp.Tool{Name: fmt.Sprintf("long%d", i), Description: strings.Repeat("x", 1<<20)}, func(context.Context, none) (string, error) { return "long", nil }))
	}
	rs := newReplicaSet(t, 2,
		Upstream{Name: "old", Bridge: bridge.Options{Connect: overHTTP(t, old), HTTP: true}},
		Upstream{Name: "new", Bridge: bridge.Options{Connect: overHTTP(t, modern), HTTP: true}})
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(revision.String(), func(t *testing.T) {
			c := rs.dial(fullClientOptions(revision))
			for round := range 3 {
				if round == 2 {
					rs.restart(0)
					rs.restart(1)
				}
				found := 0
				for tool, err := range c.Tools(t.Context(), client.WithoutCache()) {
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(tool.Name, "new__long") {
						found++
					}
				}
				if found != 5 {
					t.Errorf("got %d tools on several pages, want 5", found)
				}
				for range 3 { // an odd number, so that the next loop begins at another replica
					for _, up := range []string{"old", "new"} {
						if got, err := client.CallTool[string](t.Context(), c, up+"__who", nil); got != up || err != nil {
							t.Errorf("%s: got %q, %v", up, got, err)
						}
					}
				}
				task, err := c.StartTool(t.Context(), "new__slow", nil)
				if err != nil {
					t.Fatal(err)
				}
				if r, err := task.Wait(t.Context()); err != nil || r.IsError {
					t.Errorf("task: got %+v, %v", r, err)
				}
				if revision.Modern() { // the request state goes to another replica
					if got, err := client.CallTool[string](t.Context(), c, "new__form", nil); err != nil || got != `accept{"name":"x"}` {
						t.Errorf("form: got %q, %v", got, err)
					}
				}
			}
		})
	}
}

// post sends a message to a replica, as a legacy client does.
func (rs *replicaSet) post(replica, session, message string) *http.Response {
	rs.t.Helper()
	return rs.send("POST", replica, session, message)
}

// send sends a request to a replica.
func (rs *replicaSet) send(method, replica, session, message string) *http.Response {
	rs.t.Helper()
	ctx, cancel := context.WithTimeout(rs.t.Context(), testTimeout)
	rs.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, rs.url, strings.NewReader(message))
	if err != nil {
		rs.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Replica": replica, "Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-06-18",
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	resp, err := (&http.Client{Transport: ownTransport(rs.t)}).Do(r)
	if err != nil {
		rs.t.Fatal(err)
	}
	rs.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestReplicasListen checks that a legacy client that listens at a replica is notified of changes,
// whichever replica got its notifications/initialized.
func TestReplicasListen(t *testing.T) {
	srv := fullServer("old", mcp.LatestLegacyRevision)
	t.Cleanup(func() { srv.Close(context.Background()) })
	rs := newReplicaSet(t, 2, Upstream{Name: "old", Bridge: bridge.Options{Connect: overHTTP(t, srv), HTTP: true}})
	for _, initialized := range []string{"0", "1"} {
		for _, listened := range []string{"0", "1"} {
			session := rs.post("0", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`).Header.Get("Mcp-Session-Id")
			rs.post(initialized, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			stream := rs.send("GET", listened, session, "")
			must(server.AddTool(srv, "more"+initialized+listened, "", func(context.Context, none) (string, error) { return "", nil }))
			readUntil(t, stream, mcp.NotificationToolsChanged)
			stream.Body.Close()
		}
	}
}

// TestReplicasResponse checks that the response to a server's request is accepted only at the
// replica that sent the request.
func TestReplicasResponse(t *testing.T) {
	srv := fullServer("old", mcp.LatestLegacyRevision)
	t.Cleanup(func() { srv.Close(context.Background()) })
	rs := newReplicaSet(t, 2, Upstream{Name: "old", Bridge: bridge.Options{Connect: overHTTP(t, srv), HTTP: true}})
	session := rs.post("0", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`).Header.Get("Mcp-Session-Id")
	var ids [2]string
	streams := [2]*http.Response{}
	for i := range streams {
		streams[i] = rs.post(fmt.Sprint(i), session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"old__form","arguments":{}}}`)
		ids[i] = elicitationID(t, streams[i])
	}
	if ids[0] == ids[1] {
		t.Errorf("both replicas sent a request with id %s, want different ids", ids[0])
	}
	respond := func(replica, id string, status int) {
		t.Helper()
		message := `{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"name":"` + replica + `"}}}`
		if resp := rs.post(replica, session, message); resp.StatusCode != status {
			t.Errorf("response: got status %d, want %d", resp.StatusCode, status)
		}
	}
	respond("1", ids[0], http.StatusBadRequest)
	for i, stream := range streams {
		respond(fmt.Sprint(i), ids[i], http.StatusAccepted)
		if text := readUntil(t, stream, `"result"`); !strings.Contains(text, fmt.Sprintf(`accept{\"name\":\"%d\"}`, i)) {
			t.Errorf("replica %d: got %s", i, text)
		}
	}
}

// elicitationID returns the id of the next elicitation on an event stream.
func elicitationID(t *testing.T, resp *http.Response) string {
	t.Helper()
	_, rest, _ := strings.Cut(readUntil(t, resp, `"elicitation/create"`), `"id":`)
	id, _, _ := strings.Cut(rest, ",")
	return id
}

// readUntil reads a response until a line with the text, and returns that line.
func readUntil(t *testing.T, resp *http.Response, text string) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := resp.Body.Read(b); err != nil {
			t.Fatalf("%v before %q, after %q", err, text, line)
		}
		if b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		if bytes.Contains(line, []byte(text)) {
			return string(line)
		}
		line = line[:0]
	}
}
