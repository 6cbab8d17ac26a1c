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

// serveNDJSON serves a body of lines, each a message, as standard input is served: the answers are lines too, written as they come. Both eras can be spoken, and
// the session, if there is one, ends with the body. Scopes are asked for each request.
func (h *Handler) serveNDJSON(w http.ResponseWriter, r *http.Request, c *caller) {
	release, ok := h.admitStream(w, c)
	if !ok {
		return
	}
	defer release()
	rc := http.NewResponseController(w)
	rc.EnableFullDuplex() // HTTP/2 always is
	rc.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header()["Cache-Control"] = noStore
	w.Header()["X-Accel-Buffering"] = noBuffering
	w.WriteHeader(http.StatusOK)
	rc.Flush()
	ctx, cancel := auth.WithExpiry(r.Context())
	defer cancel()
	defer context.AfterFunc(h.closed, cancel)() // what was asked is answered still
	deadlineSet := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(deadlineSet)
		rc.SetReadDeadline(time.Now())
	})
	defer func() {
		if !stop() {
			<-deadlineSet // the response must not be used once the request has been served
		}
	}()
	b := &ndjsonBody{h: h, r: r, w: w, rc: rc}
	if err := h.srv.Serve(h.withIdentity(ctx, r, auth.PrincipalOf(ctx)), b.framer()); err != nil {
		h.opts.Logger.Debug("lines", "error", err)
	}
	b.Close()
}

// A ndjsonBody is the two bodies of a request as one stream of bytes.
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
		b.rc.SetWriteDeadline(time.Now().Add(b.h.opts.WriteTimeout))
		m, err := b.w.Write(part)
		n += m
		if err != nil {
			return n, err
		}
	}
	err = b.rc.Flush()
	b.rc.SetWriteDeadline(time.Time{}) // one of HTTP/2 ends the stream even if nothing is being written
	return n, err
}

// Close makes a Read that is under way return.
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

// framer returns the lines as frames. Where scopes are needed, each request is held against them.
func (b *ndjsonBody) framer() jsonrpc.Framer {
	f := jsonrpc.NewFramer(b, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine, MaxFrame: b.h.opts.MaxBody})
	if b.h.opts.Scopes == nil {
		return f
	}
	return &scopedFramer{Framer: f, body: b}
}

// A scopedFramer answers requests itself whose caller lacks the scopes for them.
type scopedFramer struct {
	jsonrpc.Framer
	body *ndjsonBody
	mu   sync.Mutex // held while writing
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

// rejections returns the answers to the requests in a frame if one of them must not be made. What cannot be parsed is for others to refuse.
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
		e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "not sent on: another message of the batch was refused")
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
