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

// newCancelServer returns a server with a tool that waits for its cancellation, and others that
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

// newBriefServer gives its handlers no time.
func newBriefServer(func()) *server.Server {
	srv := server.MustNew("brief", "1", &server.Options{Limits: server.Limits{HandlerTimeout: time.Millisecond}})
	must(server.AddTool(srv, "hang", "", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}))
	return srv
}

var errBored = errors.New("nobody wants it any more")

func TestCancel(t *testing.T) {
	try(t, "cancel", []behavior{
		// Spec: C40 C83
		{name: "the end of a context ends the handler, and nothing comes after it", test: func(s *scene) {
			var w wire
			c := s.dial(w.record)
			ctx, cancel := context.WithCancelCause(s.Context())
			done := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, "hang", nil, client.WithProgress(func(*mcp.ProgressNotificationParams) { s.Error("progress after the end") }))
				done <- err
			}()
			s.call(c, "begun", object{"n": 1})
			cancel(errBored)
			if err := <-done; !errors.Is(err, errBored) || !errors.Is(err, context.Canceled) || client.IsPeer(err) {
				s.Errorf("got %v", err)
			}
			same(s, "the handler could not notify", s.call(c, "ended", object{"n": 1}), "true")
			ok(s, "ping", c.Ping(s.Context())) // whatever comes in answer to the call is here before this is answered
			same(s, "cancellations", w.count("> ", mcp.NotificationCancelled, `"requestId":`), 1)
			same(s, "causes, which are no business of the server's", w.count(errBored.Error()), 0)
			same(s, "late messages", w.count("< ", "too late")+w.count("< ", mcp.NotificationProgress), 0)
		}},
		{name: "a timeout cancels", test: func(s *scene) {
			var w wire
			c := s.dial(w.record)
			_, err := c.CallTool(s.Context(), "hang", nil, client.WithTimeout(20*time.Millisecond))
			if e, is := errors.AsType[*client.TimeoutError](err); !is || e.Max || client.IsPeer(err) {
				s.Errorf("got %v", err)
			}
			same(s, "cancellations", w.count("> ", mcp.NotificationCancelled, `"requestId":`), 1)
		}},
		{name: "only the call that is meant is cancelled", test: func(s *scene) {
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
				s.Errorf("the second ended too: %v", err)
			default:
			}
			cancelSecond()
			if err := <-done; !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
			s.call(c, "ended", object{"n": 2})
		}},
		// Spec: S51 S55
		{name: "cancellations of what there is not", test: func(s *scene) {
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
			p.Expect(mcptest.Result(3, `"$any"`)) // and nothing under 1
		}},
		{name: "a handler's time is up", test: func(s *scene) {
			c := s.another("brief").dial(nil)
			same(s, "result", s.call(c, "hang", nil), "error: tool hang did not finish within 1ms")
		}},
	})
}
