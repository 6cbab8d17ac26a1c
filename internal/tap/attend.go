package tap

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"mcpwire/capture"
)

// supervise sees a server's life to its end, and all that it wrote to the host.
func (sv *supervisor) supervise(ctx context.Context) outcome {
	in := sv.instance
	su := &supervision{instance: in, quit: make(chan struct{})}
	readyTimer := time.NewTimer(sv.opts.ReadyWithin)
	defer readyTimer.Stop()
	canceled, hostGone, exited := ctx.Done(), sv.hostGone, in.child.done
	for {
		select {
		case s := <-sv.Signals:
			switch {
			case s == syscall.SIGHUP && sv.opts.OnHangup:
				su.restart("SIGHUP")
			case su.drained != nil && isTermination(s):
				su.abandonOutput()
			default:
				if isTermination(s) {
					in.stopRequested.Store(true)
				}
				in.child.forward(s)
			}
		case <-canceled:
			canceled = nil
			su.terminate()
		case <-hostGone:
			hostGone = nil
			su.terminate()
		case reason := <-sv.trigger:
			su.restart(reason)
		case reason := <-sv.opts.Trigger:
			su.restart(reason)
		case reason := <-in.failed:
			su.reject(reason)
		case <-readyTimer.C:
			if _, handshake := sv.state.awaitsReplay(); handshake {
				su.reject("the new server did not answer the handshake")
			}
		case <-exited:
			exited = nil
			su.drain()
		case done := <-su.drained:
			in.close(ctx, !done)
			return su.outcome()
		}
	}
}

// An attendance is a call of attend.
type supervision struct {
	*instance
	decision  *outcome  // what was decided before the server ended
	drained   chan bool // once it has: whether all that it wrote was forwarded
	quit      chan struct{}
	abandoned bool
}

// terminate has the server end for good.
func (su *supervision) terminate() {
	su.stopRequested.Store(true)
	if su.drained != nil {
		su.abandonOutput()
		return
	}
	su.stop(stopGrace)
}

// restart has the server end, to be followed by another. One that is ending anyway is not.
func (su *supervision) restart(reason string) {
	if su.decision == nil && !su.stopRequested.Load() && su.drained == nil {
		su.decision = &outcome{restart: true, reason: reason}
		su.stop(restartGrace)
	}
}

// reject is replace for a server that is of no use.
func (su *supervision) reject(reason string) {
	if su.decision == nil && !su.stopRequested.Load() && su.drained == nil {
		e := su.noteCrash(reason)
		su.decision = &e
		su.stop(restartGrace)
	}
}

func (su *supervision) stop(grace time.Duration) {
	su.queue.pause()
	su.stopping.Go(func() { su.child.stop(grace) })
}

// drain waits in the background until all that the server wrote was forwarded.
func (su *supervision) drain() {
	done := make(chan bool, 1)
	su.drained = done
	su.stopping.Go(func() { done <- su.instance.drain(su.quit) })
}

// abandonOutput gives up what the host does not read.
func (su *supervision) abandonOutput() {
	su.stopRequested.Store(true)
	if !su.abandoned {
		su.abandoned = true
		close(su.quit)
	}
}

// outcome says what comes next, now that the server has ended.
func (su *supervision) outcome() outcome {
	switch {
	case su.stopRequested.Load():
		return outcome{}
	case su.decision != nil:
		return *su.decision
	case su.opts.OnCrash && !su.queue.finished():
		return su.noteCrash(describeExit(su.child.exit))
	}
	return outcome{}
}

// describeExit says how a process ended.
func describeExit(e capture.Exit) string {
	if e.Signal != "" {
		return "the server was ended by " + e.Signal
	}
	return fmt.Sprintf("the server exited with status %d", e.Code)
}
