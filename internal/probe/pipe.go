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
	"mcpwire/internal/frames"
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
type pipe struct {
	r       *run
	job     *job // nil for an observation
	session uint64
	proc    process
	err     *lineRecorder
	frames  chan frame
	done    chan struct{}
	wg      sync.WaitGroup
	began   time.Time
	spoke   bool   // it has sent a message
	ended   bool   // its output has ended
	shut    bool   // its input is closed
	excused bool   // how it ends is our doing
	mark    uint64 // number of the event that was to end it

	first   time.Duration // from the start until the server wrote something
	headers bool          // the server puts a header before its messages
	stray   [][]byte      // lines that are no messages
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
func openPipe(ctx context.Context, r *run, j *job) (*pipe, error) {
	p := &pipe{r: r, job: j, session: r.nextSession(j), frames: make(chan frame), done: make(chan struct{}), began: time.Now()}
	p.err = &lineRecorder{p: p}
	proc, err := r.start(ctx, p.err)
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
	c.StopWait, c.TermWait, c.KillWait = stopWait, termWait, killWait
	return c.Start(ctx)
}

// How long a server has to end once its input is closed, once it is told to, and once it is killed.
const (
	stopWait = 500 * time.Millisecond
	termWait = time.Second
	killWait = 2 * time.Second
)

func (p *pipe) record(e *capture.Event) uint64 {
	e.Session = p.session
	return p.r.journal.record(e)
}

// read hands over what the server writes, until that ends.
func (p *pipe) read() {
	in := frames.NewReader(&bounded{p.proc, maxVisit}, maxFrame)
	for {
		f, err := in.Next()
		if err == nil || len(f.Text) > 0 {
			if !p.hand(frame{text: f.Text, n: p.record(f.Event()), framing: f.Framing, after: time.Since(p.began)}) {
				return
			}
		}
		if err != nil {
			p.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToClient})
			p.hand(frame{err: err})
			return
		}
	}
}

func (p *pipe) hand(f frame) bool {
	select {
	case p.frames <- f:
		return true
	case <-p.done:
		return false
	}
}

// ask implements link.
func (p *pipe) ask(ctx context.Context, q question) answer {
	a := answer{fate: sent, dir: capture.ToServer}
	start := time.Now()
	var written chan error
	if !q.listen {
		written = p.write(&a, &q)
	}
	wait := time.NewTimer(p.patience(q))
	defer wait.Stop()
	for {
		waiting := q.id != "" || q.any || q.until != nil
		select {
		case err := <-written:
			written = nil
			if err != nil {
				a.fate, a.err = gone, err
				p.ended = true
				return a
			}
			if !waiting {
				return a
			}
		case f := <-p.frames:
			if f.err != nil {
				p.ended = true
				a.fate, a.err, a.took = gone, p.endOf(f.err), time.Since(start)
				return a
			}
			if p.consider(&a, &q, f) {
				a.took = time.Since(start)
				return a
			}
		case <-wait.C:
			a.fate = silent
			return a
		case <-ctx.Done():
			a.fate, a.err = gone, ctx.Err()
			return a
		}
	}
}

// patience is how long to wait for the answer to a question. A process that has not said anything
// yet may still be starting.
func (p *pipe) patience(q question) time.Duration {
	wait := p.r.patience(q)
	if !p.spoke && q.wait == 0 {
		wait = max(wait, p.r.startWait(p.job)-time.Since(p.began))
	}
	return wait
}

// write records a question, and sends it.
func (p *pipe) write(a *answer, q *question) chan error {
	data, framing := bytes.Clone(q.body), capture.FramingLF
	switch {
	case q.raw:
		framing = capture.FramingNone
	case q.ending == "\r\n":
		data, framing = append(data, q.ending...), capture.FramingCRLF
	default:
		data = append(data, '\n')
	}
	a.asked = p.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: q.body, Framing: framing})
	a.at = a.asked
	written := make(chan error, 1)
	p.wg.Go(func() {
		_, err := p.proc.Write(data)
		written <- err
	})
	return written
}

// consider looks at what the server wrote, and reports whether it is what was waited for.
func (p *pipe) consider(a *answer, q *question, f frame) bool {
	p.note(&f)
	for _, m := range parse(f.text) {
		p.spoke = true
		switch {
		case q.answers(&m):
			a.take(&m, f.text, f.n)
			return true
		case m.Kind == jsonrpc.KindRequest:
			p.oblige(&m)
		case len(a.before) < maxBefore:
			a.before = append(a.before, heard{*m.Clone(), f.n})
		}
		if q.until != nil && q.until(&m) {
			a.fate, a.at, a.dir = stopped, f.n, capture.ToClient
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

// oblige answers a request of the server, which a client without capabilities only gets if it is a ping.
func (p *pipe) oblige(m *jsonrpc.Message) {
	text := obliging(m)
	p.record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: text, Framing: capture.FramingLF})
	p.wg.Go(func() { _, _ = p.proc.Write(append(text, '\n')) }) // that it failed, the next question will tell
}

func obliging(m *jsonrpc.Message) []byte {
	if string(m.Method) == mcp.MethodPing {
		return jsonrpc.AppendResult(nil, m.ID, []byte("{}"))
	}
	return jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
}

// alive implements link.
func (p *pipe) alive() bool { return !p.ended && !p.shut }

// endOf is why the output has ended.
func (p *pipe) endOf(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	select {
	case <-p.proc.Done():
		if err := p.proc.Wait(); err != nil {
			return err
		}
	default:
	}
	return io.EOF
}

// shutInput closes the input of the server and reports whether it ends within the time for it, and how long that took.
func (p *pipe) shutInput(wait time.Duration) (time.Duration, bool) {
	start := time.Now()
	p.endInput()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	return p.awaitEnd(start, timer.C)
}

func (p *pipe) endInput() {
	p.shut = true
	p.mark = p.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
	_ = p.proc.CloseWrite() // of a server that has ended already, whoever reads hears
}

// awaitEnd waits for the end of the process, while it takes what it writes.
func (p *pipe) awaitEnd(start time.Time, late <-chan time.Time) (time.Duration, bool) {
	for {
		select {
		case <-p.proc.Done():
			return time.Since(start), true
		case f := <-p.frames:
			p.note(&f)
			p.ended = p.ended || f.err != nil
		case <-late:
			return time.Since(start), false
		}
	}
}

// close implements link. How the process ended is recorded, and nobody is blamed for what we did to it.
func (p *pipe) close() {
	ended := false
	select {
	case <-p.proc.Done():
		ended = true
	default:
	}
	if !p.shut {
		p.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
	}
	start := time.Now()
	closed := make(chan error, 1)
	p.wg.Go(func() { closed <- p.proc.Close() })
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-closed:
			waiting = false
		case <-p.frames:
		}
	}
	close(p.done)
	p.wg.Wait()
	p.err.flush()
	p.recordExit(err, ended || time.Since(start) < stopWait)
}

func (p *pipe) recordExit(err error, own bool) {
	exit := &capture.Exit{}
	if e, ok := errors.AsType[*stdio.ExitError](err); ok {
		exit.Code = e.Code
		if e.Signal != nil {
			exit.Signal = e.Signal.String()
		}
	}
	n := p.record(&capture.Event{Kind: capture.KindExit, Exit: exit})
	if !own || p.excused {
		p.r.journal.excuse(n)
	}
}
