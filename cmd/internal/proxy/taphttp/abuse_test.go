package taphttp_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/taphttp"
)

// TestOrigin shows that pages of other sites cannot use the origin that the server trusts.
func TestOrigin(t *testing.T) {
	for _, tt := range []struct{ option, origin, want string }{
		{"", "https://evil.example.com", "https://evil.example.com"},
		{"", "http://localhost:6274", "http://localhost:6274"},
		{"https://good.example.com", "http://localhost:6274", "https://good.example.com"},
		{"https://good.example.com", "http://127.0.0.1:9000", "https://good.example.com"},
		{"https://good.example.com", "http://[::1]:9000", "https://good.example.com"},
		{"https://good.example.com", "https://dev.example.com", "https://good.example.com"},
		{"https://good.example.com", "https://evil.example.com", "https://evil.example.com"},
		{"https://good.example.com", "http://localhost.evil.example.com", "http://localhost.evil.example.com"},
		{"https://good.example.com", "http://203.0.113.5", "http://203.0.113.5"},
		{"https://good.example.com", "null", "null"},
		{"https://good.example.com", "", ""},
		{"drop", "http://localhost:6274", ""},
		{"drop", "https://evil.example.com", "https://evil.example.com"},
	} {
		var got []string
		p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Values("Origin") },
			&taphttp.Options{Origin: tt.option, Hosts: []string{"dev.example.com"}})
		var headers []string
		if tt.origin != "" {
			headers = []string{"Origin", tt.origin}
		}
		roundTrip(t, p.url, ping, headers...)
		p.stop()
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%q for %q: the server got %q, want %q", tt.option, tt.origin, got, tt.want)
		}
	}
}

// TestDecodedBudget shows that the decoded size of bodies counts toward the limit for all
// exchanges.
func TestDecodedBudget(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"method":"%s"}`, strings.Repeat("x", 4<<20))
	w.Close()
	for budget, decoded := range map[int64]bool{1 << 20: false, 64 << 20: true} {
		p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
			if text := must(io.ReadAll(r.Body)); !bytes.Equal(text, b.Bytes()) {
				t.Errorf("the server got %d bytes, want %d", len(text), b.Len())
			}
		}, &taphttp.Options{MaxBuffered: budget})
		roundTrip(t, p.url, b.String(), "Content-Encoding", "gzip")
		found := false
		for _, e := range p.events() {
			found = found || e.Kind == capture.KindMessage
		}
		if found != decoded {
			t.Errorf("budget %d: decoded %v, want %v", budget, found, decoded)
		}
	}
}

// TestShutdownOfTheStuck shows that clients that have stopped reading or sending do not delay the
// end.
func TestShutdownOfTheStuck(t *testing.T) {
	var wrote atomic.Int64
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		text := "data: " + strings.Repeat("x", 60_000) + "\n\n"
		for {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
			wrote.Add(1)
		}
	}, &taphttp.Options{Grace: time.Millisecond})
	for _, length := range []int{2, 100} { // one that does not read, one that does not send
		c := must(net.Dial("tcp", strings.Split(p.url, "/")[2]))
		defer c.Close()
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{}", length)
	}
	for last := int64(-1); last <= 0 || wrote.Load() > last; <-time.After(50 * time.Millisecond) { // until the sockets are full
		last = wrote.Load()
	}
	p.stop() // which fails the test if it must cut a connection off after 10 s
	ends := 0
	for _, line := range p.lines() {
		if strings.Contains(line, "tap shut down") {
			ends++
		}
	}
	if ends != 2 {
		t.Errorf("%d ends by the shutdown, want 2: %q", ends, p.lines())
	}
}

// TestManyComments shows that the size of comments within an event counts, and is bounded.
func TestManyComments(t *testing.T) {
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "id: 1\n: a\n:b\n"+strings.Repeat(": c\n", 300_000)+"data: {}\n\n: d\n\n")
	}, nil)
	roundTrip(t, p.url, ping)
	var got []string
	for _, e := range p.events() {
		if e.SSE != nil {
			got = append(got, e.SSE.Comment)
		}
	}
	if len(got) != 2 || !strings.HasPrefix(got[0], "a\nb\nc\nc") || len(got[0]) > 9000 || got[1] != "d" {
		t.Errorf("%d events with comments %.100q", len(got), got)
	}
}
