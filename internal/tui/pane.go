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
	seq     uint64 // of the row
	stamp   string // of the state of the row that is shown
	gen     int    // counts what was asked for
	loading bool
	stale   bool // the row has changed meanwhile
	detail  *detail.Detail
	failed  string // why there is no detail
	tabs    []tab
	wish    int    // the number of the tab to open when there are some; 0 is none
	open    string // the title of the tab that the user chose; there need be none for this row
	pages   map[string]*pager
	hex     bool
	search  string
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

// detailTime is how long it may take to read what is shown of a row.
const detailTime = 20 * time.Second

// openPane opens the pane.
func (m *model) openPane() {
	if m.pane == nil {
		m.pane = &pane{open: "Summary"}
	}
	m.focus, m.follow = onPane, false
}

func (m *model) closePane() { m.pane, m.focus, m.zoom = nil, onTable, false }

// follows has the pane show a row, if it is open and shows another one, or an older state of it. The model is locked.
func (m *model) follows(r *wireview.Row) tea.Cmd {
	p := m.pane
	if p == nil {
		return nil
	}
	if r == nil {
		p.seq, p.detail, p.stamp, p.failed, p.tabs, p.loading = 0, nil, "", "", nil, false
		p.gen++
		return nil
	}
	stamp := stampOf(r, p.hex)
	if r.Seq == p.seq && stamp == p.stamp {
		return nil
	}
	if r.Seq == p.seq && p.loading && p.stamp != "" {
		p.stale = true
		return nil
	}
	if r.Seq != p.seq {
		p.pages = nil
	}
	p.seq, p.loading, p.stale = r.Seq, true, false
	p.gen++
	if m.reading { // who goes through rows quickly sees the last one, and none of the others is read meanwhile
		p.stamp = ""
		m.unread()
		return nil
	}
	p.stamp, m.reading = stamp, true
	snapshot, gen, src, opts := detail.Snapshot(r), p.gen, m.src, &detail.Options{Hex: p.hex}
	wanted, unread := context.WithCancel(context.Background())
	m.unread = unread
	return m.tasks.cmd(detailTime, func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(wanted, cancel)()
		d, err := detail.Of(ctx, src, snapshot, opts)
		return detailMsg{gen, d, err}
	})
}

// stampOf tells states of a row apart in which there are other things to show.
func stampOf(r *wireview.Row, hex bool) string {
	n := 0
	for range r.All() {
		n++
	}
	ended := r.HTTP != nil && r.HTTP.Ended
	events := 0
	if r.HTTP != nil {
		events = r.HTTP.Events
	}
	return fmt.Sprint(r.Seq, r.Status, r.Done, len(r.Events), n, r.Gone, r.CountLints(), ended, events, r.ResponseN, hex)
}

// gotDetail takes a detail into use, unless it is of another row by now.
func (m *model) gotDetail(msg detailMsg) {
	m.unread()
	m.reading = false
	p := m.pane
	if p == nil || msg.gen != p.gen {
		return
	}
	p.loading = false
	if p.stale {
		p.stamp, p.stale = "", false
	}
	old := p.pages
	p.detail, p.failed, p.pages = msg.detail, "", map[string]*pager{}
	if msg.err != nil {
		p.detail, p.failed, p.tabs = nil, "It took too long to read this.", nil
		return
	}
	p.tabs = tabsOf(msg.detail)
	if p.wish > 0 {
		wish := p.wish
		p.wish = 0
		m.chooseTab(wish - 1)
	}
	for _, t := range p.tabs { // who has scrolled stays there
		if was := old[t.title]; was != nil {
			page := p.page(m, t)
			page.fit(was.columns)
			page.top = min(was.top, max(0, len(page.shown)-1))
		}
	}
}

// restyle draws everything anew in another theme.
func (m *model) restyle() {
	if m.pane != nil {
		m.pane.pages = nil
	}
	if m.over != nil && m.over.again != nil {
		m.over.page.lines = m.over.again()
		m.over.page.columns = -1
	}
}

// tab returns the tab that is shown: the one that was chosen, or the first.
func (p *pane) tab() *tab {
	for i := range p.tabs {
		if p.tabs[i].title == p.open {
			return &p.tabs[i]
		}
	}
	if len(p.tabs) == 0 {
		return nil
	}
	return &p.tabs[0]
}

// page returns the text of a tab.
func (p *pane) page(m *model, t tab) *pager {
	page := p.pages[t.title]
	if t.title == "Translated" && page != nil && page.made != m.paneText().w {
		page.lines, page.made, page.columns = t.lines(m, p.detail), m.paneText().w, -1
	}
	if page == nil {
		page = newPager(t.lines(m, p.detail))
		page.search, page.made = p.search, m.paneText().w
		if p.pages == nil {
			p.pages = map[string]*pager{}
		}
		p.pages[t.title] = page
	}
	return page
}

// current returns the text that is shown, or nil.
func (p *pane) current(m *model) *pager {
	t := p.tab()
	if t == nil || p.detail == nil {
		return nil
	}
	page := p.page(m, *t)
	if page.search != p.search {
		page.find(p.search)
	}
	page.fit(m.paneText().w)
	return page
}

// paneText is the part of the pane with the text.
func (m *model) paneText() rect {
	r := m.layout().pane
	head := min(2, max(0, r.h-1))
	if r.h < 6 {
		head = min(1, head)
	}
	return rect{r.x + 1, r.y + head, max(1, r.w-2), r.h - head}
}

// drawPane draws a line of the pane: its title, the tabs, and the text.
func (m *model) drawPane(b *strings.Builder, i int) {
	p, r, text := m.pane, m.view.area.pane, m.paneText()
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
	page := p.current(m)
	switch {
	case page != nil:
		l = page.at(i-head, m.theme.match)
	case i != head:
	case p.failed != "":
		l = line{{m.theme.fail, "✖ " + p.failed}}
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
	open := p.tab()
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
