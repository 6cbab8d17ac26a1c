package matrix

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

// newCancelServer returns a server with a tool that waits for its cancellation, and tools that
// report it.
func newCancelServer(func()) *server.Server {
	srv := server.MustNew("cancel", "1", &server.Options{Limits: server.Limits{HandlerTimeout: time.Hour}})
	var begun, ended counter
	var after error
	type times struct {
		N int `json:"n"`
	}
	must(
		server.AddTool(srv, "hang", "", func(ctx context.Context, _ struct{}) (string, error) {
			begun.add()
			defer ended.add()
			<-ctx.Done()
			call := server.CallOf(ctx)
			after = errors.Join(call.Progress(1, 0, ""), call.Log(mcp.LevelEmergency, "", "too late"))
			return "too late", nil
		}),
		server.AddTool(srv, "begun", "", func(ctx context.Context, in times) (int, error) { return in.N, begun.wait(ctx, in.N) }),
		server.AddTool(srv, "ended", "", func(ctx context.Context, in times) (string, error) {
			err := ended.wait(ctx, in.N)
			return fmt.Sprint(errors.Is(after, jsonrpc.ErrRequestEnded)), err
		}),
	)
	return srv
}

// newTimeoutServer returns a server with a short timeout for handlers.
func newTimeoutServer(func()) *server.Server {
	srv := server.MustNew("timeout", "1", &server.Options{Limits: server.Limits{HandlerTimeout: time.Millisecond}})
	must(server.AddTool(srv, "hang", "", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}))
	return srv
}

var errCause = errors.New("cause of the cancellation")

func TestCancel(t *testing.T) {
	testBehaviors(t, "cancel", []behavior{
		// Spec: C40 C83
		{name: "the end of a context cancels the handler, and no message follows", test: func(s *subtest) {
			var w wire
			c := s.dial(w.record)
			ctx, cancel := context.WithCancelCause(s.Context())
			done := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, "hang", nil, client.WithProgress(func(*mcp.ProgressNotificationParams) { s.Error("got progress after the cancellation") }))
				done <- err
			}()
			s.call(c, "begun", object{"n": 1})
			cancel(errCause)
			if err := <-done; !errors.Is(err, errCause) || !errors.Is(err, context.Canceled) || client.IsServerError(err) {
				s.Errorf("got %v", err)
			}
			same(s, "the handler could not notify", s.call(c, "ended", object{"n": 1}), "true")
			ok(s, "ping", c.Ping(s.Context())) // messages of the call come before this response
			same(s, "cancellations", w.count("> ", mcp.NotificationCancelled, `"requestId":`), 1)
			same(s, "messages with the cause", w.count(errCause.Error()), 1)
			same(s, "late messages", w.count("< ", "too late")+w.count("< ", mcp.NotificationProgress), 0)
		}},
		{name: "a timeout cancels", test: func(s *subtest) {
			var w wire
			c := s.dial(w.record)
			_, err := c.CallTool(s.Context(), "hang", nil, client.WithTimeout(20*time.Millisecond))
			if e, is := errors.AsType[*client.TimeoutError](err); !is || e.Max || client.IsServerError(err) {
				s.Errorf("got %v", err)
			}
			same(s, "cancellations", w.count("> ", mcp.NotificationCancelled, `"requestId":`), 1)
		}},
		{name: "only one of two calls is canceled", test: func(s *subtest) {
			c := s.dial(nil)
			first, cancelFirst := context.WithCancel(s.Context())
			second, cancelSecond := context.WithCancel(s.Context())
			done := make(chan error)
			for _, ctx := range []context.Context{first, second} {
				go func() {
					_, err := c.CallTool(ctx, "hang", nil)
					done <- err
				}()
			}
			s.call(c, "begun", object{"n": 2})
			cancelFirst()
			if err := <-done; !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
			s.call(c, "ended", object{"n": 1})
			select {
			case err := <-done:
				s.Errorf("the second call ended too: %v", err)
			default:
			}
			cancelSecond()
			if err := <-done; !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
			s.call(c, "ended", object{"n": 2})
		}},
		// Spec: S51 S55
		{name: "cancellations without a request", test: func(s *subtest) {
			p := s.peer()
			for _, id := range []string{`99`, `"1"`, `null`, `1.5`} {
				p.Send(mcptest.Notification(mcp.NotificationCancelled, `{"requestId":`+id+`}`))
			}
			p.Send(mcptest.Notification(mcp.NotificationCancelled, ""))
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"hang"}`))
			p.Send(mcptest.Request(s.revision, 2, mcp.MethodToolsCall, `{"name":"begun","arguments":{"n":1}}`))
			p.Expect(mcptest.Result(2, `"$any"`))
			p.Send(mcptest.Notification(mcp.NotificationCancelled, `{"requestId":1}`))
			p.Send(mcptest.Notification(mcp.NotificationCancelled, `{"requestId":1}`))
			p.Send(mcptest.Request(s.revision, 3, mcp.MethodToolsCall, `{"name":"ended","arguments":{"n":1}}`))
			p.Expect(mcptest.Result(3, `"$any"`)) // no response with the id 1
		}},
		{name: "a handler times out", test: func(s *subtest) {
			c := s.withServer("timeout").dial(nil)
			same(s, "result", s.call(c, "hang", nil), "error: tool hang did not finish within 1ms")
		}},
	})
}
