package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// A witness is a middleware that notes what it sees: "> " is incoming, "< " outgoing.
type witness struct {
	mu    sync.Mutex
	lines []string
}

func (w *witness) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

func (w *witness) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

func (w *witness) middleware(next server.HandlerFunc) server.HandlerFunc {
	return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
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
		if m.Call != nil {
			line += fmt.Sprintf(" [%s %s]", m.Call.Revision(), m.Call.Name())
		}
		if p := m.Principal(); p.ID != "" {
			line += " by " + p.ID
		}
		w.note("%s", line)
		return next(ctx, m)
	}
}

// talkative returns a server whose tool t reports progress and logs, and which has middleware.
func talkative(t *testing.T, middleware ...server.Middleware) *server.Server {
	t.Helper()
	srv := with(t, nil, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		return nil, errors.Join(call.Progress(1, 2, "half"), call.Log(mcp.LevelError, "l", 7))
	})
	srv.Use(middleware...)
	return srv
}

func TestMiddlewareSeesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(witness)
		srv := talkative(t, w.middleware)
		ctx := server.WithPrincipal(context.Background(), &server.Principal{ID: "p"})

		c := connectIn(ctx, t, srv, "2025-06-18")
		synctest.Wait() // until the notification is through
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
		got := slices.DeleteFunc(w.take(), func(line string) bool { return line == "< notifications/tools/list_changed note by p" }) // for the legacy client
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("modern (-want +got):\n%s", diff)
		}
	})
}

// Questions to legacy clients are requests, and go through the chain like all others.
func TestMiddlewareSeesQuestions(t *testing.T) {
	w := new(witness)
	srv := with(t, nil, func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		got, err := call.Roots(ctx, "where")
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: fmt.Sprint(len(got))}}}, nil
	})
	answer := ""
	srv.Use(w.middleware, func(next server.HandlerFunc) server.HandlerFunc {
		return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
			if m.Method == "roots/list" {
				if answer == "pass" {
					return next(ctx, m)
				}
				return json.RawMessage(answer), nil
			}
			return next(ctx, m)
		}
	})
	near, far := net.Pipe()
	c := &client{t: t, revision: "2025-06-18", served: make(chan error, 1)}
	go func() { c.served <- srv.Serve(context.Background(), jsonrpc.NewFramer(far, nil)) }()
	c.conn = jsonrpc.NewConn(jsonrpc.NewFramer(near, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), &jsonrpc.Options{
		Handler: jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) ([]byte, error) {
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

// echoing returns a server whose raw tools echo and other say their name and arguments, and Call, context and deadline.
func echoing(t *testing.T, middleware server.Middleware) *server.Server {
	t.Helper()
	srv := server.New("test", "1", &server.Options{ListTTL: time.Second})
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
	replace := func(result string) server.HandlerFunc {
		return func(context.Context, *server.Message) (json.RawMessage, error) { return json.RawMessage(result), nil }
	}
	fail := func(err error) server.HandlerFunc {
		return func(context.Context, *server.Message) (json.RawMessage, error) { return nil, err }
	}
	params := func(params string) func(next server.HandlerFunc) server.HandlerFunc {
		return func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
				m.Params = json.RawMessage(params)
				return next(ctx, m)
			}
		}
	}
	edit := func(f func(json.RawMessage) json.RawMessage) func(next server.HandlerFunc) server.HandlerFunc {
		return func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
				result, err := next(ctx, m)
				return f(result), err
			}
		}
	}
	always := func(h server.HandlerFunc) func(next server.HandlerFunc) server.HandlerFunc {
		return func(server.HandlerFunc) server.HandlerFunc { return h }
	}
	for _, tt := range []struct {
		name           string
		method         string
		middleware     func(next server.HandlerFunc) server.HandlerFunc
		legacy, modern string // a result, or a code and what the message says
	}{
		{"nothing", "tools/call", passOn, echo("echo{}") + "}", echo("echo{}") + "," + tail},
		{"arguments", "tools/call", params("{\"name\":\"echo\",\n\"arguments\":{\"a\":1}}"), echo(`echo{\"a\":1}`) + "}", echo(`echo{\"a\":1}`) + "," + tail},
		{"another tool", "tools/call", params(`{"name":"other"}`), echo("other{}") + "}", echo("other{}") + "," + tail},
		{"no such tool", "tools/call", params(`{"name":"none"}`), "-32602 unknown tool: none", "-32602 unknown tool: none"},
		{"no params", "tools/call", params("null"), "-32602 params.name is missing", "-32602 params.name is missing"},
		{"bad params", "tools/call", params(`{"name"`), "-32603 internal error", "-32603 internal error"},
		{"an array for params", "tools/call", params(`[1]`), "-32603 internal error", "-32603 internal error"},
		{"a copy", "tools/call", func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
				other := *m
				other.Method, other.Params = "tools/list", json.RawMessage(`{"name":"other"}`)
				return next(ctx, &other)
			}
		}, echo("other{}") + "}", echo("other{}") + "," + tail},
		{"a Message of its own", "tools/call", func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
				return next(ctx, &server.Message{Method: m.Method, Params: m.Params})
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
		{"twice", "tools/call", func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
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
		{"second thoughts", "tools/call", func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
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
			mw := func(next server.HandlerFunc) server.HandlerFunc {
				h := tt.middleware(next)
				return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
					if m.Method != tt.method {
						return next(ctx, m)
					}
					return h(ctx, m)
				}
			}
			for revision, want := range map[string]string{"2025-06-18": tt.legacy, modern: tt.modern} {
				c := connect(t, echoing(t, mw), revision)
				for range 8 { // first on goroutines, then where the connection is read
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
