package tap

import (
	"context"
	"os"
	"sync"
	"sync/atomic"

	"mcpwire/capture"
)

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
