package detail

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/text/printable"
)

// A RawEvent is an event with its exact bytes.
type RawEvent struct {
	N    uint64       `json:"n"`
	Kind capture.Kind `json:"kind"`
	Dir  capture.Dir  `json:"dir,omitempty"`
	// AtMS is the time since the row began.
	AtMS float64 `json:"atMs"`
	// Len is the number of bytes on the wire.
	Len  int64 `json:"len"`
	Cut  bool  `json:"cut,omitempty"`
	Part int   `json:"part,omitempty"`
	// Encoding is the content coding of the bytes.
	Encoding string          `json:"encoding,omitempty"`
	Framing  capture.Framing `json:"framing,omitempty"`
	// Prefix is the header of the frame.
	Prefix []Line `json:"prefix,omitempty"`
	// Lines are the bytes with invisible characters marked. A line ends behind each line feed.
	Lines []Line `json:"lines,omitempty"`
	// OmittedBytes counts the bytes that are not in Lines.
	OmittedBytes int64 `json:"left,omitempty"`
	// Redacted are JSON pointers into the event's line of the capture.
	Redacted []string `json:"redacted,omitempty"`
	// Why says why the payload is not plain JSON in the capture.
	Why string `json:"why,omitempty"`
	// Hex is a dump of the beginning. It is nil unless Options.Hex is set.
	Hex []HexRow `json:"hex,omitempty"`
	// Bytes are the bytes that Lines show. They must not be modified.
	Bytes []byte `json:"-"`
}

// A HexRow is a row of a hex dump, with up to 16 bytes.
type HexRow struct {
	Offset int64 `json:"o"`
	// Hex has digits such as "7b 22 6a …", with a wider gap in the middle.
	Hex string `json:"h"`
	// Text has printable ASCII, and "." for other bytes.
	Text string `json:"t"`
}

// hexRows returns the first maxHexRows rows of data.
func hexRows(data []byte) (rows []HexRow) {
	const digits = "0123456789abcdef"
	for row := range slices.Chunk(data[:min(len(data), 16*maxHexRows)], 16) {
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
		rows = append(rows, HexRow{Offset: int64(len(rows)) * 16, Hex: string(hex), Text: string(text)})
	}
	return rows
}

const (
	maxRawEvents        = 48  // of a row
	maxRedactedPointers = 100 // in RawEvent.Redacted
	maxHexRows          = 4096
	maxEventText        = 160 // bytes of EventLine.Text
)

func (b *builder) addRawEvent(e *capture.Event) {
	if len(b.detail.Raw) >= maxRawEvents {
		return
	}
	r := RawEvent{
		N: e.N, Kind: e.Kind, Dir: e.Dir, AtMS: trace.Millis(e.T - b.snapshot.T), Len: trace.WireLen(e), Cut: e.Cut, Part: e.Part, Encoding: printable.Line(e.Encoding), Framing: e.Framing, Why: printable.Line(string(e.Why)),
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
			r.Hex = hexRows(r.Bytes)
		}
		b.rawBytesLeft -= n
	} else {
		r.OmittedBytes = int64(len(e.Data))
	}
	b.detail.Raw = append(b.detail.Raw, r)
	b.detail.Events = append(b.detail.Events, EventLine{N: e.N, Kind: e.Kind, Dir: e.Dir, At: e.At, AtMS: r.AtMS, Len: r.Len, Text: eventText(e)})
}

// eventText returns the text of an event in a list.
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
		text = string(e.Gap.Why)
	default:
		return oneLine(e.Data, maxEventText)
	}
	return oneLine([]byte(text), maxEventText)
}

// An EventLine is an event in a list of the single events.
type EventLine struct {
	N    uint64       `json:"n"`
	Kind capture.Kind `json:"kind"`
	Dir  capture.Dir  `json:"dir,omitempty"`
	At   time.Time    `json:"at"`
	// AtMS is the time since the row began.
	AtMS float64 `json:"atMs"`
	Len  int64   `json:"len"`
	// Text is the beginning, on one line.
	Text []Span `json:"text"`
}
