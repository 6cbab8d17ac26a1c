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

// TestReadyCost: asking costs at most a process in the time that an answer counts for, and in ten seconds while there is none.
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
				b := f.bridge(&Options{Far: EraModern, ReadyFor: time.Minute})
				go func() {
					for far := range f.conns {
						far.send(answering(far.request("server/discover"), `{}`))
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

// TestReadyCrash: that a connection has ended counts at once, and that another one works does too.
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
		near, _ := client0(t, b)
		near.send(hello)
		far := f.next()
		shake(near, far)
		if err := b.Ready(t.Context()); err != nil {
			t.Fatalf("Ready = %v while the server answers", err)
		}
		far.f.Close()
		synctest.Wait()
		away.Store(true)
		if err := b.Ready(t.Context()); !errors.Is(err, errTest) {
			t.Errorf("Ready = %v, want %v", err, errTest)
		}
		away.Store(false)
		far = f.next() // since the session goes on
		far.send(answering(far.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		far.wants(confirmed)
		if err := b.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v, and the server is back", err)
		}
	})
}

// TestReadyStalled: a server that takes requests and answers none is not ready, as soon as one of them was given up.
func TestReadyStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, func(o *Options) { o.ReadyFor, o.CallTimeout, o.ConnectTimeout = time.Hour, time.Minute, 9*time.Second }))
		near, _ := client0(t, b)
		near.send(hello)
		shake(near, f.next())
		near.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		near.reads(`"id":1,"error"`, "has not answered tools/call for 1m0s")
		asked := make(chan error, 1)
		began := time.Now()
		go func() { asked <- b.Ready(t.Context()) }()
		swallow(f.next())
		if err := <-asked; !errors.As(err, new(silence)) || time.Since(began) != 9*time.Second {
			t.Errorf("Ready = %v after %v, want that nothing came for 9 s", err, time.Since(began))
		}
	})
}

// TestReadyShared: what clients share is asked, rather than another process.
func TestReadyShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, func(o *Options) { o.Shared = true }))
		near, _ := client0(t, b)
		near.send(hello)
		far := f.next()
		far.send(answering(far.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
		near.reads(`"result"`)
		near.send(confirmed)
		far.wants(confirmed)
		<-time.After(time.Minute)
		asked := make(chan error, 1)
		go func() { asked <- b.Ready(t.Context()) }()
		far.send(answering(far.request(`"ping"`), `{}`))
		if err := <-asked; err != nil {
			t.Errorf("Ready = %v", err)
		}
		if n := b.linesUp.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestReadyWeb: a server on the web that has died is not ready as soon as a request has met that, and the client is told what it should look at.
func TestReadyWeb(t *testing.T) {
	far := httptest.NewServer(streamable.NewHandler(newServer(t, mcp.Revisions()), nil))
	defer far.Close()
	carrier := streamable.Dial(far.URL, nil)
	connect := func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return carrier.Connect(ctx) }
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
	far.CloseClientConnections()
	far.Close()
	post(t, url, request, header...) // which may still meet the end of the old connection
	if _, _, body := post(t, url, request, header...); !strings.Contains(body, "the server cannot be reached") || !strings.Contains(body, "is it running, and at this address?") {
		t.Errorf("answer: %s", body)
	}
	if err := b.Ready(t.Context()); err == nil {
		t.Error("a server that is not there is ready")
	}
}
