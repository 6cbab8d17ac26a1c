// Package sources names captures on a command line, completes the names, and reads them.
package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
)

// A Source is the captures that a command reads. It can be read repeatedly, unless it
// includes standard input.
type Source struct {
	Env   *kit.Env
	Paths []string
	// Side selects one side of a bridge's capture. "" is both.
	Side capture.Side
}

// Stdin reports whether the source includes standard input, which can be read only once.
func (s Source) Stdin() bool {
	for _, p := range s.Paths {
		if p == "-" {
			return true
		}
	}
	return false
}

// Events returns the events of all captures in one timeline. If reading one capture fails, its
// error is in the sequence and the others continue.
func (s Source) Events(ctx context.Context) iter.Seq2[*capture.Event, error] {
	var seqs []iter.Seq2[*capture.Event, error]
	for _, p := range s.Paths {
		seqs = append(seqs, s.One(ctx, p, false))
	}
	if len(seqs) == 1 {
		return seqs[0]
	}
	return capture.Merge(seqs...)
}

// discoverInterval is how often [Source.Follow] looks for new captures.
const discoverInterval = time.Second

// Follow returns the events of the captures as they grow, in the order in which they are written.
// It ends when all captures have ended. discover, if not nil, returns further captures to follow.
func (s Source) Follow(ctx context.Context, discover func() []string) iter.Seq2[*capture.Event, error] {
	type item struct {
		e   *capture.Event
		err error
		// taken is closed when the event is no longer needed.
		taken chan struct{}
	}
	return func(yield func(*capture.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		items, ended := make(chan item), make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		running := 0
		start := func(path string) {
			running++
			wg.Go(func() {
				for e, err := range s.One(ctx, path, true) {
					it := item{e, err, make(chan struct{})}
					select {
					case items <- it:
					case <-ctx.Done():
						return
					}
					select {
					case <-it.taken:
					case <-ctx.Done():
						return
					}
				}
				select {
				case ended <- struct{}{}:
				case <-ctx.Done():
				}
			})
		}
		for _, p := range s.Paths {
			start(p)
		}
		ticker := time.NewTicker(discoverInterval)
		defer ticker.Stop()
		for running > 0 {
			select {
			case it := <-items:
				if !yield(it.e, it.err) {
					return
				}
				close(it.taken)
			case <-ended:
				running--
			case <-ticker.C:
				if discover != nil {
					for _, p := range discover() {
						start(p)
					}
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// One returns the events of one capture. With follow, it also returns those that are written later.
func (s Source) One(ctx context.Context, path string, follow bool) iter.Seq2[*capture.Event, error] {
	return func(yield func(*capture.Event, error) bool) {
		var r *capture.Reader
		opts := &capture.ReaderOptions{Side: s.Side}
		if path == "-" {
			r = capture.NewReader(s.Env.Stdin, opts)
		} else {
			var err error
			if r, err = capture.Open(path, opts); err != nil {
				yield(nil, err)
				return
			}
			defer r.Close()
		}
		events := r.Events()
		if follow {
			events = r.Follow(ctx)
		}
		first := true
		for e, err := range events {
			switch {
			case errors.Is(err, errors.ErrUnsupported):
				err = exit.Usagef("show: --follow cannot read a compressed capture; without it, it is read to its end")
			case err != nil:
				err = exit.Fail(exit.Unexpected, "unreadable", "", fmt.Errorf("%s: %w", path, err))
			case ctx.Err() != nil:
				err = ctx.Err()
			case first && e.Kind == capture.KindGap && e.N == 0 && r.Head() == nil:
				err = exit.Fail(exit.Unexpected, "not_a_capture", "captures are NDJSON, see doc/capture-format.md; mcpwire tap records them",
					fmt.Errorf("%s is not a capture: its first line is not an event", path))
			}
			first = false
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// MaxWindow limits how many rows are kept while a capture is read, and so how far apart the events
// of an exchange may be.
const MaxWindow = 10_000

// NewWalkModel returns a model for [Walk], which keeps a limited number of rows.
func NewWalkModel(ctx context.Context, f *filter.Filter) *trace.Model {
	return trace.New(&trace.Options{MaxRows: MaxWindow, Scan: trace.Scanner(ctx, f)})
}

// Walk reads captures into m and calls each for every row of the timeline, in order, once it is
// complete. It ends with the first error of each.
func Walk(ctx context.Context, s Source, m *trace.Model, each func(r *trace.Row) error) error {
	for e, err := range s.Events(ctx) {
		if err != nil {
			return err
		}
		for _, c := range m.Add(nil, e) {
			if c.Op != trace.Evicted {
				continue
			}
			if err := each(c.Row); err != nil {
				return err
			}
		}
	}
	m.Finish()
	for _, r := range m.Rows() {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// ErrEnough ends a walk that needs no more rows.
var ErrEnough = errors.New("enough")

// HasOneHead reports whether the source is certainly one capture, so that no number occurs twice.
// It only looks for the word, which is much faster than reading the events.
func (s Source) HasOneHead() bool {
	if len(s.Paths) != 1 || !strings.HasSuffix(s.Paths[0], capture.Suffix) {
		return false
	}
	f, err := os.Open(s.Paths[0])
	if err != nil {
		return false
	}
	defer f.Close()
	head := []byte(`"head"`)
	buf := make([]byte, 1<<20)
	heads, kept := 0, 0
	for {
		n, err := f.Read(buf[kept:])
		text := buf[:kept+n]
		if heads += bytes.Count(text, head); heads > 1 {
			return false
		}
		if err != nil {
			return err == io.EOF && heads == 1
		}
		// The word may continue.
		kept = copy(buf, text[max(0, len(text)-len(head)+1):])
	}
}

// MaxUnchecked limits the bytes of events that wait for the checker; each event counts EventBytes
// more. Further events are dropped, and the checker sees a gap.
const (
	MaxUnchecked = 64 << 20
	EventBytes   = 512
)

// ParseFilter parses a filter. An empty text is nil.
func ParseFilter(command, text string) (*filter.Filter, error) {
	if text == "" {
		return nil, nil
	}
	f, err := filter.Parse(text)
	if err != nil {
		return nil, exit.Usagef("%s: %w", command, err)
	}
	return f, nil
}
