package bridge

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// TestServersPerCaller checks the limit on one caller's connections to the server, for all ways to
// request them, and that a caller that ends one can open another.
func TestServersPerCaller(t *testing.T) {
	tokens, err := auth.NewStatic(
		auth.StaticToken{Token: "the-token-of-ann-which-is-long", Subject: "ann"},
		auth.StaticToken{Token: "the-token-of-ben-which-is-long", Subject: "ben"},
		auth.StaticToken{Token: "the-token-of-cis-which-is-long", Subject: "cis"},
	)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{Verifier: tokens})
	if err != nil {
		t.Fatal(err)
	}
	// open requests a session with a dedicated upstream, and returns the status and the session.
	n := 0
	open := func(t *testing.T, url, who, way string) (int, string) {
		n++
		header := []string{"Authorization", "Bearer the-token-of-" + who + "-which-is-long"}
		body := strings.Replace(httpInitialize, `"name":"c"`, fmt.Sprintf(`"name":"c%d"`, n), 1)
		if way == "modern" {
			meta := fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"experimental":{"x":{"n":%d}}}}`, n)
			body = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
			header = append(header, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
		}
		status, h, text := post(t, url, body, header...)
		if status != 200 {
			if h.Get("Retry-After") != "10" || !strings.Contains(text, "too many sessions with this server") {
				t.Errorf("status %d without Retry-After or reason: %v %s", status, h, text)
			}
			return status, ""
		}
		if !strings.Contains(text, `"result"`) {
			t.Errorf("status 200, and %s", text)
		}
		return status, h.Get("Mcp-Session-Id")
	}
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			b := newBridge(t, &Options{Connect: connectTo(t, EraLegacy.Revisions()), ServerEra: EraLegacy, Shared: shared, MaxServers: 7, MaxServersPerCaller: 3})
			url := served(t, b, &streamable.Options{Guard: guard}).URL + "/mcp"
			var got []int
			var last string
			for range 5 {
				status, id := open(t, url, "ann", "legacy")
				if got = append(got, status); id != "" {
					last = id
				}
			}
			for range 4 {
				status, _ := open(t, url, "ben", "legacy")
				got = append(got, status)
			}
			for range 2 {
				status, _ := open(t, url, "cis", "legacy")
				got = append(got, status)
			}
			if diff := cmp.Diff([]int{200, 200, 200, 429, 429, 200, 200, 200, 429, 200, 503}, got); diff != "" {
				t.Fatalf("statuses (-want +got):\n%s", diff)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Mcp-Session-Id", last)
			r.Header.Set("Authorization", "Bearer the-token-of-ann-which-is-long")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if status, _ := open(t, url, "ann", "legacy"); status != 200 {
				t.Errorf("after the end of a session: got status %d", status)
			}
		})
	}
	t.Run("modern", func(t *testing.T) { // unused connections are evicted
		b := newBridge(t, &Options{Connect: connectTo(t, EraLegacy.Revisions()), ServerEra: EraLegacy, MaxServersPerCaller: 3})
		url := served(t, b, &streamable.Options{Guard: guard}).URL + "/mcp"
		for range 8 {
			if status, _ := open(t, url, "ann", "modern"); status != 200 {
				t.Errorf("status %d", status)
			}
		}
		if n := len(clientsOf(b)); n != 3 {
			t.Errorf("got %d clients, want 3", n)
		}
	})
}

// TestServersOfSockets checks that a socket's client above the limit gets an error.
func TestServersOfSockets(t *testing.T) {
	b := newBridge(t, &Options{Connect: connectTo(t, nil), MaxServersPerCaller: 2})
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- b.ServeListener(ctx, l, jsonrpc.FramingLine, 0) }()
	var got []string
	for range 3 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		p := newPipe(t, conn)
		p.send(initialize)
		got = append(got, p.read()[:26])
	}
	want := []string{`{"jsonrpc":"2.0","id":0,"r`, `{"jsonrpc":"2.0","id":0,"r`, `{"jsonrpc":"2.0","id":null`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestConnectTimeout checks that a client gets an error after the connect timeout, for all pairs of
// eras, and that the next attempt after a detection has its own connection.
func TestConnectTimeout(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first string
		o     Options
		fresh bool // the next attempt has its own connection
	}{
		{"legacy to unknown", initialize, Options{}, true},
		{"legacy to legacy", initialize, Options{ServerEra: EraLegacy}, false},
		{"legacy to modern", initialize, Options{ServerEra: EraModern}, false},
		{"modern to unknown", discover, Options{}, true},
		{"modern to modern", discover, Options{ServerEra: EraModern}, false},
		{"modern to legacy", discover, Options{ServerEra: EraLegacy}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				tt.o.ConnectTimeout, tt.o.CallTimeout = 20*time.Second, time.Hour
				client, _ := dialPipe(t, f.bridge(&tt.o))
				began := time.Now()
				client.send(tt.first)
				discardAll(f.next())
				client.reads(`"error":{"code":-32603`, "has not responded", "for 20s")
				if d := time.Since(began); d != 20*time.Second {
					t.Errorf("the error took %v", d)
				}
				if !tt.fresh {
					return
				}
				client.send(tt.first)
				id := f.next().request(`"method":"`)
				if id == "" {
					t.Error("the new connection got no request")
				}
			})
		})
	}
}

// TestNoConnectTimeout checks that a negative connect timeout disables the timeouts of all steps of
// connecting.
func TestNoConnectTimeout(t *testing.T) {
	for _, first := range []string{initialize, discover} {
		for _, serverEra := range []Era{EraAuto, EraLegacy, EraModern} {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				client, _ := dialPipe(t, f.bridge(&Options{ServerEra: serverEra, ConnectTimeout: -1}))
				client.send(first)
				server := f.next()
				id := server.request(`"method":`)
				<-time.After(100 * time.Hour)
				if serverEra == EraAuto && first == discover {
					id = server.request(`"ping"`) // the bridge pings a server that has not responded
				}
				server.send(resultFor(id, "{}"))
				if serverEra == EraAuto && first == discover {
					server.request(`"initialize"`)
					return
				}
				client.reads(`"id":`)
			})
		}
	}
}

// discardAll discards all messages of a connection.
func discardAll(p *pipe) {
	go func() { // ends when the test closes the connection
		for {
			if _, err := p.f.ReadFrame(); err != nil {
				return
			}
		}
	}()
}

// TestLoginTimeouts checks that the time in which a user logs in does not count toward timeouts.
func TestLoginTimeouts(t *testing.T) {
	for _, serverEra := range []Era{EraAuto, EraLegacy, EraModern} {
		t.Run(serverEra.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				began := time.Now()
				client, _ := dialPipe(t, f.bridge(&Options{ServerEra: serverEra, ConnectTimeout: 10 * time.Second, LastLogin: loginUntil(began.Add(3 * time.Minute))}))
				client.send(initialize)
				discardAll(f.next())
				client.reads("has not responded")
				if d := time.Since(began); d < 3*time.Minute || d > 3*time.Minute+20*time.Second {
					t.Errorf("the error took %v", d)
				}
			})
		})
	}
}

// loginUntil returns a LastLogin function of a user whose login takes until end.
func loginUntil(end time.Time) func() time.Time {
	return func() time.Time {
		if now := time.Now(); now.Before(end) {
			return now
		}
		return end
	}
}

// TestErrorsForClients checks that errors for clients name the cause and the fix.
func TestErrorsForClients(t *testing.T) {
	b := &Bridge{opts: Options{Hints: Hints{Login: "log in first", Certificate: "add it"}}}
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{io.EOF, "the connection to the server ended: EOF"},
		{&connectError{errTest}, "the server cannot be started: no such program"},
		{&connectError{dial}, "the server cannot be reached: dial tcp: connection refused; check that it runs, and at this address"},
		{&jsonrpc.CallError{Err: dial, Outcome: jsonrpc.OutcomeUnprocessed}, "the server cannot be reached: dial tcp: connection refused; check that it runs, and at this address"},
		{&jsonrpc.CallError{Err: io.ErrUnexpectedEOF}, "the connection to the server was lost before its response: unexpected EOF; it may have executed the request"},
		{&jsonrpc.CallError{Err: errors.New("too many"), Outcome: jsonrpc.OutcomeUnprocessed}, "the request did not reach the server: too many"},
		{
			&jsonrpc.CallError{Err: &streamable.StatusError{StatusCode: 401}, Outcome: jsonrpc.OutcomeDenied},
			"the server requires a login: HTTP status 401 Unauthorized; log in first",
		},
		{
			&jsonrpc.CallError{Err: &streamable.StatusError{StatusCode: 404}, Outcome: jsonrpc.OutcomeRejected},
			"the server rejects the request: HTTP status 404 Not Found; check the URL of its endpoint: many use /mcp",
		},
		{&jsonrpc.CallError{Err: &streamable.StatusError{StatusCode: 502}}, "the server failed: HTTP status 502 Bad Gateway"},
		{&jsonrpc.CallError{Err: &streamable.StatusError{StatusCode: 429}, Outcome: jsonrpc.OutcomeUnprocessed}, "the server accepts no requests now: HTTP status 429 Too Many Requests; try again later"},
		{
			&jsonrpc.CallError{Err: x509.UnknownAuthorityError{}, Outcome: jsonrpc.OutcomeDenied},
			"the server's certificate is not trusted: x509: certificate signed by unknown authority; add it",
		},
		{fmt.Errorf("handshake: %w", timeoutError(time.Second)), "the server has not responded for 1s"},
		{context.DeadlineExceeded, "the connection to the server ended: context deadline exceeded"},
		{&retryError{dial, 3 * time.Second}, "the server cannot be reached: dial tcp: connection refused; check that it runs, and at this address (the next attempt is in 3s)"},
		{errUpstreamClosed, "the connection to the server is closed"},
		{errQueueFull, "the queue to the server is full"},
	} {
		if got := b.opts.Hints.describe(tt.err); got != tt.want {
			t.Errorf("describe(%v):\ngot  %s\nwant %s", tt.err, got, tt.want)
		}
		if e := b.opts.clientError(tt.err); e.Code != jsonrpc.CodeInternalError || !strings.Contains(e.Message, tt.want) {
			t.Errorf("clientError(%v) = %v", tt.err, e)
		}
	}
}

// TestStalledFull checks that a client whose server no longer reads gets an error for each request,
// however many are pending, and that its later requests are read.
func TestStalledFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, func(o *Options) {
			o.CallTimeout, o.ConnectTimeout, o.DrainTimeout, o.MaxQueue = 30*time.Second, 10*time.Second, time.Second, 1<<20
		}))
		client, _ := dialPipe(t, b)
		client.send(initialize)
		handshake(client, f.next()) // the server does not read after the handshake
		ballast := strings.Repeat("x", 300<<10)
		const calls = 10
		for id := range calls {
			client.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{"x":%q}}}`, id, ballast))
			client.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"x","params":{"x":%q}}`, ballast))
		}
		began := time.Now()
		for range calls {
			client.reads(`"error":{"code":-32603`) // after the timeout, or when the connection is aborted
		}
		if d := time.Since(began); d > 10*time.Minute {
			t.Errorf("the last error took %v, want at most 10 min", d)
		}
	})
}

// TestQueueSpace checks that senders wait for space in the queue without spinning, and that freed
// space releases all senders that fit.
func TestQueueSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &upstream{b: &Bridge{opts: Options{MaxQueue: 100}}, queue: sendQueue{limit: 100, notify: make(chan struct{}, 1)}, ctx: t.Context()}
		if err := l.trySend(queuedMessage{frame: make([]byte, 60)}); err != nil {
			t.Fatal(err)
		}
		if err := l.trySend(queuedMessage{frame: make([]byte, 40)}); err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 2)
		for range 2 {
			go func() { sent <- l.send(t.Context(), queuedMessage{frame: make([]byte, 50)}) }()
		}
		l.queue.next() // space for one of them
		synctest.Wait()
		if n := len(sent); n != 1 {
			t.Errorf("got %d sent messages, want 1", n)
		}
		<-time.After(time.Second) // the bubble's clock does not advance while a goroutine spins
		l.queue.next()
		l.queue.next()
		<-sent
		<-sent
	})
}
