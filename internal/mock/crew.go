package mock

import "sync"

// A crew counts what goes on, and lets nothing new begin once it was shut.
type activity struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when nothing goes on any more; nil as long as it was not shut
}

// begin reports whether there may be one more, which has to leave then.
func (a *activity) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.idle != nil {
		return false
	}
	a.n++
	return true
}

func (a *activity) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n == 0 && a.idle != nil {
		close(a.idle)
	}
}

// close lets nothing new begin, and returns what is closed when all have left.
func (a *activity) close() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.idle == nil {
		a.idle = make(chan struct{})
		if a.n == 0 {
			close(a.idle)
		}
	}
	return a.idle
}
