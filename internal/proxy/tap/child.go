package tap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/proc/guardian"
)

// A StartError says that the server could not be started.
type StartError struct {
	Command string
	Err     error
}

func (e *StartError) Error() string { return fmt.Sprintf("start %q: %v", e.Command, e.Err) }
func (e *StartError) Unwrap() error { return e.Err }

// The steps by which a server is ended that does not end by itself, and how long what it has left running may use its pipes.
const (
	stopGrace   = 2 * time.Second
	termGrace   = 3 * time.Second
	lingerGrace = 500 * time.Millisecond
)

// A child is one run of the server.
type child struct {
	stdin, stdout, stderr *os.File // our ends
	pid                   int

	started time.Time

	mu    sync.Mutex
	group group // until the process is reaped: its number may be somebody else's then

	closeInput sync.Once
	done       chan struct{} // closed when the process was reaped and its group ended
	exit       capture.Exit  // after done
	goroutines sync.WaitGroup
}

// startChild starts the server. With polled, reads and writes of the pipes can be interrupted; without, they are faster.
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
	if errors.Is(cmd.Err, exec.ErrDot) { // what PATH means is for the host to say
		cmd.Err = nil
	}
	cmd.Dir, cmd.Env = o.Dir, o.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	cmd.SysProcAttr = groupAttr()
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

// run starts the process and sees it to its end. It keeps a thread of its own: Linux sends the parent death signal when the thread that forked ends.
func (c *child) run(cmd *exec.Cmd, g *guardian.Guardian, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if errors.Is(err, syscall.ENOEXEC) { // hosts start scripts that do not name their interpreter as execvp(3) does
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
	c.group = newGroup(cmd.Process)
	started <- nil
	c.reap(cmd)
	c.exit = exitOf(cmd.ProcessState)
	close(c.done)
}

// signal has send signal the process or its group, if it is still there.
func (c *child) signal(send func(group)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	send(c.group)
}

// closeStdin tells the server that its input has ended.
func (c *child) closeStdin() { c.closeInput.Do(func() { c.stdin.Close() }) }

// stop ends the process, one step at a time. It returns when it has ended, or cannot be.
func (c *child) stop(grace time.Duration) {
	c.closeStdin()
	if c.doneWithin(grace) {
		return
	}
	c.signal(group.terminate)
	if c.doneWithin(termGrace) {
		return
	}
	c.signal(group.kill)
	c.doneWithin(termGrace)
}

func (c *child) doneWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}

func (c *child) closePipes() { closeAll([]*os.File{c.stdin, c.stdout, c.stderr}) }

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
