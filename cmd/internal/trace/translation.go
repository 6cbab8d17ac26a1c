package trace

import (
	"fmt"
	"slices"

	"mcpwire/capture"
)

// Limits of a row's links.
const (
	maxLinks        = 64 // per row
	maxCounterparts = 32 // rows of the other side
)

// A Link connects a message of a row with the message on a bridge's other side that it was
// translated from or to.
type Link struct {
	// N is the number of the event that records the translation.
	N uint64
	// Counterpart is the number of the event on the other side.
	Counterpart uint64
}

// linkTranslation links the rows of the messages in a translation event, and reports whether it
// found any.
func (m *Model) linkTranslation(c *Capture, e *capture.Event) bool {
	of, linked := c.events.row(e.Translation.Of), false
	if of == nil {
		return false
	}
	for _, n := range e.Translation.To[:min(len(e.Translation.To), maxLinks)] {
		to := c.events.row(n)
		if to == nil || to == of {
			continue
		}
		if m.opts.NestForwarded && slices.Contains(tapRules, e.Translation.Rule) {
			m.timeline.nest(to, of)
		}
		of.addLink(Link{e.N, n})
		to.addLink(Link{e.N, e.Translation.Of})
		for _, r := range []*Row{of, to} {
			if m.timeline.markUpdated(r); r.Parent != nil {
				m.timeline.markUpdated(r.Root())
			}
		}
		linked = true
	}
	if linked && len(of.Events) < maxEvents/2 { // leave room for the row's own events
		of.addEvent(e.N)
	}
	return linked
}

// tapRules are the rules of a tap with --intercept for messages that it forwarded.
var tapRules = []string{"forwarded", "passed", "timeout", "delayed", "edited"}

// linkText lists the linked rows on a bridge's other side.
func linkText(r *Row) string {
	const most = 4
	text, n := "", 0
	for _, o := range r.Counterparts() {
		switch n++; {
		case n == 1:
			text = fmt.Sprintf("⇄ %s #%d", o.Session.Side, o.N)
		case n <= most:
			text += fmt.Sprintf(" #%d", o.N)
		}
	}
	if n > most {
		text += fmt.Sprintf(" and %d more", n-most)
	}
	return text
}

func (r *Row) addLink(l Link) {
	if len(r.Links) < maxLinks {
		r.Links = append(r.Links, l)
	}
}

// Counterparts returns the rows on a bridge's other side that the row and its rounds are linked
// with, ordered by number: at most 32. The caller must hold the lock of the model.
func (r *Row) Counterparts() []*Row {
	var list []*Row
	for x := range r.allRounds() {
		for _, l := range x.Links {
			o := r.Capture.events.row(l.Counterpart)
			if o == nil || o.evicted || o.Session == r.Session || slices.Contains(list, o) || len(list) >= maxCounterparts {
				continue
			}
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *Row) int { return int(int64(a.N) - int64(b.N)) })
	return list
}

// Row returns the row that event n belongs to, or nil. The caller must hold the lock of the model.
func (c *Capture) Row(n uint64) *Row { return c.events.row(n) }

// AllLinks returns the links of the row, its further rounds and its input requests, in the order
// in which the bridge recorded them.
func (r *Row) AllLinks() []Link {
	var list []Link
	for x := range r.allRounds() {
		list = append(list, x.Links...)
	}
	slices.SortFunc(list, func(a, b Link) int { return int(int64(a.N) - int64(b.N)) })
	return list
}

// allRounds yields the row, and the further rounds and server requests inside it.
func (r *Row) allRounds() func(yield func(*Row) bool) {
	return func(yield func(*Row) bool) {
		if !yield(r) {
			return
		}
		for _, c := range r.Children {
			if (c.Role == Retry || c.Role == ServerRequest) && !yield(c) {
				return
			}
		}
	}
}
