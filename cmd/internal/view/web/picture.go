package web

import (
	"net/http"
	"strconv"
	"strings"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/picture"
)

// A scope selects the rows of a picture. The zero scope is everything.
type scope struct {
	// capture is the id of a capture. Empty means all.
	capture string
	// session is the number of a session of the capture, if hasSession is set.
	session    uint64
	hasSession bool
}

// parseScope parses "", CAPTURE or CAPTURE/SESSION.
func parseScope(text string) (scope, bool) {
	id, number, found := strings.Cut(text, "/")
	s := scope{capture: id, hasSession: found}
	if !found {
		return s, true
	}
	n, err := strconv.ParseUint(number, 10, 64)
	s.session = n
	return s, err == nil
}

func (s scope) String() string {
	if s.hasSession {
		return s.capture + "/" + strconv.FormatUint(s.session, 10)
	}
	return s.capture
}

func (s scope) has(r *trace.Row) bool {
	return s.capture == "" || r.Capture.ID == s.capture && (!s.hasSession || r.Session.Number == s.session)
}

// rows returns the rows of the timeline in the scope.
func (s scope) rows(all []*trace.Row) []*trace.Row {
	if s.capture == "" {
		return all
	}
	var rows []*trace.Row
	for _, r := range all {
		if s.has(r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// serveSequence responds with the sequence of a scope, as SVG or for Mermaid.
func (s *Server) serveSequence(w http.ResponseWriter, r *http.Request) error {
	of, ok := parseScope(r.URL.Query().Get("of"))
	if !ok {
		return fail(http.StatusBadRequest, "the parameter of must be CAPTURE or CAPTURE/SESSION")
	}
	var seq *picture.Sequence
	err := s.views.pictured(r, func(_ *trace.Model, rows []*trace.Row, evicted int) {
		seq = picture.NewSequence(of.rows(rows))
		seq.Evicted = evicted
	})
	switch {
	case err != nil:
		return err
	case r.URL.Query().Get("as") == "mermaid":
		return writeFile(w, "sequence.mmd", seq.Mermaid())
	}
	return writeFile(w, "sequence.svg", seq.SVG(pictureWidth(r)))
}

// serveOverview responds with the overview.
func (s *Server) serveOverview(w http.ResponseWriter, r *http.Request) error {
	var o *picture.Overview
	err := s.views.pictured(r, func(m *trace.Model, rows []*trace.Row, evicted int) {
		o = picture.NewOverview(m, rows)
		o.Evicted = evicted
	})
	if err != nil {
		return err
	}
	return writeFile(w, "overview.svg", o.SVG(pictureWidth(r)))
}

// writeFile responds with a file.
func writeFile(w http.ResponseWriter, name, text string) error {
	attach(w, name)
	w.Write([]byte(text)) // errors mean that the client has disconnected
	return nil
}

// pictureWidth returns the width that a page has for a picture, in px. Zero means the default.
func pictureWidth(r *http.Request) int {
	n, err := strconv.Atoi(r.URL.Query().Get("width"))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// Limits of the pictures in an exported page.
const (
	maxExportScopes   = 40
	maxExportPictures = 8 << 20 // bytes
)

// exportedPictures are the pictures of an exported page.
type exportedPictures struct {
	Overview string `json:"overview"`
	// Sequences and Mermaid have the sequences by scope.
	Sequences map[string]string `json:"sequences"`
	Mermaid   map[string]string `json:"mermaid"`
}

// newExportedPictures draws the pictures of the rows of a timeline.
func newExportedPictures(m *trace.Model, rows []*trace.Row) exportedPictures {
	p := exportedPictures{picture.NewOverview(m, rows).SVG(0), map[string]string{}, map[string]string{}}
	size := len(p.Overview)
	for _, of := range scopesOf(rows) {
		seq := picture.NewSequence(of.rows(rows))
		svg, mermaid := seq.SVG(0), seq.Mermaid()
		if size += len(svg) + len(mermaid); size > maxExportPictures {
			break
		}
		p.Sequences[of.String()], p.Mermaid[of.String()] = svg, mermaid
	}
	return p
}

// scopesOf returns everything, and then each session, or each bridge, of rows.
func scopesOf(rows []*trace.Row) []scope {
	list := []scope{{}}
	known := map[scope]bool{}
	for _, r := range rows {
		of := scope{r.Capture.ID, r.Session.Number, true}
		if r.Capture.HasSides() {
			of = scope{capture: r.Capture.ID}
		}
		if !known[of] && len(list) < maxExportScopes {
			known[of] = true
			list = append(list, of)
		}
	}
	return list
}
