package watch

import "mcpwire/internal/wireview"

const maxLog = 1 << 17 // changes that are remembered

// A changeLog remembers which rows have changed, in the order in which they did. The number of a change is the version of the model after it.
type changeLog struct {
	ring    []uint64 // Seq
	version uint64
	rows    map[uint64]*wireview.Row // those that are there
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

// apply takes what the model says has changed. h.mu is held.
func (h *Hub) apply(changes []wireview.Change) {
	if len(changes) == 0 {
		return
	}
	if h.log.rows == nil {
		h.log.rows = map[uint64]*wireview.Row{}
	}
	var last *wireview.Row
	for _, c := range changes {
		r := c.Row
		switch {
		case c.Op == wireview.Dropped || r.Dropped():
			h.gone(r)
		case c.Op == wireview.Added:
			h.log.rows[r.Seq] = r
			h.born(r)
			h.changed(r)
		case r != last:
			h.changed(r)
		}
		last = r
	}
	h.signalFeeds()
}

// changed notes that a row has changed.
func (h *Hub) changed(r *wireview.Row) {
	h.log.add(r.Seq)
	root := r.Root()
	for s := range h.selections {
		s.judge(root)
	}
	if len(h.selections) > 0 && r.Session.Rows <= young {
		h.sessionChanged(r.Session)
	}
}

// young is how many rows a session has at most when it may become known of which era and revision it is.
const young = 32

// sessionChanged judges the rows of a young session again: what is known of it may have changed.
func (h *Hub) sessionChanged(session *wireview.Session) {
	rows := h.model.Rows()
	for _, r := range rows[max(0, len(rows)-2*young):] {
		if r.Session != session {
			continue
		}
		for s := range h.selections {
			if s.judge(r) {
				h.log.add(r.Seq)
			}
		}
	}
}

// gone forgets a row, and what is in it.
func (h *Hub) gone(r *wireview.Row) {
	if h.log.rows[r.Seq] == nil {
		return
	}
	if r.Parent == nil {
		for s := range h.selections {
			s.remove(r)
		}
	}
	for x := range r.All() {
		if h.log.rows[x.Seq] != nil {
			delete(h.log.rows, x.Seq)
			h.log.add(x.Seq)
		}
		delete(h.families, x)
	}
}

// families are the rows inside those that have many: the model does not tell when one of them makes room.
type families map[*wireview.Row][]*wireview.Row

// crowded is how many rows inside another make it one that is watched: few enough that none has made room yet.
const crowded = wireview.DefaultMaxChildren / 2

// born looks for rows that have made room for a new one beside them.
func (h *Hub) born(r *wireview.Row) {
	p := r.Parent
	if p == nil || len(p.Children) < crowded {
		return
	}
	list, known := h.families[p]
	if !known {
		list = append([]*wireview.Row(nil), p.Children...)
	} else {
		list = append(list, r)
	}
	for len(list) > 0 && list[0].Dropped() {
		h.gone(list[0])
		list = list[1:]
	}
	h.families[p] = list
}
