package tui

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
)

// A pane is a component: it shows the detail of the cursor's row in tabs.
type pane struct {
	*shared
	area rect
	open bool

	// seq is the Seq of the row.
	seq uint64
	// fingerprint is that of the state shown.
	fingerprint string
	// gen counts the requests for details.
	gen     int
	loading bool
	// stale means that the row has changed since.
	stale bool
	// reading means that the detail of a row is being read: one at a time, because it may be large.
	reading bool
	// cancelRead cancels that.
	cancelRead context.CancelFunc
	detail     *detail.Detail
	// failed says why the detail could not be read.
	failed string

	bar tabBar
	// wanted is the number of the tab to open when the detail is ready. Zero means none.
	wanted int
	// pagers has the texts of tabs by title.
	pagers map[string]*pager
	hex    bool
	search string
}

// detailTimeout limits the time to read a detail.
const detailTimeout = 20 * time.Second

func (p *pane) show() {
	if !p.open {
		p.open, p.bar.chosen = true, "Summary"
	}
}

func (p *pane) close() {
	p.clear()
	p.open, p.hex, p.search, p.wanted = false, false, "", 0
}

func (p *pane) clear() {
	p.seq, p.detail, p.fingerprint, p.failed, p.loading, p.stale = 0, nil, "", "", false, false
	p.bar.tabs, p.pagers = nil, nil
	p.gen++
}

// sync reads the detail if another row has the cursor or its row has changed. r is nil without
// rows. The caller must hold the lock of the model.
func (p *pane) sync(r *trace.Row) tea.Cmd {
	if !p.open {
		return nil
	}
	if r == nil {
		p.clear()
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
	if p.reading {
		p.fingerprint = ""
		p.cancelRead()
		return nil
	}
	p.fingerprint = stamp
	return p.read(detail.TakeSnapshot(r))
}

// read reads the detail of a row in the background.
func (p *pane) read(snapshot *detail.Snapshot) tea.Cmd {
	gen, src, opts := p.gen, p.src, &detail.Options{Hex: p.hex}
	wanted, unread := context.WithCancel(context.Background())
	p.reading, p.cancelRead = true, unread
	return p.background.cmd(detailTimeout, func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(wanted, cancel)()
		d, err := detail.Build(ctx, src, snapshot, opts)
		return doneMsg(func() tea.Cmd {
			p.gotDetail(gen, d, err)
			return nil
		})
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

// Update handles the mouse.
func (p *pane) Update(msg tea.Msg) {
	switch msg := msg.(type) {
	case tea.MouseClickMsg:
		if _, body := p.split(); msg.Y == body.y-1 {
			p.bar.click(msg.X-p.area.x, p.area.w)
		}
	case tea.MouseWheelMsg:
		if page := p.page(); page != nil {
			page.scroll(wheelStep(msg))
		}
	}
}

// key handles a key of the tabs or of the open text, and reports whether it uses it.
func (p *pane) key(k string) bool {
	switch k {
	case "left", "h":
		p.bar.move(-1)
	case "right", "l":
		p.bar.move(1)
	case "b":
		p.hex = !p.hex
		p.showFlash(false, "bytes as %s", map[bool]string{true: "hexadecimal", false: "text"}[p.hex])
		p.bar.chosen = "Raw"
	default:
		page := p.page()
		return page != nil && page.key(k)
	}
	return true
}

// gotDetail shows a detail, unless it is outdated.
func (p *pane) gotDetail(gen int, d *detail.Detail, err error) {
	p.cancelRead()
	p.reading = false
	if !p.open || gen != p.gen {
		return
	}
	p.loading = false
	if p.stale {
		p.fingerprint, p.stale = "", false
	}
	old := p.pagers
	p.detail, p.failed, p.pagers, p.bar.tabs = d, "", nil, nil
	if err != nil {
		p.detail, p.failed = nil, "Reading this timed out."
		return
	}
	p.bar.tabs = tabsOf(d)
	if n := p.wanted; n > 0 {
		p.wanted = 0
		p.choose(n)
	}
	for i := range p.bar.tabs { // keep the scroll position
		if was := old[p.bar.tabs[i].title]; was != nil {
			p.pager(&p.bar.tabs[i]).scroll(was.top)
		}
	}
}

// choose opens the tab with a number, at once or when the detail is ready.
func (p *pane) choose(n int) {
	title := tabNames()[n-1]
	switch {
	case p.detail == nil:
		p.wanted = n
	case p.bar.has(title):
		p.bar.chosen = title
	default:
		p.showFlash(false, "this row has no tab %d, %s", n, title)
	}
}

// find searches for a text in the open tab, and in those that are opened later. It returns nil
// without a text.
func (p *pane) find(text string) *pager {
	page := p.page()
	if page == nil {
		return nil
	}
	p.search = text
	page.find(text)
	page.firstMatch()
	return page
}

// title returns the title of the open tab, or "".
func (p *pane) title() string {
	if t := p.bar.open(); t != nil {
		return t.title
	}
	return ""
}

func (p *pane) page() *pager {
	t := p.bar.open()
	if t == nil || p.detail == nil {
		return nil
	}
	return p.pager(t)
}

func (p *pane) pager(t *tab) *pager {
	page := p.pagers[t.title]
	if page == nil {
		d, lines := p.detail, t.lines
		page = newPager(p.shared, func(r *renderer) []line { return lines(r, d) })
		if p.pagers == nil {
			p.pagers = map[string]*pager{}
		}
		p.pagers[t.title] = page
	}
	_, body := p.split()
	page.fit(renderer{theme: p.theme, zone: p.zone, hex: p.hex}, body.w, body.h)
	if page.search != p.search {
		page.find(p.search)
	}
	return page
}

// split divides the area into head, which has the row's title and the tabs, and text.
func (p *pane) split() (head, body rect) {
	a := p.area
	n := min(2, max(0, a.h-1))
	if a.h < 6 {
		n = min(1, n)
	}
	return rect{a.x, a.y, a.w, n}, rect{a.x, a.y + n, a.w, a.h - n}
}

// View draws the pane.
func (p *pane) View() string {
	head, body := p.split()
	var lines []string
	if head.h > 1 {
		lines = append(lines, p.rowTitle().draw(head.w))
	}
	if head.h > 0 {
		lines = append(lines, p.bar.line(p.theme, head.w).draw(head.w))
	}
	if page := p.page(); page != nil {
		return strings.Join(append(lines, page.View()), "\n")
	}
	for i := range body.h {
		var l line
		if i == 0 {
			l = p.emptyLine()
		}
		lines = append(lines, append(line{{"", " "}}, l...).draw(body.w))
	}
	return strings.Join(lines, "\n")
}

// emptyLine returns why there is no text.
func (p *pane) emptyLine() line {
	switch {
	case p.failed != "":
		return line{{p.theme.failure, "✖ " + p.failed}}
	case p.seq == 0:
		return line{{p.theme.dim, "Nothing is selected."}}
	case p.loading:
		return line{{p.theme.dim, "Reading …"}}
	}
	return nil
}

func (p *pane) rowTitle() line {
	d := p.detail
	if d == nil {
		return nil
	}
	return line{{p.theme.dim, fmt.Sprintf(" #%d ", d.N)}, {p.theme.text.plus(bold), safe(d.Glyph) + " " + safe(d.Title)}}
}
