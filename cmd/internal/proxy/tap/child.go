package tap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/proc/guardian"
	"mcpwire/internal/proc/procgroup"
)

// A StartError reports that the server could not be started.
type StartError struct {
	Command string
	Err     error
}

func (e *StartError) Error() string {
	cause := e.Err
	// These name the program again.
	if program, ok := errors.AsType[*exec.Error](cause); ok {
		cause = program.Err
	} else if path, ok := errors.AsType[*fs.PathError](cause); ok {
		cause = path.Err
	}
	return fmt.Sprintf("cannot start %s: %v", e.Command, cause)
}

// Unwrap returns Err.
func (e *StartError) Unwrap() error { return e.Err }

// The time limits of the steps that end a server, and the time for which the processes it left may
// use its pipes.
const (
	stopGrace   = 2 * time.Second
	termGrace   = 3 * time.Second
	lingerGrace = 500 * time.Millisecond
)

// A child is one run of the server.
type child struct {
	// stdin, stdout and stderr are the tap's ends of the pipes.
	stdin, stdout, stderr *os.File
	pid                   int

	started time.Time

	mu sync.Mutex
	// group is zero once the process is reaped, since its number may be reused.
	group procgroup.Group

	closeInput sync.Once
	// done is closed when the process is reaped and its group ended.
	done chan struct{}
	// exit is valid after done is closed.
	exit       capture.Exit
	goroutines sync.WaitGroup
}

// startChild starts the server. If polled is set, reads and writes of the pipes can be interrupted;
// otherwise they are faster.
func startChild(o *Options, polled bool) (*child, error) {
	c := &child{started: time.Now(), done: make(chan struct{})}
	var theirs [3]*os.File
	for i, ours := range []**os.File{&c.stdin, &c.stdout, &c.stderr} {
		r, w, err := newPipe(polled)
		if err != nil {
			c.closePipes()
			closeAll(theirs[:])
			return nil, &StartError{o.Command[0], err}
		}
		*ours, theirs[i] = r, w
		if i == 0 {
			*ours, theirs[i] = w, r
		}
	}
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	// The host decides what PATH means.
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil
	}
	cmd.Dir, cmd.Env = o.Dir, o.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	cmd.SysProcAttr = procgroup.Attr()
	if err := batchfile.Prepare(cmd); err != nil {
		c.closePipes()
		closeAll(theirs[:])
		return nil, &StartError{o.Command[0], err}
	}
	g := guardian.Start()
	started := make(chan error)
	c.goroutines.Go(func() { c.run(cmd, g, started) })
	err := <-started
	closeAll(theirs[:])
	if err != nil {
		g.Stop()
		c.closePipes()
		c.goroutines.Wait()
		return nil, &StartError{o.Command[0], err}
	}
	c.goroutines.Go(func() {
		<-c.done
		g.Stop()
	})
	return c, nil
}

// run starts the process and waits for its end. It locks a thread: Linux sends the parent death
// signal when the forking thread ends.
func (c *child) run(cmd *exec.Cmd, g *guardian.Guardian, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	// Hosts start scripts without an interpreter line as execvp(3) does.
	if errors.Is(err, syscall.ENOEXEC) {
		script := cmd
		cmd = exec.Command("/bin/sh", append([]string{script.Path}, script.Args[1:]...)...)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = script.Dir, script.Env, script.SysProcAttr
		cmd.Stdin, cmd.Stdout, cmd.Stderr = script.Stdin, script.Stdout, script.Stderr
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	g.Watch(cmd.Process.Pid)
	c.pid = cmd.Process.Pid
	c.group = procgroup.New(cmd.Process)
	started <- nil
	procgroup.Reap(cmd, c.linger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.group.Close()
		c.group = procgroup.Group{}
	})
	c.exit = exitOf(cmd.ProcessState)
	close(c.done)
}

// linger waits until the processes that the server left have released its pipes, or lingerGrace has
// passed.
func (c *child) linger() {
	limit := time.Now().Add(lingerGrace)
	waitHangup(c.stdout, time.Until(limit))
	waitHangup(c.stderr, time.Until(limit))
}

// signal calls send with the group, which is zero if the process is gone.
func (c *child) signal(send func(procgroup.Group)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	send(c.group)
}

// closeStdin ends the server's input.
func (c *child) closeStdin() { c.closeInput.Do(func() { c.stdin.Close() }) }

// stop ends the process step by step. It returns when the process has ended, or after the last
// step.
func (c *child) stop(grace time.Duration) {
	c.closeStdin()
	if wait.Closed(c.done, grace) {
		return
	}
	c.signal(procgroup.Group.Terminate)
	if wait.Closed(c.done, termGrace) {
		return
	}
	c.signal(procgroup.Group.Kill)
	wait.Closed(c.done, termGrace)
}

func (c *child) closePipes() { closeAll([]*os.File{c.stdin, c.stdout, c.stderr}) }

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
