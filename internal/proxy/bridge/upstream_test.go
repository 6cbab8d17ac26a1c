package bridge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
)

// answerRestart answers the handshake with a restarted server.
func answerRestart(srv *pipe) {
	srv.t.Helper()
	id := srv.request(`"method":"initialize"`)
	srv.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
	srv.wants(confirmed)
}

// TestBackoffForgets shows that a server that answers requests and sometimes ends is restarted
// after the shortest time, however often it has ended.
func TestBackoffForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		client, _ := client0(t, f.bridge(with(legacy, nil)))
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		for n := range 20 {
			id := fmt.Sprint(n + 1)
			client.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list"}`)
			srv.reads(`"id":` + id)
			srv.send(answering(id, "{}"))
			client.wants(answering(id, "{}"))
			start := time.Now()
			srv.f.Close()
			srv = f.next()
			answerRestart(srv)
			if d := time.Since(start); d > 200*time.Millisecond {
				t.Fatalf("after %d ends the server was back after %v, want at most 200 ms", n+1, d)
			}
		}
	})
}

// TestBackoffRemembers checks that the backoff continues for a server that ends after each
// handshake.
func TestBackoffRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		client, _ := client0(t, f.bridge(with(legacy, nil)))
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		start := time.Now()
		for range 6 {
			srv.f.Close()
			srv = f.next()
			answerRestart(srv)
		}
		if d := time.Since(start); d < 3*time.Second { // at least half of 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4
			t.Errorf("six restarts took %v", d)
		}
	})
}

// TestCallsWaitForRestart shows that a call waits for the restart of a server that has served, over
// attempts that fail, up to the limit.
func TestCallsWaitForRestart(t *testing.T) {
	for _, test := range []struct {
		name   string
		wait   time.Duration // Options.RestartWait
		fails  int           // attempts that fail
		within time.Duration
		want   string
	}{
		{"the next attempt", 0, 0, 200 * time.Millisecond, `"result"`},
		{"the fourth attempt", 0, 3, 3 * time.Second, `"result"`},
		{"attempts fail for too long", 0, 1000, 10 * time.Second, `the server cannot be started: no such program`},
		{"a shorter time", time.Second, 1000, time.Second, `the server cannot be started: no such program`},
		{"no time", -1, 1000, 0, `the connection to the server ended`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(t)
				fails := 0
				var mu sync.Mutex
				f.fail = func() error {
					mu.Lock()
					defer mu.Unlock()
					if fails--; fails >= 0 {
						return errTest
					}
					return nil
				}
				client, _ := client0(t, f.bridge(with(legacy, func(o *Options) { o.RestartWait = test.wait })))
				client.send(hello)
				srv := f.next()
				handshake(client, srv)
				mu.Lock()
				fails = test.fails
				mu.Unlock()
				srv.f.Close()
				synctest.Wait()
				start := time.Now()
				client.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
				if test.want == `"result"` {
					srv = f.next()
					answerRestart(srv)
					srv.reads(`"id":1`)
					srv.send(answering("1", "{}"))
				}
				client.reads(`"id":1`, test.want)
				if d := time.Since(start); d > test.within {
					t.Errorf("it took %v, want at most %v", d, test.within)
				}
			})
		})
	}
}

// slowConnect returns a connect function that waits until it is let.
func slowConnect(t *testing.T, s *lastWins) (connect func(context.Context, io.Writer) (jsonrpc.Framer, error), let func()) {
	may := make(chan struct{})
	now := s.connect(t)
	return func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
		select {
		case <-may:
			return now(ctx, w)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}, sync.OnceFunc(func() { close(may) })
}

// TestBacklog shows that a shared server that starts queues requests up to the documented limit,
// and that a status refuses those above it.
func TestBacklog(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests int
		max      int // Options.MaxBacklog
		refused  int
	}{
		{"by default", 1000, 0, 0},
		{"more than may wait", 30, 20, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s lastWins
			connect, let := slowConnect(t, &s)
			b := newBridge(t, &Options{Connect: connect, Shared: true, MaxBacklog: test.max})
			defer let()
			url := served(t, b, nil).URL + "/mcp"
			type reply struct {
				status int
				after  string
				body   string
			}
			replies := make(chan reply, test.requests)
			transport := &http.Transport{MaxConnsPerHost: test.requests}
			defer transport.CloseIdleConnections()
			for i := range test.requests {
				go func() {
					body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{},%s}}`, i, dupMeta)
					r, _ := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
					for name, value := range map[string]string{
						"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
						"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "t",
					} {
						r.Header.Set(name, value)
					}
					resp, err := transport.RoundTrip(r)
					if err != nil {
						replies <- reply{body: err.Error()}
						return
					}
					defer resp.Body.Close()
					text, _ := io.ReadAll(resp.Body)
					replies <- reply{resp.StatusCode, resp.Header.Get("Retry-After"), string(text)}
				}()
			}
			for range test.refused {
				got := <-replies
				if got.status != 503 || got.after != "1" || !strings.Contains(got.body, "too many requests wait for the server to start") {
					t.Errorf("got %+v, want 503", got)
				}
			}
			await(t, "all to have come", func() bool {
				n := 0
				for cl := range clientsOf(b) {
					open, _ := cl.inFlight()
					n += open
				}
				return n == test.requests-test.refused
			})
			let()
			for range test.requests - test.refused {
				if got := <-replies; got.status != 200 || !strings.Contains(got.body, "ran t") {
					t.Fatalf("got %+v, want an answer", got)
				}
			}
		})
	}
}

// TestBacklogOfSession is TestBacklog for requests in a session.
func TestBacklogOfSession(t *testing.T) {
	b := newBridge(t, &Options{Connect: connectTo(t, nil), MaxCalls: 1})
	url := served(t, b, nil).URL + "/mcp"
	_, h, _ := post(t, url, httpHello)
	header := []string{"Mcp-Session-Id", h.Get("Mcp-Session-Id")}
	post(t, url, confirmed, header...)
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		post(t, url, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, header...)
	}()
	await(t, "the call", func() bool {
		for cl := range clientsOf(b) {
			if n, _ := cl.inFlight(); n == 1 {
				return true
			}
		}
		return false
	})
	status, h, body := post(t, url, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, header...)
	if status != 429 || h.Get("Retry-After") != "1" || !strings.Contains(body, `"id":3`) || !strings.Contains(body, "1 requests of this client are already in flight") {
		t.Errorf("got %d %v %s, want 429", status, h, body)
	}
	end, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	end.Header.Set(header[0], header[1])
	resp, err := http.DefaultClient.Do(end)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	<-waits
}

// TestEndedSession shows that a request in a session that has ended gets an error that says so, and
// none about servers that start.
func TestEndedSession(t *testing.T) {
	b := newBridge(t, &Options{Connect: connectTo(t, nil)})
	cl := b.newClient(nil, "", false)
	cl.close()
	frame, m := parsed(t, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	var got string
	cl.request(t.Context(), frame, m, nil, func(response []byte) { got = string(response) })
	if !strings.Contains(got, `"message":"the session has ended"`) {
		t.Errorf("got %s", got)
	}
}

// TestTooLarge shows that a message that is larger than a side reads ends the wait for it at once,
// in both directions, and that the connection continues.
func TestTooLarge(t *testing.T) {
	for _, era := range []Era{EraLegacy, EraModern} {
		t.Run(era.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 1000
				large := strings.Repeat("x", 3*limit)
				ours, theirs := net.Pipe()
				srv := newPipe(t, theirs)
				b := newBridge(t, &Options{ServerEra: EraLegacy, Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
					return jsonrpc.NewFramer(ours, &jsonrpc.FramerOptions{MaxFrame: limit}), nil
				}})
				clientEnd, bridgeEnd := net.Pipe()
				go b.Serve(context.Background(), jsonrpc.NewFramer(bridgeEnd, &jsonrpc.FramerOptions{MaxFrame: limit}))
				client := newPipe(t, clientEnd)
				meta := ""
				if era == EraLegacy {
					client.send(hello)
					handshake(client, srv)
				} else {
					meta = "," + dupMeta
				}
				start := time.Now()
				client.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{}` + meta + `}}`)
				if era == EraModern {
					id := srv.request(`"method":"initialize"`)
					srv.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`))
					srv.reads("notifications/initialized")
				}
				id := srv.request("tools/call")
				srv.send(answering(id, `{"content":[{"type":"text","text":"`+large+`"}]}`))
				client.reads(`"id":7,"error":{"code":-32603`, "the server's response has more than 1000 bytes", `"limit":1000`)
				client.send(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"t","arguments":{"x":"` + large + `"}` + meta + `}}`)
				client.reads(`"id":8,"error":{"code":-32600`, "more than 1000 bytes")
				if era == EraLegacy {
					srv.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"` + large + `"}}`)
					srv.reads(`"id":"q","error":{"code":-32600`, "more than 1000 bytes")
					srv.send(`{"jsonrpc":"2.0","id":"r","method":"elicitation/create","params":{"message":"?"}}`)
					client.reads(`"id":"r"`)
					client.send(`{"jsonrpc":"2.0","id":"r","result":{"action":"accept","content":{"a":"` + large + `"}}}`)
					srv.reads(`"id":"r","error":{"code":-32600`, "more than 1000 bytes")
				}
				client.send(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"t","arguments":{}` + meta + `}}`)
				id = srv.request("tools/call")
				srv.send(answering(id, `{"content":[]}`))
				client.reads(`"id":9,"result"`)
				if d := time.Since(start); d > time.Second {
					t.Errorf("it took %v", d)
				}
			})
		})
	}
}

// TestDead checks that the bridge replaces a connection without traffic after a request has timed
// out, and keeps one whose server answers anything.
func TestDead(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
	for _, tt := range []struct {
		name string
		dead bool
	}{{"dead", true}, {"busy", false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(t)
				b := f.bridge(with(legacy, func(o *Options) { o.CallTimeout = time.Minute }))
				client, _ := client0(t, b)
				client.send(hello)
				srv := f.next()
				handshake(client, srv)
				client.send(call)
				srv.wants(call)
				client.reads(`"id":1,"error"`, "has not responded")
				if tt.dead {
					discardAll(srv)
					srv = f.next()
					srv.send(answering(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
					srv.wants(confirmed)
				} else {
					srv.reads("notifications/cancelled")
					srv.send(answering(srv.request(`"ping"`), "{}"))
					<-time.After(time.Minute)
				}
				client.send(call)
				srv.wants(call)
				srv.send(answering("1", "{}"))
				client.wants(answering("1", "{}"))
			})
		})
	}
}

// TestRestartedServerDies shows that a new connection can be given up although an older one was
// suspected and then ended by itself.
func TestRestartedServerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &upstream{b: newFarm(t).bridge(with(legacy, nil))}
		l.ctx = t.Context()
		cuts := 0
		later := &connection{abort: func() { cuts++ }}
		l.conn = &connection{abort: func() {}}
		l.checkAlive(time.Now())
		l.conn = later // while the first is being found out
		<-time.After(aliveTimeout / 2)
		l.lastReceived.Store(time.Now().UnixNano()) // by the later one
		<-time.After(aliveTimeout)
		l.checkAlive(time.Now())
		<-time.After(2 * aliveTimeout)
		synctest.Wait()
		if cuts != 1 {
			t.Errorf("a dead connection was ended %d times, want once", cuts)
		}
	})
}

// TestDownstreamSlow shows that a client on a slow socket that needs more than a minute for a large
// message is not given up.
func TestDownstreamSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		want := bytes.Repeat([]byte("x"), 10*writeChunk+1)
		sent := make(chan error, 1)
		go func() {
			n, err := deadlineConn{theirs}.Write(want)
			if err == nil && n != len(want) {
				err = io.ErrShortWrite
			}
			sent <- err
			theirs.Close()
		}()
		var got []byte
		buf := make([]byte, writeChunk)
		for {
			<-time.After(writeTimeout / 2)
			n, err := ours.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		if err := <-sent; err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d came: %v", len(got), len(want), err)
		}
	})
}

// TestDownstreamDisconnects shows that a client that is gone without closing its socket, and takes
// nothing, is given up.
func TestDownstreamDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, nil))
		l := &oneConn{conns: make(chan net.Conn, 1), over: make(chan struct{})}
		ours, theirs := net.Pipe()
		l.conns <- theirs
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- b.ServeListener(ctx, l, jsonrpc.FramingLine, 0) }()
		client := newPipe(t, ours)
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		srv.send(`{"jsonrpc":"2.0","method":"n","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`)
		began := time.Now()
		if _, err := srv.f.ReadFrame(); err == nil || time.Since(began) > 2*writeTimeout {
			t.Errorf("the server's connection: %v after %v, want that it has ended", err, time.Since(began))
		}
		synctest.Wait()
		if n := len(clientsOf(b)); n != 0 {
			t.Errorf("%d clients", n)
		}
		cancel()
		if err := <-served; err != nil {
			t.Errorf("ServeListener: %v", err)
		}
	})
}

// oneConn is a listener in memory.
type oneConn struct {
	conns chan net.Conn
	over  chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	select {
	case <-l.over:
		return io.ErrClosedPipe
	default:
		close(l.over)
		return nil
	}
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
