package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// A log records the messages that a server's middleware gets.
type log struct {
	mu    sync.Mutex
	lines []string
}

// middleware records messages, except for calls of the tool "log".
func (l *log) middleware(next middleware.Handler) middleware.Handler {
	return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		name := ""
		if call := server.CallOf(ctx); call != nil {
			name = call.Name()
		}
		if name == "log" {
			return next(ctx, m)
		}
		line := "in "
		if m.Direction == jsonrpc.Outgoing {
			line = "out "
		}
		l.mu.Lock()
		l.lines = append(l.lines, strings.TrimSpace(line+m.Method+" "+name))
		l.mu.Unlock()
		switch {
		case name == "forbidden":
			return nil, jsonrpc.Errorf(4030, "not today")
		case m.Method == "com.example/canned":
			return json.RawMessage(`{"from":"middleware"}`), nil
		}
		return next(ctx, m)
	}
}

func (l *log) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

type pair struct {
	A int `json:"a"`
	B int `json:"b"`
}

// newCustomServer returns a server with its own methods, notifications and middleware.
func newCustomServer(func()) *server.Server {
	srv := server.MustNew("custom", "1", nil)
	l := new(log)
	srv.Use(l.middleware)
	var notes counter
	var last string
	must(
		server.AddMethod(srv, "com.example/swap", func(ctx context.Context, in pair) (pair, error) {
			if in.A == in.B {
				return pair{}, &jsonrpc.Error{Code: 7, Message: "the same", Data: json.RawMessage(`[1]`)}
			}
			if err := server.CallOf(ctx).Progress(1, 1, ""); err != nil {
				return pair{}, err
			}
			return pair{in.B, in.A}, nil
		}),
		srv.AddRawMethod("com.example/raw", func(_ *server.Call, params json.RawMessage) (json.RawMessage, error) {
			var in struct{ Give json.RawMessage }
			err := json.Unmarshal(params, &in)
			return in.Give, err
		}),
		srv.AddRawMethod("com.example/canned", func(*server.Call, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("not reached") }),
		srv.OnNotification("notifications/com.example/note", func(_ context.Context, params json.RawMessage) {
			last = string(params)
			notes.add()
		}),
		server.AddTool(srv, "last note", "", func(ctx context.Context, in struct{ N int }) (string, error) {
			err := notes.wait(ctx, in.N)
			return last, err
		}),
		server.AddTool(srv, "log", "", func(context.Context, struct{}) ([]string, error) { return l.take(), nil }),
		server.AddTool(srv, "forbidden", "", func(context.Context, struct{}) (string, error) { return "not reached", nil }),
		server.AddTool(srv, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
			roots, err := server.CallOf(ctx).Roots(ctx, "roots")
			if err != nil {
				return "", err
			}
			return roots[0].Name, nil
		}),
	)
	return srv
}

// log returns the messages that the server's middleware has got since the last call of log.
func (s *subtest) log(c *client.Client) []string {
	s.Helper()
	lines, err := client.CallTool[[]string](s.Context(), c, "log", nil)
	ok(s, "log", err)
	return lines
}

func TestCustom(t *testing.T) {
	testBehaviors(t, "custom", []behavior{
		{name: "a method", test: func(s *subtest) {
			var got pair
			progress := 0
			ok(s, "swap", s.client().Call(s.Context(), "com.example/swap", pair{1, 2}, &got,
				client.WithProgress(func(*mcp.ProgressNotificationParams) { progress++ })))
			same(s, "result", got, pair{2, 1})
			same(s, "progress", progress, 1)
		}},
		{name: "a method's errors", test: func(s *subtest) {
			e := wantError(s, "the same", s.client().Call(s.Context(), "com.example/swap", pair{1, 1}, nil), 7)
			same(s, "error", e.Message+string(e.Data), "the same[1]")
			for _, params := range []string{`{"a":"x","b":1}`, `{"a":1}`, `{"a":1,"b":2,"c":3}`} {
				wantError(s, params, s.client().Call(s.Context(), "com.example/swap", json.RawMessage(params), nil), jsonrpc.CodeInvalidParams)
			}
			wantError(s, "unknown", s.client().Call(s.Context(), "com.example/none", nil, nil), jsonrpc.CodeMethodNotFound)
		}},
		// Spec: S14
		{name: "a raw method", test: func(s *subtest) {
			var got json.RawMessage
			ok(s, "raw", s.client().Call(s.Context(), "com.example/raw", object{"give": object{"x": 1}}, &got))
			var result object
			ok(s, "result", json.Unmarshal(got, &result))
			delete(result, "_meta")
			want := object{"x": 1.0}
			if s.Modern {
				want["resultType"] = "complete"
			}
			same(s, "result", result, want)
			wantError(s, "not an object", s.client().Call(s.Context(), "com.example/raw", object{"give": 7}, nil), jsonrpc.CodeInternalError)
		}},
		{name: "a notification", test: func(s *subtest) {
			c := s.dial(nil)
			ok(s, "notify", c.Notify(s.Context(), "notifications/com.example/note", object{"n": 1}))
			got := s.call(c, "last note", object{"N": 1})
			if !strings.Contains(got, `"n":1`) {
				s.Errorf("got %s", got)
			}
			ok(s, "without a handler", c.Notify(s.Context(), "notifications/com.example/none", nil))
			ok(s, "ping", c.Ping(s.Context()))
		}},
		{name: "middleware gets both directions", test: func(s *subtest) {
			var u user
			c := s.dial(u.answers)
			first := []string{"in initialize", "in notifications/initialized"}
			if s.Modern {
				first = []string{"in server/discover"}
			}
			s.log(c) // the notification may or may not have been handled
			var got pair
			ok(s, "swap", c.Call(s.Context(), "com.example/swap", pair{1, 2}, &got, client.WithProgress(func(*mcp.ProgressNotificationParams) {})))
			same(s, "ask", s.call(c, "ask", nil), "home")
			_, err := c.ListTools(s.Context(), nil)
			ok(s, "list", err)
			want := []string{"in com.example/swap", "out notifications/progress", "in tools/call ask", "out roots/list ask", "in tools/list"}
			if s.Modern {
				want[3] = "in tools/call ask" // the retry with the input
			}
			seen := slices.DeleteFunc(s.log(c), func(line string) bool { return slices.Contains(first, line) })
			same(s, "seen", seen, want)
		}},
		{name: "middleware of the client gets both directions", test: func(s *subtest) {
			var u user
			var mu sync.Mutex
			var seen []string
			var notified counter
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				o.Middleware = append(o.Middleware, func(next middleware.Handler) middleware.Handler {
					return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
						line := "in " + m.Method
						if m.Direction == jsonrpc.Outgoing {
							line = "out " + m.Method
						}
						mu.Lock()
						seen = append(seen, line)
						mu.Unlock()
						if m.Method == mcp.NotificationProgress {
							notified.add()
						}
						return next(ctx, m)
					}
				})
			})
			mu.Lock()
			seen = nil // without the handshake
			mu.Unlock()
			progress := 0
			ok(s, "swap", c.Call(s.Context(), "com.example/swap", pair{1, 2}, nil, client.WithProgress(func(*mcp.ProgressNotificationParams) { progress++ })))
			same(s, "progress", progress, 1)
			ok(s, "notification", notified.wait(s.timeoutContext(), 1)) // in another goroutine than the response
			same(s, "ask", s.call(c, "ask", nil), "home")
			want := []string{"out com.example/swap", "in notifications/progress", "out tools/call", "in roots/list"}
			if s.Modern {
				want = want[:3] // input requests are part of a result
			}
			mu.Lock()
			defer mu.Unlock()
			same(s, "seen", seen, want)
		}},
		{name: "middleware returns an error or a result", test: func(s *subtest) {
			_, err := s.client().CallTool(s.Context(), "forbidden", nil)
			wantError(s, "forbidden", err, 4030)
			var got struct{ From string }
			ok(s, "canned", s.client().Call(s.Context(), "com.example/canned", nil, &got))
			same(s, "canned", got.From, "middleware")
		}},
	})
}
