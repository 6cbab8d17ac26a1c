package tap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/cmd/internal/trace/splitter"
	"mcpwire/internal/base/hooks"
)

// Options configure a tap. Command is required; the zero value of each other field is its default.
type Options struct {
	// Command is the program and its arguments. A program without a path separator is looked up in
	// PATH.
	Command []string
	// Dir is the server's working directory. Empty means that of this process.
	Dir string
	// Env is the server's environment as "NAME=value". nil means that of this process.
	Env []string

	// Stdin, Stdout and Stderr are the host's side. nil means those of this process. The tap closes
	// Stdout when the server's output has ended, and Stdin when the server stops reading.
	Stdin, Stdout, Stderr *os.File

	// Record receives all traffic. The tap does not close it. nil records nothing.
	Record *capture.Writer
	// Hooks are those of Record. nil means that Record has none and copies large frames.
	Hooks *hooks.Writer[capture.Event]
	// Observe is called with each event except standard error, in the order of the capture, by
	// several goroutines but one at a time. It must return at once, since the traffic waits for it,
	// and must not keep the event or its Data. nil means no call.
	Observe func(*capture.Event)
	// Logger logs what the tap does in addition to forwarding. nil discards it.
	Logger *slog.Logger

	// Signals are forwarded to the server; see [Signals].
	Signals <-chan os.Signal
	// Restart enables restarts of the server, see the package comment. nil disables them; the tap
	// then writes nothing but the server's bytes to Stdout.
	Restart *Restart
	// Breakpoints hold some messages. nil holds none, and forwards bytes as they arrive. They
	// cannot be combined with Restart.
	Breakpoints *intercept.Breakpoints
	// Name is the name of the server for the filter of Breakpoints.
	Name string
}

// maxCopy limits the recorded bytes of a frame that arrives in pieces.
const maxCopy = 64 << 20

// hostPollInterval is the time between two checks that the host still exists.
const hostPollInterval = 250 * time.Millisecond

// Run starts the server and forwards until it has ended and all its output was read. It returns the
// exit status that a shell would show: the server's own, or 128 plus the number of the signal that
// ended it. When ctx ends, Run ends the server.
//
// The error is a [*StartError]; Run has not read from Stdin then.
func Run(ctx context.Context, opts Options) (exit int, err error) {
	t := newTap(&opts)
	defer t.parent.release()
	defer t.watchHost()()
	run := t.runOnce
	if opts.Restart != nil {
		run = t.runSupervised
	}
	if exit, err = run(ctx); err != nil {
		t.rec.note(err.Error()) // many hosts drop standard error
	}
	return exit, err
}

// A tap is the state of one call of Run.
type tap struct {
	*Options
	rec    *recorder
	parent parent
	// hostGone is closed by hostLost.
	hostGone     chan struct{}
	hostGoneOnce sync.Once
	// inputEnded reports that Stdin has ended or the tap closed it.
	inputEnded atomic.Bool
	// stdoutClosed reports that the tap closed Stdout.
	stdoutClosed atomic.Bool
}

func newTap(o *Options) *tap {
	o.Stdin, o.Stdout, o.Stderr = cmp.Or(o.Stdin, os.Stdin), cmp.Or(o.Stdout, os.Stdout), cmp.Or(o.Stderr, os.Stderr)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &tap{
		Options:  o,
		rec:      &recorder{w: o.Record, hooks: o.Hooks, observe: o.Observe, log: o.Logger, start: time.Now()},
		parent:   currentParent(),
		hostGone: make(chan struct{}),
	}
}

// recordStart records the start of a server.
func (t *tap) recordStart(c *child) {
	dir := t.Dir
	if dir == "" {
		dir, _ = os.Getwd() // only for the record
	}
	env := t.Env
	if env == nil {
		env = os.Environ()
	}
	t.rec.recordEvent(capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: t.Command, Dir: dir, Env: env, PID: c.pid}})
}

// recordExit records the end of a server.
func (t *tap) recordExit(c *child) {
	exit := c.exit
	t.rec.recordEvent(capture.Event{Kind: capture.KindExit, Exit: &exit})
}

// closeStdout closes the host's input.
func (t *tap) closeStdout() {
	t.stdoutClosed.Store(true)
	closeOutput(t.Stdout)
}

func (t *tap) hostLost(note string) {
	t.hostGoneOnce.Do(func() {
		t.rec.note(note)
		close(t.hostGone)
	})
}

// outputLost handles an error of writing to the host. Usually the host has closed its end. Nobody
// knows of a full disk otherwise.
func (t *tap) outputLost(err error) {
	full := slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO}, func(e error) bool { return errors.Is(err, e) })
	if !full {
		t.hostLost("the host has closed its end of standard output: " + err.Error())
		return
	}
	t.hostLost("writing to the host failed: " + err.Error())
	fmt.Fprintln(t.Stderr, "mcpwire: writing to the host failed:", err)
}

// watchHost checks in the background that the host still exists, until the returned function is
// called. The death of the parent is sufficient evidence: other children of the host may keep the
// pipes open, and the tap does not read input that the server does not take. While the input is
// open, only a write detects an output without a reader, as it would without the tap.
func (t *tap) watchHost() (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(hostPollInterval)
		defer tick.Stop()
		for {
			if t.parent.gone() || t.inputEnded.Load() && !t.stdoutClosed.Load() && readerGone(t.Stdout) {
				t.hostLost("the host disconnected")
				return
			}
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}

// A singleRun is a server that is started once.
type singleRun struct {
	*tap
	child    *child
	toServer *pump
	toClient *pump
	stderr   *pump
	// outputRecorded is closed when all output of toClient is recorded.
	outputRecorded chan struct{}
	// intercepted is nil without breakpoints.
	intercepted *interceptor
}

// runOnce is Run without restarts.
func (t *tap) runOnce(ctx context.Context) (int, error) {
	c, err := startChild(t.Options, false)
	if err != nil {
		return 0, err
	}
	r := &singleRun{tap: t, child: c, outputRecorded: make(chan struct{})}
	var endInput, endOutput func()
	if t.Breakpoints != nil {
		ic := newInterceptor(t, c)
		r.intercepted = ic
		r.toServer, endInput = newPump(t.Stdin, ic.toServer.forward), ic.toServer.close
		r.toClient, endOutput = newPump(c.stdout, ic.toClient.forward), ic.toClient.close
	} else {
		var in, out *splitter.Splitter // nil if nobody needs frames
		endInput, endOutput = func() {}, func() {}
		if t.rec.enabled() {
			in, out = t.rec.newSplitter(capture.ToServer, maxCopy), t.rec.newSplitter(capture.ToClient, maxCopy)
			endInput, endOutput = in.Close, out.Close
		}
		r.toServer, r.toClient = newPump(t.Stdin, forwardTo(c.stdin, in)), newPump(c.stdout, forwardTo(t.Stdout, out))
	}
	t.recordStart(c)
	r.stderr = newStderrPump(t.Stderr, c.stderr, t.rec.stderrLines())
	go r.input(endInput)
	go r.output(endOutput)
	go r.stderr.run()
	r.wait(ctx)
	t.recordExit(c)
	c.goroutines.Wait()
	return exitStatus(c.exit), nil
}

// forwardTo returns a function that records the frames that end in a piece, and forwards the piece.
func forwardTo(dst *os.File, s *splitter.Splitter) func([]byte) error {
	return func(p []byte) error {
		if s != nil {
			s.Write(p)
		}
		return writeAll(dst, p)
	}
}

// input forwards from the host to the server. end handles a frame without an end.
func (r *singleRun) input(end func()) {
	r.toServer.run()
	r.inputEnded.Store(true)
	end()
	if err := r.toServer.err; err != nil {
		// The server does not read anymore. Show that to the host, as it would see it without the
		// tap.
		r.rec.note("the server has closed its input: " + err.Error())
		closeOutput(r.Stdin)
		return
	}
	r.rec.recordEOF(capture.ToServer)
	r.child.closeStdin()
}

// output forwards from the server to the host. end handles a frame without an end.
func (r *singleRun) output(end func()) {
	defer close(r.outputRecorded)
	r.toClient.run()
	end()
	if err := r.toClient.err; err != nil {
		r.outputLost(err)
		// The writers see the closed pipe that they would see without the tap.
		r.child.stdout.Close()
		return
	}
	r.rec.recordEOF(capture.ToClient)
	r.closeStdout()
}

// wait returns when the server has ended and all its output was forwarded, as far as possible.
func (r *singleRun) wait(ctx context.Context) {
	var stopping sync.WaitGroup
	defer stopping.Wait()
	var stopRequested atomic.Bool
	stopHolding := func() {
		if r.intercepted != nil {
			r.intercepted.stopHolding()
		}
	}
	defer stopHolding()
	stop := func() {
		stopRequested.Store(true)
		stopHolding()
		stopping.Go(func() { r.child.stop(stopGrace) })
	}
	canceled, hostGone := ctx.Done(), r.hostGone
	var drained chan struct{} // non-nil after the server has ended
	quit := make(chan struct{})
	defer close(quit)
	ended := r.child.done
	for {
		select {
		case s := <-r.Signals:
			switch {
			case drained == nil:
				if isTermination(s) {
					stopRequested.Store(true)
					stopHolding()
				}
				r.child.forward(s)
			case isTermination(s):
				return // no process is left to signal
			}
		case <-canceled:
			if drained != nil {
				return
			}
			canceled = nil
			stop()
		case <-hostGone:
			if drained != nil {
				return
			}
			hostGone = nil
			stop()
		case <-ended:
			ended = nil
			if r.intercepted != nil {
				r.intercepted.serverEnded()
			}
			drained = make(chan struct{})
			stopping.Go(func() {
				defer close(drained)
				r.toClient.drain(quit, &stopRequested)
				select {
				case <-r.toClient.ended: // the last frame and EOF precede the exit
					<-r.outputRecorded
				default: // another process holds the pipe
				}
				r.stderr.drain(quit, &stopRequested)
			})
		case <-drained:
			return
		}
	}
}
