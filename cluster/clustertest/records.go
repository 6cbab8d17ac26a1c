package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"mcpwire/cluster"
	"mcpwire/internal/base/coordination"
)

// records opens a bucket at both nodes.
func (s *suite) records(name string, o cluster.RecordsOptions) (a, b cluster.Records) {
	s.Helper()
	a, err := s.a.Records(s.ctx, name, o)
	if err != nil {
		s.Fatal(err)
	}
	b, err = s.b.Records(s.ctx, name, o)
	if err != nil {
		s.Fatal(err)
	}
	return a, b
}

// plain opens the bucket that most tests use.
func (s *suite) plain() (a, b cluster.Records) {
	s.Helper()
	return s.records("suite-plain", cluster.RecordsOptions{TTL: 10 * time.Minute})
}

// put stores a record and returns its revision.
func (s *suite) put(r cluster.Records, key, value string, rev uint64) uint64 {
	s.Helper()
	next, err := r.Put(s.ctx, key, []byte(value), rev)
	if err != nil {
		s.Fatalf("put %q with revision %d: %v", value, rev, err)
	}
	return next
}

// wantRecord waits until Get returns a record. Get may return an older one at first.
func (s *suite) wantRecord(r cluster.Records, key, value string, rev uint64) {
	s.Helper()
	s.eventually(func() string {
		rec, err := r.Get(s.ctx, key)
		if err != nil || string(rec.Value) != value || rec.Rev != rev {
			return fmt.Sprintf("get: got %q with revision %d, %v; want %q with %d", rec.Value, rec.Rev, err, value, rev)
		}
		return ""
	})
}

// wantNotFound waits until Get finds no record.
func (s *suite) wantNotFound(r cluster.Records, key string) {
	s.Helper()
	s.eventually(func() string {
		if rec, err := r.Get(s.ctx, key); !errors.Is(err, cluster.ErrNotFound) {
			return fmt.Sprintf("get: got %q, %v; want %v", rec.Value, err, cluster.ErrNotFound)
		}
		return ""
	})
}

func testRevisions(s *suite) {
	a, b := s.plain()
	key := s.key()
	s.wantNotFound(a, key)
	_, err := a.Put(s.ctx, key, []byte("x"), 7)
	s.wantError("put with a revision that never was", err, cluster.ErrConflict)
	s.wantError("delete what was never there", a.Delete(s.ctx, key, 7), cluster.ErrConflict)
	first := s.put(a, key, "1", 0)
	if first == 0 {
		s.Error("the first revision is 0")
	}
	s.wantRecord(a, key, "1", first)
	s.wantRecord(b, key, "1", first)
	_, err = b.Put(s.ctx, key, []byte("x"), 0)
	s.wantError("create what is there", err, cluster.ErrConflict)
	second := s.put(b, key, "2", first)
	_, err = a.Put(s.ctx, key, []byte("x"), first)
	s.wantError("put with an old revision", err, cluster.ErrConflict)
	s.wantError("delete with an old revision", a.Delete(s.ctx, key, first), cluster.ErrConflict)
	third := s.put(a, key, "", second)
	s.wantRecord(b, key, "", third)
	if err := b.Delete(s.ctx, key, third); err != nil {
		s.Fatal(err)
	}
	s.wantNotFound(a, key)
	s.wantNotFound(b, key)
	s.wantError("delete what is deleted", a.Delete(s.ctx, key, third), cluster.ErrConflict)
	_, err = a.Put(s.ctx, key, []byte("x"), third)
	s.wantError("put with the revision of what is deleted", err, cluster.ErrConflict)
	fourth := s.put(a, key, "4", 0)
	s.wantRecord(b, key, "4", fourth)
	other := s.put(b, s.key(), "5", 0)
	for _, revs := range [][2]uint64{{first, second}, {second, third}, {third, fourth}, {fourth, other}} {
		if revs[0] >= revs[1] {
			s.Errorf("revision %d is followed by %d", revs[0], revs[1])
		}
	}
}

// testAbsent checks that Absent tells of no record only if none is there, and leaves no trace.
func testAbsent(s *suite) {
	a, b := s.plain()
	key := s.key()
	absent := func(what string, r cluster.Records, want error) {
		s.Helper()
		if err := r.Absent(s.ctx, key); !errors.Is(err, want) {
			s.Errorf("absent, %s: got %v, want %v", what, err, want)
		}
	}
	absent("before the record", a, nil)
	absent("again", b, nil)
	s.wantNotFound(a, key)
	for range 3 {
		rev := s.put(a, key, "1", 0)
		absent("a record", a, cluster.ErrConflict)
		absent("a record of the other node", b, cluster.ErrConflict)
		if err := b.Delete(s.ctx, key, rev); err != nil {
			s.Fatal(err)
		}
		absent("a deleted record", a, nil)
		absent("a deleted record, again", b, nil)
	}
	var wg sync.WaitGroup
	for i := range 20 { // creates a record while others ask for it
		key := fmt.Sprintf("%s.%d", key, i)
		for _, r := range []cluster.Records{a, b} {
			wg.Go(func() {
				if err := r.Absent(s.ctx, key); err != nil && !errors.Is(err, cluster.ErrConflict) {
					s.Errorf("absent, a record that is created: %v", err)
				}
			})
		}
		wg.Go(func() { s.put(a, key, "x", 0) })
	}
	wg.Wait()
	for c, err := range a.Watch(s.ctx, "") {
		if err != nil {
			s.Fatal(err)
		}
		if c.Kind == cluster.ChangeSynced {
			break
		}
		if err := coordination.CheckKey(c.Key); err != nil {
			s.Errorf("a watch yields what is no record: %v", err)
		}
	}
}

func testOwnership(s *suite) {
	a, b := s.plain()
	key, value := s.key(), []byte("value")
	rev, err := a.Put(s.ctx, key, value, 0)
	if err != nil {
		s.Fatal(err)
	}
	clear(value)
	s.wantRecord(b, key, "value", rev)
	rec, err := a.Get(s.ctx, key)
	if err != nil {
		s.Fatal(err)
	}
	clear(rec.Value)
	s.wantRecord(a, key, "value", rev)
	large := bytes.Repeat([]byte("0123456789abcdef"), coordination.MaxValue/16)
	if _, err := a.Put(s.ctx, s.key(), large, 0); err != nil {
		s.Errorf("put %d bytes: %v", len(large), err)
	}
	_, err = a.Put(s.ctx, s.key(), append(large, 'x'), 0)
	s.wantError("put too much", err, cluster.ErrTooLarge)
}

// testConcurrency checks that each success of Put follows exactly one other.
func testConcurrency(s *suite) {
	a, b := s.plain()
	key := s.key()
	s.put(a, key, "0", 0)
	const workers, each = 6, 15
	var mu sync.Mutex
	revs := map[uint64]bool{}
	var wg sync.WaitGroup
	for i := range workers {
		r := []cluster.Records{a, b}[i%2]
		wg.Go(func() {
			for done := 0; done < each; {
				rec, err := r.Get(s.ctx, key)
				if err != nil {
					s.Error(err)
					return
				}
				var count int
				fmt.Sscan(string(rec.Value), &count)
				rev, err := r.Put(s.ctx, key, fmt.Append(nil, count+1), rec.Rev)
				if errors.Is(err, cluster.ErrConflict) {
					continue
				}
				if err != nil {
					s.Error(err)
					return
				}
				done++
				mu.Lock()
				if revs[rev] {
					s.Errorf("two writes have revision %d", rev)
				}
				revs[rev] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.eventually(func() string {
		if rec, err := b.Get(s.ctx, key); err != nil || string(rec.Value) != fmt.Sprint(workers*each) {
			return fmt.Sprintf("counted to %q, %v; want %d", rec.Value, err, workers*each)
		}
		return ""
	})
}

func testFull(s *suite) {
	a, _ := s.records("suite-full", cluster.RecordsOptions{TTL: time.Minute, MaxBytes: 64 << 10})
	value := strings.Repeat("x", 8<<10)
	for i := 0; ; i++ {
		_, err := a.Put(s.ctx, s.key(), []byte(value), 0)
		if err != nil {
			s.wantError("put into a full bucket", err, cluster.ErrUnavailable)
			return
		}
		if i > 8 {
			s.Fatalf("%d records of %d bytes fit into %d bytes", i, len(value), 64<<10)
		}
	}
}

// A watcher reads a watch on a goroutine.
type watcher struct {
	changes chan cluster.Change
	err     chan error
}

func (s *suite) watch(ctx context.Context, r cluster.Records, prefix string) *watcher {
	w := &watcher{make(chan cluster.Change), make(chan error, 1)}
	go func() {
		defer close(w.changes)
		for c, err := range r.Watch(ctx, prefix) {
			if err != nil {
				w.err <- err
				return
			}
			select {
			case w.changes <- c:
			case <-ctx.Done():
				w.err <- ctx.Err()
				return
			}
		}
		w.err <- errors.New("the watch ended without an error")
	}()
	return w
}

// next returns the next change.
func (s *suite) next(w *watcher) cluster.Change {
	s.Helper()
	select {
	case c, ok := <-w.changes:
		if !ok {
			s.Fatalf("the watch ended: %v", <-w.err)
		}
		return c
	case <-time.After(waitTimeout):
		s.Fatal("the watch yields nothing")
	}
	panic("unreachable")
}

func (s *suite) wantChange(w *watcher, kind cluster.ChangeKind, key, value string, rev uint64) {
	s.Helper()
	c := s.next(w)
	if c.Kind != kind || c.Key != key || string(c.Value) != value || rev != 0 && c.Rev != rev {
		s.Errorf("got change %d of %s: %q, revision %d; want %d of %s: %q, %d", c.Kind, c.Key, c.Value, c.Rev, kind, key, value, rev)
	}
}

func testWatch(s *suite) {
	a, b := s.plain()
	prefix := s.key()
	one, two := prefix+".1", prefix+".2.x"
	rev := s.put(a, one, "a", 0)
	s.put(a, prefix+"0.1", "not below the prefix", 0)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	w := s.watch(ctx, b, prefix)
	s.wantChange(w, cluster.ChangePut, one, "a", rev)
	s.wantChange(w, cluster.ChangeSynced, "", "", 0)
	rev = s.put(b, one, "b", rev)
	s.wantChange(w, cluster.ChangePut, one, "b", rev)
	s.put(a, prefix+"0.2", "not below the prefix", 0)
	second := s.put(a, two, "c", 0)
	s.wantChange(w, cluster.ChangePut, two, "c", second)
	if err := a.Delete(s.ctx, one, rev); err != nil {
		s.Fatal(err)
	}
	s.wantChange(w, cluster.ChangeDelete, one, "", 0)
	again := s.watch(ctx, a, prefix)
	s.wantChange(again, cluster.ChangePut, two, "c", second)
	s.wantChange(again, cluster.ChangeSynced, "", "", 0)
	empty := s.watch(ctx, a, s.key())
	s.wantChange(empty, cluster.ChangeSynced, "", "", 0)
	cancel()
	for _, w := range []*watcher{w, again, empty} {
		s.wantError("a watch whose context ended", <-w.err, context.Canceled)
	}
}

// testWatchSlowly checks that a watch with a slow reader yields the latest state, or an error.
func testWatchSlowly(s *suite) {
	a, b := s.plain()
	prefix := s.key()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	w := s.watch(ctx, b, prefix)
	s.wantChange(w, cluster.ChangeSynced, "", "", 0)
	const keys, rounds = 40, 10
	want := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range keys {
		key := fmt.Sprintf("%s.%d", prefix, i)
		wg.Go(func() {
			rev := uint64(0)
			for round := range rounds {
				value := fmt.Sprint(i, round)
				var err error
				if rev, err = a.Put(s.ctx, key, []byte(value), rev); err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				want[key] = value
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if s.Failed() {
		return
	}
	got := map[string]string{}
	same := func() bool {
		for key, value := range want {
			if got[key] != value {
				return false
			}
		}
		return true
	}
	deadline := time.After(waitTimeout)
	for !same() {
		select {
		case c, ok := <-w.changes:
			if ok {
				got[c.Key] = string(c.Value)
				continue
			}
			s.wantError("a watch that was too slow", <-w.err, cluster.ErrGone)
			w = s.watch(ctx, b, prefix)
		case <-deadline:
			s.Fatalf("the watch does not yield the latest values: got %d records, want %d", len(got), len(want))
		}
	}
}

func testTTL(s *suite) {
	const ttl = 2 * time.Second
	a, b := s.records("suite-ttl", cluster.RecordsOptions{TTL: ttl})
	kept, lost := s.key(), s.key()
	began := time.Now()
	rev := s.put(a, kept, "kept", 0)
	last := s.put(a, lost, "lost", 0)
	written := time.Now()
	for {
		if time.Since(written) > ttl/4 {
			rev = s.put(a, kept, "kept", rev)
			written = time.Now()
		}
		_, err := b.Get(s.ctx, lost)
		if errors.Is(err, cluster.ErrNotFound) {
			break
		}
		if err != nil {
			s.Fatal(err)
		}
		if time.Since(began) > waitTimeout {
			s.Fatal("a record does not expire")
		}
		<-time.After(20 * time.Millisecond)
	}
	if d := time.Since(began); d < ttl {
		s.Errorf("a record expired after %v, want %v", d, ttl)
	}
	s.wantRecord(b, kept, "kept", rev)
	// A record that has expired does not exist for writes either.
	var next uint64
	s.eventually(func() string {
		var err error
		if next, err = b.Put(s.ctx, lost, []byte("again"), 0); err != nil {
			return fmt.Sprintf("create what has expired: %v", err)
		}
		return ""
	})
	if next <= last {
		s.Errorf("revision %d is followed by %d", last, next)
	}
	_, err := a.Put(s.ctx, lost, nil, last)
	s.wantError("put with the revision of what expired", err, cluster.ErrConflict)
}
