package streamable_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcpwire/server"
)

// The time that a body may take is none of what comes after it: a handler that takes longer is not cancelled, though the connection is read meanwhile.
func TestBodyTimeoutEnds(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubbleOf(t, h2, nil, nil, func(e *endpoint) {
			err := server.AddTool(e.srv, "long", "", func(ctx context.Context, _ struct{}) (string, error) {
				select {
				case <-time.After(10 * time.Minute):
					return "done", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
			if err != nil {
				e.t.Fatal(err)
			}
			for range 2 { // on the same connection, which nothing may be left on
				body, headers := callPost(1, "long", "{}")
				if got := e.do("POST", body, headers); !strings.Contains(got.body, "done") {
					e.t.Errorf("h2 %v, modern: %d %s", h2, got.status, got.body)
				}
				v := e.visit("2025-06-18", "{}", nil)
				if got := v.post(request(1, "tools/call", `{"name":"long"}`)); !strings.Contains(got.body, "done") {
					e.t.Errorf("h2 %v, legacy: %d %s", h2, got.status, got.body)
				}
			}
		})
	}
}

// Bodies arrive whole, whatever is known of their length beforehand, and clients are told that of answers.
func TestLongBodies(t *testing.T) {
	inBubbleOf(t, false, nil, nil, func(e *endpoint) {
		for _, n := range []int{1 << 10, 3 << 10, 60 << 10, 64 << 10, 100_000, 700_000} {
			text := strings.Repeat("x", n)
			body, headers := callPost(1, "echo", `{"text":"`+text+`"}`)
			for _, known := range []bool{true, false} {
				got := e.do("POST", body, headers)
				if !known {
					got = e.unmeasured(body, headers)
				}
				if got.status != 200 || strings.Count(got.body, text) != 1 || strings.Count(got.body, "x") < n {
					t.Errorf("%d bytes, length known %v: %d, %d bytes came back", n, known, got.status, len(got.body))
				}
				if length := got.header.Get("Content-Length"); length != strconv.Itoa(len(got.body)) {
					t.Errorf("%d bytes: the length of the answer is %q, want %d", n, length, len(got.body))
				}
			}
		}
	})
}

// unmeasured posts a body without its length.
func (e *endpoint) unmeasured(body string, headers map[string]string) answer {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, e.url, io.MultiReader(strings.NewReader(body)))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	resp, err := e.client.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// A body whose chunks are wrong is refused at once; one that does not arrive, in time.
func TestBadChunks(t *testing.T) {
	text, headers := callPost(1, "echo", `{"text":"x"}`)
	head := "POST / HTTP/1.1\nHost: localhost\nContent-Type: application/json\nAccept: application/json, text/event-stream\nTransfer-Encoding: chunked\n"
	for k, v := range headers {
		head += k + ": " + v + "\n"
	}
	chunk := fmt.Sprintf("%x\n%s\n", len(text), text)
	for _, tt := range []struct {
		name, body string
		want       int
		after      time.Duration
	}{
		{"good", chunk + "0\n\n", 200, 0},
		{"size of no digits", "zz\n" + text + "\n0\n\n", 400, 0},
		{"empty size", "\n" + text + "\n0\n\n", 400, 0},
		{"negative size", "-5\n" + text + "\n0\n\n", 400, 0},
		{"size of 17 digits", "fffffffffffffffff\n" + text + "\n0\n\n", 400, 0},
		{"size too small", "5\n" + text + "\n0\n\n", 400, 0},
		{"bad second size", chunk + "0x0\n\n", 400, 0},
		{"no end", chunk, 408, 30 * time.Second},
	} {
		inBubble(t, false, nil, func(e *endpoint) {
			_, r := e.raw(head + "\n" + tt.body)
			var got answer
			if d := took(func() { got = e.response(r) }); got.status != tt.want || d != tt.after {
				e.t.Errorf("%s: %d after %v, want %d after %v: %s", tt.name, got.status, d, tt.want, tt.after, got.body)
			}
		})
	}
}

// The modern era has neither GET nor DELETE.
func TestModernMethods(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	v := e.visit("2025-11-25", "{}", nil)
	session := v.headers["Mcp-Session-Id"]
	for _, tt := range []struct {
		name, method string
		headers      map[string]string
		want         int
		allow        string
	}{
		{"modern", "GET", map[string]string{"MCP-Protocol-Version": "2026-07-28"}, 405, "POST"},
		{"modern", "DELETE", map[string]string{"MCP-Protocol-Version": "2026-07-28"}, 405, "POST"},
		{"modern", "PUT", map[string]string{"MCP-Protocol-Version": "2026-07-28"}, 405, "POST"},
		{"unknown version", "GET", map[string]string{"MCP-Protocol-Version": "2099-01-01"}, 405, "POST"},
		{"legacy without session", "GET", map[string]string{"MCP-Protocol-Version": "2025-11-25"}, 400, ""},
		{"no version", "DELETE", nil, 400, ""},
		{"legacy", "PUT", map[string]string{"MCP-Protocol-Version": "2025-11-25"}, 405, "POST, GET, DELETE"},
		{"a session and a modern version", "GET", map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Session-Id": session}, 400, ""},
		{"legacy with session", "DELETE", map[string]string{"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": session}, 204, ""},
	} {
		got := e.do(tt.method, "", tt.headers)
		if got.status != tt.want || got.header.Get("Allow") != tt.allow {
			t.Errorf("%s of %s: %d, Allow %q, want %d, %q: %s", tt.method, tt.name, got.status, got.header.Get("Allow"), tt.want, tt.allow, got.body)
		}
	}
}
