package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/trace"
	"mcpwire/internal/view/watch"
)

// refresh copies the visible lines. It returns commands for a needed detail and the next tick.
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

// nextTick requests a tick if a timer runs and no tick is pending.
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

// A rect is a rectangle on the screen.
type rect struct{ x, y, w, h int }

func (r rect) has(x, y int) bool { return x >= r.x && x < r.x+r.w && y >= r.y && y < r.y+r.h }

// areas are the parts of the screen. A part without room has height 0.
type areas struct {
	header, filter, heads, table, pane, footer rect
	// rule is the line between table and pane, vertical or horizontal.
	rule rect
}

const (
	splitRight = 110 // minimum columns for the pane beside the table
	splitBelow = 18  // minimum lines for it below; else it fills the screen
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

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.MouseMode = tea.MouseModeCellMotion
	v.WindowTitle = "mcpwire watch"
	v.Cursor = m.cursorShape()
	return v
}

// screen returns the lines of the screen, in full width.
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

// drawRule draws the line between table and pane.
func (m *model) drawRule(b *strings.Builder, i int) {
	r := m.view.area.rule
	text := "│"
	if r.w > 1 {
		text = strings.Repeat("─", r.w)
	}
	writeStyled(b, m.theme.rule, text)
}

// cursorShape returns the terminal's cursor for the input, or nil.
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

func number[T uint64 | int](n T) string { return strconv.FormatUint(uint64(n), 10) }

// joinNonEmpty joins the parts that are not empty.
func joinNonEmpty(parts ...string) string {
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return strings.Join(list, " ")
}

// drawHeader draws the first line: the sources, and the session of the cursor's row.
func (m *model) drawHeader(b *strings.Builder) {
	t := m.theme
	base := t.title
	left := line{{bold, " mcpwire"}, {"", "  "}}
	left = append(left, m.sourceSpans()...)
	right := m.sessionText()
	room := m.width - left.width() - 2
	if width(right) > room {
		right = cut(right, room)
	}
	if room < 12 {
		right = ""
	}
	left = append(left, span{"", spaces(m.width - left.width() - width(right) - 1)}, span{t.dim, right})
	left.appendTo(b, m.width, base, false)
}

// sourceSpans counts the sources by state.
func (m *model) sourceSpans() line {
	t := m.theme
	var live, growing, done, failed int
	for _, s := range m.sources {
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

// sessionText describes the session of the cursor's row.
func (m *model) sessionText() string {
	if !m.view.hasSession {
		return ""
	}
	c := &m.view.session
	text := safe(c.Name)
	if c.Session > 1 {
		text += fmt.Sprintf("/%d", c.Session)
	}
	var rest []string
	if c.Exited { // first: there may be little room
		rest = append(rest, exitText(c))
	}
	rest = append(rest, safe(c.Transport), safe(c.Negotiated), safe(c.Era))
	if !c.Exited && c.PID > 0 && m.width >= 100 {
		rest = append(rest, fmt.Sprintf("pid %d", c.PID))
	}
	for _, r := range rest {
		if r != "" {
			text += " · " + r
		}
	}
	return text
}

// exitText tells how the process of a session ended, and which session replaced it.
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

// hasFilterBar reports whether the filter bar is shown.
func (m *model) hasFilterBar() bool {
	return m.query.text != "" || m.query.findingsOnly || m.prompt != nil && m.prompt.kind == filterPrompt
}

// drawFilter draws the filter bar and marks a syntax error.
func (m *model) drawFilter(b *strings.Builder) {
	t, w := m.theme, m.width
	p := m.prompt
	if p == nil || p.kind != filterPrompt {
		l := line{{t.key.plus(bold), " / "}}
		if m.query.findingsOnly {
			l = append(l, span{t.finding, "▲ only with findings  "})
		}
		l = append(l, span{t.text, safe(m.query.text)})
		l = append(l, span{t.dim, m.matchText()})
		l.appendTo(b, w, "", false)
		return
	}
	text, _ := p.window(p.room(w))
	l := line{{t.key.plus(bold), " / "}, {t.text, text}}
	if p.filterErr == nil {
		if len(p.text) == 0 {
			l = append(l, span{t.dim, " tool:search  status:error  dur>500ms  words  -method:ping"})
		} else {
			l = append(l, span{t.dim, m.matchText()})
		}
		l.appendTo(b, w, "", false)
		return
	}
	l = line{{"", " / "}}
	at := p.filterErr.Column - 1
	// If the text is scrolled, its end is visible.
	from := len(p.text) - len([]rune(text))
	if p.pos < len(p.text) {
		from = 0
	}
	before, after := splitAt(text, at-from)
	l = append(l, span{"", before}, span{underline, firstRune(after)}, span{"", afterFirstRune(after)}, span{bold, "  ✖ column " + number(p.filterErr.Column)})
	l.appendTo(b, w, t.invalid, false)
}

// splitAt splits a text before the character n.
func splitAt(s string, n int) (before, after string) {
	r := []rune(s)
	n = min(max(0, n), len(r))
	return string(r[:n]), string(r[n:])
}

func firstRune(s string) string {
	before, _ := splitAt(s, 1)
	if before == "" {
		return " "
	}
	return before
}

func afterFirstRune(s string) string {
	_, after := splitAt(s, 1)
	return after
}

// matchText tells how many rows match the filter.
func (m *model) matchText() string {
	switch {
	case m.query.busy:
		return "   filtering …"
	case m.view.searching:
		return fmt.Sprintf("   %d so far, searched %d %%", m.matchCount(), int(m.view.searchShare*100))
	}
	return fmt.Sprintf("   %d of %d", m.matchCount(), m.view.all)
}

// matchCount returns the number of items in the table, including those since the pause.
func (m *model) matchCount() int { return m.view.items + m.view.sincePause }

// drawFooter draws the last line: a message, a prompt, or the state and the most useful keys.
func (m *model) drawFooter(b *strings.Builder) {
	switch {
	case m.prompt != nil && m.prompt.kind != filterPrompt:
		m.prompt.line(m).appendTo(b, m.width, "", false)
		return
	case m.prompt != nil && m.prompt.filterErr != nil:
		line{{m.theme.failure, " ✖ " + safe(m.prompt.filterErr.Message)}}.appendTo(b, m.width, "", false)
		return
	case m.flash.text != "":
		m.flashLine().appendTo(b, m.width, "", false)
		return
	}
	l := m.followState()
	keys := m.hints(m.keyHints()...)
	right := m.position()
	for l.width()+keys.width()+width(right)+1 > m.width && len(keys) > 0 {
		keys = keys[:len(keys)-2]
	}
	l = append(l, keys...)
	if gap := m.width - l.width() - width(right) - 1; gap >= 0 {
		l = append(l, span{"", spaces(gap)}, span{m.theme.dim, right})
	}
	l.appendTo(b, m.width, "", false)
}

func (m *model) flashLine() line {
	st, sign := m.theme.text, " · "
	if m.flash.bad {
		st, sign = m.theme.failure, " ✖ "
	}
	return line{{st, sign + m.flash.text}}
}

// followState tells whether the table is paused or follows.
func (m *model) followState() line {
	t := m.theme
	var l line
	switch {
	case m.pause != nil:
		text := " ‖ paused"
		if m.view.sincePause > 0 {
			text += fmt.Sprintf(", %d new", m.view.sincePause)
		}
		l = line{{t.finding.plus(bold), text}}
	case m.follow:
		l = line{{t.response, " ▼ follow"}}
	}
	if m.frames != nil {
		l = append(l, span{t.serverRequest, " ≡ frames"})
	}
	return append(l, span{"", " "})
}

// position describes the position of the cursor.
func (m *model) position() string {
	if m.view.cursor < 0 {
		return ""
	}
	text := fmt.Sprintf("%d", m.view.items)
	what := " exchange"
	if m.frames != nil {
		what = " frame"
	}
	if m.view.items != 1 {
		what += "s"
	}
	if m.width < 60 {
		what = ""
	}
	if m.view.dropped > 0 && m.width >= 100 {
		what += fmt.Sprintf(", %d older ones removed", m.view.dropped)
	}
	return text + what
}

// keyHints returns the most useful keys in the current state.
func (m *model) keyHints() []string {
	if m.pane != nil && m.focus == onPane {
		return []string{"Esc", "back", "1-9", "tabs", "/", "search", "y", "copy", "Y", "as command", "Tab", "table", "z", "zoom", "?", "help"}
	}
	return []string{"?", "help", "/", "filter", "Enter", "open", "f", "follow", "p", "pause", "␣", "unfold", "x", "frames", "s", "tools", "c", "session", "q", "quit"}
}

// hints formats keys with their actions.
func (m *model) hints(pairs ...string) line {
	var l line
	for i := 0; i+1 < len(pairs); i += 2 {
		l = append(l, span{m.theme.key.plus(bold), " " + pairs[i]}, span{m.theme.dim, " " + pairs[i+1] + " "})
	}
	return l
}
