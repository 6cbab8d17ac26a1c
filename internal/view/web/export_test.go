package web

import (
	"io/fs"
	"net/http"

	"mcpwire/internal/view/watch"
)

// NewWithPage is New with another page.
func NewWithPage(hub *watch.Hub, opts *Options, files fs.FS) (*Server, error) {
	p, err := loadPage(files)
	if err != nil {
		return nil, err
	}
	return newServer(hub, opts, p), nil
}

// Bundle puts a page in one file, around data.
func Bundle(files fs.FS, data []byte) ([]byte, error) {
	p, err := loadPage(files)
	if err != nil {
		return nil, err
	}
	b, err := newBundle(p)
	if err != nil {
		return nil, err
	}
	return append(append(b.head, insideHTML(data)...), b.tail...), nil
}

// Page returns the files of the page.
func Page() fs.FS { return pageFiles() }

// Token returns what lets people in.
func (s *Server) Token() string { return s.token }

// OpenStreams returns how many streams are open.
func (s *Server) OpenStreams() int { return len(s.streams) }

// Requests returns the places for requests.
func (s *Server) Requests() chan struct{} { return s.requests }

// Heavy returns the places for requests that hold payloads.
func (s *Server) Heavy() chan struct{} { return s.heavy }

// DropDir returns the folder of dropped captures, "" if there is none.
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
func (s *Server) SetMaxOpen(n int64) { s.maxUpload = n }

// SetMaxUnpacked says how many bytes may come out of a dropped capture that is compressed.
func (s *Server) SetMaxUnpacked(n int64) { s.maxUnpacked = n }

// SetMaxExport says how many rows of the timeline an exported page has.
func (s *Server) SetMaxExport(rows int) { s.maxExport = rows }
