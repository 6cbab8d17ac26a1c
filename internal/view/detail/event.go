package detail

import (
	"bytes"
	"fmt"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/text/printable"
)

// A RawEvent is an event with its exact bytes.
type RawEvent struct {
	N            uint64          `json:"n"`
	Kind         capture.Kind    `json:"kind"`
	Dir          capture.Dir     `json:"dir,omitempty"`
	AtMS         float64         `json:"atMs"` // since the row began
	Len          int64           `json:"len"`  // bytes on the wire
	Cut          bool            `json:"cut,omitempty"`
	Part         int             `json:"part,omitempty"`
	Encoding     string          `json:"encoding,omitempty"` // content coding that the bytes are in
	Framing      capture.Framing `json:"framing,omitempty"`
	Prefix       []Line          `json:"prefix,omitempty"`   // the header of the frame
	Lines        []Line          `json:"lines,omitempty"`    // what cannot be seen is marked; a line ends behind each line feed
	OmittedBytes int64           `json:"left,omitempty"`     // bytes that are not in Lines
	Redacted     []string        `json:"redacted,omitempty"` // JSON pointers into the event's line of the capture
	Why          string          `json:"why,omitempty"`      // why it is no plain JSON in the capture
	Hex          []HexRow        `json:"hex,omitempty"`      // the beginning, if Options.Hex is set
	Bytes        []byte          `json:"-"`                  // what Lines show; must not be changed
}

// A HexRow is up to 16 bytes as people look at them.
type HexRow struct {
	Offset int64  `json:"o"`
	Hex    string `json:"h"` // "7b 22 6a …", a wider gap in the middle
	Text   string `json:"t"` // printable ASCII, "." for the rest
}

// HexRows returns rows for data from a row on, of which 0 is the first; at most count.
func HexRows(data []byte, from, count int) []HexRow {
	const digits = "0123456789abcdef"
	var rows []HexRow
	for at := max(from, 0); len(rows) < count && at <= len(data)/16 && at*16 < len(data); at++ {
		row := data[at*16 : min(len(data), at*16+16)]
		var hex, text []byte
		for i, c := range row {
			switch {
			case i == 8:
				hex = append(hex, "  "...)
			case i > 0:
				hex = append(hex, ' ')
			}
			hex = append(hex, digits[c>>4], digits[c&15])
			if c < ' ' || c > '~' {
				c = '.'
			}
			text = append(text, c)
		}
		rows = append(rows, HexRow{Offset: int64(at) * 16, Hex: string(hex), Text: string(text)})
	}
	return rows
}

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

// A EventLine is an event in a list of events: the view that does not put them together to exchanges.
type EventLine struct {
	N    uint64       `json:"n"`
	Kind capture.Kind `json:"kind"`
	Dir  capture.Dir  `json:"dir,omitempty"`
	At   time.Time    `json:"at"`
	AtMS float64      `json:"atMs"` // since the row began
	Len  int64        `json:"len"`
	Text []Span       `json:"text"` // the beginning, on one line
}

// Events returns the events of the row itself, in the order of the capture. The slice belongs to the Detail.
func (d *Detail) Events() []EventLine { return d.events }
