package bridge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/test/pipes"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
)

// acceptRestart performs the server side of the handshake after a restart.
func acceptRestart(srv *pipe) {
	srv.t.Helper()
	id := srv.request(`"method":"initialize"`)
	srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
	srv.wants(initialized)
}

// TestBackoffReset checks that a server that has responded to requests is restarted after the
// shortest backoff, however often it has ended.
func TestBackoffReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		for n := range 20 {
			id := fmt.Sprint(n + 1)
			client.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list"}`)
			srv.reads(`"id":` + id)
			srv.send(resultFor(id, "{}"))
			client.wants(resultFor(id, "{}"))
			start := time.Now()
			srv.f.Close()
			srv = f.next()
			acceptRestart(srv)
			if d := time.Since(start); d > 200*time.Millisecond {
				t.Fatalf("restart %d took %v, want at most 200 ms", n+1, d)
			}
		}
	})
}

// TestBackoffGrows checks that the backoff grows for a server that ends after each handshake.
func TestBackoffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		start := time.Now()
		for range 6 {
			srv.f.Close()
			srv = f.next()
			acceptRestart(srv)
		}
		if d := time.Since(start); d < 3*time.Second { // at least half of 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4
			t.Errorf("six restarts took %v, want at least 3 s", d)
		}
	})
}

// TestCallsWaitForRestart checks that a call waits for the restart of a server, across failed
// attempts, up to Options.RestartWait.
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
		{"attempts fail longer than the default", 0, 1000, 10 * time.Second, `the server cannot be started: no such program`},
		{"attempts fail longer than RestartWait", time.Second, 1000, time.Second, `the server cannot be started: no such program`},
		{"RestartWait disabled", -1, 1000, 0, `the connection to the server ended`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
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
				client, _ := dialPipe(t, f.bridge(with(legacy, func(o *Options) { o.RestartWait = test.wait })))
				client.send(initialize)
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
					acceptRestart(srv)
					srv.reads(`"id":1`)
					srv.send(resultFor("1", "{}"))
				}
				client.reads(`"id":1`, test.want)
				if d := time.Since(start); d > test.within {
					t.Errorf("the response took %v, want at most %v", d, test.within)
				}
			})
		})
	}
}

// TestChangesWaitForRestart checks that requests that change the session, and wait for a restart of
// the server, take effect at the restart after it too.
func TestChangesWaitForRestart(t *testing.T) {
	request := func(method, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":%q,"params":%s}`, method, params)
	}
	subscribe, unsubscribe := request("resources/subscribe", `{"uri":"a:b"}`), request("resources/unsubscribe", `{"uri":"a:b"}`)
	for _, tt := range []struct {
		name, before, request string
		fails                 int // attempts of the first restart that fail
		want                  []string
	}{
		{"subscribe, first attempt", "", subscribe, 0, []string{`"uri":"a:b"`}},
		{"subscribe, second attempt", "", subscribe, 1, []string{`"uri":"a:b"`}},
		{"subscribe, fourth attempt", "", subscribe, 3, []string{`"uri":"a:b"`}},
		{"unsubscribe, second attempt", subscribe, unsubscribe, 1, nil},
		{"log level, second attempt", subscribe, request("logging/setLevel", `{"level":"error"}`), 1, []string{`"level":"error"`, `"uri":"a:b"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				var fails atomic.Int32
				f.fail = func() error {
					if fails.Add(-1) >= 0 {
						return errTest
					}
					return nil
				}
				client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
				client.send(initialize)
				srv := f.next()
				handshake(client, srv)
				if tt.before != "" {
					client.send(tt.before)
					srv.wants(tt.before)
					srv.send(resultFor("2", "{}"))
					client.wants(resultFor("2", "{}"))
				}
				fails.Store(int32(tt.fails))
				srv.f.Close()
				synctest.Wait()
				client.send(tt.request)
				srv = f.next()
				acceptRestart(srv)
				if tt.before != "" {
					srv.reads(`"uri":"a:b"`)
				}
				srv.wants(tt.request)
				srv.send(resultFor("2", "{}"))
				client.wants(resultFor("2", "{}"))
				srv.f.Close()
				srv = f.next()
				acceptRestart(srv)
				client.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
				for _, part := range append(tt.want, "ping") {
					srv.reads(part)
				}
			})
		})
	}
}

// TestLostChange checks that a request that failed with the server has no effect at the restart.
func TestLostChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		client.send(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a:b"}}`)
		srv.reads("resources/subscribe")
		srv.f.Close()
		client.reads(`"id":2,"error"`)
		client.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		srv = f.next()
		acceptRestart(srv)
		srv.reads("ping")
	})
}

// slowConnect returns a connect function that waits for a call of release.
func slowConnect(t *testing.T, s *lenientServer) (connect func(context.Context, io.Writer) (jsonrpc.Framer, error), release func()) {
	released := make(chan struct{})
	connectNow := s.connect(t)
	return func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
		select {
		case <-released:
			return connectNow(ctx, w)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}, sync.OnceFunc(func() { close(released) })
}

// TestBacklog checks that requests to a shared server that is starting are queued up to MaxBacklog,
// and that others are rejected with an HTTP status.
func TestBacklog(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests int
		max      int // Options.MaxBacklog
		rejected int
	}{
		{"default limit", 1000, 0, 0},
		{"requests above the limit", 30, 20, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s lenientServer
			connect, release := slowConnect(t, &s)
			b := newBridge(t, &Options{Connect: connect, Shared: true, MaxBacklog: test.max})
			defer release()
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
					body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{},%s}}`, i, modernMeta)
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
			for range test.rejected {
				got := <-replies
				if got.status != 503 || got.after != "1" || !strings.Contains(got.body, "too many requests wait for the server to start") {
					t.Errorf("got %+v, want 503", got)
				}
			}
			wait.Until(t, "all requests to arrive", func() bool {
				n := 0
				for cl := range clientsOf(b) {
					open := cl.inFlight()
					n += open
				}
				return n == test.requests-test.rejected
			})
			release()
			for range test.requests - test.rejected {
				if got := <-replies; got.status != 200 || !strings.Contains(got.body, "ran t") {
					t.Fatalf("got %+v, want a result", got)
				}
			}
		})
	}
}

// TestBacklogOfSession is TestBacklog for requests in a session.
func TestBacklogOfSession(t *testing.T) {
	b := newBridge(t, &Options{Connect: connectTo(t, nil), MaxCalls: 1})
	url := served(t, b, nil).URL + "/mcp"
	_, h, _ := post(t, url, httpInitialize)
	header := []string{"Mcp-Session-Id", h.Get("Mcp-Session-Id")}
	post(t, url, initialized, header...)
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		post(t, url, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, header...)
	}()
	wait.Until(t, "the call", func() bool {
		for cl := range clientsOf(b) {
			if n := cl.inFlight(); n == 1 {
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

// TestEndedSession checks that the error for a request in an ended session says that the session
// has ended, and not that the server is starting.
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

// TestTooLarge checks in both directions that a message above the size limit fails its request at
// once, and that the connection continues.
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
					client.send(initialize)
					handshake(client, srv)
				} else {
					meta = "," + modernMeta
				}
				start := time.Now()
				client.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{}` + meta + `}}`)
				if era == EraModern {
					id := srv.request(`"method":"initialize"`)
					srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`))
					srv.reads("notifications/initialized")
				}
				id := srv.request("tools/call")
				srv.send(resultFor(id, `{"content":[{"type":"text","text":"`+large+`"}]}`))
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
				srv.send(resultFor(id, `{"content":[]}`))
				client.reads(`"id":9,"result"`)
				if d := time.Since(start); d > time.Second {
					t.Errorf("the errors took %v, want at most 1 s", d)
				}
			})
		})
	}
}

// TestDeadConnection checks that, after a request has timed out, the bridge replaces a connection
// without traffic, and keeps one whose server responds to a ping.
func TestDeadConnection(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
	for _, tt := range []struct {
		name string
		dead bool
	}{{"no response to a ping", true}, {"response to a ping", false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				b := f.bridge(with(legacy, func(o *Options) { o.CallTimeout = time.Minute }))
				client, _ := dialPipe(t, b)
				client.send(initialize)
				srv := f.next()
				handshake(client, srv)
				client.send(call)
				srv.wants(call)
				client.reads(`"id":1,"error"`, "has not responded")
				if tt.dead {
					discardAll(srv)
					srv = f.next()
					srv.send(resultFor(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
					srv.wants(initialized)
				} else {
					srv.reads("notifications/cancelled")
					srv.send(resultFor(srv.request(`"ping"`), "{}"))
					<-time.After(time.Minute)
				}
				client.send(call)
				srv.wants(call)
				srv.send(resultFor("1", "{}"))
				client.wants(resultFor("1", "{}"))
			})
		})
	}
}

// TestNewConnectionDead checks that a dead connection is aborted even if the check of its
// predecessor was still running when it was opened.
func TestNewConnectionDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &upstream{b: newFakeServer(t).bridge(with(legacy, nil))}
		l.ctx = t.Context()
		aborts := 0
		second := &connection{abort: func() { aborts++ }}
		l.conn = &connection{abort: func() {}}
		l.checkAlive(time.Now())
		l.conn = second // while the first is being checked
		<-time.After(aliveTimeout / 2)
		l.lastReceived.Store(time.Now().UnixNano()) // by the second connection
		<-time.After(aliveTimeout)
		l.checkAlive(time.Now())
		<-time.After(2 * aliveTimeout)
		synctest.Wait()
		if aborts != 1 {
			t.Errorf("got %d aborts of the second connection, want 1", aborts)
		}
	})
}

// TestDownstreamSlow checks that a write to a slow client succeeds, even if a large message takes
// longer than the write timeout.
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
			t.Errorf("got %d bytes of %d: %v", len(got), len(want), err)
		}
	})
}

// TestDownstreamDisconnects checks that a client that stops reading without closing its socket is
// disconnected.
func TestDownstreamDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, nil))
		l := pipes.Listen()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- b.ServeListener(ctx, l, jsonrpc.FramingLine, 0) }()
		ours, err := l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		client := newPipe(t, ours)
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		srv.send(`{"jsonrpc":"2.0","method":"n","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`)
		began := time.Now()
		if _, err := srv.f.ReadFrame(); err == nil || time.Since(began) > 2*writeTimeout {
			t.Errorf("read from the server's connection: got %v after %v, want an error in time", err, time.Since(began))
		}
		synctest.Wait()
		if n := len(clientsOf(b)); n != 0 {
			t.Errorf("got %d clients, want 0", n)
		}
		cancel()
		if err := <-served; err != nil {
			t.Errorf("ServeListener: %v", err)
		}
	})
}

// TestRequestsWhileServerEnds checks that a request that comes after the connection ended, and
// before its codec has learned of that, waits for the next server and reaches that once.
func TestRequestsWhileServerEnds(t *testing.T) {
	const legacyCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
	modernCall := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta("") + `}}`
	for _, tt := range []struct {
		name   string
		server Era
		call   string
		want   []string // the messages that the next server gets
	}{
		{"legacy to legacy", EraLegacy, legacyCall, []string{"initialize", "notifications/initialized", "tools/call"}},
		{"modern to legacy", EraLegacy, modernCall, []string{"initialize", "notifications/initialized", "tools/call"}},
		{"legacy to modern", EraModern, legacyCall, []string{"tools/call"}},
		{"modern to modern", EraModern, modernCall, []string{"tools/call"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				b := f.bridge(&Options{ServerEra: tt.server, Shared: true})
				client, _ := dialPipe(t, b)
				if tt.call == legacyCall {
					client.send(initialize, initialized)
				}
				client.send(tt.call)
				srv := f.next()
				go respond(srv)
				for !strings.Contains(client.read(), `"id":1,"result"`) {
				}

				up := b.anyShared().upstream
				ended := up.own.expect(jsonrpc.StringID("x"))
				up.retries.mu.Lock() // stops the upstream after it has answered the bridge's own requests
				srv.f.Close()
				<-ended
				client.send(tt.call)
				for empty := true; empty; empty, _ = up.queue.isEmpty() {
					runtime.Gosched()
				}
				up.retries.mu.Unlock()

				got := make(chan []string, 1)
				go func() {
					select {
					case next := <-f.conns:
						got <- respond(next)
					case <-t.Context().Done():
					}
				}()
				client.reads(`"id":1,"result"`)
				synctest.Wait()
				b.Close()
				if diff := cmp.Diff(tt.want, <-got); diff != "" {
					t.Errorf("messages to the next server (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// respond answers the requests of the bridge until the connection ends, and returns the methods of
// its messages.
func respond(srv *pipe) (methods []string) {
	results := map[string]string{
		"initialize":      legacyResult,
		"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`,
		"tools/call":      `{"resultType":"complete","content":[]}`,
	}
	for {
		frame, err := srv.f.ReadFrame()
		if err != nil {
			return methods
		}
		method := jsonwire.Text(jsonwire.Lookup(frame, "method"))
		methods = append(methods, method)
		if result, ok := results[method]; ok {
			srv.f.WriteFrame([]byte(resultFor(string(jsonwire.Lookup(frame, "id")), result)))
		}
	}
}
