package tap

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"mcpwire/capture"
)

// attend sees a server's life to its end, and all that it wrote to the host.
func (k *keeper) attend(ctx context.Context) ending {
	l := k.life
	a := &attendance{life: l, quit: make(chan struct{})}
	late := time.NewTimer(k.opts.ReadyWithin)
	defer late.Stop()
	cancelled, gone, died := ctx.Done(), k.hostGone, l.child.done
	for {
		select {
		case s := <-k.Signals:
			switch {
			case s == syscall.SIGHUP && k.opts.OnHangup:
				a.replace("SIGHUP")
			case a.drained != nil && ends(s):
				a.hurry()
			default:
				if ends(s) {
					l.told.Store(true)
				}
				l.child.forward(s)
			}
		case <-cancelled:
			cancelled = nil
			a.end()
		case <-gone:
			gone = nil
			a.end()
		case reason := <-k.trigger:
			a.replace(reason)
		case reason := <-k.opts.Trigger:
			a.replace(reason)
		case reason := <-l.failed:
			a.reject(reason)
		case <-late.C:
			if _, handshake := k.session.owes(); handshake {
				a.reject("the new server did not answer the handshake")
			}
		case <-died:
			died = nil
			a.drain()
		case done := <-a.drained:
			l.close(ctx, !done)
			return a.verdict()
		}
	}
}

// An attendance is a call of attend.
type attendance struct {
	*life
	decided *ending   // what was decided before the server ended
	drained chan bool // once it has: whether all that it wrote was forwarded
	quit    chan struct{}
	hurried bool
}

// end has the server end for good.
func (a *attendance) end() {
	a.told.Store(true)
	if a.drained != nil {
		a.hurry()
		return
	}
	a.stop(stopWait)
}

// replace has the server end, to be followed by another. One that is ending anyway is not.
func (a *attendance) replace(reason string) {
	if a.decided == nil && !a.told.Load() && a.drained == nil {
		a.decided = &ending{restart: true, reason: reason}
		a.stop(restartPatience)
	}
}

// reject is replace for a server that is of no use.
func (a *attendance) reject(reason string) {
	if a.decided == nil && !a.told.Load() && a.drained == nil {
		e := a.crash(reason)
		a.decided = &e
		a.stop(restartPatience)
	}
}

func (a *attendance) stop(patience time.Duration) {
	a.queue.pause()
	a.stopping.Go(func() { a.child.stop(patience) })
}

// drain waits in the background until all that the server wrote was forwarded.
func (a *attendance) drain() {
	done := make(chan bool, 1)
	a.drained = done
	a.stopping.Go(func() { done <- a.life.drain(a.quit) })
}

// hurry gives up what the host does not read.
func (a *attendance) hurry() {
	a.told.Store(true)
	if !a.hurried {
		a.hurried = true
		close(a.quit)
	}
}

// verdict says what comes next, now that the server has ended.
func (a *attendance) verdict() ending {
	switch {
	case a.told.Load():
		return ending{}
	case a.decided != nil:
		return *a.decided
	case a.opts.OnCrash && !a.queue.finished():
		return a.crash(describe(a.child.exit))
	}
	return ending{}
}

// describe says how a process ended.
func describe(e capture.Exit) string {
	if e.Signal != "" {
		return "the server was ended by " + e.Signal
	}
	return fmt.Sprintf("the server exited with status %d", e.Code)
}
