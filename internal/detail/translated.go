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

	Before *TranslatedMessage `json:"before,omitempty"`
	After  *TranslatedMessage `json:"after,omitempty"`
	// Lines puts the lines of the two beside each other; nil unless both are JSON.
	Lines []LinePair `json:"lines,omitempty"`
	// Changed is how many of Lines differ.
	Changed int `json:"changed,omitempty"`
}

// A TranslatedMessage is one of the two of a Translation.
type TranslatedMessage struct {
	*Payload
	Side capture.Side `json:"side,omitempty"`
	// Row is the Seq of the row of the other side that it belongs to; 0 if it is of the row itself, or that has made room.
	Row uint64 `json:"row,omitempty"`
}

// An Counterpart is a row of a bridge's other side.
type Counterpart struct {
	Seq     uint64       `json:"seq"`
	N       uint64       `json:"n"`
	Side    capture.Side `json:"side"`
	Glyph   string       `json:"glyph"`
	Summary string       `json:"summary"`
}

// What a detail shows of translations at most.
const (
	maxTranslations    = 24
	maxTranslatedBytes = 64 << 10 // bytes of a message
	maxCounterparts    = 16
	maxTranslateTo     = 8 // messages that one has become, in one event
)

// addLinks takes what a bridge has recorded of a row. The model must be locked.
func (s *Snapshot) addLinks(r *trace.Row) {
	s.rowByEvent = map[uint64]uint64{}
	links := r.AllLinks()
	for _, l := range links {
		if !slices.Contains(s.translations, l.N) && len(s.translations) < maxTranslations {
			s.translations = append(s.translations, l.N)
		}
		if o := r.Capture.Row(l.Counterpart); o != nil && o.Session != r.Session {
			s.rowByEvent[l.Counterpart] = o.Seq
		}
	}
	others := r.Counterparts()
	for _, o := range others[:min(len(others), maxCounterparts)] {
		s.Counterparts = append(s.Counterparts, Counterpart{Seq: o.Seq, N: o.N, Side: o.Session.Side, Glyph: trace.Glyph(o), Summary: trace.Summary(o)})
	}
}

// addTranslations adds what a bridge made of the row's messages, and of what it made them.
func (b *builder) addTranslations(ctx context.Context) error {
	shown := b.opts.MaxShown
	b.opts.MaxShown = min(shown, maxTranslatedBytes)
	defer func() { b.opts.MaxShown = shown }()
	for _, n := range b.snapshot.translations {
		e, err := b.readEvent(ctx, n)
		if err != nil {
			return err
		}
		if e == nil || e.Translation == nil {
			continue
		}
		x := *e.Translation
		before, dir, err := b.translatedMessage(ctx, x.Of)
		if err != nil {
			return err
		}
		for _, n := range x.To[:min(len(x.To), maxTranslateTo)] {
			after, _, err := b.translatedMessage(ctx, n)
			if err != nil {
				return err
			}
			if len(b.detail.Translations) < 2*maxTranslations {
				t := Translation{Rule: printable.Line(x.Rule), N: e.N, Dir: dir, Before: before, After: after}
				t.alignLines()
				b.detail.Translations = append(b.detail.Translations, t)
			}
		}
	}
	return nil
}

// translatedMessage reads one of the two messages; nil if it is not there any more.
func (b *builder) translatedMessage(ctx context.Context, n uint64) (*TranslatedMessage, capture.Dir, error) {
	e, err := b.readEvent(ctx, n)
	if e == nil {
		return nil, "", err
	}
	b.wantPointers = true
	defer func() { b.wantPointers = false }()
	return &TranslatedMessage{Payload: b.payload(e, e.Data, false), Side: e.Side, Row: b.snapshot.rowByEvent[n]}, e.Dir, nil
}
