package watch

import (
	"context"
	"slices"
	"sort"
	"sync/atomic"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
)

// A Selection has the rows of the timeline that match a filter. Call Len, At, Index and Has only
// inside [Hub.Read] or the use function of [Feed.Next].
type Selection struct {
	hub *Hub
	// parent is the hub whose files hub reads again. It is nil if hub reads no files again.
	parent *Hub
	// filter is nil for all rows.
	filter *filter.Filter

	// rows are in the order of the timeline, from index first on.
	rows  []*trace.Row
	first int
	// evicted counts the rows that were removed because the model evicted them.
	evicted uint64
	// hits are the payload hits of rows, by Seq.
	hits map[uint64]filter.Hits
	// cursor is the last row evaluated by fill, or nil.
	cursor *trace.Row
	filled bool
	// cancel stops the search. It is nil without one.
	cancel func()
	closed bool
	// searchDone is the progress of the search, in millionths.
	searchDone atomic.Uint64
	// searching means that the search is running.
	searching atomic.Bool
}

const fillRows = 2000 // rows evaluated per lock

// Select returns the rows of the timeline that match a filter and keeps them up to date. A nil
// filter matches all. Payload terms are searched for in the background: until the search is done
// (see [Selection.SearchProgress]), rows may be missing, or be too many if such a term is negated.
// Select must not be called inside [Hub.Read]. The caller must close the Selection.
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

// SelectWhole is like [Hub.Select], but if rows of the timeline were evicted, it reads the files
// again and keeps only the rows that match. These rows belong to another hub, which [Selection.Hub]
// returns; closing the Selection stops it. If there are events that are not in a file, the
// Selection has only rows that were not evicted.
func (h *Hub) SelectWhole(f *filter.Filter) *Selection {
	h.mu.Lock()
	evicted, first := h.model.EvictedRows(), uint64(0)
	if evicted > 0 {
		h.wholes = (h.wholes + 1) % maxWholes
		first = h.wholes * wholeSeqs
	}
	h.mu.Unlock()
	if f == nil || evicted == 0 {
		return h.Select(f)
	}
	whole := newHub(&Options{NoRules: h.opts.NoRules, MaxRows: h.opts.MaxRows}, f, first)
	h.sourcesMu.Lock()
	for _, s := range h.sources {
		if s.path == "" && s.info.ID != "" {
			h.sourcesMu.Unlock()
			return h.Select(f)
		}
		if s.info.ID != "" {
			whole.opts.Files = append(whole.opts.Files, s.path)
			whole.maxUnpacked = max(whole.maxUnpacked, s.maxUnpacked)
		}
	}
	h.sourcesMu.Unlock()
	s := whole.only
	s.parent = h
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.searching.Store(true)
	started := h.start(func(running context.Context) {
		stop := context.AfterFunc(running, cancel)
		defer stop()
		whole.Run(ctx) // the only error is that it was called before
	})
	if !started {
		cancel()
		return h.Select(f)
	}
	return s
}

// Numbers of the rows that SelectWhole reads. JavaScript represents them exactly.
const (
	wholeSeqs = 1 << 32 // rows of one selection
	maxWholes = 1 << 20 // selections until numbers repeat
)

// Hub returns the hub with the rows of the selection. After [Hub.SelectWhole] it is another hub.
// Use its [Hub.Read].
func (s *Selection) Hub() *Hub { return s.hub }

// Whole reports whether the selection has all rows that match, also evicted ones.
func (s *Selection) Whole() bool { return s.parent != nil }

// Matches returns the number of rows that match, including those that the selection had to evict.
func (s *Selection) Matches() uint64 { return uint64(s.Len()) + s.evicted }

// fill evaluates some of the rows that existed before the selection. It returns true when it is
// done.
func (s *Selection) fill() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	rows := s.hub.model.Rows()
	i := after(rows, s.cursor)
	for end := min(len(rows), i+fillRows); i < end; i++ {
		s.cursor = rows[i]
		if s.filter.MatchScanned(rows[i], s.hits[rows[i].Seq]) {
			s.rows = append(s.rows, rows[i])
		}
	}
	s.filled = i == len(rows)
	return s.filled
}

// Len returns the number of rows.
func (s *Selection) Len() int {
	if s.filter == nil {
		return len(s.hub.model.Rows())
	}
	return len(s.rows) - s.first
}

// At returns the row at an index, or nil if the index is out of range.
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

// Index returns the index of r's root row, or -1 if that is not selected. r may be nil.
func (s *Selection) Index(r *trace.Row) int {
	if r == nil {
		return -1
	}
	i, has := position(s.list(), r.Root())
	if !has {
		return -1
	}
	return i
}

// Has reports whether r's root row is selected.
func (s *Selection) Has(r *trace.Row) bool { return s.Index(r) >= 0 }

// position returns the index at which a row is or would be, and whether it is there.
func position(list []*trace.Row, r *trace.Row) (i int, has bool) {
	if n := len(list); n == 0 || list[n-1].Before(r) { // usually a new row
		return n, false
	}
	i = sort.Search(len(list), func(i int) bool { return !list[i].Before(r) })
	return i, i < len(list) && list[i] == r
}

// after returns the index of the first row after r, which may be nil and need not be in the list.
func after(list []*trace.Row, r *trace.Row) int {
	return sort.Search(len(list), func(i int) bool { return r == nil || r.Before(list[i]) })
}

// SearchProgress returns the progress of the payload search, from 0 to 1, and whether it is
// running. It may be called anywhere.
func (s *Selection) SearchProgress() (share float64, busy bool) {
	if s.parent != nil {
		var read, size int64
		for _, x := range s.hub.Sources() {
			read, size = read+x.Read, size+x.Size
		}
		return float64(read) / float64(max(1, size)), s.searching.Load()
	}
	return float64(s.searchDone.Load()) / searchUnits, s.searching.Load()
}

// Close closes the selection and removes its rows. It must not be called inside [Hub.Read].
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
	h.payloadSelections = slices.DeleteFunc(slices.Clone(h.payloadSelections), func(o *Selection) bool { return o == s })
	if s.cancel != nil {
		s.cancel()
	}
	s.rows, s.first, s.hits = nil, 0, nil
}

// reevaluateLocked adds or removes a row of the timeline, and reports whether the selection
// changed. The caller must hold h.mu.
func (s *Selection) reevaluateLocked(r *trace.Row) (changed bool) {
	if !s.filled && (s.cursor == nil || s.cursor.Before(r)) || r.Evicted() {
		return false // fill will evaluate it
	}
	i, has := position(s.rows[s.first:], r)
	is := s.filter.MatchScanned(r, s.hits[r.Seq])
	switch {
	case is && !has:
		s.rows = slices.Insert(s.rows, s.first+i, r)
	case has && !is:
		s.removeAt(i)
	}
	return is != has
}

// remove removes a row that is no longer in the timeline, and reports whether it was selected.
func (s *Selection) remove(r *trace.Row) bool {
	delete(s.hits, r.Seq)
	i, has := position(s.rows[s.first:], r)
	if has {
		s.removeAt(i)
	}
	return has
}

func (s *Selection) removeAt(i int) {
	if i > 0 {
		s.rows = slices.Delete(s.rows, s.first+i, s.first+i+1)
		return
	}
	s.rows[s.first] = nil
	s.first++
	if s.first > len(s.rows)/2 && s.first > 1024 {
		n := copy(s.rows, s.rows[s.first:])
		clear(s.rows[n:])
		s.rows, s.first = s.rows[:n], 0
	}
}

// addHitsLocked adds payload hits to a row of the timeline. The caller must hold h.mu.
func (s *Selection) addHitsLocked(root *trace.Row, hits filter.Hits) {
	if !root.Evicted() && s.hits != nil {
		s.hits[root.Seq] |= hits
	}
}

const (
	searchUnits    = 1_000_000 // units of searchDone
	maxPendingHits = 256       // hits flushed at a time
	reportBytes    = 1 << 20   // bytes between progress reports
)

// A search scans the payloads of events that came before the selection.
type search struct {
	selection *Selection
	parts     []searchPart
	total     int64
	done      int64
	reported  int64
	hits      []eventHits
}

// A searchPart is the part of a source that is searched.
type searchPart struct {
	source *source
	path   string
	// id is the id of a tap's capture without a file.
	id string
	// events is the number of events ingested before.
	events int
	// last is the number of the last event.
	last uint64
	size int64
}

type eventHits struct {
	key  eventKey
	hits filter.Hits
}

// newSearchLocked returns the search for a new selection, or nil if there is nothing to search.
// The caller must hold h.mu: later events are scanned as they are ingested.
func (h *Hub) newSearchLocked(s *Selection) *search {
	x := &search{selection: s}
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	for _, src := range slices.Backward(h.sources) { // newest sources first
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
	se.selection.hub.noteProgress(true)
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

// searchFile searches the events of a file that were ingested before the selection.
func (se *search) searchFile(ctx context.Context, p searchPart) {
	f, err := p.source.reopen()
	if err != nil {
		return // the file is gone
	}
	defer f.Close()
	r := capture.NewReader(&countingReader{f, se.addProgress}, nil)
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

func (se *search) scan(ctx context.Context, e *capture.Event) {
	if !searchable(e) || ctx.Err() != nil {
		return
	}
	if h := trace.Scan(ctx, se.selection.filter, e, nil); h != 0 {
		se.hits = append(se.hits, eventHits{eventKey{e.Capture, e.N}, h})
		if len(se.hits) >= maxPendingHits {
			se.flushHits()
		}
	}
}

// flushHits applies the hits to the rows.
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

// addHitsLocked applies hits to a row, and records a change if that adds or removes it. The caller
// must hold h.mu.
func (se *search) addHitsLocked(seq uint64, hits filter.Hits) {
	sel, h := se.selection, se.selection.hub
	if r := h.changeLog.rows[seq]; r != nil {
		sel.addHitsLocked(r, hits)
		if sel.reevaluateLocked(r) {
			h.changeLog.add(seq)
		}
	}
}

// addProgress counts bytes that were read.
func (se *search) addProgress(n int64) {
	se.done += n
	se.selection.searchDone.Store(uint64(min(searchUnits-1, searchUnits*float64(se.done)/float64(se.total))))
	if se.done-se.reported >= reportBytes {
		se.reported = se.done
		se.selection.hub.noteProgress(true)
	}
}
