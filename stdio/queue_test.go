package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A stuckWriter blocks until it is released.
type stuckWriter struct {
	free  chan struct{}
	buf   bytes.Buffer
	err   error
	calls int
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	<-w.free
	w.calls++
	if w.err != nil {
		return 0, w.err
	}
	return w.buf.Write(p)
}

func TestQueueDropsAndCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{free: make(chan struct{})}
		q := newQueue(w, 100, func(n int) []byte { return fmt.Appendf(nil, "dropped %d\n", n) })
		line := []byte(strings.Repeat("x", 39) + "\n")
		for range 10 {
			if n, err := q.Write(line); n != len(line) || err != nil {
				t.Fatalf("Write: %d, %v", n, err)
			}
			synctest.Wait() // the writer has the first one, two wait
		}
		if got := q.dropCount(); got != 7 {
			t.Errorf("%d writes were dropped, want 7", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush while stuck: %v", err)
		}
		close(w.free)
		if err := q.flush(t.Context()); err != nil {
			t.Errorf("flush: %v", err)
		}
		if got, want := w.buf.String(), strings.Repeat(string(line), 3)+"dropped 7\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		q.Write(line)
		if err := q.closeWithin(time.Second); err != nil {
			t.Errorf("close: %v", err)
		}
		if got := strings.Count(w.buf.String(), string(line)); got != 4 {
			t.Errorf("%d lines at the end, want 4", got)
		}
		q.Write(line)
		synctest.Wait()
		if got := strings.Count(w.buf.String(), string(line)); got != 4 {
			t.Errorf("%d lines after the end, want 4", got)
		}
	})
}

func TestQueueFailingWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{free: make(chan struct{}), err: io.ErrClosedPipe}
		close(w.free)
		q := newQueue(w, 0, nil)
		for range 3 {
			q.Write([]byte("x\n"))
			synctest.Wait()
		}
		if w.calls != 1 {
			t.Errorf("%d writes, want none after the failure", w.calls)
		}
		if err := q.closeWithin(time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestQueueCloseGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &stuckWriter{free: make(chan struct{})}
		q := newQueue(w, 0, nil)
		q.Write([]byte("x\n"))
		begin := time.Now()
		if err := q.closeWithin(time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("close took %v", d)
		}
		close(w.free)
	})
}

// dropCount returns the number of writes dropped since the last notice.
func (q *queue) dropCount() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
