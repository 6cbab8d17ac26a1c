package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sort"

	"mcpwire/capture"
)

// ErrGone is wrapped by the error for an event that cannot be read again: its file is missing or
// was replaced, or the number is unknown.
var ErrGone = errors.New("watch: the event is no longer available")

// Event reads an event with its payload again. The caller owns the result. The error is that of
// ctx, or wraps [ErrGone]. Event reads the file, so avoid calling it inside [Hub.Read].
func (h *Hub) Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error) {
	if e := h.ring.get(captureID, n); e != nil {
		return e.Clone(), nil
	}
	h.sourcesMu.Lock()
	seg := h.segments[captureID]
	var from int64
	unsorted := false
	if seg != nil {
		from, unsorted = seg.index.offsetBefore(n), seg.index.unordered
	}
	h.sourcesMu.Unlock()
	if seg == nil || n == 0 || seg.source.path == "" {
		return nil, fmt.Errorf("event %d of %s: %w", n, captureID, ErrGone)
	}
	f, err := seg.source.reopen()
	if err != nil {
		return nil, fmt.Errorf("event %d of %s: %w", n, captureID, err)
	}
	defer f.Close()
	src := io.Reader(f)
	if !seg.source.compressed {
		src = io.NewSectionReader(f, from, math.MaxInt64-from)
	}
	e, err := seg.find(ctx, src, n, unsorted)
	if err != nil {
		return nil, fmt.Errorf("event %d of %s: %w", n, captureID, err)
	}
	return e, nil
}

func (sg *segment) find(ctx context.Context, src io.Reader, n uint64, unsorted bool) (*capture.Event, error) {
	r := capture.NewReader(src, nil)
	defer r.Close()
	// A compressed file is read from its beginning.
	inside := !sg.source.compressed
	for e, err := range r.Events() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrGone, err)
		}
		if e.Head != nil {
			if inside && e.Head.ID != sg.id {
				break
			}
			inside = e.Head.ID == sg.id
		}
		if sg.head == nil {
			inside = true
		}
		if !inside || e.N != n {
			if inside && e.N > n && !unsorted {
				break
			}
			continue
		}
		e = e.Clone()
		e.Capture = sg.id
		if sg.head != nil {
			e.At = sg.head.At.Add(e.T)
		}
		return e, nil
	}
	return nil, ErrGone
}

// reopen opens the file of a source again. The error wraps ErrGone if the file is missing or was
// replaced.
func (s *source) reopen() (*os.File, error) {
	f, info, err := openRegular(s.path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	s.hub.sourcesMu.Lock()
	was := s.file
	s.hub.sourcesMu.Unlock()
	if was != nil && !os.SameFile(was, info) {
		f.Close()
		return nil, fmt.Errorf("%w: the file was replaced", ErrGone)
	}
	return f, nil
}

const (
	maxEntries  = 1024     // of an index
	firstStride = 64 << 10 // bytes between two entries; doubles when the index is full
)

// An index maps event numbers of a capture to offsets in its file.
type index struct {
	entries []entry
	stride  int64
	events  int
	// unordered means that numbers are not in order. No recorder writes such a file.
	unordered bool
	last      uint64
	start     int64
}

type entry struct {
	n   uint64
	off int64
}

func (ix *index) add(n uint64, off int64) {
	if ix.events == 0 {
		ix.stride, ix.start = firstStride, off
	}
	ix.events++
	if n == 0 {
		return // the head or a synthetic event
	}
	if n < ix.last {
		ix.unordered = true
	}
	ix.last = n
	if k := len(ix.entries); k > 0 && off-ix.entries[k-1].off < ix.stride {
		return
	}
	if len(ix.entries) >= maxEntries {
		for i := range maxEntries / 2 {
			ix.entries[i] = ix.entries[2*i]
		}
		ix.entries = ix.entries[:maxEntries/2]
		ix.stride *= 2
	}
	ix.entries = append(ix.entries, entry{n, off})
}

// offsetBefore returns an offset at or before the event n.
func (ix *index) offsetBefore(n uint64) int64 {
	i := sort.Search(len(ix.entries), func(i int) bool { return ix.entries[i].n > n })
	if i == 0 || ix.unordered {
		return ix.start
	}
	return ix.entries[i-1].off
}
