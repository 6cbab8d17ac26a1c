package httpserve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/test/buffer"
	"mcpwire/internal/test/pipes"
)

// dial opens a connection, waits until the server accepts it, and writes the request.
func dial(t *testing.T, l *pipes.Listener, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, _ := l.Dial()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// inBubble runs a server and f in a synctest bubble.
func inBubble(t *testing.T, h http.Handler, o *Options, test func(t *testing.T, l *pipes.Listener, stop func() error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := pipes.Listen()
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, l, h, o) }()
		test(t, l, func() error {
			cancel()
			return <-done
		})
	})
}

// elapsed returns how long f takes, rounded to seconds.
func elapsed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start).Truncate(time.Second)
}

func TestServeTimeouts(t *testing.T) {
	var n atomic.Int32
	inBubble(t, hello(&n), nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
		_, r := dial(t, l, "GET / HTTP/1.1\r\nHost: loc")
		if got := elapsed(func() { checkEOF(t, r) }); got != 5*time.Second {
			t.Errorf("an incomplete header timed out after %v", got)
		}
		_, r = dial(t, l, getHello)
		readResponse(t, r)
		if got := elapsed(func() { checkEOF(t, r) }); got != 2*time.Minute {
			t.Errorf("an idle connection was closed after %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestServeSpreadHeader shows that the timeout of a request header starts at the header's first
// byte, however the header is split.
func TestServeSpreadHeader(t *testing.T) {
	header := "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	tests := []struct {
		name  string
		first string // sent at once
		later string // sent after delay, one byte per second
		delay time.Duration
		want  time.Duration
	}{
		{"header of the first request", "", header, 0, 5 * time.Second},
		{"header of the second request", getHello, header, time.Minute, 5 * time.Second},
		{"start of a header in the first write, then nothing", getHello + header[:20], "", 0, 5 * time.Second},
		{"three bytes of a header in the first write", getHello + header[:3], "", 0, 2 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var n atomic.Int32
			inBubble(t, hello(&n), nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
				c, r := dial(t, l, tt.first)
				if tt.first != "" {
					readResponse(t, r)
				}
				<-time.After(tt.delay)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for _, b := range []byte(tt.later) {
						if _, err := c.Write([]byte{b}); err != nil {
							return
						}
						<-time.After(time.Second)
					}
				}()
				// the server may send 408
				if got := elapsed(func() { io.Copy(io.Discard, r) }); got != tt.want {
					t.Errorf("the connection was closed after %v, want %v", got, tt.want)
				}
				<-ended
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestServeLateHeader shows that the deadline of a slow header does not limit the body, the
// handler, or the wait for the next request.
func TestServeLateHeader(t *testing.T) {
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); n != 2 || err != nil {
			t.Errorf("read a body of %d bytes: %v", n, err)
		}
		<-time.After(time.Hour)
		if r.Context().Err() != nil {
			t.Error("the request context ended:", r.Context().Err())
		}
		io.WriteString(w, "hello")
	})
	header := "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
	inBubble(t, slow, nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
		c, r := dial(t, l, header[:10])
		for range 3 {
			<-time.After(4 * time.Second)
			go func() {
				io.WriteString(c, header[10:])
				<-time.After(time.Minute)
				io.WriteString(c, "{}")
			}()
			readResponse(t, r)
			<-time.After(100 * time.Second)
			if _, err := io.WriteString(c, header[:10]); err != nil {
				t.Fatal(err)
			}
		}
		if got := elapsed(func() { io.Copy(io.Discard, r) }); got != 5*time.Second {
			t.Errorf("an incomplete header timed out after %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestServeIdleAgain shows that the idle timeout starts again after each request.
func TestServeIdleAgain(t *testing.T) {
	var n atomic.Int32
	inBubble(t, hello(&n), nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
		c, r := dial(t, l, getHello)
		readResponse(t, r)
		for range 5 {
			<-time.After(119 * time.Second)
			go io.WriteString(c, getHello)
			readResponse(t, r)
		}
		if got := elapsed(func() { checkEOF(t, r) }); got < 2*time.Minute || got > 4*time.Minute {
			t.Errorf("an idle connection was closed after %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestServePipelined shows that all pipelined requests get a response, and that the idle timeout
// starts after the last one.
func TestServePipelined(t *testing.T) {
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(time.Hour)
		if r.Context().Err() != nil {
			t.Error("the request context ended:", r.Context().Err())
		}
		io.WriteString(w, "hello")
	})
	inBubble(t, slow, nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
		_, r := dial(t, l, getHello+getHello+getHello)
		for range 3 {
			readResponse(t, r)
		}
		if got := elapsed(func() { checkEOF(t, r) }); got != 2*time.Minute {
			t.Errorf("an idle connection was closed after %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestServeUnreadBody shows that the server does not wait for a body that the handler does not read
// and the client does not send.
func TestServeUnreadBody(t *testing.T) {
	refusing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) })
	inBubble(t, refusing, nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
		_, r := dial(t, l, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
		got := elapsed(func() {
			if resp, _ := readResponse(t, r); resp.StatusCode != http.StatusForbidden {
				t.Errorf("status %d", resp.StatusCode)
			}
			checkEOF(t, r)
		})
		if got > 6*time.Second {
			t.Errorf("the server waited %v for an unread body", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestServeSlowReader shows that a client that does not read a response loses its connection.
func TestServeSlowReader(t *testing.T) {
	var n atomic.Int32
	inBubble(t, hello(&n), &Options{MaxConns: 1}, func(t *testing.T, l *pipes.Listener, stop func() error) {
		slow, _ := dial(t, l, getHello)
		got := elapsed(func() {
			_, r := dial(t, l, getHello) // accepted once the other connection is closed
			readResponse(t, r)
		})
		if got != 10*time.Second || n.Load() != 2 {
			t.Errorf("a client that does not read was disconnected after %v", got)
		}
		slow.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestServeLongStream shows that the write deadline of one response does not apply to the next one,
// and that an active stream has no deadline.
func TestServeLongStream(t *testing.T) {
	stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		for range 100 {
			io.WriteString(w, ".")
			http.NewResponseController(w).Flush()
			<-time.After(time.Minute)
			if r.Context().Err() != nil {
				t.Error("the stream was ended:", r.Context().Err())
			}
		}
	})
	inBubble(t, stream, nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
		c, r := dial(t, l, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
		for range 2 {
			if _, body := readResponse(t, r); len(body) != 100 {
				t.Errorf("%d bytes came", len(body))
			}
			<-time.After(time.Minute)
			go io.WriteString(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
		}
		if _, body := readResponse(t, r); len(body) != 100 {
			t.Errorf("%d bytes came", len(body))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestServeMaxConns(t *testing.T) {
	var n atomic.Int32
	log := new(buffer.Buffer)
	o := &Options{MaxConns: 2, Logger: slog.New(slog.NewTextHandler(log, nil))}
	inBubble(t, hello(&n), o, func(t *testing.T, l *pipes.Listener, stop func() error) {
		first, r := dial(t, l, getHello)
		readResponse(t, r)
		_, r = dial(t, l, getHello)
		readResponse(t, r)
		third, remote := net.Pipe()
		defer third.Close()
		accepted := make(chan struct{})
		go func() {
			l.Conns <- remote
			close(accepted)
		}()
		synctest.Wait()
		select {
		case <-accepted:
			t.Error("accepted more connections than MaxConns")
		default:
		}
		if got := strings.Count(log.String(), "limit=2"); got != 1 {
			t.Errorf("logged %d times:\n%s", got, log)
		}
		first.Close()
		<-accepted
		if _, err := io.WriteString(third, getHello); err != nil {
			t.Fatal(err)
		}
		readResponse(t, bufio.NewReader(third))
		synctest.Wait()
		if err := stop(); err != nil { // Accept is waiting for a slot
			t.Error(err)
		}
	})
}

// streamHandler serves streams that last until Shutdown is called.
type streamHandler struct {
	end      chan struct{}
	shutdown atomic.Int32
}

func (s *streamHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "begun\n")
	http.NewResponseController(w).Flush()
	select {
	case <-s.end:
		io.WriteString(w, "ended\n")
	case <-r.Context().Done():
	}
}

func (s *streamHandler) Shutdown(ctx context.Context) error {
	s.shutdown.Add(1)
	if deadline, ok := ctx.Deadline(); !ok || ctx.Err() != nil || time.Until(deadline) > 10*time.Second {
		return errors.New("no deadline, or a bad one")
	}
	close(s.end)
	return nil
}

func TestServeShutdown(t *testing.T) {
	s := new(streamHandler)
	inBubble(t, s, nil, func(t *testing.T, l *pipes.Listener, stop func() error) {
		s.end = make(chan struct{}) // must belong to the bubble
		_, r := dial(t, l, getHello)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body := make(chan string)
		go func() {
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error("the stream breaks off:", err)
			}
			body <- string(b)
		}()
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := <-body; got != "begun\nended\n" || s.shutdown.Load() != 1 {
			t.Errorf("the stream is %q, Shutdown was called %d times", got, s.shutdown.Load())
		}
		checkEOF(t, r)
	})
}

// TestServeShutdownTimeout shows that shutdown closes connections that do not end in time and
// reports an error.
func TestServeShutdownTimeout(t *testing.T) {
	s := new(streamHandler)
	// used instead of the handler's Shutdown method
	o := &Options{MaxConns: 1, OnShutdown: func(context.Context) error { return nil }}
	inBubble(t, s, o, func(t *testing.T, l *pipes.Listener, stop func() error) {
		s.end = make(chan struct{}) // must belong to the bubble
		_, r := dial(t, l, getHello)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		broken := make(chan error)
		go func() {
			_, err := io.ReadAll(resp.Body)
			broken <- err
		}()
		synctest.Wait()
		got := elapsed(func() { err = stop() })
		if !errors.Is(err, context.DeadlineExceeded) || got != 10*time.Second || s.shutdown.Load() != 0 {
			t.Errorf("%v after %v", err, got)
		}
		if err := <-broken; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the client sees %v", err)
		}
	})
}

// TestServeUnresponsiveHTTP2 shows that the server closes an HTTP/2 connection whose client does
// not respond to pings.
func TestServeUnresponsiveHTTP2(t *testing.T) {
	var n atomic.Int32
	inBubble(t, hello(&n), &Options{H2C: true}, func(t *testing.T, l *pipes.Listener, stop func() error) {
		settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		c, r := dial(t, l, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		go io.WriteString(c, settings)
		got := elapsed(func() { io.Copy(io.Discard, r) })
		if got < 45*time.Second || got > 60*time.Second {
			t.Errorf("the connection was closed after %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestServeShutdownDelay shows that new connections are served until the shutdown delay has passed.
func TestServeShutdownDelay(t *testing.T) {
	var n atomic.Int32
	inBubble(t, hello(&n), &Options{ShutdownDelay: 5 * time.Second}, func(t *testing.T, l *pipes.Listener, stop func() error) {
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		<-time.After(4 * time.Second)
		_, r := dial(t, l, getHello)
		if resp, _ := readResponse(t, r); resp.StatusCode != http.StatusOK {
			t.Errorf("status %d before the delay has passed", resp.StatusCode)
		}
		if got := elapsed(func() {
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}); got != time.Second {
			t.Errorf("the server ended after another %v", got)
		}
	})
}
