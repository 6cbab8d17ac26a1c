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

// newTaskServer has tools that run as tasks.
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
		to, err := server.Elicit[delivery](c, "to", "Where to?")
		if err != nil {
			return "", err
		}
		return roots[0].Name + " " + to.Value.Street, nil
	})
	hang := func(c *server.Call) (string, error) {
		hanging.add()
		<-c.Done()
		if c.Err() == context.Canceled { // not because its time is up
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

// newLateTaskServer is newTaskServer, but does not answer the call of one tool before it is given
// up.
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

// taking has a client take tasks, and answer what they ask.
func taking(o *client.Options) {
	o.Tasks = true
	new(user).answers(o)
}

// start starts a tool that must become a task, or must not.
func (s *scene) start(c *client.Client, tool string, opts ...client.CallOption) *client.Task {
	s.Helper()
	task, err := c.StartTool(s.Context(), tool, nil, opts...)
	ok(s, "start "+tool, err)
	if (task.ID() != "") != hasTasks(s.features) {
		s.Errorf("start %s: task %q", tool, task.ID())
	}
	return task
}

// finishes waits for the end of a task that has a result.
func (s *scene) finishes(task *client.Task, want string) {
	s.Helper()
	res, err := task.Wait(s.soon())
	ok(s, "wait", err)
	same(s, "result", text(res), want)
	same(s, "status", task.State().Status, mcp.TaskStatusCompleted)
}

func TestTasks(t *testing.T) {
	try(t, "tasks", []behavior{
		// Spec: T1 T58
		{name: "who has tasks says so", test: func(s *scene) {
			caps := s.dial(taking).Profile().Capabilities
			_, extension := caps.Extensions[mcp.ExtensionTasks]
			same(s, "extension", extension, s.Modern)
			same(s, "core", caps.Tasks != nil, s.CoreTasks)
		}},
		// Spec: T11 T18 T19 T40 T46
		{name: "a task from its beginning to its end", when: hasTasks, test: func(s *scene) {
			c := s.dial(taking)
			var seen []mcp.TaskStatus
			task := s.start(c, "slow", client.WithTaskStatus(func(state client.TaskState) { seen = append(seen, state.Status) }))
			same(s, "status", task.State().Status, mcp.TaskStatusWorking)
			state, err := task.Poll(s.Context())
			ok(s, "poll", err)
			same(s, "state", []any{state.ID, state.Status, state.TTL, state.PollInterval}, []any{task.ID(), mcp.TaskStatusWorking, time.Minute, 50 * time.Millisecond})
			s.call(c, "release", nil)
			s.finishes(task, "done")
			if !slices.Contains(seen, mcp.TaskStatusCompleted) {
				s.Errorf("was told %v", seen)
			}
			s.finishes(c.Task(task.ID()), "done") // another handle on it
			got, err := client.WaitTask[string](s.soon(), task)
			ok(s, "wait", err)
			same(s, "typed", got, "done")
		}, instead: func(s *scene) {
			s.finishes(s.start(s.dial(taking), "quick"), "quick")
		}},
		{name: "a call waits for its task", test: func(s *scene) {
			c := s.dial(taking)
			for _, tool := range []string{"quick", "must"} {
				same(s, tool, s.call(c, tool, nil), tool)
			}
			same(s, "a tool that is no task", s.call(c, "release", nil), "")
			task, err := c.StartTool(s.Context(), "release", nil)
			ok(s, "start", err)
			same(s, "started", task.ID(), "")
		}},
		// Spec: T5 T41 T42 T54
		{name: "a client that takes no tasks", when: hasTasks, test: func(s *scene) {
			if s.CoreTasks { // it is the one call that takes none
				p := s.peer()
				p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"must"}`))
				p.Expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"$any":"$any"}}`)
				return
			}
			c := s.client()
			same(s, "quick", s.call(c, "quick", nil), "quick")
			_, err := c.CallTool(s.Context(), "must", nil)
			e := refused(s, "must", err, mcp.CodeMissingRequiredClientCapability)
			same(s, "data", string(e.Data), `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)
			_, err = c.Task("x").Poll(s.Context())
			refused(s, "poll", err, mcp.CodeMissingRequiredClientCapability)
		}, instead: func(s *scene) {
			same(s, "must", s.call(s.client(), "must", nil), "must")
		}},
		// Spec: T47
		{name: "questions of a task", when: hasTasks, test: func(s *scene) {
			s.finishes(s.start(s.dial(taking), "asks"), "home Main St 1")
		}, instead: func(s *scene) {
			want := "home Main St 1"
			if !s.Elicitation {
				want = "error: the client has not declared a required capability: elicitation by form"
			}
			same(s, "asks", s.call(s.dial(taking), "asks", nil), want)
		}},
		// Spec: T30 T31 T50
		{name: "a task is cancelled", when: hasTasks, test: func(s *scene) {
			c := s.dial(taking)
			task := s.start(c, "hangs")
			ok(s, "cancel", task.Cancel(s.Context()))
			s.call(c, "cancelled", object{"N": 1})
			if _, err := task.Wait(s.soon()); !errors.Is(err, client.ErrTaskCanceled) {
				s.Errorf("got %v", err)
			}
			state, err := c.Task(task.ID()).Poll(s.Context())
			ok(s, "poll", err)
			same(s, "status", state.Status, mcp.TaskStatusCancelled)
		}, instead: func(s *scene) {
			refused(s, "cancel", s.client().Task("x").Cancel(s.Context()), jsonrpc.CodeMethodNotFound)
		}},
		{name: "a call that is given up cancels its task", test: func(s *scene) {
			ctx, giveUp := context.WithCancel(s.soon())
			defer giveUp()
			c := s.dial(func(o *client.Options) {
				taking(o)
				o.Middleware = append(o.Middleware, func(next middleware.Handler) middleware.Handler {
					return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
						if m.Method == mcp.MethodTasksGet {
							giveUp() // not before there is a task: else there may never be one
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
				giveUp()
			}
			if err := <-done; !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
			s.call(c, "cancelled", object{"N": 1})
		}},
		{name: "a call that is given up before it is answered leaves no task", test: func(s *scene) {
			ctx, giveUp := context.WithCancel(s.soon())
			defer giveUp()
			c := s.another("late").dial(taking)
			done := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, "may hang", nil)
				done <- err
			}()
			s.call(c, "hanging", object{"N": 1})
			giveUp()
			if err := <-done; !errors.Is(err, context.Canceled) {
				s.Errorf("got %v", err)
			}
			s.call(c, "cancelled", object{"N": 1})
		}},
		{name: "a call that is given up while its answer arrives leaves no task", when: hasTasks, test: func(s *scene) {
			ctx, giveUp := context.WithCancel(s.soon())
			defer giveUp()
			returned := make(chan struct{})
			c := s.dial(func(o *client.Options) {
				taking(o)
				o.Trace = func(dir jsonrpc.Direction, message []byte) {
					if dir == jsonrpc.Incoming && strings.Contains(string(message), `"status":"working"`) {
						giveUp()
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
		}, instead: func(s *scene) { // a result is dropped
			same(s, "quick", s.call(s.dial(taking), "quick", nil), "quick")
		}},
		// Spec: T52
		{name: "tasks that fail", test: func(s *scene) {
			c := s.dial(taking)
			task := s.start(c, "fails")
			res, err := task.Wait(s.soon())
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
					_, err = task.Wait(s.soon())
					same(s, "status", task.State().Status, mcp.TaskStatusFailed)
				}
				refused(s, tool, err, code)
			}
		}},
		// Spec: T28
		{name: "a list of tasks", when: func(f *features) bool { return f.CoreTasks }, test: func(s *scene) {
			c := s.dial(taking)
			var want, got []string
			for range 3 {
				want = append(want, s.start(c, "quick").ID())
			}
			for state, err := range c.Tasks(s.Context()) {
				ok(s, "list", err)
				got = append(got, state.ID)
			}
			same(s, "ids", got, want)
		}, instead: func(s *scene) {
			for _, err := range s.dial(taking).Tasks(s.Context()) {
				if !errors.Is(err, errors.ErrUnsupported) {
					s.Errorf("got %v", err)
				}
			}
		}},
		// Spec: T32 T53
		{name: "a task that there is not", when: hasTasks, test: func(s *scene) {
			_, err := s.dial(taking).Task("x").Wait(s.soon())
			refused(s, "wait", err, jsonrpc.CodeInvalidParams)
		}, instead: func(s *scene) {
			_, err := s.dial(taking).Task("x").Poll(s.Context())
			refused(s, "poll", err, jsonrpc.CodeMethodNotFound)
		}},
		// Spec: T59
		{name: "params of the other design", when: func(f *features) bool { return f.CoreTasks }, test: func(s *scene) {
			p := s.peer()
			p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"slow","task":{"ttl":60000}}`))
			p.Expect(mcptest.Result(1, `{"task":{"taskId":"$id","status":"working","$any":"$any"}}`))
		}, instead: func(s *scene) {
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
