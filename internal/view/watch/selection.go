package watch

import (
	"context"
	"io"
	"slices"
	"sort"
	"sync/atomic"

	"mcpwire/capture"
	"mcpwire/internal/trace"
	"mcpwire/internal/trace/filter"
)

// A Selection is the rows of the timeline for which a filter holds. Len, At, Index and Has are for the inside of [Hub.Read] and of [Feed.Next]'s use.
type Selection struct {
	hub    *Hub
	filter *filter.Filter // nil: all

	rows       []*trace.Row // in the order of the timeline, from first on
	first      int
	hits       map[uint64]filter.Hits // of the terms about payloads, by Seq
	cursor     uint64                 // Seq of the last row that was judged, until filled
	filled     bool
	cancel     func() // of the search; nil: there is none
	closed     bool
	searchDone atomic.Uint64 // of the search, in millionths
	searching  atomic.Bool   // it goes on
}

const fillRows = 2000 // that are judged while the lock is held

// Select returns the rows of the timeline for which a filter holds, kept up to date; nil is all. Terms about payloads are searched for in the background: until that is done, see
// [Selection.SearchProgress], rows may be missing, or too many where such a term is negated. Select must not be called inside Read. Close the Selection in the end.
func (h *Hub) Select(f *filter.Filter) *Selection {
	s := &Selection{hub: h, filter: f}
	s.searchDone.Store(searchUnits)
	if f == nil {
		s.filled = true
		return s
	}
	h.mu.Lock()
	h.selections[s] = struct{}{}
	var task *search
	if f.NeedsPayload() {
		s.hits = map[uint64]filter.Hits{}
		h.payloadSelections = append(h.payloadSelections[:len(h.payloadSelections):len(h.payloadSelections)], s)
		task = h.newSearchLocked(s)
	}
	h.mu.Unlock()
	for !s.fill() {
	}
	if task != nil {
		task.begin()
	}
	return s
}

// fill judges some of the rows that were there before the selection. It returns true when it is done.
func (s *Selection) fill() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	rows := s.hub.model.Rows()
	i := sort.Search(len(rows), func(i int) bool { return rows[i].Seq > s.cursor })
	for end := min(len(rows), i+fillRows); i < end; i++ {
		s.cursor = rows[i].Seq
		if s.filter.MatchScanned(rows[i], s.hits[rows[i].Seq]) {
			s.rows = append(s.rows, rows[i])
		}
	}
	s.filled = i == len(rows)
	return s.filled
}

// Len returns how many rows there are.
func (s *Selection) Len() int {
	if s.filter == nil {
		return len(s.hub.model.Rows())
	}
	return len(s.rows) - s.first
}

// At returns the row with an index, or nil if there is none.
func (s *Selection) At(i int) *trace.Row {
	if i < 0 || i >= s.Len() {
		return nil
	}
	return s.list()[i]
}

func (s *Selection) list() []*trace.Row {
	if s.filter == nil {
		return s.hub.model.Rows()
	}
	return s.rows[s.first:]
}

// Index returns the index of a row, or of the row of the timeline that it stands in; -1 if it is not selected.
func (s *Selection) Index(r *trace.Row) int {
	if r == nil {
		return -1
	}
	r = r.Root()
	list := s.list()
	i := position(list, r.Seq)
	if i < len(list) && list[i] == r {
		return i
	}
	return -1
}

// Has reports whether a row, or the row of the timeline that it stands in, is selected.
func (s *Selection) Has(r *trace.Row) bool { return s.Index(r) >= 0 }

// position returns the index of the row with a Seq, or where it would be.
func position(list []*trace.Row, seq uint64) int {
	if n := len(list); n == 0 || list[n-1].Seq < seq { // a new one, mostly
		return n
	}
	return sort.Search(len(list), func(i int) bool { return list[i].Seq >= seq })
}

// SearchProgress returns which part of the search in payloads is done, from 0 to 1, and whether it goes on. It may be called anywhere.
func (s *Selection) SearchProgress() (share float64, busy bool) {
	return float64(s.searchDone.Load()) / searchUnits, s.searching.Load()
}

// Close ends the selection, which then has no rows. It must not be called inside Read.
func (s *Selection) Close() {
	if s.filter == nil {
		return
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	delete(h.selections, s)
	var others []*Selection
	for _, o := range h.payloadSelections {
		if o != s {
			others = append(others, o)
		}
	}
	h.payloadSelections = others
	if s.cancel != nil {
		s.cancel()
	}
	s.rows, s.first, s.hits = nil, 0, nil
}

// reevaluateLocked adds or removes a row of the timeline. It reports whether that has changed the selection. h.mu is held.
func (s *Selection) reevaluateLocked(r *trace.Row) (changed bool) {
	if !s.filled && r.Seq > s.cursor || r.Evicted() { // fill comes to it
		return false
	}
	list := s.rows[s.first:]
	i := position(list, r.Seq)
	has := i < len(list) && list[i] == r
	is := s.filter.MatchScanned(r, s.hits[r.Seq])
	switch {
	case is && !has:
		s.rows = append(s.rows, nil)
		list = s.rows[s.first:]
		copy(list[i+1:], list[i:])
		list[i] = r
	case has && !is:
		s.removeAt(i)
	}
	return is != has
}

// remove forgets a row that has made room.
func (s *Selection) remove(r *trace.Row) {
	delete(s.hits, r.Seq)
	list := s.rows[s.first:]
	if i := position(list, r.Seq); i < len(list) && list[i] == r {
		s.removeAt(i)
	}
}

// removeAt takes out the row with an index.
func (s *Selection) removeAt(i int) {
	list := s.rows[s.first:]
	if i > 0 {
		copy(list[i:], list[i+1:])
		list[len(list)-1] = nil
		s.rows = s.rows[:len(s.rows)-1]
		return
	}
	list[0] = nil
	s.first++
	if s.first > len(s.rows)/2 && s.first > 1024 {
		n := copy(s.rows, s.rows[s.first:])
		clear(s.rows[n:])
		s.rows, s.first = s.rows[:n], 0
	}
}

// addHitsLocked notes that terms about payloads hold for a row of the timeline. h.mu is held.
func (s *Selection) addHitsLocked(root *trace.Row, hits filter.Hits) {
	if !root.Evicted() && s.hits != nil {
		s.hits[root.Seq] |= hits
	}
}

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
