package tui

import (
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/internal/trace"
	"mcpwire/internal/trace/filter"
	"mcpwire/internal/view/watch"
)

// A source provides the data of a model. It is a [watch.Hub].
type source interface {
	Read(f func(m *trace.Model))
	selectRows(f *filter.Filter) selection
	Sources() []watch.Source
	Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error)
	Head(captureID string) *capture.Head
	Open(path string) error
	Restart(ctx context.Context, captureID string) error
}

// A hubSource is the source of a hub.
type hubSource struct{ *watch.Hub }

func (h hubSource) selectRows(f *filter.Filter) selection { return h.Select(f) }

// The parts of the screen that can have the focus.
const (
	onTable = iota
	onPane
)

// A model is the state of the screen. Its methods run in the event loop.
type model struct {
	src        source
	opts       Options
	background *background

	width, height int
	colors        Colors
	dark          bool
	theme         *theme
	zone          *time.Location
	now           func() time.Time

	// sel is nil until the first selection is ready.
	sel    selection
	query  query
	cursor position
	top    position
	follow bool
	// pause is nil unless paused.
	pause *pauseState
	folds foldState
	// frames is nil if exchanges are shown.
	frames   *frameView
	timeMode int
	// marks has the Seq of the rows to compare, in the order in which they were marked.
	marks   []uint64
	sources []watch.Source
	view    viewport
	// singleBridge tells that all rows are from one bridge.
	singleBridge bool

	// readingDetail tells that the detail of a row is being read: one at a time, because it may be
	// large.
	readingDetail bool
	// cancelRead cancels that.
	cancelRead context.CancelFunc
	// readingCopy tells that a detail is being read in order to copy it.
	readingCopy bool

	focus int
	// pane is nil if closed.
	pane *pane
	// zoom gives the whole screen to the pane.
	zoom bool
	// overlay is nil if closed.
	overlay *overlay
	// prompt is nil if closed.
	prompt *prompt
	// editor is nil if closed.
	editor *editor
	flash  flash
	// tickPending tells that a tick has been requested.
	tickPending bool
	quit        bool
}

// The size of a terminal that does not report its size.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// A query describes what the table should show.
type query struct {
	// text is the filter as entered.
	text string
	// findingsOnly restricts the table to rows with findings.
	findingsOnly bool
	// gen counts the queries, to recognize outdated results.
	gen int
	// busy tells that the newest selection is not ready.
	busy bool
}

// filter returns the query as a filter.
func (c *query) filter() (*filter.Filter, error) {
	text := c.text
	if c.findingsOnly {
		text = "finding:*"
		if c.text != "" {
			text += " (" + c.text + ")"
		}
	}
	if text == "" {
		return nil, nil
	}
	return filter.Parse(text)
}

// A pauseState is the state of a paused table.
type pauseState struct {
	// last is the last item shown.
	last anchor
	// at is the time at which timers stopped.
	at time.Time
}

// A flash is a message shown in the last line for a while.
type flash struct {
	text  string
	bad   bool
	until time.Time
}

func newModel(src source, opts *Options, t *background) *model {
	m := &model{src: src, background: t, width: defaultWidth, height: defaultHeight, dark: true, follow: true, now: time.Now, zone: time.Local}
	if opts != nil {
		m.opts = *opts
	}
	if m.opts.Now != nil {
		m.now = m.opts.Now
	}
	if m.opts.Zone != nil {
		m.zone = m.opts.Zone
	}
	m.colors = m.opts.Colors
	m.theme = newTheme(m.colors, m.dark)
	m.query.text = m.opts.Filter
	return m
}

// Messages of the model to itself, and of the feed.
type (
	// changedMsg tells that the hub has changed.
	changedMsg struct{ sources bool }
	// tickMsg updates timers.
	tickMsg time.Time
	// A selectedMsg has the selection for a query.
	selectedMsg struct {
		gen int
		sel selection
	}
	// A doneMsg is the result of a background command. The event loop calls show.
	doneMsg struct {
		text string
		bad  bool
		show func() *overlay
	}
)

func (m *model) Init() tea.Cmd {
	return tea.Batch(tea.RequestBackgroundColor, m.selectRows())
}

// selectRows starts the selection for the query.
func (m *model) selectRows() tea.Cmd {
	f, err := m.query.filter()
	if err != nil {
		m.showFlash(true, "%v", err)
		return nil
	}
	m.query.gen++
	m.query.busy = true
	gen, src := m.query.gen, m.src
	return m.background.cmd(time.Minute, func(context.Context) tea.Msg { return selectedMsg{gen, src.selectRows(f)} })
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := m.handleMsg(msg)
	return m, tea.Batch(cmd, m.refresh())
}

func (m *model) handleMsg(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if m.width, m.height = msg.Width, msg.Height; m.width <= 0 || m.height <= 0 { // unknown
			m.width, m.height = defaultWidth, defaultHeight
		}
		if m.pane != nil && m.pane.hex {
			m.pane.pagers = nil // the width of a hex row may change
		}
		if m.editor != nil {
			m.editor.resize(m.width, m.height)
		}
	case tea.ColorProfileMsg:
		m.setColors(msg.String())
	case tea.BackgroundColorMsg:
		m.dark = msg.IsDark()
		m.theme = newTheme(m.colors, m.dark)
		m.restyle()
	case tea.KeyPressMsg:
		return m.handleKey(msg)
	case tea.PasteMsg:
		return m.paste(msg.Content)
	case tea.MouseClickMsg:
		return m.click(msg.Mouse())
	case tea.MouseWheelMsg:
		return m.wheel(msg.Mouse())
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
			m.sources = m.src.Sources()
		}
		return m.buildFrames(false)
	case tickMsg:
		m.tickPending = false
	case selectedMsg:
		m.gotSelection(msg)
		return m.buildFrames(true)
	case framesMsg:
		return m.gotFrames(msg)
	case detailMsg:
		m.gotDetail(msg)
	case copyDetailMsg:
		return m.useDetail(msg)
	case filterDebounceMsg:
		return m.applyFilter(msg)
	case originMsg:
		return m.gotOrigin(msg)
	case editedMsg:
		return m.gotEdited(msg)
	case doneMsg:
		if msg.text != "" {
			m.showFlash(msg.bad, "%s", msg.text)
		}
		if msg.show != nil {
			m.overlay, m.flash = msg.show(), flash{}
		}
	default:
		if m.editor != nil {
			return m.editor.update(msg)
		}
	}
	return nil
}

// gotSelection uses a selection, unless a newer one is requested.
func (m *model) gotSelection(msg selectedMsg) {
	if msg.gen != m.query.gen {
		msg.sel.Close()
		return
	}
	if m.sel != nil {
		m.sel.Close()
	}
	m.sel, m.query.busy = msg.sel, false
	m.sources = m.src.Sources()
}

// setColors sets the colors for a color profile.
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
	m.restyle()
}

// close releases the selection.
func (m *model) close() {
	if m.sel != nil {
		m.sel.Close()
	}
}

// handleKey passes a key to the editor, the prompt, the overlay, the pane or the table.
func (m *model) handleKey(k tea.KeyPressMsg) tea.Cmd {
	if m.flash.text != "" {
		m.flash = flash{}
	}
	if k.String() == "alt+esc" { // two quick Esc
		k = tea.KeyPressMsg{Code: tea.KeyEscape}
	}
	switch {
	case m.editor != nil:
		return m.editorKey(k)
	case m.prompt != nil:
		return m.promptKey(k)
	case k.String() == "ctrl+c":
		return m.quitProgram()
	case k.String() == "ctrl+z":
		return tea.Suspend
	case m.overlay != nil:
		return m.overlayKey(k.String())
	}
	if m.pane != nil && m.focus == onPane || m.tableHidden() {
		if cmd, ok := m.paneKey(k.String()); ok {
			return cmd
		}
	} else if m.tableKey(k.String()) {
		return nil
	}
	return m.globalKey(k.String())
}

func (m *model) quitProgram() tea.Cmd {
	m.quit = true
	return tea.Quit
}

// tableHidden reports whether the pane has the whole screen.
func (m *model) tableHidden() bool { return m.pane != nil && m.layout().table.h == 0 }

// overlayKey handles a key while an overlay is open.
func (m *model) overlayKey(k string) tea.Cmd {
	page, height := m.activePager()
	switch k {
	case "esc", "q", "enter":
		m.overlay = nil
	case "/":
		m.prompt = newPrompt(searchPrompt, "/", "")
	case "y":
		if m.overlay.copy != "" {
			return m.copyText("it", m.overlay.copy)
		}
	case "Y":
		if m.overlay.alternate != nil {
			return m.overlay.alternate()
		}
	default:
		m.scrollKey(page, height, k)
	}
	return nil
}

// scrollKey handles a key that scrolls a text. It returns false for other keys.
func (m *model) scrollKey(p *pager, height int, k string) bool {
	if p == nil {
		return false
	}
	switch k {
	case "j", "down":
		p.scroll(1, height)
	case "k", "up":
		p.scroll(-1, height)
	case "pgdown", "space", "ctrl+f":
		p.scroll(max(1, height-1), height)
	case "pgup", "shift+space", "ctrl+b":
		p.scroll(-max(1, height-1), height)
	case "ctrl+d":
		p.scroll(max(1, height/2), height)
	case "ctrl+u":
		p.scroll(-max(1, height/2), height)
	case "g", "home":
		p.scroll(-maxPager, height)
	case "G", "end":
		p.scroll(maxPager, height)
	case "n", "N":
		if !p.jumpToMatch(k == "n", height) {
			m.showFlash(false, "no matches: / searches in this text")
		}
	case "W":
		p.toggleWrap()
	default:
		return false
	}
	return true
}

// paneKey handles a key of the pane. The second result is false for other keys.
func (m *model) paneKey(k string) (tea.Cmd, bool) {
	p := m.pane
	page, height := m.activePager()
	switch k {
	case "esc", "q":
		m.closePane()
	case "tab", "shift+tab":
		if !m.tableHidden() {
			m.focus = onTable
		}
	case "/":
		m.prompt = newPrompt(searchPrompt, "/", "")
	case "left", "h", "right", "l":
		m.nextTab(k == "right" || k == "l")
	case "J", "K": // the next row, without leaving the pane
		m.tableKey(map[string]string{"J": "down", "K": "up"}[k])
	case "b":
		p.hex = !p.hex
		m.showFlash(false, "bytes as %s", map[bool]string{true: "hexadecimal", false: "text"}[p.hex])
		p.openTab = "Raw"
	case "z", "enter":
		m.zoom = !m.zoom
	default:
		return nil, m.scrollKey(page, height, k)
	}
	return nil, true
}

// nextTab opens the next or previous tab.
func (m *model) nextTab(forward bool) {
	p := m.pane
	for i := range p.tabs {
		if &p.tabs[i] != p.currentTab() {
			continue
		}
		if forward {
			i++
		} else {
			i += len(p.tabs) - 1
		}
		p.openTab = p.tabs[i%len(p.tabs)].title
		return
	}
}

// globalKey handles the keys that work everywhere.
func (m *model) globalKey(k string) tea.Cmd {
	if len(k) == 1 && k[0] >= '1' && k[0] <= '9' {
		m.chooseTab(int(k[0] - '1'))
		return nil
	}
	switch k {
	case "q":
		return m.quitProgram()
	case "esc":
		return m.goBack()
	case "enter":
		if m.view.seq != 0 {
			m.openPane()
		}
	case "tab", "shift+tab":
		if m.pane != nil {
			m.focus = onPane
		}
	case "/":
		m.prompt = newPrompt(filterPrompt, "/", m.query.text)
		m.prompt.check()
	case "f":
		m.setFollow(!m.follow)
	case "p":
		m.setPause()
	case "x":
		return m.switchFrames()
	case "t":
		m.timeMode = (m.timeMode + 1) % timeModes
	case "l":
		m.query.findingsOnly = !m.query.findingsOnly
		return m.selectRows()
	case "z":
		m.zoom = m.pane != nil && !m.zoom
	case "?":
		m.overlay = newOverlay("Keys", m.helpLines)
	case "c":
		m.openCard()
	case "s":
		m.overlay = m.toolsOverlay()
	default:
		return m.rowKey(k)
	}
	return nil
}

// rowKey handles the keys that act on the cursor's row.
func (m *model) rowKey(k string) tea.Cmd {
	switch k {
	case "m":
		m.toggleMark()
	case "o":
		return m.goToOtherSide()
	case "d":
		return m.diffMarked()
	case "y":
		return m.withDetail(m.copyPayload)
	case "Y":
		return m.withDetail(m.copyCommand)
	case "r":
		return m.startResend(false)
	case "E":
		return m.startResend(true)
	case "w":
		return m.restart()
	case "e":
		m.prompt = newPrompt(savePrompt, "save as", m.saveName())
	}
	return nil
}

// goBack goes back one step: it closes the pane, ends a pause or clears the filter.
func (m *model) goBack() tea.Cmd {
	switch {
	case m.pane != nil:
		m.closePane()
	case m.pause != nil:
		m.pause = nil
		return m.buildFrames(true)
	case m.query.text != "" || m.query.findingsOnly:
		m.query.text, m.query.findingsOnly = "", false
		return m.selectRows()
	default:
		m.showFlash(false, "q quits")
	}
	return nil
}

// chooseTab opens a tab, and the pane if needed.
func (m *model) chooseTab(i int) {
	names := tabNames()
	switch {
	case m.pane == nil:
		if m.view.seq != 0 {
			m.openPane()
			m.focus = onTable
			m.pane.openTab = names[i]
		}
	case m.pane.detail == nil:
		m.pane.wantTab = i + 1
	case slices.ContainsFunc(m.pane.tabs, func(t tab) bool { return t.title == names[i] }):
		m.pane.openTab = names[i]
	default:
		m.showFlash(false, "this row has no tab %d, %s", i+1, names[i])
	}
}

func (m *model) openCard() {
	if !m.view.hasSession {
		m.showFlash(false, "no session yet")
		return
	}
	m.overlay = m.cardOverlay()
}

// wheelLines is the number of lines of a wheel step.
const wheelLines = 3

func (m *model) wheel(e tea.Mouse) tea.Cmd {
	n := wheelLines
	switch e.Button {
	case tea.MouseWheelUp:
		n = -n
	case tea.MouseWheelDown:
	default:
		return nil
	}
	switch {
	case m.editor != nil:
	case m.overlay != nil:
		m.overlay.pager.scroll(n, m.overlayHeight())
	case m.pane != nil && m.view.area.pane.has(e.X, e.Y):
		if page, height := m.activePager(); page != nil {
			page.scroll(n, height)
		}
	default:
		m.moveCursor(n)
	}
	return nil
}

// click selects a row, unfolds it by its triangle, or selects a tab. A click on the cursor's row
// opens it.
func (m *model) click(e tea.Mouse) tea.Cmd {
	if e.Button != tea.MouseLeft || m.editor != nil || m.overlay != nil || m.prompt != nil && m.prompt.kind != filterPrompt {
		return nil
	}
	a := m.view.area
	switch {
	case a.table.has(e.X, e.Y):
		m.clickRow(e.X, e.Y-a.table.y)
	case a.filter.has(e.X, e.Y) && m.prompt == nil:
		m.prompt = newPrompt(filterPrompt, "/", m.query.text)
		m.prompt.check()
	case m.pane != nil && a.pane.has(e.X, e.Y):
		m.focus = onPane
		if e.Y == m.paneBody().y-1 {
			for _, t := range m.pane.tabs {
				if e.X >= t.x && e.X < t.x+t.w {
					m.pane.openTab = t.title
				}
			}
		}
	}
	return nil
}
