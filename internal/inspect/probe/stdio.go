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

// A process is a server that runs, see [stdio.Process].
type process interface {
	io.ReadWriteCloser
	CloseWrite() error
	Done() <-chan struct{}
	Wait() error
	Pid() int
}

// A pipe is a link to a process.
type stdioConn struct {
	r           *run
	job         *job // nil for an observation
	session     uint64
	proc        process
	stderr      *stderrRecorder
	frames      chan frame
	done        chan struct{}
	wg          sync.WaitGroup
	started     time.Time
	gotMessage  bool   // it has sent a message
	ended       bool   // its output has ended
	inputClosed bool   // its input is closed
	waived      bool   // how it ends is our doing
	endEvent    uint64 // number of the event that was to end it

	firstByte     time.Duration // from the start until the server wrote something
	headerFraming bool          // the server puts a header before its messages
	stray         [][]byte      // lines that are no messages
}

// A frame is a line, or what stands in the place of one, that the server wrote.
type frame struct {
	text    []byte
	n       uint64
	framing capture.Framing
	after   time.Duration // from the start of the process
	err     error         // the end
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

// startProcess is how servers are started but in tests.
func startProcess(ctx context.Context, t *Target, stderr io.Writer) (process, error) {
	c := stdio.Command(t.Command[0], t.Command[1:]...)
	c.Dir, c.Env, c.Stderr = t.Dir, t.Env, stderr
	c.StopWait, c.TermWait, c.KillWait = stopWait, termTimeout, killTimeout
	return c.Start(ctx)
}

// How long a server has to end once its input is closed, once it is told to, and once it is killed.
const (
	stopWait    = 500 * time.Millisecond
	termTimeout = time.Second
	killTimeout = 2 * time.Second
)

func (sc *stdioConn) record(e *capture.Event) uint64 {
	e.Session = sc.session
	return sc.r.recorder.record(e)
}

// read hands over what the server writes, until that ends.
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

// send implements link.
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

// replyTimeout is how long to wait for the answer to a question. A process that has not said anything
// yet may still be starting.
func (sc *stdioConn) replyTimeout(q outgoing) time.Duration {
	wait := sc.r.replyTimeout(q)
	if !sc.gotMessage && q.wait == 0 {
		wait = max(wait, sc.r.startTimeout(sc.job)-time.Since(sc.started))
	}
	return wait
}

// write records a question, and sends it.
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

// examine looks at what the server wrote, and reports whether it is what was waited for.
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

// parse returns the messages in a frame; those of a batch, too.
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

// answerRequest answers a request of the server, which a client without capabilities only gets if it is a ping.
func (sc *stdioConn) answerRequest(m *jsonrpc.Message) {
	text := clientResponse(m)
	sc.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: text, Framing: capture.FramingLF})
	sc.wg.Go(func() { _, _ = sc.proc.Write(append(text, '\n')) }) // that it failed, the next question will tell
}

func clientResponse(m *jsonrpc.Message) []byte {
	if string(m.Method) == mcp.MethodPing {
		return jsonrpc.AppendResult(nil, m.ID, []byte("{}"))
	}
	return jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
}

// alive implements link.
func (sc *stdioConn) alive() bool { return !sc.ended && !sc.inputClosed }

// exitError is why the output has ended.
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

// closeInputAndWait closes the input of the server and reports whether it ends within the time for it, and how long that took.
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
	_ = sc.proc.CloseWrite() // of a server that has ended already, whoever reads hears
}

// waitExit waits for the end of the process, while it takes what it writes.
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

// close implements link. How the process ended is recorded, and nobody is blamed for what we did to it.
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
