package taphttp_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/taphttp"
	"mcpwire/internal/test/pipes"
)

// bubble runs a tap of a handler with the clock of a bubble. What test returns is compared with
// what was recorded.
func bubble(t *testing.T, h http.HandlerFunc, opts taphttp.Options, test func(t *testing.T, l *pipes.Listener, stop func()) []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		up := pipes.Listen()
		server := &http.Server{Handler: h}
		go server.Serve(up)
		opts.Dial = up.DialContext
		var file bytes.Buffer
		rec := capture.NewWriter(&file, &capture.Options{Redact: &capture.Redaction{Off: true}})
		handler, err := taphttp.New(&url.URL{Scheme: "http", Host: "localhost:80", Path: "/mcp"}, rec, &opts)
		if err != nil {
			t.Fatal(err)
		}
		l := pipes.Listen()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			handler.Serve(ctx, l, nil)
		}()
		stop := func() {
			cancel()
			<-done
		}
		want := test(t, l, stop)
		stop()
		rec.Close()
		server.Close()
		var got []string
		for e, err := range capture.NewReader(bytes.NewReader(file.Bytes()), nil).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if line := describe(e); line != "" && e.Kind != capture.KindBody && e.Kind != capture.KindGap {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("capture (-want +got):\n%s", diff)
		}
	})
}

// sendTo connects and sends a text.
func sendTo(t *testing.T, l *pipes.Listener, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, _ := l.Dial()
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

const getStream = "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"

// TestIdleStream shows that a stream without data for a day continues.
func TestIdleStream(t *testing.T) {
	bubble(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-time.After(24 * time.Hour)
		io.WriteString(w, ": still here\n\n")
	}, taphttp.Options{}, func(t *testing.T, l *pipes.Listener, stop func()) []string {
		_, r := sendTo(t, l, getStream)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); string(text) != ": still here\n\n" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		return []string{"req GET /mcp", "res OK", "sse comment=still here", "end"}
	})
}

// TestSlowReader shows that what a client does not read is not buffered without end, and that the
// client is given up after a while.
func TestSlowReader(t *testing.T) {
	var sent atomic.Int64
	bubble(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		for {
			n, err := w.Write(make([]byte, 1<<10))
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	}, taphttp.Options{WriteTimeout: time.Hour, MaxBody: 1 << 10}, func(t *testing.T, l *pipes.Listener, stop func()) []string {
		start := time.Now()
		_, r := sendTo(t, l, getStream)
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := sent.Load(); n > 200<<10 {
			t.Errorf("%d bytes were taken from the server", n)
		}
		stopWaiting := time.After(2 * time.Hour)
		<-stopWaiting
		if n := sent.Load(); n > 200<<10 {
			t.Errorf("%d bytes were taken from the server", n)
		}
		if _, err := io.Copy(io.Discard, r); err == io.ErrUnexpectedEOF || time.Since(start) != 2*time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		return []string{"req GET /mcp", "res OK", "note: the body broke off", "end: the client stopped reading for 1h0m0s"}
	})
}

// TestSlowBody shows that the wait for the body of a request is limited.
func TestSlowBody(t *testing.T) {
	bubble(t, func(w http.ResponseWriter, r *http.Request) { t.Error("the server was asked") }, taphttp.Options{BodyTimeout: time.Minute}, func(t *testing.T, l *pipes.Listener, stop func()) []string {
		start := time.Now()
		c, r := sendTo(t, l, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
		<-time.After(50 * time.Second)
		io.WriteString(c, "}") // a sign of life
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusRequestTimeout || time.Since(start) != 110*time.Second {
			t.Errorf("%v, %v after %v", resp, err, time.Since(start))
		}
		return []string{"req POST /mcp", "end: the request broke off: client timed out"}
	})
}

// TestGrace shows that requests in flight have a grace period at shutdown, that streams have none,
// and that new requests are rejected.
func TestGrace(t *testing.T) {
	bubble(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.Method == "GET" {
			w.Header().Set("Content-Type", "text/event-stream")
			http.NewResponseController(w).Flush()
		}
		select {
		case <-time.After(20 * time.Second):
			io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	}, taphttp.Options{Grace: 5 * time.Second}, func(t *testing.T, l *pipes.Listener, stop func()) []string {
		post := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
		_, early := sendTo(t, l, post)
		synctest.Wait()
		<-time.After(16 * time.Second)
		_, stream := sendTo(t, l, getStream)
		if resp, err := http.ReadResponse(stream, nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("%v, %v", resp, err)
		}
		synctest.Wait()
		_, late := sendTo(t, l, post)
		synctest.Wait()
		start := time.Now()
		go stop()
		stream.ReadString(0)
		if d := time.Since(start); d != 0 {
			t.Errorf("the stream ended after %v", d)
		}
		if resp, err := http.ReadResponse(early, nil); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("%v, %v after %v", resp, err, time.Since(start))
		}
		io.Copy(io.Discard, early)
		if text, _ := late.ReadString(0); strings.Contains(text, "200 OK") || time.Since(start) != 5*time.Second {
			t.Errorf("%q after %v", text, time.Since(start))
		}
		synctest.Wait()
		return []string{
			"req POST /mcp", "req GET /mcp", "res OK", "req POST /mcp", "note: the event stream broke off", "end: tap shut down",
			"res OK", "end", "end: tap shut down",
		}
	})
}
