package bridge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"mcpwire/bridge"
	"mcpwire/client"
	"mcpwire/internal/test/buffer"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// The test binary is also a server that fails: with this variable, it writes to standard error and
// exits.
const runFailing = "BRIDGE_RUN_FAILING"

func TestMain(m *testing.M) {
	if os.Getenv(runFailing) != "" {
		os.Stderr.WriteString("no configuration, token=sk-live-0123456789abcdef0123456789abcdef\n")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// newServer returns a server that speaks one revision only.
func newServer(t *testing.T, revision mcp.Revision) *server.Server {
	t.Helper()
	srv, err := server.New("upstream", "1.0.0", &server.Options{Revisions: []mcp.Revision{revision}})
	if err != nil {
		t.Fatal(err)
	}
	err = server.AddTool(srv, "double", "Doubles a number.", func(_ context.Context, in struct{ N int }) (int, error) { return 2 * in.N, nil })
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// inMemory returns a transport whose connections srv serves.
func inMemory(srv *server.Server) client.Transport {
	return client.TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
		clientEnd, serverEnd := net.Pipe()
		go srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))
		return jsonrpc.NewFramer(clientEnd, nil), nil
	})
}

// dial returns a client of b on a byte stream.
func dial(t *testing.T, b *bridge.Bridge, revision mcp.Revision) *client.Client {
	t.Helper()
	clientEnd, serverEnd := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil)) }()
	c, err := client.Dial(t.Context(), client.FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), &client.Options{Revisions: []mcp.Revision{revision}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-ended; err != nil && !errors.Is(err, bridge.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return c
}

func TestEras(t *testing.T) {
	mcptest.CheckLeaks(t)
	revisions := []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision}
	for _, upstream := range revisions {
		for _, downstream := range revisions {
			t.Run(string(downstream)+" to "+string(upstream), func(t *testing.T) {
				srv := newServer(t, upstream)
				web, err := streamable.NewHandler(srv, nil)
				if err != nil {
					t.Fatal(err)
				}
				site := httptest.NewServer(web)
				defer site.Close()
				for name, transport := range map[string]client.Transport{
					"in memory": inMemory(srv), "HTTP": streamable.NewTransport(site.URL, nil),
				} {
					b, err := bridge.New(transport, &bridge.Options{Shared: true})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { b.Close() })
					h, err := b.Handler(nil)
					if err != nil {
						t.Fatal(err)
					}
					front := httptest.NewServer(h)
					defer front.Close()
					overHTTP, err := client.Dial(t.Context(), streamable.NewTransport(front.URL, nil), &client.Options{Revisions: []mcp.Revision{downstream}})
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range []*client.Client{dial(t, b, downstream), overHTTP} {
						got, err := client.CallTool[int](t.Context(), c, "double", map[string]int{"N": 21})
						if got != 42 || err != nil {
							t.Errorf("upstream %s: got %d, %v, want 42", name, got, err)
						}
					}
					overHTTP.Close()
					if err := b.Ready(t.Context()); err != nil {
						t.Errorf("upstream %s: not ready: %v", name, err)
					}
					h.Shutdown(t.Context())
				}
			})
		}
	}
}

// TestStderr checks that only clients with ShowStderr get the standard error of a failed process,
// and that the Stderr of its command gets it too.
func TestStderr(t *testing.T) {
	mcptest.CheckLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, show := range []bool{false, true} {
		var stderr buffer.Buffer
		cmd := stdio.Command(self)
		cmd.Env = []string{runFailing + "=1"}
		cmd.Stderr = &stderr
		b, err := bridge.New(cmd, &bridge.Options{ShowStderr: show, Timeouts: bridge.Timeouts{Restart: -1}})
		if err != nil {
			t.Fatal(err)
		}
		clientEnd, serverEnd := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- b.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil)) }()
		_, err = client.Dial(t.Context(), client.FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), &client.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}})
		if err == nil {
			t.Fatal("a client was connected")
		}
		text := err.Error()
		if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
			text += string(e.Data)
		}
		if !strings.Contains(text, "status 3") && !strings.Contains(text, `"exitCode":3`) {
			t.Errorf("ShowStderr %t: got %q, want the exit status", show, text)
		}
		if got := strings.Contains(text, "no configuration"); got != show {
			t.Errorf("ShowStderr %t: got %q", show, text)
		}
		if strings.Contains(text, "sk-live") {
			t.Errorf("ShowStderr %t: got %q, want no secret in it", show, text)
		}
		clientEnd.Close()
		<-ended
		b.Close()
		if !strings.Contains(stderr.String(), "no configuration") {
			t.Errorf("ShowStderr %t: the command's Stderr got %q", show, stderr.String())
		}
	}
}

func TestServeErrors(t *testing.T) {
	mcptest.CheckLeaks(t)
	if _, err := bridge.New(nil, nil); err == nil {
		t.Error("New without an upstream: got no error")
	}
	b, err := bridge.New(inMemory(newServer(t, mcp.LatestRevision)), &bridge.Options{Limits: bridge.Limits{MaxClients: 1}})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, b, mcp.LatestRevision)
	if _, err := client.CallTool[int](t.Context(), c, "double", map[string]int{"N": 1}); err != nil {
		t.Fatal(err)
	}
	serve := func() error {
		clientEnd, serverEnd := net.Pipe()
		defer clientEnd.Close()
		go io.Copy(io.Discard, clientEnd)
		return b.Serve(t.Context(), jsonrpc.NewFramer(serverEnd, nil))
	}
	if err := serve(); !errors.Is(err, bridge.ErrFull) {
		t.Errorf("a second client: got %v, want ErrFull", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := serve(); !errors.Is(err, bridge.ErrClosed) {
		t.Errorf("after Close: got %v, want ErrClosed", err)
	}
}
