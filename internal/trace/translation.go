package trace

import (
	"fmt"
	"slices"

	"mcpwire/capture"
)

// Limits of what is kept of a bridge's links.
const (
	maxLinks        = 64 // of a row, with messages of the other side
	maxCounterparts = 32 // rows of the other side
)

// A Link is one of a bridge's: a message of a row was made of one of the other side, or became one.
type Link struct {
	N           uint64 // of the event that says so
	Counterpart uint64 // the event of the other side
}

// linkTranslation takes what a bridge says it has made of a message, and reports whether the rows are there that it links.
func (m *Model) linkTranslation(c *Capture, e *capture.Event) bool {
	of, linked := c.byEvent[e.Translation.Of], false
	if of == nil {
		return false
	}
	for _, n := range e.Translation.To[:min(len(e.Translation.To), maxLinks)] {
		to := c.byEvent[n]
		if to == nil || to == of {
			continue
		}
		of.addLink(Link{e.N, n})
		to.addLink(Link{e.N, e.Translation.Of})
		for _, r := range []*Row{of, to} {
			if m.markUpdated(r); r.Parent != nil {
				m.markUpdated(r.Root())
			}
		}
		linked = true
	}
	if linked && len(of.Events) < maxEvents/2 { // its own are of more interest
		m.addEvent(of, e.N)
	}
	return linked
}

// linkText says which rows of a bridge's other side it is linked with.
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

// Counterparts returns the rows of a bridge's other side that the row, and its rounds, were made of or became, by their numbers: 32 at most. The model must be locked.
func (r *Row) Counterparts() []*Row {
	var list []*Row
	for x := range r.allRounds() {
		for _, l := range x.Links {
			o := r.Capture.byEvent[l.Counterpart]
			if o == nil || o.evicted || o.Session == r.Session || slices.Contains(list, o) || len(list) >= maxCounterparts {
				continue
			}
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *Row) int { return int(int64(a.N) - int64(b.N)) })
	return list
}

// Row returns the row that an event belongs to; nil if there is none. The model must be locked.
func (c *Capture) Row(n uint64) *Row { return c.byEvent[n] }

// AllLinks returns the links of the row, and of its rounds: further requests, and questions with their answers. They are in the order in which the bridge has made them.
func (r *Row) AllLinks() []Link {
	var list []Link
	for x := range r.allRounds() {
		list = append(list, x.Links...)
	}
	slices.SortFunc(list, func(a, b Link) int { return int(int64(a.N) - int64(b.N)) })
	return list
}

// allRounds yields the row, and what of it stands inside: it is one exchange to people.
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
