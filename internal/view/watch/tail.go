package watch

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/trace/captures"
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

// A tailer reads a file line by line: a Read returns no more than one line, so that the capture.Reader above it has never read beyond the line whose event it
// yields, and the place of each event is known.
type tailer struct {
	ctx      context.Context // nil: none yet
	f        *os.File
	buf      []byte
	r, w     int
	off      int64 // behind what was handed out
	line     int64 // where the line began of which the last was handed out
	midLine  bool  // that line goes on
	waitMore func() bool
}

const tailBuffer = 128 << 10

func newTailer(f *os.File, more func() bool) *tailer {
	return &tailer{f: f, buf: make([]byte, tailBuffer), waitMore: more}
}

// Read implements io.Reader. At the end of the file it asks more, which may wait.
func (t *tailer) Read(p []byte) (int, error) {
	for t.r == t.w {
		if t.ctx != nil && t.ctx.Err() != nil {
			return 0, io.EOF
		}
		n, err := t.f.Read(t.buf)
		if n > 0 {
			t.r, t.w = 0, n
			break
		}
		if err != nil && err != io.EOF {
			return 0, err
		}
		if !t.waitMore() {
			return 0, io.EOF
		}
	}
	part := t.buf[t.r:t.w]
	end := bytes.IndexByte(part, '\n')
	if end >= 0 {
		part = part[:end+1]
	}
	n := copy(p, part)
	if !t.midLine {
		t.line = t.off
	}
	t.midLine = end < 0 || n < len(part)
	t.r += n
	t.off += int64(n)
	return n, nil
}

// A counter counts what is read of a compressed file.
type countingReader struct {
	r      io.Reader
	source *source
}

func (cr *countingReader) Read(p []byte) (int, error) {
	n, err := cr.r.Read(p)
	cr.source.addProgress(int64(n))
	return n, err
}

// maxMergeFiles bounds how many files are open at once while captures are merged: more than go on at the same time.
const maxMergeFiles = 256

// A player is a capture that is being merged.
type mergeInput struct {
	source *source
	event  *capture.Event
}

// load reads what there is at the beginning in one timeline, by time. Sources that are followed are read to where they ended when they were opened, and go on from there later.
func (h *Hub) load(ctx context.Context, list []*source) {
	slices.SortStableFunc(list, func(a, b *source) int { return a.captureStart.Compare(b.captureStart) })
	var open []*mergeInput
	for (len(list) > 0 || len(open) > 0) && ctx.Err() == nil {
		first := earliest(open)
		// Captures that did not go on at the same time are not open at the same time.
		for len(list) > 0 && len(open) < maxMergeFiles && (first == nil || !list[0].captureStart.After(first.event.At)) {
			p := &mergeInput{source: list[0]}
			list = list[1:]
			if p.open(ctx) {
				open = append(open, p)
				first = earliest(open)
			}
		}
		if first == nil {
			continue
		}
		if err := first.source.ingest(ctx, first.event); err != nil {
			first.source.finish(err)
			open = removeInput(open, first)
		} else if !first.advance(ctx) {
			open = removeInput(open, first)
		}
	}
	for _, p := range open {
		p.source.close()
	}
	for _, s := range list { // ctx has ended
		s.claim()
	}
}

func removeInput(list []*mergeInput, p *mergeInput) []*mergeInput {
	return slices.DeleteFunc(list, func(x *mergeInput) bool { return x == p })
}

// earliest returns the player whose event comes next.
func earliest(list []*mergeInput) *mergeInput {
	if len(list) == 0 {
		return nil
	}
	return slices.MinFunc(list, func(a, b *mergeInput) int {
		return cmp.Compare(a.event.At.UnixNano(), b.event.At.UnixNano())
	})
}

// open opens the file, and reports whether there is an event.
func (mi *mergeInput) open(ctx context.Context) bool {
	s := mi.source
	if s.compressed && s.follow {
		return false // run waits until it is complete
	}
	s.claim()
	if err := s.open(); err != nil {
		s.finish(err)
		return false
	}
	s.limit = -1
	if s.tail != nil {
		s.tail.ctx = ctx
		if s.follow {
			s.limit = lastLineEnd(s.f, s.info.Size)
		}
	}
	return mi.advance(ctx)
}

// advance reads the next event. It returns false if there is none, or none that was there at the beginning.
func (mi *mergeInput) advance(ctx context.Context) bool {
	s := mi.source
	if s.follow && s.limit >= 0 && s.tail.off >= s.limit {
		s.unclaim()
		return false
	}
	e, err, ok := s.next()
	if !ok || err != nil {
		s.finish(err)
		return false
	}
	if !s.validated && e.Kind == capture.KindGap && e.Gap.Why == capture.GapMalformed {
		s.finish(capture.ErrNotCapture)
		return false
	}
	s.validated = true
	mi.event = e
	return ctx.Err() == nil || s.closeInterrupted()
}

// unclaim leaves the source to whoever starts what is not started.
func (s *source) unclaim() {
	s.hub.sourcesMu.Lock()
	defer s.hub.sourcesMu.Unlock()
	s.claimed = false
}

// closeInterrupted closes a source whose reading was interrupted.
func (s *source) closeInterrupted() bool {
	s.close()
	return false
}
