package streamable

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testSessionStore holds that a store does what [SessionStore] says.
func testSessionStore(t *testing.T, s SessionStore) {
	if got := load(t, s, "nobody"); got != nil {
		t.Errorf("a session that was not saved is %v", got)
	}
	first := &SavedSession{Principal: "alice", Initialize: []byte(`{"id":1}`)}
	want := first.clone()
	for range 2 {
		if err := s.Save(t.Context(), "a", first); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(t.Context(), "b", &SavedSession{Initialize: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	first.Principal = "mallory"
	clear(first.Initialize) // what was saved is not changed by that
	got := load(t, s, "a")
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
	clear(got.Initialize) // nor by this
	if diff := cmp.Diff(&want, load(t, s, "a")); diff != "" {
		t.Error(diff)
	}
	other := &SavedSession{Principal: "bob", Initialize: []byte(`{}`)}
	if err := s.Save(t.Context(), "a", other); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(other, load(t, s, "a")); diff != "" {
		t.Error(diff)
	}
	for range 2 { // what is not there can be deleted
		if err := s.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if load(t, s, "a") != nil || load(t, s, "b") == nil {
		t.Error("not exactly the session that was deleted is gone")
	}
}

func load(t *testing.T, s SessionStore, id string) *SavedSession {
	t.Helper()
	got, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func save(t *testing.T, s SessionStore, id, initialize string) {
	t.Helper()
	if err := s.Save(t.Context(), id, &SavedSession{Initialize: []byte(initialize)}); err != nil {
		t.Fatal(err)
	}
}

func TestMemorySessions(t *testing.T) {
	testSessionStore(t, NewMemorySessions(nil))
}

func TestMemorySessionsBounds(t *testing.T) {
	for name, o := range map[string]*MemorySessionsOptions{"sessions": {MaxSessions: 3}, "bytes": {MaxBytes: 3 * (sessionOverhead + 2 + 100)}} {
		m := NewMemorySessions(o)
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
			save(t, m, "s3", text) // again, which takes no more
		}
		if load(t, m, "s0") == nil || m.queue.Len() != 3 || m.bytes != 3*(sessionOverhead+2+100) {
			t.Errorf("%s: %d sessions of %d bytes", name, m.queue.Len(), m.bytes)
		}
	}
	m := NewMemorySessions(&MemorySessionsOptions{MaxBytes: 1000})
	save(t, m, "small", "{}")
	if err := m.Save(t.Context(), "large", &SavedSession{Initialize: make([]byte, 1000)}); err == nil {
		t.Error("a session larger than the store is taken")
	}
	if load(t, m, "small") == nil {
		t.Error("and has made others go")
	}
}

func TestMemorySessionsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemorySessions(&MemorySessionsOptions{MaxIdle: time.Minute})
		for i := range 2 * maxExpiredPerCall {
			save(t, m, fmt.Sprint("idle", i), "{}")
		}
		save(t, m, "last", "{}")
		save(t, m, "used", "{}")
		<-time.After(time.Minute - 1)
		if load(t, m, "used") == nil {
			t.Error("a session is gone too early")
		}
		<-time.After(1)
		if load(t, m, "last") != nil {
			t.Error("a session is there that nobody used")
		}
		for range 3 {
			if load(t, m, "used") == nil {
				t.Error("a session is gone that was used")
			}
		}
		if m.queue.Len() != 1 || len(m.byID) != 1 || m.bytes != m.queue.Front().Value.(*storedSession).size() {
			t.Errorf("%d sessions of %d bytes are kept", m.queue.Len(), m.bytes)
		}
	})
}
