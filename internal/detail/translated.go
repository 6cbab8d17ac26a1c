package detail

import (
	"context"
	"slices"

	"mcpwire/capture"
	"mcpwire/internal/printable"
	"mcpwire/internal/wireview"
)

// A Translation is a message on one side of a bridge, and what the bridge made of it on the other.
type Translation struct {
	Rule string      `json:"rule"`
	N    uint64      `json:"n"` // of the event that says so
	Dir  capture.Dir `json:"dir,omitempty"`

	Before *Message `json:"before,omitempty"`
	After  *Message `json:"after,omitempty"`
	// Lines puts the lines of the two beside each other; nil unless both are JSON.
	Lines []LinePair `json:"lines,omitempty"`
	// Changed is how many of Lines differ.
	Changed int `json:"changed,omitempty"`
}

// A Message is one of the two of a Translation.
type Message struct {
	*Payload
	Side capture.Side `json:"side,omitempty"`
	// Row is the Seq of the row of the other side that it belongs to; 0 if it is of the row itself, or that has made room.
	Row uint64 `json:"row,omitempty"`
}

// An Other is a row of a bridge's other side.
type Other struct {
	Seq     uint64       `json:"seq"`
	N       uint64       `json:"n"`
	Side    capture.Side `json:"side"`
	Glyph   string       `json:"glyph"`
	Summary string       `json:"summary"`
}

// What a detail shows of translations at most.
const (
	maxXlates      = 24
	maxTranslated  = 64 << 10 // bytes of a message
	maxOtherShown  = 16
	maxTranslateTo = 8 // messages that one has become, in one event
)

// linked takes what a bridge has recorded of a row. The model must be locked.
func (s *Row) linked(r *wireview.Row) {
	s.rowOf = map[uint64]uint64{}
	links := r.AllLinks()
	for _, l := range links {
		if !slices.Contains(s.xlates, l.N) && len(s.xlates) < maxXlates {
			s.xlates = append(s.xlates, l.N)
		}
		if o := r.Capture.Row(l.Other); o != nil && o.Session != r.Session {
			s.rowOf[l.Other] = o.Seq
		}
	}
	others := r.Others()
	for _, o := range others[:min(len(others), maxOtherShown)] {
		s.Others = append(s.Others, Other{Seq: o.Seq, N: o.N, Side: o.Session.Side, Glyph: wireview.Glyph(o), Summary: wireview.Summary(o)})
	}
}

// translated adds what a bridge made of the row's messages, and of what it made them.
func (w *work) translated(ctx context.Context) error {
	shown := w.opts.MaxShown
	w.opts.MaxShown = min(shown, maxTranslated)
	defer func() { w.opts.MaxShown = shown }()
	for _, n := range w.row.xlates {
		e, err := w.get(ctx, n)
		if err != nil {
			return err
		}
		if e == nil || e.Xlate == nil {
			continue
		}
		x := *e.Xlate
		before, dir, err := w.side(ctx, x.Of)
		if err != nil {
			return err
		}
		for _, n := range x.To[:min(len(x.To), maxTranslateTo)] {
			after, _, err := w.side(ctx, n)
			if err != nil {
				return err
			}
			if len(w.d.Translated) < 2*maxXlates {
				t := Translation{Rule: printable.Line(x.Rule), N: e.N, Dir: dir, Before: before, After: after}
				t.align()
				w.d.Translated = append(w.d.Translated, t)
			}
		}
	}
	return nil
}

// side reads one of the two messages; nil if it is not there any more.
func (w *work) side(ctx context.Context, n uint64) (*Message, capture.Dir, error) {
	e, err := w.get(ctx, n)
	if e == nil {
		return nil, "", err
	}
	w.keyed = true
	defer func() { w.keyed = false }()
	return &Message{Payload: w.payload(e, e.Data, false), Side: e.Side, Row: w.row.rowOf[n]}, e.Dir, nil
}
