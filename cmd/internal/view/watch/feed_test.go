package watch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/watch"
)

// A replica has the rows that a reader of a feed has received.
type replica struct {
	rows    map[uint64]string
	version uint64
	resets  int
}

func (rp *replica) apply(b *watch.Batch) {
	if b.Reset {
		rp.rows = map[uint64]string{}
		rp.resets++
	}
	for _, seq := range b.Evicted {
		delete(rp.rows, seq)
	}
	for _, r := range b.Changed {
		rp.rows[r.Seq] = describe(r)
	}
	rp.version = b.Version
}

// all returns the rows that a replica should have.
func all(m *trace.Model) map[uint64]string {
	rows := map[uint64]string{}
	for _, root := range m.Rows() {
		for r := range root.All() {
			rows[r.Seq] = describe(r)
		}
	}
	return rows
}

// follow reads a feed until the replica equals the model and the condition is true.
func (rp *replica) follow(t *testing.T, f *watch.Feed, h *watch.Hub, holds func(m *trace.Model) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for {
		var want map[uint64]string
		ok := false
		h.Read(func(model *trace.Model) {
			if ok = holds(model); ok {
				want = all(model)
			}
		})
		if ok && maps.Equal(want, rp.rows) {
			return
		}
		if err := f.Next(ctx, rp.apply); err != nil {
			t.Fatalf("%v; the feed (-model +feed):\n%s", err, cmp.Diff(want, rp.rows))
		}
	}
}

// TestFeed checks that a feed's reader has the model's rows, also when rows are evicted, and after
// it reconnects.
func TestFeed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "live")
	p := startTap(t, dir, "", nil)
	h := running(t, &watch.Options{SocketDir: dir, MaxRows: 300, NoRules: true})
	f := h.Subscribe(0)
	defer f.Close()
	var m replica
	for i := range 200 {
		p.call(i)
	}
	last := func(i int) func(*trace.Model) bool {
		return func(m *trace.Model) bool {
			rows := m.Rows()
			return len(rows) > 0 && rows[len(rows)-1].ID == fmt.Sprint(i) && rows[len(rows)-1].Complete()
		}
	}
	m.follow(t, f, h, last(199))
	if m.resets != 1 {
		t.Errorf("%d resets, want that at the beginning", m.resets)
	}
	f.Close()
	if err := f.Next(t.Context(), m.apply); !errors.Is(err, watch.ErrClosed) {
		t.Errorf("a closed feed: %v", err)
	}

	for i := range 400 { // evicts the oldest rows
		p.call(200 + i)
	}
	again := h.Subscribe(m.version)
	defer again.Close()
	m.follow(t, again, h, last(599))
	if m.resets != 1 {
		t.Errorf("%d resets, want none after few missed changes", m.resets)
	}
	if len(m.rows) != 300 {
		t.Errorf("%d rows", len(m.rows))
	}

	strange := h.Subscribe(1 << 60)
	defer strange.Close()
	m.follow(t, strange, h, last(599))
	if err := strange.Next(t.Context(), m.apply); err != nil && m.resets != 2 {
		t.Errorf("%d resets, error %v: an unknown version must cause a reset", m.resets, err)
	}
}

// TestFeedChildren checks that the feed also reports evicted rows inside another row.
func TestFeedChildren(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "live")
	p := startTap(t, dir, "", nil)
	h := running(t, &watch.Options{SocketDir: dir, NoRules: true})
	f := h.Subscribe(0)
	defer f.Close()
	p.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer,
		Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":1}}}`)})
	const n = 2 * trace.DefaultMaxChildren
	for i := range n {
		p.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient,
			Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, i)})
	}
	var m replica
	m.follow(t, f, h, func(m *trace.Model) bool {
		rows := m.Rows()
		return len(rows) > 0 && rows[len(rows)-1].EvictedChildren == n-trace.DefaultMaxChildren
	})
	if len(m.rows) != 1+trace.DefaultMaxChildren {
		t.Errorf("%d rows", len(m.rows))
	}
}

// TestFeedLarge shows that many rows come in batches of limited size, each row once.
func TestFeedLarge(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 9000, tail())
	h := running(t, &watch.Options{Files: []string{path}, NoRules: true})
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	f := h.Subscribe(0)
	defer f.Close()
	var got []uint64
	for version := uint64(0); version == 0; {
		err := f.Next(t.Context(), func(b *watch.Batch) {
			if len(b.Changed) > 2000 {
				t.Errorf("a batch of %d", len(b.Changed))
			}
			for _, r := range b.Changed {
				got = append(got, r.N)
			}
			version = b.Version
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 9000 || !slices.IsSorted(got) || len(slices.Compact(got)) != 9000 {
		t.Errorf("%d rows", len(got))
	}
}

func TestFeedEndsWithContext(t *testing.T) {
	f := watch.New(nil).Subscribe(0)
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	if err := f.Next(ctx, func(b *watch.Batch) {
		if !b.Reset {
			t.Error("the first batch is no reset")
		}
	}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := f.Next(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
