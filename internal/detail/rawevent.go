package detail

import (
	"bytes"
	"fmt"

	"mcpwire/capture"
	"mcpwire/internal/printable"
)

const (
	maxRawEvents        = 48  // events of a row
	maxRedactedPointers = 100 // pointers of what was redacted
	maxHexRows          = 4096
	maxEventText        = 160 // bytes of EventLine.Text
)

// addRawEvent adds an event to those that are shown byte by byte.
func (b *builder) addRawEvent(e *capture.Event) {
	if len(b.detail.Raw) >= maxRawEvents {
		return
	}
	r := RawEvent{
		N: e.N, Kind: e.Kind, Dir: e.Dir, AtMS: millis(e.T - b.snapshot.T), Len: wireLen(e), Cut: e.Cut, Part: e.Part, Encoding: printable.Line(e.Encoding), Framing: e.Framing, Why: printable.Line(e.Why),
	}
	if e.Prefix != "" {
		s := newLineWriter(4096)
		s.writeLines([]byte(e.Prefix))
		r.Prefix = s.finish()
	}
	for _, p := range e.Redacted[:min(len(e.Redacted), maxRedactedPointers)] {
		r.Redacted = append(r.Redacted, printable.Line(p))
	}
	if limit := min(b.opts.MaxShown, b.rawBytesLeft); len(e.Data) > 0 && limit > 0 {
		s := newLineWriter(limit)
		n := s.writeLines(e.Data[:min(len(e.Data), limit)])
		r.Lines, r.OmittedBytes, r.Bytes = s.finish(), int64(len(e.Data)-n), bytes.Clone(e.Data[:n])
		if b.opts.Hex {
			r.Hex = HexRows(r.Bytes, 0, maxHexRows)
		}
		b.rawBytesLeft -= n
	} else {
		r.OmittedBytes = int64(len(e.Data))
	}
	b.detail.Raw = append(b.detail.Raw, r)
	b.detail.events = append(b.detail.events, EventLine{N: e.N, Kind: e.Kind, Dir: e.Dir, At: e.At, AtMS: r.AtMS, Len: r.Len, Text: eventText(e)})
}

// eventText is what a list of events shows of one.
func eventText(e *capture.Event) []Span {
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
	case e.Translation != nil:
		text = e.Translation.Rule
	case e.Gap != nil:
		text = e.Gap.Why
	default:
		return oneLine(e.Data, maxEventText)
	}
	return oneLine([]byte(text), maxEventText)
}
