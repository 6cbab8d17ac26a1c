package watch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"mcpwire/internal/trace"
)

// ErrClosed is returned by the Next of a Feed that was closed.
var ErrClosed = errors.New("watch: the feed is closed")

// A Batch is what has changed since the one before.
type Batch struct {
	// Version is that of the model after these changes. It is 0 as long as more of a reset is to come: who resumes there begins anew.
	Version uint64
	// Reset says to forget all that came before.
	Reset bool
	// Changed are the rows that were added or have changed since, each once, also those inside others, a row before those inside it. They may be used until use returns.
	Changed []*trace.Row
	// Evicted has the Seq of rows that made room.
	Evicted []uint64
	// Sources says that Hub.Sources says something new, or that a search has got on.
	Sources bool
}

const (
	batchInterval = 33 * time.Millisecond // between two batches
	maxBatch      = 2000                  // changes in a batch, but for what is inside the last row
)

// A Feed tells what changes. It is for one goroutine at a time, but for Close.
type Feed struct {
	hub    *Hub
	wake   chan struct{} // one element
	closed chan struct{}

	after          uint64
	reset          bool   // begin anew
	resetting      bool   // in the middle of that
	cursor         uint64 // Seq of the last row that a reset has had
	sourcesVersion uint64
	last           time.Time // of the last batch
	seen           map[uint64]struct{}
}

// Subscribe returns a Feed of what changes after a version that was seen before; 0 is from the beginning. If too much has changed since, or the version never was, it begins anew. The first batch of one that
// begins anew comes at once. Close it in the end.
func (h *Hub) Subscribe(after uint64) *Feed {
	f := &Feed{hub: h, wake: make(chan struct{}, 1), closed: make(chan struct{}), after: after, seen: map[uint64]struct{}{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	f.reset = after == 0
	h.feeds[f] = struct{}{}
	return f
}

// Close ends the feed: Next returns ErrClosed. It must not be called inside Read or Next's use.
func (f *Feed) Close() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if _, open := f.hub.feeds[f]; open {
		delete(f.hub.feeds, f)
		close(f.closed)
	}
}

// signalFeedsLocked tells the feeds that there is something new. h.mu is held.
func (h *Hub) signalFeedsLocked() {
	for f := range h.feeds {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// signalFeeds is signalFeedsLocked for those who do not hold h.mu.
func (h *Hub) signalFeeds() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signalFeedsLocked()
}

// Next waits for changes, and calls use with the model locked; the batch and its rows are good until use returns. There are no more than about 30 batches a second, but those of a reset, and of changes that are too
// many for one, follow one another at once. The error is that of ctx, or ErrClosed.
func (f *Feed) Next(ctx context.Context, use func(b *Batch)) error {
	for {
		if err := f.waitInterval(ctx); err != nil {
			return err
		}
		if f.deliver(use) {
			return nil
		}
		select {
		case <-f.wake:
		case <-f.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitInterval waits until the next batch may come.
func (f *Feed) waitInterval(ctx context.Context) error {
	wait := time.NewTimer(max(0, batchInterval-time.Since(f.last)))
	defer wait.Stop()
	select {
	case <-f.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return nil
	}
}

// deliver calls use if there is something new.
func (f *Feed) deliver(use func(b *Batch)) bool {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	b := &Batch{}
	more := f.fillChanges(b)
	f.hub.sourcesMu.Lock()
	if now := f.hub.sourcesVersion; now != f.sourcesVersion {
		f.sourcesVersion, b.Sources = now, true
	}
	f.hub.sourcesMu.Unlock()
	if !b.Reset && !b.Sources && len(b.Changed) == 0 && len(b.Evicted) == 0 && !f.resetting {
		return false
	}
	if f.last = time.Now(); more {
		f.last = time.Time{}
	}
	use(b)
	return true
}

// fillChanges fills in what has changed. more tells that this is not all of it.
func (f *Feed) fillChanges(b *Batch) (more bool) {
	l := &f.hub.changeLog
	if !f.resetting && (f.reset || !l.has(f.after)) {
		f.reset, f.resetting, f.cursor, f.after = false, true, 0, l.version
		b.Reset = true
	}
	if f.resetting {
		return f.fillReset(b)
	}
	end := min(l.version, f.after+maxBatch)
	for v := f.after + 1; v <= end; v++ {
		seq := l.at(v)
		if _, twice := f.seen[seq]; twice {
			continue
		}
		f.seen[seq] = struct{}{}
		if r := l.rows[seq]; r != nil {
			b.Changed = append(b.Changed, r)
		} else {
			b.Evicted = append(b.Evicted, seq)
		}
	}
	clear(f.seen)
	slices.SortFunc(b.Changed, func(x, y *trace.Row) int { return cmp.Compare(x.Seq, y.Seq) })
	f.after, b.Version = end, end
	return end < l.version
}

// fillReset fills in the next of all rows.
func (f *Feed) fillReset(b *Batch) (more bool) {
	rows := f.hub.model.Rows()
	i := sort.Search(len(rows), func(i int) bool { return rows[i].Seq > f.cursor })
	for ; i < len(rows) && len(b.Changed) < maxBatch; i++ {
		for r := range rows[i].All() {
			b.Changed = append(b.Changed, r)
		}
		f.cursor = rows[i].Seq
	}
	if more = i < len(rows); !more {
		f.resetting = false
		b.Version = f.after
	}
	return more
}
