package bridge

import (
	"io"

	"mcpwire/capture"
)

// The directions of a capture.
const (
	toServer = capture.ToServer
	toClient = capture.ToClient
)

// A lane records one connection of a capture: a client's, or one to the server. The zero lane records nothing.
type lane struct {
	rec     *capture.Writer
	session uint64
}

// record records a message and returns the number of its event; 0 if nothing is recorded.
func (l lane) record(dir capture.Dir, frame []byte) uint64 {
	if l.rec == nil {
		return 0
	}
	return l.rec.Record(&capture.Event{Kind: capture.KindMessage, Dir: dir, Session: l.session, Data: frame})
}

// link notes that one event has become others.
func (l lane) link(of uint64, to []uint64, rule string) {
	if l.rec == nil || of == 0 || len(to) == 0 {
		return
	}
	l.rec.Record(&capture.Event{Kind: capture.KindXlate, Session: l.session, Xlate: &capture.Xlate{Of: of, To: to, Rule: rule}})
}

// note records a remark.
func (l lane) note(text string) {
	if l.rec != nil {
		l.rec.Record(&capture.Event{Kind: capture.KindNote, Session: l.session, Data: []byte(text)})
	}
}

// ended records that one of the two sides sends nothing more.
func (l lane) ended(dir capture.Dir) {
	if l.rec != nil {
		l.rec.Record(&capture.Event{Kind: capture.KindEOF, Dir: dir, Session: l.session})
	}
}

// stderr returns what records the standard error of a server's process. It must be closed.
func (l lane) stderr() io.WriteCloser {
	if l.rec == nil {
		return discard{}
	}
	return l.rec.Lines(capture.Event{Kind: capture.KindStderr, Session: l.session})
}

// discard is an io.WriteCloser that throws everything away.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }
