package watch

import "mcpwire/internal/wireview"

const maxLog = 1 << 17 // changes that are remembered

// A changeLog remembers which rows have changed, in the order in which they did. The number of a change is the version of the model after it.
type changeLog struct {
	ring    []uint64 // Seq
	version uint64
	rows    map[uint64]*trace.Row // those that are there
}

func (l *changeLog) add(seq uint64) {
	l.version++
	if len(l.ring) < maxLog {
		l.ring = append(l.ring, seq)
		return
	}
	l.ring[(l.version-1)%maxLog] = seq
}

// at returns which row changed in a version.
func (l *changeLog) at(version uint64) uint64 { return l.ring[(version-1)%maxLog] }

// has reports whether the changes after a version are remembered.
func (l *changeLog) has(after uint64) bool {
	return after <= l.version && l.version-after <= uint64(len(l.ring))
}

// applyLocked takes what the model says has changed. h.mu is held.
func (h *Hub) applyLocked(changes []trace.Change) {
	if len(changes) == 0 {
		return
	}
	if h.changeLog.rows == nil {
		h.changeLog.rows = map[uint64]*trace.Row{}
	}
	var last *trace.Row
	for _, c := range changes {
		r := c.Row
		switch {
		case c.Op == trace.Evicted || r.Evicted():
			h.removeRowLocked(r)
		case c.Op == trace.Added:
			h.changeLog.rows[r.Seq] = r
			h.trackChildLocked(r)
			h.rowChangedLocked(r)
		case r != last:
			h.rowChangedLocked(r)
		}
		last = r
	}
	h.signalFeedsLocked()
}

// rowChangedLocked notes that a row has changed.
func (h *Hub) rowChangedLocked(r *trace.Row) {
	h.changeLog.add(r.Seq)
	root := r.Root()
	for s := range h.selections {
		s.reevaluateLocked(root)
	}
	if len(h.selections) > 0 && r.Session.Rows <= maxUndecidedRows {
		h.sessionChangedLocked(r.Session)
	}
}

// maxUndecidedRows is how many rows a session has at most when it may become known of which era and revision it is.
const maxUndecidedRows = 32

// sessionChangedLocked judges the rows of a young session again: what is known of it may have changed.
func (h *Hub) sessionChangedLocked(session *trace.Session) {
	rows := h.model.Rows()
	for _, r := range rows[max(0, len(rows)-2*maxUndecidedRows):] {
		if r.Session != session {
			continue
		}
		for s := range h.selections {
			if s.reevaluateLocked(r) {
				h.changeLog.add(r.Seq)
			}
		}
	}
}

// removeRowLocked forgets a row, and what is in it.
func (h *Hub) removeRowLocked(r *trace.Row) {
	if h.changeLog.rows[r.Seq] == nil {
		return
	}
	if r.Parent == nil {
		for s := range h.selections {
			s.remove(r)
		}
	}
	for x := range r.All() {
		if h.changeLog.rows[x.Seq] != nil {
			delete(h.changeLog.rows, x.Seq)
			h.changeLog.add(x.Seq)
		}
		delete(h.childLists, x)
	}
}

// childLists are the rows inside those that have many: the model does not tell when one of them makes room.
type childLists map[*trace.Row][]*trace.Row

// minTrackedChildren is how many rows inside another make it one that is watched: few enough that none has made room yet.
const minTrackedChildren = trace.DefaultMaxChildren / 2

// trackChildLocked looks for rows that have made room for a new one beside them.
func (h *Hub) trackChildLocked(r *trace.Row) {
	p := r.Parent
	if p == nil || len(p.Children) < minTrackedChildren {
		return
	}
	list, known := h.childLists[p]
	if !known {
		list = append([]*trace.Row(nil), p.Children...)
	} else {
		list = append(list, r)
	}
	for len(list) > 0 && list[0].Evicted() {
		h.removeRowLocked(list[0])
		list = list[1:]
	}
	h.childLists[p] = list
}
