package mock

import "sync"

// A crew counts what goes on, and lets nothing new begin once it was shut.
type crew struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when nothing goes on any more; nil as long as it was not shut
}

// enter reports whether there may be one more, which has to leave then.
func (c *crew) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		return false
	}
	c.n++
	return true
}

func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
	}
}

// shut lets nothing new begin, and returns what is closed when all have left.
func (c *crew) shut() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		c.idle = make(chan struct{})
		if c.n == 0 {
			close(c.idle)
		}
	}
	return c.idle
}
