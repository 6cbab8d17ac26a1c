// Package hooks lets the programs of this repository, and no others, do three things with a
// capture.Writer: show the capture while it is written, record only events that are wanted, and
// give memory to the Writer instead of a copy.
//
// The field Hooks of capture.Options has the type [Writer]. Code outside this module cannot name
// it.
package hooks

import "os"

// A Writer has the hooks of a capture.Writer. The type parameter is capture.Event, whose package
// this one cannot import. The program that records sets the fields before it makes the
// capture.Writer, and calls the methods afterwards. Each capture.Writer needs its own hooks.
type Writer[Event any] struct {
	// Tee receives a copy of the output, see [Tee]. nil means none.
	Tee Tee
	// Want decides whether to record an event of traffic. size is that of its payload plus all
	// pending events in bytes. Want is called concurrently and must return at once. An unwanted
	// event gets a number and becomes part of a gap. Events that are not traffic, such as starts,
	// exits, ends of streams and notes, are always recorded. nil records everything.
	Want func(size int) bool
	// Opened is called with each file that the capture.Writer opens, before anything is written to
	// it, for example to lock it. The capture.Writer still owns and closes it. nil means no call.
	Opened func(*os.File)

	recorder Recorder[Event]
}

// A Tee receives the output of a capture.Writer: redacted lines before compression, even if writing
// fails. The writing goroutine calls its methods, one at a time, until Close of the capture.Writer
// has returned nil. They must return at once, since pending events fill a bounded queue meanwhile.
type Tee interface {
	// Write receives the next bytes, which may be part of a line. It must not keep p.
	Write(p []byte)
	// EndLine reports that the last line is complete or, after a write error, that no more of it
	// will come. The next line is about the event with the number next, or a greater number if that
	// event is lost.
	EndLine(next uint64)
}

// A Recorder is what a capture.Writer gives to its hooks. Its methods are those of [Writer].
type Recorder[Event any] interface {
	Wants(size int) bool
	RecordOwned(e *Event, free func()) (n uint64)
}

// Attach connects the hooks with their capture.Writer. Only package capture calls it.
func (w *Writer[Event]) Attach(r Recorder[Event]) { w.recorder = r }

// Wants reports whether an event of traffic with a payload of size bytes would be recorded now, see
// Want. It lets callers avoid a useless copy.
func (w *Writer[Event]) Wants(size int) bool { return w.recorder.Wants(size) }

// RecordOwned is like Record of the capture.Writer but does not copy Data. The capture.Writer reads
// Data until it is written or dropped, and then calls free once, on another goroutine or before
// RecordOwned returns.
func (w *Writer[Event]) RecordOwned(e *Event, free func()) (n uint64) {
	return w.recorder.RecordOwned(e, free)
}
