package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// taskStates answers tasks/get with the states of one task in turn, in either design.
func taskStates(revision string, states ...string) answerer {
	var answers []answerer
	for _, state := range states {
		answers = append(answers, says(taskText(revision, state)))
	}
	return inTurn(answers...)
}

// taskText is the text of a task result: the status and, behind a space, more members.
func taskText(revision, state string) string {
	status, more, _ := strings.Cut(state, " ")
	if revision == modernDate {
		return fmt.Sprintf(`{"resultType":"complete","taskId":"t","status":%q,"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:06Z","ttlMs":null,"pollIntervalMs":1000%s}`, status, more)
	}
	return fmt.Sprintf(`{"taskId":"t","status":%q,"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:06Z","ttl":60000,"pollInterval":1000%s}`, status, more)
}

// created is what a tool call is answered with that becomes a task.
func created(revision string) answerer {
	if revision == modernDate {
		return says(strings.Replace(taskText(revision, "working"), `"complete"`, `"task"`, 1))
	}
	return says(`{"task":` + taskText(revision, "working") + `}`)
}

// coreTasks are the capabilities of a legacy server with tasks.
const coreTasks = `{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`

// slowTool is the only tool of the servers here.
func slowTool(support string) answerer {
	return says(tools(tool("slow", `,"execution":{"taskSupport":"`+support+`"}`)))
}

const done = `{"content":[{"type":"text","text":"done"}],"structuredContent":42}`

// taskServer makes a task of each call, with the states given.
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

// known has the client list the tools, if that is how it gets to know which of them can be tasks.
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
		{"says nothing", legacyDate, coreTasks, "", true, plain, plain},
		{"not known", legacyDate, coreTasks, "required", false, plain, augmented},
		{"no capability", legacyDate, withoutCalls, "required", true, plain, plain},
		{"before tasks", "2025-06-18", coreTasks, "required", true, plain, plain},
		{"modern", modernDate, coreTasks, "required", true, plain, plain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, start := range []bool{false, true} {
				s := newFake(t, tt.revision, tt.capabilities, map[string]answerer{
					"tools/list": slowTool(tt.support), "tools/call": says(done), // it makes no task after all
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
						t.Errorf("Cancel of what has ended: %v", err)
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

// A call of a tool that nobody has listed, and that must be a task.
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

// A legacy server refuses the second cancellation, so it must not be repeated.
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
			t.Errorf("before anything was heard: %+v", task.State())
		}
		results := make(chan int)
		for range 3 { // who waits second is not asking, too
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
		// A handle whose turn does not come.
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
		{"not declared", Options{}, func(ctx context.Context, c *Client) error { _, err := c.CallTool(ctx, "slow", nil); return err }},
		{"a prompt", Options{Tasks: true}, func(ctx context.Context, c *Client) error { _, err := c.Prompt(ctx, "x", nil); return err }},
		{"a list", Options{Tasks: true}, func(ctx context.Context, c *Client) error { _, err := c.ListTools(ctx, nil); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newFake(t, modernDate, `{}`, map[string]answerer{"tools/call": task, "prompts/get": task, "tools/list": task}).dial(&tt.opts)
			if _, ok := errors.AsType[*ProtocolError](tt.call(t.Context(), c)); !ok {
				t.Error("it is taken for a result")
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
		t.Error("something that is no task is taken for one")
	}
	for _, revision := range []string{modernDate, "2025-06-18"} {
		if _, err := collectAll(newFake(t, revision, `{}`, nil).dial(nil).Tasks(t.Context())); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %v", revision, err)
		}
	}
}
