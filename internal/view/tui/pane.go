package tui

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/trace"
	"mcpwire/internal/view/detail"
)

// A pane shows the detail of a row in tabs.
type pane struct {
	// seq is the Seq of the row.
	seq uint64
	// fingerprint is that of the state shown.
	fingerprint string
	// gen counts the requests for details.
	gen     int
	loading bool
	// stale tells that the row has changed since.
	stale  bool
	detail *detail.Detail
	// failed tells why the detail could not be read.
	failed string
	tabs   []tab
	// wantTab is the number of the tab to open when the detail is ready. Zero means none.
	wantTab int
	// openTab is the title of the tab that the user chose. The row may not have it.
	openTab string
	pagers  map[string]*pager
	hex     bool
	search  string
}

// A tab shows one aspect of a row.
type tab struct {
	title string
	// number is the key that opens the tab.
	number int
	lines  func(m *model, d *detail.Detail) []line
	// x and w are the column and the width of the title.
	x, w int
}

type detailMsg struct {
	gen    int
	detail *detail.Detail
	err    error
}

// detailTimeout limits the time to read a detail.
const detailTimeout = 20 * time.Second

// openPane opens the pane.
func (m *model) openPane() {
	if m.pane == nil {
		m.pane = &pane{openTab: "Summary"}
	}
	m.focus, m.follow = onPane, false
}

func (m *model) closePane() { m.pane, m.focus, m.zoom = nil, onTable, false }

// syncPane updates the pane if another row has the cursor or its row has changed. The caller must
// hold the lock of the model.
func (m *model) syncPane(r *trace.Row) tea.Cmd {
	p := m.pane
	if p == nil {
		return nil
	}
	if r == nil {
		p.seq, p.detail, p.fingerprint, p.failed, p.tabs, p.loading = 0, nil, "", "", nil, false
		p.gen++
		return nil
	}
	stamp := fingerprintOf(r, p.hex)
	if r.Seq == p.seq && stamp == p.fingerprint {
		return nil
	}
	if r.Seq == p.seq && p.loading && p.fingerprint != "" {
		p.stale = true
		return nil
	}
	if r.Seq != p.seq {
		p.pagers = nil
	}
	p.seq, p.loading, p.stale = r.Seq, true, false
	p.gen++
	// Moving quickly through rows reads only the last one.
	if m.readingDetail {
		p.fingerprint = ""
		m.cancelRead()
		return nil
	}
	p.fingerprint, m.readingDetail = stamp, true
	snapshot, gen, src, opts := detail.TakeSnapshot(r), p.gen, m.src, &detail.Options{Hex: p.hex}
	wanted, unread := context.WithCancel(context.Background())
	m.cancelRead = unread
	return m.background.cmd(detailTimeout, func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(wanted, cancel)()
		d, err := detail.Build(ctx, src, snapshot, opts)
		return detailMsg{gen, d, err}
	})
}

// fingerprintOf returns a text that changes when the detail of a row changes.
func fingerprintOf(r *trace.Row, hex bool) string {
	n := 0
	for range r.All() {
		n++
	}
	ended := r.HTTP != nil && r.HTTP.Ended
	events := 0
	if r.HTTP != nil {
		events = r.HTTP.Events
	}
	return fmt.Sprint(r.Seq, r.Status, r.Done, len(r.Events), n, r.EvictedChildren, r.CountFindings(), ended, events, r.ResponseN, hex)
}

// gotDetail shows a detail, unless it is outdated.
func (m *model) gotDetail(msg detailMsg) {
	m.cancelRead()
	m.readingDetail = false
	p := m.pane
	if p == nil || msg.gen != p.gen {
		return
	}
	p.loading = false
	if p.stale {
		p.fingerprint, p.stale = "", false
	}
	old := p.pagers
	p.detail, p.failed, p.pagers = msg.detail, "", map[string]*pager{}
	if msg.err != nil {
		p.detail, p.failed, p.tabs = nil, "Reading this timed out.", nil
		return
	}
	p.tabs = tabsOf(msg.detail)
	if p.wantTab > 0 {
		wantedTab := p.wantTab
		p.wantTab = 0
		m.chooseTab(wantedTab - 1)
	}
	for _, t := range p.tabs { // keep the scroll position
		if was := old[t.title]; was != nil {
			page := p.pager(m, t)
			page.wrapTo(was.columns)
			page.top = min(was.top, max(0, len(page.wrapped)-1))
		}
	}
}

// restyle redraws texts for another theme.
func (m *model) restyle() {
	if m.pane != nil {
		m.pane.pagers = nil
	}
	if m.overlay != nil && m.overlay.render != nil {
		m.overlay.pager.lines = m.overlay.render()
		m.overlay.pager.columns = -1
	}
}

// currentTab returns the chosen tab, or else the first, or nil.
func (p *pane) currentTab() *tab {
	for i := range p.tabs {
		if p.tabs[i].title == p.openTab {
			return &p.tabs[i]
		}
	}
	if len(p.tabs) == 0 {
		return nil
	}
	return &p.tabs[0]
}

// pager returns the text of a tab.
func (p *pane) pager(m *model, t tab) *pager {
	page := p.pagers[t.title]
	if t.title == "Translated" && page != nil && page.madeFor != m.paneBody().w {
		page.lines, page.madeFor, page.columns = t.lines(m, p.detail), m.paneBody().w, -1
	}
	if page == nil {
		page = newPager(t.lines(m, p.detail))
		page.search, page.madeFor = p.search, m.paneBody().w
		if p.pagers == nil {
			p.pagers = map[string]*pager{}
		}
		p.pagers[t.title] = page
	}
	return page
}

// currentPager returns the text that is shown, or nil.
func (p *pane) currentPager(m *model) *pager {
	t := p.currentTab()
	if t == nil || p.detail == nil {
		return nil
	}
	page := p.pager(m, *t)
	if page.search != p.search {
		page.find(p.search)
	}
	page.wrapTo(m.paneBody().w)
	return page
}

// paneBody returns the area of the pane's text.
func (m *model) paneBody() rect {
	r := m.layout().pane
	head := min(2, max(0, r.h-1))
	if r.h < 6 {
		head = min(1, head)
	}
	return rect{r.x + 1, r.y + head, max(1, r.w-2), r.h - head}
}

// drawPane draws a line of the pane: its title, the tabs or the text.
func (m *model) drawPane(b *strings.Builder, i int) {
	p, r, text := m.pane, m.view.area.pane, m.paneBody()
	head := text.y - r.y
	switch {
	case i < head && i == head-1:
		m.tabLine(r).appendTo(b, r.w, "", false)
		return
	case i < head:
		m.paneTitle().appendTo(b, r.w, "", false)
		return
	}
	var l line
	page := p.currentPager(m)
	switch {
	case page != nil:
		l = page.lineAt(i-head, m.theme.match)
	case i != head:
	case p.failed != "":
		l = line{{m.theme.failure, "✖ " + p.failed}}
	case p.seq == 0:
		l = line{{m.theme.dim, "Nothing is selected."}}
	case p.loading:
		l = line{{m.theme.dim, "Reading …"}}
	}
	l = append(line{{"", " "}}, l...)
	l.appendTo(b, r.w, "", false)
}

// paneTitle returns the title of the row.
func (m *model) paneTitle() line {
	d := m.pane.detail
	if d == nil {
		return nil
	}
	return line{{m.theme.dim, fmt.Sprintf(" #%d ", d.N)}, {m.theme.text.plus(bold), safe(d.Glyph) + " " + safe(d.Title)}}
}

// tabLine draws the tabs and records their positions. Titles are shortened or omitted if they do
// not fit.
func (m *model) tabLine(r rect) line {
	p := m.pane
	open := p.currentTab()
	short := 0
	for ; short < 2 && tabsWidth(p.tabs, open, short) > r.w-1; short++ {
	}
	l := line{{"", " "}}
	x := r.x + 1
	for i := range p.tabs {
		t := &p.tabs[i]
		text, st := tabText(t, t == open, short), m.theme.dim
		if t == open {
			st = m.theme.tab
		}
		t.x, t.w = x, width(text)
		x += t.w
		l = append(l, span{st, text})
	}
	return l
}

func tabsWidth(tabs []tab, open *tab, short int) (n int) {
	for i := range tabs {
		n += width(tabText(&tabs[i], &tabs[i] == open, short))
	}
	return n
}

// tabText returns the number and the title of a tab, with the title shortened or omitted.
func tabText(t *tab, open bool, short int) string {
	if open {
		return fmt.Sprintf("[%d %s]", t.number, t.title)
	}
	title := t.title
	switch short {
	case 1:
		title = title[:3]
	case 2:
		return fmt.Sprintf(" %d ", t.number)
	}
	return fmt.Sprintf(" %d %s ", t.number, title)
}
