package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/middleware"
	"mcpwire/server"
)

// newTaskServer returns a server with tools that run as tasks.
func newTaskServer(func()) *server.Server {
	srv := server.MustNew("tasks", "1", &server.Options{Tasks: &server.TaskOptions{PollInterval: 50 * time.Millisecond, TTL: time.Minute}})
	var released, hanging, cancelled counter
	add := func(name string, support mcp.TaskSupport, fn func(c *server.Call) (string, error)) {
		def := mcp.Tool{Name: name, Execution: &mcp.ToolExecution{TaskSupport: support}}
		must(server.AddToolWith(srv, def, func(ctx context.Context, _ struct{}) (string, error) { return fn(server.CallOf(ctx)) }))
	}
	add("slow", mcp.TaskSupportOptional, func(c *server.Call) (string, error) { return "done", released.wait(c, 1) })
	add("quick", mcp.TaskSupportOptional, func(*server.Call) (string, error) { return "quick", nil })
	add("must", mcp.TaskSupportRequired, func(*server.Call) (string, error) { return "must", nil })
	add("fails", mcp.TaskSupportOptional, func(*server.Call) (string, error) { return "", errors.New("no luck") })
	add("refuses", mcp.TaskSupportOptional, func(*server.Call) (string, error) { return "", jsonrpc.Errorf(4711, "no") })
	add("panics", mcp.TaskSupportOptional, func(*server.Call) (string, error) { panic("boom") })
	add("asks", mcp.TaskSupportRequired, func(c *server.Call) (string, error) {
		roots, err := c.Roots(c, "roots")
		if err != nil {
			return "", err
		}
		to, err := server.Elicit[address](c, "to", "Where to?")
		if err != nil {
			return "", err
		}
		return roots[0].Name + " " + to.Value.Street, nil
	})
	hang := func(c *server.Call) (string, error) {
		hanging.add()
		<-c.Done()
		if c.Err() == context.Canceled { // canceled, not expired
			cancelled.add()
		}
		return "too late", nil
	}
	add("hangs", mcp.TaskSupportRequired, hang)
	add("may hang", mcp.TaskSupportOptional, hang)
	must(
		server.AddTool(srv, "release", "", func(context.Context, struct{}) (string, error) { released.add(); return "", nil }),
		server.AddTool(srv, "hanging", "", func(ctx context.Context, in struct{ N int }) (int, error) { return in.N, hanging.wait(ctx, in.N) }),
		server.AddTool(srv, "cancelled", "", func(ctx context.Context, in struct{ N int }) (int, error) { return in.N, cancelled.wait(ctx, in.N) }),
	)
	return srv
}

// newLateTaskServer is newTaskServer, but does not respond to a call of "may hang" until it is
// canceled.
func newLateTaskServer(crash func()) *server.Server {
	srv := newTaskServer(crash)
	srv.Use(func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
			result, err := next(ctx, m)
			if call := server.CallOf(ctx); call != nil && call.Name() == "may hang" {
				<-ctx.Done()
			}
			return result, err
		}
	})
	return srv
}

// withTasks makes a client support tasks and their input requests.
func withTasks(o *client.Options) {
	o.Tasks = true
	new(user).answers(o)
}

// start starts a tool, and checks that it has become a task if the revision has tasks.
func (s *subtest) start(c *client.Client, tool string, opts ...client.CallOption) *client.Task {
	s.Helper()
	task, err := c.StartTool(s.Context(), tool, nil, opts...)
	ok(s, "start "+tool, err)
	if (task.ID() != "") != hasTasks(s.features) {
		s.Errorf("start %s: got task %q", tool, task.ID())
	}
	return task
}

// wantResult waits for the end of a task, and checks its result.
func (s *subtest) wantResult(task *client.Task, want string) {
	s.Helper()
	res, err := task.Wait(s.timeoutContext())
	ok(s, "wait", err)
	same(s, "result", text(res), want)
	same(s, "status", task.State().Status, mcp.TaskStatusCompleted)
}

func TestTasks(t *testing.T) {
	testBehaviors(t, "tasks", []behavior{
		// Spec: T1 T58
		{name: "capabilities", test: func(s *subtest) {
			caps := s.dial(withTasks).Profile().Capabilities
			_, extension := caps.Extensions[mcp.ExtensionTasks]
			same(s, "extension", extension, s.Modern)
			same(s, "core", caps.Tasks != nil, s.CoreTasks)
		}},
		// Spec: T11 T18 T19 T40 T46
		{name: "a complete task", when: hasTasks, test: func(s *subtest) {
			c := s.dial(withTasks)
			var seen []mcp.TaskStatus
			task := s.start(c, "slow", client.WithTaskStatus(func(state client.TaskState) { seen = append(seen, state.Status) }))
			same(s, "status", task.State().Status, mcp.TaskStatusWorking)
			state, err := task.Poll(s.Context())
			ok(s, "poll", err)
			same(s, "state", []any{state.ID, state.Status, state.TTL, state.PollInterval}, []any{task.ID(), mcp.TaskStatusWorking, time.Minute, 50 * time.Millisecond})
			s.call(c, "release", nil)
			s.wantResult(task, "done")
			if !slices.Contains(seen, mcp.TaskStatusCompleted) {
				s.Errorf("got statuses %v", seen)
			}
			s.wantResult(c.Task(task.ID()), "done") // a second handle
			got, err := client.WaitTask[string](s.timeoutContext(), task)
			ok(s, "wait", err)
			same(s, "typed", got, "done")
		}, instead: func(s *subtest) {
			s.wantResult(s.start(s.dial(withTasks), "quick"), "quick")
		}},
		{name: "a call waits for its task", test: func(s *subtest) {
			c := s.dial(withTasks)
			for _, tool := range []string{"quick", "must"} {
				same(s, tool, s.call(c, tool, nil), tool)
			}
			same(s, "a tool without a task", s.call(c, "release", nil), "")
			task, err := c.StartTool(s.Context(), "release", nil)
			ok(s, "start", err)
			same(s, "started", task.ID(), "")
		}},
		// Spec: T5 T41 T42 T54
		{name: "a client without tasks", when: hasTasks, test: func(s *subtest) {
			if s.CoreTasks { // each call requests its task
				p := s.peer()
				p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"must"}`))
				p.Expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"$any":"$any"}}`)
				return
			}
			c := s.client()
			same(s, "quick", s.call(c, "quick", nil), "quick")
			_, err := c.CallTool(s.Context(), "must", nil)
			e := wantError(s, "must", err, mcp.CodeMissingRequiredClientCapability)
			same(s, "data", string(e.Data), `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)
			_, err = c.Task("x").Poll(s.Context())
			wantError(s, "poll", err, mcp.CodeMissingRequiredClientCapability)
		}, instead: func(s *subtest) {
			same(s, "must", s.call(s.client(), "must", nil), "must")
		}},
		// Spec: T47
		{name: "input requests of a task", when: hasTasks, test: func(s *subtest) {
			s.wantResult(s.start(s.dial(withTasks), "asks"), "home Main St 1")
		}, instead: func(s *subtest) {
			want := "home Main St 1"
			if !s.Elicitation {
				want = "error: the client has not declared a required capability: elicitation by form"
			}
			same(s, "asks", s.call(s.dial(withTasks), "asks", nil), want)
		}},
		// Spec: T30 T31 T50
		{name: "a canceled task", when: hasTasks, test: func(s *subtest) {
			c := s.dial(withTasks)
			task := s.start(c, "hangs")
			ok(s, "cancel", task.Cancel(s.Context()))
			s.call(c, "cancelled", object{"N": 1})
			if _, err := task.Wait(s.timeoutContext()); !errors.Is(err, client.ErrTaskCanceled) {
				s.Errorf("got %v", err)
			}
			state, err := c.Task(task.ID()).Poll(s.Context())
			ok(s, "poll", err)
			same(s, "status", state.Status, mcp.TaskStatusCancelled)
		}, instead: func(s *subtest) {
			wantError(s, "cancel", s.client().Task("x").Cancel(s.Context()), jsonrpc.CodeMethodNotFound)
		}},
		{name: "a canceled call cancels its task", test: func(s *subtest) {
			ctx, cancel := context.WithCancel(s.timeoutContext())
			defer cancel()
			c := s.dial(func(o *client.Options) {
				withTasks(o)
				o.Middleware = append(o.Middleware, func(next middleware.Handler) middleware.Handler {
					return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
						if m.Method == mcp.MethodTasksGet {
							cancel() // when the task exists
						}
						return next(ctx, m)
					}
				})
			})
			done := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, "hangs", nil)
				done <- err
			}()
			s.call(c, "hanging", object{"N": 1})
			if !hasTasks(s.features) {
				cancel()
			}
			if err := <-done; !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
			s.call(c, "cancelled", object{"N": 1})
		}},
		{name: "a call canceled before its response leaves no task", test: func(s *subtest) {
			ctx, cancel := context.WithCancel(s.timeoutContext())
			defer cancel()
			c := s.withServer("late").dial(withTasks)
			done := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, "may hang", nil)
				done <- err
			}()
			s.call(c, "hanging", object{"N": 1})
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
			s.call(c, "cancelled", object{"N": 1})
		}},
		{name: "a call canceled during its response leaves no task", when: hasTasks, test: func(s *subtest) {
			ctx, cancel := context.WithCancel(s.timeoutContext())
			defer cancel()
			returned := make(chan struct{})
			c := s.dial(func(o *client.Options) {
				withTasks(o)
				o.Trace = func(dir jsonrpc.Direction, message []byte) {
					if dir == jsonrpc.Incoming && strings.Contains(string(message), `"status":"working"`) {
						cancel()
						<-returned
					}
				}
			})
			_, err := c.CallTool(ctx, "hangs", nil)
			close(returned)
			if !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
			s.call(c, "cancelled", object{"N": 1})
		}, instead: func(s *subtest) { // a result is dropped
			same(s, "quick", s.call(s.dial(withTasks), "quick", nil), "quick")
		}},
		// Spec: T52
		{name: "failed tasks", test: func(s *subtest) {
			c := s.dial(withTasks)
			task := s.start(c, "fails")
			res, err := task.Wait(s.timeoutContext())
			ok(s, "fails", err)
			same(s, "fails", text(res), "error: no luck")
			want := mcp.TaskStatusCompleted
			if s.CoreTasks {
				want = mcp.TaskStatusFailed
			}
			same(s, "status", task.State().Status, want)
			for tool, code := range map[string]jsonrpc.Code{"refuses": 4711, "panics": jsonrpc.CodeInternalError} {
				task, err := c.StartTool(s.Context(), tool, nil)
				if hasTasks(s.features) {
					ok(s, tool, err)
					_, err = task.Wait(s.timeoutContext())
					same(s, "status", task.State().Status, mcp.TaskStatusFailed)
				}
				wantError(s, tool, err, code)
			}
		}},
		// Spec: T28
		{name: "a list of tasks", when: func(f *features) bool { return f.CoreTasks }, test: func(s *subtest) {
			c := s.dial(withTasks)
			var want, got []string
			for range 3 {
				want = append(want, s.start(c, "quick").ID())
			}
			for state, err := range c.Tasks(s.Context()) {
				ok(s, "list", err)
				got = append(got, state.ID)
			}
			same(s, "ids", got, want)
		}, instead: func(s *subtest) {
			for _, err := range s.dial(withTasks).Tasks(s.Context()) {
				if !errors.Is(err, errors.ErrUnsupported) {
					s.Errorf("got %v", err)
				}
			}
		}},
		// Spec: T32 T53
		{name: "an unknown task", when: hasTasks, test: func(s *subtest) {
			_, err := s.dial(withTasks).Task("x").Wait(s.timeoutContext())
			wantError(s, "wait", err, jsonrpc.CodeInvalidParams)
		}, instead: func(s *subtest) {
			_, err := s.dial(withTasks).Task("x").Poll(s.Context())
			wantError(s, "poll", err, jsonrpc.CodeMethodNotFound)
		}},
		// Spec: T59
		{name: "params of the other task design", when: func(f *features) bool { return f.CoreTasks }, test: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"slow","task":{"ttl":60000}}`))
			p.Expect(mcptest.Result(1, `{"task":{"taskId":"$id","status":"working","$any":"$any"}}`))
		}, instead: func(s *subtest) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"quick","task":{"ttl":60000}}`))
			p.Expect(mcptest.Result(1, `{"content":[{"type":"text","text":"quick"}],"$any":"$any"}`))
			for i, method := range []string{mcp.MethodTasksResult, mcp.MethodTasksList} {
				p.Send(mcptest.Request(s.revision, 2+i, method, `{"taskId":"x"}`))
				p.Expect(`{"jsonrpc":"2.0","id":` + fmt.Sprint(2+i) + `,"error":{"code":-32601,"$any":"$any"}}`)
			}
		}},
	})
}
