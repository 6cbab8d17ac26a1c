package streamable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"mcpwire/internal/net/sse"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
)

// A stream carries messages of a legacy session: the response to a request with the messages before
// it, or messages that belong to no request. It outlasts the HTTP responses that carry it: a client
// that lost one requests the rest, by the id of its last event. The stream is the Sender of its
// request, or of the session.
type stream struct {
	session *session
	name    string
	// requestID is the id of the request, until the stream has a name. It is nil for a batch.
	requestID jsonrpc.ID

	mu sync.Mutex
	// out is the response that carries the stream now, or nil.
	out *response
	// detached is closed when out must end.
	detached chan struct{}
	// streaming means that the stream has events, and its response can no longer be JSON.
	streaming bool
	// done means that this process sends nothing more.
	done bool
	// suspect means that the client seems to be gone.
	suspect bool
	// stopWatch stops watching for the client to hang up. It may be nil.
	stopWatch func()
	// orphaned means that the client is gone and cannot resume the stream.
	orphaned bool
	// gap means that the store lacks an event. No client may resume from before the gap.
	gap bool
	// degraded means that Handler.degraded counts the stream.
	degraded bool
	// restarted means that events after the gap are stored, because a client has begun the stream
	// anew.
	restarted bool
	// afterGapID is the id of the first event after a gap, or "".
	afterGapID string
	// lastSentID is the id of the last event sent to a client, or of the one before the first.
	lastSentID string
	// lastID is the id of the newest event.
	lastID string
	// backlog counts events stored while no client listened.
	backlog int
	// storeCheck is nil unless the stream is a standalone one whose client has just come here.
	storeCheck *storeCheck
}

// attachLocked makes out carry the stream in place of the current response. detached is closed when
// out must end.
func (st *stream) attachLocked(out *response) (detached chan struct{}) {
	st.detachLocked()
	st.out, st.detached = out, make(chan struct{})
	return st.detached
}

// detachLocked ends the response that carries the stream.
func (st *stream) detachLocked() {
	if st.detached != nil {
		close(st.detached)
	}
	if st.out != nil && st.streaming && !st.done {
		st.setClientAway(true)
	}
	if st.out != nil && st.out.isHijacked() {
		st.out.stop() // nobody waits for detached
	}
	if st.stopWatch != nil {
		st.stopWatch()
	}
	st.out, st.detached, st.stopWatch, st.suspect, st.storeCheck = nil, nil, nil, false, nil
}

// setClientAway sets in the memory store whether the stream waits for its client.
func (st *stream) setClientAway(away bool) {
	if m := st.session.h.memoryEvents; m != nil {
		m.setAway(st.session.key, st.name, away)
	}
}

// markSuspect notes that the client seems to be gone. It may only have closed its sending side and
// still read.
func (st *stream) markSuspect(out *response) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.out != out || st.done {
		return
	}
	if st.streaming {
		st.suspect = true
		st.setClientAway(true)
		return
	}
	st.orphanLocked()
}

// orphanLocked notes that no client can resume the stream.
func (st *stream) orphanLocked() {
	if !st.streaming && !st.done && !st.orphaned {
		st.orphaned = true
		st.session.orphaned.Add(1)
	}
}

// hijack hijacks the connection of out, and reports whether it did. It does nothing if out does not
// carry the stream.
func (st *stream) hijack(out *response) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.out == out && out.hijack()
}

// detach is called when out ends, for any reason.
func (st *stream) detach(out *response) {
	st.mu.Lock()
	if st.out == out {
		st.detachLocked()
		st.orphanLocked()
	}
	st.mu.Unlock()
	out.stop()
}

// close ends the stream and the response that carries it. Without a response, a client that resumes
// it at another process gets an error.
func (st *stream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.streaming && !st.done && st.requestID != nil && st.session.shared != nil && !st.session.over.Load() {
		if err := st.sendLocked(jsonrpc.AppendError(nil, st.requestID, errNodeLost, false)); err != nil {
			st.session.h.opts.Logger.Warn("end of a stream not stored", "error", err)
		}
	}
	st.done = true
	st.countDegradedLocked()
	st.detachLocked()
}

// reset prepares the stream for another request. It reports false if the stream has events, because
// others may still refer to it.
func (st *stream) reset() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.streaming {
		return false
	}
	st.session = nil
	return true
}

// isComplete reports whether nothing more is sent.
func (st *stream) isComplete() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.done
}

// isAttached reports whether a response carries the stream.
func (st *stream) isAttached() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.out != nil
}

// endsWith reports whether the newest event has that id.
func (st *stream) endsWith(id string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.lastID == id
}

// Send implements [rpc.Sender]. It fails only if the message can be neither sent nor stored.
func (st *stream) Send(message []byte) error {
	if st == &st.session.standalone && st.session.shared.sendToListener(st.session.ctx, message, 0) {
		return nil
	}
	return st.sendHere(message)
}

// Denies is response.Denies. A batch has only one status.
func (st *stream) Denies(err error) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return !st.streaming && st.out != nil && st.requestID != nil && isDenial(err)
}

// sendHere is Send for a message that no other process sends.
func (st *stream) sendHere(message []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.name == standaloneName && st.out == nil {
		if st.backlog >= maxStandaloneBacklog {
			return errClientGone
		}
		st.backlog++
	}
	return st.sendLocked(message)
}

// maxStandaloneBacklog limits the stored events of a standalone stream without a listening client.
// Many clients never listen, and all share the store.
const maxStandaloneBacklog = 128

func (st *stream) sendLocked(message []byte) error {
	switch {
	case st.done:
		return errClientGone
	case st.out != nil && !st.out.accept.stream:
		if isRequest(message) {
			return errClientTakesNoStream
		}
		return nil // the client accepts no stream
	case st.out == nil && !st.streaming:
		return errClientGone // the client cannot resume it
	case st.out != nil && !st.out.canFlush() && isRequest(message):
		st.session.h.warnUnflushed(st.out.w)
		return errCannotFlush
	}
	if h := st.session.h; h.soleRequester.Load() && isRequest(message) && h.soleRequester.CompareAndSwap(true, false) {
		h.opts.Logger.Warn("a legacy client is asked for input, and its response must reach this process: if others share the server's StateKeys or Options.Sessions, set Options.Nodes, or let a proxy send all requests of a session to one process")
	}
	if !st.streaming {
		if err := st.startLocked(); err != nil {
			return err
		}
	}
	if st.out == nil && st.lastSentID == "" {
		id, err := st.persist(nil)
		if err != nil {
			return err
		}
		st.lastSentID = id
	}
	id, err := st.persist(message)
	if err != nil && st.out == nil {
		return err
	}
	if st.out == nil {
		return nil
	}
	if failed := st.writeLocked(id, message, 0); failed != nil {
		st.detachLocked()
		if err != nil {
			return errors.Join(err, failed)
		}
	}
	return nil // the client has it, even if it is not stored
}

// isRequest reports whether a message is a request.
func isRequest(message []byte) bool {
	var m jsonrpc.Message
	return jsonrpc.Parse(message, &m, 0) == nil && m.Kind == jsonrpc.KindRequest
}

// writeLocked writes an event to the response that carries the stream.
func (st *stream) writeLocked(id string, message []byte, retry time.Duration) error {
	if err := st.out.writeEvent(sse.Event{ID: []byte(id), HasID: id != "", Data: message, Retry: retry, HasRetry: retry > 0}); err != nil {
		st.session.h.opts.Logger.Debug("a client does not read its stream", "error", err)
		return err
	}
	if id != "" {
		st.lastSentID = id
	}
	return nil
}

// startLocked makes the response a stream.
func (st *stream) startLocked() error {
	st.streaming = true
	st.session.register(st)
	// A client that is gone may resume the stream to get events that it has not read.
	if out := st.out; out != nil && out.hijackable {
		stop := context.AfterFunc(out.r.Context(), func() { st.markSuspect(out) })
		st.stopWatch = func() { stop() }
	}
	return st.primeLocked()
}

// primeLocked begins a response with an event that only has an id, for clients that can resume from
// it.
func (st *stream) primeLocked() error {
	if st.out == nil || !st.session.polling() {
		return nil
	}
	id, err := st.persist(nil)
	if err != nil && st.session.ctx.Err() != nil {
		return err
	} else if err != nil {
		return nil // the response begins without an id
	}
	return st.writeLocked(id, nil, st.session.h.opts.Retry)
}

// storeTimeout limits one call of a store.
const storeTimeout = 5 * time.Second

// persist stores an event and returns its id. If that fails, it stores nothing more of the stream,
// which cannot be resumed then: the client would not notice the missing event.
func (st *stream) persist(message []byte) (id string, err error) {
	if st.gap && st.afterGapID == "" && !st.restarted {
		return "", errGap
	}
	id, err = st.store(message)
	switch {
	case err == nil:
		st.lastID = id
		if st.storeCheck != nil {
			st.storeCheck.own[id] = true
		}
		if st.gap && st.afterGapID == "" {
			st.afterGapID = id
			st.countDegradedLocked()
		}
	case err != errClientGone:
		st.noteGapLocked(err)
	}
	return id, err
}

// errGap is the error for events of a stream that has a gap.
var errGap = errors.New("the stream has a gap in the store of events")

// noteGapLocked notes that the store lacks an event.
func (st *stream) noteGapLocked(err error) {
	h := st.session.h
	h.unresumable.Add(1)
	h.opts.Logger.Warn("a stream can no longer be resumed: its events are not stored", "error", err)
	if st.lastID != "" && st.name != standaloneName {
		st.session.noteGap(st.name)
	}
	st.gap, st.restarted, st.afterGapID, st.lastSentID = true, false, "", ""
	st.countDegradedLocked()
}

// countDegradedLocked keeps Handler.degraded up to date. The number is read without a lock, because
// those of streams are held while the store is called.
func (st *stream) countDegradedLocked() {
	switch degraded := st.gap && st.afterGapID == "" && !st.done; {
	case degraded && !st.degraded:
		st.session.h.degraded.Add(1)
	case !degraded && st.degraded:
		st.session.h.degraded.Add(-1)
	default:
		return
	}
	st.degraded = !st.degraded
}

// isBehindGapLocked reports whether the event precedes a gap, or may.
func (st *stream) isBehindGapLocked(ctx context.Context, id string) bool {
	if !st.gap || id == st.afterGapID && id != "" {
		return false
	}
	if st.afterGapID == "" {
		return true
	}
	_, events, err := st.session.h.events.After(ctx, st.session.key, st.afterGapID)
	if err != nil {
		return true
	}
	for e, err := range events {
		if err != nil || e.ID == id {
			return err != nil
		}
	}
	return true
}

// store stores an event without tracking gaps.
func (st *stream) store(message []byte) (id string, err error) {
	ctx, h := st.session.ctx, st.session.h
	if ctx.Err() != nil {
		if st.session.shared == nil || st.session.over.Load() {
			return "", errClientGone // nobody would drop the event
		}
		ctx = context.WithoutCancel(ctx) // the client may resume the stream at another process
	}
	if h.memoryEvents != nil {
		return h.memoryEvents.append(st.session.callerID, st.session.key, st.name, message, st.out == nil || st.suspect)
	}
	if h.clock.elapsed() < time.Duration(h.storeDownUntil.Load()) {
		return "", errStoreDown
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer recoverStore(&err)
	if id, err = h.events.Append(ctx, st.session.key, st.name, message); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && st.session.ctx.Err() == nil {
			h.storeDownUntil.Store(int64(h.clock.elapsed() + storePause))
		}
		return "", fmt.Errorf("store an event: %w", err)
	}
	return id, nil
}

// storePause is the time for which an event store gets no events after a timeout, so that not every
// message waits for it.
const storePause = 10 * time.Second

var errStoreDown = errors.New("the event store has recently timed out")

// recoverStore turns the panic of a store into an error. Some goroutines that call stores are not
// net/http's, which would recover.
func recoverStore(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("the store panicked: %v\n%s", v, debug.Stack())
	}
}

// finish sends the response to the request, unless answer is empty. err selects the status, nil is
// 200. early means that the handler has not returned. Only the first call counts. finish returns
// the HTTP response that it has ended, or nil.
func (st *stream) finish(answer []byte, err error, early bool) (ended *response) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.done {
		return nil // the session has ended
	}
	if st.orphaned {
		st.orphaned = false
		st.session.orphaned.Add(-1)
	}
	out := st.out
	switch {
	// Here endUnanswered responds.
	case len(answer) == 0 && !st.streaming && st.session.ctx.Err() != nil:
	case !st.streaming && out != nil && (err != nil || !(st.session.polling() && out.wantsStream(answer))):
		// The result is not stored, even as an event: a client that got nothing before has no id to
		// resume from.
		out.endWhen(answer, err, early)
		ended = out
	case st.streaming || out != nil:
		if len(answer) > 0 {
			if out != nil && !early {
				out.markFinal() // the end flushes it
			}
			if err := st.sendLocked(answer); err != nil {
				st.session.h.opts.Logger.Warn("response lost", "error", err)
			}
		} else {
			st.markEndLocked()
		}
		if out != nil {
			out.end(nil, nil)
			ended = out
		}
	} // else no client waits or can come back
	st.done = true
	st.countDegradedLocked()
	if st.streaming {
		st.session.unregister(st) // all of it is in the store
	}
	st.detachLocked()
	return ended
}

// markEndLocked informs the processes that pass on the stream that it ends without a response.
func (st *stream) markEndLocked() {
	if st.streaming && st.session.shared != nil {
		if _, err := st.persist([]byte(endMark)); err != nil {
			st.session.h.opts.Logger.Warn("end of a stream not stored", "error", err)
		}
	}
}

// keepAlive writes a keep-alive. It is called when nothing has been written for a while.
func (st *stream) keepAlive(out *response) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.out != out || !out.accept.stream {
		return
	}
	if !st.streaming {
		if err := st.startLocked(); err != nil {
			return
		}
	}
	if out.writeKeepAlive() != nil {
		st.detachLocked()
	}
}

// resume makes out carry the stream from after the event lastID, or from the first event that no
// client has received if lastID is "". detached is closed when out must end. The error is the
// store's; it changes nothing unless something was written. While the store does not respond, the
// standalone stream of a session that others share goes on without what is stored, which follows.
func (st *stream) resume(ctx context.Context, out *response, lastID string) (detached chan struct{}, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if lastID != "" && st.isBehindGapLocked(ctx, lastID) {
		return nil, ErrEventGone
	}
	lastSentID := lastID
	if lastSentID == "" {
		lastSentID = st.lastSentID
		st.restarted = true
	}
	var events iter.Seq2[StoredEvent, error]
	late := false
	if lastSentID != "" && lastSentID != st.lastID {
		events, err = st.session.eventsAfter(ctx, lastSentID, findTime)
		switch {
		case errors.Is(err, ErrEventGone) && lastID == "":
			lastSentID, err = "", nil // begin with what the store has
		case err != nil && !errors.Is(err, ErrEventGone) && st == &st.session.standalone && st.session.shared != nil:
			late, err = true, nil
		case err != nil:
			return nil, err
		}
	}
	detached = st.attachLocked(out)
	st.streaming, st.backlog = true, 0
	complete, final := true, false
	switch {
	case late:
		st.restarted, st.storeCheck = true, newStoreCheck(lastSentID)
	case lastSentID == "":
		err = st.primeLocked()
	case events != nil:
		var last string
		last, complete, final, err = st.replayLocked(events)
		if st.done && !final && last != "" && (complete || err != nil) && st.session.shared != nil && st != &st.session.standalone {
			err = &restError{last}
		}
	}
	if complete && err == nil {
		st.setClientAway(false)
		if !late {
			st.beginStoreCheckLocked()
		}
	}
	if err != nil || st.done || final || out.writeKeepAlive() != nil {
		st.detachLocked()
	}
	return detached, err
}

// eventsAfter calls the store, which must respond within timeout. The caller ranges over the events
// unless there is an error.
func (s *session) eventsAfter(ctx context.Context, id string, timeout time.Duration) (events iter.Seq2[StoredEvent, error], err error) {
	ctx, cancel := context.WithCancel(ctx)
	limit := time.AfterFunc(timeout, cancel) // of the call, not of the writes to the client
	defer func() {
		if !limit.Stop() && err == nil {
			err = context.DeadlineExceeded
		}
		if err != nil {
			cancel()
		}
	}()
	defer recoverStore(&err)
	_, found, err := s.h.events.After(ctx, s.key, id)
	return func(yield func(StoredEvent, error) bool) {
		defer cancel()
		found(yield)
	}, err
}

// A restError means that the store did not return the events after one of a stream that has ended.
type restError struct{ after string }

func (e *restError) Error() string { return "the store lacks the events after " + e.after }

// replayLocked writes stored events. It returns the id of the last one, and reports whether the
// client has taken all of them. final means that the stream has ended: other processes may have
// ended one of this process.
func (st *stream) replayLocked(events iter.Seq2[StoredEvent, error]) (last string, complete, final bool, err error) {
	for e, err := range events {
		if err != nil {
			return last, false, false, err
		}
		if e.hasMessage() && st.writeLocked(e.ID, e.Data, 0) != nil {
			return last, false, false, nil // the next write fails too
		}
		last = e.ID
		if st.name != standaloneName && isFinal(e.Data) {
			return last, true, true, nil
		}
	}
	return last, true, false, nil
}

// errCannotResume is the error of [CloseStream] if the client would not resume the stream.
var errCannotResume = errors.New("the client cannot resume the stream")

// CloseStream ends the HTTP response of the request that ctx belongs to while the handler
// continues, so that slow work does not keep a connection open: the client resumes after retry, by
// a GET, for the remaining events and the result. If retry is 0, Options.Retry counts. Only clients
// of one revision do that
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server).
// For others, and for a ctx without a request of a [Handler], it returns an error.
func CloseStream(ctx context.Context, retry time.Duration) error {
	r := rpc.RequestContext(ctx)
	if r == nil {
		return errCannotResume
	}
	err := errCannotResume
	rpc.WithSender(r, func(out rpc.Sender) {
		if st, ok := out.(*stream); ok && st.session.polling() {
			err = st.closeEarly(retry)
		}
	})
	return err
}

func (st *stream) closeEarly(retry time.Duration) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.out == nil {
		return nil // no response is open
	}
	if !st.out.accept.stream {
		return errCannotResume
	}
	if !st.streaming {
		st.out.closeConn = true
		if err := st.startLocked(); err != nil {
			return err
		}
	}
	if st.gap && st.afterGapID == "" {
		return errCannotResume
	}
	if retry > 0 {
		// The client's last id is enough if this fails.
		st.out.writeEvent(sse.Event{Retry: retry, HasRetry: true})
	}
	if err := st.out.endNow(); err != nil {
		return err
	}
	st.detachLocked()
	return nil
}

func (rs *response) writeEvent(e sse.Event) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended {
		return errClientGone
	}
	if err := rs.startLocked(); err != nil {
		return err
	}
	var err error
	if rs.buf, err = sse.Append(rs.buf[:0], e); err != nil {
		return err
	}
	return rs.writeLocked()
}

// writeKeepAlive writes a keep-alive comment.
func (rs *response) writeKeepAlive() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended {
		return errClientGone
	}
	if err := rs.startLocked(); err != nil {
		return err
	}
	rs.buf = sse.AppendKeepAlive(rs.buf[:0])
	return rs.writeLocked()
}

// A standingStream is a subscription, or the standalone or resumed stream of a session. It lasts as
// long as the client's authorization and the request, or the connection once that is hijacked.
type standingStream struct {
	h *Handler
	// slot is standing.
	slot *slot
	// session is nil for a subscription. The stream has acquired it.
	session  *session
	response *response

	// end ends the subscription or detaches the stream, with a result if answered is set. It may be
	// nil.
	end  func(answered bool)
	once sync.Once
	// cancel cancels the context of begin.
	cancel context.CancelFunc
	// unbindRequest stops the request's end from canceling that context.
	unbindRequest func() bool
	hijacked      bool
}

// begin returns the context of the stream. It ends with the request until the connection is
// hijacked.
func (ss *standingStream) begin(r *http.Request) context.Context {
	ss.response.closeConn = true
	ctx, cancel := withExpiry(context.WithoutCancel(r.Context()))
	ss.cancel = cancel
	ss.unbindRequest = context.AfterFunc(r.Context(), cancel)
	return ctx
}

// finish ends the stream. Only the first call counts.
func (ss *standingStream) finish(answered bool) {
	ss.once.Do(func() {
		if ss.end != nil {
			ss.end(answered)
		}
		ss.response.stop()
		ss.unbindRequest()
		ss.cancel()
		if ss.session != nil {
			ss.session.release()
		}
	})
}

// sendRetry tells the client of a session when to come back, if the handler shuts down. Another
// process may then serve the stream.
func (ss *standingStream) sendRetry() {
	if ss.h.closed.Err() != nil && ss.response.isStreaming() {
		// The stream ends, also if this fails.
		_ = ss.response.writeEvent(sse.Event{Retry: ss.h.opts.Retry, HasRetry: true})
	}
}

// served is called when the request has been served.
func (ss *standingStream) served() {
	if !ss.hijacked {
		ss.finish(true)
	}
}

// serveHijacked ends the stream when the client disconnects, the authorization expires or the
// handler shuts down. It detaches the slot now, because the client may send more before this
// request has been served.
func (ss *standingStream) serveHijacked(ctx context.Context) {
	ss.hijacked = true
	ss.slot = ss.slot.detach()
	ss.unbindRequest()
	stopOnShutdown := context.AfterFunc(ss.h.closed, func() { ss.finish(true) })
	stopOnExpiry := context.AfterFunc(ctx, func() { ss.finish(false) })
	go func() {
		defer ss.slot.release()
		ss.response.waitClosed()
		stopOnShutdown()
		stopOnExpiry()
		ss.finish(false)
	}()
}

// subscribe answers subscriptions/listen.
func (ss *standingStream) subscribe(pr *postRequest) {
	ctx := ss.begin(pr.r)
	ss.response.startKeepAlive(nil)
	returned := false
	defer func() {
		if !returned { // middleware ended the goroutine
			ss.response.fail(pr.id())
		}
	}()
	d := &pr.delivery
	d.Sender, d.Untracked, d.AllowDeferred = ss.response, true, true
	answer, err := ss.h.modern.deliverRequest(pr.withIdentity(ctx), pr.body, &pr.delivery, nil)
	returned = true
	deferred, ok := err.(*rpc.Deferred)
	if !ok { // it was rejected, or has ended
		if ctx.Err() == nil {
			ss.response.end(answer, err)
		}
		return
	}
	ss.end = func(answered bool) {
		answer := deferred.Finish(nil)
		// Do not report success to a client that has lost its authorization.
		if answered && ctx.Err() == nil {
			ss.response.end(answer, nil)
		}
	}
	if ss.response.hijack() {
		ss.serveHijacked(ctx)
		return
	}
	select {
	case <-ctx.Done():
	case <-ss.h.closed.Done():
	}
}
