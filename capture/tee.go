package capture

import "io"

// A Tee is shown what a [Writer] writes: the lines of the capture, redacted, before they are compressed, and whether or not there was room for them below. Its methods are called by the
// goroutine that writes, one at a time, until Close has returned nil. They must return at once, since what is recorded waits in a bounded queue meanwhile.
type Tee interface {
	// Write is shown bytes that follow the ones before. They may be part of a line. They must not be kept.
	Write(p []byte)
	// EndLine says that the last line has come as a whole, or, if writing failed, that no more of it comes. next is the number of the event that the next line is about; a greater one if that one gets lost.
	EndLine(next uint64)
}

// teeWriter writes to w, and shows it to a Tee.
type teeWriter struct {
	w   io.Writer
	tee Tee
}

func (t teeWriter) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.tee.Write(p)
	return n, err
}

// withTee returns the writer for the encoder.
func (o *Options) withTee(w io.Writer) io.Writer {
	if o.Tee == nil {
		return w
	}
	return teeWriter{w, o.Tee}
}

// endLine tells the Tee, if there is one, that what was written ends where a line does.
func (l *writeLoop) endLine(tee Tee) {
	if tee != nil {
		tee.EndLine(l.next)
	}
}
