package web

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"mcpwire/internal/detail"
	"mcpwire/internal/wireview"
)

// findRow returns the row with a number, or nil. The model must be locked.
func findRow(m *trace.Model, seq uint64) *trace.Row {
	rows := m.Rows()
	i, found := slices.BinarySearchFunc(rows, seq, func(r *trace.Row, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	if found {
		return rows[i]
	}
	// Rows usually come after those that they stand in, and soon.
	for _, r := range slices.Backward(rows[:i]) {
		if f := findChild(r, seq); f != nil {
			return f
		}
	}
	for _, r := range rows[i:] {
		if f := findChild(r, seq); f != nil {
			return f
		}
	}
	return nil
}

func findChild(r *trace.Row, seq uint64) *trace.Row {
	for c := range r.All() {
		if c.Seq == seq {
			return c
		}
	}
	return nil
}

// A place is what stays of a row when the model is not locked any more.
type rowRef struct {
	row       *detail.Snapshot
	text      []byte // the row as JSON, see appendRow
	capture   string
	session   uint64
	n         uint64 // event with the request, or whatever the row begins with
	responseN uint64
	name      string // of the server
}

// lookupRow returns the place of a row, and false if there is no such row.
func (s *Server) lookupRow(seq uint64) (p rowRef, ok bool) {
	s.hub.Read(func(m *trace.Model) {
		if r := findRow(m, seq); r != nil {
			p, ok = newRowRef(r), true
		}
	})
	return p, ok
}

// newRowRef copies what is needed of a row. The model must be locked.
func newRowRef(r *trace.Row) rowRef {
	return rowRef{
		row: detail.TakeSnapshot(r), text: appendRow(nil, r), capture: r.Capture.ID, session: r.Session.Number, n: r.N, responseN: r.ResponseN, name: r.Capture.Name,
	}
}

// lookupPathRow is locate for the row that a request names in its path. It answers itself if there is none.
func (s *Server) lookupPathRow(w http.ResponseWriter, r *http.Request) (rowRef, bool) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		writeError(w, http.StatusNotFound, "a row has a number")
		return rowRef{}, false
	}
	p, ok := s.lookupRow(seq)
	if !ok {
		writeError(w, http.StatusNotFound, rowGone)
	}
	return p, ok
}

const rowGone = "there is no such row: it has made room for newer ones, or the capture was closed"
