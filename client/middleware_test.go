package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// A messageRecorder is a middleware that records messages: "> " is outgoing, "< " incoming.
type messageRecorder struct {
	mu    sync.Mutex
	lines []string
}

func (w *messageRecorder) middleware(next middleware.Handler) middleware.Handler {
	return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		line := "< "
		if m.Direction == jsonrpc.Outgoing {
			line = "> "
		}
		line += m.Method
		if m.Notification {
			line += " note"
		}
		if len(m.ID) > 0 {
			line += " #" + m.ID.String()
		}
		line += fmt.Sprintf(" %s %s", m.Revision, m.Params)
		if FromContext(ctx) == nil {
			line += " without a client"
		}
		w.mu.Lock()
		w.lines = append(w.lines, line)
		w.mu.Unlock()
		return next(ctx, m)
	}
}

func (w *messageRecorder) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// curious returns a server whose tool t requests the roots, reports progress and returns the number
// of roots.
func curious(t *testing.T) *server.Server {
	t.Helper()
	srv := server.MustNew("curious", "1", nil)
	must(server.AddTool(srv, "t", "", func(ctx context.Context, _ struct{}) (string, error) {
		call := server.CallOf(ctx)
		roots, err := call.Roots(ctx, "where")
		if err != nil {
			return "", err
		}
		return fmt.Sprint(len(roots), " roots"), call.Progress(1, 0, "")
	}))
	return srv
}

func twoRoots(context.Context) ([]mcp.Root, error) {
	return []mcp.Root{{URI: "file:///a"}, {URI: "file:///b"}}, nil
}

func TestMiddlewareSeesEverything(t *testing.T) {
	for _, tt := range []struct {
		revision mcp.Revision
		want     []string
	}{
		{mcp.Revision20250618, []string{
			`> initialize none`,
			`> notifications/initialized note 2025-06-18 `,
			`> ping 2025-06-18 `,
			`> tools/call 2025-06-18 {"_meta":{"com.example/x":1},"name":"t"}`,
			`< roots/list #1 2025-06-18 `,
			`< notifications/progress note 2025-06-18 {"progressToken":1,"progress":1}`,
			`> com.example/n note 2025-06-18 {"a":1}`,
			`< notifications/tools/list_changed note 2025-06-18 `,
		}},
		{mcp.Revision20260728, []string{
			`> server/discover none`,
			`> tools/call 2026-07-28 {"_meta":{"com.example/x":1},"name":"t"}`,
			`< notifications/progress note 2026-07-28 {"progressToken":2,"progress":1}`,
			`> com.example/n note 2026-07-28 {"a":1}`,
		}},
	} {
		t.Run(tt.revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := new(messageRecorder)
				srv := curious(t)
				c := wire(t, srv, tt.revision, Options{Middleware: []middleware.Func{w.middleware}, Input: InputOptions{Roots: twoRoots}})
				if !tt.revision.Modern() {
					must(c.Ping(t.Context()))
				}
				var result mcp.CallToolResult
				must(c.Call(t.Context(), "tools/call", map[string]any{"name": "t"}, &result, WithMeta("com.example/x", 1), WithProgress(func(*mcp.ProgressNotificationParams) {})))
				if got := result.Content[0].(mcp.TextContent).Text; got != "2 roots" {
					t.Errorf("got %s", got)
				}
				synctest.Wait()
				must(c.Notify(t.Context(), "com.example/n", json.RawMessage(`{"a":1}`)))
				must(server.AddTool(srv, "u", "", func(context.Context, struct{}) (string, error) { return "", nil }))
				synctest.Wait()
				got := w.take()
				if len(got) > 0 { // other tests check the params of the first message
					got[0], _, _ = strings.Cut(got[0], " {")
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestMiddlewareChanges(t *testing.T) {
	replace := func(result string, err error) middleware.Func {
		return func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method != "com.example/echo" {
					return next(ctx, m)
				}
				return json.RawMessage(result), err
			}
		}
	}
	params := func(params string) middleware.Func {
		return func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method == "com.example/echo" {
					m.Params = json.RawMessage(params)
				}
				return next(ctx, m)
			}
		}
	}
	for _, tt := range []struct {
		name       string
		middleware middleware.Func
		// the params that the server got, without the client's own _meta, or the error
		want string
	}{
		{"nothing", func(next middleware.Handler) middleware.Handler { return next }, `{"_meta":{"b":2},"a":1}`},
		{"params", params(`{"a":2}`), `{"a":2}`},
		{"metadata", params(`{"a":2,"_meta":{"com.example/c":3}}`), `{"_meta":{"com.example/c":3},"a":2}`},
		{"no params", params(`{}`), `{}`},
		{"bad params", params(`{"a"`), "params of a middleware"},
		{"an array for params", params(`[]`), "params of a middleware"},
		{"a result", replace("{ \"own\":\n1 }", nil), `{"own":1}`},
		{"a bad result", replace(`{"own"`, nil), "result of a middleware"},
		{"an array for a result", replace(`[]`, nil), "result of a middleware"},
		{"an error", replace("", errors.New("no way")), "no way"},
		{"a new Message", func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method != "com.example/echo" {
					return next(ctx, m)
				}
				return next(ctx, &middleware.Message{Method: m.Method})
			}
		}, "passed a new Message"},
		{"a copy, next called twice", func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method != "com.example/echo" {
					return next(ctx, m)
				}
				other := *m
				other.Params = json.RawMessage(`{"a":"first"}`)
				if _, err := next(ctx, &other); err != nil {
					return nil, err
				}
				return next(ctx, m)
			}
		}, `{"_meta":{"b":2},"a":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, revision := range []mcp.Revision{mcp.Revision20250618, mcp.Revision20260728} {
				srv := server.MustNew("echo", "1", nil)
				must(srv.AddRawMethod("com.example/echo", func(_ *server.Call, params json.RawMessage) (json.RawMessage, error) {
					return bytes.Clone(params), nil
				}))
				c := wire(t, srv, revision, Options{Middleware: []middleware.Func{tt.middleware}})
				var result json.RawMessage
				err := c.Call(t.Context(), "com.example/echo", json.RawMessage(`{"a":1}`), &result, WithMeta("b", 2))
				if err != nil {
					if !strings.Contains(err.Error(), tt.want) || strings.HasPrefix(tt.want, "{") || IsServerError(err) {
						t.Errorf("%v: %v, want %s", revision, err, tt.want)
					}
					continue
				}
				if got := bare(t, result); got != tt.want {
					t.Errorf("%v: got %s, want %s", revision, got, tt.want)
				}
			}
		})
	}
}

// bare returns an object without the _meta members and result members that the two sides add, with
// sorted members.
func bare(t *testing.T, object []byte) string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal(object, &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "resultType")
	if meta, ok := members["_meta"].(map[string]any); ok {
		for key := range meta {
			if strings.HasPrefix(key, "io.modelcontextprotocol/") {
				delete(meta, key)
			}
		}
		if len(meta) == 0 {
			delete(members, "_meta")
		}
	}
	text, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMiddlewareIncoming checks that middleware can answer and change a legacy server's requests
// and notifications.
func TestMiddlewareIncoming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		answer := ""
		var inContext atomic.Pointer[Client]
		opts := Options{Input: InputOptions{Roots: twoRoots}, OnNotification: func(method string, params json.RawMessage) { heard = append(heard, method+" "+string(params)) }}
		opts.Middleware = []middleware.Func{func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				switch {
				case m.Method == "roots/list" && answer == "refuse":
					return nil, jsonrpc.Errorf(403, "not allowed")
				case m.Method == "roots/list" && answer != "":
					return json.RawMessage(answer), nil
				case m.Method == "notifications/progress":
					m.Params = json.RawMessage(`{"changed":true}`)
				}
				if got := FromContext(ctx); got == nil || !inContext.CompareAndSwap(nil, got) && got != inContext.Load() {
					t.Errorf("%s: the context has another client", m.Method)
				}
				return next(ctx, m)
			}
		}}
		c := wire(t, curious(t), mcp.Revision20250618, opts)
		if inContext.Load() != c {
			t.Error("the context of the handshake has another client")
		}
		for _, tt := range []struct{ answer, want string }{
			{"", "2 roots"},
			{`{"roots":[]}`, "0 roots"},
			{"refuse", "not allowed"},
			{`[]`, "internal error"},
		} {
			answer = tt.answer
			result, err := c.CallTool(t.Context(), "t", nil, WithProgress(func(*mcp.ProgressNotificationParams) {}))
			got := fmt.Sprint(err)
			if err == nil {
				got = result.Content[0].(mcp.TextContent).Text
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("%q: got %s, want %s", tt.answer, got, tt.want)
			}
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{`notifications/progress {"changed":true}`, `notifications/progress {"changed":true}`}, heard); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
	})
}

// TestMiddlewareOncePerCall checks that a call that the cache handles skips middleware, and that a
// call with input rounds or retries passes through it once.
func TestMiddlewareOncePerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(messageRecorder)
		c := wire(t, shop(), mcp.Revision20260728, Options{Middleware: []middleware.Func{w.middleware}})
		w.take()
		for range 3 {
			if _, err := c.ReadResource(t.Context(), "x:a"); err != nil {
				t.Fatal(err)
			}
		}
		sub, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true})
		if err != nil {
			t.Fatal(err)
		}
		sub.Close()
		got := slices.DeleteFunc(w.take(), func(line string) bool { return strings.HasPrefix(line, "< ") })
		want := []string{`> resources/read 2026-07-28 {"uri":"x:a"}`, `> subscriptions/listen 2026-07-28 {"notifications":{"toolsListChanged":true}}`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestOnEnd shows that OnEnd is called once, and that Close waits for it.
func TestOnEnd(t *testing.T) {
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			clientEnd, serverEnd := net.Pipe()
			served := make(chan error, 1)
			go func() { served <- curious(t).Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil)) }()
			var got []string
			var c *Client
			c, err := Dial(t.Context(), FramerTransport(jsonrpc.NewFramer(clientEnd, nil)), &Options{OnEnd: func(ended *Client, err error) {
				got = append(got, fmt.Sprint(ended == c, err != nil, ended.Err() == err))
			}})
			if err != nil {
				t.Fatal(err)
			}
			if crash {
				serverEnd.Close()
				<-c.Done()
			}
			c.Close()
			c.Close()
			<-served
			if diff := cmp.Diff([]string{fmt.Sprint(true, crash, true)}, got); diff != "" {
				t.Errorf("crash %t (-want +got):\n%s", crash, diff)
			}
		})
	}
}

// TestMiddlewareGivesUp shows that the response of a middleware is not sent before the handler has
// returned, and that next fails afterwards.
func TestMiddlewareGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ended := make(chan struct{}), false
		late := make(chan error, 1)
		opts := &Options{
			Revisions: []mcp.Revision{mcp.Revision20250618},
			Input: InputOptions{Roots: func(ctx context.Context) ([]mcp.Root, error) {
				<-ctx.Done()
				<-release
				ended = true
				return nil, nil
			}},
			Middleware: []middleware.Func{func(next middleware.Handler) middleware.Handler {
				return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
					if m.Method != mcp.MethodRootsList {
						return next(ctx, m)
					}
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					go next(ctx, m)
					<-ctx.Done()
					time.AfterFunc(time.Hour, func() {
						_, err := next(context.Background(), m)
						late <- err
					})
					return nil, jsonrpc.Errorf(504, "too slow")
				}
			}},
		}
		dial(t, opts, func(s *script) {
			s.opening(mcp.Revision20250618)
			s.ask("7", `{"method":"roots/list"}`)
			if got := s.expectError("7"); got != 504 {
				t.Errorf("got %d", got)
			}
			if !ended {
				t.Error("the response was sent while the handler ran")
			}
		})
		elapse(time.Minute)
		close(release)
		elapse(2 * time.Hour)
		if err := <-late; err == nil {
			t.Error("next can be called after the end")
		}
	})
}
