package watch

import (
	"context"
	"os"
	"time"

	"mcpwire/internal/captures"
)

const (
	filePoll  = 100 * time.Millisecond // between two looks at a file that grows
	lockPoll  = time.Second            // between two looks at whether somebody writes it, and at one that seems to be left alone
	grace     = time.Second            // that a file somebody had locked, or whose tap has gone, may stay as it is before it is broken off
	graceLong = 5 * time.Second        // that one nobody has locked may stay as it is before it seems to be left alone
	asleep    = 10 * time.Minute       // after which it is
	settled   = time.Second            // that a compressed file must have stayed as it is before it is read
)

// more waits at the end of the file until it has grown. It returns false if it does not do that any more.
func (s *source) more() bool {
	s.progressed(s.tail.off, -1)
	if s.tailSeen || !s.follow {
		return false
	}
	w := waiting{s: s, began: time.Now()}
	timer := time.NewTimer(filePoll)
	defer timer.Stop()
	for {
		info, err := s.f.Stat()
		if err != nil || info.Size() < s.tail.off { // it was cut
			return false
		}
		if info.Size() > s.tail.off {
			w.wakeUp()
			s.progressed(s.tail.off, info.Size())
			return true
		}
		if !w.hopes(info.ModTime()) {
			return false
		}
		timer.Reset(w.poll())
		select {
		case <-s.done():
			return false
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// waiting is at the end of a file that may grow.
type waiting struct {
	s      *source
	began  time.Time
	looked time.Time // at the lock
	dozes  bool      // nobody seems to write it
}

func (w *waiting) poll() time.Duration {
	if w.dozes {
		return lockPoll
	}
	return filePoll
}

// hopes reports whether the file may still grow. Locks tell that somebody writes it, but not everybody who records takes one: a file that nobody has ever locked is watched for longer, while it counts as
// broken off.
func (w *waiting) hopes(modified time.Time) bool {
	now := time.Now()
	if now.Sub(w.looked) < lockPoll {
		return true
	}
	w.looked = now
	if w.s.written() {
		return true
	}
	if modified.After(w.began) { // by another clock
		modified = w.began
	}
	quiet := now.Sub(modified)
	if w.s.hadWriter() {
		return quiet <= grace
	}
	if quiet > graceLong && quiet <= asleep && !w.dozes {
		w.dozes = true
		w.s.doze()
	}
	return quiet <= asleep
}

func (w *waiting) wakeUp() {
	if w.dozes {
		w.s.update(func(i *Source) { i.State = Growing })
	}
}

// doze says that nobody seems to write the file: what waits in it is unanswered.
func (s *source) doze() {
	h := s.hub
	if s.segment != nil {
		h.mu.Lock()
		h.apply(h.model.FinishCapture(s.segment.id))
		h.mu.Unlock()
	}
	s.update(func(i *Source) { i.State = BrokenOff })
}

func (s *source) done() <-chan struct{} {
	if s.tail.ctx == nil {
		return nil
	}
	return s.tail.ctx.Done()
}

// written reports whether somebody writes the file.
func (s *source) written() bool {
	s.hub.smu.Lock()
	live := s.conn != nil
	s.hub.smu.Unlock()
	if live {
		return true
	}
	info, err := captures.Stat(s.path)
	if err == nil && info.State == captures.Writing {
		s.hub.smu.Lock()
		s.wasLive = true
		s.hub.smu.Unlock()
		return true
	}
	return false
}

// hadWriter reports whether somebody was seen to write the file.
func (s *source) hadWriter() bool {
	s.hub.smu.Lock()
	defer s.hub.smu.Unlock()
	return s.wasLive
}

// settle waits until a compressed file is complete, as far as that can be seen: it cannot be followed.
func (s *source) settle(ctx context.Context) error {
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
		if info.State != captures.Writing && time.Since(info.Changed) > settled {
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
