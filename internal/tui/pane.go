package tui

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/detail"
	"mcpwire/internal/wireview"
)

// A pane shows everything about one row, a tab for each side of it.
type pane struct {
	seq         uint64 // of the row
	fingerprint string // of the state of the row that is shown
	gen         int    // counts what was asked for
	loading     bool
	stale       bool // the row has changed meanwhile
	detail      *detail.Detail
	failed      string // why there is no detail
	tabs        []tab
	wantTab     int    // the number of the tab to open when there are some; 0 is none
	openTab     string // the title of the tab that the user chose; there need be none for this row
	pagers      map[string]*pager
	hex         bool
	search      string
}

// A tab is one side of a row.
type tab struct {
	title  string
	number int // the key that opens it
	lines  func(m *model, d *detail.Detail) []line
	x, w   int // where it is drawn
}

type detailMsg struct {
	gen    int
	detail *detail.Detail
	err    error
}

// detailTimeout is how long it may take to read what is shown of a row.
const detailTimeout = 20 * time.Second

// openPane opens the pane.
func (m *model) openPane() {
	if m.pane == nil {
		m.pane = &pane{openTab: "Summary"}
	}
	m.focus, m.follow = onPane, false
}

func (m *model) closePane() { m.pane, m.focus, m.zoom = nil, onTable, false }

// syncPane has the pane show a row, if it is open and shows another one, or an older state of it. The model is locked.
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
	if m.readingDetail { // who goes through rows quickly sees the last one, and none of the others is read meanwhile
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

// fingerprintOf tells states of a row apart in which there are other things to show.
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

// gotDetail takes a detail into use, unless it is of another row by now.
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
		p.detail, p.failed, p.tabs = nil, "It took too long to read this.", nil
		return
	}
	p.tabs = tabsOf(msg.detail)
	if p.wantTab > 0 {
		wish := p.wantTab
		p.wantTab = 0
		m.chooseTab(wish - 1)
	}
	for _, t := range p.tabs { // who has scrolled stays there
		if was := old[t.title]; was != nil {
			page := p.pager(m, t)
			page.wrapTo(was.columns)
			page.top = min(was.top, max(0, len(page.wrapped)-1))
		}
	}
}

// restyle draws everything anew in another theme.
func (m *model) restyle() {
	if m.pane != nil {
		m.pane.pagers = nil
	}
	if m.overlay != nil && m.overlay.render != nil {
		m.overlay.pager.lines = m.overlay.render()
		m.overlay.pager.columns = -1
	}
}

// currentTab returns the tab that is shown: the one that was chosen, or the first.
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

// paneBody is the part of the pane with the text.
func (m *model) paneBody() rect {
	r := m.layout().pane
	head := min(2, max(0, r.h-1))
	if r.h < 6 {
		head = min(1, head)
	}
	return rect{r.x + 1, r.y + head, max(1, r.w-2), r.h - head}
}

// drawPane draws a line of the pane: its title, the tabs, and the text.
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

// paneTitle says which row it is.
func (m *model) paneTitle() line {
	d := m.pane.detail
	if d == nil {
		return nil
	}
	return line{{m.theme.dim, fmt.Sprintf(" #%d ", d.N)}, {m.theme.text.plus(bold), safe(d.Glyph) + " " + safe(d.Title)}}
}

// tabLine draws the tabs, and remembers where they are. Where there is little room their titles are short, or numbers.
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

// tabText is the text of a tab: its number and its title, or the beginning of that, or none.
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
