package server_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// onTools is a middleware for tools/call.
func onTools(f func(ctx context.Context, m *server.Message, next server.HandlerFunc) (json.RawMessage, error)) server.Middleware {
	return func(next server.HandlerFunc) server.HandlerFunc {
		return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
			if m.Method != "tools/call" {
				return next(ctx, m)
			}
			return f(ctx, m, next)
		}
	}
}

// TestMiddlewareGivesUp: a middleware that answers before the handler has returned is waited for, as the memory of the request is used again.
func TestMiddlewareGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ended := make(chan struct{}), false
		srv := with(t, nil, func(ctx context.Context, _ *server.Call) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			<-release
			ended = true
			return nil, nil
		})
		srv.Use(onTools(func(ctx context.Context, m *server.Message, next server.HandlerFunc) (json.RawMessage, error) {
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
				t.Error("the request was answered while its handler ran")
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

// TestMiddlewareTooLate: next fails when the middleware has returned.
func TestMiddlewareTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		srv := with(t, nil, func(context.Context, *server.Call) (*mcp.CallToolResult, error) {
			ran++
			return nil, nil
		})
		heard := 0
		if err := srv.OnNotification("com.example/n", func(context.Context, json.RawMessage) { heard++ }); err != nil {
			t.Fatal(err)
		}
		late := make(chan error, 2)
		srv.Use(func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
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
				t.Error("next was called too late and did not fail")
			}
		}
		if ran+heard > 0 {
			t.Errorf("%d handlers and %d functions ran", ran, heard)
		}
	})
}

// TestMiddlewareHeartbeat: a middleware may use the Call while the handler runs, also if that becomes a task.
func TestMiddlewareHeartbeat(t *testing.T) {
	for name, opts := range map[string]*server.Options{
		"request": {HandlerTimeout: time.Hour},
		"task":    {Tasks: &server.TaskOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := server.New("test", "1", opts)
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
				srv.Use(onTools(func(ctx context.Context, m *server.Message, next server.HandlerFunc) (json.RawMessage, error) {
					var beating sync.WaitGroup
					stop := make(chan struct{})
					beating.Go(func() {
						for i := 1; ; i++ {
							if m.Call.Name() != "t" || m.Call.Err() != nil {
								t.Errorf("tool %s, %v", m.Call.Name(), m.Call.Err())
							}
							m.Call.Progress(float64(i), 0, "")
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
