package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/mcp"
	"mcpwire/middleware"
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

// TestEndedTaskNotifications shows that a task that has ended sends no notifications, although its
// handler continues. A task of the extension sends none at any time.
//
// Spec: T35 T55
func TestEndedTaskNotifications(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		srv := newTaskServer(t, server.TaskOptions{})
		var kept *server.Call
		newTask(t, srv, "chatty", func(call *server.Call) (string, error) {
			kept = call
			for i := range 10 { // continues after the end of the task
				call.Progress(float64(i+1), 0, "")
				call.Log(mcp.LevelError, "", i)
				elapse(time.Second)
			}
			return "done", nil
		})
		countNotes := func(c *taskClient) int {
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
			if got := core.get(id).Status; got != ends || countNotes(core) == 0 {
				t.Errorf("%s: the task is %s, or sent no progress", ends, got)
			}
			elapse(20 * time.Second)
			if err := kept.Progress(100, 0, ""); err == nil {
				t.Errorf("%s: progress is accepted after the end", ends)
			}
			synctest.Wait()
			if n := countNotes(core); n > 0 {
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
		if n := countNotes(modern); n > 0 {
			t.Errorf("%d notifications of a task of the extension", n)
		}
		stop()
		<-listened
	})
}

// TestTaskKeys checks that a task uses each input key once, and alternates between working and
// waiting for input until it has ended.
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
		if again == nil || !strings.Contains(again.Error(), "duplicate key") {
			t.Errorf("the same key again: %v", again)
		}
	})
}

// A lateCall is a call that becomes a task, whose response is delayed by the store or a middleware
// while something happens to the request.
type lateCall struct {
	t     *testing.T
	srv   *server.Server
	store *testStore
	c     *taskClient

	hold   chan struct{} // delays the middleware
	fails  bool          // whether the middleware returns an error
	panics bool
	cause  atomic.Value // why the handler ended

	cancel context.CancelFunc
	done   chan error // result of the call
}

// status returns the status of the task.
func (l *lateCall) status() mcp.TaskStatus {
	all, err := l.store.TaskStore.Tasks(context.Background(), "", "", 10)
	if l.c.revision == coreTasks {
		all, err = l.store.TaskStore.Tasks(context.Background(), "principal ann", "", 10)
	}
	if err != nil || len(all) != 1 {
		l.t.Fatalf("got %d tasks, %v", len(all), err)
	}
	return all[0].Status
}

// TestTaskUnsent checks that only a task whose id was never sent to the client is canceled at once.
func TestTaskUnsent(t *testing.T) {
	inMiddleware := func(l *lateCall) { l.hold = make(chan struct{}) }
	inStore := func(l *lateCall) { l.store.creating = make(chan struct{}) }
	answer := func(l *lateCall) {
		synctest.Wait() // the server has handled all earlier messages
		if l.hold != nil {
			close(l.hold)
		}
		if l.store.creating != nil {
			close(l.store.creating)
		}
		synctest.Wait()
	}
	for _, tt := range []struct {
		name     string
		held     func(l *lateCall)
		happens  func(l *lateCall)
		revision string // empty for modern
		want     mcp.TaskStatus
	}{
		{"canceled while middleware delays the response", inMiddleware, func(l *lateCall) { l.cancel(); answer(l) }, "", mcp.TaskStatusCancelled},
		{"canceled while the task is stored", inStore, func(l *lateCall) { l.cancel(); answer(l) }, "", mcp.TaskStatusCancelled},
		{"connection closed", inMiddleware, func(l *lateCall) { l.c.conn.Close(); answer(l) }, "", mcp.TaskStatusCancelled},
		{"middleware fails", inMiddleware, func(l *lateCall) { l.fails = true; answer(l) }, "", mcp.TaskStatusCancelled},
		{"middleware panics", inMiddleware, func(l *lateCall) { l.panics = true; answer(l) }, "", mcp.TaskStatusCancelled},
		{"store is down for a while", inMiddleware, func(l *lateCall) {
			l.cancel()
			l.store.down.Store(true)
			answer(l)
			elapse(5 * time.Second)
			l.store.down.Store(false)
			elapse(2 * time.Second)
		}, "", mcp.TaskStatusCancelled},
		{"answered", inMiddleware, answer, "", mcp.TaskStatusWorking},
		{"response sent, then canceled", inMiddleware, func(l *lateCall) {
			answer(l)
			if err := l.c.conn.Notify(context.Background(), mcp.NotificationCancelled, []byte(`{"requestId":1}`)); err != nil {
				l.t.Error(err)
			}
		}, "", mcp.TaskStatusWorking},
		{"response sent, then connection closed", inMiddleware, func(l *lateCall) { answer(l); l.c.conn.Close() }, "", mcp.TaskStatusWorking},
		// Its owner finds it in the list and cancels it by id.
		{"core, cancelled", inMiddleware, func(l *lateCall) { l.cancel(); answer(l) }, coreTasks, mcp.TaskStatusWorking},
		{"core, connection closed", inMiddleware, func(l *lateCall) { l.c.conn.Close(); answer(l) }, coreTasks, mcp.TaskStatusWorking},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				l := &lateCall{t: t, store: &testStore{TaskStore: server.NewTaskStore()}, done: make(chan error, 1)}
				tt.held(l)
				l.srv = newTaskServer(t, server.TaskOptions{Store: l.store})
				l.srv.Use(func(next middleware.Handler) middleware.Handler {
					return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
						result, err := next(ctx, m)
						if m.Method != mcp.MethodToolsCall || l.hold == nil {
							return result, err
						}
						<-l.hold
						switch {
						case l.fails:
							return nil, errors.New("no")
						case l.panics:
							panic("no")
						}
						return result, err
					}
				})
				addTaskTool(t, l.srv, "waits", func(ctx context.Context, _ *server.Call) (string, error) {
					<-ctx.Done()
					l.cause.Store(context.Cause(ctx).Error())
					return "", ctx.Err()
				})
				revision, principal, more := modern, "", extensionMeta
				if tt.revision != "" {
					revision, principal, more = tt.revision, "ann", `"task":{}`
				}
				l.c = dialTasks(t, l.srv, revision, principal)
				ctx, cancel := context.WithCancel(context.Background())
				l.cancel = cancel
				defer cancel()
				go func() {
					_, err := l.c.conn.Call(ctx, mcp.MethodToolsCall, []byte(`{`+more+`,"name":"waits"}`))
					l.done <- err
				}()
				elapse(time.Second)
				tt.happens(l)
				synctest.Wait()
				<-l.done
				if got := l.status(); got != tt.want {
					t.Errorf("the task is %s, want %s", got, tt.want)
				}
				if cause, ended := l.cause.Load().(string); ended != (tt.want == mcp.TaskStatusCancelled) || ended && cause != "the task was cancelled" {
					t.Errorf("the handler has ended: %t, %s", ended, cause)
				}
			})
		})
	}
}

// TestTaskUnsentAtClose shows that Close waits for the cancellation of a task.
func TestTaskUnsentAtClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore(), creating: make(chan struct{})}
		srv := newTaskServer(t, server.TaskOptions{Store: store})
		c := dialTasks(t, srv, modern, "")
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := c.conn.Call(ctx, mcp.MethodToolsCall, []byte(`{`+extensionMeta+`,"name":"quick"}`))
			done <- err
		}()
		synctest.Wait()
		cancel()
		<-done
		synctest.Wait()
		store.down.Store(true)
		close(store.creating)
		synctest.Wait() // the store fails
		began := time.Now()
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Second || took > time.Minute {
			t.Errorf("Close took %v", took)
		}
	})
}
