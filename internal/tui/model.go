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
	Read(f func(m *wireview.Model))
	choose(f *filter.Filter) selection
	Sources() []watch.Source
	Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error)
	Head(captureID string) *capture.Head
	Open(path string) error
	Restart(ctx context.Context, captureID string) error
}

// hubSource makes a hub a source.
type hubSource struct{ *watch.Hub }

func (h hubSource) choose(f *filter.Filter) selection { return h.Select(f) }

// The parts of the screen that keys can go to.
const (
	onTable = iota
	onPane
)

// A model is the state of the screen. Its methods belong to the event loop.
type model struct {
	src   source
	opts  Options
	tasks *tasks

	width, height int
	colours       Colours
	dark          bool
	theme         *theme
	zone          *time.Location
	now           func() time.Time

	sel      selection // nil until the first one is there
	choice   choice
	cursor   spot
	top      spot
	follow   bool
	pause    *pausing // nil if not
	folds    folding
	frames   *frameView // nil if exchanges are shown
	timeMode int
	marks    []uint64 // Seq of rows to be compared, the older one first
	sources  []watch.Source
	view     viewport
	sided    bool // what is shown is of one bridge

	reading bool               // the detail of a row is on its way: one at a time, since it may be large
	unread  context.CancelFunc // gives that up
	copying bool               // a detail is read in order to be copied

	focus  int
	pane   *pane    // nil if closed
	zoom   bool     // the pane has all of the screen
	over   *overlay // nil if none
	prompt *prompt  // nil if none
	editor *editing // nil if none
	flash  flash
	tick   bool // one is on its way
	quit   bool
}

// The size of a screen that does not say how large it is.
const (
	usualWidth  = 80
	usualHeight = 24
)

// A choice is what the table is to show.
type choice struct {
	text  string // the filter as it was entered
	lints bool   // only what has findings
	gen   int    // counts the choices, so that one that is late is not taken for the newest
	busy  bool   // the newest is on its way
}

// filter returns the choice as a filter.
func (c *choice) filter() (*filter.Filter, error) {
	text := c.text
	if c.lints {
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

// pausing is what is remembered while nothing moves.
type pausing struct {
	last place     // of the list; what comes behind it is not shown
	at   time.Time // timers stand
}

// A flash is a message in the last line, for a while.
type flash struct {
	text  string
	bad   bool
	until time.Time
}

func newModel(src source, opts *Options, t *tasks) *model {
	m := &model{src: src, tasks: t, width: usualWidth, height: usualHeight, dark: true, follow: true, now: time.Now, zone: time.Local}
	if opts != nil {
		m.opts = *opts
	}
	if m.opts.Now != nil {
		m.now = m.opts.Now
	}
	if m.opts.Zone != nil {
		m.zone = m.opts.Zone
	}
	m.colours = m.opts.Colours
	m.theme = newTheme(m.colours, m.dark)
	m.choice.text = m.opts.Filter
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
	return tea.Batch(tea.RequestBackgroundColor, m.choose())
}

// choose has the hub select what is wanted.
func (m *model) choose() tea.Cmd {
	f, err := m.choice.filter()
	if err != nil {
		m.say(true, "%v", err)
		return nil
	}
	m.choice.gen++
	m.choice.busy = true
	gen, src := m.choice.gen, m.src
	return m.tasks.cmd(time.Minute, func(context.Context) tea.Msg { return selectedMsg{gen, src.choose(f)} })
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := m.handle(msg)
	return m, tea.Batch(cmd, m.refresh())
}

func (m *model) handle(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if m.width, m.height = msg.Width, msg.Height; m.width <= 0 || m.height <= 0 { // it does not know
			m.width, m.height = usualWidth, usualHeight
		}
		if m.pane != nil && m.pane.hex {
			m.pane.pages = nil // there may be room for other rows
		}
		if m.editor != nil {
			m.editor.resize(m.width, m.height)
		}
	case tea.ColorProfileMsg:
		m.setColours(msg.String())
	case tea.BackgroundColorMsg:
		m.dark = msg.IsDark()
		m.theme = newTheme(m.colours, m.dark)
		m.restyle()
	case tea.KeyPressMsg:
		return m.key(msg)
	case tea.PasteMsg:
		return m.paste(msg.Content)
	case tea.MouseClickMsg:
		return m.click(msg.Mouse())
	case tea.MouseWheelMsg:
		return m.wheel(msg.Mouse())
	default:
		return m.event(msg)
	}
	return nil
}

// event handles what comes from the hub and from commands.
func (m *model) event(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case changedMsg:
		if msg.sources || m.sources == nil {
			m.sources = m.src.Sources()
		}
		return m.buildFrames(false)
	case tickMsg:
		m.tick = false
	case selectedMsg:
		m.selected(msg)
		return m.buildFrames(true)
	case framesMsg:
		return m.gotFrames(msg)
	case detailMsg:
		m.gotDetail(msg)
	case readMsg:
		return m.read(msg)
	case filterPauseMsg:
		return m.filterPaused(msg)
	case foundMsg:
		return m.found(msg)
	case editedMsg:
		return m.edited(msg)
	case doneMsg:
		if msg.text != "" {
			m.say(msg.bad, "%s", msg.text)
		}
		if msg.show != nil {
			m.over, m.flash = msg.show(), flash{}
		}
	default:
		if m.editor != nil {
			return m.editor.update(msg)
		}
	}
	return nil
}

// selected takes a selection into use, unless a newer one is on its way.
func (m *model) selected(msg selectedMsg) {
	if msg.gen != m.choice.gen {
		msg.sel.Close()
		return
	}
	if m.sel != nil {
		m.sel.Close()
	}
	m.sel, m.choice.busy = msg.sel, false
	m.sources = m.src.Sources()
}

// setColours takes the name of a profile of colours.
func (m *model) setColours(profile string) {
	if m.opts.Colours != Many {
		return // it was asked for
	}
	switch profile {
	case "TrueColor", "ANSI256":
		m.colours = Many
	case "ANSI":
		m.colours = Sixteen
	default:
		m.colours = None
	}
	m.theme = newTheme(m.colours, m.dark)
	m.restyle()
}

// close frees what the model has of the hub.
func (m *model) close() {
	if m.sel != nil {
		m.sel.Close()
	}
}
