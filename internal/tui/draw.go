package tui

import (
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/wireview"
)

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.MouseMode = tea.MouseModeCellMotion
	v.WindowTitle = "mcpwire watch"
	v.Cursor = m.cursorShape()
	return v
}

// screen returns the lines of the screen, each in its full width.
func (m *model) screen() string {
	switch {
	case m.editor != nil:
		return m.editor.screen(m)
	case m.overlay != nil:
		return m.drawOverlay()
	}
	a := m.view.area
	lines := make([]string, m.height)
	put := func(r rect, draw func(b *strings.Builder, i int)) {
		for i := range r.h {
			if r.y+i < m.height {
				var b strings.Builder
				draw(&b, i)
				lines[r.y+i] += b.String()
			}
		}
	}
	put(a.header, func(b *strings.Builder, _ int) { m.drawHeader(b) })
	put(a.filter, func(b *strings.Builder, _ int) { m.drawFilter(b) })
	put(a.heads, func(b *strings.Builder, _ int) { m.drawHeads(b) })
	put(a.table, m.drawRow)
	put(a.rule, m.drawRule)
	put(a.pane, m.drawPane)
	put(a.footer, func(b *strings.Builder, _ int) { m.drawFooter(b) })
	return strings.Join(lines, "\n")
}

// drawHeads draws the heads of the columns.
func (m *model) drawHeads(b *strings.Builder) {
	l := line{{"", spaces(markWidth)}}
	for _, c := range m.view.columns {
		text := pad(c.head, c.width)
		if c.right {
			text = padLeft(c.head, c.width)
		}
		if c.head == "what" {
			text = pad("   what", c.width)
		}
		l = append(l, span{m.theme.head, text}, span{"", " "})
	}
	l[:len(l)-1].appendTo(b, m.view.area.table.w, "", false)
}

// drawRow draws a line of the table.
func (m *model) drawRow(b *strings.Builder, i int) {
	w := m.view.area.table.w
	if i >= len(m.view.rows) {
		m.emptyTableLine(i).appendTo(b, w, "", false)
		return
	}
	x := &m.view.rows[i]
	m.rowLine(x, i == m.view.cursor, w).appendTo(b, w, m.rowBase(i), i == m.view.cursor && m.theme.selectedOverrides)
}

// rowBase is the style below all others on a line of the table.
func (m *model) rowBase(i int) style {
	switch {
	case i != m.view.cursor:
		return ""
	case m.pane != nil && m.focus == onPane:
		return m.theme.selectedBlurred
	}
	return m.theme.selected
}

// rowLine puts the cells of a row beside each other.
func (m *model) rowLine(rv *rowView, selected bool, w int) line {
	l := line{m.rowMark(rv, selected)}
	request := rv.kind == trace.Request && !rv.frame
	for i := 0; i < len(m.view.columns); i++ {
		c := m.view.columns[i]
		columns := c.width
		if c.head == "what" && !request {
			for i+1 < len(m.view.columns) && m.view.columns[i+1].requestOnly { // its text has their place
				i++
				columns += m.view.columns[i].width + 1
			}
			columns = m.reserveLatency(rv, columns)
		}
		l = append(l, cell(c.cell(m, rv), columns, c.right)...)
		l = append(l, span{"", " "})
		if c.head == "what" && columns < c.width+m.requestOnlyWidth() && !request && rv.hasDuration {
			l = append(l, cell(cellLatency(m, rv), 8, true)...)
			l = append(l, span{"", " "})
		}
	}
	return l[:len(l)-1]
}

// requestOnlyWidth is how many columns the cells take that only requests have.
func (m *model) requestOnlyWidth() (n int) {
	for _, c := range m.view.columns {
		if c.requestOnly {
			n += c.width + 1
		}
	}
	return n
}

// reserveLatency leaves room for the timer of a row that is no request but takes time.
func (m *model) reserveLatency(rv *rowView, columns int) int {
	if rv.hasDuration && !rv.frame && m.requestOnlyWidth() >= 9 {
		return columns - 9
	}
	return columns
}

// cell fills a cell.
func cell(l line, columns int, right bool) line {
	n := l.width()
	switch {
	case n > columns:
		return l.cut(columns)
	case right:
		return append(line{{"", spaces(columns - n)}}, l...)
	}
	return append(l[:len(l):len(l)], span{"", spaces(columns - n)})
}

// markWidth is how many columns the cursor and the mark take.
const markWidth = 3

// rowMark is the first column: the cursor, and the numbers of marked rows.
func (m *model) rowMark(rv *rowView, selected bool) span {
	text := " "
	if selected {
		text = "❯"
	}
	if rv.mark > 0 {
		return span{m.theme.mark, text + strconv.Itoa(rv.mark) + " "}
	}
	return span{m.theme.mark, text + "  "}
}

// drawRule draws the line between table and pane.
func (m *model) drawRule(b *strings.Builder, i int) {
	r := m.view.area.rule
	text := "│"
	if r.w > 1 {
		text = strings.Repeat("─", r.w)
	}
	writeStyled(b, m.theme.rule, text)
}

// cursorShape is where the terminal's own cursor is: in what is being typed.
func (m *model) cursorShape() *tea.Cursor {
	a := m.view.area
	switch {
	case m.editor != nil:
		return m.editor.cursor()
	case m.prompt == nil || m.prompt.kind == confirmPrompt:
		return nil
	case m.prompt.kind == filterPrompt:
		return tea.NewCursor(min(m.width-1, m.prompt.column(m.width)), a.filter.y)
	}
	return tea.NewCursor(min(m.width-1, m.prompt.column(m.width)), m.height-1)
}
