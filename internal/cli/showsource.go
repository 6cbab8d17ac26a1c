package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"mcpwire/capture"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/internal/trace"
	"mcpwire/internal/trace/filter"
)

// A captureSource is the captures that a command reads. It can be read repeatedly, unless it
// includes standard input.
type captureSource struct {
	e     *env
	paths []string
	// side selects one side of a bridge's capture. "" is both.
	side capture.Side
}

// stdin reports whether the source includes standard input, which can be read only once.
func (s captureSource) stdin() bool {
	for _, p := range s.paths {
		if p == "-" {
			return true
		}
	}
	return false
}

// events returns the events of all captures in one timeline. If reading one capture fails, its
// error is in the sequence and the others continue.
func (s captureSource) events(ctx context.Context) iter.Seq2[*capture.Event, error] {
	var seqs []iter.Seq2[*capture.Event, error]
	for _, p := range s.paths {
		seqs = append(seqs, s.one(ctx, p, false))
	}
	if len(seqs) == 1 {
		return seqs[0]
	}
	return capture.Merge(seqs...)
}

// follow returns the events of the only capture as it grows.
func (s captureSource) follow(ctx context.Context) iter.Seq2[*capture.Event, error] {
	return s.one(ctx, s.paths[0], true)
}

func (s captureSource) one(ctx context.Context, path string, follow bool) iter.Seq2[*capture.Event, error] {
	return func(yield func(*capture.Event, error) bool) {
		var r *capture.Reader
		opts := &capture.ReaderOptions{Side: s.side}
		if path == "-" {
			r = capture.NewReader(s.e.stdin, opts)
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
			case errors.Is(err, capture.ErrFollowCompressed):
				err = usagef("show: --follow cannot read a compressed capture; without it, it is read to its end")
			case err != nil:
				err = fail(exitUnexpected, "unreadable", "", fmt.Errorf("%s: %w", path, err))
			case ctx.Err() != nil:
				err = ctx.Err()
			case first && e.Kind == capture.KindGap && e.N == 0 && r.Head() == nil:
				err = fail(exitUnexpected, "not_a_capture", "captures are NDJSON, see doc/capture-format.md; mcpwire tap records them",
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

// scanner returns a function that evaluates the filter's payload terms on messages, text and HTTP
// headers, or nil if the filter has none.
func scanner(ctx context.Context, f *filter.Filter) func(*capture.Event, *traffic.Frame) filter.Hits {
	if !f.NeedsPayload() {
		return nil
	}
	return func(e *capture.Event, frame *traffic.Frame) filter.Hits {
		h := f.ScanFrame(ctx, e.Data, frame)
		var headers []capture.Header
		switch {
		case e.Request != nil:
			h |= f.Scan(ctx, []byte(e.Request.Method+" "+e.Request.URL))
			headers = e.Request.Headers
		case e.Response != nil:
			headers = e.Response.Headers
		}
		for _, x := range headers {
			h |= f.Scan(ctx, []byte(x.Name+": "+x.Value))
		}
		return h
	}
}

// maxWindow limits how many rows are kept while a capture is read, and so how far apart the events
// of an exchange may be.
const maxWindow = 10_000

// walk reads captures and calls each for every row of the timeline, in order, once it is complete.
// It keeps a limited number of rows.
func walk(ctx context.Context, s captureSource, f *filter.Filter, each func(r *trace.Row) error) (*trace.Model, error) {
	m := trace.New(&trace.Options{MaxRows: maxWindow, Scan: scanner(ctx, f)})
	for e, err := range s.events(ctx) {
		if err != nil {
			return m, err
		}
		for _, c := range m.Add(nil, e) {
			if c.Op != trace.Evicted {
				continue
			}
			if err := each(c.Row); err != nil {
				return m, err
			}
		}
	}
	m.Finish()
	for _, r := range m.Rows() {
		if err := each(r); err != nil {
			return m, err
		}
	}
	return m, nil
}
