package tap

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
)

// Options say what is tapped and how. Command must be set; of the others the zero value is the default.
type Options struct {
	Command []string // the program, which is looked up in PATH if it has no separator, and its arguments
	Dir     string   // its working directory; "" is ours
	Env     []string // its variables as "NAME=value"; nil is ours

	// Stdin, Stdout and Stderr are the host's side; nil means the process's own. Stdout is closed when the server's output has ended, and Stdin when the server
	// does not read any more.
	Stdin, Stdout, Stderr *os.File

	// Record gets all that passes. It is left open. nil records nothing.
	Record *capture.Writer
	// Observe is called with each event but standard error, in the order of the capture, by several goroutines but one at a time. It must return at
	// once, since the wire waits for it, and must not keep the event or its Data.
	Observe func(*capture.Event)
	// MaxCopy is how many bytes of a frame that comes in pieces are recorded; 0 is [capture.DefaultMaxPayload].
	MaxCopy int
	// Log gets notes on what the tap does besides forwarding. It may be called by several goroutines at once.
	Log func(string)

	// Signals are forwarded to the server; see [Signals].
	Signals <-chan os.Signal
	// Restart has the server started again, see the package comment. nil does not: then nothing but the server's bytes is ever written to Stdout.
	Restart *Restart
}

// hostPollInterval is how often the host is looked after.
const hostPollInterval = 250 * time.Millisecond

// Run starts the server and forwards until it has ended and all that it wrote was read. It returns the exit status that a shell would show: the server's own, or
// 128 and the number of the signal that ended it. When ctx ends, the server is ended.
//
// The error is a [*StartError]; nothing was read from Stdin then.
func Run(ctx context.Context, opts Options) (exit int, err error) {
	t := newTap(&opts)
	defer t.parent.release()
	defer t.watchHost()()
	if opts.Restart != nil {
		return t.runSupervised(ctx)
	}
	return t.runOnce(ctx)
}

// A tap is a call of Run.
type tap struct {
	*Options
	rec          *recorder
	parent       parent
	hostGone     chan struct{} // closed by hostLost
	hostGoneOnce sync.Once
	inputEnded   atomic.Bool // Stdin has ended, or was closed by us
	stdoutClosed atomic.Bool // Stdout was closed by us
}

func newTap(o *Options) *tap {
	defaultFile := func(f **os.File, std *os.File) {
		if *f == nil {
			*f = std
		}
	}
	defaultFile(&o.Stdin, os.Stdin)
	defaultFile(&o.Stdout, os.Stdout)
	defaultFile(&o.Stderr, os.Stderr)
	if o.MaxCopy <= 0 {
		o.MaxCopy = capture.DefaultMaxPayload
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return &tap{
		Options:  o,
		rec:      &recorder{w: o.Record, observe: o.Observe, log: o.Log, start: time.Now()},
		parent:   currentParent(),
		hostGone: make(chan struct{}),
	}
}

// recordStart records that a server was started.
func (t *tap) recordStart(c *child) {
	dir := t.Dir
	if dir == "" {
		dir, _ = os.Getwd() // it is only for the record
	}
	env := t.Env
	if env == nil {
		env = os.Environ()
	}
	t.rec.recordEvent(capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: t.Command, Dir: dir, Env: env, PID: c.pid}})
}

// recordExit records how it ended.
func (t *tap) recordExit(c *child) {
	exit := c.exit
	t.rec.recordEvent(capture.Event{Kind: capture.KindExit, Exit: &exit})
}

// closeStdout tells the host that there is no more.
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

// watchHost notices in the background that the host is gone, until the function that it returns is called. That our parent has died is enough: the ends of our
// pipes may be open still in other children of the host, and nothing is read of an input that the server does not take. While the input goes on, an output that
// nobody reads shows when it is written to, as it would without us.
func (t *tap) watchHost() (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(hostPollInterval)
		defer tick.Stop()
		for {
			if t.parent.gone() || t.inputEnded.Load() && !t.stdoutClosed.Load() && readerGone(t.Stdout) {
				t.hostLost("the host is gone")
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

// A run is a server that is started once.
type singleRun struct {
	*tap
	child          *child
	toServer       *pump
	toClient       *pump
	stderr         *pump
	outputRecorded chan struct{} // closed when all that came of toClient is recorded
}

// runOnce is Run without restarts.
func (t *tap) runOnce(ctx context.Context) (int, error) {
	c, err := startChild(t.Options, false)
	if err != nil {
		return 0, err
	}
	t.recordStart(c)
	var in, out *splitter // nil if nobody wants to know of frames
	if t.rec.enabled() {
		in = t.rec.newSplitter(capture.ToServer, t.MaxCopy)
		out = t.rec.newSplitter(capture.ToClient, t.MaxCopy)
	}
	r := &singleRun{
		tap: t, child: c,
		toServer:       newPump(t.Stdin, forwardTo(c.stdin, in)),
		toClient:       newPump(c.stdout, forwardTo(t.Stdout, out)),
		stderr:         newStderrPump(t.Stderr, c.stderr, t.rec.stderrLines()),
		outputRecorded: make(chan struct{}),
	}
	go r.input(in)
	go r.output(out)
	go r.stderr.run()
	r.wait(ctx)
	t.recordExit(c)
	c.goroutines.Wait()
	return exitStatus(c.exit), nil
}

// forwardTo records the frames that end in a piece, and forwards it.
func forwardTo(dst *os.File, s *splitter) func([]byte) error {
	return func(p []byte) error {
		if s != nil {
			s.write(p)
		}
		return writeAll(dst, p)
	}
}

// input sends the server what the host sends.
func (r *singleRun) input(s *splitter) {
	r.toServer.run()
	r.inputEnded.Store(true)
	if s != nil {
		s.close()
	}
	if err := r.toServer.err; err != nil {
		// The server does not read any more. The host shall see that, as it would without us.
		r.rec.note("the server has closed its input: " + err.Error())
		closeOutput(r.Stdin)
		return
	}
	r.rec.recordEOF(capture.ToServer)
	r.child.closeStdin()
}

// output sends the host what the server sends.
func (r *singleRun) output(s *splitter) {
	defer close(r.outputRecorded)
	r.toClient.run()
	if s != nil {
		s.close()
	}
	if err := r.toClient.err; err != nil {
		r.hostLost("the host has closed its end of standard output: " + err.Error())
		r.child.stdout.Close() // whoever writes to it sees what it would see without us
		return
	}
	r.rec.recordEOF(capture.ToClient)
	r.closeStdout()
}

// wait returns when the server has ended, and all that can be forwarded was.
func (r *singleRun) wait(ctx context.Context) {
	var stopping sync.WaitGroup
	defer stopping.Wait()
	var stopRequested atomic.Bool // to end
	stop := func() {
		stopRequested.Store(true)
		stopping.Go(func() { r.child.stop(stopGrace) })
	}
	canceled, hostGone := ctx.Done(), r.hostGone
	var drained chan struct{} // once the server has ended
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
				}
				r.child.forward(s)
			case isTermination(s):
				return // nothing is left that could be told
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
			drained = make(chan struct{})
			stopping.Go(func() {
				defer close(drained)
				r.toClient.drain(quit, &stopRequested)
				select {
				case <-r.toClient.ended: // its last frame and its end come before the exit
					<-r.outputRecorded
				default: // somebody else holds the pipe
				}
				r.stderr.drain(quit, &stopRequested)
			})
		case <-drained:
			return
		}
	}
}
