package streamable_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// TestSharedTasks shows that the tasks of a session without a principal exist at each process that
// has the session, and end with it.
func TestSharedTasks(t *testing.T) {
	keys, tasks := newStateKeys(t), server.NewTaskStore()
	start := func() *endpoint {
		e := newEndpoint(t, &server.Options{StateKeys: keys, Tasks: &server.TaskOptions{Store: tasks}}, nil)
		tool := mcp.Tool{Name: "job", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}
		err := server.AddToolWith(e.srv, tool, func(context.Context, struct{}) (string, error) { return "done", nil })
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first, second := start(), start()
	v := first.visit("2025-11-25", "{}", nil)
	got := v.post(request(1, "tools/call", `{"name":"job","arguments":{},"task":{}}`))
	var created struct {
		Result struct{ Task struct{ TaskID string } }
	}
	if err := json.Unmarshal([]byte(got.body), &created); err != nil || created.Result.Task.TaskID == "" {
		t.Fatalf("%d %s, %v", got.status, got.body, err)
	}
	get := request(2, "tasks/result", `{"taskId":"`+created.Result.Task.TaskID+`"}`)
	for _, e := range []*endpoint{second, first} {
		if got := (&legacySession{e, v.headers}).post(get); !strings.Contains(got.body, `"text":"done"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if got := second.visit("2025-11-25", "{}", nil).post(get); !strings.Contains(got.body, "-32602") {
		t.Errorf("another session: %d %s", got.status, got.body)
	}
	if err := first.h.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &legacySession{second, v.headers}
	if got := w.post(get); !strings.Contains(got.body, `"text":"done"`) {
		t.Errorf("after the end of the process that ran it: %d %s", got.status, got.body)
	}
	if got := w.do("DELETE", "", w.headers); got.status != http.StatusNoContent {
		t.Errorf("%d %s", got.status, got.body)
	}
	if _, err := tasks.Task(t.Context(), created.Result.Task.TaskID); err == nil {
		t.Error("the task exists after the end of its session")
	}
}

type failingStates struct{}

func (failingStates) Once(context.Context, string, string, time.Duration) (bool, error) {
	return false, context.DeadlineExceeded
}

// TestSingleUseUnavailable shows that a request whose single use cannot be checked is not carried
// out, and gets status 503.
func TestSingleUseUnavailable(t *testing.T) {
	o := &server.Options{Input: server.InputOptions{SingleUseState: true, UsedStates: failingStates{}}}
	e := newEndpoint(t, o, &streamable.Options{})
	err := server.AddTool(e.srv, "roots", "", func(ctx context.Context, _ struct{}) (string, error) {
		_, err := server.CallOf(ctx).Roots(ctx, "roots")
		return "", err
	})
	if err != nil {
		t.Fatal(err)
	}
	call := func(more string) answer {
		body, headers := modernPost(1, "tools/call", `"name":"roots","arguments":{}`+more)
		headers["Mcp-Name"] = "roots"
		return e.do("POST", strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"roots":{}}`, 1), headers)
	}
	var asked struct{ Result struct{ RequestState string } }
	first := call("")
	if err := json.Unmarshal([]byte(first.body), &asked); err != nil || asked.Result.RequestState == "" {
		t.Fatalf("%d %s, %v", first.status, first.body, err)
	}
	got := call(`,"requestState":"` + asked.Result.RequestState + `","inputResponses":{"roots":{"roots":[]}}`)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" || !strings.Contains(got.body, "-32603") {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
}
