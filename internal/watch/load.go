package watch

import (
	"cmp"
	"context"
	"slices"

	"mcpwire/capture"
)

// maxOpen bounds how many files are open at once while captures are merged: more than go on at the same time.
const maxOpen = 256

// A player is a capture that is being merged.
type player struct {
	s  *source
	ev *capture.Event
}

// load reads what there is at the beginning in one timeline, by time. Sources that are followed are read to where they ended when they were opened, and go on from there later.
func (h *Hub) load(ctx context.Context, list []*source) {
	slices.SortStableFunc(list, func(a, b *source) int { return a.begun.Compare(b.begun) })
	var open []*player
	for (len(list) > 0 || len(open) > 0) && ctx.Err() == nil {
		first := earliest(open)
		// Captures that did not go on at the same time are not open at the same time.
		for len(list) > 0 && len(open) < maxOpen && (first == nil || !list[0].begun.After(first.ev.At)) {
			p := &player{s: list[0]}
			list = list[1:]
			if p.open(ctx) {
				open = append(open, p)
				first = earliest(open)
			}
		}
		if first == nil {
			continue
		}
		if err := first.s.take(ctx, first.ev); err != nil {
			first.s.end(err)
			open = without(open, first)
		} else if !first.advance(ctx) {
			open = without(open, first)
		}
	}
	for _, p := range open {
		p.s.close()
	}
	for _, s := range list { // ctx has ended
		s.claim()
	}
}

func without(list []*player, p *player) []*player {
	return slices.DeleteFunc(list, func(x *player) bool { return x == p })
}

// earliest returns the player whose event comes next.
func earliest(list []*player) *player {
	if len(list) == 0 {
		return nil
	}
	return slices.MinFunc(list, func(a, b *player) int {
		return cmp.Compare(a.ev.At.UnixNano(), b.ev.At.UnixNano())
	})
}

// open opens the file, and reports whether there is an event.
func (p *player) open(ctx context.Context) bool {
	s := p.s
	if s.compressed && s.follow {
		return false // run waits until it is complete
	}
	s.claim()
	if err := s.open(); err != nil {
		s.end(err)
		return false
	}
	s.limit = -1
	if s.tail != nil {
		s.tail.ctx = ctx
		if s.follow {
			s.limit = lastLineEnd(s.f, s.info.Size)
		}
	}
	return p.advance(ctx)
}

// advance reads the next event. It returns false if there is none, or none that was there at the beginning.
func (p *player) advance(ctx context.Context) bool {
	s := p.s
	if s.follow && s.limit >= 0 && s.tail.off >= s.limit {
		s.release()
		return false
	}
	e, err, ok := s.next()
	if !ok || err != nil {
		s.end(err)
		return false
	}
	if !s.good && e.Kind == capture.KindGap && e.Gap.Why == capture.GapMalformed {
		s.end(capture.ErrNotCapture)
		return false
	}
	s.good = true
	p.ev = e
	return ctx.Err() == nil || s.drop()
}

// release leaves the source to whoever starts what is not started.
func (s *source) release() {
	s.hub.smu.Lock()
	defer s.hub.smu.Unlock()
	s.started = false
}

// drop closes a source whose reading was interrupted.
func (s *source) drop() bool {
	s.close()
	return false
}
