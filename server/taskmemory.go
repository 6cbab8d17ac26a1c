package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A memoryTasks is a TaskStore that lasts as long as the process. Expired tasks are dropped when another one is made, so what it holds is bounded by
// the limit on tasks for each caller, and by the rate at which there are new callers.
type memoryTasks struct {
	mu    sync.Mutex
	tasks map[string]*memoryTask
	purge time.Time // when the next task expires
}

type memoryTask struct {
	Task
	changed chan struct{} // closed at the next update
}

// NewTaskStore returns a store that keeps tasks in memory.
func NewTaskStore() TaskStore { return &memoryTasks{tasks: make(map[string]*memoryTask)} }

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
func (m *memoryTasks) Create(_ context.Context, t *Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	if m.tasks[t.ID] != nil {
		return fmt.Errorf("task %s exists already", t.ID)
	}
	t.Version = 1
	k := &memoryTask{Task: *t.clone(), changed: make(chan struct{})}
	m.tasks[t.ID] = k
	m.purgeAt(k.Expires())
	return nil
}

// purgeAt makes sure that forget looks for what has expired by then.
func (m *memoryTasks) purgeAt(at time.Time) {
	if m.purge.IsZero() || at.Before(m.purge) {
		m.purge = at
	}
}

// forget drops what has expired.
func (m *memoryTasks) forget() {
	now := time.Now()
	if m.purge.IsZero() || now.Before(m.purge) {
		return
	}
	m.purge = time.Time{}
	for id, k := range m.tasks {
		switch at := k.Expires(); {
		case !now.Before(at):
			delete(m.tasks, id)
			close(k.changed)
		default:
			m.purgeAt(at)
		}
	}
}

// find returns a task that has not expired.
func (m *memoryTasks) find(id string) (*memoryTask, error) {
	k := m.tasks[id]
	if k == nil || !time.Now().Before(k.Expires()) {
		return nil, ErrTaskNotFound
	}
	return k, nil
}

// Task implements TaskStore.
func (m *memoryTasks) Task(_ context.Context, id string) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(id)
	if err != nil {
		return nil, err
	}
	return k.clone(), nil
}

// Update implements TaskStore.
func (m *memoryTasks) Update(_ context.Context, id string, change func(*Task) error) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.find(id)
	if err != nil {
		return nil, err
	}
	t := k.clone()
	if err := change(t); err != nil {
		return nil, err
	}
	t.Version = k.Version + 1
	k.Task = *t.clone()
	close(k.changed)
	k.changed = make(chan struct{})
	m.purgeAt(k.Expires())
	m.forget()
	return t, nil
}

// Wait implements TaskStore.
func (m *memoryTasks) Wait(ctx context.Context, id string, version uint64) (*Task, error) {
	for {
		m.mu.Lock()
		k, err := m.find(id)
		if err != nil {
			m.mu.Unlock()
			return nil, err
		}
		if k.Version > version {
			t := k.clone()
			m.mu.Unlock()
			return t, nil
		}
		changed, expires := k.changed, k.Expires()
		m.mu.Unlock()
		if err := wait(ctx, changed, expires); err != nil {
			return nil, err
		}
	}
}

// wait waits for the channel, but not longer than until the time.
func wait(ctx context.Context, changed <-chan struct{}, until time.Time) error {
	expired := time.NewTimer(time.Until(until))
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
func (m *memoryTasks) Tasks(_ context.Context, owner, after string, limit int) ([]*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var own []*Task
	now := time.Now()
	for id, k := range m.tasks {
		if k.Owner == owner && id > after && now.Before(k.Expires()) {
			own = append(own, &k.Task)
		}
	}
	slices.SortFunc(own, func(a, b *Task) int { return strings.Compare(a.ID, b.ID) })
	own = own[:min(limit, len(own))]
	for i, t := range own {
		own[i] = t.clone()
	}
	return own, nil
}
