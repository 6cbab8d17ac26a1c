package capture

import (
	"bytes"
	"sync"
)

// maxLine is how long a line of text may be before it is recorded in pieces.
const maxLine = 64 << 10

// Lines records text as it comes, such as what a process writes to its standard error, line by line: a secret that two writes share is seen whole. It is an
// io.Writer that never fails, for any number of goroutines.
type Lines struct {
	w       *Writer
	mu      sync.Mutex
	ev      Event
	partial []byte // of a line that has no end yet
}

// Lines returns an io.Writer that records each line of what is written to it as an event like e, usually of [KindStderr]; Data is the line without its end. A line of more than 64 KiB is recorded in parts. Close records a last line that has no end.
func (w *Writer) Lines(e Event) *Lines { return &Lines{w: w, ev: e} }

// Write records the lines that p completes.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		k := bytes.IndexByte(p, '\n')
		if k >= 0 && k <= maxLine && len(l.partial) == 0 && l.ev.Part == 0 {
			l.record(p[:k])
			p = p[k+1:]
			continue
		}
		end := len(p)
		if k >= 0 {
			end = k
		}
		room := maxLine - len(l.partial)
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
	l.w.Record(&l.ev)
	l.ev.Data = nil
}

// recordLast records the end of a line that was kept.
func (l *Lines) recordLast() {
	if l.ev.Part > 0 {
		l.ev.Part++
	}
	l.record(l.partial)
	l.ev.Part, l.partial = 0, l.partial[:0]
}

// Close records what has no line end. It returns nil.
func (l *Lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 || l.ev.Part > 0 {
		l.recordLast()
	}
	return nil
}
