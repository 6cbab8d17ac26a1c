package probe

import (
	"bytes"
	"io"
	"sync"

	"mcpwire/capture"
)

// A lineRecorder records what the server writes to its standard error.
type lineRecorder struct {
	p    *pipe
	mu   sync.Mutex
	rest []byte
	head []byte // the beginning of all
	tail []byte // the end of all, behind head
	cut  bool   // something between the two is gone
}

const (
	maxErrLine = 64 << 10 // bytes
	maxHead    = 8 << 10
	maxTail    = 8 << 10
)

// Write implements io.Writer. It never fails.
func (l *lineRecorder) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	if l.p.job != nil {
		l.p.job.stderr.write(b)
	}
	rest := b[min(len(b), maxHead-len(l.head)):]
	l.head = append(l.head, b[:len(b)-len(rest)]...)
	l.cut = l.cut || len(l.tail)+len(rest) > maxTail
	l.tail = append(l.tail, rest[max(0, len(rest)-maxTail):]...)
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

// text is the beginning and the end of what the server wrote.
func (l *lineRecorder) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return string(l.head) + "\n…\n" + string(l.tail)
	}
	return string(l.head) + string(l.tail)
}

// A relay passes on what the servers of a job write to their standard error. What comes before it
// is the turn of the job is held, so that what people are shown is in the order of the jobs. It may
// be used by many goroutines at once, and does nothing if it is nil.
type relay struct {
	w io.Writer // its errors do not count

	mu      sync.Mutex
	passing bool
	held    []byte
	cut     bool // more came than is held
}

const maxRelay = 256 << 10 // bytes that are held

func (r *relay) write(b []byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passing {
		_, _ = r.w.Write(b)
		return
	}
	n := min(len(b), maxRelay-len(r.held))
	r.held = append(r.held, b[:n]...)
	r.cut = r.cut || n < len(b)
}

// pass writes what is held. From then on, nothing is.
func (r *relay) pass() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passing {
		return
	}
	r.passing = true
	if r.cut {
		r.held = append(r.held, "\n…\n"...)
	}
	if len(r.held) > 0 {
		_, _ = r.w.Write(r.held)
	}
	r.held = nil
}
