package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

var whoForm = &mcp.ElicitRequestParams{Message: "Name?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)}

// askBoth is a tool that asks two questions at once.
func askBoth(ctx context.Context, call *server.Call) (string, error) {
	q := call.InputRequests()
	a, b := q.Elicit("a", whoForm), q.Elicit("b", whoForm)
	if err := q.Wait(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s", a.Value().Content, b.Value().Content), nil
}

// open returns which questions of a task are open, and its status.
func (c *taskClient) open(id string) (keys []string, status string) {
	c.t.Helper()
	got := c.get(id)
	for _, key := range []string{"a", "b", "name"} {
		if _, ok := got.InputRequests[key]; ok {
			keys = append(keys, key)
		}
	}
	return keys, got.Status
}

// Spec: T47
func TestTaskPartialAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore()}
		srv := newTaskServer(t, server.TaskOptions{Store: store})
		addTaskTool(t, srv, "both", askBoth)
		c := dialTasks(t, srv, modern, "")
		id := c.start("both", "").TaskID
		synctest.Wait()
		update := func(responses string) error {
			_, err := c.call("tasks/update", `"taskId":"`+id+`","inputResponses":`+responses)
			return err
		}
		// What is no answer to the question is refused as a whole, and the question stays open.
		for _, bad := range []string{
			`{"a":7}`, `{"a":{}}`, `{"a":{"action":"maybe"}}`, `{"b":{"action":"decline"},"a":{"action":"accept","content":[]}}`, `[]`, `null`,
		} {
			if err := update(bad); code(err) != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: got %v", bad, err)
			}
		}
		if keys, status := c.open(id); !cmp.Equal(keys, []string{"a", "b"}) || status != "input_required" {
			t.Errorf("got %q, %s", keys, status)
		}
		before, _ := store.Task(context.Background(), id)
		if err := update(`{"other":{"action":"accept"}}`); err != nil {
			t.Error(err)
		}
		if after, _ := store.Task(context.Background(), id); after.Version != before.Version {
			t.Error("an answer to no question changed the task")
		}
		if err := update(`{"a":{"action":"accept","content":{"name":"1"}}}`); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if keys, status := c.open(id); !cmp.Equal(keys, []string{"b"}) || status != "input_required" {
			t.Errorf("got %q, %s", keys, status)
		}
		// The first answer counts.
		if err := update(`{"a":{"action":"accept","content":{"name":"2"}},"b":{"action":"accept","content":{"name":"3"}}}`); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := c.get(id); got.Status != "completed" || !strings.Contains(string(got.Result), `{\"name\":\"1\"} {\"name\":\"3\"}`) {
			t.Errorf("got %+v: %s", got, got.Result)
		}
	})
}

// TestTaskAnswerIsTakenOnce sees that a question is not open any more as soon as its answer is there, though the tool has not taken it.
func TestTaskAnswerIsTakenOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore()}
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{Store: store}), modern, "")
		id := c.start("asks", "").TaskID
		synctest.Wait()
		c.must("tasks/update", `"taskId":"`+id+`","inputResponses":{"name":{"action":"decline"}}`)
		got, err := store.Task(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		if _, open := got.InputRequests["name"]; open || got.Status == mcp.TaskStatusInputRequired {
			t.Errorf("got %+v", got)
		}
	})
}

// TestTaskAskGivesUp sees that a task whose tool gave up waiting goes on without the question.
func TestTaskAskGivesUp(t *testing.T) {
	for _, revision := range []string{coreTasks, modern} {
		inBubble(t, func(t *testing.T) {
			srv := newTaskServer(t, server.TaskOptions{Store: &testStore{TaskStore: server.NewTaskStore()}})
			addTaskTool(t, srv, "impatient", func(ctx context.Context, call *server.Call) (string, error) {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if _, err := call.Elicit(short, "name", whoForm); err == nil {
					return "answered", nil
				}
				elapse(10 * time.Second)
				return "gave up", nil
			})
			c := dialTasks(t, srv, revision, "")
			c.hold = make(chan struct{})
			defer close(c.hold)
			id := c.start("impatient", "").TaskID
			elapse(2 * time.Second)
			synctest.Wait()
			if keys, status := c.open(id); len(keys) > 0 || status != "working" {
				t.Errorf("%s: got %q, %s", revision, keys, status)
			}
		})
	}
}

// TestTaskAsksCoreAtOnce sees that a task needs input until all that it asks at the same time is answered.
func TestTaskAsksCoreAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{})
		addTaskTool(t, srv, "twice", func(ctx context.Context, call *server.Call) (string, error) {
			var wg sync.WaitGroup
			wg.Go(func() { call.Elicit(ctx, "a", whoForm) })
			wg.Go(func() {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				call.Elicit(short, "b", whoForm)
			})
			wg.Wait()
			elapse(time.Second)
			return "", nil
		})
		c := dialTasks(t, srv, coreTasks, "")
		c.hold = make(chan struct{})
		id := c.start("twice", "").TaskID
		elapse(2 * time.Second)
		synctest.Wait()
		if got := c.get(id); got.Status != "input_required" {
			t.Errorf("one is open: got %s", got.Status)
		}
		close(c.hold)
		synctest.Wait()
		if got := c.get(id); got.Status != "working" {
			t.Errorf("none is open: got %s", got.Status)
		}
	})
}

// TestTaskTakesEarlierAnswers sees that what was answered in the rounds before a call became a task is not asked again.
func TestTaskTakesEarlierAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{After: time.Second})
		runs := 0
		addTaskTool(t, srv, "slower", func(ctx context.Context, call *server.Call) (string, error) {
			if runs++; runs > 1 {
				elapse(5 * time.Second) // by now it is a task
			}
			res, err := call.Elicit(ctx, "name", whoForm)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%s %s", res.Action, res.Content), nil
		})
		c := dialTasks(t, srv, modern, "")
		var round struct{ RequestState string }
		if err := json.Unmarshal([]byte(c.must("tools/call", `"name":"slower"`)), &round); err != nil {
			t.Fatal(err)
		}
		id := c.start("slower", `,"inputResponses":{"name":{"action":"accept","content":{"name":"z"}}},"requestState":"`+round.RequestState+`"`).TaskID
		elapse(5 * time.Second)
		synctest.Wait()
		if got := c.get(id); got.Status != "completed" || !strings.Contains(string(got.Result), `{\"name\":\"z\"}`) {
			t.Errorf("got %+v: %s", got, got.Result)
		}
	})
}

// TestTaskRequiresURL sees that an error which sends the user to a web page becomes a question as long as there is no task.
func TestTaskRequiresURL(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{After: time.Second})
		addTaskTool(t, srv, "page", func(context.Context, *server.Call) (string, error) {
			return "", mcp.URLElicitationRequired(mcp.ElicitRequestParams{ElicitationID: "name", Message: "Log in", URL: "https://example.com/"})
		})
		c := dialTasks(t, srv, modern, "")
		meta := strings.Replace(extensionMeta, `"elicitation":{}`, `"elicitation":{"form":{},"url":{}}`, 1)
		got, err := c.conn.Call(context.Background(), "tools/call", []byte(`{`+meta+`,"name":"page"}`))
		if err != nil || !strings.Contains(string(got), `"resultType":"input_required"`) {
			t.Errorf("got %s, %v", got, err)
		}
	})
}
