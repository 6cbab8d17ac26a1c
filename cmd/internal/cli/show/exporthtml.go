package show

import (
	"context"
	"errors"
	"fmt"
	"io"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
)

// exportHTML writes captures as a self-contained page. It is the page of watch --web, so the
// captures are read as watch reads them.
func exportHTML(ctx context.Context, w io.Writer, paths []string, f *filter.Filter) error {
	hub := watch.New(&watch.Options{Files: paths})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- hub.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	server := web.New(hub, &web.Options{Tool: "mcpwire " + build.Version()})
	defer server.Close()
	if err := readWhole(ctx, hub); err != nil {
		return err
	}
	return server.Export(ctx, w, f)
}

// readWhole waits until hub has read everything that the captures contain now.
func readWhole(ctx context.Context, hub *watch.Hub) error {
	feed := hub.Subscribe(0)
	defer feed.Close()
	for {
		whole := hub.Loaded()
		for _, s := range hub.Sources() {
			if s.Err != "" {
				return exit.Fail(exit.Unexpected, "unreadable", "", errors.New(trace.Escape(s.Path+": "+s.Err)))
			}
			whole = whole && (s.State == watch.Complete || s.State == watch.Truncated || s.Size > 0 && s.Read >= s.Size)
		}
		wait, cancel := context.WithTimeout(ctx, endPoll)
		err := feed.Next(wait, func(*watch.Batch) {})
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && whole:
			return nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("reading the captures: %w", err)
		}
	}
}
