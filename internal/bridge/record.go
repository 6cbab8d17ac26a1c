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

	mu       sync.Mutex
	byID     map[string]uint64    // sessions of HTTP, by the protocol's id
	ids      []string             // the keys of byID, the oldest first
	held     map[*trip]struct{}   // whose end has not been recorded yet
	standing map[uint64]*exchange // what brings a session what belongs to none of its requests
}

// newRecording returns nil if there is nothing to record to.
func newRecording(out *capture.Writer) *recording {
	if out == nil {
		return nil
	}
	return &recording{out: out, byID: map[string]uint64{}, standing: map[uint64]*exchange{}, held: map[*trip]struct{}{}}
}

// lane returns a lane of its own for a connection on a side.
func (r *recording) lane(side capture.Side) lane {
	if r == nil {
		return lane{}
	}
	return lane{rec: r, side: side, session: r.sessions.Add(1)}
}

// A lane records one connection of a capture: a client's, or one to the server. The zero lane records nothing.
type lane struct {
	rec      *recording
	side     capture.Side
	session  uint64
	exchange uint64    // of HTTP, if it is of one
	web      *exchange // that exchange, if it is one of a client's
}

// made is what a message was made of.
type made struct {
	lane lane
	of   uint64   // an event; 0 is none
	more []uint64 // further ones
	rule string   // what was done to it
}

// event records something that happened, and returns its number; 0 if nothing is recorded.
func (l lane) event(e *capture.Event) uint64 {
	if l.rec == nil {
		return 0
	}
	e.Side, e.Session, e.Exchange = l.side, l.session, l.exchange
	return l.rec.out.Record(e)
}

// record records a message that came, and returns the number of its event.
func (l lane) record(dir capture.Dir, frame []byte) uint64 {
	if l.rec == nil {
		return 0
	}
	n := l.event(&capture.Event{Kind: capture.KindMessage, Dir: dir, Data: frame})
	if l.web != nil && dir == toServer {
		l.web.received()
	}
	return n
}

// emit records a message that is about to be sent, and what it was made of.
func (l lane) emit(dir capture.Dir, frame []byte, from made) {
	if l.rec == nil {
		return
	}
	if l.web != nil && l.web.keep(l, frame, from) {
		return // until the head of the response is there
	}
	n := l.record(dir, frame)
	from.lane.link(from.of, n, from.rule)
	for _, of := range from.more {
		from.lane.link(of, n, from.rule)
	}
}

// link notes that an event has become another one.
func (l lane) link(of, to uint64, rule string) {
	if l.rec != nil && of != 0 && to != 0 {
		l.rec.out.Record(&capture.Event{Kind: capture.KindXlate, Session: l.session, Xlate: &capture.Xlate{Of: of, To: []uint64{to}, Rule: rule}})
	}
}

// note records a remark.
func (l lane) note(text string) { l.event(&capture.Event{Kind: capture.KindNote, Data: []byte(text)}) }

// ended records that one of the two sides sends nothing more.
func (l lane) ended(dir capture.Dir) { l.event(&capture.Event{Kind: capture.KindEOF, Dir: dir}) }

// stderr returns what records the standard error of a server's process. It must be closed.
func (l lane) stderr() io.WriteCloser {
	if l.rec == nil {
		return discard{}
	}
	return l.rec.out.Lines(capture.Event{Kind: capture.KindStderr, Side: l.side, Session: l.session})
}

// discard is an io.WriteCloser that throws everything away.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }
