package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
)

// An overlay is a component: a text that fills the screen until it is closed.
type overlay struct {
	*shared
	title string
	pager *pager
	// copy is the text that y copies.
	copy string
	// alternate is the action of Y. Nil means none.
	alternate func() tea.Cmd
	// alternateName is the name of that action, for the last line.
	alternateName string
}

func newOverlay(s *shared, title string, render func(r *renderer) []line) *overlay {
	o := &overlay{shared: s, title: title, pager: newPager(s, render)}
	o.fit()
	return o
}

func (o *overlay) fit() {
	o.pager.fit(renderer{theme: o.theme, zone: o.zone}, o.width, max(1, o.height-2))
}

// key handles the keys of the text, and those that copy it.
func (o *overlay) key(k string) tea.Cmd {
	switch {
	case k == "y" && o.copy != "":
		return o.copyText("it", o.copy)
	case k == "Y" && o.alternate != nil:
		return o.alternate()
	}
	o.pager.key(k)
	return nil
}

// find searches for a text.
func (o *overlay) find(text string) *pager {
	o.pager.find(text)
	o.pager.firstMatch()
	return o.pager
}

// View draws the overlay, without the last line of the screen.
func (o *overlay) View() string {
	text := o.pager.View()
	if o.height > 2 {
		text = line{{o.theme.title.plus(bold), " " + o.title}}.drawOver(o.theme.title, o.width) + "\n" + text
	}
	return text
}

// footer returns the last line: the keys, and the visible part of the text.
func (o *overlay) footer() line {
	p := o.pager
	right := ""
	if p.search != "" {
		right = fmt.Sprintf("%d found  ", len(p.matches))
	}
	if len(p.wrapped) > p.height {
		right += fmt.Sprintf("%d–%d of %d", p.top+1, min(len(p.wrapped), p.top+p.height), len(p.wrapped))
	}
	pairs := []string{"Esc", "back", "/", "search"}
	if p.search != "" {
		pairs = append(pairs, "n/N", "next")
	}
	if o.copy != "" {
		pairs = append(pairs, "y", "copy")
	}
	if o.alternate != nil {
		pairs = append(pairs, "Y", o.alternateName)
	}
	return o.theme.footer(nil, pairs, right, o.width)
}

// factWidth is the width of fact names.
const factWidth = 13

func (r *renderer) session(c *trace.SessionInfo) []line {
	t := r.theme
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
		fact("cause", safe(c.Cause))
		fact("remedy", safe(c.Fix))
		if c.Successor > 0 {
			out = append(out, line{{"", spaces(factWidth)}, {t.text, fmt.Sprintf("started again as session %d", c.Successor)}})
		}
	}
	fact("recorded by", safe(c.Tool))
	fact("redaction", safe(string(c.Redact)))
	fact("rows", fmt.Sprint(c.Rows))
	if !c.First.IsZero() {
		fact("from", c.First.In(r.zone).Format("2006-01-02 15:04:05.000"))
		fact("to", c.Last.In(r.zone).Format("2006-01-02 15:04:05.000"))
	}
	for _, p := range []struct {
		who  string
		peer trace.PeerInfo
		sign string
		st   style
	}{{"Client", c.Client, "→", t.request}, {"Server", c.Server, "←", t.response}} {
		name := trace.Join(" ", safe(p.peer.Name), safe(p.peer.Version))
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

func (m *model) openStats() {
	var tools, methods []statLine
	m.src.Read(func(w *trace.Model) { tools, methods = statLines(w.Tools()), statLines(w.Methods()) })
	m.dialogs.openTable("Tools and methods", func(r *renderer) []line {
		both := append(tools[:len(tools):len(tools)], methods...)
		table := func(what string, list []statLine) []line {
			return r.stats(list, both, what, "wrong", "p50", "p95", "max", "req", "res", "defined")
		}
		out := table("tool", tools)
		if len(tools) == 0 {
			out = []line{{{r.theme.dim, "No tool was listed or called yet."}}}
		}
		if len(methods) == 0 {
			return out
		}
		return append(append(out, nil), table("method", methods)...)
	})
}

// A statLine is a formatted Stat.
type statLine struct {
	name         string
	calls, wrong uint64
	// cells are the other figures, by the head of their column.
	cells map[string]string
	hist  string
}

// maxStats limits the tools and the methods shown.
const maxStats = 1000

func statLines(list []*trace.Stat) []statLine {
	several := slices.ContainsFunc(list, func(s *trace.Stat) bool { return s.Server != list[0].Server })
	var out []statLine
	for _, s := range list[:min(len(list), maxStats)] {
		x := statLine{name: safe(s.Name), calls: s.Calls, wrong: s.Errors + s.ToolErrors + s.Unanswered, cells: map[string]string{}}
		if several {
			x.name = safe(s.Server) + " " + x.name
		}
		for head, n := range map[string]int64{"req": s.BytesIn, "res": s.BytesOut, "defined": s.DefinitionBytes} {
			if n != 0 {
				x.cells[head] = trace.FormatSize(n)
			}
		}
		if s.Latency.Count() > 0 {
			for head, q := range map[string]float64{"p50": .5, "p95": .95, "p99": .99, "max": 1} {
				x.cells[head] = trace.FormatDuration(s.Latency.Quantile(q))
			}
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
		if b.Count == 0 {
			out = append(out, ' ')
		} else {
			out = append(out, blocks[int((b.Count*7+most/2)/most)%len(blocks)])
		}
	}
	return string(out)
}

// stats formats statistics as a table with the given heads: of names, of failures, and of other
// columns, of which a narrow screen has only percentiles. The columns fit all lines in all, so that
// several tables align.
func (r *renderer) stats(list, all []statLine, what, wrong string, columns ...string) []line {
	t := r.theme
	name := width(what)
	for _, s := range all {
		name = max(name, width(s.name))
	}
	if r.columns-82 < name {
		columns = slices.DeleteFunc(slices.Clone(columns), func(head string) bool { return head[0] != 'p' })
	}
	name = min(name, max(10, r.columns-46))
	head := pad(what, name) + padLeft("calls", 7) + padLeft(wrong, len(wrong)+2)
	for _, c := range columns {
		head += padLeft(c, 9)
	}
	out := []line{{{t.head, head + "  latency"}}}
	for _, s := range list {
		failed, st := "", t.dim
		if s.wrong > 0 {
			failed, st = "✖ "+number(s.wrong), t.failure
		}
		l := line{{t.text, pad(s.name, name)}, {t.text, padLeft(number(s.calls), 7)}, {st, padLeft(failed, len(wrong)+2)}}
		for _, c := range columns {
			st := t.dim
			if c[0] == 'p' {
				st = t.text
			}
			l = append(l, span{st, padLeft(s.cells[c], 9)})
		}
		out = append(out, append(l, span{t.bar, "  " + s.hist}))
	}
	return out
}

// help returns the keys with their actions, the signs and the filters.
func (r *renderer) help() []line {
	t := r.theme
	var out []line
	for _, g := range helpKeys() {
		out = append(out, line{{t.head, g.title}})
		for _, k := range g.keys {
			out = append(out, line{{t.key, "  " + pad(k[0], 11)}, {t.text, k[1]}})
		}
		out = append(out, nil)
	}
	return append(append(append(out, t.helpSigns()...), nil), t.helpFilters()...)
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
			{"Esc", "back one step: close the detail, end a pause, end a sort, clear the filter"},
			{"/", "filter; in a detail: search"},
			{": Ctrl+P", "commands: type a part of the name"},
			{"F", "facets: servers, statuses, kinds and findings with counts"},
			{"L O", "servers and captures; overview: calls over time, p50, p95, p99"},
			{"l", "only rows with findings"},
			{"a", "sort by latency, size, findings, name or server; Esc: by time"},
			{"C", "columns: show, hide, make wider or narrower"},
			{"x", "exchanges, or frames: one row per event"},
			{"t", "time: clock, since the start, since the row above"},
			{"o", "the other side of what a bridge forwarded, and back"},
			{"b", "bytes as text or hexadecimal"},
			{"< >", "move the border between table and detail"},
			{"v e", "the message in $PAGER, in $EDITOR"},
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
			{"Ctrl+S", "save what is shown: as a capture, or as text if the name ends in .txt"},
			{"i", "held messages: pass, edit, drop, delay or answer (tap --intercept)"},
			{"w", "restart the server, if its tap can"},
			{"q", "leave"},
		}},
	}
}

func (t *theme) helpSigns() []line {
	out := []line{{{t.head, "Signs"}}}
	for _, s := range []struct {
		st         style
		sign, text string
	}{
		{t.request, "→", "a request with a response"}, {t.serverRequest, "⇠", "a request of the server"}, {t.failure, "✖", "an error, or no response"},
		{t.toolFail, "!", "the tool failed"}, {t.pending, "…", "no response yet; ? it waits for the user"}, {t.notification, "•", "a notification; something else that happened"},
		{t.finding, "▲", "a finding of the rules; what is not a message"}, {t.stderr, "~", "what the process wrote to standard error"}, {t.finding, "▒", "events are missing; ⊘ cancelled"},
		{t.bar, "█", "in the waterfall: the server works, ▒ waits for the client, ━ a task, ─ a stream, › continues, ┊ idle time"},
	} {
		out = append(out, line{{s.st, "  " + pad(s.sign, 11)}, {t.text, s.text}})
	}
	return out
}

func (t *theme) helpFilters() []line {
	out := []line{{{t.head, "Filters"}}}
	for _, f := range [][2]string{
		{"tool:search", "contains, tool:=search is; also target method id task dir kind status server session era rev finding"},
		{"status:error", "ok error toolfailed needsinput task cancelled pending noresponse http, or a code"},
		{"dur>500ms size>1MB", "took longer, is larger"},
		{"words \"two words\"", "in payloads; /regular expression/ as well"},
		{"has:_meta.x jq:(…)", "a member, a jq program"},
		{"-a  a | b  (a b)", "not, or, groups"},
	} {
		out = append(out, line{{t.key, "  " + pad(f[0], 20)}, {t.text, f[1]}})
	}
	return out
}
