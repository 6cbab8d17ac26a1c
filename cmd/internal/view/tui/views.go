package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/text/plural"
)

// A command is an entry of the palette: what a key does.
type command struct{ key, name string }

// commands are the entries of the palette.
func commands() []command {
	return []command{
		{"/", "filter"}, {"F", "facets: filter by server, status, kind or finding"}, {"l", "only rows with findings"}, {"a", "sort the list"}, {"C", "columns: show, hide, width"},
		{"L", "servers and captures"}, {"O", "overview: calls, errors, latencies"}, {"s", "tools and methods"}, {"c", "session of the row"},
		{"enter", "open the row"}, {"x", "frames or exchanges"}, {"t", "time: clock, since the start, since the row above"}, {"f", "follow the newest row"}, {"p", "pause the list"},
		{"*", "expand or collapse all rows"}, {"n", "next row with an error or a finding"}, {"N", "previous row with an error or a finding"}, {"o", "other side of the bridge"},
		{"y", "copy the message"}, {"Y", "copy as a command"}, {"v", "view the message in $PAGER"}, {"e", "open the message in $EDITOR"},
		{"r", "send again to a fresh copy of the server"}, {"E", "edit and send to a fresh copy of the server"}, {"i", "held messages (tap --intercept)"}, {"m", "mark the row"}, {"d", "compare the marked rows"},
		{"w", "restart the server"}, {"ctrl+s", "save what is shown"}, {"<", "a narrower list"}, {">", "a wider list"}, {"z", "detail in full size"}, {"?", "keys, signs and filters"}, {"q", "leave"},
	}
}

func (m *model) palette() {
	m.dialogs.chooser = newChooser(m.shared, "Commands", func() []choice {
		var list []choice
		for _, c := range commands() {
			list = append(list, choice{label: c.name, hint: c.key, run: func() tea.Cmd { return m.command(c.key) }})
		}
		return list
	})
}

// facets lists the servers, statuses, kinds and findings with their counts. A choice adds its term
// to the filter, or removes it.
func (m *model) facets() {
	m.dialogs.chooser = newChooser(m.shared, "Facets", func() []choice {
		var f trace.Facets
		m.src.Read(func(w *trace.Model) { f = w.Facets() })
		var list []choice
		add := func(heading, field string, facets []trace.Facet) {
			if len(facets) == 0 {
				return
			}
			list = append(list, choice{heading: true, label: heading})
			for _, x := range facets {
				term := field + ":=" + filter.QuoteValue(x.Value)
				label := x.Value
				if field == "status" {
					label = trace.Status(label).Word()
				}
				c := choice{label: safe(label), hint: number(x.Count), run: func() tea.Cmd { return m.toggleTerm(term) }}
				if strings.Contains(" "+m.table.query.text+" ", " "+term+" ") {
					c.sign = span{m.theme.response, "✓ "}
				}
				list = append(list, c)
			}
		}
		add("Server", "server", f.Servers)
		add("Status", "status", f.Statuses)
		add("Kind", "kind", f.Kinds)
		add("Finding", "finding", f.Findings)
		return list
	})
}

// toggleTerm adds a term to the filter, or removes it.
func (m *model) toggleTerm(term string) tea.Cmd {
	text := m.table.query.text
	if before, after, found := strings.Cut(" "+text+" ", " "+term+" "); found {
		return m.table.setFilter(strings.TrimSpace(before + " " + after))
	}
	return m.table.setFilter(strings.TrimSpace(text + " " + term))
}

// openColumns lists the columns of the table, which keys show, hide and resize.
func (m *model) openColumns() {
	t := m.table
	visible := func(name string) (width int) {
		for _, c := range t.view.columnsFor(t.view.width-markWidth, t.view.multipleSources) {
			if c.name == name {
				return c.width
			}
		}
		return 0
	}
	c := newChooser(m.shared, "Columns", func() []choice {
		var list []choice
		for _, c := range t.view.allColumns(true) {
			if c.name == "" {
				continue
			}
			n, hint := visible(c.name), "hidden"
			if n > 0 {
				hint = plural.Of(n, "column") + " wide"
			} else if !t.choices[c.name].hidden {
				hint = "shown where there is room"
			}
			list = append(list, choice{sign: m.theme.tick(n > 0), label: c.name, hint: hint, id: c.name})
		}
		return list
	})
	change := func(key, name string, f func(name string, c *columnChoice)) {
		c.keys = append(c.keys, chooserKey{key, name, func(id string) tea.Cmd {
			if t.choices == nil {
				t.choices = map[string]columnChoice{}
			}
			choice := t.choices[id]
			f(id, &choice)
			t.choices[id] = choice
			t.view.choices = t.choices
			c.narrow()
			return nil
		}})
	}
	resize := func(by int) func(string, *columnChoice) {
		return func(name string, c *columnChoice) {
			if width := visible(name); width > 0 {
				c.width = min(max(width+by, minColumn), maxColumn)
			}
		}
	}
	change("space", "show or hide", func(name string, c *columnChoice) {
		c.hidden = visible(name) > 0
		c.shown = !c.hidden
	})
	change("-", "narrower", resize(-1))
	change("+", "wider", resize(1))
	change("u", "as usual", func(_ string, c *columnChoice) { *c = columnChoice{} })
	m.dialogs.chooser = c
}

// sourcesView lists the servers and the captures. A server filters; a capture moves the cursor to
// its first row.
func (m *model) sourcesView() {
	m.dialogs.chooser = newChooser(m.shared, "Servers and captures", func() []choice {
		var list []choice
		var servers []trace.Facet
		first := map[string]anchor{}
		started := map[string]time.Time{}
		rows := map[string]int{}
		m.src.Read(func(w *trace.Model) {
			servers = w.Facets().Servers
			for _, r := range w.Rows() {
				if rows[r.Capture.ID]++; rows[r.Capture.ID] == 1 {
					first[r.Capture.ID] = anchorOf(r)
				}
			}
			for _, c := range w.Captures() {
				started[c.ID] = c.Started
			}
		})
		list = append(list, choice{heading: true, label: "Servers"})
		for _, s := range servers {
			sign := span{m.theme.server(s.Index), serverSigns[s.Index%len(serverSigns)] + " "}
			list = append(list, choice{sign: sign, label: safe(s.Value), hint: plural.Of(s.Count, "row"), run: func() tea.Cmd { return m.table.setFilter("server:=" + filter.QuoteValue(s.Value)) }})
		}
		list = append(list, choice{heading: true, label: "Captures"})
		for _, s := range m.src.Sources() {
			sign := span{m.theme.dim, "○ "}
			state := string(s.State)
			switch {
			case s.Err != "":
				sign, state = span{m.theme.failure, "✖ "}, safe(s.Err)
			case s.State == watch.Live:
				sign = span{m.theme.response, "● "}
			case s.State == watch.Growing:
				sign = span{m.theme.pending, "◐ "}
			}
			hint := fmt.Sprintf("%s, %s", state, plural.Of(rows[s.ID], "row"))
			if at := started[s.ID]; !at.IsZero() {
				hint += "  " + at.In(m.zone).Format("2006-01-02 15:04:05")
			}
			list = append(list, choice{sign: sign, label: safe(cmp.Or(s.Name, s.ID) + "  " + s.Path), hint: hint, run: func() tea.Cmd { return m.goToRow(first[s.ID]) }})
		}
		if older := m.src.Older(); len(older) > 0 {
			list = append(list, choice{heading: true, label: plural.Of(len(older), "older capture")})
			list = append(list, choice{label: "open all of them", hint: "as with --past -1", run: func() tea.Cmd { return m.openAll(older) }})
			for _, path := range older[:min(len(older), maxOlder)] {
				list = append(list, choice{sign: span{m.theme.dim, "  "}, label: safe(path), hint: "open", run: func() tea.Cmd { return m.openAll([]string{path}) }})
			}
		}
		return list
	})
}

// maxOlder limits the older captures that are listed one by one.
const maxOlder = 50

func (m *model) openAll(paths []string) tea.Cmd {
	for _, path := range paths {
		if err := m.src.Open(path); err != nil {
			m.showFlash(true, "%s: %s", safe(path), safe(err.Error()))
			return nil
		}
	}
	m.showFlash(false, "opened %s", plural.Of(len(paths), "capture"))
	return nil
}

// goToRow moves the cursor to a row of the timeline. The zero anchor means that there is none.
func (m *model) goToRow(to anchor) tea.Cmd {
	if to == (anchor{}) {
		m.showFlash(false, "this capture has no rows here")
		return nil
	}
	m.table.leaveSort()
	m.table.cursor, m.table.follow = position{place: to}, false
	return nil
}

// An overviewData has the figures of the overview.
type overviewData struct {
	evicted                   uint64
	requests, failed, pending uint64
	from, to                  time.Time
	// calls counts requests in equal parts of the time; failures counts those that failed.
	calls, failures []trace.Bucket
	tools           []statLine
	servers         []trace.Facet
}

// The limits of the number of parts of the time in the overview. A part is a column.
const (
	minOverviewParts = 60
	maxOverviewParts = 150
)

// overview shows calls over time, and latencies by tool.
func (m *model) overview() {
	var d overviewData
	parts := min(max(m.width-20, minOverviewParts), maxOverviewParts)
	m.src.Read(func(w *trace.Model) { d = overviewOf(w, parts) })
	m.dialogs.openTable("Overview", func(r *renderer) []line { return r.overview(&d) })
}

// overviewOf computes the overview with a number of parts. The caller must hold the lock of the
// model.
func overviewOf(w *trace.Model, parts int) overviewData {
	d := overviewData{evicted: w.EvictedRows(), calls: make([]trace.Bucket, parts), failures: make([]trace.Bucket, parts), servers: w.Facets().Servers}
	rows := slices.DeleteFunc(slices.Clone(w.Rows()), func(r *trace.Row) bool { return r.Kind != trace.Request })
	if len(rows) > 0 {
		byTime := func(a, b *trace.Row) int { return a.At.Compare(b.At) }
		d.from, d.to = slices.MinFunc(rows, byTime).At, slices.MaxFunc(rows, byTime).At
	}
	d.requests = uint64(len(rows))
	span := d.to.Sub(d.from) + 1
	for _, r := range rows {
		i := min(parts-1, int(float64(r.At.Sub(d.from))/float64(span)*float64(parts)))
		d.calls[i].Count++
		if r.Status.IsFailure() {
			d.failures[i].Count++
			d.failed++
		} else if r.Status == trace.Pending {
			d.pending++
		}
	}
	tools := slices.DeleteFunc(w.Tools(), func(s *trace.Stat) bool { return s.Calls == 0 })
	tools = tools[:min(len(tools), maxStats)]
	slices.SortStableFunc(tools, func(a, b *trace.Stat) int { return cmp.Compare(b.Calls, a.Calls) })
	d.tools = statLines(tools)
	return d
}

func (r *renderer) overview(d *overviewData) []line {
	t := r.theme
	if d.requests == 0 {
		return []line{{{t.dim, "No request yet."}}}
	}
	share := ""
	if d.failed > 0 {
		share = fmt.Sprintf(" (%.1f %%)", 100*float64(d.failed)/float64(d.requests))
	}
	out := []line{{{t.text.plus(bold), plural.Of(int(d.requests), "request")}, {t.dim, "   "}}}
	if d.evicted > 0 {
		out[0][0].text = "the newest " + out[0][0].text
	}
	if d.failed > 0 {
		out[0] = append(out[0], span{t.failure, "✖ " + number(d.failed) + " failed" + share}, span{"", "   "})
	}
	if d.pending > 0 {
		out[0] = append(out[0], span{t.pending, "… " + number(d.pending) + " pending"})
	}
	whole := d.to.Sub(d.from)
	each := "a part is " + trace.FormatDuration(whole/time.Duration(len(d.calls)))
	out = append(out, nil, line{{t.head, "Requests over time"}, {t.dim, "  " + each}}, line{{t.bar, histogram(d.calls)}})
	if d.failed > 0 {
		out = append(out, line{{t.failure, histogram(d.failures)}, {t.dim, "  failed"}})
	}
	out = append(out, line{{t.dim, pad(d.from.In(r.zone).Format("15:04:05"), len(d.calls)-8) + d.to.In(r.zone).Format("15:04:05")}})
	out = append(out, nil, line{{t.head, "Servers"}})
	for _, s := range d.servers {
		out = append(out, line{{t.server(s.Index), serverSigns[s.Index%len(serverSigns)] + " "}, {t.text, pad(safe(s.Value), 24)}, {t.dim, padLeft(number(s.Count), 8) + " rows"}})
	}
	if out = append(out, nil); len(d.tools) == 0 {
		return append(out, line{{t.dim, "No tool was called."}})
	}
	return append(out, r.stats(d.tools, d.tools, pad("tool", 8), "failed", "p50", "p95", "p99")...)
}
