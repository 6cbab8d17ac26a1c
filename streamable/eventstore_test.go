package streamable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testEventStore holds that a store does what [EventStore] says. newStore returns an empty one that has room for everything in here.
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

// after returns the stream, and the texts of the events behind one.
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
	for e := range events { // breaking off is allowed, and so is going on from there
		if e.ID != ids[4] {
			t.Errorf("the event behind %q is %q, want %q", ids[3], e.ID, ids[4])
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
	for range 2 { // what is not there can be dropped
		if err := s.Drop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
	}
	checkGone(t, s, "s", id)
	after(t, s, "s2", other)
	mustAppend(t, s, "s", "a", "y")
	checkGone(t, s, "s", id) // the ids of one that was forgotten do not come again
}

func testEventData(t *testing.T, s EventStore) {
	start := mustAppend(t, s, "s", "a", "")
	data := []byte("{\"text\":\"a\\nb\"}\x00\xff\n")
	want := string(data)
	if _, err := s.Append(t.Context(), "s", "a", data); err != nil {
		t.Fatal(err)
	}
	clear(data) // it was the store's until Append returned
	if _, err := s.Append(t.Context(), "s", "a", nil); err != nil {
		t.Fatal(err)
	}
	if _, got := after(t, s, "s", start); !cmp.Equal(got, []string{want, ""}) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The caller of After may take its time, and use the store meanwhile.
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
			t.Fatal("it goes on as long as there is more")
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
