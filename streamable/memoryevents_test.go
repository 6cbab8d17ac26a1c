package streamable

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
		m := NewMemoryEvents(&MemoryEventsOptions{MaxSessionBytes: 3 * (eventCost + 101)})
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
	m := NewMemoryEvents(&MemoryEventsOptions{MaxBytes: 100 * (eventCost + 1)})
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
		for i := range 3 * maxExpired {
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
	for id, s := range m.sessions {
		own := 0
		for _, e := range s.events {
			own += e.size()
		}
		if own != s.bytes || len(s.events) == 0 || len(s.events) > m.opts.MaxSessionEvents || own > m.opts.MaxSessionBytes {
			t.Errorf("session %s has %d events of %d bytes, and counts %d", id, len(s.events), own, s.bytes)
		}
		bytes, events = bytes+own, events+len(s.events)
	}
	if bytes != m.bytes || events != m.queue.Len() || bytes > m.opts.MaxBytes {
		t.Errorf("%d events of %d bytes, and counts %d of %d", events, bytes, m.queue.Len(), m.bytes)
	}
}
