package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// TestBake runs with a fake clock, so that an hour takes no time.
func TestBake(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		t.Run(revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, err := newServer(time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				c := mcptest.Connect(t, srv, &client.Options{Revisions: []mcp.Revision{revision}, Tasks: true})

				begin := time.Now()
				task, err := c.StartTool(t.Context(), "bake", nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := task.State().Status; got != mcp.TaskStatusWorking || time.Since(begin) >= time.Minute {
					t.Errorf("the task is %s after %v", got, time.Since(begin))
				}
				got, err := client.WaitTask[string](t.Context(), task)
				if want := "A loaf of bread."; got != want || err != nil {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}

				task, err = c.StartTool(t.Context(), "bake", nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := task.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got, err := client.WaitTask[string](t.Context(), task); !errors.Is(err, client.ErrTaskCanceled) {
					t.Errorf("canceled: got %q, %v, want ErrTaskCanceled", got, err)
				}

				// A client without tasks waits.
				c = mcptest.Connect(t, srv, &client.Options{Revisions: []mcp.Revision{revision}})
				got, err = client.CallTool[string](t.Context(), c, "bake", nil)
				if want := "A loaf of bread."; got != want || err != nil {
					t.Errorf("without tasks: got %q, %v, want %q", got, err, want)
				}

				// No loaf is waited for, neither of the canceled task nor of this one.
				c = mcptest.Connect(t, srv, &client.Options{Revisions: []mcp.Revision{revision}, Tasks: true})
				if _, err := c.StartTool(t.Context(), "bake", nil); err != nil {
					t.Fatal(err)
				}
				begin = time.Now()
				if err := srv.Close(context.Background()); err != nil || time.Since(begin) >= time.Minute {
					t.Errorf("Close returned %v after %v", err, time.Since(begin))
				}
			})
		})
	}
}
