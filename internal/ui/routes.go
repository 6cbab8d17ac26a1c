package web

import (
	"net/http"
	"time"
)

// routes returns the mux for who was let in.
func (s *Server) routes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { s.serveFile(w, r, indexName) })
	m.HandleFunc("GET /static/{name}", func(w http.ResponseWriter, r *http.Request) { s.serveFile(w, r, r.PathValue("name")) })
	m.HandleFunc("GET "+streamPath, s.serveStream)
	m.HandleFunc("GET /api/row/{seq}", s.limitHeavy(s.serveRow))
	m.HandleFunc("GET /api/payload/{capture}/{n}", s.limitHeavy(s.servePayload))
	m.HandleFunc("GET /api/filter", s.serveFilter)
	m.HandleFunc("GET /api/copy/{seq}", s.limitHeavy(s.serveCopy))
	m.HandleFunc("GET /api/sessions", s.serveSessions)
	m.HandleFunc("GET /api/sources", s.serveSources)
	m.HandleFunc("GET /api/tools", s.serveTools)
	m.HandleFunc("GET /api/resend/{seq}", s.limitHeavy(s.serveResendPreview))
	m.HandleFunc("POST /api/resend", s.limitHeavy(s.serveResend))
	m.HandleFunc("POST /api/diff", s.limitHeavy(s.serveDiff))
	m.HandleFunc("POST /api/open", s.serveOpen)
	m.HandleFunc("POST /api/restart/{capture}", s.serveRestart)
	m.HandleFunc("GET /api/export.html", s.limitHeavy(s.serveExport))
	m.HandleFunc("GET /api/save", s.limitHeavy(s.serveSave))
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "there is nothing at this address for this method")
	})
	return m
}

// limitHeavy is for requests that hold payloads, of up to 64 MiB each: not many of them run at once.
func (s *Server) limitHeavy(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		patience := time.NewTimer(stallTimeout)
		defer patience.Stop()
		select {
		case s.heavy <- struct{}{}:
			defer func() { <-s.heavy }()
			next(w, r)
		case <-r.Context().Done():
		case <-patience.C:
			writeBusy(w)
		}
	}
}
