package watch

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/base/wait"
)

const (
	minDialBackoff = 50 * time.Millisecond // before the second attempt to connect; doubles
	maxDialBackoff = 2 * time.Second
	maxTapLine     = 256 << 20 // bytes of a line from a tap
)

// followTap follows a running tap until it ends.
func (h *Hub) followTap(ctx context.Context, path string) {
	defer func() {
		h.sourcesMu.Lock()
		defer h.sourcesMu.Unlock()
		delete(h.followedTaps, path)
	}()
	var s *source
	defer func() {
		if s != nil && s.path == "" {
			s.finish(nil)
		}
	}()
	for backoff := minDialBackoff; ctx.Err() == nil; {
		conn, err := live.Dial(ctx, path)
		if errors.Is(err, live.ErrStale) || errors.Is(err, live.ErrNotPrivate) {
			return
		}
		if err == nil {
			backoff = minDialBackoff
			next := h.sourceOf(conn.Greeting())
			if s != nil && s != next && s.path == "" { // a different capture at the same socket
				s.finish(nil)
			}
			s = next
			h.followConn(ctx, s, conn, path)
		}
		if s != nil && s.path == "" && s.tailSeen {
			return
		}
		wait.Sleep(ctx, backoff)
		backoff = min(2*backoff, maxDialBackoff)
	}
}

// sourceOf returns the source of a tap: its file, if that can be followed.
func (h *Hub) sourceOf(greeting live.Greeting) *source {
	h.sourcesMu.Lock()
	if c := h.segments[greeting.Capture]; c != nil {
		h.sourcesMu.Unlock()
		return c.source
	}
	h.sourcesMu.Unlock()
	if path := greeting.File; filepath.IsAbs(path) && !captures.IsCompressed(path) && checkCapture(path) == nil {
		s, added := h.addFile(path, true, 0)
		if added && s.claim() {
			h.start(s.run)
		}
		return s
	}
	h.sourcesMu.Lock()
	defer h.sourcesMu.Unlock()
	s := &source{hub: h, claimed: true}
	h.addSourceLocked(s)
	s.info.Name, s.info.Transport, s.info.Path = greeting.Name, greeting.Transport, greeting.File
	return s
}

// followConn reads a connection to the tap at a socket until it ends.
func (h *Hub) followConn(ctx context.Context, s *source, conn *live.Conn, path string) {
	defer conn.Close()
	greeting := conn.Greeting()
	h.sourcesMu.Lock()
	taken := s.conn != nil
	if !taken {
		s.conn, s.everWritten, s.socket = conn, true, path
	}
	h.sourcesMu.Unlock()
	// Two sockets announce the same capture, but a source has one reader.
	if taken {
		return
	}
	s.update(func(i *Source) {
		if !s.ended {
			i.State, i.CanRestart = Live, greeting.Restart
		}
	})
	defer func() {
		h.sourcesMu.Lock()
		s.conn = nil
		h.sourcesMu.Unlock()
		s.update(func(i *Source) {
			i.CanRestart = false
			if !s.ended {
				i.State = Growing
			}
		})
		wait.Signal(s.wake)
	}()
	if greeting.Intercept {
		ctx, cancel := context.WithCancel(ctx)
		var held sync.WaitGroup
		held.Go(func() { h.followHeld(ctx, s, path) })
		defer held.Wait()
		defer cancel()
	}
	if s.path == "" {
		s.ingestTap(ctx, conn)
		return
	}
	if conn.Wake() != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
		wait.Signal(s.wake)
	}
}

// ingestTap reads the capture that a tap sends.
func (s *source) ingestTap(ctx context.Context, conn *live.Conn) {
	greeting := conn.Greeting()
	r := capture.NewReader(&countingReader{conn, s.addProgress}, &capture.ReaderOptions{MaxLine: maxTapLine})
	defer r.Close()
	if s.segment != nil { // reconnected
		s.addGap(ctx, greeting.Next)
	}
	for e, err := range r.Events() {
		switch {
		case err != nil || ctx.Err() != nil:
			return
		// The connection has ended.
		case e.Kind == capture.KindGap && e.Gap.Why == capture.GapTruncated:
			return
		case e.Head != nil && (s.segment != nil || e.Head.ID != greeting.Capture):
			continue
		case e.Head == nil && s.segment == nil: // a tap sends the head first
			return
		case e.Head == nil && e.N != 0 && e.N <= s.last: // received before the reconnect
			continue
		}
		if e = e.Clone(); e.Head == nil {
			if !s.ingestTapEvent(ctx, e) {
				return
			}
			continue
		}
		if s.ingest(ctx, e) != nil {
			return
		}
		s.ingestRecorded(ctx, greeting)
		s.addGap(ctx, greeting.Next)
	}
}

// ingestTapEvent ingests an event that a tap sent, and keeps it in the ring.
func (s *source) ingestTapEvent(ctx context.Context, e *capture.Event) bool {
	err := s.ingest(ctx, e)
	if err == nil {
		s.hub.ring.put(e)
	}
	return err == nil
}

// addGap adds a gap for the events before next that were not received.
func (s *source) addGap(ctx context.Context, next uint64) {
	if next <= s.last+1 {
		return
	}
	lost := next - s.last - 1
	e := &capture.Event{Kind: capture.KindGap, N: s.last + 1, Gap: &capture.Gap{Lost: lost, Why: "not seen"}, At: time.Now()}
	if s.head != nil {
		e.T = max(0, time.Since(s.head.At))
	}
	e.Gap.Until = e.T
	if s.ingestTapEvent(ctx, e) {
		s.hub.mu.Lock()
		s.last = next - 1
		s.hub.mu.Unlock()
	}
}

// ingestRecorded reads the events before greeting.Next from the compressed file of a tap.
func (s *source) ingestRecorded(ctx context.Context, greeting live.Greeting) {
	if !filepath.IsAbs(greeting.File) || greeting.Next < 2 {
		return
	}
	f, info, err := openRegular(greeting.File)
	if err != nil {
		return
	}
	defer f.Close()
	// The tap goes on writing. What is there contains the events before greeting.Next.
	r := capture.NewReader(io.LimitReader(f, info.Size()), &capture.ReaderOptions{MaxLine: maxTapLine})
	defer r.Close()
	for e, err := range r.Events() {
		if err != nil || ctx.Err() != nil || e.N >= greeting.Next {
			return
		}
		if e.Head != nil && e.Head.ID != greeting.Capture {
			return
		}
		if e.Head == nil && e.N > 0 && !s.ingestTapEvent(ctx, e.Clone()) {
			return
		}
	}
}

const (
	maxRing   = 64 << 20 // bytes of all kept events
	eventCost = 1 << 10  // bytes per event, without its payload
)

// A ring keeps the last events of taps without a file.
type ring struct {
	max int

	mu     sync.Mutex
	events map[eventKey]*capture.Event
	order  []eventKey
	bytes  int
}

func newRing(limit int) *ring { return &ring{max: limit, events: map[eventKey]*capture.Event{}} }

// put keeps an event, which must not change later.
func (r *ring) put(e *capture.Event) {
	cost := eventCost + len(e.Data)
	k := eventKey{e.Capture, e.N}
	if e.N == 0 || cost > r.max {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events[k] != nil {
		return
	}
	r.events[k] = e
	r.order = append(r.order, k)
	r.bytes += cost
	for r.bytes > r.max {
		old := r.order[0]
		r.order = r.order[1:]
		r.bytes -= eventCost + len(r.events[old].Data)
		delete(r.events, old)
	}
}

func (r *ring) get(captureID string, n uint64) *capture.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[eventKey{captureID, n}]
}

// all returns the events of a capture up to a number, oldest first.
func (r *ring) all(captureID string, last uint64) (list []*capture.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.order {
		if k.capture == captureID && k.n <= last {
			list = append(list, r.events[k])
		}
	}
	return list
}
