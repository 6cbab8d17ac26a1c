package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/coordination"
	"mcpwire/server"
)

const (
	defaultMaxTaskTTL = 24 * time.Hour
	// taskPoll is the interval of reads while a task is waited for, since a signal may be lost.
	taskPoll = 2 * time.Second
	// maxInlineTask is the size of a task above which its result is stored in parts.
	maxInlineTask = 64 << 10
	taskPart      = coordination.MaxValue - 16
	maxTask       = 16 << 20
	// maxOwnerTasks limits the tasks of an owner. server.TaskOptions.MaxTasks should be less.
	maxOwnerTasks = 10_000
	// maxTaskOwners limits the owners of tasks that a node remembers.
	maxTaskOwners = 1 << 16
)

// taskStore is a server.TaskStore. The key of a task has its owner, so that the tasks of an owner
// can be listed. Another record, which never changes, has the owner of a task.
type taskStore struct {
	n      *Node
	maxTTL time.Duration
	// tasks has a taskRecord for each task, owners the digest of its owner, and parts its result if
	// it is large.
	tasks, owners, parts *records
	runs                 *taskRuns
	cleanups             *cleanups

	mu sync.Mutex
	// known has the content of owners that this node has read.
	known map[string]string
}

// taskRecord is the record of a task.
type taskRecord struct {
	Task server.Task `json:"task"`
	// Parts is the number of records that have the Result of the task, and Attempt is in their
	// keys.
	Parts   int    `json:"parts,omitempty"`
	Attempt string `json:"attempt,omitempty"`
	// Writes has ids of the last updates. An update that failed finds out there if it was carried
	// out, also when another one followed.
	Writes []string `json:"writes,omitempty"`
}

// maxWrites limits taskRecord.Writes.
const maxWrites = 64

// TaskStore returns a store of tasks that all nodes share. A task whose TTL exceeds maxTTL cannot
// be created; zero means 24 h. All nodes must use the same maxTTL. A task, with its result, has up
// to 16 MiB. A task whose node is gone fails after about ten seconds, with an error that says that
// the tool may have run.
func (n *Node) TaskStore(ctx context.Context, maxTTL time.Duration) (server.TaskStore, error) {
	s := &taskStore{n: n, maxTTL: cmp.Or(maxTTL, defaultMaxTaskTTL), known: make(map[string]string)}
	s.runs = &taskRuns{store: s}
	for _, b := range []struct {
		name string
		r    **records
	}{{"tasks", &s.tasks}, {"task-owners", &s.owners}, {"task-parts", &s.parts}, {"task-runs", &s.runs.records}} {
		var err error
		if *b.r, err = n.records(ctx, b.name, RecordsOptions{TTL: s.maxTTL, MaxBytes: 1 << 30, Durable: true}); err != nil {
			return nil, err
		}
	}
	var err error
	if s.cleanups, err = newCleanups(n); err != nil {
		return nil, err
	}
	if !n.start(s.runs.reap) {
		return nil, ErrClosed
	}
	return s, nil
}

func (s *taskStore) ownerKey(id string) string { return s.n.key("task owner", id) }

func (s *taskStore) taskKey(owner, id string) string {
	return s.n.tenant + "." + owner + "." + digest("task", id)
}

func (s *taskStore) find(ctx context.Context, id string) (key string, err error) {
	s.mu.Lock()
	owner, ok := s.known[id]
	s.mu.Unlock()
	if ok {
		return s.taskKey(owner, id), nil
	}
	rec, err := s.owners.Get(ctx, s.ownerKey(id))
	if errors.Is(err, ErrNotFound) {
		return "", server.ErrTaskNotFound
	}
	if err != nil {
		return "", err
	}
	text, err := payload(rec.Value)
	if err != nil {
		return "", err
	}
	s.remember(id, string(text))
	return s.taskKey(string(text), id), nil
}

func (s *taskStore) remember(id, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxTaskOwners {
		clear(s.known)
	}
	s.known[id] = owner
}

func (s *taskStore) Create(ctx context.Context, t *server.Task) error {
	if t.TTL > s.maxTTL {
		return fmt.Errorf("create task: its TTL is %v, and the store keeps tasks for %v", t.TTL, s.maxTTL)
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	owner := digest("owner", t.Owner)
	_, _, err := s.owners.update(ctx, s.ownerKey(t.ID), func(old []byte) ([]byte, error) {
		if old != nil {
			return nil, fmt.Errorf("create task: %w: the id is used already", ErrConflict)
		}
		return append([]byte{format}, owner...), nil
	})
	if err != nil {
		return err
	}
	created := *t
	created.Version = 1
	value, err := s.encode(ctx, &created, nil)
	if err != nil {
		return err
	}
	if !created.Ended() {
		if err := s.runs.begin(ctx, t.ID); err != nil {
			return err
		}
	}
	key := s.taskKey(owner, t.ID)
	_, _, err = s.tasks.update(ctx, key, func(old []byte) ([]byte, error) {
		if old != nil {
			return nil, fmt.Errorf("create task: %w: it exists already", ErrConflict)
		}
		return value, nil
	})
	if err != nil {
		// It may have been carried out, and then nothing would ever run the task or end it. If
		// there are too many of these, it expires.
		s.cleanups.add(cleanup{run: func(ctx context.Context) error { return s.discard(ctx, key, value, &created) }, expires: created.Expires()})
		return err
	}
	t.Version = 1
	s.remember(t.ID, owner)
	return nil
}

// discard makes a task that was not created, although the write may have been carried out, expire.
// It writes the record even if there is none: then a write that is carried out later conflicts.
func (s *taskStore) discard(ctx context.Context, key string, value []byte, t *server.Task) error {
	rec, err := s.tasks.peek(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		rec = Record{}
	case err != nil:
		return err
	case !bytes.Equal(rec.Value, value): // it is discarded, or another task has the id
		return nil
	}
	s.runs.end(ctx, t.ID)
	expired := server.Task{ID: t.ID, Owner: t.Owner, Status: t.Status, Created: t.Created}
	text, err := encode(&taskRecord{Task: expired})
	if err != nil {
		return err
	}
	_, err = s.tasks.Put(ctx, key, text, rec.Rev)
	return err
}

func (s *taskStore) Task(ctx context.Context, id string) (*server.Task, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	key, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.read(ctx, key)
}

func (s *taskStore) read(ctx context.Context, key string) (*server.Task, error) {
	rec, err := s.tasks.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil, server.ErrTaskNotFound
	}
	if err != nil {
		return nil, err
	}
	var task taskRecord
	if err := decode(rec.Value, &task); err != nil {
		return nil, err
	}
	t, err := s.complete(ctx, &task)
	if err == nil && !time.Now().Before(t.Expires()) {
		return nil, server.ErrTaskNotFound
	}
	return t, err
}

func (s *taskStore) Update(ctx context.Context, id string, change func(*server.Task) error) (*server.Task, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	key, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	write := rand.Text()[:12]
	var t *server.Task
	_, _, err = s.tasks.update(ctx, key, func(old []byte) ([]byte, error) {
		if old == nil {
			return nil, server.ErrTaskNotFound
		}
		rec := new(taskRecord)
		if err := decode(old, rec); err != nil {
			return nil, err
		}
		var err error
		t, err = s.complete(ctx, rec)
		switch {
		case err != nil:
			return nil, err
		case slices.Contains(rec.Writes, write):
			return nil, errNoChange
		case !time.Now().Before(t.Expires()):
			return nil, server.ErrTaskNotFound
		}
		version := t.Version
		if err := change(t); err != nil {
			return nil, err
		}
		t.Version = version + 1
		writes := append(rec.Writes, write)
		return s.encode(ctx, t, writes[max(len(writes)-maxWrites, 0):])
	})
	if err != nil && err != errNoChange {
		return nil, err
	}
	s.n.signals.send(ctx, key)
	if t.Ended() {
		s.runs.end(ctx, id)
	}
	return t, nil
}

func (s *taskStore) Wait(ctx context.Context, id string, version uint64) (*server.Task, error) {
	key, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	for {
		changed, done := s.n.signals.wait(key)
		t, err := s.Task(ctx, id)
		if err != nil || t.Version > version {
			done()
			return t, err
		}
		select {
		case <-changed:
		case <-time.After(min(taskPoll, time.Until(t.Expires()))):
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-s.n.ctx.Done():
			err = ErrClosed
		}
		done()
		if err != nil {
			return nil, err
		}
	}
}

// Tasks implements [server.TaskStore]. It may omit a task that another node has created just now.
func (s *taskStore) Tasks(ctx context.Context, owner, after string, limit int) ([]*server.Task, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	values, err := s.tasks.list(ctx, s.n.tenant+"."+digest("owner", owner), maxOwnerTasks)
	if err != nil {
		return nil, err
	}
	var found []*taskRecord
	now := time.Now()
	for _, value := range values {
		rec := new(taskRecord)
		if err := decode(value, rec); err != nil {
			return nil, err
		}
		if rec.Task.ID > after && now.Before(rec.Task.Expires()) {
			found = append(found, rec)
		}
	}
	slices.SortFunc(found, func(a, b *taskRecord) int { return strings.Compare(a.Task.ID, b.Task.ID) })
	tasks := make([]*server.Task, 0, min(len(found), limit))
	for _, rec := range found[:min(len(found), limit)] {
		t, err := s.complete(ctx, rec)
		if errors.Is(err, server.ErrTaskNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// encode returns the record of a task. It stores a large result in parts, which the record then
// refers to. Parts that no record refers to expire.
func (s *taskStore) encode(ctx context.Context, t *server.Task, writes []string) ([]byte, error) {
	rec := taskRecord{Task: *t, Writes: writes}
	value, err := encode(&rec)
	if err != nil || len(value) <= maxInlineTask {
		return value, err
	}
	if len(value) > maxTask {
		return nil, fmt.Errorf("store a task: %w: %d bytes, limit %d", ErrTooLarge, len(value), maxTask)
	}
	rec.Task.Result = nil
	rec.Attempt = rand.Text()
	for part := range slices.Chunk(t.Result, taskPart) {
		if err := s.parts.create(ctx, s.partKey(t.ID, rec.Attempt, rec.Parts), append([]byte{format}, part...)); err != nil {
			return nil, err
		}
		rec.Parts++
	}
	return encode(&rec)
}

func (s *taskStore) partKey(id, attempt string, part int) string {
	return s.n.key("task part", id, attempt, fmt.Sprint(part))
}

// complete returns the task of a record with its result.
func (s *taskStore) complete(ctx context.Context, rec *taskRecord) (*server.Task, error) {
	t := &rec.Task
	if string(t.Result) == "null" {
		t.Result = nil
	}
	var result json.RawMessage
	for i := range rec.Parts {
		part, err := s.parts.Get(ctx, s.partKey(t.ID, rec.Attempt, i))
		if errors.Is(err, ErrNotFound) { // they expire together
			return nil, server.ErrTaskNotFound
		}
		var text []byte
		if err == nil {
			text, err = payload(part.Value)
		}
		if err != nil {
			return nil, err
		}
		result = append(result, text...)
	}
	if rec.Parts > 0 {
		t.Result = result
	}
	return t, nil
}
