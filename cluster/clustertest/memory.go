package clustertest

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/cluster"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/base/wait"
)

const (
	// maxPending limits the messages that wait for one subscription, and maxHandling the concurrent
	// requests of one handler. See [cluster.Bus].
	maxPending  = 4096
	maxHandling = 256
	// maxWatched limits the changed records that wait for one watcher.
	maxWatched = 4096
	// maxPendingBytes limits the messages that wait for one subscription, in bytes.
	maxPendingBytes = 32 << 20
	// recordOverhead is the memory of a record or an entry without its key and value, in bytes.
	recordOverhead = 256
	dedupWindow    = 2 * time.Minute
	// maxDedup limits the ids that a log remembers.
	maxDedup     = 1 << 16
	defaultBytes = 64 << 20
)

// NewMemory returns an empty [cluster.Backend] for nodes in one process. It never fails with
// ErrUnavailable, unless it is full.
func NewMemory() cluster.Backend {
	return &memory{buckets: make(map[string]*memoryRecords), logs: make(map[string]*memoryLog)}
}

type memory struct {
	mu      sync.Mutex
	buckets map[string]*memoryRecords
	logs    map[string]*memoryLog
	bus     memoryBus
}

// Records implements [cluster.Backend].
func (m *memory) Records(_ context.Context, name string, o cluster.RecordsOptions) (cluster.Records, error) {
	if err := coordination.CheckName(name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.buckets[name]
	if r == nil {
		r = &memoryRecords{byKey: make(map[string]*list.Element), queue: list.New(), watchers: make(map[*memoryWatcher]struct{})}
		m.buckets[name] = r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ttl, r.maxBytes = o.TTL, cmp.Or(o.MaxBytes, defaultBytes)
	return r, nil
}

// Log implements [cluster.Backend].
func (m *memory) Log(_ context.Context, name string, o cluster.LogOptions) (cluster.Log, error) {
	if err := coordination.CheckName(name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[name]
	if l == nil {
		l = &memoryLog{groups: make(map[string]map[string]*memorySequence), queue: list.New(), ids: make(map[string]uint64), followers: make(map[cluster.LogKey]map[chan struct{}]struct{})}
		m.logs[name] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maxEntries, l.maxAge, l.maxBytes = cmp.Or(o.MaxEntries, 1000), cmp.Or(o.MaxAge, time.Hour), cmp.Or(o.MaxBytes, defaultBytes)
	return l, nil
}

// Bus implements [cluster.Backend].
func (m *memory) Bus() cluster.Bus { return &m.bus }

// memoryRecords is a bucket in memory.
type memoryRecords struct {
	mu       sync.Mutex
	ttl      time.Duration
	maxBytes int64
	bytes    int64
	lastRev  uint64
	byKey    map[string]*list.Element
	// queue has *memoryRecord, the one written last at the back.
	queue    *list.List
	watchers map[*memoryWatcher]struct{}
}

type memoryRecord struct {
	key     string
	value   []byte
	rev     uint64
	written time.Time
}

func (r *memoryRecord) size() int64 { return int64(recordOverhead + len(r.key) + len(r.value)) }

// A memoryWatcher collects the changes that a watch has yet to yield.
type memoryWatcher struct {
	prefix  string
	pending map[string]cluster.Change
	// missed means that pending became too large.
	missed bool
	// ready has room for one.
	ready chan struct{}
}

// expireLocked removes expired records.
func (r *memoryRecords) expireLocked() {
	now := time.Now()
	for e := r.queue.Front(); r.ttl > 0 && e != nil && now.Sub(e.Value.(*memoryRecord).written) >= r.ttl; e = r.queue.Front() {
		r.removeLocked(e)
	}
}

func (r *memoryRecords) removeLocked(e *list.Element) {
	rec := e.Value.(*memoryRecord)
	r.queue.Remove(e)
	delete(r.byKey, rec.key)
	r.bytes -= rec.size()
}

// Get implements [cluster.Records].
func (r *memoryRecords) Get(ctx context.Context, key string) (cluster.Record, error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(key)); err != nil {
		return cluster.Record{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	e := r.byKey[key]
	if e == nil {
		return cluster.Record{}, cluster.ErrNotFound
	}
	rec := e.Value.(*memoryRecord)
	return cluster.Record{Value: bytes.Clone(rec.value), Rev: rec.rev}, nil
}

// Absent implements [cluster.Records].
func (r *memoryRecords) Absent(ctx context.Context, key string) error {
	switch _, err := r.Get(ctx, key); {
	case err == nil:
		return cluster.ErrConflict
	case !errors.Is(err, cluster.ErrNotFound):
		return err
	}
	return nil
}

// Put implements [cluster.Records].
func (r *memoryRecords) Put(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(key), coordination.CheckValue(value)); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	e := r.byKey[key]
	if r.revLocked(e) != rev {
		return 0, cluster.ErrConflict
	}
	rec := &memoryRecord{key: key, value: bytes.Clone(value), written: time.Now()}
	grown := r.bytes + rec.size()
	if e != nil {
		grown -= e.Value.(*memoryRecord).size()
	}
	if grown > r.maxBytes {
		return 0, fmt.Errorf("%w: the bucket is full", cluster.ErrUnavailable)
	}
	if e != nil {
		r.removeLocked(e)
	}
	r.lastRev++
	rec.rev = r.lastRev
	r.byKey[key] = r.queue.PushBack(rec)
	r.bytes += rec.size()
	r.changedLocked(cluster.Change{Kind: cluster.ChangePut, Key: key, Record: cluster.Record{Value: rec.value, Rev: rec.rev}})
	return rec.rev, nil
}

// revLocked returns the revision of a record, which may be nil.
func (r *memoryRecords) revLocked(e *list.Element) uint64 {
	if e == nil {
		return 0
	}
	return e.Value.(*memoryRecord).rev
}

// Delete implements [cluster.Records].
func (r *memoryRecords) Delete(ctx context.Context, key string, rev uint64) error {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(key)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	e := r.byKey[key]
	if e == nil || r.revLocked(e) != rev {
		return cluster.ErrConflict
	}
	r.removeLocked(e)
	r.lastRev++
	r.changedLocked(cluster.Change{Kind: cluster.ChangeDelete, Key: key, Record: cluster.Record{Rev: r.lastRev}})
	return nil
}

// changedLocked passes a change to the watchers.
func (r *memoryRecords) changedLocked(c cluster.Change) {
	for w := range r.watchers {
		if hasPrefix(c.Key, w.prefix) {
			w.add(c)
		}
	}
}

// hasPrefix reports whether a key begins with the parts of prefix and has more.
func hasPrefix(key, prefix string) bool {
	return prefix == "" || strings.HasPrefix(key, prefix+".")
}

func (w *memoryWatcher) add(c cluster.Change) {
	if w.pending[c.Key] = c; len(w.pending) > maxWatched {
		w.missed, w.pending = true, make(map[string]cluster.Change)
	}
	wait.Signal(w.ready)
}

// Watch implements [cluster.Records].
func (r *memoryRecords) Watch(ctx context.Context, prefix string) iter.Seq2[cluster.Change, error] {
	return func(yield func(cluster.Change, error) bool) {
		if prefix != "" {
			if err := coordination.CheckKey(prefix); err != nil {
				yield(cluster.Change{}, err)
				return
			}
		}
		w := &memoryWatcher{prefix: prefix, pending: make(map[string]cluster.Change), ready: make(chan struct{}, 1)}
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.watchers, w)
		}()
		first := r.begin(w)
		for _, c := range append(first, cluster.Change{Kind: cluster.ChangeSynced}) {
			if !yield(c, nil) {
				return
			}
		}
		for {
			select {
			case <-w.ready:
			case <-ctx.Done():
				yield(cluster.Change{}, ctx.Err())
				return
			}
			changes, missed := r.take(w)
			if missed {
				yield(cluster.Change{}, cluster.ErrGone)
				return
			}
			for _, c := range changes {
				if !yield(c, nil) {
					return
				}
			}
		}
	}
}

// begin adds a watcher and returns the records that exist.
func (r *memoryRecords) begin(w *memoryWatcher) []cluster.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	var all []cluster.Change
	for e := r.queue.Front(); e != nil; e = e.Next() {
		if rec := e.Value.(*memoryRecord); hasPrefix(rec.key, w.prefix) {
			all = append(all, cluster.Change{Kind: cluster.ChangePut, Key: rec.key, Record: cluster.Record{Value: bytes.Clone(rec.value), Rev: rec.rev}})
		}
	}
	r.watchers[w] = struct{}{}
	return all
}

// take returns the pending changes of a watcher, in order.
func (r *memoryRecords) take(w *memoryWatcher) (all []cluster.Change, missed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all = slices.SortedFunc(maps.Values(w.pending), func(a, b cluster.Change) int { return cmp.Compare(a.Rev, b.Rev) })
	for i := range all {
		all[i].Value = bytes.Clone(all[i].Value)
	}
	clear(w.pending)
	return all, w.missed
}

// memoryLog is a log in memory.
type memoryLog struct {
	mu         sync.Mutex
	maxEntries int
	maxAge     time.Duration
	maxBytes   int64
	bytes      int64
	lastSeq    uint64
	groups     map[string]map[string]*memorySequence
	// queue has *memoryEntry, the newest at the back.
	queue *list.List
	// ids has the sequence numbers of the ids in dedup, which is in order of time.
	ids   map[string]uint64
	dedup []memoryID
	// followers are notified of new entries. The channels have a buffer of one.
	followers map[cluster.LogKey]map[chan struct{}]struct{}
}

// A memorySequence has the entries with one key, at least one.
type memorySequence struct {
	key     cluster.LogKey
	entries []*memoryEntry
}

type memoryEntry struct {
	seq      uint64
	data     []byte
	added    time.Time
	sequence *memorySequence
	element  *list.Element
}

func (e *memoryEntry) size() int64 { return int64(recordOverhead + len(e.data)) }

type memoryID struct {
	id    string
	added time.Time
}

func checkLogKey(k cluster.LogKey) error {
	if err := coordination.CheckKey(k.Group, k.Name); err != nil {
		return err
	}
	if strings.Contains(k.Name, ".") {
		return fmt.Errorf("cluster: invalid name %q of a sequence: it has a dot", k.Name)
	}
	return nil
}

// Append implements [cluster.Log].
func (l *memoryLog) Append(ctx context.Context, key cluster.LogKey, id string, data []byte) (uint64, error) {
	if err := cmp.Or(ctx.Err(), checkLogKey(key), coordination.CheckValue(data)); err != nil {
		return 0, err
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked(now)
	fullID := key.Group + "." + key.Name + " " + id
	if seq, ok := l.ids[fullID]; ok && id != "" {
		return seq, nil
	}
	l.lastSeq++
	e := &memoryEntry{seq: l.lastSeq, data: bytes.Clone(data), added: now}
	if id != "" {
		l.ids[fullID] = e.seq
		l.dedup = append(l.dedup, memoryID{fullID, now})
	}
	if l.groups[key.Group] == nil {
		l.groups[key.Group] = make(map[string]*memorySequence)
	}
	s := l.groups[key.Group][key.Name]
	if s == nil {
		s = &memorySequence{key: key}
		l.groups[key.Group][key.Name] = s
	}
	e.sequence, e.element = s, l.queue.PushBack(e)
	s.entries = append(s.entries, e)
	l.bytes += e.size()
	for len(s.entries) > l.maxEntries {
		l.evictLocked(s.entries[0])
	}
	for l.bytes > l.maxBytes {
		l.evictLocked(l.queue.Front().Value.(*memoryEntry))
	}
	for ready := range l.followers[key] {
		wait.Signal(ready)
	}
	return e.seq, nil
}

// expireLocked removes old entries and ids.
func (l *memoryLog) expireLocked(now time.Time) {
	for e := l.queue.Front(); e != nil && now.Sub(e.Value.(*memoryEntry).added) >= l.maxAge; e = l.queue.Front() {
		l.evictLocked(e.Value.(*memoryEntry))
	}
	for len(l.dedup) > maxDedup || len(l.dedup) > 0 && now.Sub(l.dedup[0].added) >= dedupWindow {
		delete(l.ids, l.dedup[0].id)
		l.dedup = l.dedup[1:]
	}
}

// evictLocked removes an entry, which is the first of its sequence.
func (l *memoryLog) evictLocked(e *memoryEntry) {
	l.queue.Remove(e.element)
	l.bytes -= e.size()
	s := e.sequence
	s.entries[0] = nil
	if s.entries = s.entries[1:]; len(s.entries) == 0 {
		group := l.groups[s.key.Group]
		if delete(group, s.key.Name); len(group) == 0 {
			delete(l.groups, s.key.Group)
		}
	}
}

// Read implements [cluster.Log].
func (l *memoryLog) Read(ctx context.Context, key cluster.LogKey, after uint64, limit int) ([]cluster.Entry, error) {
	if err := cmp.Or(ctx.Err(), checkLogKey(key)); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked(time.Now())
	var entries []*memoryEntry
	if s := l.groups[key.Group][key.Name]; s != nil {
		entries = s.entries
	}
	if after > 0 {
		i, ok := slices.BinarySearchFunc(entries, after, func(e *memoryEntry, seq uint64) int { return cmp.Compare(e.seq, seq) })
		if !ok {
			return nil, cluster.ErrGone
		}
		entries = entries[i+1:]
	}
	var found []cluster.Entry
	for _, e := range entries[:min(len(entries), max(limit, 0))] {
		found = append(found, cluster.Entry{Seq: e.seq, Data: bytes.Clone(e.data)})
	}
	return found, nil
}

// Follow implements [cluster.Log].
func (l *memoryLog) Follow(ctx context.Context, key cluster.LogKey, after uint64) iter.Seq2[cluster.Entry, error] {
	return func(yield func(cluster.Entry, error) bool) {
		ready := make(chan struct{}, 1)
		l.mu.Lock()
		if l.followers[key] == nil {
			l.followers[key] = make(map[chan struct{}]struct{})
		}
		l.followers[key][ready] = struct{}{}
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if delete(l.followers[key], ready); len(l.followers[key]) == 0 {
				delete(l.followers, key)
			}
		}()
		after := after
		for {
			entries, err := l.Read(ctx, key, after, 100)
			if err != nil {
				yield(cluster.Entry{}, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if len(entries) > 0 {
				continue
			}
			select {
			case <-ready:
			case <-ctx.Done():
				yield(cluster.Entry{}, ctx.Err())
				return
			}
		}
	}
}

// Drop implements [cluster.Log].
func (l *memoryLog) Drop(ctx context.Context, group string) error {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(group)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.groups[group] {
		for _, e := range s.entries {
			l.queue.Remove(e.element)
			l.bytes -= e.size()
		}
	}
	delete(l.groups, group)
	return nil
}

// memoryBus is the bus of a backend in memory.
type memoryBus struct {
	mu       sync.Mutex
	topics   map[string]map[*memorySubscription]struct{}
	handlers map[string]*memoryHandler
}

// A memorySubscription has a goroutine that delivers until it is stopped.
type memorySubscription struct {
	mu      sync.Mutex
	pending [][]byte
	bytes   int
	// ready has room for one.
	ready chan struct{}
}

// Publish implements [cluster.Bus].
func (b *memoryBus) Publish(ctx context.Context, topic string, data []byte) error {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(topic), coordination.CheckValue(data)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.topics[topic] {
		s.add(bytes.Clone(data))
	}
	return nil
}

func (s *memorySubscription) add(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= maxPending || s.bytes+len(data) > maxPendingBytes {
		return
	}
	s.pending = append(s.pending, data)
	s.bytes += len(data)
	wait.Signal(s.ready)
}

func (s *memorySubscription) take() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.pending
	s.pending, s.bytes = nil, 0
	return all
}

// Subscribe implements [cluster.Bus].
func (b *memoryBus) Subscribe(ctx context.Context, topic string, deliver func([]byte)) (stop func(), err error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(topic)); err != nil {
		return nil, err
	}
	s := &memorySubscription{ready: make(chan struct{}, 1)}
	b.mu.Lock()
	if b.topics == nil {
		b.topics = make(map[string]map[*memorySubscription]struct{})
	}
	if b.topics[topic] == nil {
		b.topics[topic] = make(map[*memorySubscription]struct{})
	}
	b.topics[topic][s] = struct{}{}
	b.mu.Unlock()
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-s.ready:
			case <-stopped:
				return
			}
			for _, data := range s.take() {
				select {
				case <-stopped:
					return
				default:
					deliver(data)
				}
			}
		}
	})
	return sync.OnceFunc(func() {
		b.mu.Lock()
		if delete(b.topics[topic], s); len(b.topics[topic]) == 0 {
			delete(b.topics, topic)
		}
		b.mu.Unlock()
		close(stopped)
		wg.Wait()
	}), nil
}

// A memoryHandler handles the requests for one node and topic.
type memoryHandler struct {
	handle func(ctx context.Context, data []byte) []byte
	ctx    context.Context
	// running has room for maxHandling.
	running chan struct{}
	mu      sync.Mutex
	stopped bool
	wg      sync.WaitGroup
}

// Request implements [cluster.Bus].
func (b *memoryBus) Request(ctx context.Context, node, topic string, data []byte) ([]byte, error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(node, topic), coordination.CheckValue(data)); err != nil {
		return nil, err
	}
	b.mu.Lock()
	h := b.handlers[node+" "+topic]
	b.mu.Unlock()
	if h == nil {
		return nil, cluster.ErrNoNode
	}
	reply, err := h.start(bytes.Clone(data))
	if err != nil {
		return nil, err
	}
	select {
	case r := <-reply:
		return r, coordination.CheckValue(r)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start handles a request on a new goroutine.
func (h *memoryHandler) start(data []byte) (<-chan []byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, cluster.ErrNoNode
	}
	select {
	case h.running <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: the node handles too many requests", cluster.ErrUnavailable)
	}
	reply := make(chan []byte, 1)
	h.wg.Go(func() {
		defer func() { <-h.running }()
		reply <- h.handle(h.ctx, data)
	})
	return reply, nil
}

var errHandled = errors.New("cluster: the node handles this topic already")

// Handle implements [cluster.Bus].
func (b *memoryBus) Handle(ctx context.Context, node, topic string, handle func(context.Context, []byte) []byte) (stop func(), err error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(node, topic)); err != nil {
		return nil, err
	}
	h := &memoryHandler{handle: handle, running: make(chan struct{}, maxHandling)}
	var cancel context.CancelFunc
	h.ctx, cancel = context.WithCancel(context.Background())
	key := node + " " + topic
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.handlers[key] != nil {
		cancel()
		return nil, errHandled
	}
	if b.handlers == nil {
		b.handlers = make(map[string]*memoryHandler)
	}
	b.handlers[key] = h
	return sync.OnceFunc(func() {
		b.mu.Lock()
		delete(b.handlers, key)
		b.mu.Unlock()
		h.mu.Lock()
		h.stopped = true
		h.mu.Unlock()
		cancel()
		h.wg.Wait()
	}), nil
}
