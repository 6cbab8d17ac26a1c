package bridge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

const (
	waitMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	waitCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + waitMeta + `}}`
)

// webPeer returns a peer for modern requests to a modern server over HTTP, whose handler is
// respond. id is the id of the request at the server.
func webPeer(t *testing.T, o *Options, respond func(w http.ResponseWriter, r *http.Request, id string)) relay.Peer {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := new(jsonrpc.Message)
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = jsonrpc.Parse(body, m, 0)
		}
		if err != nil {
			t.Error(err)
			return
		}
		respond(w, r, string(m.ID))
	}))
	t.Cleanup(web.Close)
	transport := streamable.NewTransport(web.URL, nil)
	o.HTTP, o.ServerEra, o.Shared = true, EraModern, true
	o.Connect = func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
	p := newBridge(t, o).Relay().Stateless()
	t.Cleanup(p.Close)
	return p
}

// makeCall makes the call waitCall.
func makeCall(ctx context.Context, t *testing.T, p relay.Peer, out rpc.Sender) (string, error) {
	return sendCall(ctx, t, p, waitCall, out)
}

func sendCall(ctx context.Context, t *testing.T, p relay.Peer, call string, out rpc.Sender) (string, error) {
	frame, m := parsed(t, call)
	response, err := p.Request(ctx, frame, m, out, nil)
	return string(response), err
}

func respondJSON(w http.ResponseWriter, id string) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, resultFor(id, `{"resultType":"complete"}`))
}

// openConnection makes a call, so that the connection exists.
func openConnection(t *testing.T, p relay.Peer) {
	t.Helper()
	if got, err := makeCall(t.Context(), t, p, nil); err != nil || !strings.Contains(got, `"id":1,"result"`) {
		t.Fatalf("got %s, %v", got, err)
	}
}

// TestWaitTimeout checks that a call without a response fails after CallTimeout, and that its HTTP
// request is canceled.
func TestWaitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := &silentWeb{canceled: make(chan struct{})}
		transport := streamable.NewTransport("http://h.example/mcp", &streamable.TransportOptions{HTTPClient: &http.Client{Transport: web}})
		p := newBridge(t, &Options{
			HTTP: true, ServerEra: EraModern, Shared: true, CallTimeout: 50 * time.Millisecond,
			Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) },
		}).Relay().Stateless()
		defer p.Close()
		openConnection(t, p)
		web.silent.Store(true)
		began := time.Now()
		got, err := makeCall(t.Context(), t, p, nil)
		if err != nil || !strings.Contains(got, "has not responded to tools/call for 50ms") {
			t.Errorf("got %s, %v, want a timeout", got, err)
		}
		<-web.canceled
		if d := time.Since(began); d != 50*time.Millisecond {
			t.Errorf("took %v, want 50 ms", d)
		}
	})
}

// silentWeb is a restartingWeb that does not respond while silent is set. It closes canceled when
// the request is canceled.
type silentWeb struct {
	restartingWeb
	silent   atomic.Bool
	canceled chan struct{}
}

func (w *silentWeb) RoundTrip(r *http.Request) (*http.Response, error) {
	if !w.silent.Load() {
		return w.restartingWeb.RoundTrip(r)
	}
	<-r.Context().Done()
	close(w.canceled)
	return nil, r.Context().Err()
}

// TestWaitCancel checks that the cancellation of the context cancels the call and its HTTP request.
func TestWaitCancel(t *testing.T) {
	var calls atomic.Int32
	gone := make(chan struct{})
	reason := errors.New("the client has disconnected")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := webPeer(t, &Options{}, func(w http.ResponseWriter, r *http.Request, id string) {
		if calls.Add(1) == 1 {
			respondJSON(w, id)
			return
		}
		cancel(reason)
		<-r.Context().Done()
		close(gone)
	})
	openConnection(t, p)
	if got, err := makeCall(ctx, t, p, nil); err != reason {
		t.Errorf("got %s, %v, want %v", got, err, reason)
	}
	<-gone
}

// TestWaitClose checks that Close ends a pending call.
func TestWaitClose(t *testing.T) {
	var calls atomic.Int32
	began := make(chan struct{})
	o := new(Options)
	p := webPeer(t, o, func(w http.ResponseWriter, r *http.Request, id string) {
		if calls.Add(1) == 1 {
			respondJSON(w, id)
			return
		}
		close(began)
		<-r.Context().Done()
	})
	openConnection(t, p)
	go func() {
		<-began
		p.(*statelessPeer).handler.b.Close()
	}()
	if got, err := makeCall(t.Context(), t, p, nil); err != nil || !strings.Contains(got, `"error"`) {
		t.Errorf("got %s, %v, want an error", got, err)
	}
}

// sentMessages is the Sender of a request. It sends the messages to the channel.
type sentMessages chan string

func (s sentMessages) Send(message []byte) error {
	s <- string(message)
	return nil
}

// TestWaitStream checks that a client gets messages before the response as soon as the server sends
// them.
func TestWaitStream(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	out := make(sentMessages, 1)
	var calls atomic.Int32
	seen := make(chan struct{})
	p := webPeer(t, &Options{}, func(w http.ResponseWriter, r *http.Request, id string) {
		if calls.Add(1) == 1 {
			respondJSON(w, id)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+note+"\n\n")
		http.NewResponseController(w).Flush()
		select {
		case <-seen:
		case <-r.Context().Done():
		}
		io.WriteString(w, "data: "+resultFor(id, `{"resultType":"complete"}`)+"\n\n")
	})
	openConnection(t, p)
	go func() {
		if got := <-out; got != note {
			t.Errorf("got %s, want %s", got, note)
		}
		close(seen)
	}()
	if got, err := makeCall(t.Context(), t, p, out); err != nil || !strings.Contains(got, `"id":1,"result"`) {
		t.Errorf("got %s, %v", got, err)
	}
}

// restartingWeb is the http.RoundTripper to a server that fails with err, if it isn't nil.
type restartingWeb struct {
	legacy bool
	err    atomic.Pointer[error]
	sent   atomic.Int32
}

func (w *restartingWeb) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost {
		return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody, Request: r}, nil
	}
	m := new(jsonrpc.Message)
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = jsonrpc.Parse(body, m, 0)
	}
	if failed := w.err.Load(); err == nil && failed != nil {
		err = *failed
	}
	if err != nil {
		return nil, err
	}
	w.sent.Add(1)
	recorder := httptest.NewRecorder()
	switch method := string(m.Method); {
	case w.legacy && method == mcp.MethodInitialize:
		recorder.Header().Set("Content-Type", "application/json")
		io.WriteString(recorder, resultFor(string(m.ID), `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`))
	case m.Kind != jsonrpc.KindRequest:
		recorder.WriteHeader(http.StatusAccepted)
	case w.legacy && method == mcp.MethodDiscover:
		recorder.WriteHeader(http.StatusBadRequest)
	case method == mcp.MethodDiscover:
		recorder.Header().Set("Content-Type", "application/json")
		io.WriteString(recorder, resultFor(string(m.ID), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`))
	default:
		respondJSON(recorder, string(m.ID))
	}
	return recorder.Result(), nil
}

// TestRefusedConnections checks that a call over HTTP waits while the server's machine refuses
// connections, as in a restart, up to Options.RestartWait, and that no other failure makes it wait.
func TestRefusedConnections(t *testing.T) {
	refused := error(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	reset := error(&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)})
	unknown := error(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}})
	large := func(size int) string {
		return strings.Replace(waitCall, `"name"`, `"x":"`+strings.Repeat("x", size)+`","name"`, 1)
	}
	const unreachable = "the server cannot be reached: dial tcp: connect: connection refused"
	tests := []struct {
		name            string
		new             bool // the server has not responded before
		wait            time.Duration
		err             error
		down            time.Duration
		cancel          time.Duration
		atLeast, atMost time.Duration
		want            string
		sentInTheEnd    int32
		callTimeout     time.Duration
		call            string // instead of waitCall
	}{
		{name: "a short restart", err: refused, down: 300 * time.Millisecond, atLeast: 300 * time.Millisecond, atMost: 1300 * time.Millisecond, want: `"result"`, sentInTheEnd: 2},
		{name: "a long restart", err: refused, down: 8 * time.Second, atLeast: 8 * time.Second, atMost: 9 * time.Second, want: `"result"`, sentInTheEnd: 2},
		{name: "longer than the default", err: refused, down: time.Hour, atLeast: 9 * time.Second, atMost: 10 * time.Second, want: unreachable, sentInTheEnd: 1},
		{name: "longer than RestartWait", wait: time.Second, err: refused, down: time.Hour, atMost: time.Second, want: unreachable, sentInTheEnd: 1},
		{name: "longer than CallTimeout", err: refused, down: time.Hour, callTimeout: 2 * time.Second, atLeast: 2 * time.Second, atMost: 2 * time.Second, want: "has not responded to tools/call for 2s", sentInTheEnd: 1},
		{name: "a request above 1 MiB", call: large(2 << 20), err: refused, down: 3 * time.Second, atLeast: 3 * time.Second, atMost: 4 * time.Second, want: `"result"`, sentInTheEnd: 2},
		{name: "a request above MaxQueue", call: large(16 << 20), err: refused, down: 3 * time.Second, want: unreachable, sentInTheEnd: 1},
		{name: "RestartWait disabled", wait: -1, err: refused, down: time.Hour, want: unreachable, sentInTheEnd: 1},
		{name: "the server never responded", new: true, err: refused, down: time.Hour, want: unreachable},
		{name: "the caller leaves", err: refused, down: 5 * time.Second, cancel: 2 * time.Second, atLeast: 2 * time.Second, atMost: 2 * time.Second, want: "context canceled", sentInTheEnd: 1},
		{name: "another failure of the connection", err: reset, down: time.Hour, want: "it may have executed the request", sentInTheEnd: 1},
		{name: "an unknown host", err: unknown, down: time.Hour, want: "no such host", sentInTheEnd: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := new(restartingWeb)
				transport := streamable.NewTransport("http://h.example/mcp", &streamable.TransportOptions{HTTPClient: &http.Client{Transport: web}})
				b := newBridge(t, &Options{
					HTTP: true, ServerEra: EraModern, Shared: true, RestartWait: tt.wait, CallTimeout: tt.callTimeout,
					Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) },
				})
				p := b.Relay().Stateless()
				defer p.Close()
				if !tt.new {
					openConnection(t, p)
				}
				web.err.Store(&tt.err)
				time.AfterFunc(tt.down, func() { web.err.Store(nil) })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				began := time.Now()
				got, err := sendCall(ctx, t, p, cmp.Or(tt.call, waitCall), nil)
				if err != nil {
					got = err.Error()
				}
				if d := time.Since(began); !strings.Contains(got, tt.want) || d < tt.atLeast || d > tt.atMost {
					t.Errorf("after %v: got %s, want %s after %v to %v", d, got, tt.want, tt.atLeast, tt.atMost)
				}
				time.Sleep(20 * time.Second) // a call that ended must not be sent
				if got := web.sent.Load(); got != tt.sentInTheEnd {
					t.Errorf("the server got %d requests, want %d", got, tt.sentInTheEnd)
				}
			})
		})
	}
}

// TestRefusedHandshakes checks that the first request of a client waits while the machine of a server
// over HTTP refuses connections, as in a restart, if the server has responded to another client.
func TestRefusedHandshakes(t *testing.T) {
	refused := error(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	const modernFirst = `{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{` + waitMeta + `}}`
	session := func(h relay.Handler) relay.Peer {
		return h.Session(context.Background(), senderFunc(func([]byte) error { return nil }))
	}
	stateless := func(h relay.Handler) relay.Peer { return h.Stateless() }
	initializeAs := strings.Replace(initialize, `"name":"c"`, `"name":"d"`, 1)
	for _, tt := range []struct {
		name   string
		legacy bool
		o      Options
		// first is a client before the restart, and then a client with a first request in it.
		first, then   func(relay.Handler) relay.Peer
		begin, second string
	}{
		{"known era", true, Options{ServerEra: EraLegacy}, session, session, initialize, initialize},
		{"detected era", true, Options{}, session, session, initialize, initialize},
		{"other era", true, Options{}, session, stateless, initialize, modernFirst},
		{"translated", false, Options{ServerEra: EraModern}, stateless, session, modernFirst, initialize},
		{"shared, known era", true, Options{ServerEra: EraLegacy, Shared: true}, session, session, initialize, initializeAs},
		{"shared, detected era", true, Options{Shared: true}, session, session, initialize, initializeAs},
		{"shared, other era", true, Options{Shared: true}, session, stateless, initialize, modernFirst},
		{"shared, modern server", false, Options{Shared: true}, stateless, session, modernFirst, initialize},
		{"stateless to legacy", true, Options{ServerEra: EraLegacy, Shared: true}, session, stateless, initialize, modernFirst},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := &restartingWeb{legacy: tt.legacy}
				transport := streamable.NewTransport("http://h.example/mcp", &streamable.TransportOptions{HTTPClient: &http.Client{Transport: web}})
				tt.o.HTTP = true
				tt.o.Connect = func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
				h := newBridge(t, &tt.o).Relay()
				p := tt.first(h)
				defer p.Close()
				if got, err := sendCall(t.Context(), t, p, tt.begin, nil); !strings.Contains(got, `"result"`) {
					t.Fatalf("before the restart: got %s, %v", got, err)
				}
				web.err.Store(&refused)
				const down = 6 * time.Second // longer than a phase of the detection
				time.AfterFunc(down, func() { web.err.Store(nil) })
				began := time.Now()
				second := tt.then(h)
				defer second.Close()
				got, err := sendCall(t.Context(), t, second, tt.second, nil)
				if d := time.Since(began); !strings.Contains(got, `"result"`) || d > down+time.Second {
					t.Errorf("after %v: got %s, %v, want a result", d, got, err)
				}
			})
		})
	}
}
