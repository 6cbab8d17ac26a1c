package record

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/sources"
)

// A stuckWriter is a standard error that is never read.
type stuckWriter struct{ stop chan struct{} }

func (w stuckWriter) Write([]byte) (int, error) {
	<-w.stop
	return 0, io.ErrClosedPipe
}

// TestLiveCheckStuck shows that an unread standard error neither takes unlimited memory nor blocks
// the end of the tap.
func TestLiveCheckStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stuckWriter{make(chan struct{})}
		c := newLiveCheck(w, "stdio")
		stray := &capture.Event{Kind: capture.KindInvalid, Dir: capture.ToClient, Framing: capture.FramingLF, Data: []byte("x")}
		c.observe(stray)
		synctest.Wait() // it writes a finding
		for range 2 * sources.MaxUnchecked / sources.EventBytes {
			c.observe(stray)
		}
		if c.bytes > sources.MaxUnchecked || len(c.queue) > sources.MaxUnchecked/sources.EventBytes || c.lost == nil {
			t.Errorf("%d events wait, and %d bytes; a gap: %v", len(c.queue), c.bytes, c.lost != nil)
		}
		begun := time.Now()
		c.close()
		if d := time.Since(begun); d > time.Minute {
			t.Errorf("the end took %v", d)
		}
		c.observe(stray) // has no effect
		c.mu.Lock()
		c.queue = nil // skips the rest of the queue
		c.mu.Unlock()
		close(w.stop)
	})
}
