package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// clientOf is connect on behalf of a principal.
func clientOf(t testing.TB, srv *server.Server, revision, principal string) *client {
	t.Helper()
	return connectIn(server.WithPrincipalID(context.Background(), principal), t, srv, revision)
}

// rejectionOf describes the error of a limit. It returns "" for nil, and other errors unchanged.
func rejectionOf(err error) string {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil:
		return ""
	case !ok || e.Code != server.CodeTooManyRequests:
		return err.Error()
	}
	return string(e.Data)
}

const refusedRate = `{"limit":"rate","retryAfterMs":%d}`

// Spec: S133 S155
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := with(t, &server.Options{Callers: server.CallerLimits{PerSecond: 2, Burst: 3}}, func(context.Context, *server.Call) (*mcp.CallToolResult, error) {
			return nil, nil
		})
		a, again, b := clientOf(t, srv, modern, "a"), clientOf(t, srv, "2025-06-18", "a"), clientOf(t, srv, modern, "b")
		call := func(c *client) string {
			t.Helper()
			_, err := c.tool("t", "{}")
			return rejectionOf(err)
		}
		check := func(what string, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		check("1", call(a), "")
		check("2, on another connection", call(again), "")
		check("3", call(a), "")
		check("4", call(a), fmt.Sprintf(refusedRate, 500))
		check("4, on another connection", call(again), fmt.Sprintf(refusedRate, 500))
		check("of another principal", call(b), "")
		if _, _, err := a.list(""); err != nil {
			t.Errorf("a method without limits: %v", err)
		}
		elapse(400*time.Millisecond - 300*time.Microsecond)
		check("too early", call(a), fmt.Sprintf(refusedRate, 101))
		elapse(100*time.Millisecond + 300*time.Microsecond)
		check("in time", call(a), "")
		check("behind it", call(a), fmt.Sprintf(refusedRate, 500))
		elapse(time.Hour)
		for i := range 3 {
			check(fmt.Sprint("after an hour ", i), call(a), "")
		}
		check("after an hour", call(a), fmt.Sprintf(refusedRate, 500))
		// Without a principal each connection is a caller.
		sess, y := connect(t, srv, modern), connect(t, srv, modern)
		for i := range 3 {
			check(fmt.Sprint("x ", i), call(sess), "")
		}
		check("x", call(sess), fmt.Sprintf(refusedRate, 500))
		check("y", call(y), "")
	})
}

// Spec: S133
func TestMaxConcurrent(t *testing.T) {
	for _, middleware := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			srv := with(t, &server.Options{Callers: server.CallerLimits{MaxConcurrent: 2}}, func(ctx context.Context, _ *server.Call) (*mcp.CallToolResult, error) {
				select {
				case <-gate:
				case <-ctx.Done():
				}
				return nil, nil
			})
			if middleware {
				srv.Use(passOn)
			}
			a, again, b := clientOf(t, srv, modern, "a"), clientOf(t, srv, modern, "a"), clientOf(t, srv, modern, "b")
			done := make(chan error, 10)
			start := func(ctx context.Context, c *client) {
				go func() {
					_, err := c.call(ctx, "tools/call", `{"name":"t"}`)
					done <- err
				}()
				synctest.Wait()
			}
			ctx, cancel := context.WithCancel(t.Context())
			start(ctx, a)
			start(t.Context(), again)
			start(t.Context(), a)
			if got := rejectionOf(<-done); got != `{"limit":"concurrency"}` {
				t.Errorf("the third: %s", got)
			}
			start(t.Context(), b)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("the first: %v", err)
			}
			synctest.Wait()
			start(t.Context(), a)
			close(gate)
			for range 3 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestLimitedMethods shows that the limits apply to methods that run the user's code, or to those
// that the option names.
func TestLimitedMethods(t *testing.T) {
	methods := []string{"tools/call", "prompts/get", "resources/read", "completion/complete", "tools/list", "server/discover", "com.example/m"}
	params := map[string]string{
		"tools/call":          `{"name":"t"}`,
		"prompts/get":         `{"name":"p"}`,
		"resources/read":      `{"uri":"x:r"}`,
		"completion/complete": `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}`,
	}
	for _, tt := range []struct {
		option []string
		want   []string
	}{
		{nil, methods[:4]},
		{[]string{}, nil},
		{[]string{"tools/list", "com.example/m"}, []string{"tools/list", "com.example/m"}},
	} {
		var got []string
		for _, method := range methods {
			srv := server.MustNew("test", "1", &server.Options{
				Callers: server.CallerLimits{PerSecond: 0.001, Methods: tt.option}, AdvertiseKinds: []server.Kind{server.KindPrompt, server.KindResource, server.KindTool},
			})
			if err := errors.Join(
				srv.AddRawMethod("com.example/m", func(*server.Call, json.RawMessage) (json.RawMessage, error) { return nil, nil }),
				server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(context.Context, struct {
					A string `json:"a,omitempty"`
				}) (string, error) {
					return "", nil
				}, server.CompleteFrom("a", "b")),
			); err != nil {
				t.Fatal(err)
			}
			c := connect(t, srv, modern)
			p := params[method]
			if p == "" {
				p = "{}"
			}
			c.call(t.Context(), method, p) // a failed request counts too
			if _, err := c.call(t.Context(), method, p); code(err) == server.CodeTooManyRequests {
				got = append(got, method)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.option, diff)
		}
	}
}

// TestLimitedHandshake shows that requests without a handler can be limited too, with and without
// middleware.
func TestLimitedHandshake(t *testing.T) {
	for _, middleware := range []middleware.Func{nil, passOn} {
		srv := server.MustNew("test", "1", &server.Options{Callers: server.CallerLimits{PerSecond: 0.001, Methods: []string{"ping", "initialize"}}})
		if middleware != nil {
			srv.Use(middleware)
		}
		c := clientOf(t, srv, "2025-06-18", "a") // initialize uses the whole limit
		if _, err := c.call(t.Context(), "ping", "{}"); code(err) != server.CodeTooManyRequests {
			t.Errorf("middleware %t: got %v", middleware != nil, err)
		}
	}
}

// TestLimitMessage shows that the error of a rate-limited request has the limit and the time to
// retry.
func TestLimitMessage(t *testing.T) {
	srv := with(t, &server.Options{Callers: server.CallerLimits{PerSecond: 0.5}}, func(context.Context, *server.Call) (*mcp.CallToolResult, error) { return nil, nil })
	c := connect(t, srv, modern)
	c.must("tools/call", `{"name":"t"}`)
	_, err := c.tool("t", "{}")
	if err == nil || !strings.Contains(err.Error(), "too many requests: 0.5 a second are allowed, try again in ") {
		t.Errorf("got %v", err)
	}
}
