package web

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// indexName is the file of the page itself.
const indexName = "index.html"

// types returns the endings of the files that the page may consist of, with their types.
func types() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8",
		".js":   "text/javascript; charset=utf-8",
		".css":  "text/css; charset=utf-8",
		".svg":  "image/svg+xml",
		".png":  "image/png",
	}
}

// A page is the files of the page.
type page struct{ files map[string]pageFile }

type pageFile struct {
	body []byte
	mime string
	etag string
}

// loadPage reads the files of the page. What has another ending than those of types is not part of it.
func loadPage(files fs.FS) (*page, error) {
	p, mimes := &page{files: map[string]pageFile{}}, types()
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("ui: the page: %w", err)
	}
	for _, e := range entries {
		mime := mimes[path.Ext(e.Name())]
		if e.IsDir() || mime == "" {
			continue
		}
		body, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return nil, fmt.Errorf("ui: the page: %w", err)
		}
		sum := sha256.Sum256(body)
		p.files[e.Name()] = pageFile{body: body, mime: mime, etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	if _, ok := p.files[indexName]; !ok {
		return nil, errors.New("ui: the page has no " + indexName)
	}
	return p, nil
}

// serveFile answers with a file of the page.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	f, ok := s.page.files[name]
	if !ok {
		writeError(w, http.StatusNotFound, "there is no such file")
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.mime)
	h.Set("Cache-Control", "no-cache") // it may be kept, but the next version of this program has another one at the same address
	h.Set("ETag", f.etag)
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if r.Method != http.MethodHead {
		w.Write(f.body) // a client that is gone is told nothing
	}
}
