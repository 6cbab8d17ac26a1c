package tap

import (
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
)

// A recorder passes events on to whom they concern. Its methods may be called by several goroutines at once.
type recorder struct {
	w       *capture.Writer      // may be nil
	observe func(*capture.Event) // may be nil
	log     func(string)
	session atomic.Uint64 // of what has no frame: starts, ends and notes

	mu    sync.Mutex // orders what observe sees as the capture has it
	start time.Time
	n     uint64
}

// enabled reports whether anybody wants to know of frames.
func (r *recorder) enabled() bool { return r.w != nil || r.observe != nil }

// record records an event. It does not keep it.
func (r *recorder) record(e *capture.Event) {
	if r.observe == nil {
		if r.w != nil {
			r.w.Record(e)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	seen := *e
	seen.N, seen.At = r.n, time.Now()
	seen.T = seen.At.Sub(r.start)
	if r.w != nil {
		if n := r.w.Record(e); n > 0 {
			seen.N = n
		}
	}
	r.observe(&seen)
}

// newSplitter returns one that records the frames. The memory of large ones goes to the writer, so that they are held once.
func (r *recorder) newSplitter(dir capture.Dir, max int) *splitter {
	s := newSplitter(dir, max, r.record)
	if r.observe == nil && r.w != nil {
		s.wantCopy = r.w.Wants
		s.sink = func(e *capture.Event) {
			if free := s.takeMemory(); free != nil {
				r.w.RecordOwned(e, free)
			} else {
				r.w.Record(e)
			}
		}
	}
	return s
}

// recordEvent records what has no frame.
func (r *recorder) recordEvent(e capture.Event) {
	e.Session = r.session.Load()
	r.record(&e)
}

// note records a remark, and tells the user.
func (r *recorder) note(text string) {
	r.recordEvent(capture.Event{Kind: capture.KindNote, Data: []byte(text)})
	r.log(text)
}

// recordEOF records the end of a direction.
func (r *recorder) recordEOF(dir capture.Dir) {
	r.recordEvent(capture.Event{Kind: capture.KindEOF, Dir: dir})
}

// stderrLines returns what records standard error, nil if nothing does.
func (r *recorder) stderrLines() *capture.Lines {
	if r.w == nil {
		return nil
	}
	return r.w.Lines(capture.Event{Kind: capture.KindStderr, Session: r.session.Load()})
}
