package tui

import (
	"mcpwire/internal/wireview"
)

// moveCursor goes so many lines down, or up.
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

// toEnd goes to the last line.
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

// setFollow keeps the cursor on the newest line, or lets it be.
func (m *model) setFollow(on bool) {
	if m.follow = on; on {
		m.pause = nil
	}
}

// setPause stops the table, or lets it go on.
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

// maxScanRows is how many rows are looked at for the next problem while the model is locked.
const maxScanRows = 20_000

// nextFailure goes to the next row in which something went wrong, or the one before.
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
		m.showFlash(false, "no further row with an error or a finding")
	}
}

// findFailure looks for a row in which something went wrong among the next ones. It returns where that is, or where to go on, and whether there is more. The model is locked.
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

// unfold shows what is inside the row of the cursor, or hides it. Inside a row, it hides what is beside it, too.
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

// marked returns which of the rows to be compared a row is: 1, 2, or 0 for none.
func (m *model) marked(seq uint64) int {
	for i, s := range m.marks {
		if s == seq {
			return i + 1
		}
	}
	return 0
}

// toggleMark marks the row of the cursor, or takes its mark away. Two rows are marked at most.
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
		m.showFlash(false, "marked; mark another one, or go there, and d compares the two")
		return
	}
	m.showFlash(false, "two are marked; d compares them")
}
