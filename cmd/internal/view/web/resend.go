package web

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
)

// Limits of resending.
const (
	maxEditable       = 1 << 20         // bytes of a message that the page can edit
	maxResendResponse = 64 << 10        // bytes of the response; the new capture has all
	rowTimeout        = 3 * time.Second // for a row of a capture that is already written
	rowInterval       = 20 * time.Millisecond
)

// resendPreview is the message to send again, and its target.
type resendPreview struct {
	Target  string `json:"target"`
	Message string `json:"message,omitempty"`
	Note    string `json:"note,omitempty"`
}

// resendResult is the result of resending.
type resendResult struct {
	Capture   string `json:"capture,omitempty"`
	N         uint64 `json:"n,omitempty"`
	ResponseN uint64 `json:"rn,omitempty"`
	// Row is the Seq of the request in the new capture. Zero means that it is not there yet.
	Row      uint64  `json:"row,omitempty"`
	Took     float64 `json:"ms,omitempty"`
	Response string  `json:"response,omitempty"`
	Note     string  `json:"note,omitempty"`
}

// serveResendPreview responds with the message to send again and its target.
func (s *Server) serveResendPreview(w http.ResponseWriter, r *http.Request) error {
	p, err := s.views.pathRow(r)
	if err != nil {
		return err
	}
	o, message, err := s.resender.origin(r.Context(), p)
	if err == nil && o.Gateway {
		err = resend.ErrGateway
	}
	if err != nil {
		return failure{http.StatusUnprocessableEntity, err}
	}
	out := resendPreview{Target: targetText(o), Message: string(message)}
	if n := len(o.Redacted) + o.MoreRedacted; n > 0 {
		out.Note = fmt.Sprintf("%d secrets in the message were redacted when it was recorded: fill them in", n)
	}
	if len(message) > maxEditable {
		out.Message, out.Note = "", "the message is too large to edit here: it can only be sent as recorded"
	}
	return writeJSON(w, out)
}

// serveResend sends a message to a new instance of the server.
func (s *Server) serveResend(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Row     uint64
		Message *string
		Target  string
	}
	if err := readJSON(w, r, maxBody, &q); err != nil {
		return err
	}
	p, err := s.views.row(q.Row)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), resendTimeout)
	defer cancel()
	o, message, err := s.resender.origin(ctx, p)
	switch {
	case err != nil:
		return failure{http.StatusUnprocessableEntity, err}
	// The user must have seen the target: captures may come from strangers.
	case q.Target != targetText(o):
		return writeTargetChanged(w, targetText(o))
	}
	if q.Message != nil {
		message = []byte(*q.Message)
	}
	return s.resender.run(ctx, w, o, message)
}

// writeTargetChanged responds that the user has not seen the target.
func writeTargetChanged(w http.ResponseWriter, target string) error {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusConflict)
	b := jsonwire.AppendQuote([]byte(`{"error":{"message":"the user must see the target first","target":`), target)
	w.Write(append(b, "}}\n"...))
	return nil
}

// A resender sends messages of captures again.
type resender struct {
	hub  *watch.Hub
	opts resend.Options
}

func newResender(hub *watch.Hub, o *Options) resender {
	rs := resender{hub: hub}
	if o.Resend != nil {
		rs.opts = *o.Resend
	}
	rs.opts.Tool = cmp.Or(rs.opts.Tool, o.Tool)
	return rs
}

// run sends a message to a new instance of the server, and responds with the result.
func (rs *resender) run(ctx context.Context, w http.ResponseWriter, o *resend.Origin, message []byte) error {
	res, err := resend.Run(ctx, o, message, &rs.opts)
	if res == nil {
		return failure{http.StatusUnprocessableEntity, err}
	}
	followErr := rs.watchCapture(res)
	out := resendResult{Capture: res.CaptureID, N: res.N, ResponseN: res.ResponseN, Took: trace.TruncatedMillis(res.Latency)}
	out.Response = string(bytes.ToValidUTF8(res.Response[:min(len(res.Response), maxResendResponse)], []byte("\uFFFD")))
	if res.N != 0 {
		out.Row = rs.awaitRow(ctx, res.CaptureID, res.N)
	}
	var notes []string
	for _, err := range []error{err, followErr} {
		if err != nil {
			notes = append(notes, err.Error())
		}
	}
	if len(res.Response) > maxResendResponse {
		notes = append(notes, "this is the beginning of the response: the new capture has all of it")
	}
	if res.Asked > 0 {
		notes = append(notes, fmt.Sprintf("%d requests of the server were declined", res.Asked))
	}
	out.Note = strings.Join(notes, "; ")
	return writeJSON(w, out)
}

// watchCapture makes the hub read the new capture, unless it already does.
func (rs *resender) watchCapture(res *resend.Result) error {
	for _, src := range rs.hub.Sources() {
		if src.Path == res.Path || src.ID == res.CaptureID {
			return nil
		}
	}
	return rs.hub.Open(res.Path)
}

// awaitRow waits for a row to arrive at the hub with its response. It returns 0 if that takes too
// long.
func (rs *resender) awaitRow(ctx context.Context, captureID string, n uint64) (seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, rowTimeout)
	defer cancel()
	tick := time.NewTicker(rowInterval)
	defer tick.Stop()
	for {
		done := false
		rs.hub.Read(func(m *trace.Model) {
			if r := m.Find(captureID, n); r != nil {
				seq, done = r.Seq, r.Done
			}
		})
		if done {
			return seq
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return seq
		}
	}
}

// origin reads from the capture what is needed to send the message of a row again.
func (rs *resender) origin(ctx context.Context, p rowRef) (*resend.Origin, []byte, error) {
	path := ""
	for _, src := range rs.hub.Sources() {
		if src.ID == p.capture && src.Path != "" {
			path = src.Path
		}
	}
	if path == "" {
		return rs.originFromHub(ctx, p)
	}
	return resend.FindFile(ctx, path, p.capture, p.session, p.n)
}

// originFromHub is like origin for a capture without a file. It fails if the hub no longer has the
// beginning of the session.
func (rs *resender) originFromHub(ctx context.Context, p rowRef) (*resend.Origin, []byte, error) {
	kept, gone := watch.NewPart(p.capture, ""), 0
	rs.hub.Read(func(m *trace.Model) {
		for _, r := range m.Rows() {
			if r.Capture.ID == p.capture {
				kept.AddContext(r)
			}
		}
		if r := m.RowOf(p.row.Seq); r != nil {
			kept.Add(r)
		}
	})
	return resend.Find(ctx, kept.EventsFrom(ctx, rs.hub, &gone), p.session, p.n)
}

// targetText describes the target.
func targetText(o *resend.Origin) string {
	if o.Transport == capture.TransportStdio && o.Dir != "" {
		return o.Target() + "  (in " + printable.Line(o.Dir) + ")"
	}
	return o.Target()
}
