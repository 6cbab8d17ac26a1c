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
type life struct {
	*keeper
	child  *child
	n      uint64 // which, from 1: the session of what is recorded
	stdout *pump
	stderr *pump
	failed chan string   // one element: why the server is of no use
	ready  chan struct{} // closed when the replayed handshake was answered
	over   chan struct{} // closed when the life ends

	told     atomic.Bool // to end
	feeding  sync.WaitGroup
	stopping sync.WaitGroup

	// For the goroutine that forwards to the host.
	out   *splitter
	whole bool // frames are forwarded when they are complete, since some are kept from the host
	buf   []byte
	err   error
}

// begin starts to forward to and from a server.
func (k *keeper) begin(c *child) {
	l := &life{keeper: k, child: c, n: 1, failed: make(chan string, 1), ready: make(chan struct{}), over: make(chan struct{})}
	if k.life != nil {
		l.n = k.life.n + 1
	}
	k.life = l
	k.rec.session.Store(l.n)
	k.recordStart(c)
	replay := k.session.replay()
	l.whole = len(replay) > 0
	l.out = newSplitter(capture.ToClient, k.MaxCopy, l.fromServer)
	l.out.ev.Session = l.n
	l.stdout = newPump(c.stdout, l.forward)
	l.stderr = newErrPump(k.Stderr, c.stderr, k.rec.lines())
	k.queue.resume()
	go l.output()
	go l.stderr.run()
	l.feeding.Go(func() { l.feed(replay) })
}

// output sends the host what the server sends, to the end.
func (l *life) output() {
	l.stdout.run()
	if err := l.stdout.err; err != nil {
		l.loseHost("the host has closed its end of standard output: " + err.Error())
	}
}

// forward forwards a piece of the server's output, or the frames that end in it if some must be kept from the host.
func (l *life) forward(p []byte) error {
	if l.whole && !l.out.partial() {
		l.whole, _ = l.session.owes()
	}
	if l.whole {
		l.err = nil
		l.out.write(p)
		return l.err
	}
	l.out.write(p)
	return writeAll(l.Stdout, p)
}

// fromServer takes a frame of the server.
func (l *life) fromServer(e *capture.Event) {
	v := l.session.fromServer(e)
	if v.keep {
		l.rec.note("kept from the host: the answer to what was sent again")
	}
	l.rec.record(e)
	switch {
	case v.ready && v.refused:
		l.unfit("the new server has refused the handshake")
	case v.ready:
		l.changes(v.result)
		close(l.ready)
	case !v.keep && l.whole && e.Cut:
		l.rec.note(fmt.Sprintf("a frame of %d bytes was lost: too large to be held back during the handshake", e.Len))
	case !v.keep && l.whole && l.err == nil:
		l.buf = appendRaw(l.buf[:0], e)
		l.err = writeAll(l.Stdout, l.buf)
	}
}

// unfit says that the server is of no use.
func (l *life) unfit(reason string) {
	select {
	case l.failed <- reason:
	default:
	}
}

// feed sends the server what is to be sent again, then what the host sends.
func (l *life) feed(replay []*capture.Event) {
	if len(replay) > 0 {
		l.rec.note("sending the handshake again")
	}
	for i, e := range replay {
		if !l.deliver([]capture.Event{*e}, true) {
			return
		}
		if i == 0 {
			select {
			case <-l.ready:
			case <-l.over:
				return
			}
		}
	}
	for {
		frames, done := l.queue.take()
		switch {
		case done:
			l.rec.end(capture.ToServer)
			l.child.closeStdin()
			return
		case len(frames) == 0 || !l.deliver(frames, false):
			return
		}
	}
}

// deliver sends frames to the server. It returns false if the server does not take them.
func (l *life) deliver(frames []capture.Event, again bool) bool {
	var buf []byte
	for i := range frames {
		e := &frames[i]
		e.Session = l.n
		if !again {
			if late := l.session.toServer(e); late != nil {
				l.rec.note("dropped the answer of the host to request " + printable(late) + " of a server before this one: " + printable(e.Data))
				continue
			}
		}
		l.rec.record(e)
		buf = appendRaw(buf, e)
		e.Data = nil
	}
	_, err := l.child.stdin.Write(buf)
	return err == nil
}

// drain waits until all that the server wrote was forwarded, or quit is closed, and reports which. The server has ended.
func (l *life) drain(quit <-chan struct{}) (done bool) {
	l.queue.pause()
	close(l.over)
	l.child.closeStdin() // ends a write that waits
	l.feeding.Wait()
	done = l.stdout.drain(quit, &l.told)
	return l.stderr.drain(quit, &l.told) && done
}

// close ends what is left of a life: reads of pipes that somebody holds open, and a frame that was begun.
func (l *life) close(ctx context.Context, abandon bool) {
	_ = l.child.stdout.SetReadDeadline(time.Unix(1, 0)) // on Windows there is none, and nobody who could hold a pipe
	_ = l.child.stderr.SetReadDeadline(time.Unix(1, 0))
	if !abandon {
		<-l.stdout.ended
		<-l.stderr.ended
		if !l.unlessTold(ctx, l.endFrame) {
			l.told.Store(true)
		}
		l.rec.end(capture.ToClient)
	}
	l.recordExit(l.child)
	l.stopping.Wait()
	l.child.owned.Wait()
	l.child.closePipes()
}

// endFrame ends a frame that the server has begun, so that what is sent next is not taken for a part of it.
func (l *life) endFrame() {
	if !l.out.partial() || l.stdout.err != nil {
		return
	}
	inBody, left := l.out.state == inBody, l.out.left
	l.out.close() // which forwards it, if it was held back
	switch {
	case !inBody:
		l.rec.note("ended the line that the server has left unfinished")
		_ = writeAll(l.Stdout, []byte{'\n'}) // should it fail, so does what comes next
	case left <= maxPadding:
		l.rec.note(fmt.Sprintf("filled the body that the server has left unfinished with %d spaces", left))
		_ = writeAll(l.Stdout, bytes.Repeat([]byte{' '}, int(left)))
	default:
		l.loseHost("the server has left a body unfinished that is too large to be filled")
	}
}
