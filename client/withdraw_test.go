package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/mcp"
)

// lateTask is what a modern server answers that has made a task of a call.
func lateTask(id string) string {
	return fmt.Sprintf(`{"resultType":"task","taskId":%q,"status":"working","createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:05Z","ttlMs":null}`, id)
}

// TestLateTask: what becomes of the answer to a call that was given up before.
func TestLateTask(t *testing.T) {
	const complete = `{"resultType":"complete","content":[]}`
	for _, tt := range []struct {
		name   string
		opts   Options
		call   []CallOption // instead of the end of the context
		after  time.Duration
		answer string // "" is an error
		want   bool   // the task is cancelled
	}{
		{name: "task", opts: Options{Tasks: true}, answer: lateTask("t"), want: true},
		{name: "task, after a timeout", opts: Options{Tasks: true}, call: []CallOption{WithTimeout(time.Second)}, answer: lateTask("t"), want: true},
		{name: "task, at the last moment", opts: Options{Tasks: true}, after: cancelTimeout - 1, answer: lateTask("t"), want: true},
		{name: "task, too late", opts: Options{Tasks: true}, after: cancelTimeout + 1, answer: lateTask("t")},
		{name: "task that was not wanted", answer: lateTask("t")},
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
					for range 2 { // the second is one too many
						if tt.answer == "" {
							s.refuse(m, -1, "")
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
					s.expectEnd() // without another cancellation
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
				if n := len(c.withdrawnCalls.calls); n != 0 {
					t.Errorf("%d calls are still known", n)
				}
			})
		})
	}
}

// TestLateTaskAtClose: a server that does not answer is not told twice, by a client that is closed meanwhile.
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

// TestLateTasks: the client waits for so many late answers, those to the last calls, and others are dropped. All calls are cancelled.
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
