package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/internal/base/coordination"
)

// inBubble runs a test with fake time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// advance advances the clock of the bubble by d.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A faultyBackend is the backend of one node, which can fail.
type faultyBackend struct {
	shared cluster.Backend
	// down makes calls hang until their context ends.
	down atomic.Bool
	// deposed makes reads find nothing, and writes hang until their context ends.
	deposed atomic.Bool
	// lossy makes the next write return an error although it is carried out.
	lossy atomic.Bool
	// rejects makes the next write return a conflict although it is carried out.
	rejects atomic.Bool
	// rejectsAll makes all writes do that.
	rejectsAll atomic.Bool
	// silent makes a write hang.
	silent atomic.Pointer[silence]
	// silentAll makes all writes hang. They are carried out at once.
	silentAll atomic.Bool
	// mute drops messages.
	mute atomic.Bool
	// full makes Check fail.
	full atomic.Bool
	mu   sync.Mutex
	// cut is closed to end the watches.
	cut chan struct{}
}

// A silence makes the next write to a bucket hang until its context ends. It is carried out after a
// time.
type silence struct {
	bucket string
	after  time.Duration
}

func newFaulty(shared cluster.Backend) *faultyBackend {
	return &faultyBackend{shared: shared, cut: make(chan struct{})}
}

func (f *faultyBackend) setDown(down bool) {
	f.down.Store(down)
	f.mu.Lock()
	defer f.mu.Unlock()
	if down {
		close(f.cut)
		f.cut = make(chan struct{})
	}
}

func (f *faultyBackend) fault(ctx context.Context) error {
	if f.down.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *faultyBackend) writeFault(ctx context.Context) error {
	if f.deposed.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.fault(ctx)
}

func (f *faultyBackend) Records(ctx context.Context, name string, o cluster.RecordsOptions) (cluster.Records, error) {
	if err := f.fault(ctx); err != nil {
		return nil, err
	}
	r, err := f.shared.Records(ctx, name, o)
	return &faultyRecords{r, f, name}, err
}

var errFull = errors.New("the disk is full")

func (f *faultyBackend) Check() error {
	if f.full.Load() {
		return errFull
	}
	return nil
}

func (f *faultyBackend) Log(ctx context.Context, name string, o cluster.LogOptions) (cluster.Log, error) {
	return f.shared.Log(ctx, name, o)
}

func (f *faultyBackend) Bus() cluster.Bus { return &faultyBus{f.shared.Bus(), f} }

type faultyBus struct {
	cluster.Bus
	f *faultyBackend
}

func (b *faultyBus) Publish(ctx context.Context, topic string, data []byte) error {
	if b.f.mute.Load() {
		return nil
	}
	return b.Bus.Publish(ctx, topic, data)
}

type faultyRecords struct {
	cluster.Records
	f    *faultyBackend
	name string
}

func (r *faultyRecords) Get(ctx context.Context, key string) (cluster.Record, error) {
	if err := r.f.fault(ctx); err != nil {
		return cluster.Record{}, err
	}
	if r.f.deposed.Load() {
		return cluster.Record{}, cluster.ErrNotFound
	}
	return r.Records.Get(ctx, key)
}

func (r *faultyRecords) Absent(ctx context.Context, key string) error {
	if err := r.f.writeFault(ctx); err != nil {
		return err
	}
	return r.Records.Absent(ctx, key)
}

func (r *faultyRecords) Put(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	if err := r.f.writeFault(ctx); err != nil {
		return 0, err
	}
	after, hangs := time.Duration(0), r.f.silentAll.Load()
	if q := r.f.silent.Load(); q != nil && q.bucket == r.name {
		after, hangs = q.after, true
		r.f.silent.Store(nil)
	}
	if hangs {
		value, late := bytes.Clone(value), context.WithoutCancel(ctx)
		// Not at once: a timer that is due when it is made can crash the race detector of Go 1.26 in a
		// synctest bubble.
		time.AfterFunc(max(after, time.Nanosecond), func() { _, _ = r.Records.Put(late, key, value, rev) })
		<-ctx.Done()
		<-time.After(time.Millisecond) // the contexts of callers, which end at the same time, have ended
		return 0, ctx.Err()
	}
	rev, err := r.Records.Put(ctx, key, value, rev)
	if err == nil && r.f.lossy.CompareAndSwap(true, false) {
		return 0, cluster.ErrUnavailable
	}
	if err == nil && (r.f.rejects.CompareAndSwap(true, false) || r.f.rejectsAll.Load()) {
		return 0, cluster.ErrConflict
	}
	return rev, err
}

func (r *faultyRecords) Delete(ctx context.Context, key string, rev uint64) error {
	if err := r.f.writeFault(ctx); err != nil {
		return err
	}
	return r.Records.Delete(ctx, key, rev)
}

func (r *faultyRecords) Watch(ctx context.Context, prefix string) iter.Seq2[cluster.Change, error] {
	return func(yield func(cluster.Change, error) bool) {
		begin, end := context.WithTimeout(ctx, time.Second)
		defer end()
		if err := r.f.fault(begin); err != nil {
			yield(cluster.Change{}, err)
			return
		}
		r.f.mu.Lock()
		cut := r.f.cut
		r.f.mu.Unlock()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
		for c, err := range r.Records.Watch(ctx, prefix) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// join joins a node, which is closed at the end of the test.
func join(t *testing.T, b cluster.Backend, o *cluster.NodeOptions) *cluster.Node {
	t.Helper()
	if o == nil {
		o = &cluster.NodeOptions{InsecureKeys: true}
	}
	o.Logger = slog.New(slog.DiscardHandler)
	n, err := cluster.Join(t.Context(), b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// twoNodes returns two nodes and the backend of the second.
func twoNodes(t *testing.T, o *cluster.NodeOptions) (a, b *cluster.Node, f *faultyBackend) {
	t.Helper()
	shared := clustertest.NewMemory()
	f = newFaulty(shared)
	return join(t, shared, o), join(t, f, o), f
}

func names(n *cluster.Node) string {
	list, _ := n.Members()
	var names []string
	for _, m := range list {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestMembers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		node := func(name string) *cluster.Node { return join(t, shared, &cluster.NodeOptions{Name: name}) }
		want := func(what, want string, nodes ...*cluster.Node) {
			t.Helper()
			synctest.Wait()
			for _, n := range nodes {
				if got := names(n); got != want {
					t.Errorf("%s: the members are %q, want %q", what, got, want)
				}
			}
		}
		a := node("a")
		want("alone", "a", a)
		b := node("b")
		if got := names(b); got != "a b" { // as soon as Join returns
			t.Errorf("members of b: got %q", got)
		}
		c := node("c")
		join(t, shared, &cluster.NodeOptions{Name: "x", Tenant: "another"})
		want("three", "a b c", a, b, c)
		if !coordination.Of(a).HasMember(c.ID()) || coordination.Of(a).HasMember("nobody") {
			t.Error("HasMember: got a wrong result")
		}
		_, changed := a.Members()
		if err := c.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		want("one left", "a b", a, b)
		select {
		case <-changed:
		default:
			t.Error("the channel of Members is not closed")
		}
		b.Close()
		advance(2900 * time.Millisecond)
		want("one was killed just now", "a b", a)
		advance(1200 * time.Millisecond)
		want("one was killed", "a", a)
		d := node("d")
		advance(5 * time.Second) // d may still have b before that
		want("another one", "a d", a, d)
		advance(10 * time.Minute)
		want("later", "a d", a, d)
	})
}

// TestMembersPartition checks that a node that does not reach the backend keeps the other members,
// and that the others remove it until it reaches the backend again.
func TestMembersPartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		f := newFaulty(shared)
		a := join(t, shared, &cluster.NodeOptions{Name: "a"})
		b := join(t, f, &cluster.NodeOptions{Name: "b"})
		f.setDown(true)
		advance(2 * time.Minute) // its record has expired
		if got, want := [2]string{names(a), names(b)}, [2]string{"a", "a b"}; got != want {
			t.Errorf("during the partition: got %q, want %q", got, want)
		}
		f.setDown(false)
		advance(10 * time.Second)
		if got, want := [2]string{names(a), names(b)}, [2]string{"a b", "a b"}; got != want {
			t.Errorf("after the partition: got %q, want %q", got, want)
		}
		f.lossy.Store(true) // the next heartbeat is written and returns an error
		advance(10 * time.Second)
		if got := names(a); got != "a b" {
			t.Errorf("after an uncertain write: got %q", got)
		}
	})
}

// TestStats checks that a node counts its members, its appends and its failed messages, and reports
// that the backend is unavailable.
func TestStats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var appended []error
		shared := clustertest.NewMemory()
		f := newFaulty(shared)
		n := join(t, f, &cluster.NodeOptions{OnAppend: func(d time.Duration, err error) {
			if d < 0 || d > coordination.CallTimeout {
				t.Errorf("an append took %v", d)
			}
			appended = append(appended, err)
		}})
		join(t, shared, nil)
		events, err := n.EventStore(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.Append(t.Context(), "s", "1", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := events.Append(t.Context(), "s", "1", make([]byte, 9<<20)); err == nil {
			t.Error("a large event is stored")
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := events.Append(canceled, "s", "1", []byte("x")); err == nil {
			t.Error("an event is stored after the context has ended")
		}
		if len(appended) != 2 || appended[0] != nil || appended[1] == nil {
			t.Errorf("OnAppend was called with %v", appended)
		}
		if err := n.Bus().Publish(canceled, []byte("x")); err == nil {
			t.Error("published after the context has ended")
		}
		synctest.Wait()
		if diff := cmp.Diff(cluster.Stats{Members: 2, BusLost: 1}, n.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
		if err := n.Check(t.Context()); err != nil {
			t.Error(err)
		}
		f.full.Store(true)
		if err := n.Check(t.Context()); !errors.Is(err, cluster.ErrUnavailable) || !errors.Is(err, errFull) || !n.Stats().StorageDown {
			t.Errorf("the backend in the process stores nothing: %v, %+v", err, n.Stats())
		}
		f.full.Store(false)
		f.setDown(true)
		advance(2 * time.Second)
		if err := n.Check(t.Context()); err != nil {
			t.Errorf("after two seconds: %v", err)
		}
		advance(3 * time.Second)
		if err := n.Check(t.Context()); !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("the backend is unavailable: %v", err)
		}
		f.setDown(false)
		advance(10 * time.Second)
		if err := n.Check(t.Context()); err != nil {
			t.Error(err)
		}
		n.Close()
		if err := n.Check(t.Context()); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestJoinFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaulty(clustertest.NewMemory())
		f.setDown(true)
		began := time.Now()
		_, err := cluster.Join(t.Context(), f, nil)
		if !errors.Is(err, cluster.ErrUnavailable) || time.Since(began) > 30*time.Second {
			t.Errorf("join: %v after %v", err, time.Since(began))
		}
		for _, o := range []cluster.NodeOptions{{Name: strings.Repeat("x", 1000)}, {Secrets: [][]byte{[]byte("short")}}} {
			if _, err := cluster.Join(t.Context(), clustertest.NewMemory(), &o); err == nil {
				t.Errorf("joined with %+v", o)
			}
		}
	})
}

func TestRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := twoNodes(t, nil)
		err := coordination.Of(b).Handle(t.Context(), "greet", func(ctx context.Context, data []byte) ([]byte, error) {
			switch string(data) {
			case "fail":
				return nil, errors.New("no greeting")
			case "wait":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return append([]byte("hello "), data...), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []*cluster.Node{a, b} {
			if got, err := coordination.Of(n).Request(t.Context(), b.ID(), "greet", []byte("x")); err != nil || string(got) != "hello x" {
				t.Errorf("got %q, %v", got, err)
			}
		}
		if _, err := coordination.Of(a).Request(t.Context(), b.ID(), "greet", []byte("fail")); err == nil || err.Error() != "no greeting" {
			t.Errorf("a handler's error: %v", err)
		}
		began := time.Now()
		if _, err := coordination.Of(a).Request(t.Context(), b.ID(), "greet", []byte("wait")); err == nil || time.Since(began) != coordination.CallTimeout {
			t.Errorf("a blocked handler: got %v after %v", err, time.Since(began))
		}
		if _, err := coordination.Of(a).Request(t.Context(), b.ID(), "other", nil); !errors.Is(err, cluster.ErrNoNode) {
			t.Errorf("a topic that nobody handles: %v", err)
		}
		b.Close()
		if _, err := coordination.Of(a).Request(t.Context(), b.ID(), "greet", nil); !errors.Is(err, cluster.ErrNoNode) {
			t.Errorf("a node that is closed: %v", err)
		}
		if err := coordination.Of(b).Handle(t.Context(), "late", nil); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("handle at a closed node: %v", err)
		}
	})
}

// replayCaches returns the cache of that name at each node.
func replayCaches(t *testing.T, name string, maxTTL time.Duration, nodes ...*cluster.Node) (caches []auth.ReplayCache) {
	t.Helper()
	for _, n := range nodes {
		c, err := n.ReplayCache(t.Context(), name, maxTTL)
		if err != nil {
			t.Fatal(err)
		}
		caches = append(caches, c)
	}
	return caches
}

// TestReplayCacheOnce checks that exactly one of several uses is the first, whatever the backend
// does.
func TestReplayCacheOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, f := twoNodes(t, nil)
		caches := replayCaches(t, "test", time.Minute, a, b)
		first := func(c auth.ReplayCache, key string) bool {
			t.Helper()
			ok, err := c.Once(t.Context(), "", key, time.Minute)
			if err != nil {
				t.Error(err)
			}
			return ok
		}
		var wins atomic.Int32
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if first(caches[i%2], "key") {
					wins.Add(1)
				}
			})
		}
		wg.Wait()
		if wins.Load() != 1 {
			t.Errorf("got %d first uses, want 1", wins.Load())
		}
		f.lossy.Store(true)
		if !first(caches[1], "unsure") || first(caches[1], "unsure") {
			t.Error("uncertain write: the first use was not counted once")
		}
		f.rejects.Store(true)
		if !first(caches[1], "rejected") || first(caches[1], "rejected") {
			t.Error("uncertain conflict: the first use was not counted once")
		}
		f.setDown(true)
		if _, err := caches[1].Once(t.Context(), "", "down", time.Minute); !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("a backend that is down: %v", err)
		}
		f.setDown(false)
		if !first(caches[1], "down") {
			t.Error("a use was counted that did not reach the backend")
		}
		advance(time.Minute)
		if !first(caches[0], "key") {
			t.Error("the key has not expired")
		}
	})
}

// TestReplayCacheAbandoned checks that a use that fails does not count, whether it is recorded in
// time, late or never: the caller, who may try again at any node, has not done anything.
func TestReplayCacheAbandoned(t *testing.T) {
	for _, tt := range []struct {
		name string
		// recorded is when the write of the use is carried out. Negative means never. The use
		// fails after coordination.CallTimeout.
		recorded time.Duration
		// outage is how long the backend does not respond after the use has failed.
		outage time.Duration
		// again is when the use is tried again after that, at node.
		again time.Duration
		node  int
	}{
		{"at once, at this node", 0, 0, 0, 0},
		{"at once, at another node", 0, 0, time.Second, 1},
		{"late, at this node", 3 * time.Second, 0, 2 * time.Second, 0},
		{"late, at another node", 3 * time.Second, 0, 2 * time.Second, 1},
		{"before an outage, at this node", 0, 20 * time.Second, 0, 0},
		{"before an outage, at another node", 0, 20 * time.Second, 2 * time.Second, 1},
		{"never, at this node", -1, 0, 0, 0},
		{"never, at another node", -1, 0, time.Second, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				other, failing, f := twoNodes(t, nil)
				caches := replayCaches(t, "test", time.Minute, failing, other)
				if tt.recorded >= 0 {
					f.silent.Store(&silence{"once-test", tt.recorded})
				} else {
					f.setDown(true)
				}
				began := time.Now()
				if first, err := caches[0].Once(t.Context(), "", "key", time.Minute); first || !errors.Is(err, cluster.ErrUnavailable) {
					t.Fatalf("the backend does not respond: got %v, %v", first, err)
				}
				if d := time.Since(began).Round(10 * time.Millisecond); d != coordination.CallTimeout {
					t.Errorf("the use failed after %v", d)
				}
				f.setDown(tt.outage > 0)
				advance(tt.outage)
				f.setDown(false)
				advance(tt.again)
				for i, want := range []bool{true, false, false} {
					if first, err := caches[(tt.node+i)%2].Once(t.Context(), "", "key", time.Minute); first != want || err != nil {
						t.Errorf("use %d after the one that failed: got %v, %v, want %v", i+1, first, err, want)
					}
				}
			})
		})
	}
}

// TestReplayCacheAbandonedOften checks that a use that fails again and again counts once when it
// succeeds, and that a key which another use has stays with it.
func TestReplayCacheAbandonedOften(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		other, failing, f := twoNodes(t, nil)
		caches := replayCaches(t, "test", time.Minute, failing, other)
		a, b := caches[0], caches[1]
		for range 3 {
			advance(100 * time.Millisecond) // the key of the use before is free then
			f.silent.Store(&silence{"once-test", coordination.CallTimeout + 50*time.Millisecond})
			if first, err := a.Once(t.Context(), "", "key", time.Minute); first || !errors.Is(err, cluster.ErrUnavailable) {
				t.Fatalf("the backend does not respond: got %v, %v", first, err)
			}
		}
		advance(time.Second)
		got := make(map[bool]int)
		for _, c := range []auth.ReplayCache{b, a, b, a} {
			first, err := c.Once(t.Context(), "", "key", time.Minute)
			if err != nil {
				t.Error(err)
			}
			got[first]++
		}
		if diff := cmp.Diff(map[bool]int{true: 1, false: 3}, got); diff != "" {
			t.Errorf("uses after those that failed (-want +got):\n%s", diff)
		}
	})
}

// TestReplayCacheIsBounded lets more uses fail than a node frees.
func TestReplayCacheIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const uses, limit = 4096 + 100, 4096
		other, failing, f := twoNodes(t, nil)
		caches := replayCaches(t, "test", time.Minute, failing, other)
		f.silentAll.Store(true)
		var wg sync.WaitGroup
		for i := range uses {
			wg.Go(func() {
				if first, err := caches[0].Once(t.Context(), "", fmt.Sprint(i), time.Minute); first || !errors.Is(err, cluster.ErrUnavailable) {
					t.Errorf("the backend does not respond: got %v, %v", first, err)
				}
			})
		}
		wg.Wait()
		f.silentAll.Store(false)
		advance(10 * time.Second)
		free := 0
		for i := range uses {
			if first, _ := caches[1].Once(t.Context(), "", fmt.Sprint(i), time.Minute); first {
				free++
			}
		}
		if free != limit {
			t.Errorf("%d of %d keys are free, want %d", free, uses, limit)
		}
		if err := failing.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := failing.ReplayCache(t.Context(), "test", time.Minute); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("a node that has left: %v", err)
		}
	})
}

func TestReplayCache(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := twoNodes(t, nil)
		caches := replayCaches(t, "dpop", 130*time.Second, a, b)
		use := func(c auth.ReplayCache, owner, key string, ttl time.Duration) string {
			ok, err := c.Once(t.Context(), owner, key, ttl)
			return fmt.Sprint(ok, " ", err)
		}
		got := []string{
			use(caches[0], "o", "k", time.Second), use(caches[1], "o", "k", time.Second), use(caches[0], "o", "k", time.Second),
			use(caches[0], "", "k", time.Second), use(caches[0], "o", "k2", 130*time.Second),
		}
		if diff := cmp.Diff([]string{"true <nil>", "false <nil>", "false <nil>", "true <nil>", "true <nil>"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := use(caches[0], "o", "k3", 131*time.Second); !strings.HasPrefix(got, "false cluster:") {
			t.Errorf("a ttl that is too long: %s", got)
		}
		var err error
		for i := range 1 << 15 {
			if _, err = caches[0].Once(t.Context(), "greedy", fmt.Sprint(i), time.Second); err != nil {
				break
			}
		}
		if !errors.Is(err, auth.ErrReplayQuota) {
			t.Errorf("an owner without a limit: %v", err)
		}
		if got := use(caches[0], "modest", "1", time.Second); got != "true <nil>" {
			t.Errorf("another owner: got %s", got)
		}
		advance(130 * time.Second)
		if got := use(caches[0], "greedy", "x", time.Second); got != "true <nil>" {
			t.Errorf("after the quota has expired: got %s", got)
		}
	})
}

// TestHandlerNodes checks that a message reaches the handlers of the same endpoint at other nodes.
func TestHandlerNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b, _ := twoNodes(t, nil)
		var mu sync.Mutex
		got := make(map[string][]string)
		receive := func(name string, n *cluster.Node, endpoint string) {
			t.Helper()
			stop, err := n.HandlerNodes(endpoint).Receive(func(message []byte) []byte {
				mu.Lock()
				defer mu.Unlock()
				got[name] = append(got[name], string(message))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
		}
		receive("a", a, "e")
		receive("b", b, "e")
		receive("another endpoint", b, "other")
		for _, m := range []struct {
			from *cluster.Node
			text string
		}{{a, "of a"}, {b, "of b"}, {a, ""}} {
			if err := m.from.HandlerNodes("e").Publish(t.Context(), []byte(m.text)); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(map[string][]string{"a": {"of b"}, "b": {"of a", ""}}, got); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	})
}

// TestRollingUpgrade checks that a node reads records of the next release, and ignores newer ones.
func TestRollingUpgrade(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		n := join(t, shared, nil)
		sessions, err := n.SessionStore(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		save(t, sessions, "id", "owner")
		r, err := shared.Records(t.Context(), "sessions", cluster.RecordsOptions{TTL: 25 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for c := range r.Watch(t.Context(), "") {
			if c.Kind == cluster.ChangeSynced {
				break
			}
			if strings.Contains(c.Key, "id") || strings.Contains(c.Key, "owner") {
				t.Errorf("the key %s has text of the session", c.Key)
			}
			rev := c.Rev
			for version, ok := range []bool{true, true, true, false} {
				value := bytes.Replace(c.Value, []byte("{"), []byte(`{"later":1,`), 1)
				value[0] = byte(version)
				if rev, err = r.Put(t.Context(), c.Key, value, rev); err != nil {
					t.Fatal(err)
				}
				s, err := sessions.Load(t.Context(), "id")
				if (err == nil) != ok || ok && s.Principal != "owner" {
					t.Errorf("format %d: %v, %v", version, s, err)
				}
			}
		}
	})
}
