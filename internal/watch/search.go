package watch

import (
	"context"
	"io"
	"slices"

	"mcpwire/capture"
	"mcpwire/internal/filter"
)

const (
	searchUnits    = 1_000_000 // of a search
	maxPendingHits = 256       // that are noted at once
	reportBytes    = 1 << 20   // bytes between two looks at how far the search is
)

// A search looks for what a selection's filter looks for in payloads of events that were there before the selection.
type search struct {
	selection *Selection
	parts     []searchPart
	total     int64
	done      int64
	reported  int64
	hits      []eventHits
}

// A part is what is searched of a source.
type searchPart struct {
	source *source
	path   string
	id     string // of a tap without a file
	events int    // that had been taken
	last   uint64 // number of the last
	size   int64
}

type eventHits struct {
	key  eventKey
	hits filter.Hits
}

// newSearchLocked returns the search for a new selection; nil if there is nothing to search. h.mu is held: what is taken from here on is scanned by whoever takes it.
func (h *Hub) newSearchLocked(s *Selection) *search {
	x := &search{selection: s}
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	for _, src := range slices.Backward(h.sources) { // what is new is looked at more
		if src.events == 0 {
			continue
		}
		x.parts = append(x.parts, searchPart{src, src.path, src.info.ID, src.events, src.last, max(1, src.info.Read)})
		x.total += max(1, src.info.Read)
	}
	if len(x.parts) == 0 {
		return nil
	}
	s.searchDone.Store(0)
	s.searching.Store(true)
	return x
}

// begin searches in the background.
func (se *search) begin() {
	started := se.selection.hub.start(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		h := se.selection.hub
		h.mu.Lock()
		closed := se.selection.closed
		se.selection.cancel = cancel
		h.mu.Unlock()
		if !closed {
			se.run(ctx)
		}
		se.end()
	})
	if !started {
		se.end()
	}
}

func (se *search) end() {
	se.selection.searchDone.Store(searchUnits)
	se.selection.searching.Store(false)
	se.notify()
}

// notify tells the feeds that the search has got on.
func (se *search) notify() {
	h := se.selection.hub
	h.sourcesMu.Lock()
	h.sourcesVersion++
	h.sourcesMu.Unlock()
	h.signalFeeds()
}

func (se *search) run(ctx context.Context) {
	for _, p := range se.parts {
		before := se.done
		if p.path == "" {
			for _, e := range se.selection.hub.ring.all(p.id, p.last) {
				se.scan(ctx, e)
			}
		} else {
			se.searchFile(ctx, p)
		}
		se.flushHits()
		if ctx.Err() != nil {
			return
		}
		se.done = before + p.size
		se.addProgress(0)
	}
}

// searchFile searches the events that had been taken of a file.
func (se *search) searchFile(ctx context.Context, p searchPart) {
	f, err := p.source.reopen()
	if err != nil {
		return // what is gone cannot be searched
	}
	defer f.Close()
	r := capture.NewReader(&searchReader{f, se}, nil)
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
		se.scan(ctx, e)
	}
}

// scan looks at an event.
func (se *search) scan(ctx context.Context, e *capture.Event) {
	if len(e.Data) == 0 || ctx.Err() != nil {
		return
	}
	if h := se.selection.filter.Scan(ctx, e.Data); h != 0 {
		se.hits = append(se.hits, eventHits{eventKey{e.Capture, e.N}, h})
		if len(se.hits) >= maxPendingHits {
			se.flushHits()
		}
	}
}

// flushHits notes what was found on the rows.
func (se *search) flushHits() {
	if len(se.hits) == 0 {
		return
	}
	sel, h := se.selection, se.selection.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if sel.closed {
		return
	}
	for _, hit := range se.hits {
		if r := h.model.Find(hit.key.capture, hit.key.n); r != nil {
			se.addHitsLocked(r.Root().Seq, hit.hits)
		}
		for _, seq := range h.multiRow[hit.key] {
			se.addHitsLocked(seq, hit.hits)
		}
	}
	se.hits = se.hits[:0]
	h.signalFeedsLocked()
}

// addHitsLocked notes hits on a row of the timeline, which feeds then tell of if it has come or gone.
func (se *search) addHitsLocked(seq uint64, hits filter.Hits) {
	sel, h := se.selection, se.selection.hub
	if r := h.changeLog.rows[seq]; r != nil {
		sel.addHitsLocked(r, hits)
		if sel.reevaluateLocked(r) {
			h.changeLog.add(seq)
		}
	}
}

// addProgress counts what was read.
func (se *search) addProgress(n int64) {
	se.done += n
	se.selection.searchDone.Store(uint64(min(searchUnits-1, searchUnits*float64(se.done)/float64(se.total))))
	if se.done-se.reported >= reportBytes {
		se.reported = se.done
		se.notify()
	}
}

// A meter counts what a search reads.
type searchReader struct {
	r      io.Reader
	search *search
}

func (sr *searchReader) Read(p []byte) (int, error) {
	n, err := sr.r.Read(p)
	sr.search.addProgress(int64(n))
	return n, err
}
