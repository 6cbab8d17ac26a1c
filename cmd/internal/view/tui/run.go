package tui

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/view/watch"
)

// Options configures [Run]. A nil *Options means the defaults.
type Options struct {
	// Filter is the initial filter. The screen shows an error if it is invalid.
	Filter string
	// Colors limits the colors. The zero value, Colors256, uses what the terminal supports.
	Colors Colors
	// Input and Output are the terminal. Nil means that of the process.
	Input  io.Reader
	Output io.Writer
	// Environ is the environment for detecting the terminal and $EDITOR. Nil means that of the
	// process.
	Environ []string
	// Folder is the folder for saved captures and relative names. Empty means the working folder.
	Folder string
	// Captures is the folder for captures of resent requests. Empty turns resending off.
	Captures string
	// Tool is the name and version of the program, for the heads of captures.
	Tool string
	// Now returns the current time for timers. Nil means time.Now.
	Now func() time.Time
	// Zone is the time zone of the clock column. Nil means the local one.
	Zone *time.Location
}

// Run shows the traffic in a hub on the terminal until the user quits or ctx ends. The hub must be
// running. opts may be nil.
func Run(ctx context.Context, hub *watch.Hub, opts *Options) error {
	if opts == nil {
		opts = &Options{}
	}
	ctx, cancel := context.WithCancel(ctx)
	t := newBackground(ctx)
	m := newModel(hubSource{hub, hub}, opts, t)
	p := tea.NewProgram(m, programOptions(ctx, opts)...)
	var wg sync.WaitGroup
	wg.Go(func() { feed(ctx, hub, p) })
	_, err := p.Run()
	cancel()
	wg.Wait()
	t.close()
	m.table.close()
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

// feed signals changes to the program until ctx ends.
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

// background runs commands outside the event loop. Their context ends with the screen, and close
// waits for them, which the event loop itself does not do.
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

// cmd returns a command that calls f with a time limit.
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

// close prevents new commands and waits for the running ones. Their context must have ended.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}
