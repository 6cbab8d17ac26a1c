package stdio

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"mcpwire/internal/base/defaults"
)

// A queue writes to a sink that may block without end, such as a pipe that nobody reads, but never
// blocks its users for long. It writes at once what it can, keeps the rest in limited memory, and
// drops and counts what does not fit.
//
// It has a goroutine only while data waits. It keeps or drops each Write as a whole.
type queue struct {
	out output
	// maxPending limits pending, in bytes.
	maxPending int
	// notice returns the text to write when there is room again after drops. It may be nil.
	notice func(dropped int) []byte

	mu      sync.Mutex
	pending []byte
	// drainDone is closed when the goroutine ends. It is nil without one.
	drainDone chan struct{}
	// dropped counts the writes dropped since the last notice.
	dropped int
	closed  bool
	// failed is set if the sink returned an error.
	failed bool
}

const defaultQueueBytes = 256 << 10

// newQueue returns a queue for w. It writes to files directly and to other writers on the queue's
// goroutine.
func newQueue(w io.Writer, limit int, notice func(int) []byte) *queue {
	defaults.IfNotPositive(&limit, defaultQueueBytes)
	return &queue{out: openSink(w), maxPending: limit, notice: notice}
}

// openSink returns an output for w. For a file it uses a new descriptor, because Go raises SIGPIPE
// for descriptors 1 and 2, which would end the process.
func openSink(w io.Writer) output {
	if f, ok := w.(*os.File); ok {
		if out, err := openOutput(f); err == nil {
			return out
		}
	}
	return writerSink{w}
}

// A writerSink is an io.Writer that may block.
type writerSink struct{ io.Writer }

func (writerSink) tryWrite([]byte) (int, error) { return 0, nil }
func (writerSink) Close() error                 { return nil }

// Write writes, queues or drops p. It never fails.
func (q *queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.failed {
		return len(p), nil
	}
	rest := p
	if q.drainDone == nil {
		n, err := q.out.tryWrite(p)
		if err != nil {
			q.failed = true
			return len(p), nil
		}
		if n == len(p) {
			return n, nil
		}
		rest = p[n:]
	}
	// The rest of a line is queued whatever its size if its beginning was written.
	if len(q.pending)+len(rest) > q.maxPending && len(rest) == len(p) {
		q.dropped++
		return len(p), nil
	}
	q.pending = append(q.pending, rest...)
	if q.drainDone == nil {
		q.drainDone = make(chan struct{})
		go q.drain(q.drainDone)
	}
	return len(p), nil
}

// drain writes until nothing is pending.
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

// flush waits until nothing is pending or ctx ends.
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

// closeWithin flushes for at most d, discards the rest and closes the sink. If the sink's writes
// cannot be interrupted, the queue's goroutine stays until the write returns.
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
