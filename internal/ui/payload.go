package web

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/watch"
)

// servePayload answers with the bytes of an event. Whatever they are, they are a file to a browser, and nothing that it would show.
func (s *Server) servePayload(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseUint(r.PathValue("n"), 10, 64)
	if err != nil {
		writeError(w, http.StatusNotFound, "an event has a number")
		return
	}
	id := r.PathValue("capture")
	e, err := s.hub.Event(r.Context(), id, n)
	if err != nil {
		writeErrorOf(w, eventStatus(err), err)
		return
	}
	name := "payload"
	if h := s.hub.Head(id); h != nil {
		name = h.Name
	}
	attach(w, fileName(name, strconv.FormatUint(n, 10)+".bin"))
	if len(e.Redacted) > 0 || e.RedactedMore > 0 {
		w.Header().Set("X-Mcpwire-Redacted", strconv.Itoa(len(e.Redacted)+e.RedactedMore))
	}
	if e.Cut {
		w.Header().Set("X-Mcpwire-Length", strconv.FormatInt(e.Len, 10)) // on the wire: these are the first bytes only
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(e.Data))
}

func eventStatus(err error) int {
	if errors.Is(err, watch.ErrGone) {
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// attach makes the answer a file.
func attach(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

const maxName = 60 // characters of the name that a peer or a user chose

// fileName makes the name of a file of a name that may be anything, and an ending. It has no separators, no leading dot, and nothing that a shell or a file system would mind.
func fileName(name, ending string) string {
	var b strings.Builder
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= maxName {
			break
		}
	}
	base := strings.Trim(b.String(), "-")
	if base == "" {
		base = "mcpwire"
	}
	return base + "-" + ending
}
