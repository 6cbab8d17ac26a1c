package tap

import (
	"os"
	"strconv"
	"sync"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/trace/splitter"
	"mcpwire/internal/text/clip"
)

// An interceptor forwards both directions of a session frame by frame, and holds some. The capture
// has two sides, as that of a bridge: what was received, what was forwarded, and how they relate.
type interceptor struct {
	rec         *recorder
	breakpoints *intercept.Breakpoints
	matcher     *intercept.Matcher
	toServer    *heldDirection
	toClient    *heldDirection
}

// The sessions of the two sides in the capture.
const (
	hostSession   = 1
	serverSession = 2
)

// maxHeldFrame limits a frame that can be held, in bytes. Longer ones are forwarded as they arrive.
const maxHeldFrame = 8 << 20

// newInterceptor returns the interceptor of a session.
func newInterceptor(t *tap, c *child) *interceptor {
	// What belongs to the process is on the server's side.
	t.rec.setSide(capture.Upstream, serverSession)
	ic := &interceptor{rec: t.rec, breakpoints: t.Breakpoints, matcher: t.Breakpoints.NewMatcher(t.Name)}
	host, server := &frameWriter{dst: t.Stdout}, &frameWriter{dst: c.stdin}
	ic.toServer = &heldDirection{interceptor: ic, out: server, back: host, stop: make(chan struct{})}
	ic.toClient = &heldDirection{interceptor: ic, out: host, back: server, stop: make(chan struct{})}
	ic.toServer.opposite, ic.toClient.opposite = ic.toClient, ic.toServer
	ic.toServer.frames = splitter.New(capture.ToServer, maxCopy, ic.toServer.frame)
	ic.toClient.frames = splitter.New(capture.ToClient, maxCopy, ic.toClient.frame)
	return ic
}

// stopHolding passes on what is held, and holds nothing more.
func (ic *interceptor) stopHolding() {
	ic.toServer.stopOnce.Do(func() { close(ic.toServer.stop) })
	ic.toClient.stopOnce.Do(func() { close(ic.toClient.stop) })
}

// serverEnded passes on what is held for the server, which has ended.
func (ic *interceptor) serverEnded() {
	ic.toServer.stopOnce.Do(func() { close(ic.toServer.stop) })
}

// A frameWriter writes whole frames to one side.
type frameWriter struct {
	dst *os.File
	// mu is held while a frame is written, even if it is written in pieces.
	mu sync.Mutex
}

func (w *frameWriter) write(p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return writeAll(w.dst, p)
}

// A heldDirection forwards one direction. One goroutine owns it, except stop.
type heldDirection struct {
	*interceptor
	frames *splitter.Splitter
	// out is where frames go; back is where their sender reads.
	out, back *frameWriter
	// pending[at:] has bytes that were not forwarded: from the beginning of a frame or, if streamed
	// is positive, from somewhere inside a frame.
	pending []byte
	at      int64
	// streamed counts the bytes of the current frame that were forwarded before its end. out is
	// locked if it is positive.
	streamed int64
	err      error

	stop     chan struct{}
	stopOnce sync.Once
	// answers are the writes of answers to back. A peer that waits until its own output is read
	// may not read them yet, so the direction does not wait for them.
	answers sync.WaitGroup
	// answersMu keeps answers from beginning while someone waits for their end.
	answersMu sync.Mutex
	// opposite is the other direction.
	opposite *heldDirection
}

// forward forwards the frames that end in a piece of the stream.
func (d *heldDirection) forward(p []byte) error {
	if d.err != nil {
		return d.err
	}
	d.pending = append(d.pending[:copy(d.pending, d.pending[d.at:])], p...)
	d.at = 0
	d.frames.Write(p)
	left := d.pending[d.at:]
	if d.err == nil && (d.streamed > 0 || len(left) > maxHeldFrame) && len(left) > 0 {
		if d.streamed == 0 {
			d.out.mu.Lock()
		}
		d.streamed += int64(len(left))
		d.err = writeAll(d.out.dst, left)
		d.pending, d.at = d.pending[:0], 0
	}
	if d.err != nil && d.streamed > 0 {
		d.streamed = 0
		d.out.mu.Unlock()
	}
	return d.err
}

// close forwards a frame without an end, and waits for answers to the same side.
func (d *heldDirection) close() {
	d.frames.Close()
	if d.streamed > 0 {
		d.streamed = 0
		d.out.mu.Unlock()
	}
	d.opposite.answersMu.Lock()
	defer d.opposite.answersMu.Unlock()
	d.opposite.answers.Wait()
}

// frame handles a complete frame.
func (d *heldDirection) frame(e *capture.Event) {
	if d.err != nil {
		return
	}
	size := frameSize(e)
	if d.streamed > 0 {
		d.record(e, d.received(e), "forwarded")
		d.err = writeAll(d.out.dst, d.take(size-d.streamed))
		d.streamed = 0
		d.out.mu.Unlock()
		return
	}
	n, wire := d.received(e), d.take(size)
	if m := d.match(e, n); m.Hold {
		d.release(e, n, wire, d.breakpoints.Hold(m.HeldMessage, d.stop), m)
	} else {
		d.record(e, n, "forwarded")
		d.err = d.out.write(wire)
	}
}

// take returns the next size bytes. They are valid until the next piece of the stream.
func (d *heldDirection) take(size int64) []byte {
	d.at += size
	return d.pending[d.at-size : d.at]
}

// frameSize returns the bytes of a frame in its stream.
func frameSize(e *capture.Event) int64 {
	size := int64(len(e.Prefix)) + e.Len
	switch e.Framing {
	case capture.FramingLF:
		size++
	case capture.FramingCRLF:
		size += 2
	}
	return size
}

// received records a frame on the side of its sender.
func (d *heldDirection) received(e *capture.Event) uint64 {
	return d.recordOn(e, e.Dir == capture.ToServer)
}

// record records a frame on the side where it goes, and that it was made of event n.
func (d *heldDirection) record(e *capture.Event, n uint64, rule string) {
	d.link(n, d.recordOn(e, e.Dir == capture.ToClient), rule)
}

// recordOn records a frame on the host's or the server's side.
func (d *heldDirection) recordOn(e *capture.Event, host bool) uint64 {
	own := *e
	own.Side, own.Session = capture.Upstream, serverSession
	if host {
		own.Side, own.Session = capture.Downstream, hostSession
	}
	return d.rec.record(&own)
}

func (d *heldDirection) link(from, to uint64, rule string) {
	if from != 0 && to != 0 {
		d.rec.record(&capture.Event{Kind: capture.KindTranslate, Session: hostSession, Translation: &capture.Translation{Of: from, To: []uint64{to}, Rule: rule}})
	}
}

// match reports whether to hold a frame.
func (d *heldDirection) match(e *capture.Event, n uint64) intercept.Match {
	select {
	case <-d.stop:
		return intercept.Match{}
	default:
		return d.matcher.Match(e, n)
	}
}

// release does what was decided about a frame with these bytes.
func (d *heldDirection) release(e *capture.Event, n uint64, wire []byte, r intercept.Release, m intercept.Match) {
	d.rec.note("held " + clip.String(m.What(), maxNoted) + ", event " + strconv.FormatUint(n, 10) + ": " + r.Note)
	if r.HoldResponse && !m.Response {
		m.HoldResponse()
	}
	switch r.Action {
	case live.Drop:
		return
	case live.Answer:
		answer := newFrame(e, r.Data)
		answer.Dir = capture.ToClient
		if e.Dir == capture.ToClient {
			answer.Dir = capture.ToServer
		}
		d.link(n, d.recordOn(answer, answer.Dir == capture.ToClient), r.Rule)
		text := splitter.AppendRaw(nil, answer)
		// If the sender does not read anymore, its own direction notices that too.
		d.answersMu.Lock()
		d.answers.Go(func() { _ = d.back.write(text) })
		d.answersMu.Unlock()
		d.matcher.Add(answer)
	case live.Edit:
		edited := newFrame(e, r.Data)
		d.record(edited, n, r.Rule)
		d.err = d.out.write(splitter.AppendRaw(nil, edited))
	default:
		d.record(e, n, r.Rule)
		d.err = d.out.write(wire)
	}
}

// newFrame returns a frame like e with other data.
func newFrame(e *capture.Event, data string) *capture.Event {
	f := &capture.Event{Kind: capture.KindMessage, Dir: e.Dir, Data: []byte(data), Len: int64(len(data)), Framing: e.Framing}
	switch e.Framing {
	case capture.FramingHeader:
		f.Prefix = "Content-Length: " + strconv.Itoa(len(data)) + "\r\n\r\n"
	case capture.FramingNone:
		f.Framing = capture.FramingLF
	}
	return f
}
