package stdio

import (
	"bytes"
	"cmp"
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

	"mcpwire/internal/base/wait"
	"mcpwire/internal/proc/guardian"
	"mcpwire/internal/proc/procgroup"
)

// A Process is a running server. Read reads the server's standard output and Write writes its
// standard input, so jsonrpc.NewFramer accepts a Process. The caller must close it, even when it
// has ended by itself.
//
// After the server's end, reads return the rest of its output and then the *ExitError, or io.EOF if
// it exited with status 0 after its input was closed. If the server closes its standard output but
// runs on, reads fail unless its input was closed before.
type Process struct {
	cmd       *Cmd
	name      string
	startedAt time.Time

	stdin, stdout, stderr *os.File
	tail                  tail
	// forward copies standard error to cmd.Stderr. It may be nil.
	forward *queue

	// closingInput is set by CloseWrite.
	closingInput atomic.Bool
	closeInput   sync.Once
	closeOnce    sync.Once
	closeErr     error

	wg         sync.WaitGroup
	stderrDone chan struct{}

	mu  sync.Mutex
	pid int
	// group is reset when the process is reaped, because its id may be reused then.
	group procgroup.Group

	// exited is closed when the process has ended.
	exited chan struct{}
	// done is closed when its group has ended too, and exit is set.
	done chan struct{}
	// exit is set before done is closed.
	exit *ExitError
	// err is exit, or nil after a clean end.
	err error
}

const (
	// stderrWait is the time to read the rest of standard error after the process was reaped.
	stderrWait = 100 * time.Millisecond
	// exitWait limits the time until a server exits after the end of its standard output.
	exitWait = 2 * time.Second
	// reapWait limits the time from the exit of a server until its status is known.
	reapWait = 10 * time.Second
)

func newProcess(c *Cmd, pipes *childPipes) *Process {
	p := &Process{
		cmd: c, name: c.String(), startedAt: time.Now(),
		stdin: pipes.parent[0], stdout: pipes.parent[1], stderr: pipes.parent[2],
		stderrDone: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
	}
	if c.Stderr != nil {
		p.forward = newQueue(c.Stderr, 0, nil)
		p.tail.forward = p.forward
	}
	return p
}

// run starts the process and waits for its end. It locks its thread: waiting needs one anyway, and
// Linux sends the parent death signal when the thread that forked ends.
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
	p.group = procgroup.New(cmd.Process)
	p.mu.Unlock()
	started <- nil

	exited := sync.OnceFunc(func() { close(p.exited) })
	linger := func() {
		exited()
		p.linger()
	}
	procgroup.Reap(cmd, linger, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.group.Close()
		p.group = procgroup.Group{}
	})
	exited()
	p.stderr.SetReadDeadline(time.Now().Add(stderrWait))
	wait.Closed(p.stderrDone, 2*stderrWait)

	p.exit = newExitError(cmd, p.name, time.Since(p.startedAt), p.tail.String())
	if p.exit.Code != 0 || !p.closingInput.Load() {
		p.err = p.exit
	}
	close(p.done)
	// This wakes pending reads. Read still returns what is in the pipe.
	p.stdout.SetReadDeadline(time.Unix(1, 0))
}

// readStderr drains standard error, so that the server never waits for a reader.
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
		// The process has ended, but a process outside its group may hold the pipe open.
		if n := readAvailable(p.stdout, b); n > 0 {
			return n, nil
		}
	}
	ended := wait.Closed(p.done, exitWait)
	select {
	case <-p.exited:
		// On a busy machine, its end is noticed and its standard error is read later.
		ended = ended || wait.Closed(p.done, reapWait)
	default:
	}
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

// Write writes to the server's standard input. After the server's end it returns the *ExitError.
func (p *Process) Write(b []byte) (int, error) {
	n, err := p.stdin.Write(b)
	if err != nil && isBrokenPipe(err) && wait.Closed(p.done, exitWait) && p.err != nil {
		err = p.err
	}
	return n, err
}

// CloseWrite closes the server's standard input, which asks the server to finish and exit. Reads go
// on.
func (p *Process) CloseWrite() error {
	var err error
	p.closeInput.Do(func() {
		p.closingInput.Store(true)
		err = p.stdin.Close()
	})
	return err
}

// Done returns a channel that is closed when the process has ended and its standard error was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process. It returns an *ExitError, or nil if the process exited
// with status 0 after its input was closed.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Pid returns the process id. The system may reuse it after the end of the process.
func (p *Process) Pid() int { return p.pid }

// Stderr returns the last lines of the server's standard error, at most 64 KiB.
func (p *Process) Stderr() string { return p.tail.String() }

// String returns the server's name, see [Cmd.String].
func (p *Process) String() string { return p.name }

// Close ends the server in steps, each with a wait (see Cmd): it closes standard input, sends
// SIGTERM to the server's process group, and sends SIGKILL. On Windows the last two are Ctrl-Break
// and the end of the job. Meanwhile it discards the server's output, so that the server does not
// block. Close returns the result of Wait, or an error if the server survives SIGKILL. It may be
// called more than once and concurrently; each call waits for the end.
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
	ended := wait.Closed(p.done, cmp.Or(c.StopWait, defaultStopWait))
	if !ended {
		p.signal(procgroup.Group.Terminate)
		ended = wait.Closed(p.done, cmp.Or(c.TermWait, defaultTermWait))
	}
	if !ended {
		p.signal(procgroup.Group.Kill)
		ended = wait.Closed(p.done, cmp.Or(c.KillWait, defaultKillWait))
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

// signal calls send with the group, which is the zero value once the process was reaped.
func (p *Process) signal(send func(procgroup.Group)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	send(p.group)
}

// An ExitError describes the end of a server's process.
type ExitError struct {
	// Name is the server's name, see [Cmd.String].
	Name string
	// Code is the exit status, or -1 if a signal ended the process.
	Code int
	// Signal is the signal that ended the process, or nil.
	Signal os.Signal
	// After is the time that the process ran.
	After time.Duration
	// Stderr is the end of the process's standard error, at most 64 KiB.
	Stderr string
}

const (
	tailLines = 10
	tailBytes = 2 << 10
)

// Error returns the server's name, how it ended, and the last lines of its standard error.
func (e *ExitError) Error() string {
	var b strings.Builder
	if e.Signal != nil {
		fmt.Fprintf(&b, "server %q was terminated by a signal (%v)", e.Name, e.Signal)
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

// lastLines returns the last lines of s that are not blank, at most tailLines lines of about
// tailBytes in total.
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

// newExitError returns the error for a process that was waited for.
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

// A tail keeps the last lines of a text of any length in limited memory, and forwards the lines.
type tail struct {
	mu sync.Mutex
	// buf ends with the last lines. Its end is moved to the front when it exceeds 2*tailSize.
	buf []byte
	// line is the unfinished line.
	line []byte
	// truncating is set while the rest of line is dropped.
	truncating bool
	forward    io.Writer
}

// Write adds a part of the text.
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

// flush ends an unfinished line.
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

// String returns the last lines, at most tailSize bytes, including the unfinished line.
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
