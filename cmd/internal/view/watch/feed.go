package watch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/base/wait"
)

// ErrClosed is returned by [Feed.Next] of a closed Feed.
var ErrClosed = errors.New("watch: the feed is closed")

// A Batch has the changes since the previous batch.
type Batch struct {
	// Version is the version of the model after these changes. It is 0 until a reset is complete:
	// a Feed that resumes there starts from the beginning.
	Version uint64
	// Reset means that the receiver must drop everything that it has.
	Reset bool
	// Changed are the rows that were added or have changed, at all levels, each once, ordered by
	// Seq; in a reset, in the order of the timeline. They are valid until use returns.
	Changed []*trace.Row
	// Evicted has the Seq of evicted rows.
	Evicted []uint64
	// Sources means that the result of Hub.Sources or the progress of a search has changed.
	Sources bool
}

const (
	batchInterval = 33 * time.Millisecond // minimum between two batches
	maxBatch      = 2000                  // changes, without rows inside the last
)

// A Feed reports changes. Only Close may be called concurrently with other methods.
type Feed struct {
	hub *Hub
	// wake has a buffer of one element.
	wake   chan struct{}
	closed chan struct{}

	after uint64
	// reset requests a reset.
	reset bool
	// resetting means that a reset is in progress.
	resetting bool
	// cursor is the last row of a reset so far, or nil.
	cursor         *trace.Row
	sourcesVersion uint64
	last           time.Time
	seen           map[uint64]struct{}
}

// Subscribe returns a Feed of the changes after a version. Zero means from the beginning. The feed
// starts with a reset if the changes since that version are no longer known; its first batch then
// comes at once. The caller must close the feed.
func (h *Hub) Subscribe(after uint64) *Feed {
	f := &Feed{hub: h, wake: make(chan struct{}, 1), closed: make(chan struct{}), after: after, seen: map[uint64]struct{}{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	f.reset = after == 0
	h.feeds[f] = struct{}{}
	return f
}

// Close closes the feed: Next returns [ErrClosed]. It must not be called inside [Hub.Read] or the
// use function of Next.
func (f *Feed) Close() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if _, open := f.hub.feeds[f]; open {
		delete(f.hub.feeds, f)
		close(f.closed)
	}
}

// signalFeedsLocked wakes the feeds. The caller must hold h.mu.
func (h *Hub) signalFeedsLocked() {
	if h.only != nil && h.only.parent != nil {
		h.only.parent.noteProgress(false)
	}
	for f := range h.feeds {
		wait.Signal(f.wake)
	}
}

// signalFeeds is like signalFeedsLocked, but takes h.mu.
func (h *Hub) signalFeeds() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signalFeedsLocked()
}

// Next waits for changes and calls use with the model locked. The batch and its rows are valid
// until use returns. There are at most about 30 batches a second, except that the parts of a
// reset, or of too many changes for one batch, follow without delay. The error is that of ctx, or
// [ErrClosed].
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
	select {
	case <-f.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(batchInterval - time.Since(f.last)):
		return nil
	}
}

// deliver calls use if there are changes, and reports whether there were.
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

// fillChanges adds changes to b. more means that there are further ones.
func (f *Feed) fillChanges(b *Batch) (more bool) {
	l := &f.hub.changeLog
	if !f.resetting && (f.reset || !l.has(f.after)) {
		f.reset, f.resetting, f.cursor, f.after = false, true, nil, l.version
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

// fillReset adds the next rows of a reset.
func (f *Feed) fillReset(b *Batch) (more bool) {
	rows := f.hub.model.Rows()
	i := after(rows, f.cursor)
	for ; i < len(rows) && len(b.Changed) < maxBatch; i++ {
		for r := range rows[i].All() {
			b.Changed = append(b.Changed, r)
		}
		f.cursor = rows[i]
	}
	if more = i < len(rows); !more {
		f.resetting = false
		b.Version = f.after
	}
	return more
}
