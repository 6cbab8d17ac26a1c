package wireclient

import (
	"testing"

	"go.uber.org/goleak"

	"mcpwire/capture"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A log records events.
type log struct {
	events chan capture.Event
	n      chan uint64
}

func newLog() *log {
	l := &log{make(chan capture.Event, 1000), make(chan uint64, 1)}
	l.n <- 0
	return l
}

// record appends an event; its number is its position, from 1.
func (l *log) record(e *capture.Event) uint64 {
	n := <-l.n + 1
	c := *e
	c.N, c.Data = n, append([]byte(nil), e.Data...)
	l.events <- c
	l.n <- n
	return n
}

// lines describes the events since the last call.
func (l *log) lines() []string {
	var list []string
	for {
		select {
		case e := <-l.events:
			line := string(e.Kind)
			if e.Dir != "" {
				line += " " + string(e.Dir)
			}
			if e.Framing != "" {
				line += " " + string(e.Framing)
			}
			if len(e.Data) > 0 {
				line += " " + string(e.Data)
			}
			if e.Cut {
				line += " (cut)"
			}
			list = append(list, line)
		default:
			return list
		}
	}
}
