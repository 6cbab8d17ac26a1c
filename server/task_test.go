package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// inBubble runs a test in a bubble of synctest, so that time passes by itself.
func inBubble(t *testing.T, fn func(t *testing.T)) { synctest.Test(t, fn) }

// Spec: T8 T9 T10 T11 T15 T16 T17 T18 T40 T45 T46 T50
func TestTaskLife(t *testing.T) {
	for _, revision := range []string{coreTasks, modern} {
		t.Run(revision, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := dialTasks(t, newTaskServer(t, server.TaskOptions{PollInterval: 3 * time.Second}), revision, "")
				created := c.start("slow", "")
				for name, v := range map[string]task{"created": created, "get": c.get(created.TaskID)} {
					ttl, poll := v.TTL, v.PollInterval
					if revision == modern {
						ttl, poll = v.TTLMs, v.PollIntervalMs
					}
					if v.TaskID != created.TaskID || v.Status != "working" || ttl == nil || poll == nil || *poll != 3000 {
						t.Errorf("%s: got %+v", name, v)
					}
					for _, at := range []string{v.CreatedAt, v.LastUpdatedAt} {
						if _, err := time.Parse(time.RFC3339, at); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
				}
				elapse(10 * time.Second)
				synctest.Wait()
				done := c.get(created.TaskID)
				if done.Status != "completed" || done.LastUpdatedAt <= created.LastUpdatedAt || revision == modern && done.ResultType != "complete" {
					t.Errorf("got %+v", done)
				}
				result := string(done.Result)
				if revision == coreTasks {
					result = c.must("tasks/result", `"taskId":"`+created.TaskID+`"`)
				}
				if !strings.Contains(result, `"text":"done"`) {
					t.Errorf("got %s", result)
				}
				if other := c.start("slow", ""); other.TaskID <= created.TaskID {
					t.Errorf("ids %s, %s do not grow", created.TaskID, other.TaskID)
				}
			})
		})
	}
}

// Spec: T19 T20 T21 T22 T25 T34 T35
func TestTaskResultWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{}), coreTasks, "")
		direct := c.must("tools/call", `"name":"plain"`)
		created := c.start("slow", `,"_meta":{"progressToken":"p"}`)
		began := time.Now()
		result := c.must("tasks/result", `"taskId":"`+created.TaskID+`"`)
		if waited := time.Since(began); waited != 10*time.Second {
			t.Errorf("waited %v", waited)
		}
		want := `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + created.TaskID + `"}},` + strings.Replace(direct[1:], "plain", "done", 1)
		if result != want {
			t.Errorf("got %s, want %s", result, want)
		}
		synctest.Wait()
		notes := strings.Join(c.takeNotes(), "\n")
		if !strings.Contains(notes, `notifications/progress {"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+created.TaskID+`"}},"progressToken":"p","progress":1`) ||
			!strings.Contains(notes, `notifications/tasks/status {"taskId":"`+created.TaskID+`","status":"completed"`) {
			t.Errorf("got notes %s", notes)
		}
	})
}

// Spec: T52 T21 T12
func TestTaskFailures(t *testing.T) {
	for _, tt := range []struct {
		tool, core, extension string
		code                  jsonrpc.Code
	}{
		{"fails", "failed", "completed", 0},
		{"refuses", "failed", "failed", 4711},
		{"panics", "failed", "failed", jsonrpc.CodeInternalError},
	} {
		inBubble(t, func(t *testing.T) {
			srv := newTaskServer(t, server.TaskOptions{})
			c := dialTasks(t, srv, coreTasks, "")
			id := c.start(tt.tool, "").TaskID
			synctest.Wait()
			if got := c.get(id); got.Status != tt.core {
				t.Errorf("%s, core: got %s", tt.tool, got.Status)
			}
			if result, err := c.call("tasks/result", `"taskId":"`+id+`"`); code(err) != tt.code || tt.code == 0 && !strings.Contains(result, `"isError":true`) {
				t.Errorf("%s: got %s, %v", tt.tool, result, err)
			}
			m := dialTasks(t, srv, modern, "")
			id = m.start(tt.tool, "").TaskID
			synctest.Wait()
			got := m.get(id)
			if got.Status != tt.extension || (got.Error != nil) != (tt.code != 0) || got.Error != nil && got.Error.Code != int(tt.code) {
				t.Errorf("%s, extension: got %+v", tt.tool, got)
			}
		})
	}
}

// Spec: T5 T7 T41 T42 T54 T58 T59 T32 T53
func TestTaskRefusals(t *testing.T) {
	srv := newTaskServer(t, server.TaskOptions{})
	plain := server.New("test", "1", nil)
	if err := server.AddTool(plain, "plain", "", func(context.Context, struct{}) (string, error) { return "plain", nil }); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, revision, method, params string
		srv                            *server.Server
		want                           jsonrpc.Code // 0 is success
	}{
		{"required, without", coreTasks, "tools/call", `"name":"required"`, srv, jsonrpc.CodeMethodNotFound},
		{"forbidden, with", coreTasks, "tools/call", `"name":"plain","task":{}`, srv, jsonrpc.CodeMethodNotFound},
		{"bad ttl", coreTasks, "tools/call", `"name":"slow","task":{"ttl":0}`, srv, jsonrpc.CodeInvalidParams},
		{"bad task", coreTasks, "tools/call", `"name":"slow","task":7`, srv, jsonrpc.CodeInvalidParams},
		{"no task", coreTasks, "tools/call", `"name":"plain","task":null`, srv, 0},
		{"no capability, with", coreTasks, "tools/call", `"name":"plain","task":{}`, plain, 0},
		{"no capability, get", coreTasks, "tasks/get", `"taskId":"x"`, plain, jsonrpc.CodeMethodNotFound},
		{"older, required", "2025-06-18", "tools/call", `"name":"required","task":{}`, srv, 0},
		{"older, get", "2025-06-18", "tasks/get", `"taskId":"x"`, srv, jsonrpc.CodeMethodNotFound},
		{"params.task is nothing", modern, "tools/call", `"name":"plain","task":{}`, srv, 0},
		{"result", modern, "tasks/result", `"taskId":"x"`, srv, jsonrpc.CodeMethodNotFound},
		{"list", modern, "tasks/list", ``, srv, jsonrpc.CodeMethodNotFound},
		{"update", coreTasks, "tasks/update", `"taskId":"x","inputResponses":{}`, srv, jsonrpc.CodeInvalidParams},
		{"unknown", coreTasks, "tasks/get", `"taskId":"x"`, srv, jsonrpc.CodeInvalidParams},
		{"unknown", coreTasks, "tasks/result", `"taskId":"x"`, srv, jsonrpc.CodeInvalidParams},
		{"unknown", coreTasks, "tasks/cancel", `"taskId":"x"`, srv, jsonrpc.CodeInvalidParams},
		{"unknown", modern, "tasks/get", `"taskId":"x"`, srv, jsonrpc.CodeInvalidParams},
		{"unknown", modern, "tasks/update", `"taskId":"x","inputResponses":{}`, srv, jsonrpc.CodeInvalidParams},
		{"unknown", modern, "tasks/cancel", `"taskId":"x"`, srv, jsonrpc.CodeInvalidParams},
		{"no id", modern, "tasks/get", ``, srv, jsonrpc.CodeInvalidParams},
		{"bad id", modern, "tasks/get", `"taskId":7`, srv, jsonrpc.CodeInvalidParams},
		{"bad cursor", coreTasks, "tasks/list", `"cursor":"x"`, srv, jsonrpc.CodeInvalidParams},
	} {
		t.Run(tt.revision+" "+tt.method+" "+tt.name, func(t *testing.T) {
			c := dialTasks(t, tt.srv, tt.revision, "")
			if got, err := c.call(tt.method, tt.params); code(err) != tt.want || err != nil && tt.want == 0 {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	// A client that has not declared the extension.
	c := connect(t, srv, modern)
	for _, tt := range []struct{ method, params string }{
		{"tools/call", `{"name":"required"}`}, {"tasks/get", `{"taskId":"x"}`}, {"tasks/cancel", `{"taskId":"x"}`},
		{"subscriptions/listen", `{"notifications":{"taskIds":["x"]}}`},
	} {
		_, err := c.call(context.Background(), tt.method, tt.params)
		e, _ := errors.AsType[*jsonrpc.Error](err)
		if e == nil || e.Code != mcp.CodeMissingRequiredClientCapability || string(e.Data) != `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}` {
			t.Errorf("%s: got %v", tt.method, err)
		}
	}
	if got, err := c.result("quick", "{}"); err != nil || got.Text != "quick" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Spec: T13 T29 T30 T31 T50
func TestTaskCancel(t *testing.T) {
	for _, revision := range []string{coreTasks, modern} {
		inBubble(t, func(t *testing.T) {
			c := dialTasks(t, newTaskServer(t, server.TaskOptions{}), revision, "")
			id := `"taskId":"` + c.start("slow", "").TaskID + `"`
			cancelled := c.must("tasks/cancel", id)
			if v := parseTask(t, cancelled); revision == coreTasks && v.Status != "cancelled" || revision == modern && v.TaskID != "" {
				t.Errorf("%s: got %s", revision, cancelled)
			}
			elapse(time.Minute / 2)
			if got := c.get(parseTask(t, "{"+id+"}").TaskID); got.Status != "cancelled" || got.Result != nil {
				t.Errorf("%s: got %+v", revision, got)
			}
			if _, err := c.call("tasks/cancel", id); (code(err) == jsonrpc.CodeInvalidParams) != (revision == coreTasks) {
				t.Errorf("%s: cancelled twice: %v", revision, err)
			}
		})
	}
}

// Spec: T36 T37 T38 T39 T28 T26 T57
func TestTaskOwners(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{})
		for _, revision := range []string{coreTasks, modern} {
			ann, bob, ann2 := dialTasks(t, srv, revision, "ann"), dialTasks(t, srv, revision, "bob"), dialTasks(t, srv, revision, "ann")
			id := ann.start("quick", "").TaskID
			synctest.Wait()
			ann2.get(id)
			for _, method := range []string{"tasks/get", "tasks/cancel"} {
				if _, err := bob.call(method, `"taskId":"`+id+`"`); code(err) != jsonrpc.CodeInvalidParams {
					t.Errorf("%s %s: got %v", revision, method, err)
				}
			}
			if revision == modern {
				continue
			}
			if _, err := bob.call("tasks/result", `"taskId":"`+id+`"`); code(err) != jsonrpc.CodeInvalidParams {
				t.Errorf("got %v", err)
			}
			if got := bob.must("tasks/list", ""); got != `{"tasks":[]}` {
				t.Errorf("got %s", got)
			}
			ext := dialTasks(t, srv, modern, "ann").start("quick", "").TaskID
			if got := ann2.must("tasks/list", ""); !strings.Contains(got, id) || strings.Contains(got, ext) {
				t.Errorf("got %s", got)
			}
		}
		// Nobody in particular: the session owns the tasks.
		one, two := dialTasks(t, srv, coreTasks, ""), dialTasks(t, srv, coreTasks, "")
		id := one.start("quick", "").TaskID
		synctest.Wait()
		one.get(id)
		if _, err := two.call("tasks/get", `"taskId":"`+id+`"`); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("got %v", err)
		}
	})
}

// Spec: T14 T22
func TestTaskAsksCore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{}), coreTasks, "")
		id := c.start("asks", "").TaskID
		result := c.must("tasks/result", `"taskId":"`+id+`"`)
		if !strings.Contains(result, `accept {\"name\":\"x\"}`) {
			t.Errorf("got %s", result)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.asked) != 1 || !strings.HasPrefix(c.asked[0], `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}},`) {
			t.Errorf("asked %q", c.asked)
		}
	})
}

// Spec: T47 T48
func TestTaskAsksExtension(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{}), modern, "")
		id := c.start("asks", "").TaskID
		synctest.Wait()
		got := c.get(id)
		if diff := cmp.Diff(map[string]struct{ Method string }{"name": {"elicitation/create"}}, got.InputRequests); diff != "" || got.Status != "input_required" {
			t.Fatalf("got %+v\n%s", got, diff)
		}
		if got := c.must("tasks/update", `"taskId":"`+id+`","inputResponses":{"other":{}}`); !strings.HasPrefix(got, `{"resultType":"complete"`) {
			t.Errorf("got %s", got)
		}
		if got := c.get(id); got.Status != "input_required" {
			t.Errorf("got %+v", got)
		}
		c.must("tasks/update", `"taskId":"`+id+`","inputResponses":{"name":{"action":"accept","content":{"name":"y"}}}`)
		synctest.Wait()
		if got := c.get(id); got.Status != "completed" || !strings.Contains(string(got.Result), `accept {\"name\":\"y\"}`) {
			t.Errorf("got %+v: %s", got, got.Result)
		}
	})
}

// TestTaskAfter sees that a quick tool is answered directly, that a slow one becomes a task, and that questions come first.
func TestTaskAfter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{After: time.Second}), modern, "")
		if got := c.must("tools/call", `"name":"quick"`); !strings.Contains(got, `"text":"quick"`) || !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("got %s", got)
		}
		began := time.Now()
		id := c.start("slow", "").TaskID
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		elapse(9 * time.Second)
		synctest.Wait()
		if got := c.get(id); got.Status != "completed" {
			t.Errorf("got %+v", got)
		}
		got := c.must("tools/call", `"name":"asks"`)
		if !strings.Contains(got, `"resultType":"input_required"`) {
			t.Fatalf("got %s", got)
		}
		var round struct{ RequestState string }
		if err := json.Unmarshal([]byte(got), &round); err != nil {
			t.Fatal(err)
		}
		got = c.must("tools/call", `"name":"asks","inputResponses":{"name":{"action":"decline"}},"requestState":"`+round.RequestState+`"`)
		if !strings.Contains(got, `"text":"decline `) {
			t.Errorf("got %s", got)
		}
	})
}

// Spec: T55
func TestTaskSubscription(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{}), modern, "")
		id := c.start("slow", "").TaskID
		ctx, cancel := context.WithCancel(context.Background())
		listened := make(chan error, 1)
		go func() {
			_, err := c.conn.Call(ctx, "subscriptions/listen", []byte(`{`+extensionMeta+`,"notifications":{"taskIds":["`+id+`","unknown"]}}`))
			listened <- err
		}()
		synctest.Wait()
		elapse(10 * time.Second)
		synctest.Wait()
		notes := c.takeNotes()
		if len(notes) != 2 || !strings.Contains(notes[0], `"notifications":{"taskIds":["`+id+`"]}`) ||
			!strings.HasPrefix(notes[1], "notifications/tasks ") || !strings.Contains(notes[1], `"status":"completed"`) || !strings.Contains(notes[1], `"text":"done"`) {
			t.Errorf("got %q", notes)
		}
		cancel()
		<-listened
	})
}

// TestTaskExpires sees that a task is gone when its time is up, and its handler with it.
func TestTaskExpires(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{TTL: 5 * time.Second}), coreTasks, "")
		created := c.start("slow", "")
		if created.TTL == nil || *created.TTL != 5000 {
			t.Errorf("got %+v", created)
		}
		if _, err := c.call("tasks/result", `"taskId":"`+created.TaskID+`"`); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("got %v", err)
		}
	})
}

// TestTaskLimits sees that a caller, and all of them, can have only so many tasks.
func TestTaskLimits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{MaxTasks: 2}), coreTasks, "")
		for range 2 {
			c.start("quick", "")
		}
		if _, err := c.call("tools/call", `"name":"quick","task":{}`); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("got %v", err)
		}
		c = dialTasks(t, newTaskServer(t, server.TaskOptions{MaxRunning: 1}), modern, "")
		c.start("slow", "")
		if _, err := c.call("tools/call", `"name":"slow"`); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("got %v", err)
		}
	})
}

// TestTaskList sees all pages of tasks/list, in the order in which the tasks were made.
func TestTaskList(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := server.New("test", "1", &server.Options{Tasks: &server.TaskOptions{}, PageSize: 2})
		if err := server.AddToolWith(srv, mcp.Tool{Name: "quick", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}},
			func(context.Context, struct{}) (string, error) { return "", nil }); err != nil {
			t.Fatal(err)
		}
		defer srv.Close(context.Background())
		c := dialTasks(t, srv, coreTasks, "")
		var want, got []string
		for range 5 {
			want = append(want, c.start("quick", "").TaskID)
			elapse(time.Millisecond)
		}
		cursor := ""
		for {
			var page struct {
				Tasks      []task
				NextCursor *string
			}
			if err := json.Unmarshal([]byte(c.must("tasks/list", cursor)), &page); err != nil {
				t.Fatal(err)
			}
			for _, v := range page.Tasks {
				got = append(got, v.TaskID)
			}
			if page.NextCursor == nil {
				break
			}
			cursor = `"cursor":"` + *page.NextCursor + `"`
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
