package watch

import (
	"context"
	"os"
	"time"

	"mcpwire/internal/captures"
)

const (
	filePoll     = 100 * time.Millisecond // between two looks at a file that grows
	lockPoll     = time.Second            // between two looks at whether somebody writes it, and at one that seems to be left alone
	lockGrace    = time.Second            // that a file somebody had locked, or whose tap has gone, may stay as it is before it is broken off
	dormantAfter = 5 * time.Second        // that one nobody has locked may stay as it is before it seems to be left alone
	abandonAfter = 10 * time.Minute       // after which it is
	stableFor    = time.Second            // that a compressed file must have stayed as it is before it is read
)

// waitMore waits at the end of the file until it has grown. It returns false if it does not do that any more.
func (s *source) waitMore() bool {
	s.setProgress(s.tail.off, -1)
	if s.tailSeen || !s.follow {
		return false
	}
	w := tailWait{source: s, began: time.Now()}
	timer := time.NewTimer(filePoll)
	defer timer.Stop()
	for {
		info, err := s.f.Stat()
		if err != nil || info.Size() < s.tail.off { // it was cut
			return false
		}
		if info.Size() > s.tail.off {
			w.wakeUp()
			s.setProgress(s.tail.off, info.Size())
			return true
		}
		if !w.mayGrow(info.ModTime()) {
			return false
		}
		timer.Reset(w.pollInterval())
		select {
		case <-s.done():
			return false
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// tailWait is at the end of a file that may grow.
type tailWait struct {
	source      *source
	began       time.Time
	checkedLock time.Time // at the lock
	dormant     bool      // nobody seems to write it
}

func (tw *tailWait) pollInterval() time.Duration {
	if tw.dormant {
		return lockPoll
	}
	return filePoll
}

// mayGrow reports whether the file may still grow. Locks tell that somebody writes it, but not everybody who records takes one: a file that nobody has ever locked is watched for longer, while it counts as
// broken off.
func (tw *tailWait) mayGrow(modified time.Time) bool {
	now := time.Now()
	if now.Sub(tw.checkedLock) < lockPoll {
		return true
	}
	tw.checkedLock = now
	if tw.source.hasWriter() {
		return true
	}
	if modified.After(tw.began) { // by another clock
		modified = tw.began
	}
	quiet := now.Sub(modified)
	if tw.source.hadWriter() {
		return quiet <= lockGrace
	}
	if quiet > dormantAfter && quiet <= abandonAfter && !tw.dormant {
		tw.dormant = true
		tw.source.markDormant()
	}
	return quiet <= abandonAfter
}

func (tw *tailWait) wakeUp() {
	if tw.dormant {
		tw.source.update(func(i *Source) { i.State = Growing })
	}
}

// markDormant says that nobody seems to write the file: what waits in it is unanswered.
func (s *source) markDormant() {
	h := s.hub
	if s.segment != nil {
		h.mu.Lock()
		h.applyLocked(h.model.FinishCapture(s.segment.id))
		h.mu.Unlock()
	}
	s.update(func(i *Source) { i.State = Truncated })
}

func (s *source) done() <-chan struct{} {
	if s.tail.ctx == nil {
		return nil
	}
	return s.tail.ctx.Done()
}

// hasWriter reports whether somebody writes the file.
func (s *source) hasWriter() bool {
	s.hub.sourcesMu.Lock()
	live := s.conn != nil
	s.hub.sourcesMu.Unlock()
	if live {
		return true
	}
	info, err := captures.Stat(s.path)
	if err == nil && info.State == captures.Writing {
		s.hub.sourcesMu.Lock()
		s.everWritten = true
		s.hub.sourcesMu.Unlock()
		return true
	}
	return false
}

// hadWriter reports whether somebody was seen to write the file.
func (s *source) hadWriter() bool {
	s.hub.sourcesMu.Lock()
	defer s.hub.sourcesMu.Unlock()
	return s.everWritten
}

// waitStable waits until a compressed file is complete, as far as that can be seen: it cannot be followed.
func (s *source) waitStable(ctx context.Context) error {
	if !s.compressed {
		return nil
	}
	timer := time.NewTicker(filePoll)
	defer timer.Stop()
	for {
		info, err := captures.Stat(s.path)
		if err != nil {
			return err
		}
		if info.State != captures.Writing && time.Since(info.Modified) > stableFor {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

// lastLineEnd returns the place behind the last line of a file that has an end.
func lastLineEnd(f *os.File, size int64) int64 {
	buf := make([]byte, 64<<10)
	for end := size; end > 0; {
		from := max(0, end-int64(len(buf)))
		n, err := f.ReadAt(buf[:end-from], from)
		if err != nil && n == 0 {
			return 0
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] == '\n' {
				return from + int64(i) + 1
			}
		}
		end = from
	}
	return 0
}
