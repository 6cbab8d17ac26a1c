package server

import (
	"context"
	"runtime/debug"

	"mcpwire/jsonrpc"
)

// A guardedTaskStore is a TaskStore of the user's. Much of what is asked of it is asked on goroutines that belong to no request: a panic there becomes an
// error, as it does in a handler.
type guardedTaskStore struct{ TaskStore }

func catchPanic[T any](fn func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &jsonrpc.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// Create implements TaskStore.
func (g guardedTaskStore) Create(ctx context.Context, t *Task) error {
	_, err := catchPanic(func() (*Task, error) { return t, g.TaskStore.Create(ctx, t) })
	return err
}

// Task implements TaskStore.
func (g guardedTaskStore) Task(ctx context.Context, id string) (*Task, error) {
	return catchPanic(func() (*Task, error) { return g.TaskStore.Task(ctx, id) })
}

// Update implements TaskStore.
func (g guardedTaskStore) Update(ctx context.Context, id string, change func(*Task) error) (*Task, error) {
	return catchPanic(func() (*Task, error) { return g.TaskStore.Update(ctx, id, change) })
}

// Wait implements TaskStore.
func (g guardedTaskStore) Wait(ctx context.Context, id string, version uint64) (*Task, error) {
	return catchPanic(func() (*Task, error) { return g.TaskStore.Wait(ctx, id, version) })
}

// Tasks implements TaskStore.
func (g guardedTaskStore) Tasks(ctx context.Context, owner, after string, limit int) ([]*Task, error) {
	return catchPanic(func() ([]*Task, error) { return g.TaskStore.Tasks(ctx, owner, after, limit) })
}
