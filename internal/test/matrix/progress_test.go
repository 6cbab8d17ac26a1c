package matrix

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

// newProgressServer returns a server whose tools report progress and log messages.
func newProgressServer(func()) *server.Server {
	srv := server.MustNew("progress", "1", nil)
	must(
		server.AddTool(srv, "steps", "", func(ctx context.Context, in struct {
			N     int           `json:"n"`
			Every time.Duration `json:"every,omitempty"`
		}) (string, error) {
			call := server.CallOf(ctx)
			for i := range in.N {
				if in.Every > 0 {
					select {
					case <-time.After(in.Every):
					case <-ctx.Done():
						return "", ctx.Err()
					}
				}
				if err := call.Progress(float64(i+1), float64(in.N), fmt.Sprint("step ", i+1)); err != nil {
					return "", err
				}
			}
			return "done", nil
		}),
		server.AddTool(srv, "logs", "", func(ctx context.Context, _ struct{}) (string, error) {
			call := server.CallOf(ctx)
			for _, level := range []mcp.LoggingLevel{mcp.LevelDebug, mcp.LevelInfo, mcp.LevelWarning, mcp.LevelError} {
				if err := call.Log(level, "shelf", object{"level": level.String()}); err != nil {
					return "", err
				}
			}
			return "logged", nil
		}),
		server.AddTool(srv, "wants", "", func(ctx context.Context, _ struct{}) (string, error) {
			return fmt.Sprint(server.CallOf(ctx).WantsProgress()), nil
		}),
	)
	return srv
}

// logged calls the tool "logs" and returns the levels of the log messages.
func (s *subtest) logged(c *client.Client, level mcp.LoggingLevel) (levels []string) {
	s.Helper()
	got := s.call(c, "logs", nil, client.WithLog(level, func(p *mcp.LoggingMessageNotificationParams) {
		levels = append(levels, p.Level.String())
		if want := fmt.Sprintf(`{"level":%q}`, p.Level); string(p.Data) != want || p.Logger != "shelf" {
			s.Errorf("got %+v", p)
		}
	}))
	same(s, "result", got, "logged")
	return levels
}

func TestProgress(t *testing.T) {
	testBehaviors(t, "progress", []behavior{
		// Spec: S59
		{name: "progress comes before the result", test: func(s *subtest) {
			var got, want []string
			for i := range 5 {
				message := ""
				if s.ProgressMessage {
					message = fmt.Sprint("step ", i+1)
				}
				want = append(want, fmt.Sprint(i+1, " of 5 ", message))
			}
			res := s.call(s.client(), "steps", object{"n": 5}, client.WithProgress(func(p *mcp.ProgressNotificationParams) {
				got = append(got, fmt.Sprint(p.Progress, " of ", *p.Total, " ", p.Message))
			}))
			same(s, "result", res, "done")
			same(s, "progress", got, want)
		}},
		{name: "a call without a progress token", test: func(s *subtest) {
			var w wire
			c := s.dial(w.record)
			same(s, "result", s.call(c, "steps", object{"n": 5}), "done")
			same(s, "wants progress", s.call(c, "wants", nil), "false")
			same(s, "notifications", w.count(mcp.NotificationProgress), 0)
		}},
		// Spec: C85
		{name: "each call has its own progress", test: func(s *subtest) {
			c, results := s.client(), make(chan string)
			for n := range 8 {
				go func() {
					last := 0.0
					text, err := client.CallTool[string](s.Context(), c, "steps", object{"n": n + 1}, client.WithProgress(func(p *mcp.ProgressNotificationParams) {
						if last++; p.Progress != last || *p.Total != float64(n+1) {
							s.Errorf("call %d: got %v of %v, want %v", n, p.Progress, *p.Total, last)
						}
					}))
					if int(last) != n+1 || err != nil {
						text = fmt.Sprint(last, err)
					}
					results <- text
				}()
			}
			for range 8 {
				same(s, "result", <-results, "done")
			}
		}},
		{name: "log messages of a level", test: func(s *subtest) {
			same(s, "levels from warning", s.logged(s.client(), mcp.LevelWarning), []string{"warning", "error"})
			same(s, "levels from debug", s.logged(s.client(), mcp.LevelDebug), []string{"debug", "info", "warning", "error"})
		}},
		// Spec: S161
		{name: "a call without a log level", when: modern, test: func(s *subtest) {
			var w wire
			same(s, "result", s.call(s.dial(w.record), "logs", nil), "logged")
			same(s, "messages", w.count(mcp.NotificationMessage), 0)
		}, instead: func(s *subtest) { // all messages are sent until a level is set
			var w wire
			c := s.dial(w.record)
			same(s, "result", s.call(c, "logs", nil), "logged")
			same(s, "messages", w.count(mcp.NotificationMessage), 4)
		}},
		{name: "a level for the session", when: legacy, test: func(s *subtest) {
			c := s.dial(nil)
			ok(s, "set level", c.SetLevel(s.Context(), mcp.LevelError))
			same(s, "levels from debug", s.logged(c, mcp.LevelDebug), []string{"error"})
		}, instead: func(s *subtest) {
			if err := s.client().SetLevel(s.Context(), mcp.LevelError); !errors.Is(err, errors.ErrUnsupported) {
				s.Errorf("got %v", err)
			}
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodSetLevel, `{"level":"error"}`))
			p.Expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"$any":"$any"}}`)
		}},
		// Spec: S60 S61
		{name: "progress messages come before the response", test: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, s.withMeta(`"progressToken":"t"`, `"name":"steps","arguments":{"n":1}`)))
			message := ""
			if s.ProgressMessage {
				message = `,"message":"step 1"`
			}
			p.Expect(mcptest.Notification(mcp.NotificationProgress, `{"progressToken":"t","progress":1,"total":1`+message+`}`))
			p.Expect(mcptest.Result(1, `{"content":["$any"],"$any":"$any"}`))
		}},

		{name: "progress restarts the timeout", bubbleOnly: true, test: func(s *subtest) {
			began, n := time.Now(), 0
			got := s.call(s.client(), "steps", object{"n": 10, "every": int64(time.Second)}, client.WithTimeout(1500*time.Millisecond),
				client.WithProgress(func(*mcp.ProgressNotificationParams) { n++ }))
			same(s, "result", got, "done")
			same(s, "notifications", n, 10)
			same(s, "time", time.Since(began), 10*time.Second)
		}},
		{name: "a timeout without a progress handler", bubbleOnly: true, test: func(s *subtest) {
			s.timesOut(1500*time.Millisecond, false, client.WithTimeout(1500*time.Millisecond))
		}},
		{name: "progress does not extend the maximum timeout", bubbleOnly: true, test: func(s *subtest) {
			s.timesOut(4500*time.Millisecond, true, client.WithTimeout(1500*time.Millisecond), client.WithTotalTimeout(4500*time.Millisecond),
				client.WithProgress(func(*mcp.ProgressNotificationParams) {}))
		}},
	})
}

// timesOut calls a tool that takes longer than a timeout. whole means the maximum timeout.
func (s *subtest) timesOut(after time.Duration, whole bool, opts ...client.CallOption) {
	s.Helper()
	began := time.Now()
	_, err := s.client().CallTool(s.Context(), "steps", object{"n": 10, "every": int64(time.Second)}, opts...)
	e, is := errors.AsType[*client.TimeoutError](err)
	if !is || e.After != after || e.Max != whole || client.IsServerError(err) || !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("got %v", err)
	}
	same(s, "time", time.Since(began), after)
}

// withMeta returns the params of a request with members of _meta, and those that each request of
// the revision must have.
func (s *subtest) withMeta(meta, members string) string {
	if s.Modern {
		meta += `,"io.modelcontextprotocol/protocolVersion":"` + s.revision.String() + `","io.modelcontextprotocol/clientCapabilities":{}`
	}
	return `{"_meta":{` + meta + `},` + members + `}`
}
