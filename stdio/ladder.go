package stdio

import (
	"fmt"
	"io"
	"time"
)

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
