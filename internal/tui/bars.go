package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/watch"
	"mcpwire/internal/wireview"
)

func number[T uint64 | int](n T) string { return strconv.FormatUint(uint64(n), 10) }

// joinNonEmpty puts what is not empty together.
func joinNonEmpty(parts ...string) string {
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return strings.Join(list, " ")
}

// drawHeader draws the first line: what is watched, and the session of the row of the cursor.
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

// sourceSpans counts the sources by what becomes of them.
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

// sessionText says in which session the cursor is.
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
	if c.Exited { // first: there may be no room for all
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

// exitText says how the process of a session ended, and that it runs again, if so.
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

// hasFilterBar reports whether the filter has a line.
func (m *model) hasFilterBar() bool {
	return m.query.text != "" || m.query.findingsOnly || m.prompt != nil && m.prompt.kind == filterPrompt
}

// drawFilter draws the filter bar. It turns red where something is wrong, and says what.
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
	from := len(p.text) - len([]rune(text)) // the text may be scrolled: its end is visible then
	if p.pos < len(p.text) {
		from = 0
	}
	before, after := splitAt(text, at-from)
	l = append(l, span{"", before}, span{underline, firstRune(after)}, span{"", afterFirstRune(after)}, span{bold, "  ✖ column " + number(p.filterErr.Column)})
	l.appendTo(b, w, t.invalid, false)
}

// splitAt splits a text before a character.
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

// matchText says how many rows the filter lets through.
func (m *model) matchText() string {
	switch {
	case m.query.busy:
		return "   filtering …"
	case m.view.searching:
		return fmt.Sprintf("   %d so far, searched %d %%", m.matchCount(), int(m.view.searchShare*100))
	}
	return fmt.Sprintf("   %d of %d", m.matchCount(), m.view.all)
}

// matchCount is how many items the table has, with those that came since the pause.
func (m *model) matchCount() int { return m.view.items + m.view.sincePause }

// drawFooter draws the last line: a message or a prompt, else the state and the most useful keys.
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

// followState says whether the table moves.
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

// position says where the cursor is.
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
		what += fmt.Sprintf(", %d older ones gone", m.view.dropped)
	}
	return text + what
}

// keyHints are the keys to remember here.
func (m *model) keyHints() []string {
	if m.pane != nil && m.focus == onPane {
		return []string{"Esc", "back", "1-9", "tabs", "/", "search", "y", "copy", "Y", "as command", "Tab", "table", "z", "zoom", "?", "help"}
	}
	return []string{"?", "help", "/", "filter", "Enter", "open", "f", "follow", "p", "pause", "␣", "unfold", "x", "frames", "s", "tools", "c", "session", "q", "quit"}
}

// hints are keys with what they do.
func (m *model) hints(pairs ...string) line {
	var l line
	for i := 0; i+1 < len(pairs); i += 2 {
		l = append(l, span{m.theme.key.plus(bold), " " + pairs[i]}, span{m.theme.dim, " " + pairs[i+1] + " "})
	}
	return l
}

// emptyTableLine is what stands in a table without rows, so that its user knows why.
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
		text = []line{{{t.dim, "Putting the frames in order …"}}}
	case m.view.all > 0:
		text = []line{{{t.text, "None of " + number(m.view.all) + " exchanges match."}}, {{t.dim, "/ changes the filter, Esc takes it away."}}}
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

// emptyHelp says how to get something to see.
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
		return append(out, line{{t.text, "Nothing has come over the wire yet."}}, line{{t.dim, "It appears here as soon as it does."}})
	case len(m.sources) > len(out):
		return append(out, line{{t.text, "There is nothing in what was recorded."}}, line{{t.dim, "Nobody writes it any more."}})
	}
	if out = append(out, line{{t.text, "Nothing to see yet: no tap runs."}}); m.height > 12 {
		out = append(out, line{{t.dim, "What taps see appears here at once. To start one:"}}, nil)
	}
	for _, x := range [][2]string{{"for a server", "mcpwire tap -- CMD…"}, {"on HTTP", "mcpwire tap --listen ADDR URL"}, {"in a host", "mcpwire wrap NAME"}} {
		out = append(out, line{{t.dim, pad(x[0], 14)}, {t.key, x[1]}})
	}
	return out
}
