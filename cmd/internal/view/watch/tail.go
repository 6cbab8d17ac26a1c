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
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/base/wait"
)

const (
	filePoll     = 100 * time.Millisecond // between two checks of a growing file
	lockPoll     = time.Second            // between two checks of its lock
	lockGrace    = time.Second            // quiet time until a formerly locked file is Truncated
	dormantAfter = 5 * time.Second        // quiet time until a file never locked is dormant
	abandonAfter = 10 * time.Minute       // quiet time until such a file is abandoned
	stableFor    = time.Second            // quiet time before a compressed file is read
)

// waitMore waits at the end of the file until it grows. It returns false if it will not.
func (s *source) waitMore() bool {
	s.setProgress(s.tail.off, -1)
	if s.tailSeen || !s.follow {
		return false
	}
	w := tailWait{source: s, began: time.Now()}
	for {
		info, err := s.f.Stat()
		if err != nil || info.Size() < s.tail.off { // it was truncated
			return false
		}
		if info.Size() > s.tail.off {
			if w.dormant {
				s.update(func(i *Source) { i.State = Growing })
			}
			s.setProgress(s.tail.off, info.Size())
			return true
		}
		if !w.mayGrow(info.ModTime()) {
			return false
		}
		select {
		case <-s.tail.ctx.Done():
			return false
		case <-s.wake:
		case <-time.After(w.pollInterval()):
		}
	}
}

// A tailWait waits at the end of a file that may grow.
type tailWait struct {
	source *source
	began  time.Time
	// checkedLock is when the lock was last checked.
	checkedLock time.Time
	// dormant means that the file seems to have no writer.
	dormant bool
}

func (tw *tailWait) pollInterval() time.Duration {
	if tw.dormant {
		return lockPoll
	}
	return filePoll
}

// mayGrow reports whether the file may still grow. A locked file has a writer, but not every
// recorder takes a lock. Therefore a file that was never locked is followed for longer, while its
// state is already Truncated.
func (tw *tailWait) mayGrow(modified time.Time) bool {
	now := time.Now()
	if now.Sub(tw.checkedLock) < lockPoll {
		return true
	}
	tw.checkedLock = now
	if tw.source.hasWriter() {
		return true
	}
	if modified.After(tw.began) { // different clocks
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

// markDormant marks a file that seems to have no writer: its pending requests become unanswered.
func (s *source) markDormant() {
	h := s.hub
	if s.segment != nil {
		h.mu.Lock()
		h.applyLocked(h.model.FinishCapture(s.segment.id))
		h.mu.Unlock()
	}
	s.update(func(i *Source) { i.State = Truncated })
}

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

// hadWriter reports whether the file was seen with a writer.
func (s *source) hadWriter() bool {
	s.hub.sourcesMu.Lock()
	defer s.hub.sourcesMu.Unlock()
	return s.everWritten
}

// waitStable waits until a compressed file seems complete, because it cannot be followed.
func (s *source) waitStable(ctx context.Context) error {
	if !s.compressed {
		return nil
	}
	for {
		info, err := captures.Stat(s.path)
		if err != nil {
			return err
		}
		if info.State != captures.Writing && time.Since(info.Modified) > stableFor || !wait.Sleep(ctx, filePoll) {
			return nil
		}
	}
}

// lastLineEnd returns the offset behind the last complete line of a file.
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

// A tailer reads a file line by line. A Read returns at most one line, so that the capture.Reader
// never reads beyond the line of the event that it yields, and the offset of each event is known.
type tailer struct {
	ctx  context.Context
	f    *os.File
	buf  []byte
	r, w int
	// off is the offset behind the bytes returned so far.
	off int64
	// line is the offset of the line that was returned last.
	line int64
	// midLine means that this line continues.
	midLine  bool
	waitMore func() bool
}

const tailBuffer = 128 << 10

// Read implements io.Reader. At the end of the file it calls waitMore, which may block.
func (t *tailer) Read(p []byte) (int, error) {
	for t.r == t.w {
		if t.ctx.Err() != nil {
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

// A countingReader calls add with the number of bytes of each read.
type countingReader struct {
	r   io.Reader
	add func(n int64)
}

func (cr *countingReader) Read(p []byte) (int, error) {
	n, err := cr.r.Read(p)
	cr.add(int64(n))
	return n, err
}

// maxMergeFiles limits the files that are open at a time during the merge. It exceeds the number
// of captures that usually overlap.
const maxMergeFiles = 256

// A mergeInput is a capture that is being merged.
type mergeInput struct {
	source *source
	event  *capture.Event
}

// load merges the existing captures into one timeline, by time. It reads followed sources up to
// their size when they were opened; they continue later.
func (h *Hub) load(ctx context.Context, list []*source) {
	slices.SortStableFunc(list, func(a, b *source) int { return a.captureStart.Compare(b.captureStart) })
	var open []*mergeInput
	for (len(list) > 0 || len(open) > 0) && ctx.Err() == nil {
		first := earliest(open)
		// Open only captures that overlap in time.
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

// earliest returns the input with the earliest event.
func earliest(list []*mergeInput) *mergeInput {
	if len(list) == 0 {
		return nil
	}
	return slices.MinFunc(list, func(a, b *mergeInput) int {
		return cmp.Compare(a.event.At.UnixNano(), b.event.At.UnixNano())
	})
}

// open opens the file, and reports whether it has an event.
func (mi *mergeInput) open(ctx context.Context) bool {
	s := mi.source
	if s.compressed && s.follow {
		return false // run waits until it is complete
	}
	s.claim()
	if err := s.open(ctx); err != nil {
		s.finish(err)
		return false
	}
	s.limit = -1
	if s.tail != nil && s.follow {
		s.limit = lastLineEnd(s.f, s.info.Size)
	}
	return mi.advance(ctx)
}

// advance reads the next event. It returns false at the end, or at the size that the file had when
// it was opened.
func (mi *mergeInput) advance(ctx context.Context) bool {
	s := mi.source
	if s.follow && s.limit >= 0 && s.tail.off >= s.limit {
		s.hub.sourcesMu.Lock()
		s.claimed = false // for the next claimUnstarted
		s.hub.sourcesMu.Unlock()
		return false
	}
	e, err := s.nextEvent()
	if e == nil {
		s.finish(err)
		return false
	}
	if mi.event = e; ctx.Err() != nil {
		s.close()
		return false
	}
	return true
}
