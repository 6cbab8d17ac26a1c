package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/wireview"
)

// A viewport is what is drawn: copied from the hub after each message, so that drawing needs no lock.
type viewport struct {
	now             time.Time
	rows            []rowView
	cursor          int       // in rows; -1 if there are none
	timeAbove       time.Time // of the line above the first one
	started         time.Time // of the oldest capture
	first           int       // the index of the item of the first line
	items           int
	all             int // rows that the timeline has had, whatever the filter is
	dropped         uint64
	sincePause      int // that came since the pause
	multipleSources bool
	searchShare     float64 // of the search in payloads
	searching       bool
	session         trace.SessionInfo
	hasSession      bool      // session is one
	seq             uint64    // of the row of the cursor; 0 is none
	root            uint64    // of the row of the timeline that it stands in
	at              time.Time // when it was

	columns []column
	scale   timeScale
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
		m.src.Read(func(w *trace.Model) { cmd = m.copyVisible(w) })
	}
	v.columns = m.columnsFor(v.area.table.w-markWidth, v.multipleSources)
	v.scale = newTimeScale(v.rows, v.now)
	return tea.Batch(cmd, m.nextTick())
}

// list returns what the table shows. The model is locked.
func (m *model) list(w *trace.Model) list {
	if m.frames != nil {
		m.frames.list.rows = w.Find
		return m.frames.list
	}
	x := &rowList{sel: m.sel, fold: &m.folds, limit: -1}
	if m.pause != nil {
		x.limit = find(x, anchor{id: m.pause.last.id + 1})
		m.view.sincePause = m.sel.Len() - x.limit
	}
	return x
}

// copyVisible copies the visible lines. The model is locked.
func (m *model) copyVisible(w *trace.Model) tea.Cmd {
	v := &m.view
	v.all, v.dropped = int(w.TotalRows()), w.EvictedRows()
	captures := w.Captures()
	v.multipleSources = len(captures) > 1
	m.singleBridge = false
	for _, c := range captures {
		if c.HasSides() {
			v.multipleSources, m.singleBridge = true, len(captures) == 1
		}
		if v.started.IsZero() || c.Started.Before(v.started) {
			v.started = c.Started
		}
	}
	v.searchShare, v.searching = m.sel.SearchProgress()
	l := m.list(w)
	v.items = l.size()
	at, ok := walk(l, m.cursor)
	if !ok {
		return m.syncPane(nil)
	}
	if m.follow && m.pause == nil {
		at.end()
	}
	m.cursor = at.position()
	current := at.entry().row
	if current != nil {
		v.session, v.hasSession = current.Session.Card(), true
		v.seq, v.root, v.at = current.Seq, current.Root().Seq, current.At
	}
	cmd := m.syncPane(current)
	m.scrollToCursor(l, at)
	top, _ := walk(l, m.top)
	v.first = top.i
	if up := top.copy(); up.prev() {
		v.timeAbove = up.time()
	}
	for range v.area.table.h {
		s := top.position()
		if s == m.cursor {
			v.cursor = len(v.rows)
		}
		v.rows = append(v.rows, m.newRow(s, top.entry()))
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

// scrollToCursor moves the top so that the cursor is visible, and no room is wasted.
func (m *model) scrollToCursor(l list, cursor *walker) {
	height := max(1, m.view.area.table.h)
	top, _ := walk(l, m.top)
	switch {
	case !cursor.atOrAfter(top):
		top = cursor.copy()
	case !top.isWithin(cursor, height-1):
		top = cursor.copy()
		top.move(-(height - 1))
	}
	backfill(top, height)
	m.top = top.position()
}

// isWithin reports whether a line is at most n lines below.
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

// backfill moves the top up if there are fewer lines below it than there is room for.
func backfill(top *walker, height int) {
	down := top.copy()
	if n := down.move(height - 1); n < height-1 {
		top.move(-(height - 1 - n))
	}
}

// atOrAfter reports whether a line is at another one or below it.
func (w *walker) atOrAfter(o *walker) bool {
	if w.i != o.i {
		return w.i > o.i
	}
	return w.sub >= o.sub
}

// nextTick asks for a tick if something counts, unless one is on its way.
func (m *model) nextTick() tea.Cmd {
	if m.tickPending || m.pause != nil && m.flash.text == "" {
		return nil
	}
	counts := m.flash.text != "" || m.view.searching || m.query.busy || m.pane != nil && m.pane.loading
	for i := range m.view.rows {
		counts = counts || m.view.rows[i].pending
	}
	if !counts {
		return nil
	}
	m.tickPending = true
	return tea.Tick(100*time.Millisecond, func(t time.Time) tea.Msg { return tickMsg(t) })
}
