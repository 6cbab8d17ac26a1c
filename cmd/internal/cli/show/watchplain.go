package show

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/watch"
)

// A plainFace prints the rows of a hub as lines or JSON objects. It prints a row once there is
// something to show, or with JSON once it is complete. Later children of a printed row follow when
// they happen.
type plainFace struct {
	hub  *watch.Hub
	sel  *watch.Selection
	list *lister
	// buf is the lister's output, so that the hub isn't locked while the output blocks.
	buf bytes.Buffer

	// waiting are the rows not printed yet, the oldest first.
	waiting []*trace.Row
	// known holds the Seq of each row in waiting.
	known map[uint64]bool
}

// maxWaiting limits how many rows wait. Beyond it, the oldest are printed incomplete.
const maxWaiting = sources.MaxWindow

// endPoll is the interval of checks for the end of all sources and of a search.
const endPoll = 100 * time.Millisecond

// watchPlain prints until ctx ends or, if captures were named, until all of them are complete.
func watchPlain(ctx context.Context, e *kit.Env, hub *watch.Hub, f *watchFlags, named bool) error {
	p := &plainFace{hub: hub, sel: hub.Select(f.parsed), known: map[uint64]bool{}}
	defer p.sel.Close()
	p.list = newLister(e, nil) // the selection filters
	p.list.w = bufio.NewWriter(&p.buf)
	p.list.json, p.list.live, p.list.server = f.json, true, true
	feed := hub.Subscribe(0)
	defer feed.Close()
	// announced reports that the wait for a first tap was announced, or is not needed.
	announced := named
	for {
		ended := named && p.ended()
		wait, cancel := context.WithTimeout(ctx, endPoll)
		var failed error
		err := feed.Next(wait, func(b *watch.Batch) { failed = p.take(b) })
		cancel()
		quiet := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		if quiet {
			err = nil
			hub.Read(func(*trace.Model) { failed = p.print(ended && !p.searching()) })
			if !announced && len(hub.Sources()) == 0 {
				fmt.Fprintln(e.Stderr, "no tap runs now; waiting for one (mcpwire wrap adds one to a host, Ctrl-C ends this)")
			}
			announced = true
		}
		if werr := p.write(e); werr != nil {
			return werr
		}
		switch {
		case ctx.Err() != nil:
			return nil // withHub reports it
		case err != nil:
			return err
		case failed != nil:
			return failed
		case quiet && ended && !p.searching():
			return p.unreadable()
		}
	}
}

func (p *plainFace) searching() bool {
	_, busy := p.sel.SearchProgress()
	return busy
}

// write flushes the printed text to standard output.
func (p *plainFace) write(e *kit.Env) error {
	if err := p.list.w.Flush(); err != nil {
		return err
	}
	_, err := p.buf.WriteTo(e.Stdout)
	return err
}

// ended reports whether all sources have ended.
func (p *plainFace) ended() bool {
	sources := p.hub.Sources()
	for _, s := range sources {
		if s.Err == "" && s.State != watch.Complete && s.State != watch.Truncated {
			return false
		}
	}
	return len(sources) > 0
}

// unreadable returns an error if a source could not be read.
func (p *plainFace) unreadable() error {
	for _, s := range p.hub.Sources() {
		if s.Err != "" {
			return exit.Fail(exit.Unexpected, "unreadable", "", errors.New(trace.Escape(s.Path+": "+s.Err)))
		}
	}
	return nil
}

// take processes changes. The caller holds the lock of the model.
func (p *plainFace) take(b *watch.Batch) error {
	for _, r := range b.Changed {
		switch {
		case r.Parent == nil && r.Mark == 0 && !p.known[r.Seq]:
			p.known[r.Seq] = true
			p.waiting = append(p.waiting, r)
		case r.Parent != nil && r.Mark == 0 && r.Root().Mark == markPrinted && !p.list.json:
			if err := p.list.late(r); err != nil {
				return err
			}
		}
	}
	return p.print(false)
}

// print prints the rows that are ready, or all of them. The caller holds the lock of the model.
func (p *plainFace) print(all bool) error {
	searching := p.searching()
	rest := p.waiting[:0]
	for i, r := range p.waiting {
		due := all || len(p.waiting)-i > maxWaiting || (p.list.json && r.Complete() || !p.list.json && live(r))
		switch {
		case r.Parent != nil: // printed inside another
			delete(p.known, r.Seq)
		case due && p.sel.Has(r):
			if err := p.list.print(r); err != nil {
				return err
			}
			delete(p.known, r.Seq)
		case due && !searching:
			delete(p.known, r.Seq) // the filter doesn't match
			r.Mark = markTaken
		default:
			rest = append(rest, r)
		}
	}
	clear(p.waiting[len(rest):])
	p.waiting = rest
	return nil
}
