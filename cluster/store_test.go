package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/internal/base/coordination"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

func save(t *testing.T, s streamable.SessionStore, key, principal string) {
	t.Helper()
	err := s.Update(t.Context(), key, func(saved *streamable.SavedSession) {
		saved.Version++
		saved.Principal = principal
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSessionStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		var stores []streamable.SessionWatcher
		for _, n := range []*cluster.Node{a, b} {
			s, err := n.SessionStore(t.Context(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, s)
		}
		load := func(s streamable.SessionStore, key string) string {
			t.Helper()
			saved, err := s.Load(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			if saved == nil {
				return "none"
			}
			return fmt.Sprintf("%d%s%q", saved.Version, saved.Principal, saved.Subscriptions)
		}
		want := func(what, want string, got ...string) {
			t.Helper()
			for _, g := range got {
				if g != want {
					t.Errorf("%s: got %q, want %q", what, g, want)
				}
			}
		}
		for _, key := range []string{"used", "idle"} {
			save(t, stores[0], key, "p")
		}
		save(t, stores[1], "used", "q")
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				err := stores[i%2].Update(t.Context(), "busy", func(s *streamable.SavedSession) {
					s.Version++
					s.Expires = time.Now().Add(time.Hour)
					if i >= 18 {
						s.Subscriptions = append(s.Subscriptions, "u")
					}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want("changed at two nodes", "2q[]", load(stores[0], "used"), load(stores[1], "used"))
		want("changed at once", `20["u" "u"]`, load(stores[0], "busy"), load(stores[1], "busy"))
		want("unknown", "none", load(stores[0], "unknown"))
		for range 4 {
			advance(59 * time.Minute)
			want("a session that is used", "2q[]", load(stores[0], "used"))
		}
		want("a session that nobody used", "none", load(stores[0], "idle"))
		want("a session that expired", "none", load(stores[0], "busy"))
		save(t, stores[0], "busy", "again")
		want("a session that expired and is new", "1again[]", load(stores[1], "busy"))
		err := stores[0].Update(t.Context(), "long", func(s *streamable.SavedSession) { s.Expires = time.Now().Add(2 * time.Hour) })
		if err == nil {
			t.Error("the store has a session after its TTL")
		}
		f.setDown(true)
		if _, err := stores[1].Load(t.Context(), "used"); !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("load without the backend: %v", err)
		}
		err = stores[1].Update(t.Context(), "used", func(s *streamable.SavedSession) { s.Ended = true })
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("update without the backend: %v", err)
		}
		other, err := join(t, f.shared, &cluster.NodeOptions{Tenant: "other"}).SessionStore(t.Context(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		want("another tenant", "none", load(other, "used"))
	})
}

// TestSessionKept checks which changes of a session have a durable copy.
func TestSessionKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		s, err := join(t, shared, nil).SessionStore(t.Context(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := shared.Records(t.Context(), "sessions-kept", cluster.RecordsOptions{TTL: time.Hour, Durable: true})
		if err != nil {
			t.Fatal(err)
		}
		// last returns the revision of the copy that was written last.
		last := func() (rev uint64) {
			for c, err := range kept.Watch(t.Context(), "") {
				if err != nil || c.Kind == cluster.ChangeSynced {
					return rev
				}
				rev = max(rev, c.Rev)
			}
			return rev
		}
		for _, tt := range []struct {
			what   string
			change func(s *streamable.SavedSession)
			want   bool
		}{
			{"its client listens", func(s *streamable.SavedSession) { s.Listener = "n1" }, false},
			{"its client listens elsewhere", func(s *streamable.SavedSession) { s.Listener = "n2" }, false},
			{"its client does not listen", func(s *streamable.SavedSession) { s.Listener = "" }, false},
			{"a subscription", func(s *streamable.SavedSession) { s.Subscriptions = []string{"u"} }, true},
			{"its client listens, with a subscription", func(s *streamable.SavedSession) { s.Listener = "n1" }, true},
			{"it listens elsewhere, with a subscription", func(s *streamable.SavedSession) { s.Listener = "n2" }, false},
			{"a log level", func(s *streamable.SavedSession) { s.LogLevel = "error" }, true},
			{"the same log level", func(s *streamable.SavedSession) { s.LogLevel = "error" }, false},
			{"initialize", func(s *streamable.SavedSession) { s.Initialize = []byte("{}") }, true},
			{"the end", func(s *streamable.SavedSession) { s.Ended = true }, true},
		} {
			before := last()
			err := s.Update(t.Context(), "key", func(s *streamable.SavedSession) { s.Version++; tt.change(s) })
			if err != nil {
				t.Fatal(err)
			}
			if got := last() > before; got != tt.want {
				t.Errorf("%s: got a copy: %v, want %v", tt.what, got, tt.want)
			}
		}
	})
}

func TestSessionWatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		var stores []streamable.SessionWatcher
		for _, n := range []*cluster.Node{a, b} {
			s, err := n.SessionStore(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, s)
		}
		save(t, stores[0], "before", "p")
		synctest.Wait()
		var got []string
		var mu sync.Mutex
		ended := make(chan error, 1)
		watch := func(ctx context.Context) {
			ended <- stores[1].Watch(ctx, func() { mu.Lock(); defer mu.Unlock(); got = append(got, "ready") }, func(key string, s *streamable.SavedSession) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprint(key, " ", s.Version, s.Ended))
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go watch(ctx)
		synctest.Wait()
		save(t, stores[0], "k1", "p")
		synctest.Wait()
		save(t, stores[1], "k2", "p")
		err := stores[0].Update(t.Context(), "before", func(s *streamable.SavedSession) {
			*s = streamable.SavedSession{Version: s.Version + 1, Ended: true}
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// A change of which there is a durable copy may be reported twice.
		if diff := cmp.Diff([]string{"ready", "k1 1 false", "k2 1 false", "before 2 true"}, slices.Compact(got)); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		got = nil
		f.setDown(true)
		synctest.Wait()
		save(t, stores[0], "meanwhile", "p")
		advance(time.Minute)
		f.setDown(false)
		advance(5 * time.Second)
		if diff := cmp.Diff([]string{"meanwhile 1 false"}, got); diff != "" {
			t.Errorf("changes while the backend was unavailable (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the end of the context: %v", err)
		}
		go watch(t.Context())
		synctest.Wait()
		b.Close()
		if err := <-ended; !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("the end of the node: %v", err)
		}
	})
}

// TestSessionView checks that a node has a change of a session without the backend when Update of
// another node has returned.
func TestSessionView(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		stores := make([]streamable.SessionViewer, 2)
		for i, n := range []*cluster.Node{a, b} {
			var err error
			if stores[i], err = n.SessionStore(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what, key, want string) {
			t.Helper()
			got := "unknown"
			if saved, ok := stores[1].View(key); ok && saved == nil {
				got = "none"
			} else if ok {
				got = fmt.Sprintf("%q ended=%v", saved.LogLevel, saved.Ended)
			}
			if got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		update := func(key string, change func(s *streamable.SavedSession)) (took time.Duration) {
			t.Helper()
			began := time.Now()
			if err := stores[0].Update(t.Context(), key, change); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		synctest.Wait()
		f.setDown(true) // the other node gets no changes from the backend
		update("k", func(s *streamable.SavedSession) { s.LogLevel = "info" })
		want("a change", "k", `"info" ended=false`)
		want("no change", "other", "none")
		update("k", func(s *streamable.SavedSession) { s.Ended = true })
		want("the end", "k", `"info" ended=true`)
		advance(29 * time.Second)
		want("soon", "other", "none")
		advance(2 * time.Second)
		want("half a minute later", "other", "unknown")
		f.setDown(false)
		advance(5 * time.Second)
		want("the backend is back", "other", "none")

		blocked := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- stores[1].Watch(ctx, func() {}, func(string, *streamable.SavedSession) { <-blocked })
		}()
		synctest.Wait()
		f.setDown(true)
		synctest.Wait()
		if d := update("suspended", func(s *streamable.SavedSession) { s.Ended = true }); d != 500*time.Millisecond {
			t.Errorf("Update waited %v for a node that does not reply", d)
		}
		close(blocked)
		cancel()
		<-ended
	})
}

func TestEventStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := twoNodes(t, nil)
		var stores []streamable.EventFollower
		for _, n := range []*cluster.Node{a, b} {
			s, err := n.EventStore(t.Context(), &cluster.EventStoreOptions{MaxStreamEvents: 50})
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, s)
		}
		add := func(session, stream, data string) string {
			t.Helper()
			id, err := stores[0].Append(t.Context(), session, stream, []byte(data))
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		after := func(session, id string) (got []string) {
			t.Helper()
			stream, events, err := stores[1].After(t.Context(), session, id)
			if err != nil {
				return []string{err.Error()}
			}
			for e, err := range events {
				if err != nil {
					return append(got, err.Error())
				}
				if !strings.HasPrefix(e.ID, stream+"-") {
					t.Errorf("event %s of stream %s", e.ID, stream)
				}
				got = append(got, string(e.Data))
			}
			return got
		}
		want := func(what string, got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %.100q, want %.100q", what, got, want)
			}
		}
		large := strings.Repeat("0123456789abcdef", 100_000)
		first := add("s1", "st-1", "")
		other := add("s1", "st-2", "x")
		second := add("s1", "st-1", large)
		third := add("s1", "st-1", "3")
		add("s2", "st-1", "foreign")
		gone := streamable.ErrEventGone.Error()
		want("the first", after("s1", first), large, "3")
		want("the second", after("s1", second), "3")
		want("the last", after("s1", third))
		for what, id := range map[string]string{
			"empty": "", "without a number": "st-1", "zero": "st-1-0", "another form": strings.Replace(first, "-", "-0", 2),
			"another stream": "st-1" + strings.TrimPrefix(other, "st-2"), "never": "st-1-999999", "text": "st-1-x", "huge": "st-1-99999999999999999999",
		} {
			want(what, after("s1", id), gone)
		}
		want("another session", after("s2", first), gone)
		if _, err := stores[0].Append(t.Context(), "s1", "st-1", make([]byte, 9<<20)); !errors.Is(err, cluster.ErrTooLarge) {
			t.Errorf("an event of 9 MiB: %v", err)
		}
		for i := range 60 {
			add("s1", "st-3", fmt.Sprint(i))
		}
		want("after evictions", after("s1", third))
		if err := stores[1].Drop(t.Context(), "s1"); err != nil {
			t.Error(err)
		}
		want("dropped", after("s1", third), gone)
	})
}

// TestEventFollow checks that Follow yields the events of another node in order, and large ones
// complete.
// TestEventStoreBytes checks that EventStoreOptions.MaxBytes limits the events of all streams.
func TestEventStoreBytes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, err := join(t, clustertest.NewMemory(), nil).EventStore(t.Context(), &cluster.EventStoreOptions{MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for i := range 3 {
			id, err := s.Append(t.Context(), "session", fmt.Sprint("stream", i), make([]byte, 400<<10))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		for i, want := range []error{streamable.ErrEventGone, nil, nil} {
			if _, _, err := s.After(t.Context(), "session", ids[i]); !errors.Is(err, want) {
				t.Errorf("event %d of 3: got %v, want %v", i+1, err, want)
			}
		}
	})
}

func TestEventFollow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := twoNodes(t, nil)
		from, err := a.EventStore(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		to, err := b.EventStore(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		add := func(data string) string {
			id, err := from.Append(t.Context(), "s", "st", []byte(data))
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := add("0")
		add("1")
		ctx, cancel := context.WithCancel(t.Context())
		stream, events, err := to.Follow(ctx, "s", first)
		if err != nil || stream != "st" {
			t.Fatalf("follow: %q, %v", stream, err)
		}
		got := make(chan string, 10)
		go func() {
			defer close(got)
			for e, err := range events {
				if err != nil {
					got <- err.Error()
					return
				}
				got <- string(e.Data)
			}
		}()
		large := strings.Repeat("x", 2<<20)
		synctest.Wait()
		add(large)
		add("3")
		for _, want := range []string{"1", large, "3"} {
			if g := <-got; g != want {
				t.Errorf("got %.20q, want %.20q", g, want)
			}
		}
		cancel()
		if g := <-got; g != context.Canceled.Error() {
			t.Errorf("the end: %q", g)
		}
		if _, _, err := to.Follow(t.Context(), "s", "st-999"); !errors.Is(err, streamable.ErrEventGone) {
			t.Errorf("follow from an unknown event: %v", err)
		}
	})
}

// TestEventParts checks that an event whose last part could not be stored does not become part of
// the next one.
func TestEventParts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		n := join(t, shared, nil)
		s, err := n.EventStore(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		torn := &tornBackend{shared}
		m := join(t, torn, nil)
		tornStore, err := m.EventStore(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		first, err := s.Append(t.Context(), "s", "st", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tornStore.Append(t.Context(), "s", "st", make([]byte, 2<<20)); err == nil {
			t.Fatal("Append to a failing backend: got no error")
		}
		if _, err := s.Append(t.Context(), "s", "st", []byte("next")); err != nil {
			t.Fatal(err)
		}
		_, events, err := s.After(t.Context(), "s", first)
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range events {
			if err != nil || string(e.Data) != "next" {
				t.Errorf("got %.20q, %v", e.Data, err)
			}
		}
	})
}

// A tornBackend has logs that fail after two entries.
type tornBackend struct{ cluster.Backend }

// Log implements cluster.Backend.
func (b *tornBackend) Log(ctx context.Context, name string, o cluster.LogOptions) (cluster.Log, error) {
	l, err := b.Backend.Log(ctx, name, o)
	return &tornLog{Log: l}, err
}

type tornLog struct {
	cluster.Log
	n int
}

// Append implements cluster.Log.
func (l *tornLog) Append(ctx context.Context, key cluster.LogKey, id string, data []byte) (uint64, error) {
	if l.n++; l.n > 2 {
		return 0, cluster.ErrUnavailable
	}
	return l.Log.Append(ctx, key, id, data)
}

func taskStores(t *testing.T, nodes ...*cluster.Node) (stores []server.TaskStore) {
	t.Helper()
	for _, n := range nodes {
		s, err := n.TaskStore(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	return stores
}

func newTask(id, owner string, ttl time.Duration) *server.Task {
	now := time.Now().Round(0)
	return &server.Task{ID: id, Owner: owner, Method: "tools/call", Name: "tool", Status: mcp.TaskStatusWorking, Created: now, Updated: now, TTL: ttl}
}

func TestTaskStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		stores := taskStores(t, a, b)
		task := newTask("t1", "o", time.Hour)
		task.InputRequests = map[string]mcp.InputRequest{"k": {Method: mcp.MethodRootsList}}
		if err := stores[0].Create(t.Context(), task); err != nil || task.Version != 1 {
			t.Fatalf("create: %v, version %d", err, task.Version)
		}
		if err := stores[1].Create(t.Context(), newTask("t1", "p", time.Hour)); err == nil {
			t.Error("two tasks have the same id")
		}
		if err := stores[1].Create(t.Context(), newTask("long", "p", 25*time.Hour)); err == nil {
			t.Error("the store has a task after its TTL")
		}
		got, err := stores[1].Task(t.Context(), "t1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(task, got); diff != "" {
			t.Errorf("the task at the other node (-want +got):\n%s", diff)
		}
		result := json.RawMessage(`{"text":"` + strings.Repeat("0123456789abcdef", 100_000) + `"}`)
		for i, want := range []*server.Task{
			{Status: mcp.TaskStatusCompleted, Result: json.RawMessage(`{"a":1}`)},
			{Status: mcp.TaskStatusCompleted, Result: result},
			{Status: mcp.TaskStatusFailed, Error: &jsonrpc.Error{Code: -32000, Message: "m", Data: []byte(`"d"`)}},
		} {
			updated, err := stores[i%2].Update(t.Context(), "t1", func(t *server.Task) error {
				t.Status, t.Result, t.Error, t.InputRequests = want.Status, want.Result, want.Error, nil
				t.InputResponses = map[string]json.RawMessage{"k": json.RawMessage("null")}
				return nil
			})
			if err != nil || updated.Version != uint64(i+2) {
				t.Fatalf("update: %v, %+v", err, updated)
			}
			got, err := stores[1-i%2].Task(t.Context(), "t1")
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(updated.Result, want.Result) || !bytes.Equal(got.Result, want.Result) {
				t.Errorf("results of %d and %d bytes, want %d", len(updated.Result), len(got.Result), len(want.Result))
			}
			updated.Result, got.Result = nil, nil // cmp is slow with large values
			if diff := cmp.Diff(updated, got); diff != "" {
				t.Errorf("an updated task (-want +got):\n%s", diff)
			}
		}
		rejected := errors.New("rejected")
		if _, err := stores[0].Update(t.Context(), "t1", func(*server.Task) error { return rejected }); err != rejected {
			t.Errorf("a change that fails: %v", err)
		}
		for _, id := range []string{"", "t2", "*", strings.Repeat("x", 10_000)} {
			_, get := stores[0].Task(t.Context(), id)
			_, update := stores[0].Update(t.Context(), id, func(*server.Task) error { return nil })
			_, wait := stores[0].Wait(t.Context(), id, 0)
			for _, err := range []error{get, update, wait} {
				if !errors.Is(err, server.ErrTaskNotFound) {
					t.Errorf("the task %.10q: %v", id, err)
				}
			}
		}
		for _, id := range []string{"t4", "t2", "t3"} {
			if err := stores[0].Create(t.Context(), newTask(id, "o", 2*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		ids := func(owner, after string, limit int) (ids []string) {
			t.Helper()
			tasks, err := stores[1].Tasks(t.Context(), owner, after, limit)
			if err != nil {
				t.Error(err)
			}
			for _, task := range tasks {
				ids = append(ids, task.ID)
			}
			return ids
		}
		list := [][]string{ids("o", "", 10), ids("o", "t2", 1), ids("o", "t4", 10), ids("p", "", 10), ids("", "", 10)}
		if diff := cmp.Diff([][]string{{"t1", "t2", "t3", "t4"}, {"t3"}, nil, nil, nil}, list); diff != "" {
			t.Errorf("lists (-want +got):\n%s", diff)
		}
		expired, err := stores[0].Update(t.Context(), "t2", func(t *server.Task) error { t.TTL = 0; return nil })
		if err != nil || expired.TTL != 0 {
			t.Errorf("a task that is made to expire: %v", err)
		}
		advance(time.Hour)
		if _, err := stores[0].Task(t.Context(), "t1"); !errors.Is(err, server.ErrTaskNotFound) {
			t.Errorf("an expired task: %v", err)
		}
		if got := ids("o", "", 10); !slices.Equal(got, []string{"t3", "t4"}) {
			t.Errorf("after some expired: %q", got)
		}
		f.setDown(true)
		_, err = stores[1].Task(t.Context(), "t3")
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("without the backend: %v", err)
		}
	})
}

// TestTaskUncertainWrite checks that a task is created and updated if each write is carried out but
// returns a conflict.
func TestTaskUncertainWrite(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		stores := taskStores(t, a, b)
		f.rejectsAll.Store(true)
		if err := stores[1].Create(t.Context(), newTask("t", "", time.Hour)); err != nil {
			t.Fatal(err)
		}
		result := []byte(`"` + strings.Repeat("x", 2<<20) + `"`)
		if _, err := stores[1].Update(t.Context(), "t", func(t *server.Task) error { t.Result = result; return nil }); err != nil {
			t.Fatal(err)
		}
		f.rejectsAll.Store(false)
		got, err := stores[0].Task(t.Context(), "t")
		if err != nil || got.Version != 2 || !bytes.Equal(got.Result, result) {
			t.Errorf("%v: version %d, a result of %d bytes", err, got.Version, len(got.Result))
		}
	})
}

// TestTaskUpdates checks that each of several concurrent updates is made exactly once.
// TestTaskNotCreated checks that a task whose creation fails does not exist, whether the write is
// carried out in time, late or never: nothing runs it, and nothing would end it.
func TestTaskNotCreated(t *testing.T) {
	for _, after := range []time.Duration{0, coordination.CallTimeout + 50*time.Millisecond, time.Hour} {
		inBubble(t, func(t *testing.T) {
			a, b, f := twoNodes(t, nil)
			stores := taskStores(t, a, b)
			f.silent.Store(&silence{"tasks", after})
			if err := stores[1].Create(t.Context(), newTask("t", "o", 10*time.Minute)); !errors.Is(err, cluster.ErrUnavailable) {
				t.Fatalf("create without a response: %v", err)
			}
			advance(time.Minute)
			for i, s := range stores {
				if task, err := s.Task(t.Context(), "t"); !errors.Is(err, server.ErrTaskNotFound) {
					t.Errorf("written after %v, node %d: got %+v, %v", after, i, task, err)
				}
				if list, err := s.Tasks(t.Context(), "o", "", 10); err != nil || len(list) > 0 {
					t.Errorf("written after %v, node %d: got %d tasks, %v", after, i, len(list), err)
				}
			}
			runs, err := f.shared.Records(t.Context(), "task-runs", cluster.RecordsOptions{TTL: 24 * time.Hour, Durable: true})
			if err != nil {
				t.Fatal(err)
			}
			for c, err := range runs.Watch(t.Context(), "") {
				if err != nil || c.Kind != cluster.ChangeSynced {
					t.Errorf("written after %v: got a run %+v, %v", after, c, err)
				}
				break
			}
			if err := stores[0].Create(t.Context(), newTask("t2", "o", 10*time.Minute)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTaskUpdates(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		stores := taskStores(t, a, b)
		if err := stores[0].Create(t.Context(), newTask("t", "", time.Hour)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				for range 10 {
					if i == 1 {
						f.lossy.Store(true)
					}
					_, err := stores[i%2].Update(t.Context(), "t", func(t *server.Task) error { t.StatusMessage += "x"; return nil })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		got, err := stores[0].Task(t.Context(), "t")
		if err != nil || got.Version != 101 || len(got.StatusMessage) != 100 {
			t.Errorf("%v: %+v", err, got)
		}
	})
}

func TestTaskWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		stores := taskStores(t, a, b)
		if err := stores[0].Create(t.Context(), newTask("t", "", time.Hour)); err != nil {
			t.Fatal(err)
		}
		got, err := stores[1].Wait(t.Context(), "t", 0)
		if err != nil || got.Version != 1 {
			t.Fatalf("a task that is newer: %v, %v", got, err)
		}
		for _, tt := range []struct {
			lost bool // the signal is lost
			max  time.Duration
		}{{false, 0}, {true, 2 * time.Second}} {
			f.mute.Store(tt.lost)
			version := got.Version
			go func() {
				<-time.After(10*time.Minute + time.Millisecond)
				_, err := stores[1].Update(t.Context(), "t", func(t *server.Task) error { return nil })
				if err != nil {
					t.Error(err)
				}
			}()
			began := time.Now()
			got, err = stores[0].Wait(t.Context(), "t", version)
			if err != nil || got.Version != version+1 {
				t.Errorf("got %+v, %v", got, err)
			}
			if d := time.Since(began) - 10*time.Minute - time.Millisecond; d < 0 || d > tt.max {
				t.Errorf("signal lost: %v: Wait took %v", tt.lost, d)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := stores[0].Wait(ctx, "t", got.Version); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of the context: %v", err)
		}
		if _, err := stores[0].Wait(t.Context(), "t", got.Version); !errors.Is(err, server.ErrTaskNotFound) {
			t.Errorf("a task that expires: %v", err)
		}
	})
}

// TestBus checks that a message of one server reaches those of other nodes.
func TestBus(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		otherTenant := join(t, f.shared, &cluster.NodeOptions{Tenant: "strange"})
		var got []string
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			err := b.Bus().Subscribe(ctx, func(message []byte) { got = append(got, string(message)) })
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := otherTenant.Bus().Subscribe(t.Context(), func([]byte) { t.Error("another tenant got the message") }); !errors.Is(err, cluster.ErrClosed) {
				t.Error(err)
			}
		})
		synctest.Wait()
		const want = "a message, ü"
		if err := a.Bus().Publish(t.Context(), []byte(want)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		cancel()
		otherTenant.Close()
		wg.Wait()
		if err := a.Bus().Publish(t.Context(), []byte(want)); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{want}, got); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	})
}

// TestNotFound checks a node that is cut off from the others, where a machine of the backend still
// answers reads, from the time before the records were written: nothing is reported as not found.
func TestNotFound(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, shared := t.Context(), clustertest.NewMemory()
		f := newFaulty(shared)
		o := func() *cluster.NodeOptions { return &cluster.NodeOptions{Secrets: secrets(3)} }
		there, here := join(t, shared, o()), join(t, f, o())
		tasks := taskStores(t, there, here)
		var sessions []streamable.SessionStore
		for _, n := range []*cluster.Node{there, here} {
			s, err := n.SessionStore(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, s)
		}
		err := errors.Join(
			tasks[0].Create(ctx, newTask("t", "o", time.Hour)),
			sessions[0].Update(ctx, "s", func(s *streamable.SavedSession) { s.Principal, s.Initialize = "p", []byte("{}") }),
		)
		lease, leaseErr := coordination.Of(there).TryAcquire(ctx, "l")
		if err := errors.Join(err, leaseErr); err != nil {
			t.Fatal(err)
		}
		calls := map[string]func() error{
			"task": func() error { _, err := tasks[1].Task(ctx, "t"); return err },
			"update of a task": func() error {
				_, err := tasks[1].Update(ctx, "t", func(*server.Task) error { return nil })
				return err
			},
			"wait for a task": func() error { _, err := tasks[1].Wait(ctx, "t", 0); return err },
			"session": func() error {
				saved, err := sessions[1].Load(ctx, "s")
				if err == nil && saved == nil {
					return errors.New("not found")
				}
				return err
			},
			"holder of lease": func() error { _, err := coordination.Of(here).LeaseHolder(ctx, "l"); return err },
		}
		f.deposed.Store(true)
		for _, known := range []bool{false, true} {
			for what, call := range calls {
				if err := call(); !errors.Is(err, cluster.ErrUnavailable) {
					t.Errorf("%s, cut off, known before: %t: got %v, want %v", what, known, err, cluster.ErrUnavailable)
				}
			}
			if known {
				break
			}
			f.deposed.Store(false)
			for what, call := range calls {
				if err := call(); err != nil {
					t.Errorf("%s, no longer cut off: %v", what, err)
				}
			}
			f.deposed.Store(true)
		}
		f.deposed.Store(false)
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
		for what, call := range map[string]struct {
			call func() error
			want error
		}{
			"task":  {func() error { _, err := tasks[1].Task(ctx, "other"); return err }, server.ErrTaskNotFound},
			"lease": {func() error { _, err := coordination.Of(here).LeaseHolder(ctx, "l"); return err }, cluster.ErrNotFound},
		} {
			if err := call.call(); !errors.Is(err, call.want) {
				t.Errorf("no %s: got %v, want %v", what, err, call.want)
			}
		}
	})
}

// TestSameChange checks that two nodes that make the same change of a session at the same time make
// it twice: a node must not take the record of the other for its own write.
func TestSameChange(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := twoNodes(t, nil)
		var stores []streamable.SessionStore
		for _, n := range []*cluster.Node{a, b} {
			s, err := n.SessionStore(t.Context(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, s)
		}
		change := func(s *streamable.SavedSession) { s.Version++ }
		first := true
		err := stores[1].Update(t.Context(), "k", func(s *streamable.SavedSession) {
			if first {
				first = false
				if err := stores[0].Update(t.Context(), "k", change); err != nil {
					t.Error(err)
				}
			}
			change(s)
		})
		if err != nil {
			t.Fatal(err)
		}
		if saved, err := stores[0].Load(t.Context(), "k"); err != nil || saved == nil || saved.Version != 2 {
			t.Errorf("got %+v, %v, want both changes", saved, err)
		}
	})
}
