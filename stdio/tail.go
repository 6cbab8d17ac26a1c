package stdio

import (
	"bytes"
	"io"
	"sync"
)

const (
	tailSize    = 64 << 10
	tailMaxLine = 16 << 10
	tailCutMark = "… (cut)\n"
)

// A tail keeps the last lines of a text that may be endless, in bounded memory, and passes the lines on.
type tail struct {
	mu         sync.Mutex
	buf        []byte // the end of buf is what counts; it is moved to the front when there is twice as much
	line       []byte // the line that has not ended yet
	truncating bool   // the rest of line is being dropped
	forward    io.Writer
}

// Write takes part of the text.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte{'\n'})
		rest = after
		if room := tailMaxLine - len(t.line); len(part) > room {
			part = part[:max(room, 0)]
			t.truncating = true
		}
		t.line = append(t.line, part...)
		if ended {
			t.endLine()
		}
	}
	return len(p), nil
}

// flush takes what has come of a last line as a line.
func (t *tail) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) > 0 {
		t.endLine()
	}
}

func (t *tail) endLine() {
	if t.truncating {
		t.line = append(t.line, tailCutMark...)
	} else {
		t.line = append(t.line, '\n')
	}
	if len(t.buf)+len(t.line) > 2*tailSize {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailSize:]...)
	}
	t.buf = append(t.buf, t.line...)
	if t.forward != nil {
		t.forward.Write(t.line)
	}
	t.line, t.truncating = t.line[:0], false
}

// String returns the last lines, at most tailSize bytes, and the beginning of the line that has not ended.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := append(append([]byte(nil), t.buf...), t.line...)
	if len(b) > tailSize {
		b = b[len(b)-tailSize:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return string(b)
}
