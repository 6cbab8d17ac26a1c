package httpserve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/internal/test/buffer"
	"mcpwire/internal/test/pipes"
)

// A testServer is a server that listens on a TCP port of the loopback interface.
type testServer struct {
	t    *testing.T
	addr string
	log  *buffer.Buffer
	stop func() error // cancels the context and returns the error of Serve
}

// testTimeout ends a test that hangs. No test depends on its value.
const testTimeout = time.Minute

func serve(t *testing.T, h http.Handler, o *Options) *testServer {
	t.Helper()
	var opts Options
	if o != nil {
		opts = *o
	}
	s := &testServer{t: t, log: new(buffer.Buffer)}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	}
	bound := make(chan net.Addr, 1)
	opts.OnListen = func(a net.Addr) { bound <- a }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ListenAndServe(ctx, "", h, &opts) }()
	select {
	case a := <-bound:
		s.addr = a.String()
	case err := <-done:
		cancel()
		t.Fatal("ListenAndServe:", err)
	}
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// dial opens a connection and writes the request.
func (s *testServer) dial(text string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// readResponse reads one response.
func readResponse(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal("no response:", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal("no body:", err)
	}
	return resp, string(body)
}

// checkEOF checks that the server has closed the connection.
func checkEOF(t *testing.T, r io.Reader) {
	t.Helper()
	rest, err := io.ReadAll(r)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || len(rest) > 0 {
		t.Errorf("the connection is not closed: %q, %v", rest, err)
	}
}

const getHello = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// hello returns a handler that responds with a greeting and counts its requests.
func hello(n *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello")
	})
}

func TestServeSlowHeader(t *testing.T) {
	var n atomic.Int32
	s := serve(t, hello(&n), &Options{HeaderTimeout: 20 * time.Millisecond})
	for _, text := range []string{"", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: 1\r\n"} {
		_, r := s.dial(text)
		checkEOF(t, r)
	}
	if n.Load() != 0 {
		t.Error("half a request was handled")
	}
}

func TestServeLargeHeader(t *testing.T) {
	var n atomic.Int32
	s := serve(t, hello(&n), nil)
	_, r := s.dial("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: " + strings.Repeat("x", 60<<10) + "\r\n\r\n")
	if resp, _ := readResponse(t, r); resp.StatusCode != http.StatusOK {
		t.Errorf("a header of 60 KiB: status %d", resp.StatusCode)
	}
	_, r = s.dial("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: " + strings.Repeat("x", 70<<10))
	if resp, _ := readResponse(t, r); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || n.Load() != 1 {
		t.Errorf("a header of 70 KiB: status %d, %d requests", resp.StatusCode, n.Load())
	}
}

// TestServeLengthAndChunked shows that the server closes the connection after a request with both
// Content-Length and chunked encoding: intermediaries may disagree about where the body ends
// (request smuggling).
func TestServeLengthAndChunked(t *testing.T) {
	var n atomic.Int32
	s := serve(t, hello(&n), nil)
	for _, headers := range []string{
		"Content-Length: 5\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nContent-Length: 5",
		"Transfer-Encoding: chunked",
	} {
		n.Store(0)
		_, r := s.dial("POST / HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n\r\n0\r\n\r\n" + getHello)
		resp, _ := readResponse(t, r)
		if resp.StatusCode/100 == 2 && !resp.Close {
			t.Errorf("%q: response without Connection: close", headers)
		}
		checkEOF(t, r)
		if n.Load() > 1 {
			t.Errorf("%q: the request after it was handled", headers)
		}
	}
	for _, headers := range []string{
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: +5", "Content-Length: 5, 6", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: xchunked",
		"Transfer-Encoding : chunked", "Content-Length : 5", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Host: evil.example",
	} {
		n.Store(0)
		_, r := s.dial("POST / HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n\r\n0\r\n\r\n" + getHello)
		if resp, _ := readResponse(t, r); resp.StatusCode/100 == 2 || n.Load() != 0 {
			t.Errorf("%q: status %d, %d requests were handled", headers, resp.StatusCode, n.Load())
		}
		checkEOF(t, r)
	}
}

func TestServeKeepsConnection(t *testing.T) {
	var n atomic.Int32
	s := serve(t, hello(&n), nil)
	_, r := s.dial(strings.Repeat("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 3))
	for range 3 {
		if resp, body := readResponse(t, r); resp.StatusCode != http.StatusOK || resp.Close || body != "hello" {
			t.Errorf("status %d, close %v, %q", resp.StatusCode, resp.Close, body)
		}
	}
}

func TestServePanic(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			w.Header().Set("Content-Length", "1000")
			panic("early\ntrouble")
		case "/informed":
			w.WriteHeader(http.StatusEarlyHints)
			panic("informed")
		case "/late":
			io.WriteString(w, "half")
			panic("late trouble")
		case "/flushed":
			http.NewResponseController(w).Flush()
			panic("flushed trouble")
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/nil":
			panic(error(nil))
		}
	}), nil)
	for path, answered := range map[string]bool{"/early": true, "/informed": true, "/nil": true, "/late": false, "/flushed": false, "/abort": false} {
		resp, err := http.Get("http://" + s.addr + path)
		if err != nil {
			if answered || path == "/flushed" { // the others fail before anything is sent
				t.Errorf("%s: %v", path, err)
			}
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if whole := err == nil; whole != answered || answered != (resp.StatusCode == http.StatusInternalServerError) {
			t.Errorf("%s: status %d, %q, %v", path, resp.StatusCode, body, err)
		}
		if answered && !strings.Contains(string(body), "-32603") || strings.Contains(string(body), "trouble") {
			t.Errorf("%s: body %q", path, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	log := s.log.String()
	for _, want := range []string{`panic="early\ntrouble"`, `panic="late trouble"`, `panic="flushed trouble"`, "server_test.go"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
}

// TestServeWriter shows that a handler can use the response controller and Flusher of net/http.
func TestServeWriter(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, flusher := w.(http.Flusher)
		if err := errors.Join(rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{}), rc.Flush()); err != nil || !flusher {
			t.Errorf("%v, flusher %v", err, flusher)
		}
	}), nil)
	_, r := s.dial(getHello)
	readResponse(t, r)
}

// TestServeHalfOpen shows that a request ends when its client closes the sending half of the
// connection or the whole connection.
func TestServeHalfOpen(t *testing.T) {
	ended := make(chan error, 2)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- r.Context().Err()
	}), &Options{MaxConns: 1}) // the second request needs the slot of the first
	for _, end := range []func(*net.TCPConn) error{(*net.TCPConn).CloseWrite, (*net.TCPConn).Close} {
		c, r := s.dial(getHello)
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
		if err := end(c.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(testTimeout):
			t.Fatal("the request continues")
		}
		c.Close()
	}
}

func TestListenAddress(t *testing.T) {
	listen := func(addr string, o Options) (net.Addr, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var at net.Addr
		o.OnListen = func(a net.Addr) {
			at = a
			cancel()
		}
		return at, ListenAndServe(ctx, addr, http.NotFoundHandler(), &o)
	}
	for _, addr := range []string{"", ":0", "127.0.0.1:0", "127.1.2.3:0", "localhost:0"} {
		at, err := listen(addr, Options{})
		if err != nil || at == nil || !at.(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("%q: %v, %v", addr, at, err)
		}
	}
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:0.0.0.0]:0"} {
		at, err := listen(addr, Options{})
		if !errors.Is(err, ErrRemoteAddress) || !strings.Contains(err.Error(), "AllowRemote") || at != nil {
			t.Errorf("%q: %v, %v, want ErrRemoteAddress", addr, at, err)
		}
	}
	if at, err := listen("0.0.0.0:0", Options{AllowRemote: true}); err != nil || at == nil {
		t.Errorf("with AllowRemote: %v, %v", at, err)
	}
	for _, addr := range []string{"8080", "localhost", "127.0.0.1:99999", "[::1:80"} {
		if at, err := listen(addr, Options{}); err == nil || at != nil {
			t.Errorf("%q: %v, want an error", addr, at)
		}
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), l, http.NotFoundHandler(), nil); !errors.Is(err, ErrRemoteAddress) {
		t.Errorf("Serve: %v, want ErrRemoteAddress", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

// TestServeListenerFails shows that a listener that fails ends the server.
func TestServeListenerFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	err = Serve(t.Context(), l, http.NotFoundHandler(), &Options{
		OnListen:   func(net.Addr) { l.Close() },
		OnShutdown: func(context.Context) error { ended = true; return nil },
	})
	if !errors.Is(err, net.ErrClosed) || !ended {
		t.Errorf("%v, ended %v", err, ended)
	}
}

// h2Frame returns an HTTP/2 frame (RFC 9113, section 4.1).
func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Types of HTTP/2 frames.
const (
	h2Headers  = 1
	h2Reset    = 3
	h2Settings = 4
)

// TestServeNoWindow shows that the server resets an HTTP/2 stream if the client does not open the
// flow-control window, for any handler.
func TestServeNoWindow(t *testing.T) {
	for name, h := range map[string]http.Handler{
		"successful response": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }),
		"error response":      http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotAcceptable) }),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, h, &Options{H2C: true}, func(t *testing.T, l *pipes.Listener, stop func() error) {
				c, r := dial(t, l, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
				// GET, http, / and :authority (RFC 7541)
				get := append([]byte{0x82, 0x86, 0x84, 0x41, 9}, "localhost"...)
				noWindow := h2Frame(h2Settings, 0, 0, []byte{0, 4, 0, 0, 0, 0})
				// END_HEADERS and END_STREAM
				go c.Write(append(noWindow, h2Frame(h2Headers, 5, 1, get)...))
				if got := elapsed(func() { untilReset(t, c, r) }); got != 10*time.Second {
					t.Errorf("the stream was reset after %v", got)
				}
				c.Close()
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// untilReset reads frames until the server resets the stream.
func untilReset(t *testing.T, c net.Conn, r *bufio.Reader) {
	t.Helper()
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(r, head); err != nil {
			t.Error("the connection has ended:", err)
			return
		}
		io.CopyN(io.Discard, r, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
		switch kind, flags := head[3], head[4]; {
		case kind == h2Settings && flags == 0:
			go c.Write(h2Frame(h2Settings, 1, 0, nil)) // acknowledge the settings
		case kind == h2Reset:
			return
		}
	}
}

// TestServeBodyReplaced shows that the server does not wait for the rest of a body if a middleware
// has replaced the body by a shorter one.
func TestServeBodyReplaced(t *testing.T) {
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		MarkBodyRead(w, r)
		io.WriteString(w, "hello")
	})
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(io.LimitReader(r.Body, 40))
		r.ContentLength = 40
		inner.ServeHTTP(w, r)
	})
	inBubble(t, outer, nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
		_, r := dial(t, l, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"+strings.Repeat("x", 40))
		got := elapsed(func() {
			readResponse(t, r)
			checkEOF(t, r)
		})
		if got > 6*time.Second {
			t.Errorf("the server waited %v for the rest of the body", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A writeCounter is a listener that records the size of each write to its connections.
type writeCounter struct {
	net.Listener
	mu    sync.Mutex
	sizes []int
	// fail makes writes fail.
	fail error
}

func (l *writeCounter) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedWrites{c, l}, err
}

// take returns the sizes recorded since the last call.
func (l *writeCounter) take() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	sizes := l.sizes
	l.sizes = nil
	return sizes
}

type countedWrites struct {
	net.Conn
	l *writeCounter
}

func (c countedWrites) Write(b []byte) (int, error) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.fail != nil {
		return 0, c.l.fail
	}
	c.l.sizes = append(c.l.sizes, len(b))
	return c.Conn.Write(b)
}

// A wrappedWriter is the ResponseWriter of a middleware.
type wrappedWriter struct{ http.ResponseWriter }

func (w wrappedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w wrappedWriter) WriteAndFlush(b []byte) error { return WriteAndFlush(w.ResponseWriter, b) }

// TestMarkBodyReadWrapped checks that a middleware may wrap the ResponseWriter.
func TestMarkBodyReadWrapped(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("x"))
	w := &trackingWriter{ResponseWriter: httptest.NewRecorder(), ctx: r.Context(), body: r.Body}
	MarkBodyRead(wrappedWriter{wrappedWriter{w}}, r)
	if !w.bodyRead {
		t.Error("the server would look for the rest of the body")
	}
	MarkBodyRead(httptest.NewRecorder(), r) // does nothing
}

// TestWriteAndFlush shows that a response of up to 64 KiB is one write with its header, that a
// longer one arrives complete, and that the handler gets the error of a failed write.
func TestWriteAndFlush(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counter := &writeCounter{Listener: l}
	writeErrs := make(chan error, 16) // buffered because the client may repeat a request
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
		if n%2 == 0 { // with a middleware
			w = wrappedWriter{w}
		}
		w.Header().Set("Content-Length", strconv.Itoa(2*n))
		err := WriteAndFlush(w, bytes.Repeat([]byte{'a'}, n))
		if err == nil {
			err = WriteAndFlush(w, bytes.Repeat([]byte{'b'}, n))
		}
		writeErrs <- err
	})
	ctx, stop := context.WithCancel(t.Context())
	testServer := make(chan error, 1)
	go func() { testServer <- Serve(ctx, counter, h, nil) }()
	defer func() {
		stop()
		if err := <-testServer; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: new(http.Transport), Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	url := "http://" + l.Addr().String() + "/?bytes="
	for _, tt := range []struct{ bytes, writes int }{
		{0, 1}, {1, 2}, {2048, 2}, {2049, 2}, {3900, 2}, {4096, 2}, {4097, 2}, {8192, 2}, {60_000, 2},
		{maxWrite, 3}, // the header does not fit into the first write
	} {
		resp, err := client.Get(url + strconv.Itoa(tt.bytes))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := strings.Repeat("a", tt.bytes) + strings.Repeat("b", tt.bytes)
		if err != nil || string(body) != want || <-writeErrs != nil {
			t.Errorf("%d bytes: got %d, %v; want %d", tt.bytes, len(body), err, len(want))
		}
		if sizes := counter.take(); len(sizes) != tt.writes {
			t.Errorf("%d bytes: writes of %v, want %d", tt.bytes, sizes, tt.writes)
		}
	}
	counter.mu.Lock()
	counter.fail = errors.New("broken")
	counter.mu.Unlock()
	for _, n := range []int{100, 4096, 60_000} {
		if _, err := client.Get(url + strconv.Itoa(n)); err == nil {
			t.Errorf("%d bytes: got a response over a broken connection", n)
		}
		if err := <-writeErrs; err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%d bytes: the handler got %v, want the error of the connection", n, err)
		}
	}
}

// A gatedListener blocks Accept until gate is closed.
type gatedListener struct {
	*net.TCPListener
	gate chan struct{}
}

func (l *gatedListener) Accept() (net.Conn, error) {
	<-l.gate
	return l.TCPListener.Accept()
}

// TestServeShutdownQueue shows that a connection that is queued for Accept during shutdown is
// served, not reset.
func TestServeShutdownQueue(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &gatedListener{tcp.(*net.TCPListener), make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }),
			&Options{OnShutdown: func(context.Context) error { close(l.gate); return nil }})
	}()
	var conns []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", l.Addr())
		conns = append(conns, c)
	}
	cancel()
	for i, c := range conns {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "served" {
			t.Errorf("connection %d: %q, %v", i, text, err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
