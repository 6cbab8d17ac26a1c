package ui

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"mcpwire/internal/detail"
	"mcpwire/internal/wireview"
)

// find returns the row with a number, or nil. The model must be locked.
func find(m *wireview.Model, seq uint64) *wireview.Row {
	rows := m.Rows()
	i, found := slices.BinarySearchFunc(rows, seq, func(r *wireview.Row, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	if found {
		return rows[i]
	}
	// Rows usually come after those that they stand in, and soon.
	for _, r := range slices.Backward(rows[:i]) {
		if f := findInside(r, seq); f != nil {
			return f
		}
	}
	for _, r := range rows[i:] {
		if f := findInside(r, seq); f != nil {
			return f
		}
	}
	return nil
}

func findInside(r *wireview.Row, seq uint64) *wireview.Row {
	for c := range r.All() {
		if c.Seq == seq {
			return c
		}
	}
	return nil
}

// A place is what stays of a row when the model is not locked any more.
type place struct {
	row       *detail.Row
	text      []byte // the row as JSON, see appendRow
	capture   string
	session   uint64
	n         uint64 // event with the request, or whatever the row begins with
	responseN uint64
	name      string // of the server
}

// locate returns the place of a row, and false if there is no such row.
func (s *Server) locate(seq uint64) (p place, ok bool) {
	s.hub.Read(func(m *wireview.Model) {
		if r := find(m, seq); r != nil {
			p, ok = placeOf(r), true
		}
	})
	return p, ok
}

// placeOf copies what is needed of a row. The model must be locked.
func placeOf(r *wireview.Row) place {
	return place{
		row: detail.Snapshot(r), text: appendRow(nil, r), capture: r.Capture.ID, session: r.Session.Number, n: r.N, responseN: r.ResponseN, name: r.Capture.Name,
	}
}

// locateIn is locate for the row that a request names in its path. It answers itself if there is none.
func (s *Server) locateIn(w http.ResponseWriter, r *http.Request) (place, bool) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		fail(w, http.StatusNotFound, "a row has a number")
		return place{}, false
	}
	p, ok := s.locate(seq)
	if !ok {
		fail(w, http.StatusNotFound, noRow)
	}
	return p, ok
}

const noRow = "there is no such row: it has made room for newer ones, or the capture was closed"
