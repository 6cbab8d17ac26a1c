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

	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// A door is the ways in which sessions come and go.
type door struct {
	url, addr    string
	client, once *http.Client // once makes a connection for each request
}

// do makes an HTTP request, of which nothing but the session is of interest. With drop, the client
// goes as soon as it has sent it.
func (d *door) do(method, body string, drop bool, header ...string) (session string, err error) {
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
	if drop { // what is cancelled must not take a connection with it that others are given
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
	if resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusNotFound { // a slow machine's session may have been idle for too long
		return "", fmt.Errorf("%s: status %d", method, resp.StatusCode)
	}
	return resp.Header.Get("Mcp-Session-Id"), nil
}

// legacy opens a session, and calls a tool that does not answer if it is to be dropped.
func (d *door) legacy(end bool) error {
	id, err := d.do(http.MethodPost, httpHello, false)
	if err != nil {
		return err
	}
	in := []string{"Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-11-25"}
	if _, err := d.do(http.MethodPost, confirmed, false, in...); err != nil {
		return err
	}
	if end {
		_, err = d.do(http.MethodDelete, "", false, in...)
		return err
	}
	_, err = d.do(http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, true, in...)
	return err
}

// modern makes a request from a new client.
func (d *door) modern(n int, drop bool) error {
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

// socket opens a session on a connection, which ends as it should or is reset.
func (d *door) socket(reset bool) error {
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	f := jsonrpc.NewFramer(conn, nil)
	if err := f.WriteFrame([]byte(hello)); err != nil {
		return err
	}
	if _, err := f.ReadFrame(); err != nil {
		return err
	}
	if reset {
		_ = conn.(*net.TCPConn).SetLinger(0) // it is the system's, and has it
	}
	return nil
}

// visit lets one session in, in the next of all ways.
func (d *door) visit(n int) error {
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

// usage is what a process needs.
type usage struct {
	goroutines, files int
	heap              uint64
}

func used() (u usage) {
	runtime.GC()
	runtime.GC() // pools keep what they have for one more
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{runtime.NumGoroutine(), openFiles(), m.HeapAlloc}
}

// openFiles returns how many there are, 0 where that is not known.
func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// TestSessions checks that sessions leave no state, however they end.
func TestSessions(t *testing.T) {
	for _, tt := range []struct {
		upstream string
		sessions int
	}{{"pipe", 10_000}, {"http", 2000}} {
		t.Run(tt.upstream, func(t *testing.T) {
			o := &Options{CallTimeout: 100 * time.Millisecond, IdleTimeout: 100 * time.Millisecond, MaxSessions: 10_000}
			if o.Connect = connectTo(t, nil); tt.upstream == "http" {
				upstream := httptest.NewServer(streamable.MustHandler(newServer(t, nil), &streamable.Options{Limits: streamable.Limits{MaxSessions: 10_000}, Timeouts: streamable.Timeouts{KeepAlive: time.Second}}))
				t.Cleanup(upstream.Close)
				transport := streamable.Dial(upstream.URL, nil)
				o.HTTP, o.Connect = true, func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }
			}
			b := newBridge(t, o)
			url := served(t, b, &streamable.Options{Timeouts: streamable.Timeouts{Session: 100 * time.Millisecond, KeepAlive: time.Second}, Limits: streamable.Limits{MaxSessions: 10_000}}).URL + "/mcp"
			connectAndClose(t, b, &door{
				url: url, addr: listening(t, b),
				client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}},
				once:   &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
			}, tt.sessions)
		})
	}
}

// listening has the bridge serve a socket until the test ends, and returns its address.
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

// connectAndClose compares what is needed after a tenth of the sessions and after all.
func connectAndClose(t *testing.T, b *Bridge, d *door, sessions int) {
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
		await(t, "sessions to end", func() bool { return len(clientsOf(b)) == 0 && b.openConnections.Load() == 0 })
		d.client.CloseIdleConnections()
		return used()
	}
	before := upTo(sessions / 2) // by when all that grows once has
	after := upTo(sessions)
	t.Logf("after %d sessions %+v, after %d %+v", sessions/2, before, sessions, after)
	await(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before.goroutines+5 })
	await(t, "files to be closed", func() bool { return openFiles() <= before.files+5 })
	await(t, "memory to be given back", func() bool { return int64(used().heap)-int64(before.heap) <= 1<<19 }) // what a timer holds is, when it is due
}
