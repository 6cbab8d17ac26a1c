package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mcpclient "mcpwire/client"
	"mcpwire/internal/rpc/relay"
	"mcpwire/internal/test/race"
	"mcpwire/internal/test/soak"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// upstreamOptions returns the options of a bridge to a server on a transport.
func upstreamOptions(t *testing.T, transport string, revisions []mcp.Revision) *Options {
	srv := newServer(t, revisions)
	switch transport {
	case "pipe":
		return &Options{Connect: connectTo(t, revisions)}
	case "socket":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go srv.Serve(context.Background(), jsonrpc.NewFramer(conn, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingHeader}))
			}
		}()
		return &Options{Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", l.Addr().String())
			if err != nil {
				return nil, err
			}
			return jsonrpc.NewFramer(conn, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingHeader}), nil
		}}
	}
	h := streamable.MustHandler(srv, nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	old := h.SSE("/messages")
	mux.Handle("/sse", old)
	mux.Handle("/messages", old)
	ts := httptest.NewServer(mux)
	t.Cleanup(func() {
		_ = h.Shutdown(context.Background())
		ts.Close()
	})
	dial := streamable.NewTransport(ts.URL+map[string]string{"http": "/mcp", "sse": "/sse"}[transport], nil)
	return &Options{HTTP: true, Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return dial.Connect(ctx) }}
}

// downstreamTransport returns the transport of a client to a bridge.
func downstreamTransport(t *testing.T, b *Bridge, transport, where string) mcpclient.Transport {
	switch transport {
	case "pipe":
		ours, theirs := net.Pipe()
		go b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		return mcpclient.FramerTransport(jsonrpc.NewFramer(ours, nil))
	case "socket":
		return mcpclient.FramerTransport(jsonrpc.NewFramer(dialTCP(t, where), &jsonrpc.FramerOptions{Framing: jsonrpc.FramingHeader}))
	}
	return streamable.NewTransport(where, nil)
}

// serveOn serves a bridge on a transport, and returns its address.
func serveOn(t *testing.T, b *Bridge, transport string) string {
	switch transport {
	case "pipe":
		return ""
	case "socket":
		return listening(t, b)
	}
	return served(t, b, nil).URL + "/" + map[string]string{"http": "mcp", "sse": "sse"}[transport]
}

// TestLarge checks that large results are forwarded between all transports while another call is in
// flight.
func TestLarge(t *testing.T) {
	transports := []string{"pipe", "socket", "http", "sse"}
	for _, downstream := range transports {
		for _, upstream := range transports {
			for _, eras := range [][2]Era{{EraLegacy, EraLegacy}, {EraModern, EraModern}, {EraModern, EraLegacy}, {EraLegacy, EraModern}} {
				if downstream == "sse" && eras[0] == EraModern || upstream == "sse" && eras[1] == EraModern {
					continue // HTTP+SSE has no modern era
				}
				large := 1 << 20
				if downstream == upstream || soak.Enabled() {
					large = race.Choose(1<<20, 8<<20)
				}
				t.Run(fmt.Sprintf("%v %s to %v %s", eras[0], downstream, eras[1], upstream), func(t *testing.T) {
					b := newBridge(t, upstreamOptions(t, upstream, eras[1].Revisions()))
					c, err := mcpclient.Dial(t.Context(), downstreamTransport(t, b, downstream, serveOn(t, b, downstream)), &mcpclient.Options{Revisions: eras[0].Revisions()})
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					done := make(chan error, 1)
					go func() { _, err := mcpclient.CallTool[string](t.Context(), c, "steps", struct{}{}); done <- err }()
					got, err := mcpclient.CallTool[string](t.Context(), c, "big", map[string]int{"Size": large})
					if err != nil || len(got) != large || strings.Trim(got, "x") != "" {
						t.Errorf("got %d bytes, %v", len(got), err)
					}
					if err := <-done; err != nil {
						t.Errorf("other call: %v", err)
					}
				})
			}
		}
	}
}

// TestSlowReaders checks that clients that do not read their responses block no other, and that the
// memory for them is limited.
func TestSlowReaders(t *testing.T) {
	for _, tt := range []struct {
		downstream string
		era        Era
		share      bool
	}{
		{"pipe", EraLegacy, false}, {"socket", EraLegacy, false}, {"socket", EraModern, false}, {"socket", EraLegacy, true},
		{"http", EraLegacy, false}, {"http", EraModern, false}, {"http", EraLegacy, true},
	} {
		t.Run(fmt.Sprintf("%v %s shared %v", tt.era, tt.downstream, tt.share), func(t *testing.T) {
			o := upstreamOptions(t, "pipe", tt.era.Revisions())
			o.Shared, o.ClientEra = tt.share, tt.era
			b := newBridge(t, o)
			where := serveOn(t, b, tt.downstream)
			before := currentUsage()
			quick, err := mcpclient.Dial(t.Context(), downstreamTransport(t, b, tt.downstream, where), &mcpclient.Options{Revisions: tt.era.Revisions()})
			if err != nil {
				t.Fatal(err)
			}
			defer quick.Close()
			for range 3 {
				floodClient(t, b, where, tt.downstream, tt.era)
			}
			// queued messages, messages being sent, events for resumption, and the memory of the
			// server, which is in this process too
			const limit = 3 * (64 << 20)
			var grown int64
			for i := range 100 {
				if got, err := mcpclient.CallTool[string](t.Context(), quick, "echo", json.RawMessage(`{"Text":"hi"}`)); got != "hi" {
					t.Fatalf("echo: %q, %v", got, err)
				}
				if i%10 == 9 { // memory that is in use only for a moment does not count
					if grown = int64(currentUsage().heap) - int64(before.heap); grown <= limit {
						break
					}
				}
			}
			t.Logf("the heap has grown by %d MiB", grown>>20)
			if grown > limit {
				t.Errorf("the heap has grown by %d MiB for three clients that do not read, want at most %d", grown>>20, limit>>20)
			}
		})
	}
}

// TestSlowReadersBlockNobody checks that a caller of a server waits for no time at all while
// another client of the same server does not read its messages.
func TestSlowReadersBlockNobody(t *testing.T) {
	large := race.Choose(128<<10, 1<<20)
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		for _, serverEra := range []Era{EraLegacy, EraModern} {
			for _, transport := range []string{"pipe", "http"} {
				t.Run(fmt.Sprintf("%v %s to %v", clientEra, transport, serverEra), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b, connections := sharedBridge(t, &Options{ServerEra: serverEra}, serverEra.Revisions())
						stuck := make(chan struct{})
						if transport == "pipe" {
							floodClient(t, b, "", transport, clientEra)
						} else {
							floodPeer(t, b, clientEra, stuck)
						}
						quick := dialAs(t, b, "", "a", clientEra, func(o *mcpclient.Options) {
							o.Info, o.Input = mcp.Implementation{Name: "c", Version: "1"}, mcpclient.InputOptions{}
						})
						start := time.Now()
						for range 10 {
							got, err := mcpclient.CallTool[string](t.Context(), quick, "big", map[string]int{"Size": large})
							if err != nil || len(got) != large {
								t.Fatalf("got %d bytes, %v", len(got), err)
							}
						}
						if waited := time.Since(start); waited > 0 {
							t.Errorf("ten calls waited for %v", waited)
						}
						if n := connections.Load(); n != 1 {
							t.Errorf("%d servers, want one", n)
						}
						close(stuck)
					})
				})
			}
		}
	}
}

// floodPeer is floodClient for a client over HTTP whose connection takes nothing until stuck is
// closed.
func floodPeer(t *testing.T, b *Bridge, era Era, stuck chan struct{}) {
	out := senderFunc(func([]byte) error { <-stuck; return nil })
	h := b.Relay()
	var p relay.Peer
	request := func(text string) {
		frame, m := parsed(t, text)
		_, _ = p.Request(t.Context(), frame, m, out, nil) // it ends with the test
	}
	if era == EraModern {
		p = h.Stateless()
	} else {
		p = h.Session(t.Context(), out)
		request(initialize)
		frame, m := parsed(t, initialized)
		p.Notification(t.Context(), frame, m)
	}
	t.Cleanup(p.Close)
	go request(floodCall(era))
	synctest.Wait()
}

// floodCall returns a call that causes many progress notifications.
func floodCall(era Era) string {
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"flood","arguments":{},"_meta":{"progressToken":1}}}`
	if era == EraModern {
		call = strings.Replace(call, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},`, 1)
	}
	return call
}

// floodClient connects a client that requests many progress notifications, and reads none of them
// until the test ends.
func floodClient(t *testing.T, b *Bridge, url, downstream string, era Era) {
	call := floodCall(era)
	if downstream == "http" {
		header := "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: flood\r\n"
		if era == EraLegacy {
			_, h, _ := post(t, url, httpInitialize)
			post(t, url, initialized, "Mcp-Session-Id", h.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-11-25")
			header = "Mcp-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: " + h.Get("Mcp-Session-Id") + "\r\n"
		}
		host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
		conn := dialTCP(t, host)
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s",
			host, header, len(call), call)
		if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil { // the response has started
			t.Fatal(err)
		}
		return
	}
	var conn net.Conn
	if downstream == "pipe" {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close() })
		go b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		conn = ours
	} else {
		conn = dialTCP(t, url)
	}
	f := jsonrpc.NewFramer(conn, nil)
	lines := []string{call}
	if era == EraLegacy {
		lines = []string{initialize, initialized, call}
	}
	for _, line := range lines {
		if err := f.WriteFrame([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if line == initialized {
			continue
		}
		if _, err := f.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	}
}

func dialTCP(t *testing.T, addr string) net.Conn {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
