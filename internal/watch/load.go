package watch

import (
	"cmp"
	"context"
	"slices"

	"mcpwire/capture"
)

// maxMergeFiles bounds how many files are open at once while captures are merged: more than go on at the same time.
const maxMergeFiles = 256

// A player is a capture that is being merged.
type mergeInput struct {
	source *source
	event  *capture.Event
}

// load reads what there is at the beginning in one timeline, by time. Sources that are followed are read to where they ended when they were opened, and go on from there later.
func (h *Hub) load(ctx context.Context, list []*source) {
	slices.SortStableFunc(list, func(a, b *source) int { return a.captureStart.Compare(b.captureStart) })
	var open []*mergeInput
	for (len(list) > 0 || len(open) > 0) && ctx.Err() == nil {
		first := earliest(open)
		// Captures that did not go on at the same time are not open at the same time.
		for len(list) > 0 && len(open) < maxMergeFiles && (first == nil || !list[0].captureStart.After(first.event.At)) {
			p := &mergeInput{source: list[0]}
			list = list[1:]
			if p.open(ctx) {
				open = append(open, p)
				first = earliest(open)
			}
		}
		if first == nil {
			continue
		}
		if err := first.source.ingest(ctx, first.event); err != nil {
			first.source.finish(err)
			open = removeInput(open, first)
		} else if !first.advance(ctx) {
			open = removeInput(open, first)
		}
	}
	for _, p := range open {
		p.source.close()
	}
	for _, s := range list { // ctx has ended
		s.claim()
	}
}

func removeInput(list []*mergeInput, p *mergeInput) []*mergeInput {
	return slices.DeleteFunc(list, func(x *mergeInput) bool { return x == p })
}

// earliest returns the player whose event comes next.
func earliest(list []*mergeInput) *mergeInput {
	if len(list) == 0 {
		return nil
	}
	return slices.MinFunc(list, func(a, b *mergeInput) int {
		return cmp.Compare(a.event.At.UnixNano(), b.event.At.UnixNano())
	})
}

// open opens the file, and reports whether there is an event.
func (mi *mergeInput) open(ctx context.Context) bool {
	s := mi.source
	if s.compressed && s.follow {
		return false // run waits until it is complete
	}
	s.claim()
	if err := s.open(); err != nil {
		s.finish(err)
		return false
	}
	s.limit = -1
	if s.tail != nil {
		s.tail.ctx = ctx
		if s.follow {
			s.limit = lastLineEnd(s.f, s.info.Size)
		}
	}
	return mi.advance(ctx)
}

// advance reads the next event. It returns false if there is none, or none that was there at the beginning.
func (mi *mergeInput) advance(ctx context.Context) bool {
	s := mi.source
	if s.follow && s.limit >= 0 && s.tail.off >= s.limit {
		s.unclaim()
		return false
	}
	e, err, ok := s.next()
	if !ok || err != nil {
		s.finish(err)
		return false
	}
	if !s.validated && e.Kind == capture.KindGap && e.Gap.Why == capture.GapMalformed {
		s.finish(capture.ErrNotCapture)
		return false
	}
	s.validated = true
	mi.event = e
	return ctx.Err() == nil || s.closeInterrupted()
}

// unclaim leaves the source to whoever starts what is not started.
func (s *source) unclaim() {
	s.hub.sourcesMu.Lock()
	defer s.hub.sourcesMu.Unlock()
	s.claimed = false
}

// closeInterrupted closes a source whose reading was interrupted.
func (s *source) closeInterrupted() bool {
	s.close()
	return false
}
