package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/trace/frames"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// A process is a running server; see [stdio.Process].
type process interface {
	io.ReadWriteCloser
	CloseWrite() error
	Done() <-chan struct{}
	Wait() error
	Pid() int
}

// A stdioConn is a conn to a process.
type stdioConn struct {
	r *run
	// job is nil for an observation.
	job     *job
	session uint64
	proc    process
	stderr  *stderrRecorder
	frames  chan frame
	done    chan struct{}
	wg      sync.WaitGroup
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

	// firstByte is the time from the start to the first output.
	firstByte time.Duration
	// headerFraming reports messages with a header.
	headerFraming bool
	// stray holds lines that are not messages.
	stray [][]byte
}

// A frame is a line, or anything in place of one, that the server wrote.
type frame struct {
	text    []byte
	n       uint64
	framing capture.Framing
	// after is the time since the start of the process.
	after time.Duration
	// err is the end of the output.
	err error
}

// openPipe starts the server.
func openPipe(ctx context.Context, r *run, j *job) (*stdioConn, error) {
	p := &stdioConn{r: r, job: j, session: r.nextSession(j), frames: make(chan frame), done: make(chan struct{}), started: time.Now()}
	p.stderr = &stderrRecorder{conn: p}
	proc, err := r.start(ctx, p.stderr)
	if err != nil {
		return nil, err
	}
	p.proc = proc
	t := r.target
	p.record(&capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: slices.Clone(t.Command), Dir: t.Dir, Env: envNames(t.Env), PID: proc.Pid()}})
	p.wg.Go(p.read)
	return p, nil
}

func envNames(env []string) []string {
	var names []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	return names
}

// startProcess starts a server. Tests replace it.
func startProcess(ctx context.Context, t *Target, stderr io.Writer) (process, error) {
	c := stdio.Command(t.Command[0], t.Command[1:]...)
	c.Dir, c.Env, c.Stderr = t.Dir, t.Env, stderr
	c.StopWait, c.TermWait, c.KillWait = stopWait, termTimeout, killTimeout
	return c.Start(ctx)
}

// How long a server has to end after its input is closed, after SIGTERM and after it is killed.
const (
	stopWait    = 500 * time.Millisecond
	termTimeout = time.Second
	killTimeout = 2 * time.Second
)

func (sc *stdioConn) record(e *capture.Event) uint64 {
	e.Session = sc.session
	return sc.r.recorder.record(e)
}

// read delivers the server's output until it ends.
func (sc *stdioConn) read() {
	in := frames.NewReader(&limitedReader{sc.proc, maxVisit}, maxFrame)
	for {
		f, err := in.Next()
		if err == nil || len(f.Text) > 0 {
			if !sc.deliver(frame{text: f.Text, n: sc.record(f.Event()), framing: f.Framing, after: time.Since(sc.started)}) {
				return
			}
		}
		if err != nil {
			sc.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToClient})
			sc.deliver(frame{err: err})
			return
		}
	}
}

func (sc *stdioConn) deliver(f frame) bool {
	select {
	case sc.frames <- f:
		return true
	case <-sc.done:
		return false
	}
}

// send implements conn.
func (sc *stdioConn) send(ctx context.Context, q outgoing) reply {
	a := reply{state: sentOnly, dir: capture.ToServer}
	start := time.Now()
	var written chan error
	if !q.receiveOnly {
		written = sc.write(&a, &q)
	}
	wait := time.NewTimer(sc.replyTimeout(q))
	defer wait.Stop()
	for {
		waiting := q.id != "" || q.anyID || q.stopAt != nil
		select {
		case err := <-written:
			written = nil
			if err != nil {
				a.state, a.err = disconnected, err
				sc.ended = true
				return a
			}
			if !waiting {
				return a
			}
		case f := <-sc.frames:
			if f.err != nil {
				sc.ended = true
				a.state, a.err, a.took = disconnected, sc.exitError(f.err), time.Since(start)
				return a
			}
			if sc.examine(&a, &q, f) {
				a.took = time.Since(start)
				return a
			}
		case <-wait.C:
			a.state = timedOut
			return a
		case <-ctx.Done():
			a.state, a.err = disconnected, ctx.Err()
			return a
		}
	}
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

// write records a message and sends it.
func (sc *stdioConn) write(a *reply, q *outgoing) chan error {
	data, framing := bytes.Clone(q.body), capture.FramingLF
	switch {
	case q.noLineEnd:
		framing = capture.FramingNone
	case q.lineEnd == "\r\n":
		data, framing = append(data, q.lineEnd...), capture.FramingCRLF
	default:
		data = append(data, '\n')
	}
	a.requestEvent = sc.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: q.body, Framing: framing})
	a.event = a.requestEvent
	written := make(chan error, 1)
	sc.wg.Go(func() {
		_, err := sc.proc.Write(data)
		written <- err
	})
	return written
}

// examine handles a frame and reports whether it contains the expected response.
func (sc *stdioConn) examine(a *reply, q *outgoing, f frame) bool {
	sc.observeFrame(&f)
	for _, m := range parse(f.text) {
		sc.gotMessage = true
		switch {
		case q.answers(&m):
			a.set(&m, f.text, f.n)
			return true
		case m.Kind == jsonrpc.KindRequest:
			sc.answerRequest(&m)
		case len(a.before) < maxBefore:
			a.before = append(a.before, earlierMessage{*m.Clone(), f.n})
		}
		if q.stopAt != nil && q.stopAt(&m) {
			a.state, a.event, a.dir = stoppedEarly, f.n, capture.ToClient
			return true
		}
	}
	return false
}

// parse returns the messages in a frame or batch.
func parse(text []byte) []jsonrpc.Message {
	if jsonrpc.IsBatch(text) {
		list, err := jsonrpc.ParseBatch(text, 0)
		if err != nil {
			return nil
		}
		var all []jsonrpc.Message
		for _, e := range list {
			all = append(all, e.Message)
		}
		return all
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(text, &m, 0); err != nil {
		return nil
	}
	return []jsonrpc.Message{m}
}

// answerRequest responds to a request of the server. A client without capabilities supports only
// ping.
func (sc *stdioConn) answerRequest(m *jsonrpc.Message) {
	text := clientResponse(m)
	sc.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: text, Framing: capture.FramingLF})
	// The next send reports a failure.
	sc.wg.Go(func() { _, _ = sc.proc.Write(append(text, '\n')) })
}

func clientResponse(m *jsonrpc.Message) []byte {
	if string(m.Method) == mcp.MethodPing {
		return jsonrpc.AppendResult(nil, m.ID, []byte("{}"))
	}
	return jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
}

// alive implements conn.
func (sc *stdioConn) alive() bool { return !sc.ended && !sc.inputClosed }

// exitError returns why the output has ended.
func (sc *stdioConn) exitError(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	select {
	case <-sc.proc.Done():
		if err := sc.proc.Wait(); err != nil {
			return err
		}
	default:
	}
	return io.EOF
}

// closeInputAndWait closes the server's input. It reports whether the process ends within wait, and
// how long that took.
func (sc *stdioConn) closeInputAndWait(wait time.Duration) (time.Duration, bool) {
	start := time.Now()
	sc.closeInput()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	return sc.waitExit(start, timer.C)
}

func (sc *stdioConn) closeInput() {
	sc.inputClosed = true
	sc.endEvent = sc.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
	// The reader notices a server that has already ended.
	_ = sc.proc.CloseWrite()
}

// waitExit waits for the end of the process and discards its output.
func (sc *stdioConn) waitExit(start time.Time, late <-chan time.Time) (time.Duration, bool) {
	for {
		select {
		case <-sc.proc.Done():
			return time.Since(start), true
		case f := <-sc.frames:
			sc.observeFrame(&f)
			sc.ended = sc.ended || f.err != nil
		case <-late:
			return time.Since(start), false
		}
	}
}

// close implements conn. It records how the process ended, without findings about what the probe
// caused.
func (sc *stdioConn) close() {
	ended := false
	select {
	case <-sc.proc.Done():
		ended = true
	default:
	}
	if !sc.inputClosed {
		sc.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
	}
	start := time.Now()
	closed := make(chan error, 1)
	sc.wg.Go(func() { closed <- sc.proc.Close() })
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-closed:
			waiting = false
		case <-sc.frames:
		}
	}
	close(sc.done)
	sc.wg.Wait()
	sc.stderr.flush()
	sc.recordExit(err, ended || time.Since(start) < stopWait)
}

func (sc *stdioConn) recordExit(err error, own bool) {
	exit := &capture.Exit{}
	if e, ok := errors.AsType[*stdio.ExitError](err); ok {
		exit.Code = e.Code
		if e.Signal != nil {
			exit.Signal = e.Signal.String()
		}
	}
	n := sc.record(&capture.Event{Kind: capture.KindExit, Exit: exit})
	if !own || sc.waived {
		sc.r.recorder.waive(n)
	}
}

// A stderrRecorder records the server's standard error.
type stderrRecorder struct {
	conn *stdioConn
	mu   sync.Mutex
	rest []byte
	// head is the beginning of the output.
	head []byte
	// tail is the end of the output after head.
	tail []byte
	// cut reports that output between head and tail was dropped.
	cut bool
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

// flush records an unterminated last line.
func (r *stderrRecorder) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) > 0 {
		r.conn.record(&capture.Event{Kind: capture.KindStderr, Data: r.rest})
		r.rest = nil
	}
}

// text returns the beginning and the end of the output.
func (r *stderrRecorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return string(r.head) + "\n…\n" + string(r.tail)
	}
	return string(r.head) + string(r.tail)
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
