package watch

import (
	"context"
	"io"
	"slices"

	"mcpwire/capture"
	"mcpwire/internal/filter"
)

const (
	whole      = 1_000_000 // of a search
	searchHits = 256       // that are noted at once
	searchLook = 1 << 20   // bytes between two looks at how far the search is
)

// A search looks for what a selection's filter looks for in payloads of events that were there before the selection.
type search struct {
	s     *Selection
	parts []part
	total int64
	done  int64
	told  int64
	hits  []hit
}

// A part is what is searched of a source.
type part struct {
	source *source
	path   string
	id     string // of a tap without a file
	events int    // that had been taken
	last   uint64 // number of the last
	size   int64
}

type hit struct {
	key  eventKey
	hits filter.Hits
}

// newSearch returns the search for a new selection; nil if there is nothing to search. h.mu is held: what is taken from here on is scanned by whoever takes it.
func (h *Hub) newSearch(s *Selection) *search {
	x := &search{s: s}
	h.smu.Lock()
	defer h.smu.Unlock()
	for _, src := range slices.Backward(h.sources) { // what is new is looked at more
		if src.events == 0 {
			continue
		}
		x.parts = append(x.parts, part{src, src.path, src.info.ID, src.events, src.last, max(1, src.info.Read)})
		x.total += max(1, src.info.Read)
	}
	if len(x.parts) == 0 {
		return nil
	}
	s.share.Store(0)
	s.pending.Store(true)
	return x
}

// begin searches in the background.
func (x *search) begin() {
	started := x.s.h.start(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		h := x.s.h
		h.mu.Lock()
		closed := x.s.closed
		x.s.cancel = cancel
		h.mu.Unlock()
		if !closed {
			x.run(ctx)
		}
		x.end()
	})
	if !started {
		x.end()
	}
}

func (x *search) end() {
	x.s.share.Store(whole)
	x.s.pending.Store(false)
	x.tell()
}

// tell tells the feeds that the search has got on.
func (x *search) tell() {
	h := x.s.h
	h.smu.Lock()
	h.sourcesNow++
	h.smu.Unlock()
	h.wakeFeeds()
}

func (x *search) run(ctx context.Context) {
	for _, p := range x.parts {
		before := x.done
		if p.path == "" {
			for _, e := range x.s.h.ring.all(p.id, p.last) {
				x.look(ctx, e)
			}
		} else {
			x.file(ctx, p)
		}
		x.note()
		if ctx.Err() != nil {
			return
		}
		x.done = before + p.size
		x.got(0)
	}
}

// file searches the events that had been taken of a file.
func (x *search) file(ctx context.Context, p part) {
	f, err := p.source.again()
	if err != nil {
		return // what is gone cannot be searched
	}
	defer f.Close()
	r := capture.NewReader(&meter{f, x}, nil)
	defer r.Close()
	n, id := 0, ""
	for e, err := range r.Events() {
		if err != nil || ctx.Err() != nil || n == p.events {
			return
		}
		n++
		if id = e.Capture; id == "" {
			id = p.id
		}
		e.Capture = id
		x.look(ctx, e)
	}
}

// look looks at an event.
func (x *search) look(ctx context.Context, e *capture.Event) {
	if len(e.Data) == 0 || ctx.Err() != nil {
		return
	}
	if h := x.s.filter.Scan(ctx, e.Data); h != 0 {
		x.hits = append(x.hits, hit{eventKey{e.Capture, e.N}, h})
		if len(x.hits) >= searchHits {
			x.note()
		}
	}
}

// note notes what was found on the rows.
func (x *search) note() {
	if len(x.hits) == 0 {
		return
	}
	s, h := x.s, x.s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	for _, hit := range x.hits {
		if r := h.model.Find(hit.key.capture, hit.key.n); r != nil {
			x.noteOn(r.Root().Seq, hit.hits)
		}
		for _, seq := range h.several[hit.key] {
			x.noteOn(seq, hit.hits)
		}
	}
	x.hits = x.hits[:0]
	h.signalFeeds()
}

// noteOn notes hits on a row of the timeline, which feeds then tell of if it has come or gone.
func (x *search) noteOn(seq uint64, hits filter.Hits) {
	s, h := x.s, x.s.h
	if r := h.log.rows[seq]; r != nil {
		s.hit(r, hits)
		if s.judge(r) {
			h.log.add(seq)
		}
	}
}

// got counts what was read.
func (x *search) got(n int64) {
	x.done += n
	x.s.share.Store(uint64(min(whole-1, whole*float64(x.done)/float64(x.total))))
	if x.done-x.told >= searchLook {
		x.told = x.done
		x.tell()
	}
}

// A meter counts what a search reads.
type meter struct {
	r io.Reader
	x *search
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.x.got(int64(n))
	return n, err
}
