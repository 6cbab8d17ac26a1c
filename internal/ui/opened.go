package ui

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"mcpwire/capture"
)

// drops are the captures that were dropped on the page. They are in a folder of their own until the Server is closed, because payloads are read from them again.
type drops struct {
	mu     sync.Mutex
	dir    string // "" as long as there is none
	count  int
	size   int64 // of all of them
	closed bool
}

var (
	errDropsFull   = errors.New("too many captures were opened: start mcpwire watch with them instead")
	errDropsClosed = errors.New("the server is being closed")
)

// file makes a file for the next one.
func (d *drops) file(name string) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, errDropsClosed
	case d.count >= maxOpened || d.size >= maxDropped:
		return nil, errDropsFull
	}
	if d.dir == "" {
		dir, err := os.MkdirTemp("", "mcpwire-opened-") // its owner's alone
		if err != nil {
			return nil, err
		}
		d.dir = dir
	}
	d.count++
	return os.OpenFile(filepath.Join(d.dir, strconv.Itoa(d.count)+"-"+name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (d *drops) add(size int64) {
	d.mu.Lock()
	d.size += size
	d.mu.Unlock()
}

// remove removes all of them, and takes no more.
func (d *drops) remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.dir == "" {
		return nil
	}
	dir := d.dir
	d.dir = ""
	return os.RemoveAll(dir)
}

// serveOpen takes a capture that was dropped on the page.
func (s *Server) serveOpen(w http.ResponseWriter, r *http.Request) {
	path, err := s.receive(http.MaxBytesReader(w, r.Body, s.maxOpen), openName(r.URL.Query().Get("name")))
	switch {
	case errors.Is(err, errDropsFull) || errors.Is(err, errDropsClosed):
		failWith(w, http.StatusServiceUnavailable, err)
		return
	case err != nil:
		failWith(w, http.StatusUnprocessableEntity, err)
		return
	}
	if err := s.hub.OpenUpTo(path, s.maxUnpacked); err != nil {
		os.Remove(path)
		failWith(w, http.StatusUnprocessableEntity, err)
		return
	}
	answer(w, map[string]string{"path": path})
}

// openName is the name of a file of a name that a user's file has, or is said to have.
func openName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	packed := ""
	for _, ending := range []string{".gz", ".zst"} {
		if base, ok := strings.CutSuffix(name, ending); ok {
			name, packed = base, ending
		}
	}
	name = strings.TrimSuffix(name, capture.Suffix)
	return fileName(name, "opened"+capture.Suffix+packed)
}

// receive writes a capture to a file. It must at least begin like one.
func (s *Server) receive(body io.Reader, name string) (path string, err error) {
	f, err := s.drops.file(name)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	n, err := io.Copy(f, body)
	s.drops.add(n)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("receiving the capture: %w", err)
	}
	return f.Name(), looksLikeCapture(f.Name())
}

// looksLikeCapture reads the first event.
func looksLikeCapture(path string) error {
	r, err := capture.Open(path, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	for e, err := range r.Events() {
		if err != nil {
			return err
		}
		if e.Kind == capture.KindHead {
			return nil
		}
		break
	}
	return capture.ErrNotCapture
}

// serveRestart asks the tap of a capture to start its server again.
func (s *Server) serveRestart(w http.ResponseWriter, r *http.Request) {
	if err := s.hub.Restart(r.Context(), r.PathValue("capture")); err != nil {
		failWith(w, http.StatusConflict, err)
		return
	}
	answer(w, struct{}{})
}
