package stdio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/guardian"
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
