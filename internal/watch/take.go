package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/internal/filter"
	"mcpwire/internal/wireview"
)

// errDuplicate says that a capture is there already.
var errDuplicate = errors.New("the same capture is read from another file, or is in this one twice")

const progressEvents = 256 // events between two looks at how far a source was read

// ingest takes an event into the model. The lock is held for the model only: rules and searches work before.
func (s *source) ingest(ctx context.Context, e *capture.Event) error {
	if e.Head != nil || s.segment == nil {
		if err := s.beginSegment(e.Head); err != nil {
			return err
		}
	}
	e.Capture = s.segment.id
	if s.tail != nil && s.addToIndex(e) {
		s.setProgress(s.tail.off, -1)
	}
	if e.Kind == capture.KindTail {
		s.tailSeen = true
	}
	var findings []check.Finding
	if s.checker != nil {
		findings = s.checker.Add(s.head, e)
	}
	h := s.hub
	found := h.scan(ctx, e)
	small := truncateLarge(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	changes := h.model.Add(s.head, small)
	h.assignHitsLocked(e, changes, found)
	h.applyLocked(changes)
	h.addFindingsLocked(s.segment.id, findings)
	s.events++
	s.last = max(s.last, e.N)
	return nil
}

// addToIndex notes where the event stands, and reports whether it is time to tell how far the source was read.
func (s *source) addToIndex(e *capture.Event) bool {
	h := s.hub
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	x := &s.segment.index
	x.add(e.N, s.tail.line)
	return x.events%progressEvents == 0
}

// beginSegment begins a capture. head is nil if it has none.
func (s *source) beginSegment(head *capture.Head) error {
	s.closeSegment()
	h := s.hub
	id := ""
	if head != nil {
		id = head.ID
	}
	if id == "" { // it gets one that nobody else has
		id = fmt.Sprintf("%s/%p", h.id, s)
	}
	seg := &segment{source: s, id: id, head: head}
	h.sourcesMu.Lock()
	if h.segments[id] != nil {
		h.sourcesMu.Unlock()
		return errDuplicate
	}
	if len(h.captureOrder) >= maxSegments {
		delete(h.segments, h.captureOrder[0])
		h.captureOrder = slices.Delete(h.captureOrder, 0, 1)
	}
	h.segments[id] = seg
	h.captureOrder = append(h.captureOrder, id)
	h.sourcesMu.Unlock()
	s.segment, s.head, s.tailSeen = seg, head, false
	h.mu.Lock()
	s.last = 0
	h.mu.Unlock()
	if head == nil {
		s.head = &capture.Head{ID: id}
	}
	if !h.opts.NoRules {
		s.checker = check.New(h.opts.Rules)
	}
	s.update(func(i *Source) {
		i.ID = id
		if head != nil {
			i.Name, i.Transport = head.Name, head.Transport
		}
	})
	return nil
}

// closeSegment ends the capture that is being read: what waits in it is unanswered.
func (s *source) closeSegment() {
	if s.segment == nil {
		return
	}
	var findings []check.Finding
	if s.checker != nil {
		findings = s.checker.Close()
		s.checker = nil
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addFindingsLocked(s.segment.id, findings)
	h.applyLocked(h.model.FinishCapture(s.segment.id))
	s.segment = nil
}

// addFindingsLocked notes findings on the rows. h.mu is held.
func (h *Hub) addFindingsLocked(captureID string, findings []check.Finding) {
	for i := range findings {
		f := &findings[i]
		h.applyLocked(h.model.AddFinding(captureID, f.Event, trace.Finding{
			Rule: f.Rule.ID, Severity: f.Rule.Severity.String(), Message: f.Message, Pointer: f.Pointer, URL: f.Rule.URL,
		}))
	}
}

// A found is what a selection's filter found in a payload.
type payloadHits struct {
	selection *Selection
	hits      filter.Hits
}

// scan looks for what selections look for in payloads.
func (h *Hub) scan(ctx context.Context, e *capture.Event) []payloadHits {
	if len(e.Data) == 0 {
		return nil
	}
	h.mu.Lock()
	selections := h.payloadSelections
	h.mu.Unlock()
	if len(selections) == 0 {
		return nil
	}
	list := make([]payloadHits, len(selections))
	for i, s := range selections {
		list[i] = payloadHits{s, s.filter.Scan(ctx, e.Data)}
	}
	return list
}

// maxMultiRow bounds the events of which it is known that they belong to several rows, or to one that has many events: batches and long streams, for the most part.
const maxMultiRow = 1 << 16

// assignHitsLocked notes what was found in an event on the rows that it changed. h.mu is held.
func (h *Hub) assignHitsLocked(e *capture.Event, changes []trace.Change, list []payloadHits) {
	if len(e.Data) == 0 || len(changes) == 0 {
		return
	}
	h.addMultiRowLocked(e, changes)
	for _, s := range h.payloadSelections {
		i := slices.IndexFunc(list, func(f payloadHits) bool { return f.selection == s })
		var hits filter.Hits
		if i >= 0 {
			hits = list[i].hits
		} else { // it has come in between
			hits = s.filter.Scan(h.ctx, e.Data)
		}
		if hits == 0 {
			continue
		}
		for _, c := range changes {
			if c.Op != trace.Evicted {
				s.addHitsLocked(c.Row.Root(), hits)
			}
		}
	}
}

// addMultiRowLocked notes which rows of the timeline an event belongs to if the model does not tell: it knows the first only, and none for the later ones of many events of a row.
func (h *Hub) addMultiRowLocked(e *capture.Event, changes []trace.Change) {
	known := h.model.Find(e.Capture, e.N)
	if known != nil && len(changes) < 2 {
		return
	}
	var roots []uint64
	for _, c := range changes {
		if r := c.Row.Root(); c.Op != trace.Evicted && !slices.Contains(roots, r.Seq) && len(roots) < 256 {
			roots = append(roots, r.Seq)
		}
	}
	if len(roots) == 0 || known != nil && len(roots) == 1 && roots[0] == known.Root().Seq {
		return
	}
	if len(h.multiRow) >= maxMultiRow {
		for k := range h.multiRow { // whichever
			delete(h.multiRow, k)
			break
		}
	}
	h.multiRow[eventKey{e.Capture, e.N}] = roots
}
