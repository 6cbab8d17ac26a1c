package tap

import (
	"bytes"
	"sync"

	"mcpwire/capture"
)

// maxQueueBytes is how many bytes of the host's frames wait for a server. One frame may always wait, whatever its size.
const maxQueueBytes = 16 << 20

// A queue holds frames of the host until a server takes them. put is called by one goroutine, take by one at a time.
type queue struct {
	mu        sync.Mutex
	cond      sync.Cond
	frames    []capture.Event
	bytes     int
	closed    bool // the host's input has ended
	paused    bool // nobody may take
	abandoned bool // nobody will take any more
}

func newQueue() *queue {
	q := &queue{}
	q.cond.L = &q.mu
	return q
}

// put adds a copy of a frame. It waits while the queue is full.
func (q *queue) put(e *capture.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) > 0 && q.bytes+len(e.Data) > maxQueueBytes && !q.abandoned {
		q.cond.Wait()
	}
	if q.abandoned {
		return
	}
	own := *e
	own.Data = bytes.Clone(e.Data)
	q.frames = append(q.frames, own)
	q.bytes += len(own.Data)
	q.cond.Broadcast()
}

// pushFront puts a frame before all others.
func (q *queue) pushFront(e capture.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frames = append([]capture.Event{e}, q.frames...)
	q.bytes += len(e.Data)
}

// take waits for frames, and returns all that are there; none, with done, if there will be no more, and none if the queue is paused.
func (q *queue) take() (frames []capture.Event, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && !q.closed && !q.paused {
		q.cond.Wait()
	}
	if q.paused {
		return nil, false
	}
	frames, q.frames, q.bytes = q.frames, nil, 0
	q.cond.Broadcast()
	return frames, len(frames) == 0
}

// pause has take return, until resume.
func (q *queue) pause() { q.update(func() { q.paused = true }) }

func (q *queue) resume() { q.update(func() { q.paused = false }) }

// close says that the host's input has ended.
func (q *queue) close() { q.update(func() { q.closed = true }) }

// abandon returns what nobody will take any more. put does nothing from now on.
func (q *queue) abandon() []capture.Event {
	var frames []capture.Event
	q.update(func() { frames, q.frames, q.abandoned = q.frames, nil, true })
	return frames
}

// finished reports whether the host's input has ended and all of it was taken.
func (q *queue) finished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.frames) == 0
}

func (q *queue) update(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	q.cond.Broadcast()
}
