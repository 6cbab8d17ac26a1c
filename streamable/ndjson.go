package streamable

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
)

// serveNDJSON serves a body of lines, each a message, like standard input: the responses are lines
// too, written as soon as they are ready. Both eras work. A session ends with the body. Each
// request is checked for its scopes.
func (h *Handler) serveNDJSON(w http.ResponseWriter, r *http.Request, s *slot) {
	if s.stand().write(w) {
		return
	}
	rc := http.NewResponseController(w)
	rc.EnableFullDuplex() // HTTP/2 is always full duplex
	rc.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header()["Cache-Control"] = noStore
	w.Header()["X-Accel-Buffering"] = noBuffering
	w.WriteHeader(http.StatusOK)
	rc.Flush()
	ctx, cancel := auth.WithExpiry(r.Context())
	defer cancel()
	// Reading stops. Pending requests are still answered, but the client cannot respond to theirs.
	defer context.AfterFunc(h.closed, cancel)()
	deadlineSet := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(deadlineSet)
		rc.SetReadDeadline(time.Now())
	})
	defer func() {
		if !stop() {
			<-deadlineSet // the response must not be used after that
		}
	}()
	b := &ndjsonBody{h: h, r: r, w: w, rc: rc}
	if err := h.srv.Serve(h.withIdentity(ctx, r, auth.PrincipalOf(ctx)), b.framer()); err != nil {
		h.opts.Logger.Debug("lines", "error", err)
	}
	b.Close()
}

// An ndjsonBody joins the two bodies of a request to one byte stream.
type ndjsonBody struct {
	h  *Handler
	r  *http.Request
	w  http.ResponseWriter
	rc *http.ResponseController

	mu     sync.Mutex
	closed bool
}

func (b *ndjsonBody) Read(p []byte) (int, error) { return b.r.Body.Read(p) }

func (b *ndjsonBody) Write(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, io.ErrClosedPipe
	}
	for n < len(p) {
		part := p[n:min(n+maxWrite, len(p))]
		b.rc.SetWriteDeadline(time.Now().Add(b.h.opts.Timeouts.Write))
		m, err := b.w.Write(part)
		n += m
		if err != nil {
			return n, err
		}
	}
	err = b.rc.Flush()
	b.rc.SetWriteDeadline(time.Time{}) // an HTTP/2 deadline ends the stream even without a write
	return n, err
}

// Close makes a pending Read return.
func (b *ndjsonBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.rc.SetReadDeadline(time.Now())
		b.rc.SetWriteDeadline(time.Time{})
	}
	return nil
}

// framer returns a Framer for the lines, which checks scopes if Options.Scopes is set.
func (b *ndjsonBody) framer() jsonrpc.Framer {
	f := jsonrpc.NewFramer(b, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine, MaxFrame: b.h.opts.Limits.MaxBody})
	if b.h.opts.Scopes == nil {
		return f
	}
	return &scopedFramer{Framer: f, body: b}
}

// A scopedFramer answers requests whose caller lacks scopes.
type scopedFramer struct {
	jsonrpc.Framer
	body *ndjsonBody
	// mu is held while writing.
	mu sync.Mutex
}

// ReadFrame implements [jsonrpc.Framer].
func (f *scopedFramer) ReadFrame() ([]byte, error) {
	for {
		frame, err := f.Framer.ReadFrame()
		if err != nil {
			return nil, err
		}
		rejections := f.rejections(frame)
		if len(rejections) == 0 {
			return frame, nil
		}
		for _, e := range rejections {
			if err := f.WriteFrame(e); err != nil {
				return nil, err
			}
		}
	}
}

// WriteFrame implements [jsonrpc.Framer].
func (f *scopedFramer) WriteFrame(message []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Framer.WriteFrame(message)
}

// rejections returns error responses to all requests in a frame if the caller lacks scopes for one
// of them. It ignores frames that cannot be parsed, which the server rejects.
func (f *scopedFramer) rejections(frame []byte) (answers [][]byte) {
	entries := make([]jsonrpc.Entry, 1)
	if jsonrpc.IsBatch(frame) {
		entries, _ = jsonrpc.ParseBatch(frame, 0)
	} else if jsonrpc.Parse(frame, &entries[0].Message, 0) != nil {
		return nil
	}
	rejected := false
	for i := range entries {
		m := &entries[i].Message
		if entries[i].Invalid != nil || m.Kind != jsonrpc.KindRequest {
			continue
		}
		e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "not forwarded: another message of the batch was rejected")
		if err := f.body.h.authorize(f.body.r.Context(), m); err != nil {
			rejected = true
			e = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "forbidden: %v", err)
		}
		answers = append(answers, jsonrpc.AppendError(nil, m.ID, e, false))
	}
	if !rejected {
		return nil
	}
	return answers
}
