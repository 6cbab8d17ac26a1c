package streamable_test

import (
	"context"
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
