package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/proc/guardian"
)

// A Process is a running server. Reading it reads the server's standard output, writing it writes its standard input, so jsonrpc.NewFramer
// takes it. Close it in the end, even when it has ended by itself.
//
// When the server has ended, reads return what it wrote before, and then the *ExitError that says how it ended; io.EOF only if it exited with
// status 0 after its input was closed. A server that closes its standard output and goes on makes reads fail, unless its input was closed before.
type Process struct {
	cmd       *Cmd
	name      string
	startedAt time.Time

	stdin, stdout, stderr *os.File
	tail                  tail
	forward               *queue // to cmd.Stderr; may be nil

	closingInput atomic.Bool // CloseWrite was called
	closeInput   sync.Once
	closeOnce    sync.Once
	closeErr     error

	wg         sync.WaitGroup
	stderrDone chan struct{}

	mu    sync.Mutex
	pid   int
	group processGroup // only until the process is reaped: its number may be given to somebody else then

	done chan struct{}
	exit *ExitError // set before done is closed
	err  error      // exit, or nil after a clean end
}

const (
	// stderrWait is how long the rest of standard error may take after the process was reaped.
	stderrWait = 100 * time.Millisecond
	// exitWait is how long a server may take to exit after its standard output has ended.
	exitWait = 500 * time.Millisecond
)

func newProcess(c *Cmd, pipes *childPipes) *Process {
	p := &Process{
		cmd: c, name: c.String(), startedAt: time.Now(),
		stdin: pipes.parent[0], stdout: pipes.parent[1], stderr: pipes.parent[2],
		stderrDone: make(chan struct{}), done: make(chan struct{}),
	}
	if c.Stderr != nil {
		p.forward = newQueue(c.Stderr, 0, nil)
		p.tail.forward = p.forward
	}
	return p
}

// run starts the process and sees it to its end. It keeps a thread of its own: waiting needs one anyway, and Linux sends the parent death signal
// when the thread that forked ends.
func (p *Process) run(cmd *exec.Cmd, g *guardian.Guardian, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		close(p.done)
		started <- err
		return
	}
	g.Watch(cmd.Process.Pid)
	p.mu.Lock()
	p.pid = cmd.Process.Pid
	p.group = newProcessGroup(cmd.Process)
	p.mu.Unlock()
	started <- nil

	p.reap(cmd)
	p.stderr.SetReadDeadline(time.Now().Add(stderrWait))
	waitClosed(p.stderrDone, 2*stderrWait)

	p.exit = newExitError(cmd, p.name, time.Since(p.startedAt), p.tail.String())
	if p.exit.Code != 0 || !p.closingInput.Load() {
		p.err = p.exit
	}
	close(p.done)
	// Whoever waits for more output is told; what is in the pipe is still read, see Read.
	p.stdout.SetReadDeadline(time.Unix(1, 0))
}

// readStderr drains standard error, so that the server never waits for us.
func (p *Process) readStderr() {
	defer close(p.stderrDone)
	io.Copy(&p.tail, p.stderr)
	p.tail.flush()
}

// Read reads the server's standard output.
func (p *Process) Read(b []byte) (int, error) {
	n, err := p.stdout.Read(b)
	if n > 0 || err == nil {
		return n, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// The process has ended, yet somebody outside its group may hold the pipe open.
		if n := readAvailable(p.stdout, b); n > 0 {
			return n, nil
		}
	}
	ended := waitClosed(p.done, exitWait)
	switch {
	case ended && p.err != nil:
		return 0, p.err
	case errors.Is(err, os.ErrClosed) && !ended:
		return 0, err
	case ended || p.closingInput.Load():
		return 0, io.EOF
	}
	return 0, fmt.Errorf("server %q %w", p.name, errStillRunning)
}

// Write writes to the server's standard input. When the server has ended it returns the *ExitError.
func (p *Process) Write(b []byte) (int, error) {
	n, err := p.stdin.Write(b)
	if err != nil && isBrokenPipe(err) && waitClosed(p.done, exitWait) && p.err != nil {
		err = p.err
	}
	return n, err
}

// CloseWrite closes the server's standard input, which asks it to finish and exit. Reading goes on.
func (p *Process) CloseWrite() error {
	var err error
	p.closeInput.Do(func() {
		p.closingInput.Store(true)
		err = p.stdin.Close()
	})
	return err
}

// Done is closed when the process has ended and its standard error was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process has ended. It returns an *ExitError, or nil if the process exited with status 0 after its input was closed.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Pid returns the process id. Once the process has ended, the system may give it to another one.
func (p *Process) Pid() int { return p.pid }

// Stderr returns the last lines the server wrote to standard error, at most 64 KiB.
func (p *Process) Stderr() string { return p.tail.String() }

// String names the server, as Cmd.String does.
func (p *Process) String() string { return p.name }

// waitClosed waits for done, no longer than d, and reports whether it was closed.
func waitClosed(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	if d <= 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Close ends the server, one step at a time: it closes standard input and waits, sends SIGTERM to the server's process group and waits, sends
// SIGKILL and waits (see Cmd for the times; on Windows, Ctrl-Break and the end of the job). What the server writes meanwhile is
// discarded, so that it does not wait for us. Close returns as Wait does, or an error if even SIGKILL did not help in time. It may
// be called more than once and at once; each call waits for the end.
func (p *Process) Close() error {
	p.closeOnce.Do(func() { p.closeErr = p.shutdown() })
	return p.closeErr
}

func (p *Process) shutdown() error {
	c := p.cmd
	p.CloseWrite()
	discarded := make(chan struct{})
	go func() {
		defer close(discarded)
		io.Copy(io.Discard, p)
	}()
	ended := waitClosed(p.done, orDefault(c.StopWait, defaultStopWait))
	if !ended {
		p.signal(processGroup.terminate)
		ended = waitClosed(p.done, orDefault(c.TermWait, defaultTermWait))
	}
	if !ended {
		p.signal(processGroup.kill)
		ended = waitClosed(p.done, orDefault(c.KillWait, defaultKillWait))
	}
	if !ended {
		p.stdout.Close()
		p.closeForward()
		return fmt.Errorf("server %q (process %d) cannot be killed", p.name, p.pid)
	}
	p.wg.Wait()
	p.stdout.Close()
	p.stderr.Close()
	<-discarded
	p.closeForward()
	return p.err
}

func (p *Process) closeForward() {
	if p.forward != nil {
		p.forward.closeWithin(stderrWait)
	}
}

// signal has send signal the group, if it is still ours.
func (p *Process) signal(send func(processGroup)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	send(p.group)
}

func orDefault(d, ifZero time.Duration) time.Duration {
	if d == 0 {
		return ifZero
	}
	return d
}

// An ExitError says how a server's process ended.
type ExitError struct {
	Name   string        // of the server, as Cmd.String gives it
	Code   int           // exit status; -1 if a signal ended it
	Signal os.Signal     // that ended it; nil if none did
	After  time.Duration // that it ran
	Stderr string        // the end of what it wrote to standard error, at most 64 KiB
}

const (
	tailLines = 10
	tailBytes = 2 << 10
)

// Error names the server and how it ended, and shows the last few lines it wrote to standard error.
func (e *ExitError) Error() string {
	var b strings.Builder
	if e.Signal != nil {
		fmt.Fprintf(&b, "server %q was ended by a signal (%v)", e.Name, e.Signal)
	} else {
		fmt.Fprintf(&b, "server %q exited with status %d", e.Name, e.Code)
	}
	unit := time.Millisecond
	if e.After > 10*time.Second {
		unit = time.Second
	}
	fmt.Fprintf(&b, " after %v", e.After.Round(unit))
	if tail := lastLines(e.Stderr); len(tail) > 0 {
		b.WriteString("; last stderr lines:")
		for _, line := range tail {
			b.WriteString("\n\t")
			b.Write(appendEscaped(nil, line, tailBytes))
		}
	}
	return b.String()
}

// lastLines returns the last lines that are not blank, as many as an error message can bear.
func lastLines(s string) []string {
	var lines []string
	size := 0
	for len(lines) < tailLines && s != "" {
		at := strings.LastIndexByte(s, '\n') + 1
		line := strings.TrimRight(s[at:], " \t\r")
		s = s[:max(at-1, 0)]
		if line == "" {
			continue
		}
		if size += len(line); size > tailBytes && len(lines) > 0 {
			break
		}
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return lines
}

// newExitError makes one of what Wait returned.
func newExitError(cmd *exec.Cmd, name string, after time.Duration, stderr string) *ExitError {
	e := &ExitError{Name: name, Code: -1, After: after, Stderr: stderr}
	if state := cmd.ProcessState; state != nil {
		e.Code = state.ExitCode()
		e.Signal = exitSignal(state)
	}
	return e
}

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
