//go:build unix

package httppost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newTransport returns a transport that counts the connections it dials itself.
func newTransport(t *testing.T) (*Transport, *atomic.Int32) {
	dials := new(atomic.Int32)
	dialer := new(net.Dialer)
	tr := New(&http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return dialer.DialContext(ctx, network, address)
	}})
	t.Cleanup(tr.CloseIdleConnections)
	return tr, dials
}

// post sends a request and returns the status and the body.
func post(ctx context.Context, rt http.RoundTripper, to, text string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(text))
	if err != nil {
		return "", err
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body), err
}

// rawServer answers each connection with serve, and returns the URL.
func rawServer(t *testing.T, serve func(n int, c net.Conn, r *bufio.Reader)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String() + "/mcp"
}

// readRequest reads a request with its body.
func readRequest(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

func TestResponses(t *testing.T) {
	tests := []struct {
		name, response, want, wantErr string
		// wantDials is the number of connections that two requests need.
		wantDials int32
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "200 ok", "", 1},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", "200 ok", "", 1},
		{"no body", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", "202 ", "", 1},
		{"informational", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "200 ok", "", 1},
		{"connection closes", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "200 ok", "", 2},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "200 ok", "", 2},
		{"more than the response", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "200 ok", "", 2},
		{"unasked upgrade", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "101 ", "", 2},
		{"informational without end", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 10), "", "too many informational responses", 2},
		{"large header", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 5000) + "\r\n", "", "header of the response is too large", 2},
		{"no HTTP", "hello\r\n\r\n", "", "malformed HTTP response", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			to := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
				for readRequest(r) {
					io.WriteString(c, tt.response)
				}
			})
			tr, dials := newTransport(t)
			tr.base.MaxResponseHeaderBytes = 4096
			for range 2 {
				got, err := post(t.Context(), tr, to, "hello")
				if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("got error %v, want %q", err, tt.wantErr)
				}
				if d := cmp.Diff(tt.want, got); d != "" {
					t.Fatal(d)
				}
			}
			if got := dials.Load(); got != tt.wantDials {
				t.Errorf("got %d connections, want %d", got, tt.wantDials)
			}
		})
	}
}

// TestClosedWhileIdle checks that a connection that the server closed between two requests costs no
// request.
func TestClosedWhileIdle(t *testing.T) {
	closed := make(chan struct{})
	to := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
		readRequest(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if n == 0 {
			c.(*net.TCPConn).CloseWrite()
			close(closed)
		}
		readRequest(r)
	})
	tr, dials := newTransport(t)
	for i := range 2 {
		if got, err := post(t.Context(), tr, to, "hello"); err != nil || got != "200 ok" {
			t.Fatalf("request %d: got %q, %v", i, got, err)
		}
		<-closed
	}
	if got := dials.Load(); got != 2 {
		t.Errorf("got %d connections, want 2", got)
	}
}

// TestLost checks that a request that the server may have carried out is not repeated.
func TestLost(t *testing.T) {
	var requests atomic.Int32
	to := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for readRequest(r) {
			if requests.Add(1) == 2 {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	tr, _ := newTransport(t)
	if _, err := post(t.Context(), tr, to, "hello"); err != nil {
		t.Fatal(err)
	}
	if got, err := post(t.Context(), tr, to, "hello"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %q, %v, want an unexpected EOF", got, err)
	}
	if got := requests.Load(); got != 2 {
		t.Errorf("the server got %d requests, want 2", got)
	}
}

func TestCancel(t *testing.T) {
	reason := errors.New("no longer needed")
	for _, tt := range []struct{ name, response string }{
		{"before the response", ""},
		{"in the header", "HTTP/1.1 200 OK\r\n"},
		{"in the body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gone := make(chan struct{})
			ctx, cancel := context.WithCancelCause(t.Context())
			to := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
				readRequest(r)
				io.WriteString(c, tt.response)
				cancel(reason)
				r.ReadByte()
				close(gone)
			})
			tr, _ := newTransport(t)
			if got, err := post(ctx, tr, to, "hello"); !errors.Is(err, reason) {
				t.Errorf("got %q, %v, want the cause of the context", got, err)
			}
			<-gone
		})
	}
}

// TestCloseEarly checks that the connection of a body that was closed before its end is not used
// again, and that Close does not wait for the end.
func TestCloseEarly(t *testing.T) {
	gone := make(chan struct{})
	to := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		readRequest(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n")
		r.ReadByte()
		close(gone)
	})
	tr, _ := newTransport(t)
	r, err := http.NewRequest(http.MethodPost, to, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := io.ReadAll(resp.Body)
		read <- err
	}()
	resp.Body.Close()
	<-gone
	if err := <-read; !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("got %v from a body that was closed", err)
	}
	if len(tr.idle) != 0 {
		t.Error("the connection is idle, want it closed")
	}
}

// TestBase checks which requests base gets.
func TestBase(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	defer web.Close()
	proxyURL, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	small := func(r *http.Request) {}
	tests := []struct {
		name  string
		proxy func(*http.Request) (*url.URL, error)
		alter func(*http.Request)
		want  bool
	}{
		{"small", nil, small, true},
		{"not for the proxy", func(*http.Request) (*url.URL, error) { return nil, nil }, small, true},
		{"proxy", http.ProxyURL(proxyURL), small, false},
		{"https", nil, func(r *http.Request) { r.URL.Scheme = "https" }, false},
		{"GET", nil, func(r *http.Request) { r.Method = http.MethodGet }, false},
		{"large", nil, func(r *http.Request) { r.ContentLength = maxBody + 1 }, false},
		{"unknown length", nil, func(r *http.Request) { r.ContentLength = -1 }, false},
		{"upgrade", nil, func(r *http.Request) { r.Header.Set("Upgrade", "x") }, false},
		{"invalid name", nil, func(r *http.Request) { r.Header["a b"] = []string{"x"} }, false},
		{"invalid value", nil, func(r *http.Request) { r.Header.Set("A", "a\nb") }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr, _ := newTransport(t)
			tr.base.Proxy = tt.proxy
			r, err := http.NewRequest(http.MethodPost, web.URL, strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			tt.alter(r)
			if got := tr.takes(r); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestParallel(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	defer web.Close()
	tr, dials := newTransport(t)
	tr.base.MaxIdleConnsPerHost = 8
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				text := fmt.Sprint(i, " ", j)
				ctx, cancel := context.WithCancel(t.Context())
				if got, err := post(ctx, tr, web.URL, text); err != nil || got != "200 "+text {
					t.Errorf("got %q, %v", got, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if got := dials.Load(); got > 8 {
		t.Errorf("got %d connections for 8 goroutines", got)
	}
}
