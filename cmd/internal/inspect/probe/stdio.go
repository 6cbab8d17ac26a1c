package probe

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
)

// A stdioConn is a conn to a process.
type stdioConn struct {
	*wireclient.Process
	r       *run
	job     *job
	session uint64
	stderr  *stderrKeeper
	started time.Time
	// gotMessage reports that the server has sent a message.
	gotMessage bool
	// ended reports that the server's output has ended.
	ended       bool
	inputClosed bool
	// waived reports that the probe caused the end of the process.
	waived bool
	// endEvent is the number of the event that should end the process.
	endEvent uint64

	// headerFraming reports messages with a header.
	headerFraming bool
	// stray holds lines that are not messages.
	stray [][]byte
}

func openStdio(ctx context.Context, r *run, j *job) (*stdioConn, error) {
	sc := &stdioConn{r: r, job: j, session: r.nextSession(j), stderr: &stderrKeeper{forward: j.stderr}, started: time.Now()}
	t := r.target
	p, err := wireclient.StartProcess(ctx, r.start, &wireclient.ProcessOptions{
		Start:   capture.Start{Command: slices.Clone(t.Command), Dir: t.Dir, Env: envNames(t.Env)},
		Session: sc.session, Record: r.recorder.record, Stderr: sc.stderr, MaxMessage: maxFrame, MaxOutput: maxVisit, GracePeriod: stopWait,
	})
	sc.Process = p
	return sc, err
}

func envNames(env []string) []string {
	var names []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	return names
}

// stopWait limits the time until a server ends after its input is closed.
const stopWait = 500 * time.Millisecond

// send implements conn.
func (sc *stdioConn) send(ctx context.Context, q outgoing) reply {
	a := reply{state: sentOnly, dir: capture.ToServer}
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, sc.replyTimeout(q))
	defer cancel()
	var written chan error
	if !q.receiveOnly {
		written = make(chan error, 1)
		if err := sc.write(limited, &a, &q, written); err != nil && limited.Err() == nil {
			sc.drain(limited)
			return sc.disconnect(a, err)
		}
	}
	for {
		waiting := q.id != "" || q.anyID || q.stopAt != nil
		select {
		case err := <-written:
			written = nil
			if err != nil {
				sc.drain(limited)
				return sc.disconnect(a, err)
			}
			if !waiting {
				return a
			}
		case f := <-sc.Frames():
			if f.Err != nil {
				a.took = time.Since(start)
				return sc.disconnect(a, f.Err)
			}
			sc.observeFrame(&f)
			done := a.take(&q, f.Text, f.N, func(m *jsonrpc.Message) {
				// The next send reports a failure.
				_, _ = sc.Send(limited, clientResponse(m), capture.FramingLF, nil)
			})
			if done {
				a.took = time.Since(start)
				return a
			}
		case <-limited.Done():
			if a.state = timedOut; ctx.Err() != nil {
				a.state, a.err = disconnected, ctx.Err()
			}
			return a
		}
	}
}

// drain reads what a server that takes no more input has written: it may say why.
func (sc *stdioConn) drain(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for {
		select {
		case f := <-sc.Frames():
			if f.Err != nil {
				return
			}
			sc.observeFrame(&f)
		case <-limited.Done():
			return
		}
	}
}

func (sc *stdioConn) disconnect(a reply, err error) reply {
	sc.ended = true
	a.state, a.err = disconnected, err
	return a
}

// replyTimeout returns the timeout for a message. A process that has sent no message may still be
// starting.
func (sc *stdioConn) replyTimeout(q outgoing) time.Duration {
	wait := sc.r.replyTimeout(q)
	if !sc.gotMessage && q.wait == 0 {
		wait = max(wait, sc.r.startTimeout(sc.job)-time.Since(sc.started))
	}
	return wait
}

// write sends a message. written gets the result.
func (sc *stdioConn) write(ctx context.Context, a *reply, q *outgoing, written chan<- error) error {
	framing := cmp.Or(q.framing, capture.FramingLF)
	n, err := sc.Send(ctx, q.body, framing, func(err error) { written <- err })
	a.requestEvent, a.event = n, n
	return err
}

// alive implements conn.
func (sc *stdioConn) alive() bool { return !sc.ended && !sc.inputClosed }

func (sc *stdioConn) closeInput() {
	sc.inputClosed = true
	// The reader notices a server that has already ended.
	sc.endEvent, _ = sc.CloseWrite()
}

// waitExit waits for the end of the process, up to maxExitTime, and discards its output. It reports
// whether the process ended.
func (sc *stdioConn) waitExit() bool {
	late := time.After(maxExitTime)
	for {
		select {
		case <-sc.Child().Done():
			return true
		case f := <-sc.Frames():
			sc.observeFrame(&f)
			sc.ended = sc.ended || f.Err != nil
		case <-late:
			return false
		}
	}
}

// close implements conn. It drops findings about an end that the probe caused.
func (sc *stdioConn) close() {
	if exit := sc.Close(); exit.Forced || sc.waived {
		sc.r.recorder.waive(exit.N)
	}
}

// A stderrKeeper keeps the beginning and the end of a server's standard error, and forwards it.
type stderrKeeper struct {
	// forward is nil if nobody reads it.
	forward *stderrForwarder
	mu      sync.Mutex
	// head is the beginning of the output.
	head []byte
	// tail is the end of the output after head.
	tail []byte
	// cut reports that output between head and tail was dropped.
	cut bool
}

const (
	maxHead = 8 << 10 // bytes
	maxTail = 8 << 10
)

// Write implements io.Writer. It never fails.
func (k *stderrKeeper) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forward.write(b)
	rest := b[min(len(b), maxHead-len(k.head)):]
	k.head = append(k.head, b[:len(b)-len(rest)]...)
	k.cut = k.cut || len(k.tail)+len(rest) > maxTail
	k.tail = append(k.tail, rest[max(0, len(rest)-maxTail):]...)
	k.tail = k.tail[max(0, len(k.tail)-maxTail):]
	return len(b), nil
}

// text returns the beginning and the end of the output. A nil one has none.
func (k *stderrKeeper) text() string {
	if k == nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cut {
		return string(k.head) + "\n…\n" + string(k.tail)
	}
	return string(k.head) + string(k.tail)
}

// A stderrForwarder forwards the standard error of a job's servers. It buffers output until the
// job's turn, so that output is in the order of the jobs. It is safe for concurrent use. A nil one
// does nothing.
type stderrForwarder struct {
	// w receives the output. Its errors are ignored.
	w io.Writer

	mu         sync.Mutex
	forwarding bool
	buffered   []byte
	// cut reports that the buffer overflowed.
	cut bool
}

const maxBuffered = 256 << 10 // bytes

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

// release writes the buffered output. Later output is not buffered.
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
