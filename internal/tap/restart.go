package tap

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"mcpwire/capture"
)

// Restart says when the server is started again. The zero value of each limit is its default.
type Restart struct {
	OnCrash  bool     // when it ends while the host's input is open
	OnHangup bool     // when SIGHUP comes, which is not forwarded then
	Globs    []string // when a file changes that matches one; "**" stands for any number of folders
	// Trigger restarts for the reasons it is sent.
	Trigger <-chan string

	MinBackoff  time.Duration // before the first restart after a crash; it doubles with each crash in a row. 0 is 200 ms
	MaxBackoff  time.Duration // that it does not exceed; 0 is 10 s
	StableAfter time.Duration // a server that ran as long has not crashed in a row; 0 is 30 s
	MaxCrashes  int           // in a row, after which the tap gives up; 0 is 8
	ReadyWithin time.Duration // that a new server may take for the handshake; 0 is 30 s
}

// ParseRestart reads the values of --restart-on: "crash", "SIGHUP", or a pattern for the names of files. None is nil.
func ParseRestart(values []string) (*Restart, error) {
	if len(values) == 0 {
		return nil, nil
	}
	var r Restart
	for _, v := range values {
		switch {
		case v == "crash":
			r.OnCrash = true
		case strings.EqualFold(v, "SIGHUP"), strings.EqualFold(v, "HUP"):
			r.OnHangup = true
		case v == "":
			return nil, fmt.Errorf("want crash, SIGHUP, or a pattern such as 'src/**/*.py'")
		default:
			for element := range strings.SplitSeq(filepath.ToSlash(v), "/") {
				if _, err := filepath.Match(element, "x"); err != nil {
					return nil, fmt.Errorf("%q is no pattern for the names of files: %w", v, err)
				}
			}
			r.Globs = append(r.Globs, v)
		}
	}
	return &r, nil
}

func (r *Restart) withDefaults() Restart {
	d := *r
	set := func(v *time.Duration, to time.Duration) {
		if *v <= 0 {
			*v = to
		}
	}
	set(&d.MinBackoff, 200*time.Millisecond)
	set(&d.MaxBackoff, 10*time.Second)
	set(&d.StableAfter, 30*time.Second)
	set(&d.ReadyWithin, 30*time.Second)
	if d.MaxCrashes <= 0 {
		d.MaxCrashes = 8
	}
	return d
}

// restartGrace is how long a server that is to be replaced may take to end when its input has ended.
const restartGrace = 500 * time.Millisecond

// A keeper keeps the host's connection while servers come and go.
type supervisor struct {
	*tap
	opts    Restart
	state   *resumeState
	queue   *queue
	trigger chan string // one element

	instance *instance // the server's that runs, or ran last
	crashes  int       // in a row
	backoff  time.Duration
}

// runSupervised is Run with restarts.
func (t *tap) runSupervised(ctx context.Context) (int, error) {
	sv := &supervisor{tap: t, opts: t.Restart.withDefaults(), state: newResumeState(), queue: newQueue(), trigger: make(chan string, 1)}
	sv.backoff = sv.opts.MinBackoff
	c, err := startChild(t.Options, true)
	if err != nil {
		return 0, err
	}
	stop := sv.watchFiles(sv.opts.Globs)
	defer stop()
	go sv.input()
	for {
		sv.startInstance(c)
		end := sv.supervise(ctx)
		code := exitStatus(c.exit)
		if c, code = sv.startNext(ctx, end, code); c == nil {
			return code, nil
		}
	}
}

// startNext starts another server, if there is to be one. Otherwise it takes leave of the host, and returns the exit status.
func (sv *supervisor) startNext(ctx context.Context, end outcome, code int) (*child, int) {
	for end.restart && !sv.queue.finished() {
		if !sv.untilStopped(ctx, func() { sv.prepareRestart(end.reason) }) {
			return nil, code
		}
		if stays, status := sv.waitBackoff(ctx, end); !stays {
			end.restart, code = false, max(code, status)
			break
		}
		c, err := startChild(sv.Options, true)
		if err == nil {
			return c, 0
		}
		end = sv.noteCrash(err.Error())
	}
	if end.reason != "" {
		if !sv.untilStopped(ctx, func() { sv.giveUp(end.reason) }) {
			return nil, code
		}
	}
	sv.queue.abandon()
	sv.closeStdout()
	return nil, code
}

// input queues what the host sends.
func (sv *supervisor) input() {
	s := newSplitter(capture.ToServer, sv.MaxCopy, func(e *capture.Event) {
		if e.Cut {
			sv.rec.note(fmt.Sprintf("a frame of %d bytes from the host was lost: with restarts, frames are held as a whole, and this one is too large", e.Len))
			return
		}
		sv.queue.put(e)
	})
	newPump(sv.Stdin, func(p []byte) error { s.write(p); return nil }).run()
	s.close()
	sv.inputEnded.Store(true)
	sv.queue.close()
}

// An ending says how a server's life ended.
type outcome struct {
	restart bool
	crashed bool
	reason  string // for the errors that requests are answered with
}

// requestRestart asks for a restart. One wish is as good as several.
func (sv *supervisor) requestRestart(reason string) {
	select {
	case sv.trigger <- reason:
	default:
	}
}

// noteCrash counts a crash, and decides whether there is to be another server.
func (sv *supervisor) noteCrash(reason string) outcome {
	if time.Since(sv.instance.child.started) > sv.opts.StableAfter {
		sv.crashes, sv.backoff = 0, sv.opts.MinBackoff
	}
	sv.crashes++
	if sv.crashes > sv.opts.MaxCrashes {
		reason = fmt.Sprintf("%s; that was the failure number %d in a row", reason, sv.crashes)
		sv.rec.note("giving up: " + reason)
		return outcome{reason: reason}
	}
	return outcome{restart: true, crashed: true, reason: reason}
}

// waitBackoff waits before the next start: a while after a crash. It returns false, and the status to exit with, if there shall be none.
func (sv *supervisor) waitBackoff(ctx context.Context, end outcome) (stays bool, status int) {
	if !end.crashed {
		sv.rec.note("restarting the server: " + end.reason)
		return true, 0
	}
	sv.rec.note(fmt.Sprintf("restarting the server in %v: %s", sv.backoff, end.reason))
	timer := time.NewTimer(sv.backoff)
	defer timer.Stop()
	sv.backoff = min(2*sv.backoff, sv.opts.MaxBackoff)
	for {
		select {
		case <-timer.C:
			return true, 0
		case <-sv.trigger:
			return true, 0
		case <-sv.opts.Trigger:
			return true, 0
		case s := <-sv.Signals:
			switch {
			case s == syscall.SIGHUP && sv.opts.OnHangup:
				return true, 0
			case isTermination(s):
				return false, 128 + int(s.(syscall.Signal))
			}
		case <-ctx.Done():
			return false, 0
		case <-sv.hostGone:
			return false, 0
		}
	}
}

// untilStopped waits for f, which writes to the host, and so may take until the host reads. It returns false if the tap shall end before that.
func (sv *supervisor) untilStopped(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return true
		case s := <-sv.Signals:
			if isTermination(s) && (s != syscall.SIGHUP || !sv.opts.OnHangup) {
				return false
			}
		case <-ctx.Done():
			return false
		case <-sv.hostGone:
			return false
		}
	}
}

// isTermination reports whether a server is expected to end because of a signal.
func isTermination(s os.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGTERM
}
