package tui

import (
	"sort"

	"mcpwire/internal/wireview"
)

// A selection is the rows of the timeline that a filter lets through: a [watch.Selection].
type selection interface {
	Len() int
	At(i int) *trace.Row
	Has(r *trace.Row) bool
	SearchProgress() (share float64, busy bool)
	Close()
}

// A place is where a line stands in a list, whatever comes and goes around it: the rows of the timeline by their Seq, frames by their time.
type anchor struct {
	at int64  // in nanoseconds; 0 for rows
	id uint64 // Seq of the row of the timeline, or what tells frames of one time apart
}

func (p anchor) before(q anchor) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return p.id < q.id
}

// A spot is a line of a list: a place, and the row inside of what stands there. A zero row is the first one.
type position struct {
	place anchor
	row   uint64
}

// An entry is a line of a list with what it shows. It is good while the model is locked.
type entry struct {
	row   *trace.Row
	depth int
	frame *frame // in a list of frames
}

// A list is what the table shows. Its methods are called with the model locked. Items have one line, or more if they are unfolded.
type list interface {
	size() int
	anchorAt(i int) anchor
	lines(i int, buf []entry) []entry // appended to buf[:0]; at least one
}

// rowList is the list of the rows of a selection, with those inside the ones that are unfolded.
type rowList struct {
	sel   selection
	fold  *foldState
	limit int // how many of them are shown; -1 is all
}

func (l *rowList) size() int {
	if n := l.sel.Len(); l.limit < 0 || n < l.limit {
		return n
	}
	return l.limit
}

func (l *rowList) anchorAt(i int) anchor { return anchor{id: l.sel.At(i).Seq} }

func (l *rowList) lines(i int, buf []entry) []entry {
	return l.unfold(l.sel.At(i), 0, buf[:0])
}

// maxLines is how many lines one item can have. A row has 256 inside at most, but those may have some, too.
const maxLines = 4096

func (l *rowList) unfold(r *trace.Row, depth int, buf []entry) []entry {
	buf = append(buf, entry{row: r, depth: depth})
	if !l.fold.isOpen(r.Seq) {
		return buf
	}
	for _, c := range r.Children {
		if len(buf) >= maxLines {
			break
		}
		buf = l.unfold(c, depth+1, buf)
	}
	return buf
}

// A folding says which rows show what is inside them.
type foldState struct {
	all        bool            // those that are not in other do
	exceptions map[uint64]bool // Seq of rows that do not do as all
}

// maxFolds is how many rows are remembered that are not folded as all are.
const maxFolds = 10_000

func (f *foldState) isOpen(seq uint64) bool { return f.all != f.exceptions[seq] }

// set folds a row or unfolds it.
func (f *foldState) set(seq uint64, open bool) {
	if open == f.all {
		delete(f.exceptions, seq)
		return
	}
	if f.exceptions == nil || len(f.exceptions) >= maxFolds {
		f.exceptions = map[uint64]bool{}
	}
	f.exceptions[seq] = true
}

// setAll folds or unfolds all.
func (f *foldState) setAll(open bool) { f.all, f.exceptions = open, nil }

// find returns the index of the first item at a place or behind it.
func find(l list, p anchor) int {
	return sort.Search(l.size(), func(i int) bool { return !l.anchorAt(i).before(p) })
}

// A walker goes through the lines of a list, one after the other. It is good while the model is locked.
type walker struct {
	l   list
	i   int // the item
	sub int // the line in it
	buf []entry
}

// walk returns a walker at a spot, or at what is nearest to it, and whether there is anything at all.
func walk(l list, s position) (*walker, bool) {
	n := l.size()
	if n == 0 {
		return nil, false
	}
	w := &walker{l: l, i: find(l, s.place)}
	if w.i == n {
		w.i = n - 1
		w.load()
		w.sub = len(w.buf) - 1
		return w, true
	}
	w.load()
	if s.row != 0 && l.anchorAt(w.i) == s.place {
		for k, e := range w.buf {
			if e.row.Seq == s.row {
				w.sub = k
			}
		}
	}
	return w, true
}

func (w *walker) load() { w.buf = w.l.lines(w.i, w.buf) }

func (w *walker) entry() entry { return w.buf[w.sub] }

func (w *walker) position() position {
	s := position{place: w.l.anchorAt(w.i)}
	if w.sub > 0 {
		s.row = w.buf[w.sub].row.Seq
	}
	return s
}

// next goes a line down, and reports whether there is one.
func (w *walker) next() bool {
	if w.sub+1 < len(w.buf) {
		w.sub++
		return true
	}
	if w.i+1 >= w.l.size() {
		return false
	}
	w.i, w.sub = w.i+1, 0
	w.load()
	return true
}

// prev goes a line up, and reports whether there is one.
func (w *walker) prev() bool {
	if w.sub > 0 {
		w.sub--
		return true
	}
	if w.i == 0 {
		return false
	}
	w.i--
	w.load()
	w.sub = len(w.buf) - 1
	return true
}

// move goes so many lines, down if n is above 0, and stops at the ends. It returns how many it went.
func (w *walker) move(n int) (moved int) {
	for ; n > 0 && w.next(); n-- {
		moved++
	}
	for ; n < 0 && w.prev(); n++ {
		moved++
	}
	return moved
}

func (w *walker) end() {
	w.i = w.l.size() - 1
	w.load()
	w.sub = len(w.buf) - 1
}

func (w *walker) copy() *walker {
	c := *w
	c.buf = append([]entry(nil), w.buf...)
	return &c
}
