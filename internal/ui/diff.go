package web

import (
	"context"
	"net/http"
	"strconv"

	"mcpwire/internal/jsondiff"
)

// A comparison says in what two exchanges differ.
type comparison struct {
	Request  []jsondiff.Change `json:"request"`
	Response []jsondiff.Change `json:"response"`
	Notes    []string          `json:"notes,omitempty"`
}

const maxSmallBody = 64 << 10 // bytes of a request that has nothing but numbers

func (s *Server) serveDiff(w http.ResponseWriter, r *http.Request) {
	var q struct{ A, B uint64 }
	if err := readJSON(w, r, maxSmallBody, &q); err != nil {
		writeErrorOf(w, http.StatusBadRequest, err)
		return
	}
	a, okA := s.lookupRow(q.A)
	b, okB := s.lookupRow(q.B)
	if !okA || !okB {
		writeError(w, http.StatusNotFound, rowGone)
		return
	}
	c := comparison{Request: []jsondiff.Change{}, Response: []jsondiff.Change{}}
	c.Request = append(c.Request, c.changes(r.Context(), s, "request", a, b, a.n, b.n)...)
	c.Response = append(c.Response, c.changes(r.Context(), s, "response", a, b, a.responseN, b.responseN)...)
	writeJSON(w, c)
}

// changes compares two events, one of each row. One that is missing is compared as nothing at all, and noted.
func (c *comparison) changes(ctx context.Context, s *Server, what string, a, b rowRef, na, nb uint64) []jsondiff.Change {
	if na == 0 && nb == 0 {
		return nil
	}
	first, whyA := s.payload(ctx, a, na)
	second, whyB := s.payload(ctx, b, nb)
	if whyA != "" {
		c.Notes = append(c.Notes, "the first "+what+whyA)
	}
	if whyB != "" {
		c.Notes = append(c.Notes, "the second "+what+whyB)
	}
	if whyA != "" || whyB != "" {
		return nil
	}
	return jsondiff.Diff(first, second, nil)
}

// payload returns the bytes of an event, or why there are none.
func (s *Server) payload(ctx context.Context, p rowRef, n uint64) (data []byte, why string) {
	if n == 0 {
		return nil, " is missing"
	}
	e, err := s.hub.Event(ctx, p.capture, n)
	switch {
	case err != nil:
		return nil, " cannot be read: " + err.Error()
	case e.Cut:
		return nil, " was recorded in part only: " + strconv.Itoa(len(e.Data)) + " of " + strconv.FormatInt(e.Len, 10) + " bytes"
	}
	return e.Data, ""
}
