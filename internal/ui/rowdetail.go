package ui

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
	Row    json.RawMessage `json:"row"`
	Frames []detail.Frame  `json:"frames,omitempty"`
}

func (s *Server) serveRow(w http.ResponseWriter, r *http.Request) {
	p, ok := s.locateIn(w, r)
	if !ok {
		return
	}
	d, err := s.detailOf(r.Context(), p, &detail.Options{Hex: r.URL.Query().Get("hex") == "1"})
	if err != nil {
		failWith(w, http.StatusInternalServerError, err)
		return
	}
	answer(w, d)
}

func (s *Server) detailOf(ctx context.Context, p place, opts *detail.Options) (*rowDetail, error) {
	d, err := detail.Of(ctx, s.hub, p.row, opts)
	if err != nil {
		return nil, err
	}
	return &rowDetail{d, p.text, d.Frames()}, nil
}

// copied is an exchange as a command.
type copied struct {
	Text      string   `json:"text"`
	Variables []string `json:"variables,omitempty"`
	Notes     []string `json:"notes,omitempty"`
}

func (s *Server) serveCopy(w http.ResponseWriter, r *http.Request) {
	as := r.URL.Query().Get("as")
	write := map[string]func(*detail.Detail) (*detail.Command, error){"call": detail.CallCommand, "curl": detail.Curl}[as]
	if write == nil {
		fail(w, http.StatusBadRequest, `as is "call" or "curl"`)
		return
	}
	p, ok := s.locateIn(w, r)
	if !ok {
		return
	}
	d, err := detail.Of(r.Context(), s.hub, p.row, nil)
	if err != nil {
		failWith(w, http.StatusInternalServerError, err)
		return
	}
	c, err := write(d)
	switch {
	case errors.Is(err, detail.ErrNoCommand) || errors.Is(err, detail.ErrNotHTTP):
		failWith(w, http.StatusUnprocessableEntity, err)
	case err != nil:
		failWith(w, http.StatusInternalServerError, err)
	default:
		answer(w, copied{c.Text, c.Variables, c.Notes})
	}
}
