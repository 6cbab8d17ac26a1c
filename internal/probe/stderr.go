package probe

import (
	"bytes"
	"io"
	"sync"

	"mcpwire/capture"
)

// A stderrRecorder records what the server writes to its standard error.
type stderrRecorder struct {
	conn *stdioConn
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
func (r *stderrRecorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, b...)
	if r.conn.job != nil {
		r.conn.job.stderr.write(b)
	}
	rest := b[min(len(b), maxHead-len(r.head)):]
	r.head = append(r.head, b[:len(b)-len(rest)]...)
	r.cut = r.cut || len(r.tail)+len(rest) > maxTail
	r.tail = append(r.tail, rest[max(0, len(rest)-maxTail):]...)
	r.tail = r.tail[max(0, len(r.tail)-maxTail):]
	for {
		i := bytes.IndexByte(r.rest, '\n')
		if i < 0 && len(r.rest) < maxErrLine {
			return len(b), nil
		}
		if i < 0 {
			i = len(r.rest) - 1
		}
		r.conn.record(&capture.Event{Kind: capture.KindStderr, Data: bytes.TrimSuffix(r.rest[:i], []byte("\r"))})
		r.rest = r.rest[i+1:]
	}
}

// flush records a last line without an end.
func (r *stderrRecorder) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) > 0 {
		r.conn.record(&capture.Event{Kind: capture.KindStderr, Data: r.rest})
		r.rest = nil
	}
}

// text is the beginning and the end of what the server wrote.
func (r *stderrRecorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return string(r.head) + "\n…\n" + string(r.tail)
	}
	return string(r.head) + string(r.tail)
}

// A relay passes on what the servers of a job write to their standard error. What comes before it
// is the turn of the job is held, so that what people are shown is in the order of the jobs. It may
// be used by many goroutines at once, and does nothing if it is nil.
type stderrForwarder struct {
	w io.Writer // its errors do not count

	mu         sync.Mutex
	forwarding bool
	buffered   []byte
	cut        bool // more came than is held
}

const maxBuffered = 256 << 10 // bytes that are held

func (r *stderrForwarder) write(b []byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forwarding {
		_, _ = r.w.Write(b)
		return
	}
	n := min(len(b), maxBuffered-len(r.buffered))
	r.buffered = append(r.buffered, b[:n]...)
	r.cut = r.cut || n < len(b)
}

// release writes what is held. From then on, nothing is.
func (r *stderrForwarder) release() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forwarding {
		return
	}
	r.forwarding = true
	if r.cut {
		r.buffered = append(r.buffered, "\n…\n"...)
	}
	if len(r.buffered) > 0 {
		_, _ = r.w.Write(r.buffered)
	}
	r.buffered = nil
}
