package tui

import (
	"context"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
)

// tasks are what goes on beside the event loop. They have a context, which ends with the screen, and an owner who waits for them: the event loop alone would leave them behind.
type tasks struct {
	start func(limit time.Duration) (context.Context, context.CancelFunc)

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newTasks(ctx context.Context) *tasks {
	return &tasks{start: func(limit time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, limit)
	}}
}

// cmd returns a command that calls f with a context that ends after the limit.
func (t *tasks) cmd(limit time.Duration, f func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		if !t.begin() {
			return nil
		}
		defer t.wg.Done()
		ctx, cancel := t.start(limit)
		defer cancel()
		return f(ctx)
	}
}

func (t *tasks) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.wg.Add(1)
	}
	return !t.closed
}

// close lets no more begin, and waits for those that have. Their context must have ended.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}
