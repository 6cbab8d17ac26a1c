package detail

import (
	"bytes"
	"fmt"

	"mcpwire/capture"
	"mcpwire/internal/printable"
)

const (
	maxRaws     = 48  // events of a row
	maxPlaces   = 100 // pointers of what was redacted
	maxHexRows  = 4096
	frameLength = 160 // bytes of Frame.Text
)

// rawEvent adds an event to those that are shown byte by byte.
func (w *work) rawEvent(e *capture.Event) {
	if len(w.d.Raw) >= maxRaws {
		return
	}
	r := Raw{
		N: e.N, Kind: e.Kind, Dir: e.Dir, AtMS: ms(e.T - w.row.T), Len: wireLen(e), Cut: e.Cut, Part: e.Part, Encoding: printable.Line(e.Encoding), Framing: e.Framing, Why: printable.Line(e.Why),
	}
	if e.Prefix != "" {
		s := newSheet(4096)
		s.text([]byte(e.Prefix))
		r.Prefix = s.done()
	}
	for _, p := range e.Redacted[:min(len(e.Redacted), maxPlaces)] {
		r.Redacted = append(r.Redacted, printable.Line(p))
	}
	if limit := min(w.opts.MaxShown, w.raw); len(e.Data) > 0 && limit > 0 {
		s := newSheet(limit)
		n := s.text(e.Data[:min(len(e.Data), limit)])
		r.Lines, r.Left, r.Bytes = s.done(), int64(len(e.Data)-n), bytes.Clone(e.Data[:n])
		if w.opts.Hex {
			r.Hex = HexRows(r.Bytes, 0, maxHexRows)
		}
		w.raw -= n
	} else {
		r.Left = int64(len(e.Data))
	}
	w.d.Raw = append(w.d.Raw, r)
	w.d.frames = append(w.d.frames, Frame{N: e.N, Kind: e.Kind, Dir: e.Dir, At: e.At, AtMS: r.AtMS, Len: r.Len, Text: frameText(e)})
}

// frameText is what a list of events shows of one.
func frameText(e *capture.Event) []Span {
	var text string
	switch {
	case e.Request != nil:
		text = e.Request.Method + " " + e.Request.URL
	case e.Response != nil:
		text = fmt.Sprint("HTTP ", e.Response.Status)
	case e.Exit != nil && e.Exit.Signal != "":
		text = "signal " + e.Exit.Signal
	case e.Exit != nil:
		text = fmt.Sprint("code ", e.Exit.Code)
	case e.Start != nil:
		text = fmt.Sprint("pid ", e.Start.PID)
	case e.Xlate != nil:
		text = e.Xlate.Rule
	case e.Gap != nil:
		text = e.Gap.Why
	default:
		return oneLine(e.Data, frameLength)
	}
	return oneLine([]byte(text), frameLength)
}
