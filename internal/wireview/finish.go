package trace

import "slices"

// FinishCapture says that no more events of a capture come: what waits in it is unanswered. It returns the changes as [Model.Add] does. Should events of it come all the same, they are taken.
func (m *Model) FinishCapture(captureID string) []Change {
	m.changes, m.hits = m.changes[:0], 0
	c := m.captureByID(captureID)
	if c == nil {
		return nil
	}
	for _, r := range m.unfinishedRows(c) {
		m.abandon(r)
	}
	return m.changes
}

// unfinishedRows returns the rows of a capture that wait for something, the oldest first. Rows of a capture that has just ended are the last ones in most cases: it looks from the end, and no further than it
// must.
func (m *Model) unfinishedRows(c *Capture) (open []*Row) {
	var left uint64
	for _, s := range c.sessions {
		left += s.Rows
	}
	rows := m.Rows()
	for i := len(rows) - 1; i >= 0 && left > 0; i-- {
		if rows[i].Capture != c {
			continue
		}
		from := len(open)
		for r := range rows[i].All() {
			left -= min(left, 1)
			if !r.Done && (r.Kind == Request || r.Kind == HTTP) {
				open = append(open, r)
			}
		}
		slices.Reverse(open[from:]) // all of it is turned round in the end
		left -= min(left, uint64(rows[i].EvictedChildren))
	}
	slices.Reverse(open)
	return open
}

// Evicted reports whether the row has made room, alone or with the one that it stood in: it changes no more.
func (r *Row) Evicted() bool { return r.evicted }
