package tui

// A rect is a part of the screen.
type rect struct{ x, y, w, h int }

func (r rect) has(x, y int) bool { return x >= r.x && x < r.x+r.w && y >= r.y && y < r.y+r.h }

// areas are the parts of the screen. Those that there is no room for have no height.
type areas struct {
	header, filter, heads, table, pane, footer rect
	rule                                       rect // between table and pane: a column or a line
}

const (
	splitRight = 110 // columns from which the pane is beside the table
	splitBelow = 18  // lines from which it is below; else it has the screen alone
)

// layout divides the screen.
func (m *model) layout() areas {
	var a areas
	y, h := 0, m.height
	line := func(least int) (r rect) {
		if h < least {
			return r
		}
		r = rect{0, y, m.width, 1}
		y, h = y+1, h-1
		return r
	}
	a.header = line(6)
	if m.hasFilterBar() {
		a.filter = line(3)
	}
	if h > 1 {
		a.footer = rect{0, m.height - 1, m.width, 1}
		h--
	}
	body := rect{0, y, m.width, max(1, h)}
	switch {
	case m.pane == nil:
		a.table = body
	case m.zoom || m.width < splitRight && m.height < splitBelow:
		a.pane = body
		return a
	case m.width >= splitRight:
		left := max(54, m.width*45/100)
		a.table = rect{0, y, left, body.h}
		a.rule = rect{left, y, 1, body.h}
		a.pane = rect{left + 1, y, m.width - left - 1, body.h}
	default:
		top := max(4, body.h*2/5)
		a.table = rect{0, y, m.width, top}
		a.rule = rect{0, y + top, m.width, 1}
		a.pane = rect{0, y + top + 1, m.width, body.h - top - 1}
	}
	if a.table.h > 2 {
		a.heads = rect{a.table.x, a.table.y, a.table.w, 1}
		a.table.y, a.table.h = a.table.y+1, a.table.h-1
	}
	return a
}
