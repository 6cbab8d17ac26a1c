package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"mcpwire/internal/detail"
)

// A rowDetail is all there is to show about a row.
type rowDetail struct {
	*detail.Detail
	Row    json.RawMessage    `json:"row"`
	Frames []detail.EventLine `json:"frames,omitempty"`
}

func (s *Server) serveRow(w http.ResponseWriter, r *http.Request) {
	p, ok := s.lookupPathRow(w, r)
	if !ok {
		return
	}
	d, err := s.detailOf(r.Context(), p, &detail.Options{Hex: r.URL.Query().Get("hex") == "1"})
	if err != nil {
		writeErrorOf(w, http.StatusInternalServerError, err)
		return
	}
	writeJSON(w, d)
}

func (s *Server) detailOf(ctx context.Context, p rowRef, opts *detail.Options) (*rowDetail, error) {
	d, err := detail.Build(ctx, s.hub, p.row, opts)
	if err != nil {
		return nil, err
	}
	return &rowDetail{d, p.text, d.Events()}, nil
}

// commandCopy is an exchange as a command.
type commandCopy struct {
	Text      string   `json:"text"`
	Variables []string `json:"variables,omitempty"`
	Notes     []string `json:"notes,omitempty"`
}

func (s *Server) serveCopy(w http.ResponseWriter, r *http.Request) {
	as := r.URL.Query().Get("as")
	write := map[string]func(*detail.Detail) (*detail.Command, error){"call": detail.CallCommand, "curl": detail.CurlCommand}[as]
	if write == nil {
		writeError(w, http.StatusBadRequest, `as is "call" or "curl"`)
		return
	}
	p, ok := s.lookupPathRow(w, r)
	if !ok {
		return
	}
	d, err := detail.Build(r.Context(), s.hub, p.row, nil)
	if err != nil {
		writeErrorOf(w, http.StatusInternalServerError, err)
		return
	}
	c, err := write(d)
	switch {
	case errors.Is(err, detail.ErrNoCommand) || errors.Is(err, detail.ErrNotHTTP):
		writeErrorOf(w, http.StatusUnprocessableEntity, err)
	case err != nil:
		writeErrorOf(w, http.StatusInternalServerError, err)
	default:
		writeJSON(w, commandCopy{c.Text, c.Variables, c.Notes})
	}
}
