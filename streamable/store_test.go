package streamable

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testEventStore checks that a store satisfies the contract of [EventStore]. newStore returns an
// empty store with room for all events of the tests.
func testEventStore(t *testing.T, newStore func() EventStore) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, EventStore)
	}{
		{"order", testEventOrder},
		{"isolation", testEventIsolation},
		{"unknown", testEventUnknown},
		{"drop", testEventDrop},
		{"data", testEventData},
		{"snapshot", testEventSnapshot},
		{"concurrent", testEventConcurrent},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newStore()) })
	}
}

func mustAppend(t testing.TB, s EventStore, session, stream, data string) string {
	t.Helper()
	id, err := s.Append(t.Context(), session, stream, []byte(data))
	if err != nil {
		t.Fatalf("Append to %s of %s: %v", stream, session, err)
	}
	if id == "" || len(id) > 128 || !isVisibleASCII(id) {
		t.Fatalf("Append to %s of %s: id %q", stream, session, id)
	}
	return id
}

// after returns the stream of an id, and the texts of the later events.
func after(t testing.TB, s EventStore, session, id string) (stream string, texts []string) {
	t.Helper()
	stream, events, err := s.After(t.Context(), session, id)
	if err != nil {
		t.Fatalf("After %q: %v", id, err)
	}
	for e, err := range events {
		if err != nil {
			t.Fatalf("After %q: %v", id, err)
		}
		texts = append(texts, string(e.Data))
	}
	return stream, texts
}

func checkGone(t testing.TB, s EventStore, session, id string) {
	t.Helper()
	if stream, _, err := s.After(t.Context(), session, id); !errors.Is(err, ErrEventGone) {
		t.Errorf("After %q of session %q = %q, %v, want ErrEventGone", id, session, stream, err)
	}
}

func testEventOrder(t *testing.T, s EventStore) {
	var ids, texts []string
	seen := map[string]bool{}
	for i := range 20 {
		text := fmt.Sprint("event ", i)
		if i == 0 {
			text = "" // a priming event
		}
		id := mustAppend(t, s, "session", "stream-1", text)
		if seen[id] {
			t.Fatalf("id %q comes again", id)
		}
		seen[id] = true
		ids, texts = append(ids, id), append(texts, text)
	}
	for i, id := range ids {
		stream, got := after(t, s, "session", id)
		if stream != "stream-1" {
			t.Errorf("the stream of %q is %q", id, stream)
		}
		if diff := cmp.Diff(append([]string(nil), texts[i+1:]...), got); diff != "" {
			t.Errorf("after %q: %s", id, diff)
		}
	}
	_, events, err := s.After(t.Context(), "session", ids[3])
	if err != nil {
		t.Fatal(err)
	}
	for e := range events { // the caller may stop and continue the iteration
		if e.ID != ids[4] {
			t.Errorf("the event after %q is %q, want %q", ids[3], e.ID, ids[4])
		}
		break
	}
}

func testEventIsolation(t *testing.T, s EventStore) {
	names := []string{"a", "a-", "a-1", "1", strings.Repeat("n", 64)}
	first, owner := map[string]string{}, map[string]string{}
	for _, name := range names {
		for _, session := range []string{"s", "s2"} {
			first[session+" "+name] = mustAppend(t, s, session, name, "first of "+name)
		}
	}
	for _, name := range names {
		mustAppend(t, s, "s", name, "second of "+name)
		id := first["s "+name]
		if was, ok := owner[id]; ok {
			t.Errorf("streams %q and %q of one session share the id %q", was, name, id)
		}
		owner[id] = name
	}
	for _, name := range names {
		stream, got := after(t, s, "s", first["s "+name])
		if diff := cmp.Diff([]string{"second of " + name}, got); stream != name || diff != "" {
			t.Errorf("after the first event of %q, stream %q: %s", name, stream, diff)
		}
		if stream, got = after(t, s, "s2", first["s2 "+name]); stream != name || got != nil {
			t.Errorf("after the only event of %q: stream %q, %q", name, stream, got)
		}
	}
}

func testEventUnknown(t *testing.T, s EventStore) {
	id := mustAppend(t, s, "s", "a", "x")
	checkGone(t, s, "nobody", id)
	for _, wrong := range []string{"", "-", "x", "a-", "-1", id + "0", "0" + id, id + " ", " " + id, strings.ToUpper(id), id + "\x00", "b" + id[1:], "a-18446744073709551616", "a--1", "a-+1",
		strings.Repeat("9", 10_000)} {
		if wrong != id {
			checkGone(t, s, "s", wrong)
		}
	}
}

func testEventDrop(t *testing.T, s EventStore) {
	id, other := mustAppend(t, s, "s", "a", "x"), mustAppend(t, s, "s2", "a", "x")
	for range 2 { // dropping twice is allowed
		if err := s.Drop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
	}
	checkGone(t, s, "s", id)
	after(t, s, "s2", other)
	mustAppend(t, s, "s", "a", "y")
	checkGone(t, s, "s", id) // the ids of a dropped session are not reused
}

func testEventData(t *testing.T, s EventStore) {
	start := mustAppend(t, s, "s", "a", "")
	data := []byte("{\"text\":\"a\\nb\"}\x00\xff\n")
	want := string(data)
	if _, err := s.Append(t.Context(), "s", "a", data); err != nil {
		t.Fatal(err)
	}
	clear(data) // the store must not alias data after Append
	if _, err := s.Append(t.Context(), "s", "a", nil); err != nil {
		t.Fatal(err)
	}
	if _, got := after(t, s, "s", start); !cmp.Equal(got, []string{want, ""}) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// testEventSnapshot checks that the caller of After may iterate slowly and use the store at the
// same time.
func testEventSnapshot(t *testing.T, s EventStore) {
	id := mustAppend(t, s, "s", "a", "0")
	mustAppend(t, s, "s", "a", "1")
	_, events, err := s.After(t.Context(), "s", id)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n > 10 {
			t.Fatal("the iteration includes events that were appended after its start")
		}
		after(t, s, "s", e.ID)
		mustAppend(t, s, "s", "a", "more")
	}
	if err := s.Drop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
}

func testEventConcurrent(t *testing.T, s EventStore) {
	const streams, events = 4, 50
	var wg sync.WaitGroup
	for n := range streams {
		wg.Go(func() {
			session, stream := fmt.Sprint("session", n%2), fmt.Sprint("stream", n)
			first, err := s.Append(context.Background(), session, stream, nil)
			for i := 1; i <= events && err == nil; i++ {
				if _, err = s.Append(context.Background(), session, stream, fmt.Append(nil, i)); err != nil {
					break
				}
				var found int
				_, behind, e := s.After(context.Background(), session, first)
				if err = e; err == nil {
					for e := range behind {
						if found++; string(e.Data) != fmt.Sprint(found) {
							t.Errorf("event %d of %s is %q", found, stream, e.Data)
						}
					}
				}
				if found != i {
					t.Errorf("%d events of %s, want %d", found, stream, i)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Spec: S78 S79
func TestMemoryEvents(t *testing.T) {
	testEventStore(t, func() EventStore { return NewMemoryEvents(nil).(*memoryEvents) })
}

func TestMemoryEventsSession(t *testing.T) {
	t.Run("events", func(t *testing.T) {
		m := NewMemoryEvents(&MemoryEventsOptions{MaxSessionEvents: 3}).(*memoryEvents)
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
		checkCounters(t, m)
	})
	t.Run("bytes", func(t *testing.T) {
		m := NewMemoryEvents(&MemoryEventsOptions{MaxSessionBytes: 3 * (eventOverhead + 101)}).(*memoryEvents)
		var ids []string
		for range 4 {
			ids = append(ids, mustAppend(t, m, "s", "a", strings.Repeat("x", 100)))
		}
		checkGone(t, m, "s", ids[0])
		if _, got := after(t, m, "s", ids[1]); len(got) != 2 {
			t.Errorf("%d events are left", len(got))
		}
		checkCounters(t, m)
	})
}

// TestMemoryEventsTooLarge shows that an event that is larger than the store does not leave an
// undetected gap.
func TestMemoryEventsTooLarge(t *testing.T) {
	for _, o := range []*MemoryEventsOptions{{MaxSessionBytes: 1000}, {MaxBytes: 1000}} {
		m := NewMemoryEvents(o).(*memoryEvents)
		before := mustAppend(t, m, "s", "a", "before")
		large := mustAppend(t, m, "s", "a", strings.Repeat("x", 1000))
		checkGone(t, m, "s", before)
		checkGone(t, m, "s", large)
		behind := mustAppend(t, m, "s", "a", "behind")
		checkGone(t, m, "s", before)
		after(t, m, "s", behind)
		checkCounters(t, m)
	}
}

func TestMemoryEventsTotal(t *testing.T) {
	m := NewMemoryEvents(&MemoryEventsOptions{MaxBytes: 100 * (eventOverhead + 1)}).(*memoryEvents)
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
	checkCounters(t, m)
	if len(m.sessions) != 100 {
		t.Errorf("%d sessions are remembered, want those of 100 events", len(m.sessions))
	}
}

func TestMemoryEventsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemoryEvents(&MemoryEventsOptions{MaxAge: time.Minute}).(*memoryEvents)
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
		checkGone(t, m, "late", late) // although other sessions have older events
		checkGone(t, m, "s", old)
		after(t, m, "s", fresh)
		for range 3 {
			after(t, m, "s", fresh)
		}
		if m.queue.Len() != 1 || len(m.sessions) != 1 {
			t.Errorf("%d events of %d sessions are kept, want 1 of 1", m.queue.Len(), len(m.sessions))
		}
		checkCounters(t, m)
	})
}

// TestMemoryEventsDrop shows that dropping a session releases its memory.
func TestMemoryEventsDrop(t *testing.T) {
	m := NewMemoryEvents(nil).(*memoryEvents)
	for i := range 100 {
		mustAppend(t, m, fmt.Sprint("s", i%10), "a", "text")
	}
	for i := range 10 {
		if err := m.Drop(t.Context(), fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
		checkCounters(t, m)
	}
	if m.bytes != 0 || m.queue.Len() != 0 || len(m.sessions) != 0 {
		t.Errorf("%d bytes, %d events, %d sessions are left", m.bytes, m.queue.Len(), len(m.sessions))
	}
}

func TestMemoryEventsName(t *testing.T) {
	m := NewMemoryEvents(nil).(*memoryEvents)
	for _, name := range []string{"a b", "a\nb", "é", "a\x7f"} {
		if id, err := m.Append(t.Context(), "s", name, nil); err == nil {
			t.Errorf("a stream called %q has the event %q", name, id)
		}
	}
}

// checkCounters compares the counters of the store with its contents.
func checkCounters(t *testing.T, m *memoryEvents) {
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

// TestMemoryEventsOwners shows that events of the caller with the most bytes are evicted first.
func TestMemoryEventsOwners(t *testing.T) {
	m := NewMemoryEvents(&MemoryEventsOptions{MaxBytes: 100 * (eventOverhead + 1)}).(*memoryEvents)
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
	for i := range 45 { // another owner, with less than half
		put("other", fmt.Sprint("o", i), false)
	}
	checkCounters(t, m)
	got := map[string]int{}
	for id, o := range m.owners {
		got[id] = o.bytes / (eventOverhead + 1)
	}
	if diff := cmp.Diff(map[string]int{"victim": 1, "hog": 54, "other": 45}, got); diff != "" {
		t.Errorf("events by owner (-want +got):\n%s", diff)
	}
}

// TestMemoryEventsHeld shows that the store keeps the events of a stream whose client is
// disconnected while it evicts others, within its limits and for a limited time.
func TestMemoryEventsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemoryEvents(&MemoryEventsOptions{MaxSessionEvents: 10, MaxSessionBytes: 100 * (eventOverhead + 2)}).(*memoryEvents)
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
			checkCounters(t, m)
		}
		for range 3 {
			put("a", false)
			put("b", false)
		}
		m.setAway("s", "a", true) // including earlier events
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
