package tui

import (
	"fmt"
	"slices"
	"time"

	"mcpwire/internal/trace"
	"mcpwire/internal/view/watch"

	tea "charm.land/bubbletea/v2"
)

// A viewport has what is drawn. It is copied from the hub after each message, so that drawing
// needs no lock.
type viewport struct {
	now  time.Time
	rows []rowView
	// cursor is an index in rows. -1 means no rows.
	cursor int
	// timeAbove is the time of the line above the first one.
	timeAbove time.Time
	// started is the start of the oldest capture.
	started time.Time
	// first is the index of the item of the first line.
	first int
	items int
	// all counts the rows that the timeline has had, regardless of the filter.
	all     int
	dropped uint64
	// sincePause counts the rows since the pause.
	sincePause      int
	multipleSources bool
	// searchShare is the progress of the search in payloads, from 0 to 1.
	searchShare float64
	searching   bool
	session     trace.SessionInfo
	// hasSession tells that session is set.
	hasSession bool
	// seq is the Seq of the cursor's row. Zero means none.
	seq uint64
	// root is the Seq of its root row.
	root uint64
	// at is the time of that row.
	at time.Time

	columns []column
	scale   timeScale
	area    areas
}

// list returns the content of the table. The caller must hold the lock of the model.
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

// copyVisible copies the visible lines. The caller must hold the lock of the model.
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

// scrollToCursor scrolls so that the cursor is visible and the table has no empty lines.
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

// tableKey handles a key that moves in the table. It returns false for other keys.
func (m *model) tableKey(k string) bool {
	height := max(1, m.view.area.table.h)
	switch k {
	case "j", "down":
		m.moveCursor(1)
	case "k", "up":
		m.moveCursor(-1)
	case "pgdown", "ctrl+f":
		m.moveCursor(max(1, height-1))
	case "pgup", "ctrl+b":
		m.moveCursor(-max(1, height-1))
	case "ctrl+d":
		m.moveCursor(max(1, height/2))
	case "ctrl+u":
		m.moveCursor(-max(1, height/2))
	case "g", "home":
		m.cursor, m.follow = position{}, false
	case "G", "end":
		m.toEnd()
	case "n":
		m.nextFailure(true)
	case "N":
		m.nextFailure(false)
	case "space":
		m.unfold(!m.folds.isOpen(m.view.seq))
	case "right":
		m.unfold(true)
	case "left":
		m.unfold(false)
	case "*":
		m.folds.setAll(!m.folds.all)
	default:
		return false
	}
	return true
}

// moveCursor moves the cursor n lines down, or up if n is negative.
func (m *model) moveCursor(n int) {
	if m.sel == nil {
		return
	}
	m.src.Read(func(w *trace.Model) {
		l := m.list(w)
		at, ok := walk(l, m.cursor)
		if !ok {
			return
		}
		at.move(n)
		if n < 0 {
			m.follow = false
		}
		m.cursor = at.position()
	})
}

// toEnd moves the cursor to the last line.
func (m *model) toEnd() {
	if m.sel == nil {
		return
	}
	m.src.Read(func(w *trace.Model) {
		if at, ok := walk(m.list(w), m.cursor); ok {
			at.end()
			m.cursor = at.position()
		}
	})
}

// setFollow turns on or off that the cursor follows the newest line.
func (m *model) setFollow(on bool) {
	if m.follow = on; on {
		m.pause = nil
	}
}

// setPause pauses or resumes the table.
func (m *model) setPause() {
	if m.pause != nil {
		m.pause = nil
		return
	}
	p := &pauseState{at: m.now(), last: anchor{id: 1<<63 - 1}}
	m.src.Read(func(w *trace.Model) {
		if m.sel == nil {
			return
		}
		p.last = anchor{}
		if n := m.sel.Len(); n > 0 {
			p.last.id = m.sel.At(n - 1).Seq
		}
	})
	m.pause, m.follow = p, false
}

// maxScanRows limits the rows searched while the model is locked.
const maxScanRows = 20_000

// nextFailure moves to the next or previous row with a failure.
func (m *model) nextFailure(forward bool) {
	if m.sel == nil {
		return
	}
	found := false
	from := m.cursor
	for more := true; more && !found; {
		m.src.Read(func(w *trace.Model) {
			if from, found, more = m.findFailure(w, from, forward); found {
				m.cursor, m.follow = from, false
			}
		})
	}
	if !found {
		m.showFlash(false, "no more rows with an error or a finding")
	}
}

// findFailure searches the next rows for a failure. It returns the position of the failure, or
// where to continue and whether there are more rows. The caller must hold the lock of the model.
func (m *model) findFailure(w *trace.Model, from position, forward bool) (at position, found, more bool) {
	x, ok := walk(m.list(w), from)
	if !ok {
		return from, false, false
	}
	step := x.next
	if !forward {
		step = x.prev
	}
	for range maxScanRows {
		if !step() {
			return from, false, false
		}
		if r := x.entry().row; r != nil && hasFailure(r) {
			return x.position(), true, true
		}
	}
	return x.position(), false, true
}

// hasFailure reports whether something went wrong.
func hasFailure(r *trace.Row) bool {
	switch r.Status {
	case trace.Failed, trace.ToolFailed, trace.HTTPFailed, trace.Unanswered:
		return true
	}
	return len(r.Findings) > 0 || r.Kind == trace.Invalid || r.Kind == trace.Stdout || r.Kind == trace.Gap
}

// unfold shows or hides the children of the cursor's row. If they are already hidden, it moves to
// the parent and folds that.
func (m *model) unfold(open bool) {
	if m.sel == nil || m.frames != nil {
		return
	}
	m.src.Read(func(w *trace.Model) {
		at, ok := walk(m.list(w), m.cursor)
		if !ok {
			return
		}
		r := at.entry().row
		if open {
			m.folds.set(r.Seq, len(r.Children) > 0)
			return
		}
		if (len(r.Children) == 0 || !m.folds.isOpen(r.Seq)) && r.Parent != nil {
			r = r.Parent
			m.cursor.row = r.Seq
			if r.Parent == nil {
				m.cursor.row = 0
			}
		}
		m.folds.set(r.Seq, false)
	})
	if !open {
		m.follow = false
	}
}

// switchFrames switches between exchanges and events and keeps the position.
func (m *model) switchFrames() tea.Cmd {
	if m.frames != nil {
		m.cursor = position{anchor{id: m.view.root}, m.view.seq}
		m.top = m.cursor
		m.frames = nil
		return nil
	}
	m.frames = &frameView{list: &frameList{}}
	m.cursor.place = anchor{at: m.view.at.UnixNano()}
	m.cursor.row, m.top = 0, m.cursor
	return m.buildFrames(true)
}

// goToOtherSide moves to the linked row on a bridge's other side.
func (m *model) goToOtherSide() tea.Cmd {
	if m.sel == nil || m.frames != nil {
		m.showFlash(false, "o goes to a bridge's other side from an exchange; x shows those")
		return nil
	}
	found, linked := false, false
	m.src.Read(func(w *trace.Model) {
		at, ok := walk(m.list(w), m.cursor)
		if !ok || at.entry().row == nil {
			return
		}
		others := at.entry().row.Counterparts()
		linked = len(others) > 0
		for _, o := range others {
			root := o.Root()
			to := position{place: anchor{id: root.Seq}}
			if !m.sel.Has(root) {
				continue
			}
			if o != root {
				for p := o.Parent; p != nil; p = p.Parent {
					m.folds.set(p.Seq, true)
				}
				to.row = o.Seq
			}
			m.cursor, m.follow, found = to, false, true
			return
		}
	})
	switch {
	case !linked:
		m.showFlash(false, "no bridge has translated this")
	case !found:
		m.showFlash(false, "the other side is not among what the filter shows")
	}
	return nil
}

// marked returns 1 or 2 for a row marked for comparison, and 0 for others.
func (m *model) marked(seq uint64) int {
	for i, s := range m.marks {
		if s == seq {
			return i + 1
		}
	}
	return 0
}

// toggleMark marks or unmarks the cursor's row. At most two rows are marked.
func (m *model) toggleMark() {
	seq := m.view.seq
	switch at := m.marked(seq); {
	case seq == 0:
		return
	case at > 0:
		m.marks = append(m.marks[:at-1:at-1], m.marks[at:]...)
		return
	case len(m.marks) == 2:
		m.marks = m.marks[1:]
	}
	m.marks = append(m.marks[:len(m.marks):len(m.marks)], seq)
	if len(m.marks) == 1 {
		m.showFlash(false, "marked; mark or select another row, and d compares the two")
		return
	}
	m.showFlash(false, "two are marked; d compares them")
}

func (m *model) clickRow(x, i int) {
	m.focus = onTable
	if i < 0 || i >= len(m.view.rows) {
		return
	}
	row := &m.view.rows[i]
	again := i == m.view.cursor
	m.cursor, m.follow = row.position, false
	m.view.seq = row.seq
	switch {
	case row.foldMark != "" && x == m.whatColumn()+2*min(row.depth, 6):
		m.unfold(row.foldMark == "▸")
	case again:
		m.openPane()
	}
}

// whatColumn returns the screen column at which the text of a row begins.
func (m *model) whatColumn() int {
	x := m.view.area.table.x + markWidth
	for _, c := range m.view.columns {
		if c.head == "what" {
			break
		}
		x += c.width + 1
	}
	return x
}

// emptyTableLine returns a line of the text in an empty table.
func (m *model) emptyTableLine(i int) line {
	if len(m.view.rows) > 0 {
		return nil
	}
	t := m.theme
	var text []line
	switch {
	case m.sel == nil || m.query.busy:
		text = []line{{{t.dim, "Reading …"}}}
	case m.frames != nil && m.frames.busy:
		text = []line{{{t.dim, "Sorting the frames …"}}}
	case m.view.all > 0:
		text = []line{{{t.text, "None of " + number(m.view.all) + " exchanges match."}}, {{t.dim, "/ changes the filter, Esc clears it."}}}
		if m.view.searching {
			text = []line{{{t.pending, fmt.Sprintf("… Searching in payloads, %d %% so far.", int(m.view.searchShare*100))}}}
		}
	default:
		text = m.emptyHelp()
	}
	if i--; i >= 0 && i < len(text) {
		return append(line{{"", "   "}}, text[i]...)
	}
	return nil
}

// emptyHelp explains how to get traffic.
func (m *model) emptyHelp() []line {
	t := m.theme
	var out []line
	for _, s := range m.sources {
		if s.Err != "" {
			out = append(out, line{{t.failure, "✖ " + safe(s.Path+s.Name) + ": " + safe(s.Err)}})
		}
	}
	goes := slices.ContainsFunc(m.sources, func(s watch.Source) bool { return s.Err == "" && (s.State == watch.Live || s.State == watch.Growing) })
	switch {
	case goes:
		return append(out, line{{t.text, "No traffic yet."}}, line{{t.dim, "Traffic appears here at once."}})
	case len(m.sources) > len(out):
		return append(out, line{{t.text, "The recording is empty."}}, line{{t.dim, "It is no longer being written."}})
	}
	if out = append(out, line{{t.text, "No taps are running."}}); m.height > 12 {
		out = append(out, line{{t.dim, "Traffic of taps appears here at once. To start one:"}}, nil)
	}
	for _, x := range [][2]string{{"for a server", "mcpwire tap -- CMD…"}, {"on HTTP", "mcpwire tap --listen ADDR URL"}, {"in a host", "mcpwire wrap NAME"}} {
		out = append(out, line{{t.dim, pad(x[0], 14)}, {t.key, x[1]}})
	}
	return out
}
