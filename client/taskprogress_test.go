package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/test/wait"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestTaskProgress shows that progress and log messages of a legacy server reach the call's
// callbacks until the task has ended, whichever goroutine waits for it.
//
// Spec: T34 T35
func TestTaskProgress(t *testing.T) {
	for _, start := range []bool{false, true} {
		t.Run(fmt.Sprintf("start %t", start), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taskServer(t, legacyDate, "working", "working", "completed")
				told := 0
				tell := func() {
					told++
					s.notify("notifications/progress", fmt.Sprintf(`{"progressToken":1,"progress":%d}`, told))
					s.notify("notifications/message", fmt.Sprintf(`{"level":"info","data":%d}`, told))
				}
				create, get := s.answers["tools/call"], s.answers["tasks/get"]
				s.answers["tools/call"] = func(ctx context.Context, params string) (string, error) {
					tell()
					return create(ctx, params)
				}
				s.answers["tasks/get"] = func(ctx context.Context, params string) (string, error) {
					elapse(time.Second)
					tell()
					return get(ctx, params)
				}
				s.answers["tasks/result"] = func(context.Context, string) (string, error) {
					tell()
					return done, nil
				}
				c := s.dial(nil)
				known(t, c)
				var got []string
				opts := []CallOption{
					WithProgress(func(p *mcp.ProgressNotificationParams) { got = append(got, fmt.Sprint("progress ", p.Progress)) }),
					WithLog(mcp.LevelInfo, func(p *mcp.LoggingMessageNotificationParams) { got = append(got, "log "+string(p.Data)) }),
				}
				var task *Task
				var err error
				if start {
					if task, err = c.StartTool(t.Context(), "slow", nil, opts...); err != nil {
						t.Fatal(err)
					}
					if want := []string{"progress 1", "log 1"}; !slices.Equal(got, want) {
						t.Errorf("at first: got %q, want %q", got, want)
					}
					_, err = task.Wait(t.Context())
				} else {
					_, err = c.CallTool(t.Context(), "slow", nil, opts...)
				}
				if err != nil {
					t.Fatal(err)
				}
				tell()
				synctest.Wait()
				var want []string
				for i := 1; i <= 5; i++ {
					want = append(want, fmt.Sprint("progress ", i), fmt.Sprint("log ", i))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if len(c.callbacks.byToken)+len(c.callbacks.logs) != 0 {
					t.Error("it is still watched")
				}
				runtime.KeepAlive(task)
			})
		})
	}
}

// TestTaskProgressDropped shows that the callbacks of a call end if its task has no handle or was
// never created.
func TestTaskProgressDropped(t *testing.T) {
	s := taskServer(t, legacyDate, "working")
	c := s.dial(nil)
	known(t, c)
	progress := WithProgress(func(*mcp.ProgressNotificationParams) {})
	watched := func() int {
		c.callbacks.mu.Lock()
		defer c.callbacks.mu.Unlock()
		return len(c.callbacks.byToken)
	}
	if _, err := c.StartTool(t.Context(), "slow", nil, progress); err != nil || watched() != 1 {
		t.Fatalf("%v, %d are watched", err, watched())
	}
	wait.Until(t, "the task to be collected", func() bool {
		runtime.GC()
		return watched() == 0
	})
	s.answers["tools/call"] = says(done)
	if _, err := c.StartTool(t.Context(), "slow", nil, progress); err != nil || watched() != 0 {
		t.Errorf("no task: %v, %d are watched", err, watched())
	}
	s.answers["tools/call"] = fails(-32603)
	if _, err := c.StartTool(t.Context(), "slow", nil, progress); err == nil || watched() != 0 {
		t.Errorf("failed: %v, %d are watched", err, watched())
	}
}

// TestWiredTaskProgress is TestTaskProgress with a server of package server.
func TestWiredTaskProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("worker", "1", &server.Options{Tasks: &server.TaskOptions{PollInterval: time.Second}})
		def := mcp.Tool{Name: "slow", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}
		must(server.AddToolWith(srv, def, func(ctx context.Context, _ struct{}) (string, error) {
			for i := range 5 {
				elapse(time.Second)
				if err := server.CallOf(ctx).Progress(float64(i+1), 5, ""); err != nil {
					return "", err
				}
			}
			return "done", nil
		}))
		c := wire(t, srv, mcp.Revision20251125, Options{})
		known(t, c)
		var got []float64
		text, err := CallTool[string](t.Context(), c, "slow", nil, WithProgress(func(p *mcp.ProgressNotificationParams) { got = append(got, p.Progress) }))
		if want := []float64{1, 2, 3, 4, 5}; text != "done" || err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, progress %v", text, err, got)
		}
	})
}

// TestTaskCallCanceled shows that a call that requests a task is canceled once the task has an id.
// The call does not wait for a server that never sends one.
//
// Spec: T33
func TestTaskCallCanceled(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprintf("named %t", named), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taskServer(t, legacyDate, "working")
				create := s.answers["tools/call"]
				s.answers["tools/call"] = func(ctx context.Context, params string) (string, error) {
					if !named {
						<-ctx.Done()
						return "", ctx.Err()
					}
					elapse(2 * time.Second)
					return create(ctx, params)
				}
				c := s.dial(nil)
				known(t, c)
				for i, call := range []func(ctx context.Context, opts ...CallOption) error{
					func(ctx context.Context, opts ...CallOption) error {
						_, err := c.CallTool(ctx, "slow", nil, opts...)
						return err
					},
					func(ctx context.Context, opts ...CallOption) error {
						_, err := c.StartTool(ctx, "slow", nil, opts...)
						return err
					},
				} {
					s.takeSeen()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					began := time.Now()
					err := call(ctx, WithProgress(func(*mcp.ProgressNotificationParams) {}))
					if d := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || d != time.Second {
						t.Errorf("%d: got %v after %v", i, err, d)
					}
					elapse(time.Minute)
					if n := s.times("notifications/cancelled"); n != 0 {
						t.Errorf("%d: the call was canceled", i)
					}
					if n := s.times("tasks/cancel"); (n == 1) != named {
						t.Errorf("%d: the task was canceled %d times", i, n)
					}
					if n := len(c.callbacks.byToken); n != 0 {
						t.Errorf("%d: %d are watched", i, n)
					}
				}
			})
		})
	}
}

// TestForeignTask shows that the client rejects the state of another task than the requested one.
func TestForeignTask(t *testing.T) {
	for _, revision := range []string{modernDate, legacyDate} {
		synctest.Test(t, func(t *testing.T) {
			s := taskServer(t, revision, "working")
			c := s.dial(&Options{Tasks: true})
			task := c.Task("mine")
			if _, err := task.Poll(t.Context()); !is[*ProtocolError](err) || task.ID() != "mine" {
				t.Errorf("%s: got %v, and the id %q", revision, err, task.ID())
			}
		})
	}
}

// TestTaskEndlessInput shows that a task with endless input requests is canceled.
func TestTaskEndlessInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, modernDate)
		n := 0
		s.answers["tasks/get"] = func(context.Context, string) (string, error) {
			n++
			return taskText(modernDate, fmt.Sprintf(`input_required ,"inputRequests":{"%d":%s}`, n, askRoots)), nil
		}
		asked := 0
		c := s.dial(&Options{Tasks: true, Input: InputOptions{MaxRounds: 3, Roots: func(context.Context) ([]mcp.Root, error) {
			asked++
			return nil, nil
		}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := c.CallTool(ctx, "slow", nil); !errors.Is(err, errTooManyRounds) || asked != 3 {
			t.Errorf("got %v after %d rounds", err, asked)
		}
		synctest.Wait()
		if n := s.times("tasks/cancel"); n != 1 {
			t.Errorf("the task was canceled %d times", n)
		}
	})
}
