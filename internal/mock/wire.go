package mock

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// A wire is the HTTP response to a request that may meet a fault. Nothing of it can be taken from net/http but by a fault.
type faultWriter struct {
	w http.ResponseWriter

	mu      sync.Mutex
	started bool
	refused bool // what is written from now on is nothing any more
	aborted bool
	left    int // bytes until the connection is cut; below 0 it is not
}

type faultWriterKey struct{}

func faultWriterFrom(ctx context.Context) *faultWriter {
	w, _ := ctx.Value(faultWriterKey{}).(*faultWriter)
	return w
}

// serveWithFaults serves a request so that faults can do to its response what they do.
func (s *Server) serveWithFaults(h http.Handler, rw http.ResponseWriter, r *http.Request) {
	if len(s.opts.Faults) == 0 {
		h.ServeHTTP(rw, r)
		return
	}
	w := &faultWriter{w: rw, left: -1}
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), faultWriterKey{}, w)))
}

var errAborted = errors.New("mock: a fault has cut the connection")

// Header implements http.ResponseWriter.
func (fw *faultWriter) Header() http.Header {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	if fw.refused || fw.aborted {
		return http.Header{}
	}
	return fw.w.Header()
}

// WriteHeader implements http.ResponseWriter.
func (fw *faultWriter) WriteHeader(status int) {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	if !fw.refused && !fw.aborted {
		fw.started = true
		fw.w.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (fw *faultWriter) Write(b []byte) (int, error) {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	switch {
	case fw.aborted:
		return 0, errAborted
	case fw.refused:
		return len(b), nil
	}
	fw.started = true
	if fw.left < 0 || fw.left >= len(b) {
		if fw.left > 0 {
			fw.left -= len(b)
		}
		return fw.w.Write(b)
	}
	n, err := fw.w.Write(b[:fw.left])
	fw.abortLocked()
	return n, errors.Join(errAborted, err)
}

// FlushError implements what http.ResponseController wants.
func (fw *faultWriter) FlushError() error {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	switch {
	case fw.aborted:
		return errAborted
	case fw.refused:
		return nil
	}
	return http.NewResponseController(fw.w).Flush()
}

// SetWriteDeadline implements what http.ResponseController wants.
func (fw *faultWriter) SetWriteDeadline(t time.Time) error {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	if fw.aborted {
		return errAborted
	}
	return http.NewResponseController(fw.w).SetWriteDeadline(t)
}

// SetReadDeadline implements what http.ResponseController wants.
func (fw *faultWriter) SetReadDeadline(t time.Time) error {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	if fw.aborted {
		return errAborted
	}
	return http.NewResponseController(fw.w).SetReadDeadline(t)
}

// EnableFullDuplex implements what http.ResponseController wants.
func (fw *faultWriter) EnableFullDuplex() error {
	return http.NewResponseController(fw.w).EnableFullDuplex()
}

// abortAfter cuts the connection when so many bytes more were written.
func (fw *faultWriter) abortAfter(n int) {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.left = max(n, 0)
}

// abort cuts the connection now.
func (fw *faultWriter) abort() {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.abortLocked()
}

func (fw *faultWriter) abortLocked() {
	if fw.aborted {
		return
	}
	fw.aborted = true
	rc := http.NewResponseController(fw.w)
	if fw.started {
		_ = rc.Flush() // the client is to see what it was sent so far
	}
	if conn, _, err := rc.Hijack(); err == nil {
		conn.Close()
	}
}

// writeStatus answers with a status. It reports whether that was possible still.
func (fw *faultWriter) writeStatus(status int) bool {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	if fw.started || fw.refused || fw.aborted {
		return false
	}
	fw.refused, fw.started = true, true
	h := fw.w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	fw.w.WriteHeader(status)
	_, _ = fw.w.Write([]byte(http.StatusText(status) + "\n")) // a client that is gone needs none
	return true
}
