package server

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/jsonrpc"
)

// A memoryTaskStore is a TaskStore in memory. It removes expired tasks when tasks are created or
// updated, so the limit on tasks for each caller and the rate of new callers bound its size.
type memoryTaskStore struct {
	mu    sync.Mutex
	tasks map[string]*storedTask
	// nextExpiry is when the next task expires.
	nextExpiry time.Time
}

type storedTask struct {
	Task
	// changed is closed at the next update.
	changed chan struct{}
}

// NewTaskStore returns a store that keeps tasks in memory.
func NewTaskStore() TaskStore { return &memoryTaskStore{tasks: make(map[string]*storedTask)} }

func (t *Task) clone() *Task {
	c := *t
	c.InputRequests, c.InputResponses = maps.Clone(t.InputRequests), maps.Clone(t.InputResponses)
	if t.Error != nil {
		e := *t.Error
		c.Error = &e
	}
	return &c
}

// Create implements TaskStore.
func (m *memoryTaskStore) Create(_ context.Context, t *Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeExpired()
	if m.tasks[t.ID] != nil {
		return fmt.Errorf("task %s already exists", t.ID)
	}
	t.Version = 1
	st := &storedTask{Task: *t.clone(), changed: make(chan struct{})}
	m.tasks[t.ID] = st
	m.scheduleExpiry(st.Expires())
	return nil
}

// scheduleExpiry makes removeExpired check at the given time or earlier.
func (m *memoryTaskStore) scheduleExpiry(at time.Time) {
	if m.nextExpiry.IsZero() || at.Before(m.nextExpiry) {
		m.nextExpiry = at
	}
}

// removeExpired removes expired tasks.
func (m *memoryTaskStore) removeExpired() {
	now := time.Now()
	if m.nextExpiry.IsZero() || now.Before(m.nextExpiry) {
		return
	}
	m.nextExpiry = time.Time{}
	for id, st := range m.tasks {
		switch at := st.Expires(); {
		case !now.Before(at):
			delete(m.tasks, id)
			close(st.changed)
		default:
			m.scheduleExpiry(at)
		}
	}
}

// find returns a task that has not expired.
func (m *memoryTaskStore) find(id string) (*storedTask, error) {
	st := m.tasks[id]
	if st == nil || !time.Now().Before(st.Expires()) {
		return nil, ErrTaskNotFound
	}
	return st, nil
}

// Task implements TaskStore.
func (m *memoryTaskStore) Task(_ context.Context, id string) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := m.find(id)
	if err != nil {
		return nil, err
	}
	return st.clone(), nil
}

// Update implements TaskStore.
func (m *memoryTaskStore) Update(_ context.Context, id string, change func(*Task) error) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := m.find(id)
	if err != nil {
		return nil, err
	}
	t := st.clone()
	if err := change(t); err != nil {
		return nil, err
	}
	t.Version = st.Version + 1
	st.Task = *t.clone()
	close(st.changed)
	st.changed = make(chan struct{})
	m.scheduleExpiry(st.Expires())
	m.removeExpired()
	return t, nil
}

// Wait implements TaskStore.
func (m *memoryTaskStore) Wait(ctx context.Context, id string, version uint64) (*Task, error) {
	for {
		m.mu.Lock()
		st, err := m.find(id)
		if err != nil {
			m.mu.Unlock()
			return nil, err
		}
		if st.Version > version {
			t := st.clone()
			m.mu.Unlock()
			return t, nil
		}
		changed, expires := st.changed, st.Expires()
		m.mu.Unlock()
		if err := waitUntil(ctx, changed, expires); err != nil {
			return nil, err
		}
	}
}

// waitUntil waits for the channel or the deadline. It returns an error if ctx ends first.
func waitUntil(ctx context.Context, changed <-chan struct{}, deadline time.Time) error {
	expired := time.NewTimer(time.Until(deadline))
	defer expired.Stop()
	select {
	case <-changed:
	case <-expired.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Tasks implements TaskStore.
func (m *memoryTaskStore) Tasks(_ context.Context, owner, after string, limit int) ([]*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var own []*Task
	now := time.Now()
	for id, st := range m.tasks {
		if st.Owner == owner && id > after && now.Before(st.Expires()) {
			own = append(own, &st.Task)
		}
	}
	slices.SortFunc(own, func(a, b *Task) int { return strings.Compare(a.ID, b.ID) })
	own = own[:min(limit, len(own))]
	for i, t := range own {
		own[i] = t.clone()
	}
	return own, nil
}

// A guardedTaskStore wraps a TaskStore of the user. Many of its calls are on goroutines that belong
// to no request, so it converts panics to errors.
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
