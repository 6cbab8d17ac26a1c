package bridge

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestReadyCost checks how often readiness queries connect to a server: once in ReadyFor if it
// responds, and once in ten seconds if it does not.
func TestReadyCost(t *testing.T) {
	for _, tt := range []struct {
		name        string
		fail        error
		least, most int
	}{
		{"server responds", nil, 9, 11},
		{"server fails", errTest, 55, 65},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := 0
				f := newFakeServer(t)
				f.fail = func() error { starts++; return tt.fail }
				b := f.bridge(&Options{ServerEra: EraModern, ReadyFor: time.Minute})
				go func() {
					for srv := range f.conns {
						srv.send(resultFor(srv.request("server/discover"), `{"supportedVersions":["2026-07-28"]}`))
					}
				}()
				defer close(f.conns)
				for range 10 * 60 {
					if err := b.Ready(t.Context()); !errors.Is(err, tt.fail) {
						t.Fatalf("Ready = %v, want %v", err, tt.fail)
					}
					<-time.After(time.Second)
				}
				if starts < tt.least || starts > tt.most {
					t.Errorf("got %d connections in 10 min, want %d to %d", starts, tt.least, tt.most)
				}
			})
		})
	}
}

// TestReadyCrash checks that Ready fails as soon as a connection has ended, and succeeds as soon as
// there is another one.
func TestReadyCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		var away atomic.Bool
		f.fail = func() error {
			if away.Load() {
				return errTest
			}
			return nil
		}
		b := f.bridge(with(legacy, func(o *Options) { o.ReadyFor = time.Hour }))
		client, _ := dialPipe(t, b)
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		if err := b.Ready(t.Context()); err != nil {
			t.Fatalf("Ready = %v, want nil before the crash", err)
		}
		srv.f.Close()
		synctest.Wait()
		away.Store(true)
		if err := b.Ready(t.Context()); !errors.Is(err, errTest) {
			t.Errorf("Ready = %v, want %v", err, errTest)
		}
		away.Store(false)
		srv = f.next() // for the open session
		srv.send(resultFor(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		srv.wants(initialized)
		if err := b.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v, want nil after the restart", err)
		}
	})
}

// TestReadyStalled checks that a server that does not respond is not ready after the timeout of a
// request.
func TestReadyStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, func(o *Options) { o.ReadyFor, o.CallTimeout, o.ConnectTimeout = time.Hour, time.Minute, 9*time.Second }))
		client, _ := dialPipe(t, b)
		client.send(initialize)
		handshake(client, f.next())
		client.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		client.reads(`"id":1,"error"`, "has not responded to tools/call for 1m0s")
		ready := make(chan error, 1)
		began := time.Now()
		go func() { ready <- b.Ready(t.Context()) }()
		discardAll(f.next())
		if err := <-ready; !errors.As(err, new(timeoutError)) || time.Since(began) != 9*time.Second {
			t.Errorf("Ready = %v after %v, want a timeout after 9 s", err, time.Since(began))
		}
	})
}

// TestReadyShared checks that Ready pings the shared upstream, and opens no other connection.
func TestReadyShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
		client, _ := dialPipe(t, b)
		client.send(initialize)
		srv := f.next()
		srv.send(resultFor(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		client.reads(`"result"`)
		client.send(initialized)
		srv.wants(initialized)
		<-time.After(time.Minute)
		ready := make(chan error, 1)
		go func() { ready <- b.Ready(t.Context()) }()
		srv.send(resultFor(srv.request(`"ping"`), `{}`))
		if err := <-ready; err != nil {
			t.Errorf("Ready = %v", err)
		}
		if n := b.openConnections.Load(); n != 1 {
			t.Errorf("got %d connections, want 1", n)
		}
	})
}

// TestReadyWeb checks that an unreachable HTTP server is not ready after a request to it has
// failed, and that the client's error names the fix.
func TestReadyWeb(t *testing.T) {
	upstream := httptest.NewServer(streamable.MustHandler(newServer(t, mcp.Revisions()), nil))
	defer upstream.Close()
	transport := streamable.NewTransport(upstream.URL, nil)
	connect := func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
	b := newBridge(t, &Options{Connect: connect, HTTP: true, ReadyFor: time.Hour, RestartWait: -1})
	url := served(t, b, nil).URL + "/mcp"
	request := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	header := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}
	if _, _, body := post(t, url, request, header...); !strings.Contains(body, `"result"`) {
		t.Fatalf("got %s, want a result", body)
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Fatalf("Ready = %v", err)
	}
	upstream.CloseClientConnections()
	upstream.Close()
	post(t, url, request, header...) // may fail with the error of the old connection
	if _, _, body := post(t, url, request, header...); !strings.Contains(body, "the server cannot be reached") || !strings.Contains(body, "check that it runs, and at this address") {
		t.Errorf("got %s, want an error with a hint", body)
	}
	if err := b.Ready(t.Context()); err == nil {
		t.Error("Ready = nil, want an error for an unreachable server")
	}
}
