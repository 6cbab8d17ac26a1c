package taphttp

import (
	"sync"
	"time"

	"mcpwire/capture"
)

// A recorder hands events to the capture and to whoever looks on.
type recorder struct {
	out     *capture.Writer // nil records nothing
	observe func(*capture.Event)
	start   time.Time

	mu sync.Mutex // held while an event is numbered and observed, so that the observer sees the order of the numbers
	n  uint64     // of the last event, without out
}

// record is called before the bytes are forwarded.
func (r *recorder) record(e *capture.Event) {
	if r.observe == nil {
		if r.out != nil {
			r.out.Record(e)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		e.N = r.out.Record(e)
	} else {
		r.n++
		e.N = r.n
	}
	e.T = time.Since(r.start)
	r.observe(e)
}
