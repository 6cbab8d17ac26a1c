package tui

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/internal/filter"
	"mcpwire/internal/watch"
	"mcpwire/internal/wireview"
)

// A source is what a model shows: a [watch.Hub].
type source interface {
	Read(f func(m *trace.Model))
	selectRows(f *filter.Filter) selection
	Sources() []watch.Source
	Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error)
	Head(captureID string) *capture.Head
	Open(path string) error
	Restart(ctx context.Context, captureID string) error
}

// hubSource makes a hub a source.
type hubSource struct{ *watch.Hub }

func (h hubSource) selectRows(f *filter.Filter) selection { return h.Select(f) }

// The parts of the screen that keys can go to.
const (
	onTable = iota
	onPane
)

// A model is the state of the screen. Its methods belong to the event loop.
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

	sel          selection // nil until the first one is there
	query        query
	cursor       position
	top          position
	follow       bool
	pause        *pauseState // nil if not
	folds        foldState
	frames       *frameView // nil if exchanges are shown
	timeMode     int
	marks        []uint64 // Seq of rows to be compared, the older one first
	sources      []watch.Source
	view         viewport
	singleBridge bool // what is shown is of one bridge

	readingDetail bool               // the detail of a row is on its way: one at a time, since it may be large
	cancelRead    context.CancelFunc // gives that up
	readingCopy   bool               // a detail is read in order to be copied

	focus       int
	pane        *pane    // nil if closed
	zoom        bool     // the pane has all of the screen
	overlay     *overlay // nil if none
	prompt      *prompt  // nil if none
	editor      *editor  // nil if none
	flash       flash
	tickPending bool // one is on its way
	quit        bool
}

// The size of a screen that does not say how large it is.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// A choice is what the table is to show.
type query struct {
	text         string // the filter as it was entered
	findingsOnly bool   // only what has findings
	gen          int    // counts the choices, so that one that is late is not taken for the newest
	busy         bool   // the newest is on its way
}

// filter returns the choice as a filter.
func (c *query) filter() (*filter.Filter, error) {
	text := c.text
	if c.findingsOnly {
		text = "lint:*"
		if c.text != "" {
			text += " (" + c.text + ")"
		}
	}
	if text == "" {
		return nil, nil
	}
	return filter.Parse(text)
}

// pauseState is what is remembered while nothing moves.
type pauseState struct {
	last anchor    // of the list; what comes behind it is not shown
	at   time.Time // timers stand
}

// A flash is a message in the last line, for a while.
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
	changedMsg  struct{ sources bool } // the hub knows something new
	tickMsg     time.Time              // timers count
	selectedMsg struct {
		gen int
		sel selection
	}
	// A doneMsg is the end of something that took time: what there is to say, and what there is to show, which is made in the event loop.
	doneMsg struct {
		text string
		bad  bool
		show func() *overlay
	}
)

func (m *model) Init() tea.Cmd {
	return tea.Batch(tea.RequestBackgroundColor, m.selectRows())
}

// selectRows has the hub select what is wanted.
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
		if m.width, m.height = msg.Width, msg.Height; m.width <= 0 || m.height <= 0 { // it does not know
			m.width, m.height = defaultWidth, defaultHeight
		}
		if m.pane != nil && m.pane.hex {
			m.pane.pagers = nil // there may be room for other rows
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

// handleEvent handles what comes from the hub and from commands.
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

// gotSelection takes a selection into use, unless a newer one is on its way.
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

// setColors takes the name of a profile of colours.
func (m *model) setColors(profile string) {
	if m.opts.Colors != Colors256 {
		return // it was asked for
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

// close frees what the model has of the hub.
func (m *model) close() {
	if m.sel != nil {
		m.sel.Close()
	}
}
