package tui

import (
	"context"
	"errors"
	"os"
	"sync"

	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/watch"
)

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
