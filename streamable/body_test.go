package streamable_test

import (
	"context"
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
