package tui

import (
	"cmp"
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
)

// A source provides the data of a model. It is a [watch.Hub].
type source interface {
	Read(f func(m *trace.Model))
	// selectRows returns the rows that match a filter, and the source to read them from.
	selectRows(f *filter.Filter) (selection, source)
	Sources() []watch.Source
	Older() []string
	Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error)
	Head(captureID string) *capture.Head
	Open(path string) error
	Restart(ctx context.Context, captureID string) error
	Decide(ctx context.Context, captureID string, d *live.Decision) error
}

// A hubSource is the source of a hub.
type hubSource struct {
	*watch.Hub
	// rows is the hub of the selected rows: see [watch.Hub.SelectWhole].
	rows *watch.Hub
}

// Read calls f with the model of the selected rows.
func (h hubSource) Read(f func(m *trace.Model)) { h.rows.Read(f) }

func (h hubSource) selectRows(f *filter.Filter) (selection, source) {
	s := h.SelectWhole(f)
	return s, hubSource{h.Hub, s.Hub()}
}

// A shared has what all components use. Only the event loop uses it.
type shared struct {
	src        source
	opts       Options
	background *background
	now        func() time.Time
	zone       *time.Location
	// dark means that the background of the terminal is dark.
	dark  bool
	theme *theme
	// width and height are the size of the screen.
	width, height int
	sources       []watch.Source
	// older is the number of captures that are not read.
	older int
	flash flash
}

// A flash is a message shown in the last line for a while.
type flash struct {
	text  string
	bad   bool
	until time.Time
}

func (s *shared) showFlash(bad bool, format string, args ...any) {
	stays := 6 * time.Second
	if bad { // errors stay longer
		stays = 20 * time.Second
	}
	s.flash = flash{safe(fmt.Sprintf(format, args...)), bad, s.now().Add(stays)}
}

// result returns the message of a background command that shows an error or, without one, a text.
func (s *shared) result(err error, text string) tea.Msg {
	return doneMsg(func() tea.Cmd {
		if err != nil {
			text = err.Error()
		}
		if text != "" {
			s.showFlash(err != nil, "%s", text)
		}
		return nil
	})
}

// readSources copies the state of the sources.
func (s *shared) readSources() { s.sources, s.older = s.src.Sources(), len(s.src.Older()) }

// A model is the screen: it routes messages to its components, and arranges and opens them. Its
// methods run in the event loop.
type model struct {
	*shared
	colors Colors

	table *table
	pane  *pane
	// paneFocused means that the pane has the focus, and not the table.
	paneFocused bool
	// zoom gives the whole screen to the pane.
	zoom bool
	// share is the table's share of the screen beside the pane, in percent. Zero means the default.
	share   int
	dialogs *dialogs
	areas   areas

	copier      *copier
	resender    *resender
	tickPending bool
	quit        bool
}

// The size of a terminal that does not report its size.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

func newModel(src source, opts *Options, t *background) *model {
	s := &shared{src: src, background: t, now: time.Now, zone: time.Local, dark: true, width: defaultWidth, height: defaultHeight}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Now != nil {
		s.now = s.opts.Now
	}
	if s.opts.Zone != nil {
		s.zone = s.opts.Zone
	}
	m := &model{shared: s, colors: s.opts.Colors}
	m.theme = newTheme(m.colors, m.dark)
	m.table = &table{content: content{shared: s, query: query{text: s.opts.Filter}}, follow: true}
	m.pane = &pane{shared: s}
	m.dialogs = &dialogs{shared: s}
	m.copier = &copier{shared: s, table: m.table, pane: m.pane, dialogs: m.dialogs}
	m.resender = &resender{shared: s, table: m.table, dialogs: m.dialogs}
	return m
}

// Messages of the model to itself, and of the feed.
type (
	// changedMsg means that the hub has changed.
	changedMsg struct{ sources bool }
	// tickMsg updates timers.
	tickMsg time.Time
	// redrawMsg draws the whole screen again.
	redrawMsg struct{}
	// A doneMsg is the result of a background command. The event loop calls it.
	doneMsg func() tea.Cmd
)

// redrawDelay is the time after a change of size until the whole screen is drawn again: after the
// next frame. The renderer forgets what that frame has in the columns that are new, and would leave
// it there when the text becomes shorter.
const redrawDelay = 100 * time.Millisecond

func (m *model) Init() tea.Cmd {
	return tea.Batch(tea.RequestBackgroundColor, m.table.selectRows())
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	before := m.flash
	cmd := m.handleInput(msg)
	if m.flash != before {
		m.dialogs.showLongError()
	}
	return m, tea.Batch(cmd, m.refresh())
}

// handleInput handles messages of the terminal.
func (m *model) handleInput(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if m.width, m.height = msg.Width, msg.Height; m.width <= 0 || m.height <= 0 { // unknown
			m.width, m.height = defaultWidth, defaultHeight
		}
		redraw := tea.Tick(redrawDelay, func(time.Time) tea.Msg { return redrawMsg{} })
		return tea.Batch(redraw, m.dialogs.Update(msg))
	case tea.ColorProfileMsg:
		m.setColors(msg.String())
	case tea.BackgroundColorMsg:
		m.dark = msg.IsDark()
		m.theme = newTheme(m.colors, m.dark)
	case tea.KeyPressMsg:
		return m.handleKey(msg)
	case tea.MouseClickMsg:
		return m.click(msg)
	case tea.MouseWheelMsg:
		m.wheel(msg)
	default:
		return m.handleEvent(msg)
	}
	return nil
}

// handleEvent handles messages of the hub and of commands.
func (m *model) handleEvent(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case changedMsg:
		if msg.sources || m.sources == nil {
			m.readSources()
		}
		return m.table.Update(msg)
	case doneMsg:
		return msg()
	case openMsg:
		m.openPane()
	case tickMsg:
		m.tickPending = false
	case redrawMsg:
		return tea.ClearScreen
	default:
		return m.dialogs.Update(msg)
	}
	return nil
}

func (m *model) setColors(profile string) {
	if m.opts.Colors != Colors256 {
		return // the user chose the colors
	}
	switch profile {
	case "TrueColor", "ANSI256":
		m.colors = Colors256
	case "ANSI":
		m.colors = Colors16
	default:
		m.colors = NoColor
	}
	m.theme = newTheme(m.colors, m.dark)
}

// handleKey passes a key to what has the focus: a dialog, the pane or the table. A key that pane
// and table do not use works everywhere.
func (m *model) handleKey(k tea.KeyPressMsg) tea.Cmd {
	m.flash = flash{}
	if k.String() == "alt+esc" { // two quick Esc
		k = tea.KeyPressMsg{Code: tea.KeyEscape}
	}
	// Terminals send Esc and a quick other key as that key with Alt, which has no meaning here.
	if next, ok := afterEscape(k); ok && !m.dialogs.input() {
		first := m.handleKey(tea.KeyPressMsg{Code: tea.KeyEscape})
		return tea.Batch(first, m.handleKey(next))
	}
	switch {
	case m.dialogs.input():
		return m.dialogs.Update(k)
	case k.String() == "ctrl+c":
		return m.quitProgram()
	case k.String() == "ctrl+z":
		return tea.Suspend
	case m.dialogs.chooser != nil, m.dialogs.overlay != nil:
		return m.dialogs.Update(k)
	}
	return m.command(k.String())
}

// command handles a key without dialogs.
func (m *model) command(k string) tea.Cmd {
	if m.pane.open && m.paneFocused || m.tableHidden() {
		if m.paneKey(k) {
			return nil
		}
	} else if cmd, used := m.table.press(k); used {
		return cmd
	}
	return m.globalKey(k)
}

// afterEscape returns the key that was typed right after Esc, if k is such a pair.
func afterEscape(k tea.KeyPressMsg) (next tea.KeyPressMsg, ok bool) {
	if k.Mod != tea.ModAlt || k.Code < ' ' || k.Code > '~' {
		return k, false
	}
	return tea.KeyPressMsg{Code: k.Code, Text: string(k.Code)}, true
}

func (m *model) quitProgram() tea.Cmd {
	m.quit = true
	return tea.Quit
}

func (m *model) tableHidden() bool { return m.pane.open && m.areas.table.h == 0 }

// paneKey handles a key while the pane has the focus. It returns false for keys that it does not
// use.
func (m *model) paneKey(k string) bool {
	switch k {
	case "esc", "q":
		m.closePane()
	case "tab", "shift+tab":
		m.paneFocused = m.paneFocused && m.tableHidden()
	case "/":
		m.dialogs.prompt = newSearchPrompt(m.shared, m.pane.find)
	case "J": // the next row, without leaving the pane
		m.table.moveCursor(1)
	case "K":
		m.table.moveCursor(-1)
	case "z", "enter":
		m.zoom = !m.zoom
	default:
		return m.pane.key(k)
	}
	return true
}

// globalKey handles the keys that work everywhere.
func (m *model) globalKey(k string) tea.Cmd {
	switch k {
	case "1", "2", "3", "4", "5", "6", "7", "8", "9":
		m.openTab(int(k[0] - '0'))
	case "q":
		return m.quitProgram()
	case "esc":
		return m.goBack()
	case "enter":
		m.openPane()
	case "tab", "shift+tab":
		m.paneFocused = m.pane.open
	case "/":
		m.openFilter()
	case "z":
		m.zoom = m.pane.open && !m.zoom
	case "?":
		m.dialogs.open("Keys", (*renderer).help)
	case "c":
		m.openSession()
	case "s":
		m.openStats()
	case ":", "ctrl+p":
		m.palette()
	case "F":
		m.facets()
	case "L":
		m.sourcesView()
	case "O":
		m.overview()
	case "S":
		m.showFlash(false, "the sequence is on the page: mcpwire watch --web; O is the overview")
	case "a":
		m.openSort()
	case "C":
		m.openColumns()
	case "i":
		m.openHeld()
	case "<", ">":
		m.resize(k)
	case "f", "p", "x", "t", "m", "o": // these reach the table from the pane too
		cmd, _ := m.table.key(k)
		return cmd
	default:
		return m.rowKey(k)
	}
	return nil
}

// rowKey handles the keys that act on the cursor's row.
func (m *model) rowKey(k string) tea.Cmd {
	switch k {
	case "d":
		return m.diffMarked()
	case "y":
		return m.copier.withDetail(m.copier.payload)
	case "Y":
		return m.copier.withDetail(m.copier.command)
	case "r":
		return m.resender.find(false)
	case "E":
		return m.resender.find(true)
	case "w":
		m.resender.restart()
	case "v":
		return m.copier.withDetail(m.copier.page)
	case "e":
		return m.copier.withDetail(m.copier.edit)
	case "ctrl+s":
		m.dialogs.prompt = newPrompt(m.shared, "save as", m.saveName())
		m.dialogs.prompt.accepted = m.save
	}
	return nil
}

// goBack goes back one step: it closes the pane, ends a pause or clears the filter.
func (m *model) goBack() tea.Cmd {
	t := m.table
	switch {
	case m.pane.open:
		m.closePane()
	case t.pause != nil:
		t.pause = nil
		return t.build(true)
	case t.built.isSorted():
		t.leaveSort()
	case !t.query.empty():
		return t.setQuery("", false)
	default:
		m.showFlash(false, "q quits")
	}
	return nil
}

func (m *model) openPane() {
	if m.table.view.seq != 0 {
		m.pane.show()
		m.paneFocused, m.table.follow = true, false
	}
}

func (m *model) closePane() {
	m.pane.close()
	m.paneFocused, m.zoom = false, false
}

// openTab opens the tab with a number, and the pane if needed. The pane gets no focus then.
func (m *model) openTab(n int) {
	if m.pane.open {
		m.pane.choose(n)
		return
	}
	if m.openPane(); m.pane.open {
		m.pane.bar.chosen, m.paneFocused = tabNames()[n-1], false
	}
}

// The table's share of the screen beside the pane, in percent.
const (
	minShare  = 20
	maxShare  = 80
	shareStep = 5
)

// tableShare returns the table's share of the screen, by default the given one.
func (m *model) tableShare(usual int) int { return cmp.Or(m.share, usual) }

func (m *model) resize(k string) {
	if !m.pane.open {
		m.showFlash(false, "< and > move the border between table and detail")
		return
	}
	usual := usualShareBelow
	if m.width >= splitRight {
		usual = usualShare(m.width)
	}
	step := shareStep
	if k == "<" {
		step = -step
	}
	m.share = min(max(m.tableShare(usual)+step, minShare), maxShare)
}

func (m *model) openSession() {
	if !m.table.view.hasSession {
		m.showFlash(false, "no session yet")
		return
	}
	c := m.table.view.session
	m.dialogs.open("Session", func(r *renderer) []line { return r.session(&c) })
}

// filterDebounce is the pause in typing after which the filter applies.
const filterDebounce = 250 * time.Millisecond

func (m *model) openFilter() {
	previous := m.table.query.text
	p := newFilterPrompt(m.shared, previous)
	p.changed = func(text string) tea.Cmd {
		return tea.Tick(filterDebounce, func(time.Time) tea.Msg {
			return doneMsg(func() tea.Cmd {
				if m.dialogs.prompt != p || p.text() != text || p.invalid() != nil {
					return nil
				}
				return m.table.setFilter(text)
			})
		})
	}
	p.accepted = m.table.setFilter
	p.canceled = func(string) tea.Cmd { return m.table.setFilter(previous) }
	m.dialogs.prompt = p
}

// wheel scrolls what is below the mouse.
func (m *model) wheel(msg tea.MouseWheelMsg) {
	switch d := m.dialogs; {
	case d.editor != nil, d.chooser != nil:
	case d.overlay != nil:
		d.overlay.pager.scroll(wheelStep(msg))
	case m.pane.open && m.areas.pane.has(msg.X, msg.Y):
		m.pane.Update(msg)
	default:
		m.table.Update(msg)
	}
}

// click passes a click to what is below the mouse, and gives it the focus.
func (m *model) click(msg tea.MouseClickMsg) tea.Cmd {
	d := m.dialogs
	if msg.Button != tea.MouseLeft || d.editor != nil || d.chooser != nil || d.overlay != nil || d.prompt != nil && !d.prompt.isFilter {
		return nil
	}
	switch a := m.areas; {
	case m.table.rowsArea().has(msg.X, msg.Y):
		m.paneFocused = false
		return m.table.Update(msg)
	case a.filter.has(msg.X, msg.Y) && d.prompt == nil:
		m.openFilter()
	case m.pane.open && a.pane.has(msg.X, msg.Y):
		m.paneFocused = true
		m.pane.Update(msg)
	}
	return nil
}

// refresh fits the components into the screen and copies the visible lines. It returns commands for
// a needed detail and the next tick.
func (m *model) refresh() tea.Cmd {
	if m.flash.text != "" && !m.now().Before(m.flash.until) {
		m.flash = flash{}
	}
	m.areas = m.layout()
	m.table.area, m.pane.area = m.areas.table, m.areas.pane
	m.table.blurred = m.pane.open && m.paneFocused
	if m.dialogs.overlay != nil {
		m.dialogs.overlay.fit()
	}
	if m.dialogs.chooser != nil {
		m.dialogs.chooser.narrow()
	}
	var cmd tea.Cmd
	m.table.refresh(func(current *trace.Row) { cmd = m.pane.sync(current) })
	return tea.Batch(cmd, m.nextTick())
}

// nextTick requests a tick if a timer runs and no tick is pending.
func (m *model) nextTick() tea.Cmd {
	shown := m.flash.text != ""
	if m.tickPending || m.table.pause != nil && !shown {
		return nil
	}
	if !shown && !m.table.running() && !m.pane.loading && len(m.held()) == 0 {
		return nil
	}
	m.tickPending = true
	return tea.Tick(100*time.Millisecond, func(t time.Time) tea.Msg { return tickMsg(t) })
}
