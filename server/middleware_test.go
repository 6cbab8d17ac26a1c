package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/rpc"
	"mcpwire/internal/test/buffer"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// A messageRecorder is a middleware that records messages: "> " is incoming, "< " outgoing.
type messageRecorder struct {
	mu    sync.Mutex
	lines []string
}

func (w *messageRecorder) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

func (w *messageRecorder) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

func (w *messageRecorder) middleware(next middleware.Handler) middleware.Handler {
	return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
		line := "> "
		if m.Direction == jsonrpc.Outgoing {
			line = "< "
		}
		line += m.Method
		if m.Notification {
			line += " note"
		}
		if len(m.ID) > 0 {
			line += " #" + m.ID.String()
		}
		if call := server.CallOf(ctx); call != nil {
			line += fmt.Sprintf(" [%s %s]", m.Revision, call.Name())
		}
		if id := server.PrincipalID(ctx); id != "" {
			line += " by " + id
		}
		w.note("%s", line)
		return next(ctx, m)
	}
}

// talkative returns a server with middleware, whose tool t reports progress and logs.
func talkative(t *testing.T, middleware ...middleware.Func) *server.Server {
	t.Helper()
	srv := with(t, nil, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		return nil, errors.Join(call.Progress(1, 2, "half"), call.Log(mcp.LevelError, "l", 7))
	})
	srv.Use(middleware...)
	return srv
}

func TestMiddlewareSeesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(messageRecorder)
		srv := talkative(t, w.middleware)
		ctx := server.WithPrincipalID(context.Background(), "p")

		c := connectIn(ctx, t, srv, "2025-06-18")
		synctest.Wait() // until the notification has passed the middleware
		c.must("ping", "{}")
		c.must("tools/list", "{}")
		c.must("tools/call", `{"name":"t","_meta":{"progressToken":1}}`)
		c.must("logging/setLevel", `{"level":"error"}`)
		for _, method := range []string{"no/such", "server/discover"} {
			if _, err := c.call(t.Context(), method, "{}"); err == nil {
				t.Errorf("%s: no error", method)
			}
		}
		for _, method := range []string{"notifications/roots/list_changed", "notifications/no/such", "notifications/cancelled"} {
			if err := c.conn.Notify(t.Context(), method, []byte(`{"requestId":99}`)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		addNumber(t, srv, 1)
		synctest.Wait()
		want := []string{
			"> initialize #1 [2025-11-25 ] by p",
			"> notifications/initialized note [2025-06-18 ] by p",
			"> ping #2 [2025-06-18 ] by p",
			"> tools/list #3 [2025-06-18 ] by p",
			"> tools/call #4 [2025-06-18 t] by p",
			"< notifications/progress note [2025-06-18 t] by p",
			"< notifications/message note [2025-06-18 t] by p",
			"> logging/setLevel #5 [2025-06-18 ] by p",
			"> notifications/roots/list_changed note [2025-06-18 ] by p",
			"< notifications/tools/list_changed note by p",
		}
		if diff := cmp.Diff(want, w.take()); diff != "" {
			t.Errorf("legacy (-want +got):\n%s", diff)
		}

		c = connectIn(ctx, t, srv, modern)
		c.must("server/discover", "{}")
		c.must("tools/call", `{"_meta":{"progressToken":1,"io.modelcontextprotocol/logLevel":"debug"},"name":"t"}`)
		if _, err := c.tool("no such", "{}"); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("unknown tool: %v", err)
		}
		if _, err := c.conn.Call(t.Context(), "tools/list", nil); code(err) != jsonrpc.CodeInvalidRequest {
			t.Errorf("without metadata: %v", err)
		}
		c.listen(t.Context(), listenTools)
		addNumber(t, srv, 2)
		synctest.Wait()
		want = []string{
			"> server/discover #1 [2026-07-28 ] by p",
			"> tools/call #2 [2026-07-28 t] by p",
			"< notifications/progress note [2026-07-28 t] by p",
			"< notifications/message note [2026-07-28 t] by p",
			"> tools/call #3 [2026-07-28 ] by p",
			"> subscriptions/listen #5 [2026-07-28 ] by p",
			"< notifications/subscriptions/acknowledged note [2026-07-28 ] by p",
			"< notifications/tools/list_changed note [2026-07-28 ] by p",
		}
		// for the legacy client
		got := slices.DeleteFunc(w.take(), func(line string) bool { return line == "< notifications/tools/list_changed note by p" })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("modern (-want +got):\n%s", diff)
		}
	})
}

// TestMiddlewareSeesInputRequests shows that input requests to legacy clients go through the
// middleware chain like all other requests.
func TestMiddlewareSeesInputRequests(t *testing.T) {
	w := new(messageRecorder)
	srv := with(t, nil, func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		got, err := call.Roots(ctx, "where")
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: fmt.Sprint(len(got))}}}, nil
	})
	answer := ""
	srv.Use(w.middleware, func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
			if m.Method == "roots/list" {
				if answer == "pass" {
					return next(ctx, m)
				}
				return json.RawMessage(answer), nil
			}
			return next(ctx, m)
		}
	})
	local, remote := net.Pipe()
	c := &client{t: t, revision: "2025-06-18", served: make(chan error, 1)}
	go func() { c.served <- srv.Serve(context.Background(), jsonrpc.NewFramer(remote, nil)) }()
	c.conn = rpc.NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), &rpc.Options{
		Handler: rpc.HandlerFunc(func(context.Context, *rpc.Request) ([]byte, error) {
			return []byte(`{"roots":[{"uri":"file:///a"},{"uri":"file:///b"}]}`), nil
		}),
	})
	go c.conn.Run(context.Background())
	t.Cleanup(c.close)
	c.must("initialize", `{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"test","version":"1"}}`)
	if err := c.conn.Notify(t.Context(), "notifications/initialized", nil); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		answer string
		want   string
	}{
		{"pass", "2"},
		{`{"roots":[]}`, "0"},
		{`{"roots":[{"uri":"file:///a"}]}`, "1"},
	} {
		answer = tt.answer
		got, err := c.result("t", "{}")
		if err != nil || got.Text != tt.want || got.IsError {
			t.Errorf("%s: got %+v, %v, want %s", tt.answer, got, err, tt.want)
		}
	}
	answer = "[]"
	if got, err := c.result("t", "{}"); err == nil && !got.IsError {
		t.Errorf("an answer that is no object: got %+v", got)
	}
	if got := w.take(); !slices.Contains(got, "< roots/list [2025-06-18 t]") {
		t.Errorf("the middleware saw %q", got)
	}
}

// echoing returns a server whose raw tools echo and other return their name, arguments, Call,
// context and deadline.
func echoing(t *testing.T, middleware middleware.Func) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", &server.Options{Cache: server.CacheOptions{ListTTL: time.Second}})
	for _, name := range []string{"echo", "other"} {
		if err := srv.AddRawTool(mcp.Tool{Name: name}, func(call *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: call.Name() + string(args)}}}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	srv.Use(middleware)
	return srv
}

func TestMiddlewareChanges(t *testing.T) {
	const tail = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}`
	echo := func(text string) string { return `{"content":[{"type":"text","text":"` + text + `"}]` }
	replace := func(result string) middleware.Handler {
		return func(context.Context, *middleware.Message) (json.RawMessage, error) {
			return json.RawMessage(result), nil
		}
	}
	fail := func(err error) middleware.Handler {
		return func(context.Context, *middleware.Message) (json.RawMessage, error) { return nil, err }
	}
	params := func(params string) func(next middleware.Handler) middleware.Handler {
		return func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				m.Params = json.RawMessage(params)
				return next(ctx, m)
			}
		}
	}
	edit := func(f func(json.RawMessage) json.RawMessage) func(next middleware.Handler) middleware.Handler {
		return func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				result, err := next(ctx, m)
				return f(result), err
			}
		}
	}
	always := func(h middleware.Handler) func(next middleware.Handler) middleware.Handler {
		return func(middleware.Handler) middleware.Handler { return h }
	}
	for _, tt := range []struct {
		name           string
		method         string
		middleware     func(next middleware.Handler) middleware.Handler
		legacy, modern string // a result, or an error's code and text
	}{
		{"nothing", "tools/call", passOn, echo("echo{}") + "}", echo("echo{}") + "," + tail},
		{"arguments", "tools/call", params("{\"name\":\"echo\",\n\"arguments\":{\"a\":1}}"), echo(`echo{\"a\":1}`) + "}", echo(`echo{\"a\":1}`) + "," + tail},
		{"another tool", "tools/call", params(`{"name":"other"}`), echo("other{}") + "}", echo("other{}") + "," + tail},
		{"no such tool", "tools/call", params(`{"name":"none"}`), "-32602 unknown tool: none", "-32602 unknown tool: none"},
		{"no params", "tools/call", params("null"), "-32602 params.name is missing", "-32602 params.name is missing"},
		{"bad params", "tools/call", params(`{"name"`), "-32603 internal error", "-32603 internal error"},
		{"an array for params", "tools/call", params(`[1]`), "-32603 internal error", "-32603 internal error"},
		{"a copy", "tools/call", func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				other := *m
				other.Method, other.Params = "tools/list", json.RawMessage(`{"name":"other"}`)
				return next(ctx, &other)
			}
		}, echo("other{}") + "}", echo("other{}") + "," + tail},
		{"a new Message", "tools/call", func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				return next(ctx, &middleware.Message{Method: m.Method, Params: m.Params})
			}
		}, "-32603 internal error", "-32603 internal error"},
		{"a result", "tools/call", always(replace(`{ "content" : [] }`)), `{"content":[]}`, `{"content":[],` + tail},
		{"a result for modern clients", "tools/call", always(replace(`{"content":[],"resultType":"complete"}`)), `{"content":[]}`, `{"content":[],` + tail},
		{"no result", "tools/call", always(fail(nil)), "{}", "{" + tail},
		{"another result type", "tools/call", always(replace(`{"resultType":"input_required","requestState":"x"}`)), `{"requestState":"x"}`,
			`{"requestState":"x",` + strings.Replace(tail, "complete", "input_required", 1)},
		{"no object", "tools/call", always(replace(`[]`)), "-32603 internal error", "-32603 internal error"},
		{"no JSON", "tools/call", always(replace(`{"a":}`)), "-32603 internal error", "-32603 internal error"},
		{"bad metadata", "tools/call", always(replace(`{"_meta":7}`)), "-32603 internal error", "-32603 internal error"},
		{"an error", "tools/call", always(fail(errors.New("secret"))), "-32603 internal error", "-32603 internal error"},
		{"a JSON-RPC error", "tools/call", always(fail(fmt.Errorf("no: %w", &jsonrpc.Error{Code: 1, Message: "not today"}))), "1 not today", "1 not today"},
		{"a part of the result", "tools/call", edit(func(r json.RawMessage) json.RawMessage { return r[:len(r):len(r)] }), echo("echo{}") + "}", echo("echo{}") + "," + tail},
		{"a larger result", "tools/call", edit(func(r json.RawMessage) json.RawMessage {
			return append(r[:len(r)-1], `,"x":"`+strings.Repeat("x", 99)+`"}`...)
		}),
			echo("echo{}") + `,"x":"` + strings.Repeat("x", 99) + `"}`, echo("echo{}") + `,"x":"` + strings.Repeat("x", 99) + `",` + tail},
		{"twice", "tools/call", func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				first, err := next(ctx, m)
				if err != nil {
					return nil, err
				}
				before := string(first)
				m.Params = json.RawMessage(`{"name":"other"}`)
				if _, err := next(ctx, m); err != nil {
					return nil, err
				}
				if string(first) != before {
					t.Errorf("the first result became %s", first)
				}
				return first, nil
			}
		}, echo("echo{}") + "}", echo("echo{}") + "," + tail},
		{"next called again with other params", "tools/call", func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if _, err := next(ctx, m); err != nil {
					return nil, err
				}
				m.Params = json.RawMessage(`{"name":"other"}`)
				return next(ctx, m)
			}
		}, echo("other{}") + "}", echo("other{}") + "," + tail},
		{"a list", "tools/list", always(replace(`{"tools":[]}`)), `{"tools":[]}`, `{"tools":[],"ttlMs":1000,"cacheScope":"private",` + tail},
		{"a list with hints", "tools/list", always(replace(`{"tools":[],"ttlMs":7,"cacheScope":"public"}`)), `{"tools":[],"ttlMs":7,"cacheScope":"public"}`,
			`{"tools":[],"ttlMs":7,"cacheScope":"public",` + tail},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mw := func(next middleware.Handler) middleware.Handler {
				h := tt.middleware(next)
				return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
					if m.Method != tt.method {
						return next(ctx, m)
					}
					return h(ctx, m)
				}
			}
			for revision, want := range map[string]string{"2025-06-18": tt.legacy, modern: tt.modern} {
				c := connect(t, echoing(t, mw), revision)
				for range 8 { // first on other goroutines, later on the reading goroutine
					got, err := c.call(t.Context(), tt.method, `{"name":"echo"}`)
					if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
						got = strings.Replace(fmt.Sprint(int(e.Code), " ", e.Message), "invalid params: ", "", 1)
					}
					if got != want {
						t.Fatalf("%s: got %s, want %s", revision, got, want)
					}
				}
			}
		})
	}
}

type contextKey struct{}

// TestMiddlewareContext shows that a handler gets the context that the middleware passes to next.
func TestMiddlewareContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var problems []string
		check := func(ok bool, what string) {
			if !ok {
				problems = append(problems, what)
			}
		}
		var inMiddleware *server.Call
		srv := with(t, &server.Options{Limits: server.Limits{HandlerTimeout: time.Hour}}, func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
			check(call == inMiddleware, "the Call of the middleware")
			inner, cancel := context.WithTimeout(ctx, 2*time.Hour)
			defer cancel()
			for _, ctx := range []context.Context{ctx, call, inner} {
				check(ctx.Value(contextKey{}) == "v", "the value")
				check(server.CallOf(ctx) == call, "the Call")
				r := rpc.RequestContext(ctx)
				check(r != nil && r == rpc.RequestContext(call), "the request's context")
				at, ok := ctx.Deadline()
				check(ok && time.Until(at) == time.Minute, "the deadline")
			}
			stopped := make(chan struct{})
			context.AfterFunc(ctx, func() { close(stopped) })
			<-stopped
			<-inner.Done()
			return nil, ctx.Err()
		})
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method != "tools/call" {
					return next(ctx, m)
				}
				inMiddleware = server.CallOf(ctx)
				check(inMiddleware != nil, "the Call in the middleware")
				_, has := ctx.Deadline()
				check(!has, "a deadline in the middleware")
				ctx, cancel := context.WithTimeout(context.WithValue(ctx, contextKey{}, "v"), time.Minute)
				defer cancel()
				return next(ctx, m)
			}
		})
		c := connect(t, srv, modern)
		for range 2 {
			if r, err := c.result("t", "{}"); err != nil || !r.IsError || !strings.Contains(r.Text, "deadline exceeded") {
				t.Errorf("got %+v, %v", r, err)
			}
		}
		if problems != nil {
			t.Errorf("missing: %q", problems)
		}
	})
}

func TestMiddlewareOrder(t *testing.T) {
	var got []string
	named := func(name string) middleware.Func {
		return func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				got = append(got, name+" in")
				defer func() { got = append(got, name+" out") }()
				return next(ctx, m)
			}
		}
	}
	srv := server.MustNew("test", "1", nil)
	srv.Use(named("a"), named("b"))
	srv.Use(named("c"))
	connect(t, srv, modern).must("server/discover", "{}")
	if diff := cmp.Diff([]string{"a in", "b in", "c in", "c out", "b out", "a out"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUseTooLate(t *testing.T) {
	srv := server.MustNew("test", "1", nil)
	connect(t, srv, modern).must("server/discover", "{}")
	for _, middleware := range []middleware.Func{passOn, nil} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Use did not panic")
				}
			}()
			if middleware == nil {
				srv = server.MustNew("test", "1", nil)
			}
			srv.Use(middleware)
		}()
	}
}

// TestMiddlewarePanic shows that a panic fails only its own message.
func TestMiddlewarePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := new(buffer.Buffer)
		var sent []error
		srv := with(t, &server.Options{Logger: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))},
			func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
				sent = append(sent, call.Progress(1, 0, ""))
				return nil, nil
			})
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				switch m.Method {
				case "tools/list", "notifications/roots/list_changed", "notifications/progress", "notifications/tools/list_changed":
					panic("at the disco")
				}
				return next(ctx, m)
			}
		})
		c := connect(t, srv, "2025-06-18")
		if _, err := c.call(t.Context(), "tools/list", "{}"); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("tools/list: %v", err)
		}
		if err := c.conn.Notify(t.Context(), "notifications/roots/list_changed", nil); err != nil {
			t.Fatal(err)
		}
		c.must("tools/call", `{"name":"t","_meta":{"progressToken":1}}`)
		if _, ok := errors.AsType[*jsonrpc.PanicError](sent[0]); !ok {
			t.Errorf("progress: %v, want a PanicError", sent[0])
		}
		addNumber(t, srv, 1)
		synctest.Wait()
		c.must("ping", "{}")
		if n := strings.Count(logged.String(), "at the disco"); n < 3 {
			t.Errorf("logged %d times:\n%s", n, logged)
		}
	})
}

// TestMiddlewareOutgoing checks that middleware can change and drop the server's messages.
func TestMiddlewareOutgoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := talkative(t, func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				switch m.Method {
				case "notifications/progress":
					m.Params = bytes.Replace(m.Params, []byte("half"), []byte("full"), 1)
				case "notifications/message":
					return nil, nil
				case "notifications/tools/list_changed":
					m.Params = json.RawMessage(`{"_meta":{"com.example/n":1}}`)
				}
				return next(ctx, m)
			}
		})
		c := connect(t, srv, "2025-06-18")
		c.must("tools/call", `{"name":"t","_meta":{"progressToken":1}}`)
		addNumber(t, srv, 1)
		synctest.Wait()
		want := []string{
			`notifications/progress {"progressToken":1,"progress":1,"total":2,"message":"full"}`,
			`notifications/tools/list_changed {"_meta":{"com.example/n":1}}`,
		}
		if diff := cmp.Diff(want, c.takeNotes()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestMiddlewarePipelined shows that pipelined messages are handled as without middleware, even if
// the middleware delays the handshake.
func TestMiddlewarePipelined(t *testing.T) {
	want := []string{`"id":1,"result"`, `"id":2,"result"`, `"id":3,"result"`}
	for _, tt := range []struct {
		name       string
		delay      time.Duration
		goroutines bool
	}{{"quick", 0, false}, {"slow", time.Second, false}, {"goroutines", 0, true}, {"goroutines, slow", time.Second, true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := server.MustNew("n", "1", &server.Options{Goroutines: tt.goroutines})
				addNumber(t, srv, 0)
				srv.Use(func(next middleware.Handler) middleware.Handler {
					return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
						if m.Method == "initialize" && tt.delay > 0 {
							<-time.After(tt.delay)
						}
						return next(ctx, m)
					}
				})
				local, remote := net.Pipe()
				served := make(chan error, 1)
				go func() { served <- srv.Serve(t.Context(), jsonrpc.NewFramer(remote, nil)) }()
				go local.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"ping"}
`))
				f := jsonrpc.NewFramer(local, nil)
				got := map[string]bool{}
				for range 3 {
					frame, err := f.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					for _, want := range want {
						if bytes.Contains(frame, []byte(want)) {
							got[want] = true
						}
					}
				}
				if len(got) != 3 {
					t.Errorf("got %v, want %q", got, want)
				}
				local.Close()
				<-served
			})
		})
	}
}

// onTools is a middleware for tools/call.
func onTools(f func(ctx context.Context, m *middleware.Message, next middleware.Handler) (json.RawMessage, error)) middleware.Func {
	return func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
			if m.Method != "tools/call" {
				return next(ctx, m)
			}
			return f(ctx, m, next)
		}
	}
}

// TestMiddlewareGivesUp shows that the response of a middleware is not sent before the handler has
// returned, because the request's memory is reused.
func TestMiddlewareGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ended := make(chan struct{}), false
		srv := with(t, nil, func(ctx context.Context, _ *server.Call) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			<-release
			ended = true
			return nil, nil
		})
		srv.Use(onTools(func(ctx context.Context, m *middleware.Message, next middleware.Handler) (json.RawMessage, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			go next(ctx, m)
			<-ctx.Done()
			return nil, jsonrpc.Errorf(504, "too slow")
		}))
		c := connect(t, srv, modern)
		answered := make(chan error, 1)
		go func() {
			_, err := c.tool("t", "{}")
			if !ended {
				t.Error("the response was sent while the handler ran")
			}
			answered <- err
		}()
		<-time.After(time.Minute)
		close(release)
		if err := <-answered; code(err) != 504 {
			t.Errorf("got %v", err)
		}
	})
}

// TestMiddlewareTooLate shows that next fails after the middleware has returned.
func TestMiddlewareTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		srv := with(t, nil, func(context.Context, *server.Call) (*mcp.CallToolResult, error) {
			ran++
			return nil, nil
		})
		received := 0
		if err := srv.OnNotification("com.example/n", func(context.Context, json.RawMessage) { received++ }); err != nil {
			t.Fatal(err)
		}
		late := make(chan error, 2)
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				go func() {
					<-time.After(time.Second)
					_, err := next(ctx, m)
					late <- err
				}()
				return json.RawMessage(`{"content":[]}`), nil
			}
		})
		c := connect(t, srv, modern)
		if _, err := c.tool("t", "{}"); err != nil {
			t.Fatal(err)
		}
		if err := c.conn.Notify(t.Context(), "com.example/n", nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-late; err == nil {
				t.Error("next did not fail after the middleware had returned")
			}
		}
		if ran+received > 0 {
			t.Errorf("%d handlers and %d functions ran", ran, received)
		}
	})
}

// TestMiddlewareHeartbeat shows that a middleware may use the Call while the handler runs, even if
// the call becomes a task.
func TestMiddlewareHeartbeat(t *testing.T) {
	for name, opts := range map[string]*server.Options{
		"request": {Limits: server.Limits{HandlerTimeout: time.Hour}},
		"task":    {Tasks: &server.TaskOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := server.MustNew("test", "1", opts)
				def := mcp.Tool{Name: "t"}
				if opts.Tasks != nil {
					def.Execution = &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}
				}
				if err := server.AddToolWith(srv, def, func(context.Context, empty) (string, error) {
					<-time.After(3 * time.Second)
					return "ok", nil
				}); err != nil {
					t.Fatal(err)
				}
				srv.Use(onTools(func(ctx context.Context, m *middleware.Message, next middleware.Handler) (json.RawMessage, error) {
					var beating sync.WaitGroup
					stop := make(chan struct{})
					beating.Go(func() {
						for i := 1; ; i++ {
							if server.CallOf(ctx).Name() != "t" || server.CallOf(ctx).Err() != nil {
								t.Errorf("tool %s, %v", server.CallOf(ctx).Name(), server.CallOf(ctx).Err())
							}
							server.CallOf(ctx).Progress(float64(i), 0, "")
							select {
							case <-stop:
								return
							case <-time.After(time.Second):
							}
						}
					})
					defer beating.Wait()
					defer close(stop)
					return next(context.WithValue(ctx, contextKey{}, "v"), m)
				}))
				c := connect(t, srv, modern)
				if _, err := c.call(t.Context(), "tools/call", `{"_meta":{"progressToken":1},"name":"t"}`); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := len(c.takeNotes()); opts.Tasks == nil && n < 3 {
					t.Errorf("%d heartbeats", n)
				}
				if err := srv.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
