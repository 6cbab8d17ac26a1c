package web

import (
	"io"
	"net/http"

	"mcpwire/capture"
)

// serveSave answers with the lines of captures that a filter shows.
func (s *Server) serveSave(w http.ResponseWriter, r *http.Request) {
	f, err := parseFilter(r)
	if err != nil {
		writeErrorOf(w, http.StatusBadRequest, err)
		return
	}
	p, err := s.selectRows(r.Context(), f, 0)
	if err != nil {
		writeErrorOf(w, http.StatusServiceUnavailable, err)
		return
	}
	if len(p.captures) == 0 {
		writeError(w, http.StatusNotFound, "there is nothing to save")
		return
	}
	name := "mcpwire"
	if len(p.captures) == 1 {
		if h := s.hub.Head(p.captures[0].capture); h != nil {
			name = h.Name
		}
	}
	attach(w, fileName(name, "saved"+capture.Suffix))
	for _, c := range p.captures {
		if err := s.saveCapture(w, r, c); err != nil {
			s.opts.Logger.WarnContext(r.Context(), "a capture could not be saved as a whole", "capture", c.capture, "err", err)
			panic(http.ErrAbortHandler) // lets the browser see that the file is not whole
		}
	}
}

func (s *Server) saveCapture(w io.Writer, r *http.Request, c *captureSelection) error {
	lines, err := s.openRedacted(r.Context(), c)
	if err != nil {
		return err
	}
	defer lines.Close()
	_, err = io.Copy(w, lines)
	return err
}
