package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
)

// sources returns the sources, without the messages themselves that taps hold.
func sources(hub *watch.Hub) []watch.Source {
	list := hub.Sources()
	for i := range list {
		list[i].Intercepted = withoutData(list[i].Intercepted)
	}
	return list
}

// withoutData returns a copy without the messages themselves, which may be long.
func withoutData(held *live.Intercepted) *live.Intercepted {
	if held == nil {
		return nil
	}
	brief := *held
	brief.Messages = slices.Clone(held.Messages)
	for i := range brief.Messages {
		brief.Messages[i].Data = ""
	}
	return &brief
}

// serveHeld responds with what the tap of a capture holds.
func (s *Server) serveHeld(w http.ResponseWriter, r *http.Request) error {
	for _, src := range s.hub.Sources() {
		if src.ID == r.PathValue("capture") && src.Intercepted != nil {
			return writeJSON(w, src.Intercepted)
		}
	}
	return failure{http.StatusNotFound, watch.ErrNoIntercept}
}

// serveDecide sends a decision about a held message to the tap of a capture.
func (s *Server) serveDecide(w http.ResponseWriter, r *http.Request) error {
	var d live.Decision
	if err := readJSON(w, r, 8*live.MaxHeldData, &d); err != nil {
		return err
	}
	switch err := s.hub.Decide(r.Context(), r.PathValue("capture"), &d); {
	case errors.Is(err, live.ErrDecision):
		return failure{http.StatusUnprocessableEntity, err}
	case err != nil:
		return failure{http.StatusNotFound, err}
	}
	return writeJSON(w, struct{}{})
}

// uploads are the captures that were dropped on the page. Their folder exists until the Server is
// closed, because payloads are read from them again.
type uploads struct {
	// maxSize limits a capture that is dropped on the page, in bytes.
	maxSize int64
	// maxUnpacked limits the content of a compressed capture, in bytes.
	maxUnpacked int64

	// mu guards the fields below.
	mu sync.Mutex
	// dir is the folder. It is empty until needed.
	dir   string
	count int
	// size is the size of all uploads, in bytes.
	size   int64
	closed bool
}

var (
	errUploadsFull   = errors.New("too many open captures: pass them to mcpwire watch instead")
	errUploadsClosed = errors.New("the server is being closed")
)

// create creates a file for an upload.
func (u *uploads) create(name string) (*os.File, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return nil, errUploadsClosed
	case u.count >= maxUploads || u.size >= maxUploadTotal:
		return nil, errUploadsFull
	}
	if u.dir == "" {
		dir, err := os.MkdirTemp("", "mcpwire-opened-") // accessible to its owner only
		if err != nil {
			return nil, err
		}
		u.dir = dir
	}
	u.count++
	return os.OpenFile(filepath.Join(u.dir, strconv.Itoa(u.count)+"-"+name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (u *uploads) add(size int64) {
	u.mu.Lock()
	u.size += size
	u.mu.Unlock()
}

// remove removes all uploads. Later calls of create fail.
func (u *uploads) remove() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	if u.dir == "" {
		return nil
	}
	dir := u.dir
	u.dir = ""
	return os.RemoveAll(dir)
}

// serveOpen accepts a capture that was dropped on the page.
func (s *Server) serveOpen(w http.ResponseWriter, r *http.Request) error {
	path, err := s.uploads.save(http.MaxBytesReader(w, r.Body, s.uploads.maxSize), uploadName(r.URL.Query().Get("name")))
	switch {
	case errors.Is(err, errUploadsFull) || errors.Is(err, errUploadsClosed):
		return failure{http.StatusServiceUnavailable, err}
	case err != nil:
		return failure{http.StatusUnprocessableEntity, err}
	}
	if err := s.hub.OpenLimited(path, s.uploads.maxUnpacked); err != nil {
		os.Remove(path)
		return failure{http.StatusUnprocessableEntity, err}
	}
	return writeJSON(w, map[string]string{"path": path})
}

// uploadName returns a safe file name for an upload.
func uploadName(name string) string {
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

// save writes an upload to a file. It returns an error if the upload does not begin like a
// capture.
func (u *uploads) save(body io.Reader, name string) (path string, err error) {
	f, err := u.create(name)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	n, err := io.Copy(f, body)
	u.add(n)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("receive the capture: %w", err)
	}
	return f.Name(), checkCapture(f.Name())
}

// checkCapture reads the first event.
func checkCapture(path string) error {
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

// serveRestart asks the tap of a capture to restart its server.
func (s *Server) serveRestart(w http.ResponseWriter, r *http.Request) error {
	if err := s.hub.Restart(r.Context(), r.PathValue("capture")); err != nil {
		return failure{http.StatusConflict, err}
	}
	return writeJSON(w, struct{}{})
}
