package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
)

// newTask registers a tool that runs as a task.
func newTask(t *testing.T, srv *server.Server, name string, fn func(call *server.Call) (string, error)) {
	t.Helper()
	def := mcp.Tool{Name: name, Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}
	if err := server.AddToolWith(srv, def, func(ctx context.Context, _ empty) (string, error) { return fn(server.CallOf(ctx)) }); err != nil {
		t.Fatal(err)
	}
}

// TestTaskIsQuiet: a task that has ended tells nothing more, though its handler goes on; one of the extension tells nothing at all on the way.
//
// Spec: T35 T55
func TestTaskIsQuiet(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{})
		var kept *server.Call
		newTask(t, srv, "chatty", func(call *server.Call) (string, error) {
			kept = call
			for i := range 10 { // whatever becomes of the task
				call.Progress(float64(i+1), 0, "")
				call.Log(mcp.LevelError, "", i)
				elapse(time.Second)
			}
			return "done", nil
		})
		told := func(c *taskClient) int {
			n := 0
			for _, note := range c.takeNotes() {
				if strings.HasPrefix(note, "notifications/progress ") || strings.HasPrefix(note, "notifications/message ") {
					n++
				}
			}
			return n
		}
		core := dialTasks(t, srv, coreTasks, "")
		for _, ends := range []string{"cancelled", "completed"} {
			id := core.start("chatty", `,"_meta":{"progressToken":"p"}`).TaskID
			if elapse(2500 * time.Millisecond); ends == "completed" {
				elapse(20 * time.Second)
			} else {
				core.must("tasks/cancel", `"taskId":"`+id+`"`)
			}
			synctest.Wait()
			if got := core.get(id).Status; got != ends || told(core) == 0 {
				t.Errorf("%s: the task is %s, or was silent", ends, got)
			}
			elapse(20 * time.Second)
			if err := kept.Progress(100, 0, ""); err == nil {
				t.Errorf("%s: progress is taken after the end", ends)
			}
			synctest.Wait()
			if n := told(core); n > 0 {
				t.Errorf("%s: %d notifications after the end", ends, n)
			}
		}

		modern := dialTasks(t, srv, modern, "")
		eager := strings.TrimSuffix(extensionMeta, "}") + `,"progressToken":"p","io.modelcontextprotocol/logLevel":"debug"}`
		text, err := modern.conn.Call(t.Context(), "tools/call", []byte(`{`+eager+`,"name":"chatty"}`))
		if err != nil {
			t.Fatal(err)
		}
		id := parseTask(t, string(text)).TaskID
		listening, stop := context.WithCancel(t.Context())
		listened := make(chan error, 1)
		go func() {
			_, err := modern.conn.Call(listening, "subscriptions/listen", []byte(`{`+eager+`,"notifications":{"taskIds":["`+id+`"]}}`))
			listened <- err
		}()
		elapse(20 * time.Second)
		synctest.Wait()
		if got := modern.get(id); got.Status != "completed" {
			t.Errorf("got %+v", got)
		}
		if n := told(modern); n > 0 {
			t.Errorf("%d notifications of a task of the extension", n)
		}
		stop()
		<-listened
	})
}

// TestTaskKeys: a task asks under each key once, and goes to and fro between working and waiting until it has ended.
//
// Spec: T12 T47 T48
func TestTaskKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{})
		var again error
		newTask(t, srv, "curious", func(call *server.Call) (string, error) {
			for _, key := range []string{"a", "b"} {
				if _, err := call.Elicit(call, key, nameForm); err != nil {
					return "", err
				}
				elapse(time.Second)
			}
			_, again = call.Elicit(call, "a", nameForm)
			return "done", nil
		})
		c := dialTasks(t, srv, modern, "")
		id := c.start("curious", "").TaskID
		synctest.Wait()
		var states []string
		look := func() {
			v := c.get(id)
			state := v.Status
			for key := range v.InputRequests {
				state += " " + key
			}
			states = append(states, state)
		}
		for _, key := range []string{"a", "b"} {
			look()
			c.must("tasks/update", `"taskId":"`+id+`","inputResponses":{"`+key+`":{"action":"decline"}}`)
			synctest.Wait()
			look()
			elapse(time.Second)
			synctest.Wait()
		}
		look()
		c.must("tasks/update", `"taskId":"`+id+`","inputResponses":{"a":{"action":"decline"}}`)
		c.must("tasks/cancel", `"taskId":"`+id+`"`)
		look()
		if want := []string{"input_required a", "working", "input_required b", "working", "completed", "completed"}; !slices.Equal(states, want) {
			t.Errorf("got states %q, want %q", states, want)
		}
		if again == nil || !strings.Contains(again.Error(), "already") {
			t.Errorf("the same key again: %v", again)
		}
	})
}
