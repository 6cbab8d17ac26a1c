package detail

import (
	"time"

	"mcpwire/capture"
)

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
