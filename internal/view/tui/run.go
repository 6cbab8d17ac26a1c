package tui

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/view/watch"
)

// Options are the options of [Run]. nil means defaults.
type Options struct {
	// Filter is the text of the filter to begin with; one that is no filter is said to be wrong on the screen.
	Filter string
	// Colors limits the colours. Many, the zero value, uses what the terminal has.
	Colors Colors
	// Input and Output are the terminal; nil is the process's.
	Input  io.Reader
	Output io.Writer
	// Environ is the environment by which the terminal is judged, and $EDITOR found; nil is the process's.
	Environ []string
	// Folder is where captures are saved, and where relative names are meant; "" is the working folder.
	Folder string
	// Captures is the folder in which answers to requests that are sent again are recorded; "" turns that off.
	Captures string
	// Tool is the name and the version of the program, for the heads of captures.
	Tool string
	// Now returns the time by which timers count; nil is time.Now.
	Now func() time.Time
	// Zone is the time zone of the clock's column; nil is the local one.
	Zone *time.Location
}

// Run shows what a hub knows on the terminal until the user leaves or ctx ends. The hub has to be running. opts may be nil.
func Run(ctx context.Context, hub *watch.Hub, opts *Options) error {
	if opts == nil {
		opts = &Options{}
	}
	ctx, cancel := context.WithCancel(ctx)
	t := newBackground(ctx)
	m := newModel(hubSource{hub}, opts, t)
	p := tea.NewProgram(m, programOptions(ctx, opts)...)
	var wg sync.WaitGroup
	wg.Go(func() { feed(ctx, hub, p) })
	_, err := p.Run()
	cancel()
	wg.Wait()
	t.close()
	m.close()
	if m.quit || errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil && !errors.Is(err, tea.ErrProgramPanic) || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

func programOptions(ctx context.Context, opts *Options) []tea.ProgramOption {
	list := []tea.ProgramOption{tea.WithContext(ctx), tea.WithoutSignalHandler(), tea.WithFPS(30), tea.WithWindowSize(defaultWidth, defaultHeight)}
	if opts.Input != nil {
		list = append(list, tea.WithInput(opts.Input))
	}
	if opts.Output != nil {
		list = append(list, tea.WithOutput(opts.Output))
	}
	environ := opts.Environ
	if environ == nil {
		environ = os.Environ()
	}
	return append(list, tea.WithEnvironment(environ))
}

// feed tells the program that something is new, until ctx ends.
func feed(ctx context.Context, hub *watch.Hub, p *tea.Program) {
	f := hub.Subscribe(0)
	defer f.Close()
	for {
		var msg changedMsg
		if err := f.Next(ctx, func(b *watch.Batch) { msg.sources = b.Sources }); err != nil {
			return
		}
		p.Send(msg)
	}
}

// background are what goes on beside the event loop. They have a context, which ends with the screen, and an owner who waits for them: the event loop alone would leave them behind.
type background struct {
	start func(limit time.Duration) (context.Context, context.CancelFunc)

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newBackground(ctx context.Context) *background {
	return &background{start: func(limit time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, limit)
	}}
}

// cmd returns a command that calls f with a context that ends after the limit.
func (b *background) cmd(limit time.Duration, f func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		if !b.begin() {
			return nil
		}
		defer b.wg.Done()
		ctx, cancel := b.start(limit)
		defer cancel()
		return f(ctx)
	}
}

func (b *background) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Add(1)
	}
	return !b.closed
}

// close lets no more begin, and waits for those that have. Their context must have ended.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}
