package tui

import (
	tea "charm.land/bubbletea/v2"
)

// wheelLines is how many lines a step of the wheel is.
const wheelLines = 3

func (m *model) wheel(e tea.Mouse) tea.Cmd {
	n := wheelLines
	switch e.Button {
	case tea.MouseWheelUp:
		n = -n
	case tea.MouseWheelDown:
	default:
		return nil
	}
	switch {
	case m.editor != nil:
	case m.overlay != nil:
		m.overlay.pager.scroll(n, m.overlayHeight())
	case m.pane != nil && m.view.area.pane.has(e.X, e.Y):
		if page, height := m.activePager(); page != nil {
			page.scroll(n, height)
		}
	default:
		m.moveCursor(n)
	}
	return nil
}

// click chooses a row, unfolds it by its triangle, or chooses a tab. A second click on the row of the cursor opens it.
func (m *model) click(e tea.Mouse) tea.Cmd {
	if e.Button != tea.MouseLeft || m.editor != nil || m.overlay != nil || m.prompt != nil && m.prompt.kind != filterPrompt {
		return nil
	}
	a := m.view.area
	switch {
	case a.table.has(e.X, e.Y):
		m.clickRow(e.X, e.Y-a.table.y)
	case a.filter.has(e.X, e.Y) && m.prompt == nil:
		m.prompt = newPrompt(filterPrompt, "/", m.query.text)
		m.prompt.check()
	case m.pane != nil && a.pane.has(e.X, e.Y):
		m.focus = onPane
		if e.Y == m.paneBody().y-1 {
			for _, t := range m.pane.tabs {
				if e.X >= t.x && e.X < t.x+t.w {
					m.pane.openTab = t.title
				}
			}
		}
	}
	return nil
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

// whatColumn is the column of the screen in which the text of a row begins.
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
