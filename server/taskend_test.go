package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

type taskFunc = func(ctx context.Context, call *server.Call) (string, error)

// addTaskTool registers a tool that can run as a task.
func addTaskTool(t testing.TB, srv *server.Server, name string, fn taskFunc) {
	t.Helper()
	def := mcp.Tool{Name: name, Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}
	if err := server.AddToolWith(srv, def, func(ctx context.Context, _ struct{}) (string, error) { return fn(ctx, server.CallOf(ctx)) }); err != nil {
		t.Fatal(err)
	}
}

// TestTaskExits sees that a handler which ends its goroutine fails its task, or its request, and nothing else.
func TestTaskExits(t *testing.T) {
	for _, revision := range []string{coreTasks, modern} {
		inBubble(t, func(t *testing.T) {
			srv := newTaskServer(t, server.TaskOptions{})
			addTaskTool(t, srv, "exits", func(context.Context, *server.Call) (string, error) { runtime.Goexit(); return "", nil })
			c := dialTasks(t, srv, revision, "")
			id := c.start("exits", "").TaskID
			synctest.Wait()
			if got := c.get(id); got.Status != "failed" {
				t.Errorf("%s: got %+v", revision, got)
			}
		})
	}
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{After: time.Second})
		addTaskTool(t, srv, "exits", func(context.Context, *server.Call) (string, error) { runtime.Goexit(); return "", nil })
		c := dialTasks(t, srv, modern, "")
		if got, err := c.call("tools/call", `"name":"exits"`); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("answered directly: got %s, %v", got, err)
		}
	})
}

// TestTaskOfCancelledRequest sees that no task is made for a request that was cancelled, though the handler goes on.
func TestTaskOfCancelledRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore()}
		srv := newTaskServer(t, server.TaskOptions{After: time.Second, Store: store})
		addTaskTool(t, srv, "stubborn", func(ctx context.Context, _ *server.Call) (string, error) {
			<-ctx.Done()
			elapse(time.Minute)
			return "", nil
		})
		c := dialTasks(t, srv, modern, "")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		if _, err := c.conn.Call(ctx, "tools/call", []byte(`{`+extensionMeta+`,"name":"stubborn"}`)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		elapse(2 * time.Minute)
		if n := store.created.Load(); n != 0 {
			t.Errorf("made %d tasks", n)
		}
	})
}

// TestTaskWithoutPlace sees that a tool which cannot become a task is waited for.
func TestTaskWithoutPlace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{After: time.Second, MaxTasks: 1}), modern, "")
		c.start("slow", "")
		if got, err := c.call("tools/call", `"name":"slow"`); err != nil || !strings.Contains(got, `"text":"done"`) {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

// TestTaskMiddlewareEndsFirst sees that the context of a middleware counts until there is a task.
func TestTaskMiddlewareEndsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{After: time.Minute})
		srv.Use(func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return next(ctx, m)
			}
		})
		c := dialTasks(t, srv, modern, "")
		began := time.Now()
		got, err := c.call("tools/call", `"name":"slow"`)
		if waited := time.Since(began); err != nil || !strings.Contains(got, `"isError":true`) || waited != time.Second {
			t.Errorf("after %v: got %s, %v", waited, got, err)
		}
	})
}

// TestTaskMiddlewareRepeats sees that a call which has become a task is not made again: its handler is running.
func TestTaskMiddlewareRepeats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{})
		var again error
		srv.Use(func(next server.HandlerFunc) server.HandlerFunc {
			return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
				result, err := next(ctx, m)
				if m.Method == mcp.MethodToolsCall {
					_, again = next(ctx, m)
				}
				return result, err
			}
		})
		c := dialTasks(t, srv, coreTasks, "")
		id := c.start("slow", "").TaskID
		if again == nil {
			t.Error("the handler was run again")
		}
		elapse(10 * time.Second)
		synctest.Wait()
		if got := c.get(id); got.Status != "completed" {
			t.Errorf("got %+v", got)
		}
	})
}

// TestTaskClose sees that Close waits for a call that is about to become a task, and that its handler's context has ended.
func TestTaskClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore(), creating: make(chan struct{})}
		srv := newTaskServer(t, server.TaskOptions{Store: store})
		var ended atomic.Bool
		addTaskTool(t, srv, "waits", func(ctx context.Context, _ *server.Call) (string, error) {
			<-ctx.Done()
			elapse(time.Second)
			ended.Store(true)
			return "", ctx.Err()
		})
		c := dialTasks(t, srv, modern, "")
		answered := make(chan error, 1)
		go func() {
			_, err := c.call("tools/call", `"name":"waits"`)
			answered <- err
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- srv.Close(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("closed before the task was made: %v", err)
		default:
			close(store.creating)
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
		err := <-answered
		if err == nil && !ended.Load() {
			t.Error("the handler is still there")
		}
		if _, err := c.call("tools/call", `"name":"waits"`); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("after Close: got %v", err)
		}
	})
}

// TestTaskOfSessionForgotten sees that nothing is kept of a session whose tasks nobody can ask for any more.
func TestTaskOfSessionForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore()}
		srv := newTaskServer(t, server.TaskOptions{Store: store})
		ids := make(map[string]string)
		for _, principal := range []string{"", "ann"} {
			c := dialTasks(t, srv, coreTasks, principal)
			ids[principal] = c.start("quick", "").TaskID
			synctest.Wait()
			c.conn.Close()
			synctest.Wait()
		}
		if _, err := store.Task(context.Background(), ids[""]); !errors.Is(err, server.ErrTaskNotFound) {
			t.Errorf("got %v", err)
		}
		if _, err := store.Task(context.Background(), ids["ann"]); err != nil {
			t.Error(err)
		}
	})
}
