package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/internal/test/soak"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// A sessionDriver opens sessions and ends them in different ways.
type sessionDriver struct {
	url, addr string
	// once opens a connection for each request; client reuses connections.
	client, once *http.Client
}

// do makes an HTTP request and returns the session of the response. With drop, it cancels the
// request as soon as it has been sent.
func (d *sessionDriver) do(method, body string, drop bool, header ...string) (session string, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if drop {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }})
	}
	r, err := http.NewRequestWithContext(ctx, method, d.url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := d.client
	if drop { // a canceled request closes its connection
		client = d.once
	}
	resp, err := client.Do(r)
	if err != nil {
		if drop && errors.Is(err, context.Canceled) {
			err = nil
		}
		return "", err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil && !drop {
		return "", err
	}
	if resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusNotFound { // on a slow machine, the session may have expired
		return "", fmt.Errorf("%s: status %d", method, resp.StatusCode)
	}
	return resp.Header.Get("Mcp-Session-Id"), nil
}

// legacy opens a session. It either ends the session, or cancels a call that does not return.
func (d *sessionDriver) legacy(end bool) error {
	id, err := d.do(http.MethodPost, httpInitialize, false)
	if err != nil {
		return err
	}
	in := []string{"Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-11-25"}
	if _, err := d.do(http.MethodPost, initialized, false, in...); err != nil {
		return err
	}
	if end {
		_, err = d.do(http.MethodDelete, "", false, in...)
		return err
	}
	_, err = d.do(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, true, in...)
	return err
}

// modern makes a request with the name of a new client.
func (d *sessionDriver) modern(n int, drop bool) error {
	tool := "echo"
	if drop {
		tool = "wait"
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"Text":"hi"},"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c%d","version":"1"}}}}`, tool, n)
	if drop {
		body = strings.Replace(body, `"Text":"hi"`, "", 1)
	}
	_, err := d.do(http.MethodPost, body, drop, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
	return err
}

// socket opens a session on a connection, and closes or resets the connection.
func (d *sessionDriver) socket(reset bool) error {
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	f := jsonrpc.NewFramer(conn, nil)
	if err := f.WriteFrame([]byte(initialize)); err != nil {
		return err
	}
	if _, err := f.ReadFrame(); err != nil {
		return err
	}
	if reset {
		_ = conn.(*net.TCPConn).SetLinger(0) // net.Dial("tcp") returns a TCPConn, whose linger can be set
	}
	return nil
}

// visit runs session n in one of the six ways.
func (d *sessionDriver) visit(n int) error {
	switch n % 6 {
	case 0:
		return d.legacy(true)
	case 1:
		return d.legacy(false)
	case 2:
		return d.modern(n, false)
	case 3:
		return d.modern(n, true)
	case 4:
		return d.socket(false)
	}
	return d.socket(true)
}

// A usage has the resources that the process uses. heap is in bytes.
type usage struct {
	goroutines, files int
	heap              uint64
}

// currentUsage returns the resources that the process uses now.
func currentUsage() usage {
	runtime.GC()
	runtime.GC() // a sync.Pool keeps its values for one more collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{runtime.NumGoroutine(), openFiles(), m.HeapAlloc}
}

// openFiles returns the number of open files, or 0 where it is unknown.
func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// TestSessions checks that sessions leave no state, however they end.
func TestSessions(t *testing.T) {
	for _, tt := range []struct {
		upstream string
		sessions int
	}{{"pipe", soak.Choose(10_000, 2000)}, {"http", soak.Choose(2000, 400)}} {
		t.Run(tt.upstream, func(t *testing.T) {
			o := &Options{CallTimeout: 100 * time.Millisecond, IdleTimeout: 100 * time.Millisecond, MaxSessions: 10_000}
			if o.Connect = connectTo(t, nil); tt.upstream == "http" {
				upstream := httptest.NewServer(streamable.MustHandler(newServer(t, nil), &streamable.Options{Limits: streamable.Limits{MaxSessions: 10_000}, Timeouts: streamable.Timeouts{KeepAlive: time.Second}}))
				t.Cleanup(upstream.Close)
				transport := streamable.NewTransport(upstream.URL, nil)
				o.HTTP, o.Connect = true, func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
			}
			b := newBridge(t, o)
			url := served(t, b, &streamable.Options{Timeouts: streamable.Timeouts{Session: 100 * time.Millisecond, KeepAlive: time.Second}, Limits: streamable.Limits{MaxSessions: 10_000}}).URL + "/mcp"
			connectAndClose(t, b, &sessionDriver{
				url: url, addr: listening(t, b),
				client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}},
				once:   &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
			}, tt.sessions)
		})
	}
}

// listening serves the bridge on a socket until the test ends, and returns its address.
func listening(t *testing.T, b *Bridge) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- b.ServeListener(ctx, l, jsonrpc.FramingAuto, 0) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Errorf("ServeListener: %v", err)
		}
	})
	return l.Addr().String()
}

// connectAndClose runs sessions, and compares the usage after half of them and after all.
func connectAndClose(t *testing.T, b *Bridge, d *sessionDriver, sessions int) {
	if testing.Short() {
		sessions /= 20
	}
	const workers = 4
	done := 0
	upTo := func(end int) usage {
		next := make(chan int)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for n := range next {
					if err := d.visit(n); err != nil {
						t.Errorf("session %d: %v", n, err)
					}
				}
			})
		}
		for ; done < end && !t.Failed(); done++ {
			next <- done
		}
		close(next)
		wg.Wait()
		wait.Until(t, "sessions to end", func() bool { return len(clientsOf(b)) == 0 && b.openConnections.Load() == 0 })
		d.client.CloseIdleConnections()
		return currentUsage()
	}
	before := upTo(sessions / 2) // after the warm-up
	after := upTo(sessions)
	t.Logf("after %d sessions %+v, after %d %+v", sessions/2, before, sessions, after)
	wait.Until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before.goroutines+5 })
	wait.Until(t, "files to be closed", func() bool { return openFiles() <= before.files+5 })
	limit := soak.Choose[int64](1<<19, 1<<18)
	wait.Until(t, "memory to be released", func() bool { return int64(currentUsage().heap)-int64(before.heap) <= limit }) // timers release their memory when they expire
}
