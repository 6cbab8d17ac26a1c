package tui

import (
	"context"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
)

// background are what goes on beside the event loop. They have a context, which ends with the screen, and an owner who waits for them: the event loop alone would leave them behind.
type background struct {
	start func(limit time.Duration) (context.Context, context.CancelFunc)

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newBackground(ctx context.Context) *background {
	return &background{start: func(limit time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, limit)
	}}
}

// cmd returns a command that calls f with a context that ends after the limit.
func (b *background) cmd(limit time.Duration, f func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		if !b.begin() {
			return nil
		}
		defer b.wg.Done()
		ctx, cancel := b.start(limit)
		defer cancel()
		return f(ctx)
	}
}

func (b *background) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Add(1)
	}
	return !b.closed
}

// close lets no more begin, and waits for those that have. Their context must have ended.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}
