package tap

import (
	"context"
	"os"
	"sync"
	"sync/atomic"

	"mcpwire/capture"
)

// A run is a server that is started once.
type run struct {
	*tap
	child    *child
	toServer *pump
	toClient *pump
	stderr   *pump
	said     chan struct{} // closed when all that came of toClient is recorded
}

// runOnce is Run without restarts.
func (t *tap) runOnce(ctx context.Context) (int, error) {
	c, err := startChild(t.Options, false)
	if err != nil {
		return 0, err
	}
	t.recordStart(c)
	var in, out *splitter // nil if nobody wants to know of frames
	if t.rec.active() {
		in = t.rec.splitter(capture.ToServer, t.MaxCopy)
		out = t.rec.splitter(capture.ToClient, t.MaxCopy)
	}
	r := &run{
		tap: t, child: c,
		toServer: newPump(t.Stdin, forwardTo(c.stdin, in)),
		toClient: newPump(c.stdout, forwardTo(t.Stdout, out)),
		stderr:   newErrPump(t.Stderr, c.stderr, t.rec.lines()),
		said:     make(chan struct{}),
	}
	go r.input(in)
	go r.output(out)
	go r.stderr.run()
	r.await(ctx)
	t.recordExit(c)
	c.owned.Wait()
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
func (r *run) input(s *splitter) {
	r.toServer.run()
	r.inputEnd.Store(true)
	if s != nil {
		s.close()
	}
	if err := r.toServer.err; err != nil {
		// The server does not read any more. The host shall see that, as it would without us.
		r.rec.note("the server has closed its input: " + err.Error())
		closeOutput(r.Stdin)
		return
	}
	r.rec.end(capture.ToServer)
	r.child.closeStdin()
}

// output sends the host what the server sends.
func (r *run) output(s *splitter) {
	defer close(r.said)
	r.toClient.run()
	if s != nil {
		s.close()
	}
	if err := r.toClient.err; err != nil {
		r.loseHost("the host has closed its end of standard output: " + err.Error())
		r.child.stdout.Close() // whoever writes to it sees what it would see without us
		return
	}
	r.rec.end(capture.ToClient)
	r.closeStdout()
}

// await returns when the server has ended, and all that can be forwarded was.
func (r *run) await(ctx context.Context) {
	var stopping sync.WaitGroup
	defer stopping.Wait()
	var told atomic.Bool // to end
	stop := func() {
		told.Store(true)
		stopping.Go(func() { r.child.stop(stopWait) })
	}
	cancelled, gone := ctx.Done(), r.hostGone
	var drained chan struct{} // once the server has ended
	quit := make(chan struct{})
	defer close(quit)
	ended := r.child.done
	for {
		select {
		case s := <-r.Signals:
			switch {
			case drained == nil:
				if ends(s) {
					told.Store(true)
				}
				r.child.forward(s)
			case ends(s):
				return // nothing is left that could be told
			}
		case <-cancelled:
			if drained != nil {
				return
			}
			cancelled = nil
			stop()
		case <-gone:
			if drained != nil {
				return
			}
			gone = nil
			stop()
		case <-ended:
			ended = nil
			drained = make(chan struct{})
			stopping.Go(func() {
				defer close(drained)
				r.toClient.drain(quit, &told)
				select {
				case <-r.toClient.ended: // its last frame and its end come before the exit
					<-r.said
				default: // somebody else holds the pipe
				}
				r.stderr.drain(quit, &told)
			})
		case <-drained:
			return
		}
	}
}
