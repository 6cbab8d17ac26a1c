package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// live makes a connection and serves it until it ends. It returns why it did.
func (l *line) live(first bool) error {
	ctx, cancel := l.b.connecting(l.ctx)
	l.mu.Lock()
	l.worked = false
	l.mu.Unlock()
	text := l.lane.stderr()
	defer text.Close()
	f, err := l.b.opts.Connect(context.WithValue(ctx, laneKey{}, l.lane), text)
	cancel()
	if err != nil {
		return &connectError{err}
	}
	l.b.metrics.connections.Add(1)
	began := time.Now()
	read := make(chan error, 1)
	ended, stop := context.WithCancelCause(l.ctx)
	end := func() { stop(nil) }
	l.mu.Lock()
	l.now, l.held, l.worked = &connection{cut: func() { stop(errDead) }}, l.held || !first, first
	l.mu.Unlock()
	l.b.linesUp.Add(1)
	defer l.b.linesUp.Add(-1)
	var wg sync.WaitGroup
	wg.Go(func() {
		read <- l.read(f)
		end()
	})
	wg.Go(func() { l.write(ended, f, end) })
	if !first {
		err = l.revive(ended)
	}
	if err == nil {
		<-ended.Done()
	}
	end()
	l.mu.Lock()
	l.now = nil
	l.mu.Unlock()
	f.Close() // which makes read return
	wg.Wait()
	l.lane.settle()
	if why := <-read; err == nil || errors.Is(err, context.Canceled) {
		err = why
	}
	if context.Cause(ended) == errDead {
		err = errDead
	}
	if time.Since(began) >= l.b.opts.StableAfter {
		l.mu.Lock()
		l.failures, l.unproved = 0, nil
		l.mu.Unlock()
	}
	return err
}

// revive has the user tell a new server what it should know, and lets go what waits.
func (l *line) revive(ctx context.Context) error {
	bounded, cancel := l.b.whileConnecting(ctx)
	defer cancel()
	l.b.metrics.restarts.Add(1)
	if err := l.user().connected(bounded); err != nil {
		return fmt.Errorf("the server was started again, and does not come up: %w", err)
	}
	l.mu.Lock()
	l.held, l.worked = false, true
	l.mu.Unlock()
	poke(l.wake)
	return nil
}

// write sends what waits until ctx ends. If that fails, it calls end: what the server has said last is still to be read.
func (l *line) write(ctx context.Context, f jsonrpc.Framer, end func()) {
	for {
		it, ok := l.take()
		if !ok {
			if l.finished() {
				return
			}
			select {
			case <-l.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := l.post(f, it); err != nil {
			l.b.opts.Logger.Debug("a message was not sent", "error", err)
			l.unsent(it)
			if !l.b.opts.HTTP {
				// The reader is about to learn why, and waits no longer than this.
				timer := time.AfterFunc(farewell, end)
				defer timer.Stop()
				<-ctx.Done()
			}
			end()
			return
		}
	}
}

// farewell is how long a server that does not take anything any more may go on to say something.
const farewell = time.Second

// take returns what is to be sent next.
func (l *line) take() (it item, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.urgent) > 0:
		it, l.urgent = l.urgent[0], l.urgent[1:]
		l.urgentBytes -= len(it.frame)
	case len(l.queue) > 0 && !l.held:
		it, l.queue = l.queue[0], l.queue[1:]
		l.bytes -= len(it.frame)
		l.roomLocked()
		if l.b.opts.HTTP && it.id != nil && len(it.frame) <= maxAgain {
			l.sent[idKey(it.id)] = it
		}
		if l.unproved != nil && len(l.unproved) < maxUnproved && it.id != nil && text(locate(it.frame, "method").of(it.frame)) != mcp.MethodInitialize {
			l.unproved[idKey(it.id)] = struct{}{}
		}
	default:
		l.writing = false
		return item{}, false
	}
	l.writing = true
	return it, true
}

// maxUnproved is how many requests are remembered of which one must be answered.
const maxUnproved = 1024

// withdraw forgets a request that is not wanted any more, and reports whether it was not even sent: then the server must not be told of it.
func (l *line) withdraw(id jsonrpc.ID) bool {
	key := idKey(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sent, key)
	for i, it := range l.queue {
		if it.id != nil && idKey(it.id) == key {
			l.queue = slices.Delete(l.queue, i, i+1)
			l.bytes -= len(it.frame)
			l.roomLocked()
			return true
		}
	}
	return false
}

// maxAgain is how large a request may be, in bytes, that is sent again when the server had forgotten its session.
const maxAgain = 1 << 20

// unsent puts a message back.
func (l *line) unsent(it item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = append(l.again, it)
}

// read takes what the server sends until it has ended, and returns why.
func (l *line) read(f jsonrpc.Framer) error {
	own := compact
	if _, ok := f.(jsonrpc.Courier); ok { // its frames are ours already
		own = jsonrpc.OneLine
	}
	noise := 0
	for {
		frame, from, err := l.receive(f)
		if err != nil {
			if !l.took(err, from) {
				if errors.Is(err, io.EOF) {
					err = fmt.Errorf("the server has closed the connection: %w", io.EOF)
				}
				return err
			}
			continue
		}
		if !l.deliver(own(frame), from) {
			if noise++; noise == 1 {
				l.b.opts.Logger.Warn("the server writes what is no message, which is dropped; further ones are not reported", "server", l.b.opts.Name, "text", clip(frame))
			}
		}
	}
}

// took acts on an error of the framer that does not end the connection, and reports whether it was one.
func (l *line) took(err error, from origin) bool {
	_, ofCall := errors.AsType[*jsonrpc.CallError](err)
	if bad, ok := errors.AsType[*jsonrpc.FrameError](err); ok {
		l.b.opts.Logger.Warn("a message of the server was dropped", "error", bad)
		if !ofCall {
			l.refuseLarge(bad)
			return true
		}
	}
	if errors.Is(err, jsonrpc.ErrGap) {
		l.user().missed()
		return true
	}
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok {
		return false
	}
	from.answered()
	l.mu.Lock()
	it, known := l.sent[idKey(failed.ID)]
	delete(l.sent, idKey(failed.ID))
	retry := known && failed.Fate == jsonrpc.FateUnsent && errors.Is(failed.Err, jsonrpc.ErrClosed) // the session is gone, and comes back
	if retry {
		l.again = append(l.again, it)
	}
	l.mu.Unlock()
	_, large := errors.AsType[*jsonrpc.TooLargeError](err)
	if large { // there is an answer, and only that cannot be forwarded
		l.mu.Lock()
		l.provesLocked(failed.ID)
		l.mu.Unlock()
	}
	if !retry {
		if !large && failed.Fate != jsonrpc.FateRefused && !errors.Is(failed.Err, jsonrpc.ErrClosed) {
			l.b.doubt(failed)
		}
		l.user().callFailed(failed.ID, failed)
	}
	return true
}

// refuseLarge tells the server of a request that was larger than is read, so that it does not wait.
func (l *line) refuseLarge(bad *jsonrpc.FrameError) {
	large, ok := errors.AsType[*jsonrpc.TooLargeError](bad)
	if ok && large.Kind == jsonrpc.KindRequest && len(large.ID) > 0 {
		l.sendFirst(item{frame: jsonrpc.AppendError(nil, large.ID, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason}, false)})
	}
}

// deliver hands on a message, or those of a batch, on one line. It reports false if it is none.
func (l *line) deliver(frame []byte, from origin) bool {
	if jsonrpc.IsBatch(frame) {
		entries, err := jsonrpc.ParseBatch(frame, 0)
		for i := range entries {
			if m := &entries[i].Message; entries[i].Invalid == nil {
				l.admit(nil, m, from)
			}
		}
		return err == nil
	}
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(frame, m, 0); err != nil {
		from.lane.record(capture.ToClient, frame)
		l.b.metrics.noise.Add(1)
		return false
	}
	l.admit(frame, m, from)
	return true
}

// admit hands on a message of the server that can be read in one way only; frame is nil if it came in a batch. In place of an answer in which a member appears twice, the client
// gets an error. The server is told of such a request, and such a notification is dropped: whom it concerns is not certain.
func (l *line) admit(frame []byte, m *jsonrpc.Message, from origin) {
	err := era.CheckMembers(frame, m, false)
	if frame == nil {
		frame = rebuilt(m)
	}
	if err == nil {
		l.pass(frame, m, from)
		return
	}
	l.b.metrics.noise.Add(1)
	e := jsonrpc.ErrorOf(err)
	l.b.opts.Logger.Warn("a message of the server was not forwarded", "server", l.b.opts.Name, "error", e)
	from.lane.record(capture.ToClient, frame)
	switch {
	case len(m.Method) == 0 && len(m.ID) > 0:
		refusal := failure(m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's answer cannot be forwarded: %s", e.Message))
		l.pass(rebuilt(refusal), refusal, from)
	case m.Kind == jsonrpc.KindRequest:
		l.sendFirst(item{frame: jsonrpc.AppendError(nil, m.ID, e, false)})
	}
}

func (l *line) pass(frame []byte, m *jsonrpc.Message, from origin) {
	l.mu.Lock()
	if len(m.ID) > 0 && len(m.Method) == 0 {
		if l.b.opts.HTTP {
			delete(l.sent, idKey(m.ID))
		}
		l.provesLocked(m.ID)
	}
	l.mu.Unlock()
	now := time.Now().UnixNano()
	l.heard.Store(now)
	l.b.health.seen.Store(now)
	l.passing.Lock()
	defer l.passing.Unlock()
	l.user().received(frame, m, from)
	if len(m.Method) == 0 && m.ID.Equal(from.call) {
		from.answered()
	}
}

// rebuilt returns the text of a message that came in a batch.
func rebuilt(m *jsonrpc.Message) []byte {
	switch m.Kind {
	case jsonrpc.KindRequest:
		return jsonrpc.AppendRequest(nil, m.ID, string(m.Method), m.Params)
	case jsonrpc.KindNotification:
		return jsonrpc.AppendNotification(nil, string(m.Method), m.Params)
	case jsonrpc.KindResponse:
		return jsonrpc.AppendResult(nil, m.ID, m.Result)
	}
	return jsonrpc.AppendError(nil, m.ID, m.Err(), false)
}
