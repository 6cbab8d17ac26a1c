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

// TestReadyCost checks that readiness queries start at most one process while an answer is cached,
// and one in ten seconds without an answer.
func TestReadyCost(t *testing.T) {
	for _, tt := range []struct {
		name        string
		fail        error
		least, most int
	}{
		{"answers", nil, 9, 11},
		{"fails", errTest, 55, 65},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := 0
				f := newFarm(t)
				f.fail = func() error { starts++; return tt.fail }
				b := f.bridge(&Options{ServerEra: EraModern, ReadyFor: time.Minute})
				go func() {
					for srv := range f.conns {
						srv.send(answering(srv.request("server/discover"), `{}`))
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
					t.Errorf("%d connections in 10 min, want %d to %d", starts, tt.least, tt.most)
				}
			})
		})
	}
}

// TestReadyCrash shows that Ready says at once that a connection has ended, and that another one
// works.
func TestReadyCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		var away atomic.Bool
		f.fail = func() error {
			if away.Load() {
				return errTest
			}
			return nil
		}
		b := f.bridge(with(legacy, func(o *Options) { o.ReadyFor = time.Hour }))
		client, _ := client0(t, b)
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		if err := b.Ready(t.Context()); err != nil {
			t.Fatalf("Ready = %v while the server answers", err)
		}
		srv.f.Close()
		synctest.Wait()
		away.Store(true)
		if err := b.Ready(t.Context()); !errors.Is(err, errTest) {
			t.Errorf("Ready = %v, want %v", err, errTest)
		}
		away.Store(false)
		srv = f.next() // since the session goes on
		srv.send(answering(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		srv.wants(confirmed)
		if err := b.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v, and the server is back", err)
		}
	})
}

// TestReadyStalled shows that a server that takes requests and answers none is not ready once one
// of them was given up.
func TestReadyStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, func(o *Options) { o.ReadyFor, o.CallTimeout, o.ConnectTimeout = time.Hour, time.Minute, 9*time.Second }))
		client, _ := client0(t, b)
		client.send(hello)
		handshake(client, f.next())
		client.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		client.reads(`"id":1,"error"`, "has not responded to tools/call for 1m0s")
		asked := make(chan error, 1)
		began := time.Now()
		go func() { asked <- b.Ready(t.Context()) }()
		discardAll(f.next())
		if err := <-asked; !errors.As(err, new(timeoutError)) || time.Since(began) != 9*time.Second {
			t.Errorf("Ready = %v after %v, want that no data for 9 s", err, time.Since(began))
		}
	})
}

// TestReadyShared checks that readiness queries the shared upstream, and starts no other process.
func TestReadyShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
		client, _ := client0(t, b)
		client.send(hello)
		srv := f.next()
		srv.send(answering(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		client.reads(`"result"`)
		client.send(confirmed)
		srv.wants(confirmed)
		<-time.After(time.Minute)
		asked := make(chan error, 1)
		go func() { asked <- b.Ready(t.Context()) }()
		srv.send(answering(srv.request(`"ping"`), `{}`))
		if err := <-asked; err != nil {
			t.Errorf("Ready = %v", err)
		}
		if n := b.openConnections.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestReadyWeb checks that a dead HTTP server is not ready once a request to it has failed, and
// that the client's error says what to check.
func TestReadyWeb(t *testing.T) {
	upstream := httptest.NewServer(streamable.MustHandler(newServer(t, mcp.Revisions()), nil))
	defer upstream.Close()
	transport := streamable.Dial(upstream.URL, nil)
	connect := func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
	b := newBridge(t, &Options{Connect: connect, HTTP: true, ReadyFor: time.Hour})
	url := served(t, b, nil).URL + "/mcp"
	request := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	header := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}
	if _, _, body := post(t, url, request, header...); !strings.Contains(body, `"result"`) {
		t.Fatalf("answer: %s", body)
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Fatalf("Ready = %v", err)
	}
	upstream.CloseClientConnections()
	upstream.Close()
	post(t, url, request, header...) // which may still meet the end of the old connection
	if _, _, body := post(t, url, request, header...); !strings.Contains(body, "the server cannot be reached") || !strings.Contains(body, "check that it runs, and at this address") {
		t.Errorf("answer: %s", body)
	}
	if err := b.Ready(t.Context()); err == nil {
		t.Error("a server that is not there is ready")
	}
}
