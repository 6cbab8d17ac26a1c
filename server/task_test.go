package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// inBubble runs a test in a synctest bubble.
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
		related := `,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + created.TaskID + `"}}}`
		want := strings.TrimSuffix(strings.Replace(direct, "plain", "done", 1), "}") + related
		if result != want {
			t.Errorf("got %s, want %s", result, want)
		}
		synctest.Wait()
		notes := strings.Join(c.takeNotes(), "\n")
		if !strings.Contains(notes, `notifications/progress {"progressToken":"p","progress":1,"total":2`+related) ||
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
func TestTaskRejections(t *testing.T) {
	srv := newTaskServer(t, server.TaskOptions{})
	plain := server.MustNew("test", "1", nil)
	if err := server.AddTool(plain, "plain", "", func(context.Context, struct{}) (string, error) { return "plain", nil }); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, revision, method, params string
		srv                            *server.Server
		want                           jsonrpc.Code // zero for success
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
		{"params.task is null", modern, "tools/call", `"name":"plain","task":{}`, srv, 0},
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
				t.Errorf("%s: canceled twice: %v", revision, err)
			}
		})
	}
}

// A finishingStore is a TaskStore whose tasks complete before the first update.
type finishingStore struct{ server.TaskStore }

func (s finishingStore) Update(ctx context.Context, id string, change func(*server.Task) error) (*server.Task, error) {
	if _, err := s.TaskStore.Update(ctx, id, func(t *server.Task) error { t.Status = mcp.TaskStatusCompleted; return nil }); err != nil {
		return nil, err
	}
	return s.TaskStore.Update(ctx, id, change)
}

// TestTaskCancelTooLate checks that the error for a task that has ended has the status in which it
// ended.
func TestTaskCancelTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{Store: finishingStore{server.NewTaskStore()}}), coreTasks, "")
		_, err := c.call("tasks/cancel", `"taskId":"`+c.start("slow", "").TaskID+`"`)
		if code(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), "it is completed") {
			t.Errorf("got error %v, want one with the status completed", err)
		}
	})
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
		// Without a principal, the session owns the tasks.
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
func TestTaskInputCore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{}), coreTasks, "")
		id := c.start("asks", "").TaskID
		result := c.must("tasks/result", `"taskId":"`+id+`"`)
		if !strings.Contains(result, `accept {\"name\":\"x\"}`) {
			t.Errorf("got %s", result)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.asked) != 1 || !strings.HasSuffix(c.asked[0], `,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}}}`) {
			t.Errorf("asked %q", c.asked)
		}
	})
}

// Spec: T47 T48
func TestTaskInputExtension(t *testing.T) {
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

// TestTaskAfter checks that a fast tool returns its result, that a slow one becomes a task, and
// that input requests come first.
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

// TestTaskSubscriptionLimit checks that a subscription to too many tasks is rejected, not
// truncated.
func TestTaskSubscriptionLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{}), modern, "")
		ids := strings.Repeat(`"unknown",`, 1024) + `"` + c.start("slow", "").TaskID + `"`
		listened := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := c.conn.Call(ctx, "subscriptions/listen", []byte(`{`+extensionMeta+`,"notifications":{"taskIds":[`+ids+`]}}`))
			listened <- err
		}()
		synctest.Wait()
		cancel() // a subscription would wait for this
		if err := <-listened; code(err) != jsonrpc.CodeInternalError {
			t.Errorf("got error %v, want one for too many tasks", err)
		}
	})
}

// TestTaskExpires checks that a task and its handler end when the TTL has passed.
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

// TestTaskLimits checks the limits of tasks per caller and in total.
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

// A deadStore is a TaskStore that always fails.
type deadStore struct{ server.TaskStore }

var errNoQuorum = errors.New("no quorum")

func (deadStore) Create(context.Context, *server.Task) error         { return errNoQuorum }
func (deadStore) Task(context.Context, string) (*server.Task, error) { return nil, errNoQuorum }
func (deadStore) Tasks(context.Context, string, string, int) ([]*server.Task, error) {
	return nil, errNoQuorum
}

// TestTasksUnavailable checks that the error for the client says that a retry is possible, and
// hides the store's error.
func TestTasksUnavailable(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{Store: deadStore{server.NewTaskStore()}}), coreTasks, "")
		for method, params := range map[string]string{"tools/call": `"name":"quick","task":{}`, "tasks/get": `"taskId":"x"`, "tasks/list": "", "tasks/cancel": `"taskId":"x"`} {
			_, err := c.call(method, params)
			if code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "unavailable now: try again") || strings.Contains(err.Error(), "quorum") {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
}

// A slowStore is a TaskStore whose lists are outdated when they arrive.
type slowStore struct{ server.TaskStore }

func (s slowStore) Tasks(ctx context.Context, owner, after string, limit int) ([]*server.Task, error) {
	list, err := s.TaskStore.Tasks(ctx, owner, after, limit)
	elapse(time.Second)
	return list, err
}

// TestTaskLimitAtOnce checks that concurrent calls do not exceed MaxTasks.
func TestTaskLimitAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{Store: slowStore{server.NewTaskStore()}, MaxTasks: 3}), coreTasks, "")
		const calls = 8
		failed := make(chan error, calls)
		for range calls {
			go func() {
				_, err := c.call("tools/call", `"name":"quick","task":{}`)
				failed <- err
			}()
		}
		created := 0
		for range calls {
			if err := <-failed; err == nil {
				created++
			} else if code(err) != jsonrpc.CodeInternalError {
				t.Errorf("got %v", err)
			}
		}
		if created != 3 {
			t.Errorf("%d tasks were created, want 3", created)
		}
	})
}

// TestTaskList reads all pages of tasks/list, in the order in which the tasks were created.
func TestTaskList(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", &server.Options{Tasks: &server.TaskOptions{}, Limits: server.Limits{PageSize: 2}})
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

type taskFunc = func(ctx context.Context, call *server.Call) (string, error)

// addTaskTool registers a tool that can run as a task.
func addTaskTool(t testing.TB, srv *server.Server, name string, fn taskFunc) {
	t.Helper()
	def := mcp.Tool{Name: name, Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}
	if err := server.AddToolWith(srv, def, func(ctx context.Context, _ struct{}) (string, error) { return fn(ctx, server.CallOf(ctx)) }); err != nil {
		t.Fatal(err)
	}
}

// TestTaskExits checks that a handler that ends its goroutine fails only its task or its request.
func TestTaskExits(t *testing.T) {
	for _, revision := range []string{coreTasks, modern} {
		inBubble(t, func(t *testing.T) {
			srv := newTaskServer(t, server.TaskOptions{})
			addTaskTool(t, srv, "exits", func(context.Context, *server.Call) (string, error) { runtime.Goexit(); return "", nil })
			c := dialTasks(t, srv, revision, "")
			id := c.start("exits", "").TaskID
			synctest.Wait()
			if got := c.get(id); got.Status != "failed" {
				t.Errorf("%s: got %+v", revision, got)
			}
		})
	}
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{After: time.Second})
		addTaskTool(t, srv, "exits", func(context.Context, *server.Call) (string, error) { runtime.Goexit(); return "", nil })
		c := dialTasks(t, srv, modern, "")
		if got, err := c.call("tools/call", `"name":"exits"`); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("answered directly: got %s, %v", got, err)
		}
	})
}

// TestTaskOfCanceledRequest shows that a canceled request creates no task, though the handler
// continues.
func TestTaskOfCanceledRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore()}
		srv := newTaskServer(t, server.TaskOptions{After: time.Second, Store: store})
		addTaskTool(t, srv, "stubborn", func(ctx context.Context, _ *server.Call) (string, error) {
			<-ctx.Done()
			elapse(time.Minute)
			return "", nil
		})
		c := dialTasks(t, srv, modern, "")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		if _, err := c.conn.Call(ctx, "tools/call", []byte(`{`+extensionMeta+`,"name":"stubborn"}`)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		elapse(2 * time.Minute)
		if n := store.created.Load(); n != 0 {
			t.Errorf("made %d tasks", n)
		}
	})
}

// TestTaskOverLimit checks that the server waits for a tool that cannot become a task.
func TestTaskOverLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{After: time.Second, MaxTasks: 1}), modern, "")
		c.start("slow", "")
		if got, err := c.call("tools/call", `"name":"slow"`); err != nil || !strings.Contains(got, `"text":"done"`) {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

// TestTaskMiddlewareEndsFirst checks that the context of a middleware applies until there is a
// task.
func TestTaskMiddlewareEndsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{After: time.Minute})
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return next(ctx, m)
			}
		})
		c := dialTasks(t, srv, modern, "")
		began := time.Now()
		got, err := c.call("tools/call", `"name":"slow"`)
		if waited := time.Since(began); err != nil || !strings.Contains(got, `"isError":true`) || waited != time.Second {
			t.Errorf("after %v: got %s, %v", waited, got, err)
		}
	})
}

// TestTaskMiddlewareRepeats checks that a call that has become a task is not repeated while its
// handler runs.
func TestTaskMiddlewareRepeats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{})
		var again error
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				result, err := next(ctx, m)
				if m.Method == mcp.MethodToolsCall {
					_, again = next(ctx, m)
				}
				return result, err
			}
		})
		c := dialTasks(t, srv, coreTasks, "")
		id := c.start("slow", "").TaskID
		if again == nil {
			t.Error("the handler was run again")
		}
		elapse(10 * time.Second)
		synctest.Wait()
		if got := c.get(id); got.Status != "completed" {
			t.Errorf("got %+v", got)
		}
	})
}

// TestTaskClose checks that Close waits for a call that is becoming a task, and that the context of
// its handler has ended.
func TestTaskClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore(), creating: make(chan struct{})}
		srv := newTaskServer(t, server.TaskOptions{Store: store})
		var ended atomic.Bool
		addTaskTool(t, srv, "waits", func(ctx context.Context, _ *server.Call) (string, error) {
			<-ctx.Done()
			elapse(time.Second)
			ended.Store(true)
			return "", ctx.Err()
		})
		c := dialTasks(t, srv, modern, "")
		answered := make(chan error, 1)
		go func() {
			_, err := c.call("tools/call", `"name":"waits"`)
			answered <- err
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- srv.Close(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("closed before the task was created: %v", err)
		default:
			close(store.creating)
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
		err := <-answered
		if err == nil && !ended.Load() {
			t.Error("the handler still runs")
		}
		if _, err := c.call("tools/call", `"name":"waits"`); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("after Close: got %v", err)
		}
	})
}

// TestWaitForTasks shows that a server can wait for its tasks before it is closed.
func TestWaitForTasks(t *testing.T) {
	if err := server.MustNew("no tasks", "1", nil).WaitForTasks(t.Context()); err != nil {
		t.Error(err)
	}
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{})
		addTaskTool(t, srv, "minute", func(ctx context.Context, _ *server.Call) (string, error) {
			elapse(time.Minute)
			return "done", ctx.Err()
		})
		c := dialTasks(t, srv, modern, "")
		if err := srv.WaitForTasks(t.Context()); err != nil {
			t.Error(err)
		}
		id := c.start("minute", "").TaskID
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := srv.WaitForTasks(short); err != context.DeadlineExceeded || time.Since(start) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if err := srv.WaitForTasks(t.Context()); err != nil || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if err := srv.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := c.get(id); got.Status != "completed" {
			t.Errorf("got %+v", got)
		}
	})
}

// TestTaskOfSessionForgotten shows that a session whose tasks are unreachable leaves nothing in
// memory.
func TestTaskOfSessionForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore()}
		srv := newTaskServer(t, server.TaskOptions{Store: store})
		ids := make(map[string]string)
		for _, principal := range []string{"", "ann"} {
			c := dialTasks(t, srv, coreTasks, principal)
			ids[principal] = c.start("quick", "").TaskID
			synctest.Wait()
			c.conn.Close()
			synctest.Wait()
		}
		if _, err := store.Task(context.Background(), ids[""]); !errors.Is(err, server.ErrTaskNotFound) {
			t.Errorf("got %v", err)
		}
		if _, err := store.Task(context.Background(), ids["ann"]); err != nil {
			t.Error(err)
		}
	})
}

var whoForm = &mcp.ElicitRequestParams{Message: "Name?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)}

// askBoth is a tool that sends two input requests at once.
func askBoth(ctx context.Context, call *server.Call) (string, error) {
	q := call.InputRequests()
	a, b := q.Elicit("a", whoForm), q.Elicit("b", whoForm)
	if err := q.Wait(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s", a.Value().Content, b.Value().Content), nil
}

// open returns the pending input requests of a task, and its status.
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
		// An invalid answer is rejected as a whole, and its input request stays pending.
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
			t.Error("an answer to an unknown input request changed the task")
		}
		if err := update(`{"a":{"action":"accept","content":{"name":"1"}}}`); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if keys, status := c.open(id); !cmp.Equal(keys, []string{"b"}) || status != "input_required" {
			t.Errorf("got %q, %s", keys, status)
		}
		// The first answer is used.
		if err := update(`{"a":{"action":"accept","content":{"name":"2"}},"b":{"action":"accept","content":{"name":"3"}}}`); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := c.get(id); got.Status != "completed" || !strings.Contains(string(got.Result), `{\"name\":\"1\"} {\"name\":\"3\"}`) {
			t.Errorf("got %+v: %s", got, got.Result)
		}
	})
}

// TestTaskAnswerIsTakenOnce shows that an input request is no longer pending once its response has
// arrived, even before the tool takes it.
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

// TestTaskInputGivesUp shows that a task continues without the input request when its tool has
// stopped waiting.
func TestTaskInputGivesUp(t *testing.T) {
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

// TestTaskInputCoreAtOnce checks that a task needs input until all of its concurrent input requests
// have answers.
func TestTaskInputCoreAtOnce(t *testing.T) {
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

// TestTaskTakesEarlierAnswers checks that a task does not repeat input requests that were answered
// before the call became a task.
func TestTaskTakesEarlierAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{After: time.Second})
		runs := 0
		addTaskTool(t, srv, "slower", func(ctx context.Context, call *server.Call) (string, error) {
			if runs++; runs > 1 {
				elapse(5 * time.Second) // it is a task by now
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

// TestTaskRequiresURL checks that an error that sends the user to a web page becomes an input
// request until there is a task.
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
