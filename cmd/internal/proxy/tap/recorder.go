package tap

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/splitter"
	"mcpwire/internal/base/hooks"
	"mcpwire/internal/trace/textlines"
)

// A recorder passes events to the capture and the observer. It is safe for concurrent use.
type recorder struct {
	// w is the capture. It may be nil.
	w *capture.Writer
	// hooks are those of w. It may be nil.
	hooks *hooks.Writer[capture.Event]
	// observe may be nil.
	observe func(*capture.Event)
	log     *slog.Logger
	// session is the session of events without a frame: starts, ends and notes.
	session atomic.Uint64
	// side is the side of these events. It is empty unless messages are intercepted.
	side capture.Side

	// mu keeps the order of observe equal to that of the capture.
	mu    sync.Mutex
	start time.Time
	n     uint64
}

// enabled reports whether anyone needs frames.
func (r *recorder) enabled() bool { return r.w != nil || r.observe != nil }

// setSide sets the side and the session of events without a frame. Call it before the others.
func (r *recorder) setSide(side capture.Side, session uint64) {
	r.side = side
	r.session.Store(session)
}

// record records an event and returns its number, or 0 without a capture. It does not keep e.
func (r *recorder) record(e *capture.Event) (n uint64) {
	if r.observe == nil {
		if r.w != nil {
			n = r.w.Record(e)
		}
		return n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	seen := *e
	seen.N, seen.At = r.n, time.Now()
	seen.T = seen.At.Sub(r.start)
	if r.w != nil {
		if n = r.w.Record(e); n > 0 {
			seen.N = n
		}
	}
	r.observe(&seen)
	return n
}

// newSplitter returns a splitter that records the frames. The writer takes over the memory of large
// frames, so that they are stored once.
func (r *recorder) newSplitter(dir capture.Dir, max int) *splitter.Splitter {
	s := splitter.New(dir, max, func(e *capture.Event) { r.record(e) })
	if r.observe == nil && r.w != nil && r.hooks != nil {
		s.WantCopy = r.hooks.Wants
		s.Sink = func(e *capture.Event) {
			if free := s.TakeMemory(); free != nil {
				r.hooks.RecordOwned(e, free)
			} else {
				r.w.Record(e)
			}
		}
	}
	return s
}

// recordEvent records an event without a frame.
func (r *recorder) recordEvent(e capture.Event) {
	e.Session, e.Side = r.session.Load(), r.side
	r.record(&e)
}

// note records and logs a remark.
func (r *recorder) note(text string) {
	r.recordEvent(capture.Event{Kind: capture.KindNote, Data: []byte(text)})
	r.log.Info(text)
}

// recordEOF records the end of a direction.
func (r *recorder) recordEOF(dir capture.Dir) {
	r.recordEvent(capture.Event{Kind: capture.KindEOF, Dir: dir})
	if r.side != "" { // the other side has ended too
		r.record(&capture.Event{Kind: capture.KindEOF, Dir: dir, Side: capture.Downstream, Session: hostSession})
	}
}

// stderrLines returns a recorder of standard error, or nil without a capture.
func (r *recorder) stderrLines() *textlines.Lines {
	if r.w == nil {
		return nil
	}
	return textlines.New(r.w.Record, capture.Event{Kind: capture.KindStderr, Session: r.session.Load(), Side: r.side})
}
