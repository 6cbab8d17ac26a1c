package bridge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mcpclient "mcpwire/client"
	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}`

// TestSilentLegacy checks that a server that responds only to pings before a handshake is detected
// as legacy.
func TestSilentLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(nil))
		client.send(discover)
		srv := f.next()
		srv.request("server/discover")
		srv.send(resultFor(srv.request(`"ping"`), "{}"))
		srv.reads(`"method":"initialize"`)
	})
}

// TestModernServerNamesLegacy checks that a server whose modern response names only legacy
// revisions is detected as legacy.
func TestModernServerNamesLegacy(t *testing.T) {
	for _, answer := range []string{
		`"error":{"code":-32022,"message":"no","data":{"requested":"2026-07-28","supported":["2025-11-25","2025-06-18"]}}`,
		`"result":{"resultType":"complete","supportedVersions":["2025-11-25"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`,
	} {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(nil))
		client.send(discover)
		srv := f.next()
		srv.send(`{"jsonrpc":"2.0","id":` + srv.request("server/discover") + `,` + answer + `}`)
		srv.reads(`"method":"initialize"`)
	}
}

// TestSlowModern checks that a modern server that starts slowly is not detected as legacy.
func TestSlowModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(nil)
		client, _ := dialPipe(t, b)
		client.send(discover)
		srv := f.next()
		id := srv.request("server/discover")
		srv.reads(`"ping"`)
		<-time.After(10 * time.Second)
		srv.send(resultFor(id, `{"supportedVersions":["2026-07-28"]}`))
		srv.wants(discover)
		if legacy, modern := b.eras.get(); legacy == supportYes || modern != supportYes {
			t.Errorf("detected eras: got legacy %v, modern %v", legacy, modern)
		}
	})
}

// TestReadyTimeout checks that the timeout of a caller of Ready does not make the server not ready.
func TestReadyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(&Options{ServerEra: EraModern})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ready := make(chan error, 1)
		go func() { ready <- b.Ready(ctx) }()
		srv := f.next()
		id := srv.request("server/discover")
		if err := <-ready; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Ready = %v, want %v", err, context.DeadlineExceeded)
		}
		srv.send(resultFor(id, `{"supportedVersions":["2026-07-28"]}`))
		synctest.Wait()
		if err := b.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v, want nil", err)
		}
	})
}

// TestTranslatedTimeout checks that a translated request fails after CallTimeout, and that the
// bridge cancels it at the server.
func TestTranslatedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(&Options{ServerEra: EraModern, CallTimeout: time.Minute}))
		client.send(initialize)
		srv := f.next()
		srv.send(resultFor(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`))
		client.reads(`"protocolVersion":"2025-11-25"`)
		client.send(initialized, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
		id := srv.request(`"tools/call"`)
		began := time.Now()
		client.reads(`"id":7,"error"`, "has not responded to tools/call for 1m0s")
		if d := time.Since(began); d != time.Minute {
			t.Errorf("the error took %v, want 1 min", d)
		}
		srv.reads("notifications/cancelled", `"requestId":`+id)
	})
}

// TestWithdraw checks that a queued request can be withdrawn once, and a sent one cannot, and that
// the urgent queue has a limit.
func TestWithdraw(t *testing.T) {
	l := &upstream{b: &Bridge{opts: Options{MaxQueue: 100, Logger: slog.New(slog.DiscardHandler)}}, queue: sendQueue{limit: 100, notify: make(chan struct{}, 1), sent: map[string]queuedMessage{"5": {}}}, ctx: context.Background()}
	for _, id := range []string{"3", "4"} {
		if err := l.trySend(queuedMessage{frame: []byte(id), id: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if !l.queue.withdraw([]byte("3")) || l.queue.withdraw([]byte("5")) || l.queue.withdraw([]byte("3")) {
		t.Error("withdraw: want true only for a queued message")
	}
	if q := &l.queue; len(q.waiting) != 1 || q.waitingBytes != 1 || len(q.sent) != 0 {
		t.Errorf("got %v with %d bytes in the queue, and %v sent", q.waiting, q.waitingBytes, q.sent)
	}
	for range 1000 {
		l.sendUrgent(queuedMessage{frame: []byte("0123456789")})
	}
	if n := len(l.queue.urgent); n != 10 {
		t.Errorf("got %d urgent messages in the queue, want 10", n)
	}
}

// TestUrgentFull checks that a message that does not fit in the urgent queue fails at once and is
// logged.
func TestUrgentFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		b := &Bridge{opts: Options{MaxQueue: 100, ConnectTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil)), HTTP: true}}
		full := func() *upstream {
			return &upstream{b: b, queue: sendQueue{limit: 100, notify: make(chan struct{}, 1), urgentBytes: 99}, ctx: t.Context()}
		}
		up := full()
		pass := &passthrough{b: b, upstream: up}
		request := func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, "ping", nil) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, tt := range []struct {
			name string
			send func() error
		}{
			{"request", func() error { _, err := up.roundTrip(ctx, request); return err }},
			{"request repeated after a restart", func() error { return up.replay(request(jsonrpc.IntID(1))) }},
			{"notification", func() error { return up.sendOwn([]byte("{}")) }},
			{"initialize over HTTP", func() error {
				return pass.enqueueLocked(&call{method: "initialize"}, queuedMessage{frame: []byte("{}")})
			}},
			{"ping", func() error { return up.ping(ctx) }},
			{"request of a detection", func() error { _, err := up.requestFrame(ctx, request(jsonrpc.IntID(1))); return err }},
			{"discovery", func() error { _, err := b.discover(ctx, up, discoverRequest()); return err }},
		} {
			log.Reset()
			if err := tt.send(); !errors.Is(err, errUrgentFull) {
				t.Errorf("%s: got error %v, want %v", tt.name, err, errUrgentFull)
			}
			if !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("%s: got log %q, want a warning", tt.name, log.String())
			}
		}
		if len(up.own.pending) != 0 {
			t.Errorf("got %d pending requests, want 0", len(up.own.pending))
		}
	})
}

// TestWithdrawTranslated checks that a translator's cancellation withdraws a queued request, and is
// sent for a request that was sent.
func TestWithdrawTranslated(t *testing.T) {
	l := &upstream{b: &Bridge{opts: Options{MaxQueue: 100}}, queue: sendQueue{limit: 100, notify: make(chan struct{}, 1), space: make(chan struct{}, 1), sent: map[string]queuedMessage{"3": {}}}, ctx: context.Background()}
	p := &translator{upstream: l}
	for _, o := range []*translate.Out{{Call: 4}, {Call: 5}, {Call: 4, Cancel: true}, {Call: 3, Cancel: true}} {
		o.Message = []byte(strconv.FormatInt(o.Call, 10))
		p.toServerLocked(o, Provenance{})
	}
	if q := l.queue.waiting; len(q) != 1 || string(q[0].id) != "5" {
		t.Errorf("queue: got %v, want 5", q)
	}
	if q := l.queue.urgent; len(q) != 1 || string(q[0].frame) != "3" {
		t.Errorf("urgent queue: got %v, want the cancellation of 3", q)
	}
}

// TestSharedEnd checks that queued messages to a client are sent before its connection ends.
func TestSharedEnd(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := newFakeServer(t).bridge(&Options{Shared: true, ClientEra: EraLegacy})
			var got []string
			out := senderFunc(func(m []byte) error {
				got = append(got, string(m))
				return nil
			})
			cl := b.newClient(out, "", false)
			cl.out.Send([]byte("a"))
			cl.out.Send([]byte("b"))
			cl.close()
			cl.outbox.running.Wait()
			if strings.Join(got, "") != "ab" {
				t.Errorf("got %q", got)
			}
		})
	}
}

type senderFunc func([]byte) error

func (f senderFunc) Send(m []byte) error { return f(m) }

// TestProbeQueuesMessages checks that messages that a server sends during the probe reach the
// client in order, after the response.
func TestProbeQueuesMessages(t *testing.T) {
	f := newFakeServer(t)
	client, _ := dialPipe(t, f.bridge(nil))
	client.send(initialize)
	srv := f.next()
	srv.wants(initialize)
	early := []string{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`, `{"jsonrpc":"2.0","id":"p","method":"ping"}`,
	}
	late := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":2}}`
	srv.send(append(early, initializeResponse, late)...)
	client.wants(append([]string{initializeResponse}, append(early, late)...)...)
	client.send(`{"jsonrpc":"2.0","id":"p","result":{}}`)
	srv.wants(`{"jsonrpc":"2.0","id":"p","result":{}}`)
}

// TestProbeQueueLimit checks the limit on queued messages of a server during the probe.
func TestProbeQueueLimit(t *testing.T) {
	u := &upstream{}
	frame, m := parsed(t, `{"jsonrpc":"2.0","method":"n","params":{"x":"`+strings.Repeat("x", 2*maxUnclaimedBytes)+`"}}`)
	for range 3 {
		u.route(frame, m, nil, 0)
	}
	if len(u.unclaimed) != 1 {
		t.Errorf("got %d queued messages, want only the first", len(u.unclaimed))
	}
}

// TestLoginExtendsTimeouts checks that the timeouts of the detection start again after a login, so
// that the detected era is right.
func TestLoginExtendsTimeouts(t *testing.T) {
	for _, first := range []string{discover, initialize} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			const login = 10*time.Minute - time.Second // just before most timeouts expire
			client, _ := dialPipe(t, f.bridge(&Options{LastLogin: loginUntil(time.Now().Add(login))}))
			client.send(first)
			srv := f.next()
			id := srv.request(`"method":`)
			<-time.After(login + 4*time.Second) // the shortest timeout is 5 s
			if first == discover {
				srv.send(resultFor(id, `{"supportedVersions":["2026-07-28"]}`))
				srv.wants(discover)
				return
			}
			srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`))
			client.reads(`"serverInfo"`)
		})
	}
}

// TestRejectedEra checks that a client can try an era that the bridge rejects, and then the other
// one on the same connection.
func TestRejectedEra(t *testing.T) {
	t.Run("legacy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			client, _ := dialPipe(t, f.bridge(&Options{ClientEra: EraLegacy, ServerEra: EraLegacy}))
			client.send(discover)
			client.reads(`"code":-32601`)
			client.send(initialize)
			handshake(client, f.next())
		})
	})
	t.Run("modern", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			client, _ := dialPipe(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern}))
			client.send(initialize, initialized)
			client.reads(`"code":-32022`)
			client.send(discover)
			f.next().wants(discover)
		})
	})
}

// TestNoTranslation checks that a client of an era that the server lacks gets the error that the
// server would send, and can use the other era on the connection of the detection.
func TestNoTranslation(t *testing.T) {
	f := newFakeServer(t)
	b := f.bridge(with(Options{}, func(o *Options) { o.Shared, o.NoTranslation = true, true }))
	a, _ := dialPipe(t, b)
	discover := `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{}}`
	a.send(discover)
	srv := f.next()
	id := srv.request(`"server/discover"`)
	srv.send(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"method not found"}}`)
	a.reads(`"id":"d"`, `-32601`)
	a.send(initialize)
	id = srv.request(`"initialize"`)
	srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
	a.wants(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	second, _ := dialPipe(t, b)
	second.send(strings.Replace(discover, `"d"`, `"e"`, 1)) // not forwarded to the server
	second.reads(`"id":"e"`, `-32601`)
}

const (
	legacyResult = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`
	modernNames  = `"supportedVersions":["2026-07-28"]`
)

// handshakeFor performs the handshake of a translator for a modern client.
func handshakeFor(srv *pipe) {
	srv.t.Helper()
	srv.send(resultFor(srv.request(`"method":"initialize"`), legacyResult))
	srv.reads("notifications/initialized")
}

// TestProbeEndsServer checks that a modern client is served by a legacy server that ends when its
// first request is not initialize, and that later clients cause no more ends.
func TestProbeEndsServer(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			b := f.bridge(&Options{Shared: shared})
			client, _ := dialPipe(t, b)
			client.send(discover)
			srv := f.next()
			srv.request("server/discover")
			srv.f.Close()
			handshakeFor(f.next())
			client.reads(modernNames)
			for range 3 {
				client, _ := dialPipe(t, b)
				client.send(discover)
				if !shared {
					handshakeFor(f.next())
				}
				client.reads(modernNames)
			}
			if len(f.conns) != 0 {
				t.Errorf("shared %v: got %d more processes", shared, len(f.conns))
			}
			if b.Ready(t.Context()) != nil {
				t.Errorf("shared %v: not ready", shared)
			}
		})
	}
}

// TestProbeEndsEachServer checks that a server that ends at each first request is not taken for a
// legacy server for good.
func TestProbeEndsEachServer(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			b := f.bridge(&Options{Shared: shared})
			for range 2 {
				client, _ := dialPipe(t, b)
				client.send(discover)
				for _, method := range []string{"server/discover", `"initialize"`} {
					srv := f.next()
					srv.request(method)
					srv.f.Close()
				}
				client.reads(`"error"`, "the connection to the server ended")
				<-time.After(time.Minute)
			}
			client, _ := dialPipe(t, b)
			client.send(discover)
			srv := f.next()
			srv.send(resultFor(srv.request("server/discover"), `{"supportedVersions":["2026-07-28"]}`))
			if legacy, modern := b.eras.get(); !shared {
				srv.wants(discover)
			} else if synctest.Wait(); legacy == supportYes {
				t.Errorf("detected eras: got legacy %v, modern %v", legacy, modern)
			}
		})
	}
}

// TestHandshakeAfterProbeEndsServer checks that the end of the server at the first request does not
// fail the handshake for the next server, even if that is queued before all of the upstream has
// learned of the end.
func TestHandshakeAfterProbeEndsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(&Options{Shared: true})
		up := b.newUpstream()
		b.failedUpstream = up // the detection uses it
		client, _ := dialPipe(t, b)
		client.send(discover)
		srv := f.next()
		srv.request("server/discover")
		up.retries.mu.Lock() // stops the upstream after it has answered the bridge's own requests
		srv.f.Close()
		for empty := true; empty; empty, _ = up.queue.isEmpty() {
			runtime.Gosched()
		}
		up.retries.mu.Unlock()
		got := make(chan string, 1)
		go func() {
			frame, _ := client.f.ReadFrame()
			got <- string(frame)
		}()
		synctest.Wait()
		select {
		case line := <-got:
			t.Fatalf("the client got %s before the server had the handshake", line)
		default:
		}
		srv = f.next()
		srv.send(resultFor(srv.request(`"initialize"`), legacyResult))
		if line := <-got; !strings.Contains(line, modernNames) {
			t.Errorf("got %s\nwant %s in it", line, modernNames)
		}
	})
}

// TestDiscoverAtRestart checks that a server/discover that a killed server received is sent to the
// next one, once, and that other requests fail.
func TestDiscoverAtRestart(t *testing.T) {
	for _, test := range []struct {
		name, request string
		ends          int // servers that end without a response
		want          string
	}{
		{"one server ends", discover, 1, `"supportedVersions"`},
		{"two servers end", discover, 2, "the connection to the server ended"},
		{"a call", strings.Replace(discover, "server/discover", "tools/list", 1), 1, "the connection to the server ended"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			b := f.bridge(&Options{Shared: true, ServerEra: EraModern})
			client, _ := dialPipe(t, b)
			client.send(test.request)
			method := `"server/discover"`
			if test.request != discover {
				method = `"tools/list"`
			}
			for range test.ends {
				srv := f.next()
				srv.request(method)
				srv.f.Close()
			}
			if test.want == `"supportedVersions"` {
				srv := f.next()
				srv.send(resultFor(srv.request(method), `{"supportedVersions":["2026-07-28"]}`))
			}
			client.reads(test.want)
		})
	}
}

// TestProbeDisturbsServer checks that a legacy server that does not respond after server/discover
// is used on another connection, well before ConnectTimeout, and that later clients do not wait.
func TestProbeDisturbsServer(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			b := f.bridge(&Options{Shared: shared})
			began := time.Now()
			client, _ := dialPipe(t, b)
			client.send(discover)
			srv := f.next()
			srv.request("server/discover")
			srv.reads(`"ping"`)
			second := f.next()
			second.send(resultFor(second.request(`"initialize"`), legacyResult))
			handshakeFor(f.next())
			client.reads(modernNames)
			if d := time.Since(began); d != 10*time.Second {
				t.Errorf("shared %v: took %v, want 10s", shared, d)
			}
			client, _ = dialPipe(t, b)
			client.send(discover)
			if !shared {
				handshakeFor(f.next())
			}
			client.reads(modernNames)
			if d := time.Since(began); d != 10*time.Second {
				t.Errorf("shared %v: the second client: %v, want 10s", shared, d)
			}
		})
	}
}

// TestSlowServers checks that a server that is slow to start is served by its first process, even
// if the bridge has started a second one to find out if the first was disturbed.
func TestSlowServers(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"modern", `"result":{"supportedVersions":["2026-07-28"]}`, discover},
		{"legacy", `"error":{"code":-32601,"message":"no"}`, `"initialize"`},
	} {
		for _, answers := range []bool{false, true} { // if the second answers with an error
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				client, _ := dialPipe(t, f.bridge(nil))
				client.send(discover)
				srv := f.next()
				id := srv.request("server/discover")
				srv.reads(`"ping"`)
				second := f.next()
				if id := second.request(`"initialize"`); answers {
					second.send(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no"}}`)
				}
				<-time.After(15 * time.Second)
				srv.send(`{"jsonrpc":"2.0","id":` + id + `,` + tt.answer + `}`)
				srv.reads(tt.want)
			})
		}
	}
}

// TestProbeFailsOverHTTP checks which servers a modern client can use through the bridge if
// server/discover fails on its way.
func TestProbeFailsOverHTTP(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		works  bool
	}{
		{"closed connection", 0, true},
		{"401", 401, false},
		{"403", 403, false},
		{"429", 429, true},
		{"500", 500, true},
		{"502", 502, true},
		{"503", 503, true},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				var probes atomic.Int32
				legacy := streamable.MustHandler(newServer(t, EraLegacy.Revisions()), nil)
				web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(bytes.NewReader(body))
					switch {
					case !bytes.Contains(body, []byte("server/discover")):
						legacy.ServeHTTP(w, r)
					case tt.status == 0:
						probes.Add(1)
						panic(http.ErrAbortHandler)
					default:
						probes.Add(1)
						w.WriteHeader(tt.status)
					}
				}))
				t.Cleanup(web.Close)
				b := newBridge(t, &Options{HTTP: true, Shared: shared, MinBackoff: time.Millisecond, Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
					return streamable.NewTransport(web.URL, nil).Connect(ctx)
				}})
				url := served(t, b, nil).URL + "/mcp"
				for range 2 {
					c, err := mcpclient.Dial(t.Context(), streamable.NewTransport(url, nil), &mcpclient.Options{Revisions: EraModern.Revisions()})
					if err == nil {
						_, err = c.ListTools(t.Context(), nil)
						c.Close()
					}
					if (err == nil) != tt.works {
						t.Fatalf("shared %v: got %v, want success %v", shared, err, tt.works)
					}
				}
				if n := probes.Load(); tt.works && n != maxProbes {
					t.Errorf("shared %v: got %d probes, want %d", shared, n, maxProbes)
				}
			})
		}
	}
}

// TestPutBack checks that a repeatable request whose write failed is sent again once.
func TestPutBack(t *testing.T) {
	q := sendQueue{limit: 1 << 20, notify: make(chan struct{}, 1)}
	if _, err := q.push(queuedMessage{frame: []byte(discover), id: jsonrpc.IntID(1), repeatable: true}); err != nil {
		t.Fatal(err)
	}
	it, _, _ := q.next()
	q.putBack(it)
	if got := q.takeUnsent(); len(got) != 1 {
		t.Errorf("got %d messages to send again, want 1", len(got))
	}
}
