package stdio

import (
	"context"
	"io"
	"os"
	"sync"
	"time"
)

// A queue writes to a sink that may block for ever, such as a pipe that nobody reads, without ever blocking its own users for long: what can be
// written at once is, the rest waits in bounded memory, and what does not fit is dropped and counted.
//
// It has a goroutine only while something waits. Each Write is kept or dropped as a whole.
type queue struct {
	out        output
	maxPending int                      // bytes waiting
	notice     func(dropped int) []byte // what to write once there is room again; may be nil

	mu         sync.Mutex
	pending    []byte
	drainDone  chan struct{} // closed when the goroutine ends; nil while there is none
	dropped    int           // writes, since the last notice
	allDropped int           // writes dropped ever
	closed     bool
	failed     bool // the sink fails
}

const defaultQueueBytes = 256 << 10

// newQueue returns a queue for w. Files are written to directly, other writers by the queue's goroutine.
func newQueue(w io.Writer, limit int, notice func(int) []byte) *queue {
	if limit <= 0 {
		limit = defaultQueueBytes
	}
	return &queue{out: openSink(w), maxPending: limit, notice: notice}
}

// openSink returns an output for w. For a file it has descriptors of its own: SIGPIPE, which Go raises for descriptors 1 and 2 only, would end
// the process otherwise.
func openSink(w io.Writer) output {
	if f, ok := w.(*os.File); ok {
		if out, err := openOutput(f); err == nil {
			return out
		}
	}
	return writerSink{w}
}

// A writerSink is an io.Writer of which nothing is known.
type writerSink struct{ io.Writer }

func (writerSink) tryWrite([]byte) (int, error) { return 0, nil }
func (writerSink) Close() error                 { return nil }

// Write takes p, or drops it, and never fails.
func (q *queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.failed {
		q.allDropped++
		return len(p), nil
	}
	rest := p
	if q.drainDone == nil {
		n, err := q.out.tryWrite(p)
		if err != nil {
			q.failed = true
			q.allDropped++
			return len(p), nil
		}
		if n == len(p) {
			return n, nil
		}
		rest = p[n:]
	}
	// The rest of a line whose beginning is out goes in, however much it is.
	if len(q.pending)+len(rest) > q.maxPending && len(rest) == len(p) {
		q.dropped++
		q.allDropped++
		return len(p), nil
	}
	q.pending = append(q.pending, rest...)
	if q.drainDone == nil {
		q.drainDone = make(chan struct{})
		go q.drain(q.drainDone)
	}
	return len(p), nil
}

// drain writes until nothing waits.
func (q *queue) drain(drainDone chan struct{}) {
	defer close(drainDone)
	var batch []byte
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.dropped > 0 && q.notice != nil && len(q.pending) == 0 {
			q.pending = append(q.pending, q.notice(q.dropped)...)
			q.dropped = 0
		}
		if len(q.pending) == 0 || q.failed {
			q.drainDone, q.pending = nil, nil
			return
		}
		batch, q.pending = q.pending, batch[:0]
		q.mu.Unlock()
		_, err := q.out.Write(batch)
		q.mu.Lock()
		if err != nil {
			q.failed = true
			q.pending = nil
		}
	}
}

// flush waits until nothing is waiting to be written or ctx ends.
func (q *queue) flush(ctx context.Context) error {
	q.mu.Lock()
	drainDone := q.drainDone
	q.mu.Unlock()
	if drainDone == nil {
		return nil
	}
	select {
	case <-drainDone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeWithin flushes for as long as d, then gives up what is left and closes the sink. A sink whose writes cannot be interrupted keeps the
// queue's goroutine until the write returns.
func (q *queue) closeWithin(d time.Duration) error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	err := q.flush(ctx)
	if closeErr := q.out.Close(); err == nil {
		return closeErr
	}
	if _, uninterruptible := q.out.(writerSink); !uninterruptible {
		after, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		q.flush(after)
	}
	return err
}

// dropCount returns how many writes were dropped.
func (q *queue) dropCount() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.allDropped
}
