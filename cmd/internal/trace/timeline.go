package trace

import (
	"slices"
	"sort"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/filter"
)

const maxUndecided = 10_000 // rows that follow a row before Options.Keep decides about it

// A timeline has the rows of a [Model] within its limits, and the changes since begin.
type timeline struct {
	opts *Options
	// rows is the timeline, oldest first.
	rows []*Row
	// first is the index in rows of the oldest row.
	first int
	// undecided is the index in rows of the first row that Options.Keep has not decided about.
	undecided int
	// lastPlace is the highest Place so far.
	lastPlace int64
	// count is the number of rows at all levels.
	count int
	// seq is the number of the last row.
	seq uint64
	// evicted counts the evicted rows of the timeline, and past their properties.
	evicted uint64
	past    facetCounts

	changes []Change
	// hits is the result of Options.Scan for the current event.
	hits filter.Hits
}

// begin forgets the changes.
func (t *timeline) begin() { t.changes, t.hits = t.changes[:0], 0 }

// live returns the rows that are not evicted.
func (t *timeline) live() []*Row { return t.rows[t.first:] }

// newRow returns a row that begins with e.
func (t *timeline) newRow(kind Kind, s *Session, e *capture.Event) *Row {
	t.seq++
	return &Row{Seq: t.seq, Kind: kind, Capture: s.Capture, Session: s, N: e.N, T: e.T, At: e.At, Dir: e.Dir}
}

// add adds r to the timeline, or inside parent if that is not nil.
func (t *timeline) add(r, parent *Row) {
	if parent != nil && parent.evicted {
		parent = nil
	}
	for parent != nil && parent.depth() >= maxDepth {
		parent = parent.Parent
	}
	t.count++
	r.Session.Rows++
	r.addEvent(r.N)
	if parent != nil {
		r.Parent = parent
		parent.Children = append(parent.Children, r)
		t.addHits(r)
		t.changes = append(t.changes, Change{Added, r})
		if len(parent.Children) > t.opts.MaxChildren {
			oldest := parent.Children[0]
			t.unlink(oldest)
			parent.Children = slices.Delete(parent.Children, 0, 1)
			parent.EvictedChildren++
			t.changes = append(t.changes, Change{ChildEvicted, oldest})
		}
		return
	}
	t.addHits(r)
	t.insert(r)
	t.changes = append(t.changes, Change{Added, r})
}

// maxLate is how late a row may come and still be inserted by its time. Later ones belong to a
// capture that was opened afterwards.
const maxLate = 10 * time.Second

// insert adds a row to the timeline by its time, because the events of several captures arrive in
// another order.
func (t *timeline) insert(r *Row) {
	place, c := r.At.UnixNano(), r.Capture
	if place < t.lastPlace-int64(maxLate) {
		place = t.lastPlace
	}
	i, from := len(t.rows), max(t.first, t.undecided)
	if place = max(place, c.lastPlace); from > t.first { // not among the rows that are decided
		place = max(place, t.rows[from-1].Place)
	}
	r.Place, c.lastPlace, t.lastPlace = place, place, max(place, t.lastPlace)
	for i > from && t.rows[i-1].Place > place {
		i--
	}
	t.rows = slices.Insert(t.rows, i, r)
}

// find returns the row with a number, also inside another row, or nil.
func (t *timeline) find(seq uint64) *Row {
	rows := t.live()
	// Rows are nearly in the order of their numbers, and those inside another come soon after it.
	i := sort.Search(len(rows), func(i int) bool { return rows[i].Seq > seq })
	for _, r := range slices.Backward(rows[:i]) {
		if f := r.find(seq); f != nil {
			return f
		}
	}
	for _, r := range rows[i:] {
		if f := r.find(seq); f != nil {
			return f
		}
	}
	return nil
}

// markUpdated records that the current event changed r.
func (t *timeline) markUpdated(r *Row) {
	t.addHits(r)
	if !r.evicted {
		t.changes = append(t.changes, Change{Updated, r})
	}
}

// addHits adds the scan result of the current event to r and the rows that contain it.
func (t *timeline) addHits(r *Row) {
	for ; t.hits != 0 && r != nil; r = r.Parent {
		r.Hits |= t.hits
	}
}

// evictOldest evicts the oldest rows above the limit.
func (t *timeline) evictOldest() {
	for t.count > t.opts.MaxRows && t.first < len(t.rows)-1 {
		r := t.rows[t.first]
		t.rows[t.first] = nil
		t.first++
		t.evict(r)
	}
	if t.first > len(t.rows)/2 && t.first > 1024 {
		n := copy(t.rows, t.rows[t.first:])
		clear(t.rows[n:])
		t.rows, t.first, t.undecided = t.rows[:n], 0, max(0, t.undecided-t.first)
	}
}

// dropUnwanted evicts the rows that Options.Keep rejects. It decides about many rows at a time,
// because it moves the rows behind them.
func (t *timeline) dropUnwanted() {
	window := min(maxUndecided, t.opts.MaxRows/4)
	from, end := max(t.undecided, t.first), len(t.rows)-window
	if t.opts.Keep == nil || end-from < window {
		return
	}
	kept := from
	for _, r := range t.rows[from:end] {
		if t.opts.Keep(r) {
			t.rows[kept] = r
			kept++
		} else {
			t.evict(r)
		}
	}
	n := kept + copy(t.rows[kept:], t.rows[end:])
	clear(t.rows[n:])
	t.rows, t.undecided = t.rows[:n], kept
}

// evict evicts a row that is no longer in the timeline.
func (t *timeline) evict(r *Row) {
	t.past.add(r)
	t.unlink(r)
	t.evicted++
	t.changes = append(t.changes, Change{Evicted, r})
}

// unlink removes all references to a row and the rows inside it.
func (t *timeline) unlink(r *Row) {
	for _, c := range r.Children {
		t.unlink(c)
	}
	t.count--
	r.evicted = true
	c, s := r.Capture, r.Session
	for _, n := range r.Events {
		c.events.remove(n, r)
	}
	s.removePending(r)
	if k := (tokenKey{r.Dir, r.token}); s.tokens[k] == r {
		delete(s.tokens, k)
	}
	if r.Task != nil && s.task(r.Task.ID) == r {
		delete(c.tasks, taskKey{s.Side, r.Task.ID})
	}
	if r.InputRounds != nil {
		c.removeAwaiting(r)
	}
	if r.roundTrip != nil && r.roundTrip.row == r {
		r.roundTrip.row = nil
	}
}

// nest moves a row of the timeline into another row, unless that is inside it: the response to a
// forwarded request is forwarded too.
func (t *timeline) nest(r, into *Row) {
	i := t.first + sort.Search(len(t.live()), func(i int) bool { return !t.rows[t.first+i].Before(r) })
	if i == len(t.rows) || t.rows[i] != r || into.Root() == r || into.depth() >= maxDepth || len(into.Children) >= t.opts.MaxChildren {
		return
	}
	if t.rows = slices.Delete(t.rows, i, i+1); i < t.undecided {
		t.undecided--
	}
	r.Parent, r.Role = into, Forwarded
	into.Children = append(into.Children, r)
	t.changes = append(t.changes, Change{Moved, r})
}
