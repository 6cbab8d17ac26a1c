// Package textlines records the standard error of servers, as captures store it: line by line.
package textlines

import (
	"bytes"
	"sync"

	"mcpwire/capture"
)

// maxTextLine is the length in bytes above which a line of text is recorded in parts.
const maxTextLine = 64 << 10

// A Lines records a stream of text, such as the standard error of a process, line by line, so that
// redaction sees a secret that spans two writes. It is an io.Writer that never fails, and is safe
// for concurrent use.
type Lines struct {
	recordEvent func(*capture.Event) uint64
	mu          sync.Mutex
	ev          capture.Event
	// partial is the beginning of an incomplete line.
	partial []byte
}

// New returns an io.Writer that records each line as an event like e, usually of
// [capture.KindStderr]. Data is the line without its end. A line of more than 64 KiB is recorded in
// parts. Close records an incomplete last line. record is the method of a [capture.Writer], or a
// function that keeps neither the event nor its data.
func New(record func(*capture.Event) uint64, e capture.Event) *Lines {
	return &Lines{recordEvent: record, ev: e}
}

// Write records the lines that p completes.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		k := bytes.IndexByte(p, '\n')
		if k >= 0 && k <= maxTextLine && len(l.partial) == 0 && l.ev.Part == 0 {
			l.record(p[:k])
			p = p[k+1:]
			continue
		}
		end := len(p)
		if k >= 0 {
			end = k
		}
		room := maxTextLine - len(l.partial)
		if end > room {
			l.partial = append(l.partial, p[:room]...)
			l.ev.Part++
			l.record(l.partial)
			l.partial, p = l.partial[:0], p[room:]
			continue
		}
		l.partial = append(l.partial, p[:end]...)
		if k >= 0 {
			l.recordLast()
			end++
		}
		p = p[end:]
	}
	return n, nil
}

func (l *Lines) record(line []byte) {
	l.ev.Data = line
	if line == nil {
		l.ev.Data = []byte{}
	}
	l.recordEvent(&l.ev)
	l.ev.Data = nil
}

// recordLast records the rest of a line from partial.
func (l *Lines) recordLast() {
	if l.ev.Part > 0 {
		l.ev.Part++
	}
	l.record(l.partial)
	l.ev.Part, l.partial = 0, l.partial[:0]
}

// Close records an incomplete last line. It returns nil.
func (l *Lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 || l.ev.Part > 0 {
		l.recordLast()
	}
	return nil
}

// A Tee receives the output of a [Writer]: redacted lines before compression, even if writing
// fails. The writing goroutine calls its methods, one at a time, until Close has returned nil. They
// must return at once, since pending events fill a bounded queue meanwhile.
type Tee interface {
	// Write receives the next bytes, which may be part of a line. It must not keep p.
	Write(p []byte)
	// EndLine reports that the last line is complete or, after a write error, that no more of it
	// will come. The next line is about the event with the number next, or a greater number if that
	// event is lost.
	EndLine(next uint64)
}
