package tap

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/splitter"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/resume"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// Restart configures restarts of the server. The zero value of each limit means its default.
type Restart struct {
	// OnCrash restarts the server if it ends while the host's input is open.
	OnCrash bool
	// OnHangup restarts the server on SIGHUP, which is then not forwarded.
	OnHangup bool
	// Globs restarts the server when a matching file changes. "**" matches any number of folders.
	Globs []string
	// Trigger restarts the server; the values are the reasons. nil means none.
	Trigger <-chan string

	// MinBackoff is the delay before the first restart after a crash. It doubles with each
	// consecutive crash. Zero means 200 ms.
	MinBackoff time.Duration
	// MaxBackoff limits the delay. Zero means 10 s.
	MaxBackoff time.Duration
	// StableAfter is the run time after which a crash does not count as consecutive. Zero means 30
	// s.
	StableAfter time.Duration
	// MaxCrashes is the number of consecutive crashes after which another one ends the tap. Zero
	// means 8.
	MaxCrashes int
	// ReadyWithin limits the time of a new server for the handshake. Zero means 30 s.
	ReadyWithin time.Duration
}

// ParseRestart parses the values of --restart-on: "crash", "SIGHUP", or a file name pattern. It
// returns nil for no values.
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
					return nil, fmt.Errorf("%q is not a file pattern: %w", v, err)
				}
			}
			r.Globs = append(r.Globs, v)
		}
	}
	return &r, nil
}

func (r *Restart) withDefaults() Restart {
	d := *r
	defaults.IfNotPositive(&d.MinBackoff, 200*time.Millisecond)
	defaults.IfNotPositive(&d.MaxBackoff, 10*time.Second)
	defaults.IfNotPositive(&d.StableAfter, 30*time.Second)
	defaults.IfNotPositive(&d.ReadyWithin, 30*time.Second)
	defaults.IfNotPositive(&d.MaxCrashes, 8)
	return d
}

// maxNoted limits the bytes of a peer's text in a note.
const maxNoted = 80

// restartGrace is the time in which a server must end after its input was closed for a restart.
const restartGrace = 500 * time.Millisecond

// A supervisor keeps the host's connection while servers come and go.
//
// The flow of a frame of the host is:
//
//	input -> queue.put          collect a complete frame and wait for room
//	queue.take -> feed          after the replay of the handshake (startInstance, replay)
//	deliver -> handleHostFrame  note calls; drop answers to an earlier server
//	rec.record -> stdin.Write   record and forward
//
// and of a chunk of the server:
//
//	stdout pump -> forward      forward at once, or only whole frames during a replay
//	out.write -> handleServerFrame
//	                            note responses; withhold those to replayed requests
//	rec.record -> writeAll      record, then forward to the host
//
// runSupervised starts each server, supervise waits for the reason of its end, and startNext
// decides whether another one follows.
type supervisor struct {
	*tap
	opts  Restart
	state *resumeState
	queue *queue
	// trigger has room for one reason.
	trigger chan string

	// instance is the current or last server.
	instance *instance
	// crashes counts consecutive crashes.
	crashes int
	backoff time.Duration
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

// startNext starts another server if there is to be one. Otherwise it closes the host's connection
// and returns the exit status.
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

// input queues the frames of the host.
func (sv *supervisor) input() {
	s := splitter.New(capture.ToServer, maxCopy, func(e *capture.Event) {
		if e.Cut {
			sv.rec.note(fmt.Sprintf("a frame of %d bytes from the host was lost: with --restart-on, frames are buffered, and this one is too large", e.Len))
			return
		}
		sv.queue.put(e)
	})
	newPump(sv.Stdin, func(p []byte) error { s.Write(p); return nil }).run()
	s.Close()
	sv.inputEnded.Store(true)
	sv.queue.close()
}

// An outcome describes the end of a server.
type outcome struct {
	restart bool
	crashed bool
	// reason is for the error responses to pending requests.
	reason string
}

// requestRestart requests a restart. A request is dropped while another is pending.
func (sv *supervisor) requestRestart(reason string) {
	select {
	case sv.trigger <- reason:
	default:
	}
}

// noteCrash counts a crash and decides whether to start another server.
func (sv *supervisor) noteCrash(reason string) outcome {
	if time.Since(sv.instance.child.started) > sv.opts.StableAfter {
		sv.crashes, sv.backoff = 0, sv.opts.MinBackoff
	}
	sv.crashes++
	if sv.crashes > sv.opts.MaxCrashes {
		reason = fmt.Sprintf("%s; failure %d in a row", reason, sv.crashes)
		sv.rec.note("giving up: " + reason)
		return outcome{reason: reason}
	}
	return outcome{restart: true, crashed: true, reason: reason}
}

// waitBackoff waits before the next start, if the server crashed. If there is to be no next start,
// it returns false and the exit status.
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

// untilStopped waits for f, which writes to the host and may block until the host reads. It returns
// false if the tap must end first.
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

// isTermination reports whether a signal normally ends a server.
func isTermination(s os.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGTERM
}

// supervise waits until the server has ended and all its output was forwarded, and handles signals
// and restarts meanwhile.
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
				su.reject("the new server did not respond to the handshake")
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

// A supervision is the state of one call of supervise.
type supervision struct {
	*instance
	// decision is the outcome that was decided before the server ended.
	decision *outcome
	// drained is non-nil once the server has ended. It receives whether all output was forwarded.
	drained   chan bool
	quit      chan struct{}
	abandoned bool
}

// terminate ends the server for good.
func (su *supervision) terminate() {
	su.stopRequested.Store(true)
	if su.drained != nil {
		su.abandonOutput()
		return
	}
	su.stop(stopGrace)
}

// restart ends the server so that another follows, unless it is ending anyway.
func (su *supervision) restart(reason string) {
	if su.decision == nil && !su.stopRequested.Load() && su.drained == nil {
		su.decision = &outcome{restart: true, reason: reason}
		su.stop(restartGrace)
	}
}

// reject is restart for a server that does not work.
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

// drain waits in the background until all output of the server was forwarded.
func (su *supervision) drain() {
	done := make(chan bool, 1)
	su.drained = done
	su.stopping.Go(func() { done <- su.instance.drain(su.quit) })
}

// abandonOutput drops the output that the host does not read.
func (su *supervision) abandonOutput() {
	su.stopRequested.Store(true)
	if !su.abandoned {
		su.abandoned = true
		close(su.quit)
	}
}

// outcome returns what to do after the server has ended.
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

// describeExit describes the end of a process.
func describeExit(e capture.Exit) string {
	if e.Signal != "" {
		return "the server was terminated by " + e.Signal
	}
	return fmt.Sprintf("the server exited with status %d", e.Code)
}

// maxPadding limits the bytes added to an unfinished body so that the host finds the next frame.
const maxPadding = 64 << 20

// An instance is one server of a supervisor.
type instance struct {
	*supervisor
	child *child
	// n is the number of the server, from 1. It is the session in the capture.
	n      uint64
	stdout *pump
	stderr *pump
	// failed has room for one element: the reason why the server does not work.
	failed chan string
	// ready is closed when the replayed handshake was answered.
	ready chan struct{}
	// done is closed when the server has ended.
	done chan struct{}

	stopRequested atomic.Bool
	feeding       sync.WaitGroup
	stopping      sync.WaitGroup

	// The goroutine that forwards to the host owns these fields.
	out *splitter.Splitter
	// wholeFrames delays forwarding until a frame is complete, since some are withheld.
	wholeFrames bool
	buf         []byte
	err         error
}

// startInstance starts forwarding to and from a server.
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
	in.out = splitter.New(capture.ToClient, maxCopy, in.handleServerFrame)
	in.out.Event.Session = in.n
	in.stdout = newPump(c.stdout, in.forward)
	in.stderr = newStderrPump(sv.Stderr, c.stderr, sv.rec.stderrLines())
	sv.queue.resume()
	go in.output()
	go in.stderr.run()
	in.feeding.Go(func() { in.feed(replay) })
}

// output forwards from the server to the host, to the end.
func (in *instance) output() {
	in.stdout.run()
	if err := in.stdout.err; err != nil {
		in.outputLost(err)
	}
}

// forward forwards a piece of the server's output or, if some frames must be withheld, the frames
// that end in it.
func (in *instance) forward(p []byte) error {
	if in.wholeFrames && !in.out.Partial() {
		in.wholeFrames, _ = in.state.awaitsReplay()
	}
	if in.wholeFrames {
		in.err = nil
		in.out.Write(p)
		return in.err
	}
	in.out.Write(p)
	return writeAll(in.Stdout, p)
}

// handleServerFrame handles a frame of the server.
func (in *instance) handleServerFrame(e *capture.Event) {
	d := in.state.handleServerFrame(e)
	if d.withhold {
		in.rec.note("not forwarded to the host: the response to the repeated handshake")
	}
	in.rec.record(e)
	switch {
	case d.ready && d.refused:
		in.reportFailure("the new server rejected the handshake")
	case d.ready:
		in.notifyListChanged(d.result)
		close(in.ready)
	case !d.withhold && in.wholeFrames && e.Cut:
		in.rec.note(fmt.Sprintf("a frame of %d bytes was lost: too large to buffer during the handshake", e.Len))
	case !d.withhold && in.wholeFrames && in.err == nil:
		in.buf = splitter.AppendRaw(in.buf[:0], e)
		in.err = writeAll(in.Stdout, in.buf)
	}
}

// reportFailure reports that the server does not work.
func (in *instance) reportFailure(reason string) {
	select {
	case in.failed <- reason:
	default:
	}
}

// feed sends the server the replayed frames, then those of the host.
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

// deliver sends frames to the server. It returns false if the write fails.
func (in *instance) deliver(frames []capture.Event, replayed bool) bool {
	var buf []byte
	for i := range frames {
		e := &frames[i]
		e.Session = in.n
		if !replayed {
			if late := in.state.handleHostFrame(e); late != nil {
				in.rec.note("dropped the host's response to request " + clip.Quote(late, maxNoted) + " of an earlier server: " + clip.Quote(e.Data, maxNoted))
				continue
			}
		}
		in.rec.record(e)
		buf = splitter.AppendRaw(buf, e)
		e.Data = nil
	}
	_, err := in.child.stdin.Write(buf)
	return err == nil
}

// drain waits until all output of the server, which has ended, was forwarded, or quit is closed. It
// reports whether all was forwarded.
func (in *instance) drain(quit <-chan struct{}) (done bool) {
	in.queue.pause()
	close(in.done)
	in.child.closeStdin() // ends a pending write
	in.feeding.Wait()
	done = in.stdout.drain(quit, &in.stopRequested)
	return in.stderr.drain(quit, &in.stopRequested) && done
}

// close ends the remaining reads of pipes that other processes hold open, and an unfinished frame.
func (in *instance) close(ctx context.Context, abandon bool) {
	// This fails on Windows, where no process is left that could hold a pipe.
	_ = in.child.stdout.SetReadDeadline(time.Unix(1, 0))
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

// endFrame completes an unfinished frame of the server, so that the next message does not become
// part of it.
func (in *instance) endFrame() {
	if !in.out.Partial() || in.stdout.err != nil {
		return
	}
	left, inBody := in.out.BodyLeft()
	in.out.Close() // forwards a delayed frame
	switch {
	case !inBody:
		in.rec.note("ended the server's unfinished line")
		_ = writeAll(in.Stdout, []byte{'\n'}) // later writes report errors too
	case left <= maxPadding:
		in.rec.note(fmt.Sprintf("filled the server's unfinished body with %d spaces", left))
		_ = writeAll(in.Stdout, bytes.Repeat([]byte{' '}, int(left)))
	default:
		in.hostLost("the server's unfinished body is too large to be filled")
	}
}

// inject sends the host a message from the tap. No other goroutine may write to the host, and no
// frame may be unfinished.
func (sv *supervisor) inject(msg []byte, headers bool) {
	e := capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Session: sv.rec.session.Load(), Data: msg, Framing: capture.FramingLF}
	if headers {
		e.Framing, e.Prefix = capture.FramingHeader, "Content-Length: "+strconv.Itoa(len(msg))+"\r\n\r\n"
	}
	sv.rec.record(&e)
	if err := writeAll(sv.Stdout, splitter.AppendRaw(nil, &e)); err != nil {
		sv.outputLost(err)
	}
}

// failUnanswered answers the pending requests of the host with errors and cancels those of the
// server.
func (sv *supervisor) failUnanswered(l unanswered, message string) {
	if n := len(l.calls); n > 0 {
		what := " requests"
		if n == 1 {
			what = " request"
		}
		sv.rec.note("answering " + strconv.Itoa(n) + what + " for the server that has exited")
	}
	refusal := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: message}
	for i := 0; i < len(l.calls); {
		first := l.calls[i]
		if first.batch == 0 {
			sv.inject(jsonrpc.AppendError(nil, first.id, refusal, false), l.headers)
			i++
			continue
		}
		answer := []byte{'['}
		for ; i < len(l.calls) && l.calls[i].batch == first.batch; i++ {
			if len(answer) > 1 {
				answer = append(answer, ',')
			}
			answer = jsonrpc.AppendError(answer, l.calls[i].id, refusal, false)
		}
		sv.inject(append(answer, ']'), l.headers)
	}
	for _, id := range l.serverRequests {
		sv.rec.note("cancelling request " + clip.Quote(id, maxNoted) + " of the server that has exited")
		params := append(append([]byte(`{"requestId":`), id...), `,"reason":"the server was restarted"}`...)
		sv.inject(jsonrpc.AppendNotification(nil, "notifications/cancelled", params), l.headers)
	}
}

// prepareRestart prepares the session for another server.
func (sv *supervisor) prepareRestart(reason string) {
	l := sv.state.reset()
	sv.failUnanswered(l, "the server was restarted before its response: "+reason)
	if l.initialize != nil {
		sv.queue.pushFront(*l.initialize)
	}
}

// giveUp answers all pending and queued requests with errors.
func (sv *supervisor) giveUp(reason string) {
	for _, e := range sv.queue.abandon() {
		sv.state.handleHostFrame(&e)
	}
	l := sv.state.reset()
	if l.initialize != nil {
		eachMessage(l.initialize.Data, func(m *jsonrpc.Message, _ bool) { l.calls = append([]*call{{id: m.ID.Clone()}}, l.calls...) })
	}
	l.serverRequests = nil
	sv.failUnanswered(l, "the server has exited and is not restarted: "+reason)
}

// notifyListChanged notifies the host which lists to request again. result is the server's response
// to the handshake.
func (sv *supervisor) notifyListChanged(result []byte) {
	if old, now := sv.state.negotiated(), jsonwire.Lookup(result, "protocolVersion"); !bytes.Equal(old, now) {
		sv.rec.note("the new server negotiated revision " + clip.Quote(now, maxNoted) + "; the host still uses " + clip.Quote(old, maxNoted))
	}
	for _, list := range resume.ListsOf(result) {
		sv.rec.note("notifying the host that " + list.Capability + " may have changed")
		sv.inject(jsonrpc.AppendNotification(nil, list.Changed, nil), sv.state.usesHeaders())
	}
}

// maxQueueBytes limits the frames of the host that wait for a server, in bytes. One frame of any
// size may always wait.
const maxQueueBytes = 16 << 20

// A queue holds frames of the host until a server takes them. One goroutine calls put, and one at a
// time calls take.
type queue struct {
	mu     sync.Mutex
	cond   sync.Cond
	frames []capture.Event
	bytes  int
	// closed reports that the host's input has ended.
	closed bool
	// paused makes take return nothing.
	paused bool
	// abandoned makes put drop frames.
	abandoned bool
}

func newQueue() *queue {
	q := &queue{}
	q.cond.L = &q.mu
	return q
}

// put adds a copy of a frame. It waits while the queue is full.
func (q *queue) put(e *capture.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) > 0 && q.bytes+len(e.Data) > maxQueueBytes && !q.abandoned {
		q.cond.Wait()
	}
	if q.abandoned {
		return
	}
	own := *e
	own.Data = bytes.Clone(e.Data)
	q.frames = append(q.frames, own)
	q.bytes += len(own.Data)
	q.cond.Broadcast()
}

// pushFront puts a frame before all others.
func (q *queue) pushFront(e capture.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frames = append([]capture.Event{e}, q.frames...)
	q.bytes += len(e.Data)
}

// take waits for frames and returns all of them. It returns none if the queue is paused, and none
// with done set after the last one.
func (q *queue) take() (frames []capture.Event, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) == 0 && !q.closed && !q.paused {
		q.cond.Wait()
	}
	if q.paused {
		return nil, false
	}
	frames, q.frames, q.bytes = q.frames, nil, 0
	q.cond.Broadcast()
	return frames, len(frames) == 0
}

// pause makes take return nothing until resume.
func (q *queue) pause() { q.update(func() { q.paused = true }) }

func (q *queue) resume() { q.update(func() { q.paused = false }) }

// close notes that the host's input has ended.
func (q *queue) close() { q.update(func() { q.closed = true }) }

// abandon empties the queue and returns its frames. put does nothing afterwards.
func (q *queue) abandon() []capture.Event {
	var frames []capture.Event
	q.update(func() { frames, q.frames, q.abandoned = q.frames, nil, true })
	return frames
}

// finished reports whether the host's input has ended and all of it was taken.
func (q *queue) finished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.frames) == 0
}

func (q *queue) update(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	q.cond.Broadcast()
}
