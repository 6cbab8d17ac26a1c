package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/wireview"
)

// A viewport is what is drawn: copied from the hub after each message, so that drawing needs no lock.
type viewport struct {
	now     time.Time
	rows    []shownRow
	cursor  int       // in rows; -1 if there are none
	above   time.Time // of the line above the first one
	began   time.Time // of the oldest capture
	first   int       // the index of the item of the first line
	items   int
	all     int // rows that the timeline has had, whatever the filter is
	dropped uint64
	fresh   int // that came since the pause
	several bool
	share   float64 // of the search in payloads
	busy    bool
	session wireview.Card
	known   bool      // session is one
	seq     uint64    // of the row of the cursor; 0 is none
	root    uint64    // of the row of the timeline that it stands in
	at      time.Time // when it was

	columns []column
	scale   scale
	area    areas
}

// refresh copies what is visible, and returns the commands that this asks for: for the detail of another row, and for the next tick.
func (m *model) refresh() tea.Cmd {
	v := &m.view
	if m.flash.text != "" && !m.now().Before(m.flash.until) {
		m.flash = flash{}
	}
	*v = viewport{rows: v.rows[:0], cursor: -1, now: m.now(), area: m.layout()}
	if m.pause != nil {
		v.now = m.pause.at
	}
	var cmd tea.Cmd
	if m.sel != nil {
		m.src.Read(func(w *wireview.Model) { cmd = m.copyVisible(w) })
	}
	v.columns = m.columnsFor(v.area.table.w-markWidth, v.several)
	v.scale = scaleOf(v.rows, v.now)
	return tea.Batch(cmd, m.nextTick())
}

// list returns what the table shows. The model is locked.
func (m *model) list(w *wireview.Model) list {
	if m.frames != nil {
		m.frames.list.rows = w.Find
		return m.frames.list
	}
	x := &exchanges{sel: m.sel, fold: &m.folds, limit: -1}
	if m.pause != nil {
		x.limit = find(x, place{id: m.pause.last.id + 1})
		m.view.fresh = m.sel.Len() - x.limit
	}
	return x
}

// copyVisible copies the visible lines. The model is locked.
func (m *model) copyVisible(w *wireview.Model) tea.Cmd {
	v := &m.view
	v.all, v.dropped = int(w.CapturedRows()), w.DroppedRows()
	captures := w.Captures()
	v.several = len(captures) > 1
	m.sided = false
	for _, c := range captures {
		if c.Sided() {
			v.several, m.sided = true, len(captures) == 1
		}
		if v.began.IsZero() || c.Begun.Before(v.began) {
			v.began = c.Begun
		}
	}
	v.share, v.busy = m.sel.Searching()
	l := m.list(w)
	v.items = l.size()
	at, ok := walk(l, m.cursor)
	if !ok {
		return m.follows(nil)
	}
	if m.follow && m.pause == nil {
		at.end()
	}
	m.cursor = at.spot()
	current := at.entry().row
	if current != nil {
		v.session, v.known = current.Session.Card(), true
		v.seq, v.root, v.at = current.Seq, current.Root().Seq, current.At
	}
	cmd := m.follows(current)
	m.place(l, at)
	top, _ := walk(l, m.top)
	v.first = top.i
	if up := top.copy(); up.prev() {
		v.above = up.time()
	}
	for range v.area.table.h {
		s := top.spot()
		if s == m.cursor {
			v.cursor = len(v.rows)
		}
		v.rows = append(v.rows, m.show(s, top.entry()))
		if !top.next() {
			break
		}
	}
	return cmd
}

// time returns when the line of a walker was.
func (w *walker) time() time.Time {
	e := w.entry()
	if e.frame != nil {
		return e.frame.time()
	}
	return e.row.At
}

// place moves the top so that the cursor is visible, and no room is wasted.
func (m *model) place(l list, cursor *walker) {
	height := max(1, m.view.area.table.h)
	top, _ := walk(l, m.top)
	switch {
	case !cursor.behind(top):
		top = cursor.copy()
	case !top.reaches(cursor, height-1):
		top = cursor.copy()
		top.move(-(height - 1))
	}
	fill(top, height)
	m.top = top.spot()
}

// reaches reports whether a line is at most n lines below.
func (w *walker) reaches(o *walker, n int) bool {
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

// fill moves the top up if there are fewer lines below it than there is room for.
func fill(top *walker, height int) {
	down := top.copy()
	if n := down.move(height - 1); n < height-1 {
		top.move(-(height - 1 - n))
	}
}

// behind reports whether a line is at another one or below it.
func (w *walker) behind(o *walker) bool {
	if w.i != o.i {
		return w.i > o.i
	}
	return w.sub >= o.sub
}

// nextTick asks for a tick if something counts, unless one is on its way.
func (m *model) nextTick() tea.Cmd {
	if m.tick || m.pause != nil && m.flash.text == "" {
		return nil
	}
	counts := m.flash.text != "" || m.view.busy || m.choice.busy || m.pane != nil && m.pane.loading
	for i := range m.view.rows {
		counts = counts || m.view.rows[i].open
	}
	if !counts {
		return nil
	}
	m.tick = true
	return tea.Tick(100*time.Millisecond, func(t time.Time) tea.Msg { return tickMsg(t) })
}
