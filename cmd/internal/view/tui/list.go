package tui

import (
	"math"
	"sort"
	"time"

	"mcpwire/cmd/internal/trace"
)

// An anchor is the position of an item in a list. It is stable while items come and go.
type anchor struct {
	// at is the Place of a row, or the time of a frame in Unix nanoseconds.
	at int64
	// id is the Seq of a row, or orders frames with the same time.
	id uint64
}

// anchorOf returns the anchor of a row in the order of time.
func anchorOf(r *trace.Row) anchor { return anchor{r.Place, r.Seq} }

func (p anchor) next() anchor { return anchor{p.at, p.id + 1} }

func (p anchor) before(q anchor) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return p.id < q.id
}

// A position is a line of a list: the item's anchor and the row in the item. A zero row means the
// first one.
type position struct {
	place anchor
	row   uint64
}

// listStart is the position of the first line of any list.
var listStart = position{place: anchor{at: math.MinInt64}}

// An entry is a line of a list with its content. It is valid while the model is locked.
type entry struct {
	row   *trace.Row
	depth int
	// frame is set in a list of frames.
	frame *frame
	// run has the rows of a folded run of progress, of which row is the first.
	run []*trace.Row
	// runOpen means that row is the first of an unfolded run.
	runOpen bool
}

// A list is the content of the table. The model must be locked during calls. An item has several
// lines if it is unfolded.
type list interface {
	size() int
	anchorAt(i int) anchor
	// lines returns the lines of item i in buf[:0]: at least one.
	lines(i int, buf []entry) []entry
}

// A rowList is the list of the rows of a selection, with the rows inside unfolded ones.
type rowList struct {
	sel  selection
	fold *foldState
	// limit is the number of rows shown. -1 means all.
	limit int
}

func (l *rowList) size() int {
	if n := l.sel.Len(); l.limit < 0 || n < l.limit {
		return n
	}
	return l.limit
}

func (l *rowList) anchorAt(i int) anchor { return anchorOf(l.sel.At(i)) }

func (l *rowList) lines(i int, buf []entry) []entry {
	return l.unfold(l.sel.At(i), 0, buf[:0])
}

// maxLines limits the lines of an item. A row has at most 256 children by default, but they may
// have children too.
const maxLines = 4096

func (l *rowList) unfold(r *trace.Row, depth int, buf []entry) []entry {
	buf = append(buf, entry{row: r, depth: depth})
	if !l.fold.isOpen(r.Seq) {
		return buf
	}
	for i := 0; i < len(r.Children) && len(buf) < maxLines; {
		c, end := r.Children[i], runFrom(r.Children, i)
		open := l.fold.isOpen(c.Seq)
		if end-i > 1 && !open {
			buf = append(buf, entry{row: c, depth: depth + 1, run: r.Children[i:end]})
			i = end
			continue
		}
		for k := i; k < end && len(buf) < maxLines; k++ {
			at := len(buf)
			buf = l.unfold(r.Children[k], depth+1, buf)
			buf[at].runOpen = end-i > 1 && k == i
		}
		i = end
	}
	return buf
}

// A foldState says which rows show their children.
type foldState struct {
	// all is the state of rows that are not in exceptions.
	all bool
	// exceptions has the Seq of the rows with the other state.
	exceptions map[uint64]bool
}

// maxFolds limits the number of exceptions.
const maxFolds = 10_000

func (f *foldState) isOpen(seq uint64) bool { return f.all != f.exceptions[seq] }

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

// find returns the index of the first item at or after an anchor.
func find(l list, p anchor) int {
	return sort.Search(l.size(), func(i int) bool { return !l.anchorAt(i).before(p) })
}

// A walker moves through the lines of a list. It is valid while the model is locked.
type walker struct {
	l list
	// i is the index of the item.
	i int
	// sub is the line in the item.
	sub int
	buf []entry
}

// walk returns a walker at or near a position. It returns false if the list is empty.
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

// next moves a line down. It returns false at the end.
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

// prev moves a line up. It returns false at the beginning.
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

// move moves n lines, down if n is positive, and stops at the ends. It returns the number of lines
// moved.
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

func (w *walker) time() time.Time {
	e := w.entry()
	if e.frame != nil {
		return e.frame.time()
	}
	return e.row.At
}

// isWithin reports whether o is at most n lines below w.
func (w *walker) isWithin(o *walker, n int) bool {
	c := w.copy()
	for ; n >= 0; n-- {
		if c.i == o.i && c.sub == o.sub {
			return true
		}
		if !c.next() {
			break
		}
	}
	return false
}

// backfill moves the top up if fewer than height lines follow it.
func backfill(top *walker, height int) {
	down := top.copy()
	if n := down.move(height - 1); n < height-1 {
		top.move(-(height - 1 - n))
	}
}

func (w *walker) atOrAfter(o *walker) bool {
	if w.i != o.i {
		return w.i > o.i
	}
	return w.sub >= o.sub
}
