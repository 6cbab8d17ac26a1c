package tui

import (
	"mcpwire/internal/wireview"
)

// moveCursor goes so many lines down, or up.
func (m *model) moveCursor(n int) {
	if m.sel == nil {
		return
	}
	m.src.Read(func(w *wireview.Model) {
		l := m.list(w)
		at, ok := walk(l, m.cursor)
		if !ok {
			return
		}
		at.move(n)
		if n < 0 {
			m.follow = false
		}
		m.cursor = at.spot()
	})
}

// toEnd goes to the last line.
func (m *model) toEnd() {
	if m.sel == nil {
		return
	}
	m.src.Read(func(w *wireview.Model) {
		if at, ok := walk(m.list(w), m.cursor); ok {
			at.end()
			m.cursor = at.spot()
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
	p := &pausing{at: m.now(), last: place{id: 1<<63 - 1}}
	m.src.Read(func(w *wireview.Model) {
		if m.sel == nil {
			return
		}
		p.last = place{}
		if n := m.sel.Len(); n > 0 {
			p.last.id = m.sel.At(n - 1).Seq
		}
	})
	m.pause, m.follow = p, false
}

// maxSteps is how many rows are looked at for the next problem while the model is locked.
const maxSteps = 20_000

// nextProblem goes to the next row in which something went wrong, or the one before.
func (m *model) nextProblem(forward bool) {
	if m.sel == nil {
		return
	}
	found := false
	from := m.cursor
	for more := true; more && !found; {
		m.src.Read(func(w *wireview.Model) {
			if from, found, more = m.problemNear(w, from, forward); found {
				m.cursor, m.follow = from, false
			}
		})
	}
	if !found {
		m.say(false, "no further row with an error or a finding")
	}
}

// problemNear looks for a row in which something went wrong among the next ones. It returns where that is, or where to go on, and whether there is more. The model is locked.
func (m *model) problemNear(w *wireview.Model, from spot, forward bool) (at spot, found, more bool) {
	x, ok := walk(m.list(w), from)
	if !ok {
		return from, false, false
	}
	step := x.next
	if !forward {
		step = x.prev
	}
	for range maxSteps {
		if !step() {
			return from, false, false
		}
		if r := x.entry().row; r != nil && problem(r) {
			return x.spot(), true, true
		}
	}
	return x.spot(), false, true
}

// problem reports whether something went wrong.
func problem(r *wireview.Row) bool {
	switch r.Status {
	case wireview.Failed, wireview.ToolFailed, wireview.HTTPFailed, wireview.Unanswered:
		return true
	}
	return len(r.Lints) > 0 || r.Kind == wireview.Invalid || r.Kind == wireview.Stdout || r.Kind == wireview.Gap
}

// unfold shows what is inside the row of the cursor, or hides it. Inside a row, it hides what is beside it, too.
func (m *model) unfold(open bool) {
	if m.sel == nil || m.frames != nil {
		return
	}
	m.src.Read(func(w *wireview.Model) {
		at, ok := walk(m.list(w), m.cursor)
		if !ok {
			return
		}
		r := at.entry().row
		if open {
			m.folds.set(r.Seq, len(r.Children) > 0)
			return
		}
		if (len(r.Children) == 0 || !m.folds.open(r.Seq)) && r.Parent != nil {
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
		m.say(false, "marked; mark another one, or go there, and d compares the two")
		return
	}
	m.say(false, "two are marked; d compares them")
}
