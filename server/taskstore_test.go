package server_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// A testStore is a TaskStore that can be made to fail.
type testStore struct {
	server.TaskStore
	created  atomic.Int32
	creating chan struct{} // if not nil, Create waits until it is closed
	panics   atomic.Bool   // Create panics once
	down     atomic.Bool   // all other methods fail
	loud     bool          // they panic instead of returning an error
}

// state returns the error of a method.
func (s *testStore) state() error {
	switch {
	case !s.down.Load():
		return nil
	case s.loud:
		panic("store is down")
	}
	return errors.New("store is down")
}

func (s *testStore) Create(ctx context.Context, t *server.Task) error {
	if s.creating != nil {
		<-s.creating
	}
	if s.panics.Swap(false) {
		panic("boom")
	}
	s.created.Add(1)
	return s.TaskStore.Create(ctx, t)
}

func (s *testStore) Update(ctx context.Context, id string, change func(*server.Task) error) (*server.Task, error) {
	if err := errors.Join(s.state(), ctx.Err()); err != nil {
		return nil, err
	}
	return s.TaskStore.Update(ctx, id, change)
}

func (s *testStore) Wait(ctx context.Context, id string, version uint64) (*server.Task, error) {
	if err := s.state(); err != nil {
		return nil, err
	}
	return s.TaskStore.Wait(ctx, id, version)
}

func (s *testStore) Task(ctx context.Context, id string) (*server.Task, error) {
	if err := s.state(); err != nil {
		return nil, err
	}
	return s.TaskStore.Task(ctx, id)
}

func (s *testStore) Tasks(ctx context.Context, owner, after string, limit int) ([]*server.Task, error) {
	if err := s.state(); err != nil {
		return nil, err
	}
	return s.TaskStore.Tasks(ctx, owner, after, limit)
}

// TestTaskStoreRecovers checks that a temporary failure of the store loses neither the result of a
// task nor the ability to cancel one.
func TestTaskStoreRecovers(t *testing.T) {
	for _, loud := range []bool{false, true} {
		inBubble(t, func(t *testing.T) { testStoreComesBack(t, &testStore{TaskStore: server.NewTaskStore(), loud: loud}) })
	}
}

func testStoreComesBack(t *testing.T, store *testStore) {
	srv := newTaskServer(t, server.TaskOptions{Store: store})
	var cause atomic.Value
	addTaskTool(t, srv, "waits", func(ctx context.Context, _ *server.Call) (string, error) {
		<-ctx.Done()
		cause.Store(context.Cause(ctx).Error())
		return "", ctx.Err()
	})
	c := dialTasks(t, srv, modern, "")
	slow, waits := c.start("slow", "").TaskID, c.start("waits", "").TaskID
	store.down.Store(true)
	// a waiting client retries
	if _, err := store.TaskStore.Update(context.Background(), waits, func(*server.Task) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := c.call("tasks/get", `"taskId":"`+slow+`"`); code(err) != jsonrpc.CodeInternalError {
		t.Errorf("got %v", err)
	}
	elapse(5 * time.Minute)
	store.down.Store(false)
	elapse(3 * time.Second)
	synctest.Wait()
	if got := c.get(slow); got.Status != "completed" {
		t.Errorf("got %+v", got)
	}
	// As if another process had done it.
	if _, err := store.Update(context.Background(), waits, func(k *server.Task) error { k.Status = mcp.TaskStatusCancelled; return nil }); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if got, _ := cause.Load().(string); !strings.Contains(got, "cancelled") {
		t.Errorf("the handler ended with %q", got)
	}
}

// TestTaskStorePanics checks that a panic of the store fails only the request.
func TestTaskStorePanics(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &testStore{TaskStore: server.NewTaskStore()}
		store.panics.Store(true)
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{Store: store, MaxRunning: 1}), modern, "")
		if _, err := c.call("tools/call", `"name":"quick"`); code(err) != jsonrpc.CodeInternalError {
			t.Errorf("got %v", err)
		}
		c.start("quick", "")
	})
}

// TestTaskStoreKeepsCopies checks that changes to the values returned by the memory store do not
// change its contents.
func TestTaskStoreKeepsCopies(t *testing.T) {
	ctx, store := context.Background(), server.NewTaskStore()
	made := &server.Task{
		ID: "a", Status: mcp.TaskStatusFailed, Created: time.Now(), TTL: time.Hour, Error: &jsonrpc.Error{Code: 1},
		InputRequests: map[string]mcp.InputRequest{"k": {}},
	}
	if err := store.Create(ctx, made); err != nil {
		t.Fatal(err)
	}
	got, err := store.Task(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []*server.Task{made, got} {
		v.Error.Code = 2
		delete(v.InputRequests, "k")
	}
	if got, _ = store.Task(ctx, "a"); got.Error.Code != 1 || len(got.InputRequests) != 1 {
		t.Errorf("got %+v", got)
	}
}
