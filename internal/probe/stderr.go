package probe

import (
	"bytes"
	"sync"

	"mcpwire/capture"
)

// A lineRecorder records what the server writes to its standard error.
type lineRecorder struct {
	p    *pipe
	mu   sync.Mutex
	rest []byte
	tail []byte // the end of all
}

const (
	maxErrLine = 64 << 10 // bytes
	maxTail    = 8 << 10
)

// Write implements io.Writer. It never fails.
func (l *lineRecorder) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	l.tail = append(l.tail, b[max(0, len(b)-maxTail):]...)
	l.tail = l.tail[max(0, len(l.tail)-maxTail):]
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < maxErrLine {
			return len(b), nil
		}
		if i < 0 {
			i = len(l.rest) - 1
		}
		l.p.record(&capture.Event{Kind: capture.KindStderr, Data: bytes.TrimSuffix(l.rest[:i], []byte("\r"))})
		l.rest = l.rest[i+1:]
	}
}

// flush records a last line without an end.
func (l *lineRecorder) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.p.record(&capture.Event{Kind: capture.KindStderr, Data: l.rest})
		l.rest = nil
	}
}

// text is the end of what the server wrote.
func (l *lineRecorder) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.tail)
}
