package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// taskStates returns an answerer for tasks/get with the given states of one task, in either design.
func taskStates(revision string, states ...string) answerer {
	var answers []answerer
	for _, state := range states {
		answers = append(answers, says(taskText(revision, state)))
	}
	return inTurn(answers...)
}

// taskText returns the JSON text of a task: the status and, after a space, more members.
func taskText(revision, state string) string {
	status, more, _ := strings.Cut(state, " ")
	if revision == modernDate {
		return fmt.Sprintf(`{"resultType":"complete","taskId":"t","status":%q,"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:06Z","ttlMs":null,"pollIntervalMs":1000%s}`, status, more)
	}
	return fmt.Sprintf(`{"taskId":"t","status":%q,"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:06Z","ttl":60000,"pollInterval":1000%s}`, status, more)
}

// created returns the response to a tool call that becomes a task.
func created(revision string) answerer {
	if revision == modernDate {
		return says(strings.Replace(taskText(revision, "working"), `"complete"`, `"task"`, 1))
	}
	return says(`{"task":` + taskText(revision, "working") + `}`)
}

// coreTasks are the capabilities of a legacy server with tasks.
const coreTasks = `{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`

// slowTool returns the only tool of these servers.
func slowTool(support string) answerer {
	return says(tools(tool("slow", `,"execution":{"taskSupport":"`+support+`"}`)))
}

const done = `{"content":[{"type":"text","text":"done"}],"structuredContent":42}`

// taskServer returns a server that makes a task of each call, with the given states.
func taskServer(t testing.TB, revision string, states ...string) *fakeServer {
	return newFake(t, revision, coreTasks, map[string]answerer{
		"tools/list":   slowTool("required"),
		"tools/call":   created(revision),
		"tasks/get":    taskStates(revision, states...),
		"tasks/result": says(done),
		"tasks/update": says(`{"resultType":"complete"}`),
		"tasks/cancel": says(taskText(revision, "cancelled")),
	})
}

// known has the client list the tools, if it learns only from the list which tools can be tasks.
func known(t *testing.T, c *Client) {
	t.Helper()
	if _, err := c.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// Spec: C35 T2 T3 T4
func TestTaskAugmentation(t *testing.T) {
	const plain, augmented = `tools/call {"name":"slow","arguments":{}}`, `tools/call {"name":"slow","arguments":{},"task":{}}`
	withoutCalls := `{"tools":{},"tasks":{"list":{},"requests":{}}}`
	for _, tt := range []struct {
		name, revision, capabilities, support string
		list                                  bool
		call, start                           string
	}{
		{"required", legacyDate, coreTasks, "required", true, augmented, augmented},
		{"optional", legacyDate, coreTasks, "optional", true, plain, augmented},
		{"forbidden", legacyDate, coreTasks, "forbidden", true, plain, plain},
		{"no taskSupport", legacyDate, coreTasks, "", true, plain, plain},
		{"tools not listed", legacyDate, coreTasks, "required", false, plain, augmented},
		{"no capability", legacyDate, withoutCalls, "required", true, plain, plain},
		{"revision without tasks", "2025-06-18", coreTasks, "required", true, plain, plain},
		{"modern", modernDate, coreTasks, "required", true, plain, plain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, start := range []bool{false, true} {
				s := newFake(t, tt.revision, tt.capabilities, map[string]answerer{
					// no task is created
					"tools/list": slowTool(tt.support), "tools/call": says(done),
				})
				c := s.dial(&Options{Tasks: true})
				if tt.list {
					known(t, c)
				}
				s.takeSeen()
				want := tt.call
				if start {
					want = tt.start
					task, err := c.StartTool(t.Context(), "slow", nil)
					if err != nil {
						t.Fatal(err)
					}
					if result, err := task.Wait(t.Context()); err != nil || string(result.StructuredContent) != "42" || task.ID() != "" {
						t.Errorf("got %+v, %v, id %q", result, err, task.ID())
					}
					if err := task.Cancel(t.Context()); err != nil {
						t.Errorf("Cancel of an ended task: %v", err)
					}
				} else if n, err := CallTool[int](t.Context(), c, "slow", nil); n != 42 || err != nil {
					t.Errorf("got %d, %v", n, err)
				}
				seen := s.takeSeen()
				if got := seen[len(seen)-1]; got != want {
					t.Errorf("start %t: got %s, want %s", start, got, want)
				}
			}
		})
	}
}

// TestCallToolFindsOutAboutTask checks a call of a tool that was never listed and requires a task.
func TestCallToolFindsOutAboutTask(t *testing.T) {
	for _, tt := range []struct {
		support string
		calls   int
	}{{"required", 2}, {"optional", 1}, {"", 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := taskServer(t, legacyDate, "completed")
			s.answers["tools/list"] = slowTool(tt.support)
			s.answers["tools/call"] = func(ctx context.Context, params string) (string, error) {
				if jsonwire.Lookup([]byte(params), "task") == nil {
					return "", jsonrpc.MethodNotFound("tools/call without a task")
				}
				return created(legacyDate)(ctx, params)
			}
			n, err := CallTool[int](t.Context(), s.dial(nil), "slow", nil)
			if ok := tt.calls == 2; ok && (n != 42 || err != nil) || !ok && !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}) {
				t.Errorf("%s: got %d, %v", tt.support, n, err)
			}
			if got := s.times("tools/call"); got != tt.calls {
				t.Errorf("%s: called %d times, want %d", tt.support, got, tt.calls)
			}
		})
	}
}

func TestTaskTTL(t *testing.T) {
	s := taskServer(t, legacyDate, "completed")
	c := s.dial(nil)
	if _, err := c.StartTool(t.Context(), "slow", nil, WithTaskTTL(90*time.Second)); err != nil {
		t.Fatal(err)
	}
	seen := s.takeSeen()
	if got, want := seen[len(seen)-1], `tools/call {"name":"slow","arguments":{},"task":{"ttl":90000}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTaskState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, revision := range []string{modernDate, legacyDate} {
			s := taskServer(t, revision, `working ,"statusMessage":"half"`, `cancelled`)
			c := s.dial(&Options{Tasks: true})
			task, err := c.StartTool(t.Context(), "slow", nil)
			if err != nil {
				t.Fatal(err)
			}
			want := TaskState{
				ID: "t", Status: mcp.TaskStatusWorking, TTL: -1, PollInterval: time.Second,
				Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Updated: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
			}
			if revision == legacyDate {
				want.TTL = time.Minute
			}
			if diff := cmp.Diff(want, task.State()); diff != "" || task.ID() != "t" {
				t.Errorf("after the call (-want +got):\n%s", diff)
			}
			want.Message = "half"
			if got, err := task.Poll(t.Context()); err != nil || got != want || task.State() != want {
				t.Errorf("polled: got %+v, %v", got, err)
			}
			if err := task.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := task.Wait(t.Context()); !errors.Is(err, ErrTaskCanceled) {
				t.Errorf("Wait: got %v", err)
			}
			if got, err := task.Poll(t.Context()); err != nil || got.Status != mcp.TaskStatusCancelled {
				t.Errorf("after the end: got %+v, %v", got, err)
			}
			if n := s.times("tasks/get"); n != 2 {
				t.Errorf("asked %d times", n)
			}
			s.close(c)
		}
	})
}

// TestTaskCancelOnce shows that a cancellation is not repeated, because a legacy server rejects the
// second one.
func TestTaskCancelOnce(t *testing.T) {
	for revision, want := range map[string]int{modernDate: 2, legacyDate: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := taskServer(t, revision, "working")
			s.answers["tasks/cancel"] = inTurn(func(ctx context.Context, _ string) (string, error) {
				go s.crash()
				<-ctx.Done()
				return "", ctx.Err()
			}, says("{}"))
			err := s.dial(&Options{Tasks: true}).Task("t").Cancel(t.Context())
			if n := s.times("tasks/cancel"); n != want || (err == nil) != (want == 2) {
				t.Errorf("%s: sent %d times, want %d; error %v", revision, n, want, err)
			}
		})
	}
}

func TestParseTask(t *testing.T) {
	for _, tt := range []struct {
		text string
		want TaskState
		ok   bool
	}{
		{`{"taskId":"a","status":"working"}`, TaskState{ID: "a", Status: "working", TTL: -1}, true},
		{`{"taskId":"a","status":"working","ttl":0,"pollInterval":0,"createdAt":"yesterday"}`, TaskState{ID: "a", Status: "working"}, true},
		{`{"taskId":"a","status":"working","ttlMs":-3,"pollIntervalMs":"1"}`, TaskState{ID: "a", Status: "working", TTL: -1}, true},
		{`{"taskId":"a","status":"working","ttlMs":9223372036854775807,"pollIntervalMs":9223372036854775807}`,
			TaskState{ID: "a", Status: "working", TTL: maxTTL, PollInterval: maxTTL}, true},
		{`{"taskId":"a","status":"working","ttlMs":-9223372036854775808,"pollIntervalMs":-9223372036854775000}`, TaskState{ID: "a", Status: "working", TTL: -1}, true},
		{`{"taskId":"","status":"working"}`, TaskState{Status: "working", TTL: -1}, false},
		{`{"taskId":"a"}`, TaskState{ID: "a", TTL: -1}, false},
		{`{"taskId":1,"status":"working"}`, TaskState{Status: "working", TTL: -1}, false},
		{`[]`, TaskState{TTL: -1}, false},
	} {
		got, ok := parseTask([]byte(tt.text))
		if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
			t.Errorf("%s: ok is %t (-want +got):\n%s", tt.text, ok, diff)
		}
	}
}

func TestTaskHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, modernDate, "working", "working", `completed ,"result":`+done)
		c := s.dial(&Options{Tasks: true})
		var states []mcp.TaskStatus
		task := c.Task("t", WithTaskStatus(func(s TaskState) { states = append(states, s.Status) }))
		if task.State() != (TaskState{ID: "t"}) {
			t.Errorf("before the first notification: %+v", task.State())
		}
		results := make(chan int)
		for range 3 { // a second waiter does not poll
			go func() {
				n, err := WaitTask[int](t.Context(), task)
				if err != nil {
					t.Error(err)
				}
				results <- n
			}()
		}
		for range 3 {
			if n := <-results; n != 42 {
				t.Errorf("got %d", n)
			}
		}
		if want := []mcp.TaskStatus{"working", "completed"}; !slices.Equal(states, want) {
			t.Errorf("states: got %q, want %q", states, want)
		}
		if n := s.times("tasks/get"); n != 3 {
			t.Errorf("asked %d times", n)
		}
		// The handle never gets its turn to poll.
		other := c.Task("t")
		other.waitSlot <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := WaitTask[int](ctx, other); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// Spec: C13 C14 T44
func TestTaskElsewhere(t *testing.T) {
	task := says(strings.Replace(taskText(modernDate, "working"), `"complete"`, `"task"`, 1))
	for _, tt := range []struct {
		name string
		opts Options
		call func(context.Context, *Client) error
	}{
		{"tasks not declared", Options{}, func(ctx context.Context, c *Client) error { _, err := c.CallTool(ctx, "slow", nil); return err }},
		{"task for a prompt", Options{Tasks: true}, func(ctx context.Context, c *Client) error { _, err := c.GetPrompt(ctx, "x", nil); return err }},
		{"task for a list", Options{Tasks: true}, func(ctx context.Context, c *Client) error { _, err := c.ListTools(ctx, nil); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newFake(t, modernDate, `{}`, map[string]answerer{"tools/call": task, "prompts/get": task, "tools/list": task}).dial(&tt.opts)
			if _, ok := errors.AsType[*ProtocolError](tt.call(t.Context(), c)); !ok {
				t.Error("the task counts as a result")
			}
		})
	}
}

// Spec: T27
func TestTasksList(t *testing.T) {
	page := func(ids string, more string) string {
		var all []string
		for _, id := range strings.Fields(ids) {
			all = append(all, strings.Replace(taskText(legacyDate, "working"), `"t"`, `"`+id+`"`, 1))
		}
		return `{"tasks":[` + strings.Join(all, ",") + `]` + more + `}`
	}
	s := newFake(t, legacyDate, coreTasks, map[string]answerer{
		"tasks/list": inTurn(says(page("a b", `,"nextCursor":""`)), says(page("c", "")), says(`{"tasks":[{"taskId":"x"}]}`)),
	})
	c := s.dial(nil)
	list, err := collectAll(c.Tasks(t.Context()))
	var ids []string
	for _, task := range list {
		ids = append(ids, task.ID)
	}
	if want := []string{"a", "b", "c"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("got %q, %v", ids, err)
	}
	if diff := cmp.Diff([]string{"tasks/list {}", `tasks/list {"cursor":""}`}, s.takeSeen()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if _, err := collectAll(c.Tasks(t.Context())); err == nil {
		t.Error("a malformed task was accepted")
	}
	for _, revision := range []string{modernDate, "2025-06-18"} {
		if _, err := collectAll(newFake(t, revision, `{}`, nil).dial(nil).Tasks(t.Context())); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %v", revision, err)
		}
	}
}

// Spec: T4 T43
func TestCallToolWaitsForTask(t *testing.T) {
	for _, tt := range []struct {
		revision string
		states   []string
		want     []string // requests other than the call and subscriptions
	}{
		{modernDate, []string{"working", "working", `completed ,"result":` + done}, []string{"get", "get", "get"}},
		{modernDate, []string{`completed ,"result":` + done}, []string{"get"}},
		{legacyDate, []string{"working", "working", "completed"}, []string{"get", "get", "get", "result"}},
		// the last response has the result
		{legacyDate, []string{"input_required", "completed"}, []string{"get", "result", "get"}},
	} {
		t.Run(tt.revision+" "+strings.Join(tt.states, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taskServer(t, tt.revision, tt.states...)
				c := s.dial(&Options{Tasks: true})
				known(t, c)
				s.takeSeen()
				began := time.Now()
				n, err := CallTool[int](t.Context(), c, "slow", nil)
				if n != 42 || err != nil {
					t.Errorf("got %d, %v", n, err)
				}
				var asked []string
				for _, line := range s.takeSeen() {
					if kind, ok := strings.CutPrefix(line, "tasks/"); ok {
						asked = append(asked, strings.TrimSuffix(kind, ` {"taskId":"t"}`))
					}
				}
				if diff := cmp.Diff(tt.want, asked); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				polls := time.Duration(slices.Index(append(asked, "result"), "result"))
				if took := time.Since(began); took < polls*time.Second || took >= polls*1200*time.Millisecond {
					t.Errorf("took %v for %d polls, want 1 to 1.2 s for each", took, polls)
				}
			})
		})
	}
}

func TestTaskEnds(t *testing.T) {
	is := func(code jsonrpc.Code) func(error) bool {
		return func(err error) bool { return errors.Is(err, &jsonrpc.Error{Code: code}) }
	}
	broken := func(err error) bool { _, ok := errors.AsType[*ProtocolError](err); return ok }
	for _, tt := range []struct {
		name, revision, state string
		result                answerer // for tasks/result
		isError               bool
		err                   func(error) bool
		ended                 bool
	}{
		{"completed", modernDate, `completed ,"result":` + done, nil, false, nil, true},
		{"the tool failed", modernDate, `completed ,"result":{"content":[],"isError":true}`, nil, true, nil, true},
		{"failed", modernDate, `failed ,"error":{"code":-32603,"message":"no"}`, nil, false, is(jsonrpc.CodeInternalError), true},
		{"cancelled", modernDate, `cancelled`, nil, false, func(err error) bool { return errors.Is(err, ErrTaskCanceled) }, true},
		{"without a result", modernDate, `completed`, nil, false, broken, false},
		{"without an error", modernDate, `failed ,"error":7`, nil, false, broken, false},
		{"unknown status", modernDate, `sleeping`, nil, false, broken, false},
		{"malformed task", modernDate, ` ,"x":1`, nil, false, broken, false},

		{"completed", legacyDate, `completed`, says(done), false, nil, true},
		{"the tool failed", legacyDate, `failed`, says(`{"content":[],"isError":true}`), true, nil, true},
		{"failed", legacyDate, `failed`, fails(jsonrpc.CodeInternalError), false, is(jsonrpc.CodeInternalError), true},
		{"cancelled", legacyDate, `cancelled`, nil, false, func(err error) bool { return errors.Is(err, ErrTaskCanceled) }, true},
	} {
		t.Run(tt.revision+" "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taskServer(t, tt.revision, tt.state)
				s.answers["tasks/result"] = tt.result
				c := s.dial(&Options{Tasks: true})
				task, err := c.StartTool(t.Context(), "slow", nil)
				if err != nil {
					t.Fatal(err)
				}
				asked := 0
				for range 2 { // the result stays the same
					result, err := task.Wait(t.Context())
					if tt.err == nil && (err != nil || result.IsError != tt.isError) || tt.err != nil && !tt.err(err) {
						t.Errorf("got %+v, %v", result, err)
					}
					if n := s.times("tasks/get"); tt.ended && asked > 0 && n != asked {
						t.Errorf("%d requests, %d after the end", asked, n)
					}
					asked = s.times("tasks/get")
				}
			})
		})
	}
}

// Spec: T49
func TestTaskInputRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(keys ...string) string {
			var all []string
			for _, key := range keys {
				all = append(all, fmt.Sprintf(`%q:{"method":"elicitation/create","params":{"message":%[1]q,"requestedSchema":{"type":"object","properties":{}}}}`, key))
			}
			return `input_required ,"inputRequests":{` + strings.Join(all, ",") + `}`
		}
		s := taskServer(t, modernDate, ask("a", "b"), ask("a", "b"), ask("b", "c"), "working", `completed ,"result":`+done)
		var mu sync.Mutex
		var asked []string
		c := s.dial(&Options{Tasks: true, Input: InputOptions{Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, p.Message)
			return &mcp.ElicitResult{Action: mcp.ElicitActionDecline}, nil
		}}})
		if _, err := c.CallTool(t.Context(), "slow", nil); err != nil {
			t.Fatal(err)
		}
		slices.Sort(asked[:2])
		if want := []string{"a", "b", "c"}; !slices.Equal(asked, want) {
			t.Errorf("the handler got %q, want %q", asked, want)
		}
		var updates []string
		for _, line := range s.takeSeen() {
			if strings.HasPrefix(line, "tasks/update") {
				updates = append(updates, line)
			}
		}
		if diff := cmp.Diff([]string{
			`tasks/update {"taskId":"t","inputResponses":{"a":{"action":"decline"},"b":{"action":"decline"}}}`,
			`tasks/update {"taskId":"t","inputResponses":{"c":{"action":"decline"}}}`,
		}, updates); diff != "" {
			t.Errorf("updates (-want +got):\n%s", diff)
		}
	})
}

func TestTaskInputRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, modernDate, `input_required ,"inputRequests":{"a":{"method":"roots/list"}}`)
		reject := true
		c := s.dial(&Options{Tasks: true, Input: InputOptions{Roots: func(context.Context) ([]mcp.Root, error) {
			if reject {
				return nil, errTest
			}
			return nil, nil
		}}})
		task, err := c.StartTool(t.Context(), "slow", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := task.Wait(t.Context()); !errors.Is(err, errTest) {
			t.Errorf("got %v, want the handler's error", err)
		}
		reject = false
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := task.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if n := s.times("tasks/update"); n != 1 {
			t.Errorf("%d responses, want 2: the input request is repeated once", n)
		}
		if n := s.times("tasks/cancel"); n != 0 {
			t.Error("a task with a handle was canceled")
		}
		if _, err := c.CallTool(t.Context(), "slow", nil, WithTotalTimeout(10*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if n := s.times("tasks/cancel"); n != 1 {
			t.Errorf("a task without a handle was canceled %d times", n)
		}
	})
}

// Spec: T33 T51
func TestAbandonedTask(t *testing.T) {
	for _, tt := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		opts []CallOption
		want func(error) bool
	}{
		{"context", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, nil,
			func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		{"WithTotalTimeout", context.WithCancel, []CallOption{WithTotalTimeout(time.Minute)},
			func(err error) bool {
				e, ok := errors.AsType[*TimeoutError](err)
				return ok && e.Max && e.After == time.Minute
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, revision := range []string{modernDate, legacyDate} {
				synctest.Test(t, func(t *testing.T) {
					s := taskServer(t, revision, "working")
					var cancelled atomic.Int32
					c := s.dial(&Options{Tasks: true, Trace: func(_ jsonrpc.Direction, message []byte) {
						if bytes.Contains(message, []byte("notifications/cancelled")) {
							cancelled.Add(1)
						}
					}})
					known(t, c)
					ctx, cancel := tt.ctx(t.Context())
					defer cancel()
					began := time.Now()
					if _, err := c.CallTool(ctx, "slow", nil, tt.opts...); !tt.want(err) || time.Since(began) != time.Minute {
						t.Errorf("after %v: got %v", time.Since(began), err)
					}
					synctest.Wait()
					if n := s.times("tasks/cancel"); n != 1 {
						t.Errorf("tasks/cancel was sent %d times", n)
					}
					if n := cancelled.Load(); n != 0 {
						t.Errorf("notifications/cancelled was sent %d times", n)
					}
				})
			}
		})
	}
}

// TestSlowCallThatFindsOutAboutTask shows that the calls that detect that a tool requires a task,
// and the list between them, share the timeout of one call.
func TestSlowCallThatFindsOutAboutTask(t *testing.T) {
	const step = 40 * time.Second
	start := func(ctx context.Context, c *Client, opts ...CallOption) error {
		_, err := c.StartTool(ctx, "slow", nil, opts...)
		return err
	}
	call := func(ctx context.Context, c *Client, opts ...CallOption) error {
		_, err := c.CallTool(ctx, "slow", nil, opts...)
		return err
	}
	for _, tt := range []struct {
		name string
		do   func(context.Context, *Client, ...CallOption) error
		// how long the server takes for a call, a list, and a call for a task
		call, list, asked time.Duration
		limit             time.Duration
		want              []string
	}{
		{"the first call", call, 2 * time.Minute, 0, 0, time.Minute, []string{"tools/call", "ended"}},
		{"the list", call, step, 25 * time.Second, 0, time.Minute, []string{"tools/call", "tools/list", "ended"}},
		{"the call for a task", call, step, 10 * time.Second, 12 * time.Second, time.Minute, []string{"tools/call", "tools/list", "tools/call", "tasks/cancel"}},
		{"the task", call, step, 10 * time.Second, 0, time.Minute, []string{"tools/call", "tools/list", "tools/call", "tasks/get", "tasks/cancel"}},
		{"the list of StartTool", start, 0, step, 0, 20 * time.Second, []string{"tools/list", "ended"}},
		{"the call of StartTool", start, 0, 25 * time.Second, 37 * time.Second, time.Minute, []string{"tools/list", "tools/call", "tasks/cancel"}},
	} {
		for _, byContext := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by context %t", tt.name, byContext), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := taskServer(t, legacyDate, "working")
					takes := func(d time.Duration, answer answerer) answerer {
						return func(ctx context.Context, params string) (string, error) {
							if !wait.Sleep(ctx, d) {
								s.note("ended")
								return "", ctx.Err()
							}
							return answer(ctx, params)
						}
					}
					s.answers["tools/list"] = takes(tt.list, slowTool("required"))
					s.answers["tools/call"] = func(ctx context.Context, params string) (string, error) {
						if jsonwire.Lookup([]byte(params), "task") == nil {
							return takes(tt.call, fails(jsonrpc.CodeMethodNotFound))(ctx, params)
						}
						return takes(tt.asked, created(legacyDate))(ctx, params)
					}
					c := s.dial(nil)
					s.takeSeen()
					ctx, opts, is := t.Context(), []CallOption{WithTotalTimeout(tt.limit)}, func(err error) bool {
						e, ok := errors.AsType[*TimeoutError](err)
						return ok && e.Max && e.Method == mcp.MethodToolsCall && e.After == tt.limit
					}
					if byContext {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tt.limit)
						defer cancel()
						opts, is = nil, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) && !IsServerError(err) }
					}
					began := time.Now()
					if err := tt.do(ctx, c, opts...); !is(err) || time.Since(began) != tt.limit {
						t.Errorf("after %v: got %v", time.Since(began), err)
					}
					elapse(cancelTimeout)
					var got []string
					for _, line := range s.takeSeen() {
						method, _, _ := strings.Cut(line, " ")
						got = append(got, method)
					}
					if diff := cmp.Diff(tt.want, slices.Compact(got)); diff != "" {
						t.Errorf("sent (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// Spec: T6
func TestTaskNotifications(t *testing.T) {
	for _, revision := range []string{modernDate, legacyDate} {
		for _, heard := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s heard %t", revision, heard), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wish := `"pollInterval`
					s := taskServer(t, revision)
					s.answers["tasks/get"] = inTurn(
						says(strings.Replace(taskText(revision, "working"), wish, `"x":0,`+wish, 1)),
						says(strings.NewReplacer("1000", "60000").Replace(taskText(revision, "working"))),
						says(taskText(revision, `completed ,"result":`+done)),
					)
					l := &listenServer{fakeServer: s, open: make(chan string, 1)}
					s.answers["subscriptions/listen"] = l.listen
					c := s.dial(&Options{Tasks: true})
					known(t, c)
					finished := make(chan time.Duration)
					go func() {
						began := time.Now()
						if _, err := c.CallTool(t.Context(), "slow", nil); err != nil {
							t.Error(err)
						}
						finished <- time.Since(began)
					}()
					elapse(10 * time.Second) // the poller is in its long wait
					switch {
					case !heard:
					case revision == modernDate:
						id := <-l.open
						l.tell(id, "tasks", `,"taskId":"another","status":"working"`)
						synctest.Wait()
						if n := s.times("tasks/get"); n != 2 {
							t.Errorf("a notification for another task caused %d polls", n)
						}
						l.tell(id, "tasks", `,"taskId":"t","status":"completed"`)
					default:
						s.notify("notifications/tasks/status", taskText(revision, "completed"))
					}
					took := <-finished
					if soon := took < 11*time.Second; soon != heard {
						t.Errorf("took %v", took)
					}
					synctest.Wait()
					if len(c.subs.modern) != 0 || len(c.subs.legacy) != 0 {
						t.Error("it is still subscribed")
					}
				})
			})
		}
	}
}

func TestTaskNotificationsMissing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		listen answerer
		want   int
	}{
		{"refused", fails(jsonrpc.CodeMethodNotFound), 1},
		{"not honored", nil, 1},
		{"ended", says(`{"resultType":"complete"}`), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taskServer(t, modernDate)
				states := []string{"working", "working", `completed ,"result":` + done}
				s.answers["tasks/get"] = taskStates(modernDate, append(states, states...)...)
				if s.answers["subscriptions/listen"] = tt.listen; tt.listen == nil {
					l := &listenServer{fakeServer: s, open: make(chan string, 10), accepted: "{}"}
					s.answers["subscriptions/listen"] = l.listen
				}
				c := s.dial(&Options{Tasks: true})
				for range 2 {
					if _, err := c.CallTool(t.Context(), "slow", nil); err != nil {
						t.Error(err)
					}
				}
				if n := s.times("subscriptions/listen"); n != tt.want {
					t.Errorf("listened %d times, want no further attempts", n)
				}
			})
		})
	}
}

// Spec: C79
func TestTaskPollInterval(t *testing.T) {
	for _, tt := range []struct {
		wish        time.Duration
		first, last time.Duration // bounds without jitter
	}{
		{0, initialTaskPoll, maxDefaultTaskPoll},
		{time.Nanosecond, minTaskPoll, minTaskPoll},
		{3 * time.Second, 3 * time.Second, 3 * time.Second},
		{time.Hour, maxTaskPoll, maxTaskPoll},
	} {
		var pace pollBackoff
		for i := range 100 {
			least := tt.first
			if i > 20 {
				least = tt.last
			}
			if d := pace.next(tt.wish); d < least || d >= tt.last*12/10 {
				t.Fatalf("wish %v: wait %d is %v, want %v to %v", tt.wish, i, d, least, tt.last*12/10)
			}
		}
	}
}

// TestTaskPollBackoffResets shows that the polling interval of a server without a poll interval
// increases until the task changes.
func TestTaskPollBackoffResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		states := []string{"a", "a", "a", "a", "a", "b", "b"}
		s := taskServer(t, modernDate)
		s.answers["tasks/get"] = func(context.Context, string) (string, error) {
			asked = append(asked, time.Now())
			if len(asked) > len(states) {
				return taskText(modernDate, `completed ,"result":`+done), nil
			}
			return `{"resultType":"complete","taskId":"t","status":"working","statusMessage":"` + states[len(asked)-1] + `"}`, nil
		}
		c := s.dial(&Options{Tasks: true})
		if _, err := c.Task("t").Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(asked); i++ {
			want := initialTaskPoll
			for k := i - 1; k > 0 && states[k] == states[k-1]; k-- {
				want = want * 3 / 2
			}
			if wait := asked[i].Sub(asked[i-1]); wait < want || wait >= want*12/10 {
				t.Errorf("wait %d: got %v, want %v to %v", i, wait, want, want*12/10)
			}
		}
	})
}

// lateTask returns a modern server's response to a call that became a task.
func lateTask(id string) string {
	return fmt.Sprintf(`{"resultType":"task","taskId":%q,"status":"working","createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:05Z","ttlMs":null}`, id)
}

// TestLateTask shows that a task that is created for a canceled call is canceled.
func TestLateTask(t *testing.T) {
	const complete = `{"resultType":"complete","content":[]}`
	for _, tt := range []struct {
		name   string
		opts   Options
		call   []CallOption // used instead of canceling the context
		after  time.Duration
		answer string // empty for an error
		want   bool   // whether the task is canceled
	}{
		{name: "task", opts: Options{Tasks: true}, answer: lateTask("t"), want: true},
		{name: "task after WithTimeout", opts: Options{Tasks: true}, call: []CallOption{WithTimeout(time.Second)}, answer: lateTask("t"), want: true},
		{name: "task just within cancelTimeout", opts: Options{Tasks: true}, after: cancelTimeout - 1, answer: lateTask("t"), want: true},
		{name: "task after cancelTimeout", opts: Options{Tasks: true}, after: cancelTimeout + 1, answer: lateTask("t")},
		{name: "task, although tasks are not declared", answer: lateTask("t")},
		{name: "result", opts: Options{Tasks: true}, answer: complete},
		{name: "task without an id", opts: Options{Tasks: true}, answer: lateTask("")},
		{name: "error", opts: Options{Tasks: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, giveUp := context.WithCancel(t.Context())
				tt.opts.Revisions = []mcp.Revision{mcp.Revision20260728}
				c := dial(t, &tt.opts, func(s *script) {
					s.discovers()
					m := s.expect("tools/call")
					if tt.call == nil {
						giveUp()
					}
					if got := memberOf(s.t, string(s.expect("notifications/cancelled").Params), "requestId"); got != string(m.ID) {
						s.fail("cancelled %s, want %s", got, m.ID)
					}
					elapse(tt.after)
					for range 2 { // the second response is one too many
						if tt.answer == "" {
							s.reject(m, -1, "")
						} else {
							s.answer(m, tt.answer)
						}
						if tt.want {
							cancel := s.expect("tasks/cancel")
							if got := memberOf(s.t, string(cancel.Params), "taskId"); got != `"t"` {
								s.fail("cancelled task %s", got)
							}
							s.answer(cancel, `{"resultType":"complete"}`)
							tt.want = false
						}
					}
					s.answer(s.expect("tools/call"), complete)
					s.expectEnd() // no further cancellation
				})
				_, err := c.CallTool(ctx, "slow", nil, tt.call...)
				if _, late := errors.AsType[*TimeoutError](err); tt.call != nil && !late || tt.call == nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
				elapse(cancelTimeout + time.Second)
				synctest.Wait()
				if _, err := c.CallTool(t.Context(), "next", nil); err != nil {
					t.Error(err)
				}
				if n := len(c.tasks.withdrawn.calls); n != 0 {
					t.Errorf("%d calls are still registered", n)
				}
			})
		})
	}
}

// TestLateTaskAtClose checks that a client sends a silent server only one cancellation for a call,
// even if it is closed meanwhile.
func TestLateTaskAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, giveUp := context.WithCancel(t.Context())
		c := dial(t, &Options{Tasks: true, Revisions: []mcp.Revision{mcp.Revision20260728}}, func(s *script) {
			s.discovers()
			s.expect("tools/call")
			giveUp()
			s.expect("notifications/cancelled")
			s.expectEnd()
		})
		if _, err := c.CallTool(ctx, "slow", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		began := time.Now()
		c.Close()
		if took := time.Since(began); took >= cancelTimeout {
			t.Errorf("Close took %v", took)
		}
	})
}

// TestLateTasks shows that the client waits for the late responses to a limited number of calls,
// the most recent ones. All calls are canceled.
func TestLateTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 3
		ctx, giveUp := context.WithCancel(t.Context())
		played := make(chan struct{})
		c := dial(t, &Options{Tasks: true, Revisions: []mcp.Revision{mcp.Revision20260728}}, func(s *script) {
			defer close(played)
			s.discovers()
			var calls []message
			for range maxWithdrawn + more {
				calls = append(calls, s.expect("tools/call"))
			}
			giveUp()
			for range calls {
				s.expect("notifications/cancelled")
			}
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				for _, m := range calls {
					s.answer(m, lateTask("t"+strings.Trim(string(m.ID), `"`)))
				}
			}()
			seen := make(map[string]bool)
			for range maxWithdrawn {
				m := s.expect("tasks/cancel")
				seen[memberOf(s.t, string(m.Params), "taskId")] = true
			}
			<-answered
			if len(seen) != maxWithdrawn {
				s.fail("%d tasks are cancelled, want %d", len(seen), maxWithdrawn)
			}
		})
		done := make(chan error)
		for range maxWithdrawn + more {
			go func() {
				_, err := c.CallTool(ctx, "slow", nil)
				done <- err
			}()
		}
		for range maxWithdrawn + more {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		select {
		case <-played:
		case <-time.After(time.Minute):
			t.Error("the server waits for a cancellation")
		}
	})
}
