package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
)

// A Part is a part of a capture, to be saved.
type Part struct {
	// Capture is the id of the capture.
	Capture string
	// Path is empty if the capture has no file.
	Path string
	// Live means that the capture is still being written.
	Live bool
	// All selects every event of the file.
	All bool
	// Events are the selected events. The value false marks an event that others need as context,
	// such as the handshake.
	Events map[uint64]bool
	// Roots are the first events of selected rows of the timeline. Zero is a gap that the reader
	// added.
	Roots    map[uint64]bool
	Findings []trace.Finding
}

// NewPart returns an empty part of a capture.
func NewPart(captureID, path string) *Part {
	return &Part{Capture: captureID, Path: path, Events: map[uint64]bool{}, Roots: map[uint64]bool{}}
}

// wants reports whether an event is selected.
func (p *Part) wants(n uint64) bool {
	if p.All {
		return true
	}
	_, ok := p.Events[n]
	return ok
}

// Add adds a row of the timeline and the rows inside it.
func (p *Part) Add(root *trace.Row) {
	p.Roots[root.N] = true
	if root.N == 0 {
		p.Events[0] = true
	}
	for r := range root.All() {
		for _, n := range eventsOf(r) {
			p.Events[n] = true
		}
		p.Findings = append(p.Findings, r.Findings...)
	}
}

// AddContext adds a row as context if it describes the session.
func (p *Part) AddContext(root *trace.Row) {
	if !root.DescribesSession() {
		return
	}
	for r := range root.All() {
		for _, n := range eventsOf(r) {
			if _, ok := p.Events[n]; !ok {
				p.Events[n] = false
			}
		}
	}
}

// eventsOf returns the numbers of a row's events.
func eventsOf(r *trace.Row) []uint64 {
	list := append([]uint64{r.N, r.ResponseN}, r.Events...)
	for _, l := range r.Links {
		list = append(list, l.N)
	}
	if h := r.HTTP; h != nil {
		list = append(list, h.RequestN, h.ResponseN, h.EndN)
	}
	return slices.DeleteFunc(list, func(n uint64) bool { return n == 0 })
}

// A RedactedReader reads a part of a capture as lines in which every secret is redacted, even if
// the capture is not. It also reads the rest of the capture, to learn secrets that occur there. It
// is not safe for concurrent use. The caller must close it.
type RedactedReader struct {
	ctx context.Context
	// file is nil if the capture has no file.
	file *capture.Reader
	next func() (*capture.Event, error, bool)
	stop func()
	part *Part
	enc  *capture.Encoder
	buf  bytes.Buffer
	// missing counts the events that could not be read again.
	missing int
}

// An EventSource has the events of captures. It is a [Hub].
type EventSource interface {
	Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error)
	Head(captureID string) *capture.Head
}

// Open opens the part for reading: in its file or, without one, from src.
func (p *Part) Open(ctx context.Context, src EventSource) (*RedactedReader, error) {
	c := &RedactedReader{ctx: ctx, part: p}
	c.enc = capture.NewEncoder(&c.buf, nil)
	events := p.EventsFrom(ctx, src, &c.missing)
	if p.Path != "" {
		r, err := capture.Open(p.Path, nil)
		if err != nil {
			return nil, fmt.Errorf("read the capture: %w", err)
		}
		c.file, events = r, r.Events()
	}
	c.next, c.stop = iter.Pull2(events)
	return c, nil
}

// EventsFrom yields the selected events that a source still has, and counts the others in gone.
func (p *Part) EventsFrom(ctx context.Context, src EventSource, gone *int) iter.Seq2[*capture.Event, error] {
	return func(yield func(*capture.Event, error) bool) {
		if h := src.Head(p.Capture); h != nil && !yield(&capture.Event{Kind: capture.KindHead, Head: h, Capture: p.Capture, At: h.At}, nil) {
			return
		}
		for _, n := range slices.Sorted(maps.Keys(p.Events)) {
			e, err := src.Event(ctx, p.Capture, n)
			if errors.Is(err, ErrGone) {
				*gone++
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Missing returns how many events could not be read again.
func (rr *RedactedReader) Missing() int { return rr.missing }

// Close closes the file.
func (rr *RedactedReader) Close() error {
	rr.stop()
	if rr.file == nil {
		return nil
	}
	return rr.file.Close()
}

// Read implements [io.Reader].
func (rr *RedactedReader) Read(p []byte) (int, error) {
	for rr.buf.Len() == 0 {
		if err := rr.ctx.Err(); err != nil {
			return 0, err
		}
		e, err, ok := rr.next()
		if !ok {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		if err := rr.encodeEvent(e); err != nil {
			return 0, err
		}
	}
	return rr.buf.Read(p)
}

// encodeEvent writes an event to the buffer if it is selected.
func (rr *RedactedReader) encodeEvent(e *capture.Event) error {
	if e.Capture != rr.part.Capture { // a file may have several captures
		return nil
	}
	if h := e.Head; e.Kind == capture.KindHead && h != nil && h.Redact == "off" {
		head, copied := *h, *e
		head.Redact = "default"
		copied.Head = &head
		e = &copied
	}
	if err := errors.Join(rr.enc.Encode(e), rr.enc.Flush()); err != nil {
		return err
	}
	if !rr.wants(e) {
		rr.buf.Reset()
	}
	return nil
}

func (rr *RedactedReader) wants(e *capture.Event) bool {
	switch {
	case e.Kind == capture.KindHead:
		return true
	case e.Kind == capture.KindTail:
		return rr.part.All // otherwise its numbers would be wrong
	case e.Kind == capture.KindGap && e.Gap != nil && e.Gap.Why == capture.GapTruncated && rr.part.Live:
		return false // it is being written
	}
	return rr.part.wants(e.N)
}

// Texts returns texts with the secrets of the capture redacted. It must be called after reading
// everything, when all secrets are known.
func (rr *RedactedReader) Texts(list []string) ([]string, error) {
	rr.buf.Reset()
	for i, t := range list {
		if err := rr.enc.Encode(&capture.Event{Kind: capture.KindNote, N: uint64(i + 1), Data: []byte(t)}); err != nil {
			return nil, err
		}
	}
	if err := rr.enc.Flush(); err != nil {
		return nil, err
	}
	var out []string
	for e, err := range capture.NewReader(&rr.buf, nil).Events() {
		if err != nil {
			return nil, err
		}
		out = append(out, string(e.Data))
	}
	if len(out) != len(list) {
		return nil, errors.New("texts cannot be redacted")
	}
	return out, nil
}
