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

// serveConnection makes a connection and serves it until it ends. It returns why it did.
func (u *upstream) serveConnection(first bool) error {
	ctx, cancel := u.b.withDialTimeout(u.ctx)
	u.mu.Lock()
	u.usable = false
	u.mu.Unlock()
	text := u.rec.stderr()
	defer text.Close()
	f, err := u.b.opts.Connect(context.WithValue(ctx, recorderKey{}, u.rec), text)
	cancel()
	if err != nil {
		return &connectError{err}
	}
	u.b.metrics.connections.Add(1)
	began := time.Now()
	read := make(chan error, 1)
	ended, stop := context.WithCancelCause(u.ctx)
	end := func() { stop(nil) }
	u.mu.Lock()
	u.conn, u.paused, u.usable = &connection{abort: func() { stop(errUnresponsive) }}, u.paused || !first, first
	u.mu.Unlock()
	u.b.openConnections.Add(1)
	defer u.b.openConnections.Add(-1)
	var wg sync.WaitGroup
	wg.Go(func() {
		read <- u.read(f)
		end()
	})
	wg.Go(func() { u.write(ended, f, end) })
	if !first {
		err = u.resume(ended)
	}
	if err == nil {
		<-ended.Done()
	}
	end()
	u.mu.Lock()
	u.conn = nil
	u.mu.Unlock()
	f.Close() // which makes read return
	wg.Wait()
	u.rec.flushEnds()
	if why := <-read; err == nil || errors.Is(err, context.Canceled) {
		err = why
	}
	if context.Cause(ended) == errUnresponsive {
		err = errUnresponsive
	}
	if time.Since(began) >= u.b.opts.StableAfter {
		u.mu.Lock()
		u.failures, u.recoveryCalls = 0, nil
		u.mu.Unlock()
	}
	return err
}

// resume has the user tell a new server what it should know, and lets go what waits.
func (u *upstream) resume(ctx context.Context) error {
	bounded, cancel := u.b.withConnectTimeout(ctx)
	defer cancel()
	u.b.metrics.restarts.Add(1)
	if err := u.currentHandler().reconnected(bounded); err != nil {
		return fmt.Errorf("the server was started again, and does not come up: %w", err)
	}
	u.mu.Lock()
	u.paused, u.usable = false, true
	u.mu.Unlock()
	signal(u.notify)
	return nil
}

// write sends what waits until ctx ends. If that fails, it calls end: what the server has said last is still to be read.
func (u *upstream) write(ctx context.Context, f jsonrpc.Framer, end func()) {
	for {
		it, ok := u.dequeue()
		if !ok {
			if u.finished() {
				return
			}
			select {
			case <-u.notify:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := u.transmit(f, it); err != nil {
			u.b.opts.Logger.Debug("a message was not sent", "error", err)
			u.putBack(it)
			if !u.b.opts.HTTP {
				// The reader is about to learn why, and waits no longer than this.
				timer := time.AfterFunc(closeTimeout, end)
				defer timer.Stop()
				<-ctx.Done()
			}
			end()
			return
		}
	}
}

// closeTimeout is how long a server that does not take anything any more may go on to say something.
const closeTimeout = time.Second

// dequeue returns what is to be sent next.
func (u *upstream) dequeue() (it queuedMessage, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case len(u.urgent) > 0:
		it, u.urgent = u.urgent[0], u.urgent[1:]
		u.urgentBytes -= len(it.frame)
	case len(u.queue) > 0 && !u.paused:
		it, u.queue = u.queue[0], u.queue[1:]
		u.queueBytes -= len(it.frame)
		u.signalSpaceLocked()
		if u.b.opts.HTTP && it.id != nil && len(it.frame) <= maxRetryBytes {
			u.sent[idKey(it.id)] = it
		}
		if u.recoveryCalls != nil && len(u.recoveryCalls) < maxRecoveryCalls && it.id != nil && stringOf(locate(it.frame, "method").slice(it.frame)) != mcp.MethodInitialize {
			u.recoveryCalls[idKey(it.id)] = struct{}{}
		}
	default:
		u.writing = false
		return queuedMessage{}, false
	}
	u.writing = true
	return it, true
}

// maxRecoveryCalls is how many requests are remembered of which one must be answered.
const maxRecoveryCalls = 1024

// withdraw forgets a request that is not wanted any more, and reports whether it was not even sent: then the server must not be told of it.
func (u *upstream) withdraw(id jsonrpc.ID) bool {
	key := idKey(id)
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sent, key)
	for i, it := range u.queue {
		if it.id != nil && idKey(it.id) == key {
			u.queue = slices.Delete(u.queue, i, i+1)
			u.queueBytes -= len(it.frame)
			u.signalSpaceLocked()
			return true
		}
	}
	return false
}

// maxRetryBytes is how large a request may be, in bytes, that is sent again when the server had forgotten its session.
const maxRetryBytes = 1 << 20

// putBack puts a message back.
func (u *upstream) putBack(it queuedMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.resend = append(u.resend, it)
}

// read takes what the server sends until it has ended, and returns why.
func (u *upstream) read(f jsonrpc.Framer) error {
	ownFrame := compact
	if _, ok := f.(jsonrpc.MessageTransport); ok { // its frames are ours already
		ownFrame = jsonrpc.OneLine
	}
	noise := 0
	for {
		frame, from, err := u.receive(f)
		if err != nil {
			if !u.handleError(err, from) {
				if errors.Is(err, io.EOF) {
					err = fmt.Errorf("the server has closed the connection: %w", io.EOF)
				}
				return err
			}
			continue
		}
		if !u.deliver(ownFrame(frame), from) {
			if noise++; noise == 1 {
				u.b.opts.Logger.Warn("the server writes what is no message, which is dropped; further ones are not reported", "server", u.b.opts.Name, "text", clip(frame))
			}
		}
	}
}

// handleError acts on an error of the framer that does not end the connection, and reports whether it was one.
func (u *upstream) handleError(err error, from origin) bool {
	_, ofCall := errors.AsType[*jsonrpc.CallError](err)
	if bad, ok := errors.AsType[*jsonrpc.FrameError](err); ok {
		u.b.opts.Logger.Warn("a message of the server was dropped", "error", bad)
		if !ofCall {
			u.refuseLarge(bad)
			return true
		}
	}
	if errors.Is(err, jsonrpc.ErrGap) {
		u.currentHandler().messagesLost()
		return true
	}
	failed, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok {
		return false
	}
	from.answered()
	u.mu.Lock()
	it, known := u.sent[idKey(failed.ID)]
	delete(u.sent, idKey(failed.ID))
	retry := known && failed.Outcome == jsonrpc.OutcomeUnprocessed && errors.Is(failed.Err, jsonrpc.ErrClosed) // the session is gone, and comes back
	if retry {
		u.resend = append(u.resend, it)
	}
	u.mu.Unlock()
	_, large := errors.AsType[*jsonrpc.TooLargeError](err)
	if large { // there is an answer, and only that cannot be forwarded
		u.mu.Lock()
		u.noteAnswerLocked(failed.ID)
		u.mu.Unlock()
	}
	if !retry {
		if !large && failed.Outcome != jsonrpc.OutcomeRejected && !errors.Is(failed.Err, jsonrpc.ErrClosed) {
			u.b.markUnhealthy(failed)
		}
		u.currentHandler().callFailed(failed.ID, failed)
	}
	return true
}

// refuseLarge tells the server of a request that was larger than is read, so that it does not wait.
func (u *upstream) refuseLarge(bad *jsonrpc.FrameError) {
	large, ok := errors.AsType[*jsonrpc.TooLargeError](bad)
	if ok && large.Kind == jsonrpc.KindRequest && len(large.ID) > 0 {
		u.sendUrgent(queuedMessage{frame: jsonrpc.AppendError(nil, large.ID, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason}, false)})
	}
}

// deliver hands on a message, or those of a batch, on one line. It reports false if it is none.
func (u *upstream) deliver(frame []byte, from origin) bool {
	if jsonrpc.IsBatch(frame) {
		entries, err := jsonrpc.ParseBatch(frame, 0)
		for i := range entries {
			if m := &entries[i].Message; entries[i].Invalid == nil {
				u.accept(nil, m, from)
			}
		}
		return err == nil
	}
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(frame, m, 0); err != nil {
		from.rec.recordMessage(capture.ToClient, frame)
		u.b.metrics.invalidMessages.Add(1)
		return false
	}
	u.accept(frame, m, from)
	return true
}

// accept hands on a message of the server that can be read in one way only; frame is nil if it came in a batch. In place of an answer in which a member appears twice, the client
// gets an error. The server is told of such a request, and such a notification is dropped: whom it concerns is not certain.
func (u *upstream) accept(frame []byte, m *jsonrpc.Message, from origin) {
	err := era.CheckMembers(frame, m, false)
	if frame == nil {
		frame = encodeMessage(m)
	}
	if err == nil {
		u.dispatch(frame, m, from)
		return
	}
	u.b.metrics.invalidMessages.Add(1)
	e := jsonrpc.ErrorOf(err)
	u.b.opts.Logger.Warn("a message of the server was not forwarded", "server", u.b.opts.Name, "error", e)
	from.rec.recordMessage(capture.ToClient, frame)
	switch {
	case len(m.Method) == 0 && len(m.ID) > 0:
		refusal := errorMessage(m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's answer cannot be forwarded: %s", e.Message))
		u.dispatch(encodeMessage(refusal), refusal, from)
	case m.Kind == jsonrpc.KindRequest:
		u.sendUrgent(queuedMessage{frame: jsonrpc.AppendError(nil, m.ID, e, false)})
	}
}

func (u *upstream) dispatch(frame []byte, m *jsonrpc.Message, from origin) {
	u.mu.Lock()
	if len(m.ID) > 0 && len(m.Method) == 0 {
		if u.b.opts.HTTP {
			delete(u.sent, idKey(m.ID))
		}
		u.noteAnswerLocked(m.ID)
	}
	u.mu.Unlock()
	now := time.Now().UnixNano()
	u.lastReceived.Store(now)
	u.b.health.lastSeen.Store(now)
	u.deliverMu.Lock()
	defer u.deliverMu.Unlock()
	u.currentHandler().received(frame, m, from)
	if len(m.Method) == 0 && m.ID.Equal(from.callID) {
		from.answered()
	}
}

// encodeMessage returns the text of a message that came in a batch.
func encodeMessage(m *jsonrpc.Message) []byte {
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
