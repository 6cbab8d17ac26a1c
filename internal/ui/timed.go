package web

import (
	"io"
	"net/http"
	"time"
)

// A timedWriter gives each write a deadline of its own, so that a client that takes nothing does not hold on to anything, and streams live as long as they are read.
type timedWriter struct{ http.ResponseWriter }

// Write implements [http.ResponseWriter].
func (w *timedWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

// FlushError is for [http.ResponseController].
func (w *timedWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend may fail in tests only, where there is no connection.
func (w *timedWriter) extend() {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(stallTimeout))
}

// A timedBody is the same for the body of a request.
type timedBody struct {
	io.ReadCloser
	w *timedWriter
}

// Read implements [io.Reader].
func (b *timedBody) Read(p []byte) (int, error) {
	http.NewResponseController(b.w.ResponseWriter).SetReadDeadline(time.Now().Add(stallTimeout))
	return b.ReadCloser.Read(p)
}
