package tui

import (
	"cmp"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/trace"
)

// An overlay is a text that fills the screen until it is closed.
type overlay struct {
	title string
	pager *pager
	// render renders the text again, for another theme. If it is nil, the text stays.
	render func() []line
	// copy is the text that y copies.
	copy string
	// alternate is the action of Y. Nil means none.
	alternate func() tea.Cmd

	// alternateName is the name of that action, for the last line.
	alternateName string
}

func newOverlay(title string, again func() []line) *overlay {
	return &overlay{title: title, pager: newPager(again()), render: again}
}

// drawOverlay draws the overlay.
func (m *model) drawOverlay() string {
	o := m.overlay
	height := m.overlayHeight()
	o.pager.wrapTo(max(1, m.width-2))
	o.pager.scroll(0, height)
	lines := make([]string, 0, m.height)
	add := func(l line, base style) {
		if len(lines) < m.height {
			var b strings.Builder
			l.appendTo(&b, m.width, base, false)
			lines = append(lines, b.String())
		}
	}
	if m.height > 2 {
		add(line{{m.theme.title.plus(bold), " " + o.title}}, m.theme.title)
	}
	for i := range height {
		add(append(line{{"", " "}}, o.pager.lineAt(i, m.theme.match)...), "")
	}
	if m.height > 1 {
		add(m.overlayFooter(height), "")
	}
	return strings.Join(lines, "\n")
}

// overlayHeight returns the number of text lines of an overlay.
func (m *model) overlayHeight() int {
	return max(1, m.height-2)
}

func (m *model) overlayFooter(height int) line {
	if m.prompt != nil {
		return m.prompt.line(m)
	}
	if m.flash.text != "" {
		return m.flashLine()
	}
	p := m.overlay.pager
	right := ""
	if p.search != "" {
		right = fmt.Sprintf("%d found  ", len(p.matches))
	}
	if len(p.wrapped) > height {
		right += fmt.Sprintf("%d–%d of %d", p.top+1, min(len(p.wrapped), p.top+height), len(p.wrapped))
	}
	pairs := []string{"Esc", "back", "/", "search"}
	if p.search != "" {
		pairs = append(pairs, "n/N", "next")
	}
	if m.overlay.copy != "" {
		pairs = append(pairs, "y", "copy")
	}
	if m.overlay.alternate != nil {
		pairs = append(pairs, "Y", m.overlay.alternateName)
	}
	l := m.hints(pairs...)
	for l.width()+width(right)+1 > m.width && len(l) > 0 {
		l = l[:len(l)-2]
	}
	return append(l, span{"", spaces(m.width - l.width() - width(right) - 1)}, span{m.theme.dim, right})
}

// factWidth is the width of fact names.
const factWidth = 13

// cardOverlay shows a session.
func (m *model) cardOverlay() *overlay {
	c := m.view.session
	return newOverlay("Session", func() []line { return m.cardLines(&c) })
}

func (m *model) cardLines(c *trace.SessionInfo) []line {
	t := m.theme
	var out []line
	fact := func(name, value string) {
		if value != "" {
			out = append(out, line{{t.dim, pad(name, factWidth)}, {t.text, value}})
		}
	}
	out = append(out, line{{bold, safe(c.Name)}, {t.dim, fmt.Sprintf("  session %d of capture %s", c.Session, safe(c.Capture))}}, nil)
	fact("transport", safe(c.Transport))
	fact("era", cmp.Or(safe(c.Era), "not known yet"))
	fact("offered", safe(c.Offered))
	fact("answered", safe(c.Negotiated))
	if c.Offered != "" && c.Negotiated != "" && c.Offered != c.Negotiated {
		out = append(out, line{{"", spaces(factWidth)}, {t.finding, "▲ the server responded with another revision than the client offered"}})
	}
	fact("supported", safe(strings.Join(c.Supported, ", ")))
	fact("command", safe(strings.Join(c.Command, " ")))
	if c.PID > 0 {
		fact("pid", fmt.Sprint(c.PID))
	}
	if c.Exited {
		text, st := fmt.Sprintf("- exited with %d", c.ExitCode), t.dim
		if c.Signal != "" {
			text = "- terminated by " + safe(c.Signal)
		}
		if c.ExitCode != 0 {
			st, text = t.failure, "✖"+text[1:]
		}
		out = append(out, line{{t.dim, pad("process", factWidth)}, {st, text}})
		if c.Successor > 0 {
			out = append(out, line{{"", spaces(factWidth)}, {t.text, fmt.Sprintf("started again as session %d", c.Successor)}})
		}
	}
	fact("recorded by", safe(c.Tool))
	fact("redaction", safe(c.Redact))
	fact("exchanges", fmt.Sprint(c.Rows))
	if !c.First.IsZero() {
		fact("from", c.First.In(m.zone).Format("2006-01-02 15:04:05.000"))
		fact("to", c.Last.In(m.zone).Format("2006-01-02 15:04:05.000"))
	}
	for _, p := range []struct {
		who  string
		peer trace.PeerInfo
		sign string
		st   style
	}{{"Client", c.Client, "→", t.request}, {"Server", c.Server, "←", t.response}} {
		name := joinNonEmpty(safe(p.peer.Name), safe(p.peer.Version))
		out = append(out, nil, line{{p.st, p.sign + " "}, {t.head, p.who + "  "}, {t.text, cmp.Or(name, "has not identified itself")}})
		if len(p.peer.Capabilities) == 0 {
			out = append(out, line{{t.dim, "  no capabilities seen"}})
		}
		for _, x := range p.peer.Capabilities {
			out = append(out, line{{t.dim, "  · "}, {t.text, safe(x)}})
		}
	}
	return out
}

// toolsOverlay shows the statistics of tools and methods.
func (m *model) toolsOverlay() *overlay {
	var tools, methods []statLine
	m.src.Read(func(w *trace.Model) { tools, methods = statLines(w.Tools()), statLines(w.Methods()) })
	o := newOverlay("Tools and methods", func() []line {
		both := append(tools[:len(tools):len(tools)], methods...)
		out := m.statTable("tool", tools, both)
		if len(tools) == 0 {
			out = []line{{{m.theme.dim, "No tool was listed or called yet."}}}
		}
		if len(methods) == 0 {
			return out
		}
		return append(append(out, nil), m.statTable("method", methods, both)...)
	})
	o.pager.wraps = false // keep the columns of the table
	return o
}

// A statLine is a formatted Stat.
type statLine struct {
	name             string
	calls, wrong     uint64
	p50, p95, most   string
	in, out, defines int64
	hist             string
}

// maxStats limits the tools and the methods shown.
const maxStats = 1000

func statLines(list []*trace.Stat) []statLine {
	several := false
	for _, s := range list {
		several = several || s.Server != list[0].Server
	}
	var out []statLine
	for _, s := range list[:min(len(list), maxStats)] {
		x := statLine{name: safe(s.Name), calls: s.Calls, wrong: s.Errors + s.ToolErrors + s.Unanswered, in: s.BytesIn, out: s.BytesOut, defines: s.DefinitionBytes}
		if several {
			x.name = safe(s.Server) + " " + x.name
		}
		if s.Latency.Count() > 0 {
			x.p50, x.p95, x.most = trace.FormatDuration(s.Latency.Quantile(.5)), trace.FormatDuration(s.Latency.Quantile(.95)), trace.FormatDuration(s.Latency.Max())
			x.hist = histogram(s.Latency.Buckets(histColumns))
		}
		out = append(out, x)
	}
	return out
}

// histColumns is the width of a histogram.
const histColumns = 12

// histogram draws buckets as blocks whose heights show their shares.
func histogram(list []trace.Bucket) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	most := uint64(1)
	for _, b := range list {
		most = max(most, b.Count)
	}
	var out []rune
	for _, b := range list {
		switch {
		case b.Count == 0:
			out = append(out, ' ')
		default:
			out = append(out, blocks[int((b.Count*7+most/2)/most)%len(blocks)])
		}
	}
	return string(out)
}

// statTable formats statistics for the width of the screen. The columns fit all lines in all, so
// that several tables align.
func (m *model) statTable(what string, list, all []statLine) []line {
	t := m.theme
	name := width(what)
	for _, s := range all {
		name = max(name, width(s.name))
	}
	wide := m.width-84 >= name
	name = min(name, max(10, m.width-48))
	head := pad(what, name) + padLeft("calls", 7) + padLeft("wrong", 7) + padLeft("p50", 9) + padLeft("p95", 9)
	if wide {
		head += padLeft("max", 9) + padLeft("req", 9) + padLeft("res", 9) + padLeft("defined", 9)
	}
	out := []line{{{t.head, head + "  latency"}}}
	for _, s := range list {
		wrong, st := "", t.dim
		if s.wrong > 0 {
			wrong, st = "✖ "+number(s.wrong), t.failure
		}
		l := line{{t.text, pad(s.name, name)}, {t.text, padLeft(number(s.calls), 7)}, {st, padLeft(wrong, 7)}, {t.text, padLeft(s.p50, 9) + padLeft(s.p95, 9)}}
		if wide {
			l = append(l, span{t.dim, padLeft(s.most, 9) + sizeOrNone(s.in) + sizeOrNone(s.out) + sizeOrNone(s.defines)})
		}
		out = append(out, append(l, span{t.bar, "  " + s.hist}))
	}
	return out
}

func sizeOrNone(n int64) string {
	if n == 0 {
		return spaces(9)
	}
	return padLeft(trace.FormatSize(n), 9)
}

// helpLines returns the keys with their actions.
func (m *model) helpLines() []line {
	t := m.theme
	var out []line
	for _, g := range helpKeys() {
		out = append(out, line{{t.head, g.title}})
		for _, k := range g.keys {
			out = append(out, line{{t.key, "  " + pad(k[0], 11)}, {t.text, k[1]}})
		}
		out = append(out, nil)
	}
	return append(append(append(out, m.helpSigns()...), nil), m.helpFilters()...)
}

// A helpGroup is a group of keys.
type helpGroup struct {
	title string
	keys  [][2]string
}

func helpKeys() []helpGroup {
	return []helpGroup{
		{"Moving", [][2]string{
			{"j k ↑ ↓", "a line; PgUp PgDn a page, Ctrl+U Ctrl+D half of one"},
			{"g G", "the beginning, the end"},
			{"f", "follow: stay on the newest"},
			{"p", "pause: the list stops, no rows are lost"},
			{"n N", "the next or previous row with an error or a finding; in a text, the next match"},
			{"space ← →", "expand or collapse a row; * all rows"},
		}},
		{"Looking", [][2]string{
			{"Enter", "open a row; again, or z: full size"},
			{"1 … 9", "tabs; ← → the next tab. Tab switches between table and detail, J K go to other rows"},
			{"Esc", "back: close the detail, end a pause, clear the filter"},
			{"/", "filter; in a detail: search"},
			{"l", "only rows with findings"},
			{"x", "exchanges, or frames: one row per event"},
			{"t", "time: clock, since the start, since the row above"},
			{"o", "the other side of what a bridge forwarded, and back"},
			{"b", "bytes as text or hexadecimal"},
			{"W", "wrap long lines of a text, or cut them"},
			{"c", "the session: versions, capabilities of both sides, process"},
			{"s", "tools: calls, errors, p50 and p95, latency histogram"},
		}},
		{"Doing", [][2]string{
			{"m d", "mark a row; compare two marked rows"},
			{"y", "copy the payload that is shown, or the request of a row in the table"},
			{"Y", "copy as a command: mcpwire call; again, or in the HTTP tab: curl"},
			{"r", "send a request again to a fresh copy of the server"},
			{"E", "edit it first"},
			{"e", "save what is shown: as a capture, or as text if the name ends in .txt"},
			{"w", "restart the server, if its tap can"},
			{"q", "leave"},
		}},
	}
}

func (m *model) helpSigns() []line {
	t := m.theme
	out := []line{{{t.head, "Signs"}}}
	for _, s := range []struct {
		st         style
		sign, text string
	}{
		{t.request, "→", "a request with a response"}, {t.serverRequest, "⇠", "a request of the server"}, {t.failure, "✖", "an error, or no response"},
		{t.toolFail, "!", "the tool failed"}, {t.pending, "…", "no response yet; ? it waits for the user"}, {t.notification, "•", "a notification; something else that happened"},
		{t.finding, "▲", "a finding of the rules; what is not a message"}, {t.stderr, "~", "what the process wrote to standard error"}, {t.finding, "▒", "events are missing; ⊘ cancelled"},
		{t.bar, "█", "in the waterfall: the server works, ▒ waits for the client, ━ a task, ─ a stream, › continues"},
	} {
		out = append(out, line{{s.st, "  " + pad(s.sign, 11)}, {t.text, s.text}})
	}
	return out
}

func (m *model) helpFilters() []line {
	t := m.theme
	out := []line{{{t.head, "Filters"}}}
	for _, f := range [][2]string{
		{"tool:search", "also target method id task dir kind status server session era rev finding"},
		{"status:error", "ok error iserror input_required task cancelled pending unanswered http, or a code"},
		{"dur>500ms size>1MB", "took longer, is larger"},
		{"words \"two words\"", "in payloads; /regular expression/ as well"},
		{"has:_meta.x jq:(…)", "a member, a jq program"},
		{"-a  a | b  (a b)", "not, or, groups"},
	} {
		out = append(out, line{{t.key, "  " + pad(f[0], 20)}, {t.text, f[1]}})
	}
	return out
}
