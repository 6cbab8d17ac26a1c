package streamable

import (
	"container/list"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Spec: S78 S79
func TestMemoryEvents(t *testing.T) {
	testEventStore(t, func() EventStore { return NewMemoryEvents(nil) })
}

func TestMemoryEventsSession(t *testing.T) {
	t.Run("events", func(t *testing.T) {
		m := NewMemoryEvents(&MemoryEventsOptions{MaxSessionEvents: 3})
		other := mustAppend(t, m, "s2", "a", "")
		var ids []string
		for i := range 5 {
			ids = append(ids, mustAppend(t, m, "s", fmt.Sprint("stream", i%2), fmt.Sprint(i)))
		}
		checkGone(t, m, "s", ids[0])
		checkGone(t, m, "s", ids[1])
		if _, got := after(t, m, "s", ids[2]); len(got) != 1 || got[0] != "4" {
			t.Errorf("got %q", got)
		}
		after(t, m, "s2", other)
		checkBooks(t, m)
	})
	t.Run("bytes", func(t *testing.T) {
		m := NewMemoryEvents(&MemoryEventsOptions{MaxSessionBytes: 3 * (eventOverhead + 101)})
		var ids []string
		for range 4 {
			ids = append(ids, mustAppend(t, m, "s", "a", strings.Repeat("x", 100)))
		}
		checkGone(t, m, "s", ids[0])
		if _, got := after(t, m, "s", ids[1]); len(got) != 2 {
			t.Errorf("%d events are left", len(got))
		}
		checkBooks(t, m)
	})
}

// Something that is larger than the store leaves no gap that nobody sees.
func TestMemoryEventsTooLarge(t *testing.T) {
	for _, o := range []*MemoryEventsOptions{{MaxSessionBytes: 1000}, {MaxBytes: 1000}} {
		m := NewMemoryEvents(o)
		before := mustAppend(t, m, "s", "a", "before")
		large := mustAppend(t, m, "s", "a", strings.Repeat("x", 1000))
		checkGone(t, m, "s", before)
		checkGone(t, m, "s", large)
		behind := mustAppend(t, m, "s", "a", "behind")
		checkGone(t, m, "s", before)
		after(t, m, "s", behind)
		checkBooks(t, m)
	}
}

func TestMemoryEventsTotal(t *testing.T) {
	m := NewMemoryEvents(&MemoryEventsOptions{MaxBytes: 100 * (eventOverhead + 1)})
	first := mustAppend(t, m, "quiet", "a", "")
	for i := range 99 {
		mustAppend(t, m, fmt.Sprint("s", i%7), "a", "")
	}
	after(t, m, "quiet", first)
	for i := range 1000 {
		last := mustAppend(t, m, fmt.Sprint("t", i), "a", "")
		after(t, m, fmt.Sprint("t", i), last)
	}
	checkGone(t, m, "quiet", first)
	checkBooks(t, m)
	if len(m.sessions) != 100 {
		t.Errorf("%d sessions are remembered, want those of 100 events", len(m.sessions))
	}
}

func TestMemoryEventsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemoryEvents(&MemoryEventsOptions{MaxAge: time.Minute})
		old := mustAppend(t, m, "s", "a", "old")
		for i := range 3 * maxExpiredPerCall {
			mustAppend(t, m, fmt.Sprint("other", i), "a", "")
		}
		late := mustAppend(t, m, "late", "a", "")
		<-time.After(time.Minute - 1)
		fresh := mustAppend(t, m, "s", "a", "fresh")
		if _, got := after(t, m, "s", old); len(got) != 1 {
			t.Errorf("after %d events, want 1", len(got))
		}
		<-time.After(1)
		checkGone(t, m, "late", late) // though there are others to get rid of first
		checkGone(t, m, "s", old)
		after(t, m, "s", fresh)
		for range 3 {
			after(t, m, "s", fresh)
		}
		if m.queue.Len() != 1 || len(m.sessions) != 1 {
			t.Errorf("%d events of %d sessions are kept, want 1 of 1", m.queue.Len(), len(m.sessions))
		}
		checkBooks(t, m)
	})
}

// Dropping a session gives its memory back.
func TestMemoryEventsDrop(t *testing.T) {
	m := NewMemoryEvents(nil)
	for i := range 100 {
		mustAppend(t, m, fmt.Sprint("s", i%10), "a", "text")
	}
	for i := range 10 {
		if err := m.Drop(t.Context(), fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
		checkBooks(t, m)
	}
	if m.bytes != 0 || m.queue.Len() != 0 || len(m.sessions) != 0 {
		t.Errorf("%d bytes, %d events, %d sessions are left", m.bytes, m.queue.Len(), len(m.sessions))
	}
}

func TestMemoryEventsName(t *testing.T) {
	m := NewMemoryEvents(nil)
	for _, name := range []string{"a b", "a\nb", "é", "a\x7f"} {
		if id, err := m.Append(t.Context(), "s", name, nil); err == nil {
			t.Errorf("a stream called %q has the event %q", name, id)
		}
	}
}

// checkBooks holds what is counted against what is there.
func checkBooks(t *testing.T, m *MemoryEvents) {
	t.Helper()
	bytes, events := 0, 0
	owners := make(map[string]int)
	for id, s := range m.sessions {
		own, ownEvents := 0, 0
		for name, st := range s.streams {
			if len(st.events) == 0 {
				t.Errorf("stream %s of session %s has no events", name, id)
			}
			for _, e := range st.events {
				own += e.size()
				ownEvents++
			}
		}
		if own != s.bytes || ownEvents == 0 || ownEvents != s.free.Len()+s.away.Len() || s.free.Len() > m.opts.MaxSessionEvents || own > m.opts.MaxSessionBytes {
			t.Errorf("session %s has %d events of %d bytes, and counts %d free, %d held, %d bytes", id, ownEvents, own, s.free.Len(), s.away.Len(), s.bytes)
		}
		for _, queue := range []*list.List{&s.free, &s.away} {
			last := uint64(0)
			for e := queue.Front(); e != nil; e = e.Next() {
				if n := e.Value.(*memoryEvent).number; n <= last {
					t.Errorf("session %s: event %d comes after %d", id, n, last)
				} else {
					last = n
				}
			}
		}
		bytes, events = bytes+own, events+ownEvents
		owners[s.owner.id] += own
	}
	if bytes != m.bytes || events != m.queue.Len() || bytes > m.opts.MaxBytes {
		t.Errorf("%d events of %d bytes, and counts %d of %d", events, bytes, m.queue.Len(), m.bytes)
	}
	counted := make(map[string]int)
	for id, o := range m.owners {
		counted[id] = o.bytes
	}
	if diff := cmp.Diff(owners, counted); diff != "" || len(m.largest) != len(owners) {
		t.Errorf("bytes by owner (-there +counted):\n%s", diff)
	}
}

// Who has the most loses events first, and others none.
func TestMemoryEventsOwners(t *testing.T) {
	m := NewMemoryEvents(&MemoryEventsOptions{MaxBytes: 100 * (eventOverhead + 1)})
	put := func(owner, session string, away bool) string {
		t.Helper()
		id, err := m.append(owner, session, "a", nil, away)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	victim := put("victim", "quiet", true)
	var last string
	for i := range 1000 {
		last = put("hog", fmt.Sprint("s", i%20), i%2 == 0)
	}
	after(t, m, "quiet", victim)
	after(t, m, "s19", last)
	for i := range 45 { // another that has less than half
		put("other", fmt.Sprint("o", i), false)
	}
	checkBooks(t, m)
	got := map[string]int{}
	for id, o := range m.owners {
		got[id] = o.bytes / (eventOverhead + 1)
	}
	if diff := cmp.Diff(map[string]int{"victim": 1, "hog": 54, "other": 45}, got); diff != "" {
		t.Errorf("events by owner (-want +got):\n%s", diff)
	}
}

// The events of a stream whose client is away are kept when others have to go, as long as there is
// room, and it is not away for long.
func TestMemoryEventsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemoryEvents(&MemoryEventsOptions{MaxSessionEvents: 10, MaxSessionBytes: 100 * (eventOverhead + 2)})
		put := func(stream string, away bool) string {
			t.Helper()
			id, err := m.append("o", "s", stream, []byte("x"), away)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		events := func(stream string) (n int) {
			if st := m.sessions["s"].streams[stream]; st != nil {
				n = len(st.events)
			}
			return n
		}
		check := func(what string, want ...int) {
			t.Helper()
			got := []int{events("a"), events("b"), events("c")}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: events of a, b, c (-want +got):\n%s", what, diff)
			}
			checkBooks(t, m)
		}
		for range 3 {
			put("a", false)
			put("b", false)
		}
		m.setAway("s", "a", true) // with what was sent before
		for range 20 {
			put("a", true)
			put("b", false)
		}
		check("a is away", 23, 10, 0)
		for range 40 {
			put("c", true)
		}
		check("a and c are away", 23, 10, 40)
		for range 60 {
			put("c", true)
		}
		check("no room", 0, 0, 100)
		m.setAway("s", "c", false)
		put("b", false)
		check("c is back", 0, 1, 9)
		for range 95 {
			put("a", true)
		}
		check("a is away again", 95, 1, 4)
		<-time.After(maxAway)
		for range 20 {
			put("b", false)
		}
		check("a is away for too long", 0, 10, 0)
		m.setAway("s", "gone", true)
		m.setAway("gone", "a", true)
	})
}
