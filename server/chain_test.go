package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
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

type contextKey struct{}

// A handler runs in the context that the middleware passed on.
func TestMiddlewareContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var problems []string
		check := func(ok bool, what string) {
			if !ok {
				problems = append(problems, what)
			}
		}
		srv := with(t, &server.Options{HandlerTimeout: time.Hour}, func(ctx context.Context, call *server.Call) (*mcp.CallToolResult, error) {
			inner, cancel := context.WithTimeout(ctx, 2*time.Hour)
			defer cancel()
			for _, ctx := range []context.Context{ctx, call, inner} {
				check(ctx.Value(contextKey{}) == "v", "the value")
				check(server.CallOf(ctx) == call, "the Call")
				check(jsonrpc.RequestContext(ctx) == &call.Context, "the request's context")
				at, ok := ctx.Deadline()
				check(ok && time.Until(at) == time.Minute, "the deadline")
			}
			stopped := make(chan struct{})
			context.AfterFunc(ctx, func() { close(stopped) })
			<-stopped
			<-inner.Done()
			return nil, ctx.Err()
		})
		srv.Use(func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
				if m.Method != "tools/call" {
					return next(ctx, m)
				}
				check(server.CallOf(ctx) == m.Call && m.Call != nil, "the Call in the middleware")
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
	named := func(name string) server.Middleware {
		return func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
				got = append(got, name+" in")
				defer func() { got = append(got, name+" out") }()
				return next(ctx, m)
			}
		}
	}
	srv := server.New("test", "1", nil)
	srv.Use(named("a"), named("b"))
	srv.Use(named("c"))
	connect(t, srv, modern).must("server/discover", "{}")
	if diff := cmp.Diff([]string{"a in", "b in", "c in", "c out", "b out", "a out"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUseTooLate(t *testing.T) {
	srv := server.New("test", "1", nil)
	connect(t, srv, modern).must("server/discover", "{}")
	for _, middleware := range []server.Middleware{passOn, nil} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Use did not panic")
				}
			}()
			if middleware == nil {
				srv = server.New("test", "1", nil)
			}
			srv.Use(middleware)
		}()
	}
}

// TestMiddlewarePanic: a panic fails one message.
func TestMiddlewarePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := new(lockedBuffer)
		var sent []error
		srv := with(t, &server.Options{Logger: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))},
			func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
				sent = append(sent, call.Progress(1, 0, ""))
				return nil, nil
			})
		srv.Use(func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
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

// A lockedBuffer is a log that many write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestMiddlewareOutgoing: what the server sends can be changed and held back.
func TestMiddlewareOutgoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := talkative(t, func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
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

// TestMiddlewarePipelined: a client that sends everything at once is understood as without
// middleware, also if that takes its time at the handshake: what is in place is decided when it
// arrives.
func TestMiddlewarePipelined(t *testing.T) {
	want := []string{`"id":1,"result"`, `"id":2,"result"`, `"id":3,"result"`}
	for _, tt := range []struct {
		name       string
		delay      time.Duration
		goroutines bool
	}{{"quick", 0, false}, {"slow", time.Second, false}, {"goroutines", 0, true}, {"goroutines, slow", time.Second, true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := server.New("n", "1", &server.Options{Goroutines: tt.goroutines})
				addNumber(t, srv, 0)
				srv.Use(func(next server.HandlerFunc) server.HandlerFunc {
					return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
						if m.Method == "initialize" && tt.delay > 0 {
							<-time.After(tt.delay)
						}
						return next(ctx, m)
					}
				})
				near, far := net.Pipe()
				served := make(chan error, 1)
				go func() { served <- srv.Serve(t.Context(), jsonrpc.NewFramer(far, nil)) }()
				go near.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"ping"}
`))
				f := jsonrpc.NewFramer(near, nil)
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
				near.Close()
				<-served
			})
		})
	}
}
