package web

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
	"mcpwire/internal/watch"
)

// A redacted is the part of a capture that was picked, as the lines of a capture in which every secret is hidden, even if the capture has them. What is not picked is looked at
// nevertheless: a secret that is known from there is hidden here. It is an io.Reader for one goroutine. Close it in the end.
type redactedReader struct {
	ctx       context.Context
	file      *capture.Reader // nil if there is none
	next      func() (*capture.Event, error, bool)
	stop      func()
	selection *captureSelection
	enc       *capture.Encoder
	buf       bytes.Buffer
	missing   int // events that cannot be read any more
}

// openRedacted opens what was picked of a capture.
func (s *Server) openRedacted(ctx context.Context, of *captureSelection) (*redactedReader, error) {
	c := &redactedReader{ctx: ctx, selection: of}
	c.enc = capture.NewEncoder(&c.buf, nil)
	events := s.eventsOf(ctx, of, &c.missing)
	if of.path != "" {
		r, err := capture.Open(of.path, nil)
		if err != nil {
			return nil, fmt.Errorf("ui: %w", err)
		}
		c.file, events = r, r.Events()
	}
	c.next, c.stop = iter.Pull2(events)
	return c, nil
}

// eventsOf yields what was picked of a capture that is in no file, as far as the hub still has it, and counts what it has not.
func (s *Server) eventsOf(ctx context.Context, of *captureSelection, gone *int) iter.Seq2[*capture.Event, error] {
	return func(yield func(*capture.Event, error) bool) {
		if h := s.hub.Head(of.capture); h != nil && !yield(&capture.Event{Kind: capture.KindHead, Head: h, Capture: of.capture, At: h.At}, nil) {
			return
		}
		for _, n := range slices.Sorted(maps.Keys(of.events)) {
			e, err := s.hub.Event(ctx, of.capture, n)
			if errors.Is(err, watch.ErrGone) {
				*gone++
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Close closes the file.
func (rr *redactedReader) Close() error {
	rr.stop()
	if rr.file == nil {
		return nil
	}
	return rr.file.Close()
}

// Read implements [io.Reader].
func (rr *redactedReader) Read(p []byte) (int, error) {
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

// encodeEvent puts an event into the buffer, if it is wanted.
func (rr *redactedReader) encodeEvent(e *capture.Event) error {
	if e.Capture != rr.selection.capture { // a file may hold several
		return nil
	}
	if h := e.Head; e.Kind == capture.KindHead && h != nil && h.Redact == redactOff {
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

const redactOff = "off"

func (rr *redactedReader) wants(e *capture.Event) bool {
	switch {
	case e.Kind == capture.KindHead:
		return true
	case e.Kind == capture.KindTail:
		return rr.selection.all // else its numbers would be wrong
	case e.Kind == capture.KindGap && e.Gap != nil && e.Gap.Why == capture.GapTruncated && rr.selection.live:
		return false // it is being written
	}
	return rr.selection.wants(e.N)
}

// texts returns texts about the capture without its secrets. Call it when everything was read: then all that is known to be one is hidden.
func (rr *redactedReader) texts(list []string) ([]string, error) {
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
		return nil, errors.New("ui: texts cannot be redacted")
	}
	return out, nil
}
