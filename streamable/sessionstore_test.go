package streamable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testSessionStore checks that a store satisfies the contract of [SessionStore].
func testSessionStore(t *testing.T, s SessionStore) {
	if got := load(t, s, "nobody"); got != nil {
		t.Errorf("a session that was not saved is %v", got)
	}
	want := &SavedSession{Version: 1, Principal: "alice", Initialize: []byte(`{"id":1}`), Subscriptions: []string{"a:1"}}
	given := want.clone()
	update(t, s, "a", func(saved *SavedSession) {
		if diff := cmp.Diff(&SavedSession{}, saved); diff != "" {
			t.Errorf("the record of a new session: %s", diff)
		}
		*saved = *given
	})
	update(t, s, "b", func(saved *SavedSession) { saved.Initialize = []byte("{}") })
	clear(given.Initialize) // the stored record must not alias the argument
	clear(given.Subscriptions)
	got := load(t, s, "a")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	clear(got.Initialize) // the stored record must not alias the result
	clear(got.Subscriptions)
	update(t, s, "a", func(saved *SavedSession) {
		if diff := cmp.Diff(want, saved); diff != "" {
			t.Error(diff)
		}
		saved.LogLevel = "info"
	})
	want.LogLevel = "info"
	if diff := cmp.Diff(want, load(t, s, "a")); diff != "" {
		t.Error(diff)
	}
	update(t, s, "a", func(saved *SavedSession) { saved.end(time.Time{}) })
	if diff := cmp.Diff(&SavedSession{Version: 2, Ended: true}, load(t, s, "a")); diff != "" {
		t.Error(diff)
	}
	if load(t, s, "b").Ended {
		t.Error("another session has ended too")
	}
}

func load(t *testing.T, s SessionStore, key string) *SavedSession {
	t.Helper()
	got, err := s.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func update(t *testing.T, s SessionStore, key string, change func(*SavedSession)) {
	t.Helper()
	if err := s.Update(t.Context(), key, change); err != nil {
		t.Fatal(err)
	}
}

func save(t *testing.T, s SessionStore, key, initialize string) {
	t.Helper()
	update(t, s, key, func(saved *SavedSession) { saved.Initialize = []byte(initialize) })
}

func TestMemorySessions(t *testing.T) {
	testSessionStore(t, NewMemorySessions().(*memorySessions))
}

// TestMemorySessionsWatch shows that a watcher gets each change in order, or an event that says
// that it has missed some.
func TestMemorySessionsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemorySessions().(*memorySessions)
		var got []uint64
		readied := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- m.Watch(ctx, func() { readied++ }, func(_ string, s *SavedSession) { got = append(got, s.Version) })
		}()
		synctest.Wait()
		for range 3 {
			update(t, m, "a", func(s *SavedSession) { s.Version++ })
		}
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !slices.Equal(got, []uint64{1, 2, 3}) || readied != 1 {
			t.Errorf("ready %d times, changes %v, %v", readied, got, err)
		}
		block := make(chan struct{})
		go func() {
			ended <- m.Watch(t.Context(), func() {}, func(string, *SavedSession) { <-block })
		}()
		synctest.Wait()
		for range maxUnwatched + 2 {
			update(t, m, "a", func(s *SavedSession) { s.Version++ })
		}
		close(block)
		if err := <-ended; !errors.Is(err, errSessionsMissed) {
			t.Errorf("a watcher that is too slow ends with %v", err)
		}
		if len(m.watchers) != 0 {
			t.Errorf("%d watchers are left", len(m.watchers))
		}
	})
}

func TestMemorySessionsBounds(t *testing.T) {
	for name, limits := range map[string]memorySessionsLimits{
		"sessions": {sessions: 3, bytes: 1 << 20, idle: time.Hour}, "bytes": {sessions: 10, bytes: 3 * (sessionOverhead + 2 + 100), idle: time.Hour},
	} {
		m := newMemorySessions(limits)
		text := fmt.Sprintf("%100d", 0)
		for i := range 3 {
			save(t, m, fmt.Sprint("s", i), text)
		}
		load(t, m, "s0")
		save(t, m, "s3", text)
		for id, want := range map[string]bool{"s0": true, "s1": false, "s2": true, "s3": true} {
			if got := load(t, m, id) != nil; got != want {
				t.Errorf("%s: %s is there: %v, want %v", name, id, got, want)
			}
		}
		for range 100 {
			save(t, m, "s3", text) // replaces the record
		}
		if load(t, m, "s0") == nil || m.queue.Len() != 3 || m.bytes != 3*(sessionOverhead+2+100) {
			t.Errorf("%s: %d sessions of %d bytes", name, m.queue.Len(), m.bytes)
		}
	}
	m := newMemorySessions(memorySessionsLimits{sessions: 10, bytes: 1000, idle: time.Hour})
	save(t, m, "small", "{}")
	if err := m.Update(t.Context(), "large", func(s *SavedSession) { s.Initialize = make([]byte, 1000) }); err == nil {
		t.Error("a session larger than the store is stored")
	}
	if load(t, m, "small") == nil {
		t.Error("and has made others go")
	}
}

func TestMemorySessionsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemorySessions(memorySessionsLimits{sessions: 1000, bytes: 1 << 20, idle: time.Minute})
		for i := range 2 * maxExpiredPerCall {
			save(t, m, fmt.Sprint("idle", i), "{}")
		}
		save(t, m, "last", "{}")
		save(t, m, "used", "{}")
		expires := time.Now().Add(time.Hour)
		update(t, m, "ended", func(s *SavedSession) { s.end(expires) })
		<-time.After(time.Minute - 1)
		if load(t, m, "used") == nil {
			t.Error("a session expired too early")
		}
		<-time.After(1)
		if load(t, m, "last") != nil {
			t.Error("an unused session has not expired")
		}
		for range 3 {
			if load(t, m, "used") == nil {
				t.Error("a used session has expired")
			}
		}
		if load(t, m, "ended") == nil {
			t.Error("a session expired too early")
		}
		<-time.After(time.Hour - time.Minute)
		if load(t, m, "ended") != nil {
			t.Error("an expired session was returned")
		}
		save(t, m, "used", "{}")
		if m.queue.Len() != 1 || len(m.byKey) != 1 || m.bytes != m.queue.Front().Value.(*storedSession).size() {
			t.Errorf("%d sessions of %d bytes are kept", m.queue.Len(), m.bytes)
		}
	})
}
