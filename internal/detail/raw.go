package detail

import "mcpwire/capture"

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
