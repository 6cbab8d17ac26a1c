package cluster

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/base/coordination"
	"mcpwire/streamable"
)

const (
	// viewGrace is the time for which a view counts after its watch has failed. An election of a
	// leader takes up to nine seconds, and a new watch a moment more.
	viewGrace = 30 * time.Second
	// maxViewBytes limits the records of a view. Beyond it, the view cannot tell that a session has
	// no record.
	maxViewBytes = 64 << 20
	// viewOverhead is the memory of a record without its text, in bytes.
	viewOverhead = 200
	// viewSweep is the time between removals of records that have expired.
	viewSweep = time.Minute
	// announceTime limits how long a change waits until the other nodes have it.
	announceTime = 500 * time.Millisecond

	sessionTopic = "session record"
)

// sessionViews are the views of the records of sessions and of their durable copies.
type sessionViews struct{ live, kept *sessionView }

// sessionViews returns the views of this node. The first call starts them, and waits until they are
// complete, for two seconds at most.
func (n *Node) sessionViews(ctx context.Context, live, kept *records, maxAge time.Duration) (*sessionViews, error) {
	n.sessionsMu.Lock()
	defer n.sessionsMu.Unlock()
	if n.sessions != nil {
		return n.sessions, nil
	}
	v := &sessionViews{n.newSessionView(live, maxAge), n.newSessionView(kept, maxAge)}
	stop, err := n.handle(ctx, sessionTopic, v.live.receive)
	if err != nil {
		return nil, err
	}
	if err := n.onClose(stop); err != nil {
		return nil, err
	}
	if !n.start(v.live.watch) || !n.start(v.kept.watch) {
		return nil, ErrClosed
	}
	n.sessions = v
	// The first requests need the views. Without them they call the backend.
	ctx, cancel := bound(ctx)
	defer cancel()
	for _, view := range []*sessionView{v.live, v.kept} {
		select {
		case <-view.synced:
		case <-ctx.Done():
		}
	}
	return v, nil
}

// get returns the record of a session, or nil if there is none. ok is false if the views cannot
// tell.
func (v *sessionViews) get(key string) (rec *sessionRecord, ok bool) {
	rec, ok = v.live.get(key)
	kept, keptOK := v.kept.get(key)
	if kept != nil && (rec == nil || kept.Session.Version > rec.Session.Version) {
		// Either the record is gone, or its view is behind.
		return kept, true
	}
	return rec, rec != nil || ok && keptOK
}

// follow calls ready when the views are complete, and changed for each change, until ctx ends.
func (v *sessionViews) follow(ctx context.Context, ready func(), changed func(key string, saved *streamable.SavedSession)) error {
	if err := v.kept.n.await(ctx, v.kept.synced); err != nil {
		return err
	}
	// A change may have reached only the durable copy, which counts for sessions that are taken
	// over.
	defer v.kept.report(changed)()
	return v.live.follow(ctx, ready, changed)
}

// A sessionView has the records of a bucket of all sessions of the tenant, as a watch yields them.
// Changes that must hold at once are also sent by the node that makes them, and acknowledged.
type sessionView struct {
	n       *Node
	records *records
	maxAge  time.Duration

	mu    sync.Mutex
	byKey map[string]*viewedSession
	bytes int
	// generation counts the watches. Records of an earlier one are gone when the watch is complete.
	generation int
	// synced is closed when the view is first complete.
	synced chan struct{}
	// current means that the view follows the records. Otherwise it did until failedAt, unless that
	// is zero.
	current  bool
	failedAt time.Time
	// partial means that records were left out, omitted that this watch has left out some.
	partial, omitted bool
	swept            time.Time
	watchers         map[*sessionWatch]struct{}
}

// A viewedSession is a record in a view.
type viewedSession struct {
	rev        uint64
	value      []byte
	expires    time.Time
	generation int
}

func (v *viewedSession) size() int { return viewOverhead + len(v.value) }

// A sessionWatch is a running sessionStore.Watch.
type sessionWatch struct {
	changed func(key string, saved *streamable.SavedSession)
}

func (n *Node) newSessionView(r *records, maxAge time.Duration) *sessionView {
	return &sessionView{n: n, records: r, maxAge: maxAge, byKey: make(map[string]*viewedSession), synced: make(chan struct{}), watchers: make(map[*sessionWatch]struct{})}
}

// value returns the value of a record, or nil if there is none. ok is false if the view does not
// follow the records now.
func (v *sessionView) value(key string) (value []byte, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.byKey[key]; s != nil {
		value = s.value
	}
	return value, v.current && !v.partial
}

// get returns the record of a session, or nil if there is none. ok is false if the view cannot
// tell.
func (v *sessionView) get(key string) (rec *sessionRecord, ok bool) {
	v.mu.Lock()
	found, partial := v.byKey[key], v.partial
	usable := v.current || !v.failedAt.IsZero() && time.Since(v.failedAt) < viewGrace
	v.mu.Unlock()
	if !usable || found == nil {
		return nil, usable && !partial
	}
	rec = new(sessionRecord)
	if decode(found.value, rec) != nil || !rec.isValid() {
		return nil, false
	}
	return rec, true
}

// watch keeps the view up to date until the node is closed.
func (v *sessionView) watch(ctx context.Context) {
	v.n.follow(ctx, v.records, "sessions", v.begin, v.see, v.fail)
}

// begin begins a new watch.
func (v *sessionView) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.generation++
	v.omitted = false
}

// fail notes that the watch has ended. The next one yields all records, and those that have changed
// meanwhile are reported then.
func (v *sessionView) fail() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current {
		v.current, v.failedAt = false, time.Now()
	}
}

// see takes in a change that the watch has yielded.
func (v *sessionView) see(c Change) {
	switch c.Kind {
	case ChangeSynced:
		v.sync()
	case ChangeDelete:
		v.mu.Lock()
		v.removeLocked(c.Key)
		v.mu.Unlock()
	case ChangePut:
		if err := v.put(c.Key, c.Value, c.Rev); err != nil {
			v.n.opts.Logger.Error("the record of a session is invalid", "error", err)
		}
	}
}

// sync removes what the watch has not yielded: the view is complete.
func (v *sessionView) sync() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, s := range v.byKey {
		if s.generation != v.generation {
			v.removeLocked(key)
		}
	}
	v.current, v.partial = true, v.omitted
	select {
	case <-v.synced:
	default:
		close(v.synced)
	}
}

// put takes in a record, and reports it to handlers if it is new.
func (v *sessionView) put(key string, value []byte, rev uint64) error {
	rec := new(sessionRecord)
	if err := decode(value, rec); err != nil {
		return err
	}
	for _, w := range v.store(key, value, rev, rec.expires(v.maxAge)) {
		w.changed(rec.Key, &rec.Session)
	}
	return nil
}

// store takes in a record and returns the watches that must report it.
func (v *sessionView) store(key string, value []byte, rev uint64, expires time.Time) (report []*sessionWatch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.byKey[key]
	// A backend that has lost all records begins its revisions anew. Then the new watch is right.
	if old != nil && (old.rev == rev || old.rev > rev && old.generation == v.generation) {
		old.generation = v.generation
		return nil
	}
	v.removeLocked(key)
	if now := time.Now(); now.Sub(v.swept) >= viewSweep {
		v.swept = now
		for key, s := range v.byKey {
			if now.After(s.expires) {
				v.removeLocked(key)
			}
		}
	}
	s := &viewedSession{rev, bytes.Clone(value), expires, v.generation}
	if v.bytes+s.size() > maxViewBytes {
		v.partial, v.omitted = true, true
	} else {
		v.byKey[key] = s
		v.bytes += s.size()
	}
	return slices.Collect(maps.Keys(v.watchers))
}

func (v *sessionView) removeLocked(key string) {
	if s := v.byKey[key]; s != nil {
		v.bytes -= s.size()
		delete(v.byKey, key)
	}
}

// report calls changed for each change, until stop is called.
func (v *sessionView) report(changed func(key string, saved *streamable.SavedSession)) (stop func()) {
	w := &sessionWatch{changed}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watchers[w] = struct{}{}
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.watchers, w)
	}
}

// follow calls ready when the view is complete, and changed for each change, until ctx ends.
func (v *sessionView) follow(ctx context.Context, ready func(), changed func(key string, saved *streamable.SavedSession)) error {
	defer v.report(changed)() // other nodes may announce changes before the view is complete
	if err := v.n.await(ctx, v.synced); err != nil {
		return err
	}
	ready()
	return v.n.await(ctx, nil)
}

// An announcedSession is a record that a node sends to the others.
type announcedSession struct {
	Key   string `json:"key"`
	Rev   uint64 `json:"rev"`
	Value []byte `json:"value"`
}

// announce gives a record to the views of all nodes, and waits until they have it, for
// announceTime at most.
func (v *sessionView) announce(ctx context.Context, key string, value []byte, rev uint64) {
	text, err := encode(&announcedSession{key, rev, value})
	if err != nil {
		return // not reached
	}
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	members, _ := v.n.Members()
	var wg sync.WaitGroup
	for _, m := range members {
		if m.ID == v.n.id {
			continue
		}
		wg.Go(func() {
			if _, err := (coordinator{v.n}).Request(ctx, m.ID, sessionTopic, text); err != nil && !errors.Is(err, ErrNoNode) {
				v.n.opts.Logger.Debug("a node learns of a session's change later", "node", m.ID, "error", err)
			}
		})
	}
	wg.Wait()
}

// receive takes in a record that another node sends.
func (v *sessionView) receive(_ context.Context, data []byte) ([]byte, error) {
	var a announcedSession
	if err := decode(data, &a); err != nil {
		return nil, err
	}
	if err := coordination.CheckKey(a.Key); err != nil {
		return nil, err
	}
	return nil, v.put(a.Key, a.Value, a.Rev)
}
