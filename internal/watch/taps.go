package watch

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/live"
)

const (
	dialAgain    = 50 * time.Millisecond // before the second attempt to connect to a tap; it doubles
	dialAgainMax = 2 * time.Second
	maxTapLine   = 256 << 20 // bytes of a line from a tap
)

// watchTap looks after a running tap until it has ended.
func (h *Hub) watchTap(ctx context.Context, path string) {
	defer func() {
		h.smu.Lock()
		defer h.smu.Unlock()
		delete(h.connected, path)
	}()
	var s *source
	defer func() {
		if s != nil && s.path == "" {
			s.end(nil)
		}
	}()
	for wait := dialAgain; ctx.Err() == nil; {
		conn, err := live.Dial(ctx, path)
		if errors.Is(err, live.ErrStale) || errors.Is(err, live.ErrNotPrivate) {
			return
		}
		if err == nil {
			wait = dialAgain
			next := h.tapSource(conn.Hello())
			if s != nil && s != next && s.path == "" { // another capture in its place: it cannot be
				s.end(nil)
			}
			s = next
			h.watchConn(ctx, s, conn)
		}
		if s != nil && s.path == "" && s.tailSeen {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, dialAgainMax)
		}
	}
}

// tapSource returns the source for what a tap records: the file, if that can be followed.
func (h *Hub) tapSource(hello live.Hello) *source {
	h.smu.Lock()
	if c := h.captures[hello.Capture]; c != nil {
		h.smu.Unlock()
		return c.source
	}
	h.smu.Unlock()
	if path := hello.File; filepath.IsAbs(path) && !compressed(path) && looksLikeCapture(path) == nil {
		s, added := h.addFile(path, true)
		if added && s.claim() {
			h.start(s.run)
		}
		return s
	}
	h.smu.Lock()
	defer h.smu.Unlock()
	s := &source{hub: h, started: true}
	h.add(s)
	s.info.Name, s.info.Transport, s.info.Path = hello.Name, hello.Transport, hello.File
	return s
}

// watchConn reads a connection to a tap until it ends.
func (h *Hub) watchConn(ctx context.Context, s *source, conn *live.Conn) {
	defer conn.Close()
	hello := conn.Hello()
	h.smu.Lock()
	taken := s.conn != nil
	if !taken {
		s.conn, s.wasLive = conn, true
	}
	h.smu.Unlock()
	if taken { // two sockets say that they are of one capture: a source is for one who reads
		return
	}
	s.update(func(i *Source) {
		if !s.ended {
			i.State, i.CanRestart = Live, hello.Restart
		}
	})
	defer func() {
		h.smu.Lock()
		s.conn = nil
		h.smu.Unlock()
		s.update(func(i *Source) {
			i.CanRestart = false
			if !s.ended {
				i.State = Growing
			}
		})
		s.nudge()
	}()
	if s.path == "" {
		s.stream(ctx, conn)
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
		s.nudge()
	}
}

// nudge has the one who follows the file look at it.
func (s *source) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// stream reads the capture that a tap sends.
func (s *source) stream(ctx context.Context, conn *live.Conn) {
	hello := conn.Hello()
	r := capture.NewReader(&counter{conn, s}, &capture.ReaderOptions{MaxLine: maxTapLine})
	defer r.Close()
	told := s.segment != nil // it was cut, and has come back
	if told {
		s.missed(ctx, hello.Next)
	}
	for e, err := range r.Events() {
		switch {
		case err != nil || ctx.Err() != nil:
			return
		case e.Kind == capture.KindGap && e.Gap.Why == capture.GapTruncated: // the connection has ended
			return
		case e.Head != nil && (s.segment != nil || e.Head.ID != hello.Capture):
			continue
		case e.Head == nil && s.segment == nil: // a tap sends the head first
			return
		case e.Head == nil && e.N != 0 && e.N <= s.last: // seen before the connection broke
			continue
		}
		if e.Head != nil {
			e = e.Clone()
			if s.take(ctx, e) != nil {
				return
			}
			s.recorded(ctx, hello)
		} else if e = e.Clone(); !s.hear(ctx, e) {
			return
		}
		if !told {
			told = true
			s.missed(ctx, hello.Next)
		}
	}
}

// hear takes an event that the tap has sent, and keeps it.
func (s *source) hear(ctx context.Context, e *capture.Event) bool {
	err := s.take(ctx, e)
	if err == nil {
		s.hub.ring.put(e)
	}
	return err == nil
}

// missed adds a gap for the events before next, if they were not seen.
func (s *source) missed(ctx context.Context, next uint64) {
	if next <= s.last+1 {
		return
	}
	lost := next - s.last - 1
	e := &capture.Event{Kind: capture.KindGap, N: s.last + 1, Gap: &capture.Gap{Lost: lost, Why: "not seen"}, At: time.Now()}
	if s.head != nil {
		e.T = max(0, time.Since(s.head.At))
	}
	e.Gap.Until = e.T
	if s.hear(ctx, e) {
		s.hub.mu.Lock()
		s.last = next - 1
		s.hub.mu.Unlock()
	}
}

// recorded takes what is in the compressed file of a tap already.
func (s *source) recorded(ctx context.Context, hello live.Hello) {
	if !filepath.IsAbs(hello.File) || hello.Next < 2 {
		return
	}
	f, _, err := openRegular(hello.File)
	if err != nil {
		return
	}
	defer f.Close()
	r := capture.NewReader(io.LimitReader(f, maxTapLine), nil)
	defer r.Close()
	for e, err := range r.Events() {
		if err != nil || ctx.Err() != nil || e.N >= hello.Next {
			return
		}
		if e.Head != nil && e.Head.ID != hello.Capture {
			return
		}
		if e.Head == nil && e.N > 0 && !s.hear(ctx, e.Clone()) {
			return
		}
	}
}
