package streamable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
	"mcpwire/streamable"
)

// TestRequireInHandler shows that a handler which requires a scope rejects the request with the
// status and the challenge that make a client get a better token, as long as the response has not
// begun.
//
// Spec: S218
func TestRequireInHandler(t *testing.T) {
	deny := func(ctx context.Context) error {
		if err := auth.Require(ctx, "write"); err != nil {
			return fmt.Errorf("no: %w", err)
		}
		return nil
	}
	type none = struct{}
	setup := func(t *testing.T, o *streamable.Options) *endpoint {
		t.Helper()
		o.Guard = serverHandler(t, time.Time{})
		srv := server.MustNew("test", "1", &server.Options{Tasks: &server.TaskOptions{}})
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method == "prompts/list" {
					if err := deny(ctx); err != nil {
						return nil, err
					}
				}
				return next(ctx, m)
			}
		})
		tool := func(ctx context.Context, _ none) (string, error) { return "done", deny(ctx) }
		err := errors.Join(
			server.AddTool(srv, "tool", "", tool),
			server.AddToolWith(srv, mcp.Tool{Name: "task", Execution: &mcp.ToolExecution{TaskSupport: "optional"}}, tool),
			srv.AddRawTool(mcp.Tool{Name: "raw"}, func(c *server.Call, _ json.RawMessage) (*mcp.CallToolResult, error) {
				return nil, deny(c)
			}),
			server.AddTool(srv, "late", "", func(ctx context.Context, _ none) (string, error) {
				return "", errors.Join(server.CallOf(ctx).Progress(1, 1, ""), deny(ctx))
			}),
			server.AddResource(srv, mcp.Resource{URI: "test://secret", Name: "secret"}, func(ctx context.Context) (string, error) { return "done", deny(ctx) }),
			server.AddPrompt(srv, mcp.Prompt{Name: "prompt"}, func(ctx context.Context, _ none) (string, error) { return "done", deny(ctx) }),
			server.AddMethod(srv, "com.example/method", func(ctx context.Context, _ none) (none, error) { return none{}, deny(ctx) }),
		)
		if err != nil {
			t.Fatal(err)
		}
		e := &endpoint{t: t, srv: srv, h: streamable.MustHandler(srv, o)}
		e.serve(e.h)
		t.Cleanup(func() { e.h.Shutdown(context.Background()) })
		return e
	}
	requests := []struct{ name, method, params string }{
		{"tool", "tools/call", `"name":"tool"`},
		{"raw", "tools/call", `"name":"raw"`},
		{"task", "tools/call", `"name":"task"`},
		{"test://secret", "resources/read", `"uri":"test://secret"`},
		{"prompt", "prompts/get", `"name":"prompt"`},
		{"", "com.example/method", ""},
		{"", "prompts/list", ""},
	}
	for _, accept := range []string{"application/json", "text/event-stream", "application/json, text/event-stream"} {
		for _, always := range []bool{false, true} {
			e := setup(t, &streamable.Options{StreamAlways: always})
			for _, legacy := range []bool{false, true} {
				for _, tt := range requests {
					name := fmt.Sprintf("%s %s, legacy=%v, always=%v, %s", tt.method, tt.name, legacy, always, accept)
					send := func(token string) answer {
						if legacy {
							v := e.visit("2025-11-25", "{}", as(token))
							return v.do("POST", request(1, tt.method, "{"+tt.params+"}"), with(v.headers, "Accept", accept))
						}
						body, headers := modernPost(1, tt.method, tt.params)
						return e.do("POST", body, with(with(headers, "Authorization", "Bearer "+token), "Mcp-Name", tt.name, "Accept", accept))
					}
					if got := send(tokenAlice); got.status != 200 || strings.Contains(got.body, "error") {
						t.Errorf("%s, permitted: %d %s", name, got.status, got.body)
					}
					got := send(tokenBob)
					challenge := got.header.Get("WWW-Authenticate")
					if got.status != 403 || !strings.Contains(challenge, `error="insufficient_scope"`) || !strings.Contains(challenge, `scope="write"`) {
						t.Errorf("%s: %d %q %s", name, got.status, challenge, got.body)
					}
				}
			}
		}
	}

	// When the response has begun, or has other results too, the model gets the reason.
	e := setup(t, new(streamable.Options))
	body, headers := callPost(1, "late", "{}")
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":1,`, 1)
	v := e.visit("2025-03-26", "{}", as(tokenBob))
	for name, got := range map[string]answer{
		"modern": e.do("POST", body, with(headers, "Authorization", "Bearer "+tokenBob)),
		"legacy": v.post(request(1, "tools/call", `{"name":"late","_meta":{"progressToken":1}}`)),
		"batch":  v.post("[" + request(2, "tools/call", `{"name":"tool"}`) + "," + request(3, "ping", "{}") + "]"),
	} {
		if got.status != 200 || !strings.Contains(got.body, `"isError":true`) || !strings.Contains(got.body, "insufficient scope: write needed") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}

// TestRequireWithoutGuard shows that a handler which requires a scope asks for a token if there is no
// principal.
func TestRequireWithoutGuard(t *testing.T) {
	e := newEndpoint(t, nil, nil)
	err := server.AddTool(e.srv, "tool", "", func(ctx context.Context, _ struct{}) (string, error) {
		return "", auth.Require(ctx, "write")
	})
	if err != nil {
		t.Fatal(err)
	}
	body, headers := callPost(1, "tool", "{}")
	v := e.visit("2025-11-25", "{}", nil)
	for name, got := range map[string]answer{
		"modern": e.do("POST", body, headers),
		"legacy": v.post(request(1, "tools/call", `{"name":"tool"}`)),
	} {
		if got.status != 401 || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: %d %v %s", name, got.status, got.header, got.body)
		}
	}
}
