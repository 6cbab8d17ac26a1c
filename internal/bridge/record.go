package bridge

import (
	"io"
	"sync"
	"sync/atomic"

	"mcpwire/capture"
)

// The directions of a capture.
const (
	toServer = capture.ToServer
	toClient = capture.ToClient
)

// A recording is the capture that lanes write to, and what they count. Its methods may be called by many goroutines at once.
type recording struct {
	out                 *capture.Writer
	sessions, exchanges atomic.Uint64

	mu          sync.Mutex
	sessionByID map[string]uint64             // sessions of HTTP, by the protocol's id
	sessionIDs  []string                      // the keys of sessionByID, the oldest first
	pendingEnds map[*upstreamRequest]struct{} // whose end has not been recorded yet
	streams     map[uint64]*exchange          // what brings a session what belongs to none of its requests
}

// newRecording returns nil if there is nothing to record to.
func newRecording(out *capture.Writer) *recording {
	if out == nil {
		return nil
	}
	return &recording{out: out, sessionByID: map[string]uint64{}, streams: map[uint64]*exchange{}, pendingEnds: map[*upstreamRequest]struct{}{}}
}

// newRecorder returns a lane of its own for a connection on a side.
func (r *recording) newRecorder(side capture.Side) recorder {
	if r == nil {
		return recorder{}
	}
	return recorder{recording: r, side: side, session: r.sessions.Add(1)}
}

// A lane records one connection of a capture: a client's, or one to the server. The zero lane records nothing.
type recorder struct {
	recording *recording
	side      capture.Side
	session   uint64
	exchange  uint64    // of HTTP, if it is of one
	served    *exchange // that exchange, if it is one of a client's
}

// provenance is what a message was made of.
type provenance struct {
	rec        recorder
	event      uint64   // an event; 0 is none
	moreEvents []uint64 // further ones
	rule       string   // what was done to it
}

// recordEvent records something that happened, and returns its number; 0 if nothing is recorded.
func (r recorder) recordEvent(e *capture.Event) uint64 {
	if r.recording == nil {
		return 0
	}
	e.Side, e.Session, e.Exchange = r.side, r.session, r.exchange
	return r.recording.out.Record(e)
}

// recordMessage records a message that came, and returns the number of its event.
func (r recorder) recordMessage(dir capture.Dir, frame []byte) uint64 {
	if r.recording == nil {
		return 0
	}
	n := r.recordEvent(&capture.Event{Kind: capture.KindMessage, Dir: dir, Data: frame})
	if r.served != nil && dir == toServer {
		r.served.requestReceived()
	}
	return n
}

// recordSent records a message that is about to be sent, and what it was made of.
func (r recorder) recordSent(dir capture.Dir, frame []byte, from provenance) {
	if r.recording == nil {
		return
	}
	if r.served != nil && r.served.queue(r, frame, from) {
		return // until the head of the response is there
	}
	n := r.recordMessage(dir, frame)
	from.rec.link(from.event, n, from.rule)
	for _, event := range from.moreEvents {
		from.rec.link(event, n, from.rule)
	}
}

// link notes that an event has become another one.
func (r recorder) link(from, to uint64, rule string) {
	if r.recording != nil && from != 0 && to != 0 {
		r.recording.out.Record(&capture.Event{Kind: capture.KindTranslate, Session: r.session, Translation: &capture.Translation{Of: from, To: []uint64{to}, Rule: rule}})
	}
}

// note records a remark.
func (r recorder) note(text string) {
	r.recordEvent(&capture.Event{Kind: capture.KindNote, Data: []byte(text)})
}

// recordEOF records that one of the two sides sends nothing more.
func (r recorder) recordEOF(dir capture.Dir) {
	r.recordEvent(&capture.Event{Kind: capture.KindEOF, Dir: dir})
}

// stderr returns what records the standard error of a server's process. It must be closed.
func (r recorder) stderr() io.WriteCloser {
	if r.recording == nil {
		return discard{}
	}
	return r.recording.out.Lines(capture.Event{Kind: capture.KindStderr, Side: r.side, Session: r.session})
}

// discard is an io.WriteCloser that throws everything away.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }
