package web

import (
	"errors"
	"net/http"

	"mcpwire/internal/filter"
)

// A filterError says what is wrong with a filter, and where.
type filterError struct {
	Message string `json:"message"`
	At      int    `json:"at"` // in characters, from 1
}

// serveFilter says whether a filter is understood. That it is not is an answer and no error: people are typing.
func (s *Server) serveFilter(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("text")
	if len(text) > maxFilter {
		writeJSON(w, map[string]filterError{"error": {"the filter is too long", 1}})
		return
	}
	f, err := filter.Parse(text)
	var syntax *filter.SyntaxError
	switch {
	case errors.As(err, &syntax):
		writeJSON(w, map[string]filterError{"error": {syntax.Message, syntax.Column}})
	case err != nil:
		writeErrorOf(w, http.StatusInternalServerError, err)
	default:
		writeJSON(w, struct {
			OK   bool   `json:"ok"`
			Text string `json:"text,omitempty"`
		}{true, f.String()})
	}
}
