package cluster_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestLostTasks checks that a task of a lost node fails once, that its clients are notified, and
// that other tasks continue.
func TestLostTasks(t *testing.T) {
	for name, leave := range map[string]bool{"killed": false, "left": true} {
		inBubble(t, func(t *testing.T) {
			shared := clustertest.NewMemory()
			a, b, c := join(t, shared, nil), join(t, shared, nil), join(t, shared, nil)
			stores := taskStores(t, a, b, c)
			create := func(i int, id string, status mcp.TaskStatus, core bool) {
				task := newTask(id, "o", time.Hour)
				task.Status, task.Core = status, core
				if status == mcp.TaskStatusInputRequired {
					task.InputRequests = map[string]mcp.InputRequest{"k": {Method: mcp.MethodRootsList}}
				}
				if err := stores[i].Create(t.Context(), task); err != nil {
					t.Fatal(err)
				}
			}
			create(0, "working", mcp.TaskStatusWorking, true)
			create(0, "asking", mcp.TaskStatusInputRequired, false)
			create(0, "done", mcp.TaskStatusWorking, false)
			create(1, "other", mcp.TaskStatusWorking, false)
			_, err := stores[0].Update(t.Context(), "done", func(t *server.Task) error {
				t.Status = mcp.TaskStatusCompleted
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var notified []string
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go c.Bus().Subscribe(ctx, func(message []byte) { notified = append(notified, string(message)) })
			advance(time.Minute + 2*time.Second) // not a multiple of the search interval
			status := func(id string) mcp.TaskStatus {
				t.Helper()
				task, err := stores[1].Task(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				return task.Status
			}
			if got := status("working"); got != mcp.TaskStatusWorking {
				t.Errorf("%s: task of a running node: got status %s", name, got)
			}
			if leave {
				if err := a.Leave(t.Context()); err != nil {
					t.Error(err)
				}
			} else {
				a.Close()
			}
			advance(11 * time.Second)
			for id, want := range map[string]mcp.TaskStatus{
				"working": mcp.TaskStatusFailed, "asking": mcp.TaskStatusFailed, "done": mcp.TaskStatusCompleted, "other": mcp.TaskStatusWorking,
			} {
				if got := status(id); got != want {
					t.Errorf("%s: task %s is %s, want %s", name, id, got, want)
				}
			}
			task, err := stores[2].Task(t.Context(), "asking")
			if err != nil || task.Error == nil || string(task.Error.Data) != `{"reason":"node lost","mayHaveRun":true}` || task.InputRequests != nil || task.StatusMessage == "" {
				t.Errorf("%s: %+v, %v", name, task, err)
			}
			version := task.Version
			advance(time.Minute)
			if task, err = stores[2].Task(t.Context(), "asking"); err != nil || task.Version != version {
				t.Errorf("%s: changed again: %+v, %v", name, task, err)
			}
			cancel()
			synctest.Wait()
			slices.Sort(notified)
			want := []string{`{"from":"","kind":"task","name":"asking"}`, `{"from":"","kind":"task","name":"working","owner":"o"}`}
			if diff := cmp.Diff(want, notified); diff != "" {
				t.Errorf("%s: messages (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestLostTaskInvalid checks that a lost task whose record cannot be read, and a run whose record
// cannot, do not keep other tasks from failing.
func TestLostTaskInvalid(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		lost, n := join(t, shared, nil), join(t, shared, nil)
		stores := taskStores(t, lost, n)
		ids := []string{"t1", "t2", "t3"}
		for _, id := range ids {
			if err := stores[0].Create(t.Context(), newTask(id, "o", time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		// Spoil the record of the first task, and the run of the second.
		for i, bucket := range []string{"tasks", "task-runs"} {
			r, err := shared.Records(t.Context(), bucket, cluster.RecordsOptions{TTL: 24 * time.Hour, MaxBytes: 1 << 30, Durable: true})
			if err != nil {
				t.Fatal(err)
			}
			for c, err := range r.Watch(t.Context(), "") {
				if err == nil && c.Kind == cluster.ChangePut && strings.Contains(string(c.Value), `"`+ids[i]+`"`) {
					_, err = r.Put(t.Context(), c.Key, []byte("x"), c.Rev)
				}
				if err != nil {
					t.Fatal(err)
				}
				if c.Kind == cluster.ChangeSynced {
					break
				}
			}
		}
		lost.Close()
		advance(20 * time.Second)
		task, err := stores[1].Task(t.Context(), "t3")
		if err != nil || task.Status != mcp.TaskStatusFailed {
			t.Errorf("the third task: %+v, %v", task, err)
		}
	})
}
