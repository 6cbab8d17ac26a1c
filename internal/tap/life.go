package tap

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
)

// maxPadding is how many bytes of a body may be made up so that the host finds the next frame.
const maxPadding = 64 << 20

// A life is that of one server of a keeper.
type instance struct {
	*supervisor
	child  *child
	n      uint64 // which, from 1: the session of what is recorded
	stdout *pump
	stderr *pump
	failed chan string   // one element: why the server is of no use
	ready  chan struct{} // closed when the replayed handshake was answered
	done   chan struct{} // closed when the life ends

	stopRequested atomic.Bool // to end
	feeding       sync.WaitGroup
	stopping      sync.WaitGroup

	// For the goroutine that forwards to the host.
	out         *splitter
	wholeFrames bool // frames are forwarded when they are complete, since some are kept from the host
	buf         []byte
	err         error
}

// startInstance starts to forward to and from a server.
func (sv *supervisor) startInstance(c *child) {
	in := &instance{supervisor: sv, child: c, n: 1, failed: make(chan string, 1), ready: make(chan struct{}), done: make(chan struct{})}
	if sv.instance != nil {
		in.n = sv.instance.n + 1
	}
	sv.instance = in
	sv.rec.session.Store(in.n)
	sv.recordStart(c)
	replay := sv.state.replay()
	in.wholeFrames = len(replay) > 0
	in.out = newSplitter(capture.ToClient, sv.MaxCopy, in.handleServerFrame)
	in.out.event.Session = in.n
	in.stdout = newPump(c.stdout, in.forward)
	in.stderr = newStderrPump(sv.Stderr, c.stderr, sv.rec.stderrLines())
	sv.queue.resume()
	go in.output()
	go in.stderr.run()
	in.feeding.Go(func() { in.feed(replay) })
}

// output sends the host what the server sends, to the end.
func (in *instance) output() {
	in.stdout.run()
	if err := in.stdout.err; err != nil {
		in.hostLost("the host has closed its end of standard output: " + err.Error())
	}
}

// forward forwards a piece of the server's output, or the frames that end in it if some must be kept from the host.
func (in *instance) forward(p []byte) error {
	if in.wholeFrames && !in.out.partial() {
		in.wholeFrames, _ = in.state.awaitsReplay()
	}
	if in.wholeFrames {
		in.err = nil
		in.out.write(p)
		return in.err
	}
	in.out.write(p)
	return writeAll(in.Stdout, p)
}

// handleServerFrame takes a frame of the server.
func (in *instance) handleServerFrame(e *capture.Event) {
	d := in.state.handleServerFrame(e)
	if d.withhold {
		in.rec.note("kept from the host: the answer to what was sent again")
	}
	in.rec.record(e)
	switch {
	case d.ready && d.refused:
		in.reportFailure("the new server has refused the handshake")
	case d.ready:
		in.notifyListChanged(d.result)
		close(in.ready)
	case !d.withhold && in.wholeFrames && e.Cut:
		in.rec.note(fmt.Sprintf("a frame of %d bytes was lost: too large to be held back during the handshake", e.Len))
	case !d.withhold && in.wholeFrames && in.err == nil:
		in.buf = appendRaw(in.buf[:0], e)
		in.err = writeAll(in.Stdout, in.buf)
	}
}

// reportFailure says that the server is of no use.
func (in *instance) reportFailure(reason string) {
	select {
	case in.failed <- reason:
	default:
	}
}

// feed sends the server what is to be sent again, then what the host sends.
func (in *instance) feed(replay []*capture.Event) {
	if len(replay) > 0 {
		in.rec.note("sending the handshake again")
	}
	for i, e := range replay {
		if !in.deliver([]capture.Event{*e}, true) {
			return
		}
		if i == 0 {
			select {
			case <-in.ready:
			case <-in.done:
				return
			}
		}
	}
	for {
		frames, done := in.queue.take()
		switch {
		case done:
			in.rec.recordEOF(capture.ToServer)
			in.child.closeStdin()
			return
		case len(frames) == 0 || !in.deliver(frames, false):
			return
		}
	}
}

// deliver sends frames to the server. It returns false if the server does not take them.
func (in *instance) deliver(frames []capture.Event, replayed bool) bool {
	var buf []byte
	for i := range frames {
		e := &frames[i]
		e.Session = in.n
		if !replayed {
			if late := in.state.handleHostFrame(e); late != nil {
				in.rec.note("dropped the answer of the host to request " + printable(late) + " of a server before this one: " + printable(e.Data))
				continue
			}
		}
		in.rec.record(e)
		buf = appendRaw(buf, e)
		e.Data = nil
	}
	_, err := in.child.stdin.Write(buf)
	return err == nil
}

// drain waits until all that the server wrote was forwarded, or quit is closed, and reports which. The server has ended.
func (in *instance) drain(quit <-chan struct{}) (done bool) {
	in.queue.pause()
	close(in.done)
	in.child.closeStdin() // ends a write that waits
	in.feeding.Wait()
	done = in.stdout.drain(quit, &in.stopRequested)
	return in.stderr.drain(quit, &in.stopRequested) && done
}

// close ends what is left of a life: reads of pipes that somebody holds open, and a frame that was begun.
func (in *instance) close(ctx context.Context, abandon bool) {
	_ = in.child.stdout.SetReadDeadline(time.Unix(1, 0)) // on Windows there is none, and nobody who could hold a pipe
	_ = in.child.stderr.SetReadDeadline(time.Unix(1, 0))
	if !abandon {
		<-in.stdout.ended
		<-in.stderr.ended
		if !in.untilStopped(ctx, in.endFrame) {
			in.stopRequested.Store(true)
		}
		in.rec.recordEOF(capture.ToClient)
	}
	in.recordExit(in.child)
	in.stopping.Wait()
	in.child.goroutines.Wait()
	in.child.closePipes()
}

// endFrame ends a frame that the server has begun, so that what is sent next is not taken for a part of it.
func (in *instance) endFrame() {
	if !in.out.partial() || in.stdout.err != nil {
		return
	}
	inBody, left := in.out.state == inBody, in.out.bodyLeft
	in.out.close() // which forwards it, if it was held back
	switch {
	case !inBody:
		in.rec.note("ended the line that the server has left unfinished")
		_ = writeAll(in.Stdout, []byte{'\n'}) // should it fail, so does what comes next
	case left <= maxPadding:
		in.rec.note(fmt.Sprintf("filled the body that the server has left unfinished with %d spaces", left))
		_ = writeAll(in.Stdout, bytes.Repeat([]byte{' '}, int(left)))
	default:
		in.hostLost("the server has left a body unfinished that is too large to be filled")
	}
}
