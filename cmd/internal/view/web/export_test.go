package web

import (
	"bytes"
	"net/http"
)

// PageFiles returns the files of the page by name.
func PageFiles() map[string]string {
	return map[string]string{"index.html": indexHTML, "main.css": mainCSS, "main.js": mainJS}
}

// ExportedPage returns the self-contained page around JSON.
func ExportedPage(data []byte) string {
	parts := exportedPage(data)
	return string(bytes.Join(parts[:], nil))
}

// Token returns the access token.
func (s *Server) Token() string { return s.access.token }

// Key is the value of X-Mcpwire.
func (s *Server) Key() string { return s.access.key }

// TicketUntil is a ticket for a path.
func (s *Server) TicketUntil(path string, until int64) string { return s.access.ticket(path, until) }

// OpenStreams returns how many streams are open.
func (s *Server) OpenStreams() int { return len(s.streams) }

// Requests returns the slots for requests.
func (s *Server) Requests() chan struct{} { return s.requests }

// Heavy returns the slots for requests that hold payloads.
func (s *Server) Heavy() chan struct{} { return s.heavy }

// DropDir returns the folder of dropped captures, or "" without one.
func (s *Server) DropDir() string {
	s.uploads.mu.Lock()
	defer s.uploads.mu.Unlock()
	return s.uploads.dir
}

var _ http.Handler = (*Server)(nil)

// FileName is fileName.
func FileName(name, ending string) string { return fileName(name, ending) }

// OpenName is uploadName.
func OpenName(name string) string { return uploadName(name) }

// MaxStreams is how many streams may be open.
const MaxStreams = maxStreams

// SetMaxOpen says how large a dropped capture may be, in bytes.
func (s *Server) SetMaxOpen(n int64) { s.uploads.maxSize = n }

// SetMaxUnpacked says how many bytes may come out of a dropped capture that is compressed.
func (s *Server) SetMaxUnpacked(n int64) { s.uploads.maxUnpacked = n }

// SetMaxExport says how many rows of the timeline an exported page has.
func (s *Server) SetMaxExport(rows int) { s.maxExport = rows }
