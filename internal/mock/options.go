package mock

import (
	"fmt"
	"log/slog"
	"time"
)

// Options are the options of [New]. The zero value is ready to use, and what nil means.
type Options struct {
	// Latency says how time passes.
	Latency Latency
	// Once has each recorded answer given once: who asks more often than was recorded asks for what is not in the capture.
	Once bool
	// Loose takes, for want of one with the same params, a request of the same method about the same tool, prompt, resource or task.
	Loose bool
	// Strict ends the server when it is asked for what is not in the capture.
	Strict bool
	// Faults are what goes wrong.
	Faults []*Fault
	// Seed is what chance depends on: the same seed, and the same requests in the same order, meet the same faults.
	Seed uint64

	ClientTimeout time.Duration // for a client to answer what it is asked; 0 is 5 min
	DrainTimeout  time.Duration // for requests under way when a client's input ends; 0 is 10 s
	MaxInFlight   int           // requests of one client under way at once; 0 is 1024. Further ones are refused

	Logger *slog.Logger // nil discards
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.ClientTimeout <= 0 {
		d.ClientTimeout = 5 * time.Minute
	}
	if d.DrainTimeout <= 0 {
		d.DrainTimeout = 10 * time.Second
	}
	if d.MaxInFlight <= 0 {
		d.MaxInFlight = 1024
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// A Latency says how long a server takes. The zero Latency is no time at all.
type Latency struct {
	Keep  bool          // as long as it took when it was recorded, for each message that it sends
	Fixed time.Duration // for each answer, unless Keep is set
}

// ParseLatency reads "keep", "fast", or a duration such as "200ms".
func ParseLatency(s string) (Latency, error) {
	switch s {
	case "keep":
		return Latency{Keep: true}, nil
	case "fast":
		return Latency{}, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return Latency{}, fmt.Errorf("want keep, fast, or a duration such as 200ms")
	}
	return Latency{Fixed: d}, nil
}
