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

func (r *Restart) defaults() Restart {
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

// restartPatience is how long a server that is to be replaced may take to end when its input has ended.
const restartPatience = 500 * time.Millisecond

// A keeper keeps the host's connection while servers come and go.
type keeper struct {
	*tap
	opts    Restart
	session *session
	queue   *queue
	trigger chan string // one element

	life    *life // the server's that runs, or ran last
	crashes int   // in a row
	backoff time.Duration
}

// runRestarting is Run with restarts.
func (t *tap) runRestarting(ctx context.Context) (int, error) {
	k := &keeper{tap: t, opts: t.Restart.defaults(), session: newSession(), queue: newQueue(), trigger: make(chan string, 1)}
	k.backoff = k.opts.MinBackoff
	c, err := startChild(t.Options, true)
	if err != nil {
		return 0, err
	}
	stop := k.watch(k.opts.Globs)
	defer stop()
	go k.input()
	for {
		k.begin(c)
		end := k.attend(ctx)
		code := exitStatus(c.exit)
		if c, code = k.next(ctx, end, code); c == nil {
			return code, nil
		}
	}
}

// next starts another server, if there is to be one. Otherwise it takes leave of the host, and returns the exit status.
func (k *keeper) next(ctx context.Context, end ending, code int) (*child, int) {
	for end.restart && !k.queue.finished() {
		if !k.unlessTold(ctx, func() { k.newLife(end.reason) }) {
			return nil, code
		}
		if stays, status := k.pause(ctx, end); !stays {
			end.restart, code = false, max(code, status)
			break
		}
		c, err := startChild(k.Options, true)
		if err == nil {
			return c, 0
		}
		end = k.crash(err.Error())
	}
	if end.reason != "" {
		if !k.unlessTold(ctx, func() { k.giveUp(end.reason) }) {
			return nil, code
		}
	}
	k.queue.leave()
	k.closeStdout()
	return nil, code
}

// input queues what the host sends.
func (k *keeper) input() {
	s := newSplitter(capture.ToServer, k.MaxCopy, func(e *capture.Event) {
		if e.Cut {
			k.rec.note(fmt.Sprintf("a frame of %d bytes from the host was lost: with restarts, frames are held as a whole, and this one is too large", e.Len))
			return
		}
		k.queue.put(e)
	})
	newPump(k.Stdin, func(p []byte) error { s.write(p); return nil }).run()
	s.close()
	k.inputEnd.Store(true)
	k.queue.close()
}

// An ending says how a server's life ended.
type ending struct {
	restart bool
	crashed bool
	reason  string // for the errors that requests are answered with
}

// wish asks for a restart. One wish is as good as several.
func (k *keeper) wish(reason string) {
	select {
	case k.trigger <- reason:
	default:
	}
}

// crash counts a crash, and decides whether there is to be another server.
func (k *keeper) crash(reason string) ending {
	if time.Since(k.life.child.begun) > k.opts.StableAfter {
		k.crashes, k.backoff = 0, k.opts.MinBackoff
	}
	k.crashes++
	if k.crashes > k.opts.MaxCrashes {
		reason = fmt.Sprintf("%s; that was the failure number %d in a row", reason, k.crashes)
		k.rec.note("giving up: " + reason)
		return ending{reason: reason}
	}
	return ending{restart: true, crashed: true, reason: reason}
}

// pause waits before the next start: a while after a crash. It returns false, and the status to exit with, if there shall be none.
func (k *keeper) pause(ctx context.Context, end ending) (stays bool, status int) {
	if !end.crashed {
		k.rec.note("restarting the server: " + end.reason)
		return true, 0
	}
	k.rec.note(fmt.Sprintf("restarting the server in %v: %s", k.backoff, end.reason))
	timer := time.NewTimer(k.backoff)
	defer timer.Stop()
	k.backoff = min(2*k.backoff, k.opts.MaxBackoff)
	for {
		select {
		case <-timer.C:
			return true, 0
		case <-k.trigger:
			return true, 0
		case <-k.opts.Trigger:
			return true, 0
		case s := <-k.Signals:
			switch {
			case s == syscall.SIGHUP && k.opts.OnHangup:
				return true, 0
			case ends(s):
				return false, 128 + int(s.(syscall.Signal))
			}
		case <-ctx.Done():
			return false, 0
		case <-k.hostGone:
			return false, 0
		}
	}
}

// unlessTold waits for f, which writes to the host, and so may take until the host reads. It returns false if the tap shall end before that.
func (k *keeper) unlessTold(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return true
		case s := <-k.Signals:
			if ends(s) && (s != syscall.SIGHUP || !k.opts.OnHangup) {
				return false
			}
		case <-ctx.Done():
			return false
		case <-k.hostGone:
			return false
		}
	}
}

// ends reports whether a server is expected to end because of a signal.
func ends(s os.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGTERM
}
