package tui

import (
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/watch"
)

// A rect is a rectangle on the screen.
type rect struct{ x, y, w, h int }

func (r rect) has(x, y int) bool { return x >= r.x && x < r.x+r.w && y >= r.y && y < r.y+r.h }

// areas are the parts of the screen. A part without room has height 0.
type areas struct {
	header, held, filter, table, pane, footer rect
	// rule is the line between table and pane, vertical or horizontal.
	rule rect
}

const (
	splitRight = 110 // minimum columns for the pane beside the table
	splitBelow = 18  // minimum lines for it below; else it fills the screen
)

// usualShareBelow is the table's usual share of the lines above the pane, in percent.
const usualShareBelow = 40

// usualShare returns the table's usual share of the columns beside the pane, in percent. A wide
// screen has more room for the text.
func usualShare(columns int) int {
	if columns >= 160 {
		return 40
	}
	return max(45, 5400/columns)
}

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
	if len(m.held()) > 0 {
		a.held = line(2)
	}
	if !m.table.query.empty() || m.dialogs.prompt != nil && m.dialogs.prompt.isFilter {
		a.filter = line(3)
	}
	if h > 1 {
		a.footer = rect{0, m.height - 1, m.width, 1}
		h--
	}
	body := rect{0, y, m.width, max(1, h)}
	switch {
	case !m.pane.open:
		a.table = body
	case m.zoom || m.width < splitRight && m.height < splitBelow:
		a.pane = body
	case m.width >= splitRight:
		left := min(max(40, m.width*m.tableShare(usualShare(m.width))/100), m.width-40)
		a.table = rect{0, y, left, body.h}
		a.rule = rect{left, y, 1, body.h}
		a.pane = rect{left + 1, y, m.width - left - 1, body.h}
	default:
		top := min(max(4, body.h*m.tableShare(usualShareBelow)/100), max(4, body.h-4))
		a.table = rect{0, y, m.width, top}
		a.rule = rect{0, y + top, m.width, 1}
		a.pane = rect{0, y + top + 1, m.width, body.h - top - 1}
	}
	return a
}

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.MouseMode = tea.MouseModeCellMotion
	v.WindowTitle = "mcpwire watch"
	v.Cursor = m.cursor()
	return v
}

func (m *model) screen() string {
	switch d := m.dialogs; {
	case d.editor != nil:
		return d.editor.View()
	case d.chooser != nil:
		return d.chooser.View() + "\n" + m.footer(d.chooser.footer())
	case d.overlay != nil && m.height > 1:
		return d.overlay.View() + "\n" + m.footer(d.overlay.footer())
	case d.overlay != nil:
		return d.overlay.View()
	}
	a := m.areas
	lines := make([]string, m.height)
	put := func(r rect, draw func() string) {
		if r.h == 0 {
			return
		}
		for i, l := range strings.Split(draw(), "\n") {
			if r.y+i < m.height {
				lines[r.y+i] += l
			}
		}
	}
	put(a.header, func() string { return m.header().drawOver(m.theme.title, m.width) })
	put(a.held, m.heldBar)
	put(a.filter, m.filterBar)
	put(a.table, m.table.View)
	put(a.rule, func() string { return m.theme.ruleOf(a.rule) })
	put(a.pane, m.pane.View)
	put(a.footer, func() string { return m.footer(m.keysLine()) })
	return strings.Join(lines, "\n")
}

// cursor returns the terminal's cursor for the input, or nil.
func (m *model) cursor() *tea.Cursor {
	switch d := m.dialogs; {
	case d.editor != nil:
		return d.editor.cursor()
	case d.prompt == nil:
		return nil
	case d.prompt.isFilter:
		return d.prompt.cursor(m.areas.filter.y)
	default:
		return d.prompt.cursor(m.height - 1)
	}
}

func (t *theme) ruleOf(r rect) string {
	l := line{{t.rule, "│"}}
	if r.w > 1 {
		l[0].text = strings.Repeat("─", r.w)
	}
	return strings.TrimSuffix(strings.Repeat(l.draw(r.w)+"\n", r.h), "\n")
}

func number[T uint64 | int](n T) string { return strconv.FormatUint(uint64(n), 10) }

// header returns the first line: the sources, and the session of the cursor's row.
func (m *model) header() line {
	left := line{{bold, " mcpwire"}, {"", "  "}}
	left = append(left, m.theme.sources(m.sources)...)
	right := ""
	if v := &m.table.view; v.hasSession {
		right = sessionText(&v.session, m.width >= 100)
	}
	room := m.width - left.width() - 2
	if width(right) > room {
		right = cut(right, room)
	}
	if room < 12 {
		right = ""
	}
	return append(left, span{"", spaces(m.width - left.width() - width(right) - 1)}, span{m.theme.dim, right})
}

func (t *theme) sources(list []watch.Source) line {
	var live, growing, done, failed int
	for _, s := range list {
		switch {
		case s.Err != "":
			failed++
		case s.State == watch.Live:
			live++
		case s.State == watch.Growing:
			growing++
		default:
			done++
		}
	}
	var l line
	add := func(n int, st style, text string) {
		if n > 0 {
			l = append(l, span{st, text + "  "})
		}
	}
	add(live, t.response, fmt.Sprintf("● %d live", live))
	add(growing, t.pending, fmt.Sprintf("◐ %d growing", growing))
	add(done, t.dim, fmt.Sprintf("○ %d past", done))
	add(failed, t.failure, fmt.Sprintf("✖ %d unreadable", failed))
	return l
}

// sessionText describes a session, and its process if there is room.
func sessionText(c *trace.SessionInfo, wide bool) string {
	text := safe(c.Name)
	if c.Session > 1 {
		text += fmt.Sprintf("/%d", c.Session)
	}
	exit, pid := "", ""
	if c.Exited {
		exit = exitText(c)
	} else if c.PID > 0 && wide {
		pid = fmt.Sprintf("pid %d", c.PID)
	}
	// The exit comes first: there may be little room.
	return trace.Join(" · ", text, exit, safe(c.Transport), safe(c.Negotiated), safe(c.Era), pid)
}

// exitText returns how the process of a session ended, and which session replaced it.
func exitText(c *trace.SessionInfo) string {
	text := fmt.Sprintf("exit %d", c.ExitCode)
	if c.Signal != "" {
		text = safe(c.Signal)
	}
	if c.Successor > 0 {
		text += fmt.Sprintf(", now /%d", c.Successor)
	}
	return text
}

func (m *model) filterBar() string {
	t, q := m.theme, &m.table.query
	if p := m.dialogs.prompt; p != nil && p.isFilter {
		return p.bar(m.table.matchText())
	}
	l := line{{t.key.plus(bold), " / "}}
	if q.findingsOnly {
		l = append(l, span{t.finding, "▲ only with findings  "})
	}
	return append(l, span{t.text, safe(q.text)}, span{t.dim, m.table.matchText()}).draw(m.width)
}

// footer draws the last line: a prompt, a message, or the keys.
func (m *model) footer(keys line) string {
	t := m.theme
	switch p := m.dialogs.prompt; {
	case p != nil && (!p.isFilter || m.dialogs.overlay != nil):
		return p.View()
	case p != nil && p.invalid() != nil:
		return line{{t.failure, " ✖ " + safe(p.invalid().Message)}}.draw(m.width)
	case m.flash.bad:
		return line{{t.failure, " ✖ " + m.flash.text}}.draw(m.width)
	case m.flash.text != "":
		return line{{t.text, " · " + m.flash.text}}.draw(m.width)
	}
	return keys.draw(m.width)
}

// keysLine returns the state of the table and the most useful keys.
func (m *model) keysLine() line {
	pairs := []string{"?", "help", "/", "filter", "Enter", "open", "f", "follow", "p", "pause", "␣", "unfold", "x", "frames", "s", "tools", "c", "session", ":", "commands", "q", "quit"}
	if m.pane.open && m.paneFocused {
		pairs = []string{"Esc", "back", "1-9", "tabs", "/", "search", "y", "copy", "Y", "as command", "Tab", "table", "z", "zoom", "?", "help"}
	}
	return m.theme.footer(m.table.stateLine(), pairs, m.table.countText(), m.width)
}

// footer returns a line of a state, as many of the keys as there is room for, and a text at the
// right.
func (t *theme) footer(state line, pairs []string, right string, columns int) line {
	keys := t.hints(pairs...)
	for state.width()+keys.width()+width(right)+1 > columns && len(keys) > 0 {
		keys = keys[:len(keys)-2]
	}
	l := append(state, keys...)
	if gap := columns - l.width() - width(right) - 1; gap >= 0 {
		l = append(l, span{"", spaces(gap)}, span{t.dim, right})
	}
	return l
}

func (t *theme) hints(pairs ...string) line {
	var l line
	for i := 0; i+1 < len(pairs); i += 2 {
		l = append(l, span{t.key.plus(bold), " " + pairs[i]}, span{t.dim, " " + pairs[i+1] + " "})
	}
	return l
}
