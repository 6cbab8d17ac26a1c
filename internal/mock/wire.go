package mock

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// A wire is the HTTP response to a request that may meet a fault. Nothing of it can be taken from net/http but by a fault.
type wire struct {
	w http.ResponseWriter

	mu      sync.Mutex
	begun   bool
	refused bool // what is written from now on is nothing any more
	cut     bool
	left    int // bytes until the connection is cut; below 0 it is not
}

type wireKey struct{}

func wireOf(ctx context.Context) *wire {
	w, _ := ctx.Value(wireKey{}).(*wire)
	return w
}

// wired serves a request so that faults can do to its response what they do.
func (s *Server) wired(h http.Handler, rw http.ResponseWriter, r *http.Request) {
	if len(s.opts.Faults) == 0 {
		h.ServeHTTP(rw, r)
		return
	}
	w := &wire{w: rw, left: -1}
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), wireKey{}, w)))
}

var errCut = errors.New("mock: a fault has cut the connection")

// Header implements http.ResponseWriter.
func (w *wire) Header() http.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused || w.cut {
		return http.Header{}
	}
	return w.w.Header()
}

// WriteHeader implements http.ResponseWriter.
func (w *wire) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.refused && !w.cut {
		w.begun = true
		w.w.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.cut:
		return 0, errCut
	case w.refused:
		return len(b), nil
	}
	w.begun = true
	if w.left < 0 || w.left >= len(b) {
		if w.left > 0 {
			w.left -= len(b)
		}
		return w.w.Write(b)
	}
	n, err := w.w.Write(b[:w.left])
	w.cutLocked()
	return n, errors.Join(errCut, err)
}

// FlushError implements what http.ResponseController wants.
func (w *wire) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.cut:
		return errCut
	case w.refused:
		return nil
	}
	return http.NewResponseController(w.w).Flush()
}

// SetWriteDeadline implements what http.ResponseController wants.
func (w *wire) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return errCut
	}
	return http.NewResponseController(w.w).SetWriteDeadline(t)
}

// SetReadDeadline implements what http.ResponseController wants.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return errCut
	}
	return http.NewResponseController(w.w).SetReadDeadline(t)
}

// EnableFullDuplex implements what http.ResponseController wants.
func (w *wire) EnableFullDuplex() error { return http.NewResponseController(w.w).EnableFullDuplex() }

// cutAfter cuts the connection when so many bytes more were written.
func (w *wire) cutAfter(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = max(n, 0)
}

// abort cuts the connection now.
func (w *wire) abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutLocked()
}

func (w *wire) cutLocked() {
	if w.cut {
		return
	}
	w.cut = true
	rc := http.NewResponseController(w.w)
	if w.begun {
		_ = rc.Flush() // the client is to see what it was sent so far
	}
	if conn, _, err := rc.Hijack(); err == nil {
		conn.Close()
	}
}

// refuse answers with a status. It reports whether that was possible still.
func (w *wire) refuse(status int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun || w.refused || w.cut {
		return false
	}
	w.refused, w.begun = true, true
	h := w.w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.w.WriteHeader(status)
	_, _ = w.w.Write([]byte(http.StatusText(status) + "\n")) // a client that is gone needs none
	return true
}
