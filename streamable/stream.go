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

	"mcpwire/auth"
	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
)

// A stream is what a legacy session sends in one place: the answer to a request with what goes before it, or what belongs to no request. It outlasts the
// responses that carry it: a client that lost one asks for the rest, by the id of the last event that it had. It is the outlet of its request, or of the
// session.
type stream struct {
	session *session
	name    string

	mu         sync.Mutex
	out        *response     // that carries it now; nil if none does
	detached   chan struct{} // closed when out is to end
	streaming  bool          // it is one of events: there is no plain JSON any more
	done       bool          // nothing more will be sent from here
	suspect    bool          // its client seems to have gone
	stopWatch  func()        // ends the wait for the client to go; nil if there is none
	orphaned   bool          // its client has gone, and has nothing to resume it with
	remote     bool          // another process may send more
	gap        bool          // an event is missing in the store, so that no client may resume behind what came before it
	restarted  bool          // what comes behind the gap is kept: a client has begun the stream anew
	afterGapID string        // the first event behind a gap; "" if there is no gap, or nothing behind it yet
	lastSentID string        // the last event that a client was sent, or the one before the first
	lastID     string        // the newest event
	backlog    int           // events since a client had one, while none listened
}

// attachLocked makes out the response that carries the stream, instead of the one that did. left is closed when it is to end.
func (st *stream) attachLocked(out *response) (detached chan struct{}) {
	st.detachLocked()
	st.out, st.detached = out, make(chan struct{})
	return st.detached
}

// detachLocked makes the response end that carries the stream.
func (st *stream) detachLocked() {
	if st.detached != nil {
		close(st.detached)
	}
	if st.out != nil && st.streaming && !st.done {
		st.setClientAway(true)
	}
	if st.out != nil && st.out.isHijacked() {
		st.out.stop() // nobody waits for left
	}
	if st.stopWatch != nil {
		st.stopWatch()
	}
	st.out, st.detached, st.stopWatch, st.suspect = nil, nil, nil, false
}

// setClientAway tells the store that the stream waits for its client, or does not.
func (st *stream) setClientAway(away bool) {
	if m := st.session.h.memoryEvents; m != nil {
		m.setAway(st.session.id, st.name, away)
	}
}

// markSuspect notes that the client seems to have gone. It may only have said that it sends nothing more,
// and still read.
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

// orphanLocked notes that nobody can come back for the stream.
func (st *stream) orphanLocked() {
	if !st.streaming && !st.done && !st.orphaned {
		st.orphaned = true
		st.session.orphaned.Add(1)
	}
}

// hijack takes the connection of out, which carries the stream, from net/http, and reports whether it did.
func (st *stream) hijack(out *response) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.out == out && out.hijack()
}

// detach is called when out ends, for whatever reason.
func (st *stream) detach(out *response) {
	st.mu.Lock()
	if st.out == out {
		st.detachLocked()
		st.orphanLocked()
	}
	st.mu.Unlock()
	out.stop()
}

// close makes the response end that carries the stream, because there is nothing more to come.
func (st *stream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.done = true
	st.detachLocked()
}

// reset makes ready for another request, and reports false if somebody may still have it: it is one of events.
func (st *stream) reset() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.streaming {
		return false
	}
	st.session = nil
	return true
}

// isComplete reports whether nothing more will come.
func (st *stream) isComplete() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.done && !st.remote
}

// isAttached reports whether a response carries the stream.
func (st *stream) isAttached() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.out != nil
}

// endsWith reports whether the newest event is the one with that id.
func (st *stream) endsWith(id string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.lastID == id
}

// Send implements [jsonrpc.Sender]. It fails only if the message can neither be sent nor kept.
func (st *stream) Send(message []byte) error {
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

// maxStandaloneBacklog is how many events are kept of what belongs to no request, for a client that does not listen. Many never do, and there is only so much memory for all.
const maxStandaloneBacklog = 128

func (st *stream) sendLocked(message []byte) error {
	switch {
	case st.done:
		return errClientGone
	case st.out != nil && !st.out.accept.stream:
		if isRequest(message) {
			return errClientTakesNoStream
		}
		return nil // the client has said that it takes none
	case st.out == nil && !st.streaming:
		return errClientGone // it has nothing to come back with
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
	return nil // if it is not kept, the client has it all the same
}

// isRequest reports whether a message wants an answer.
func isRequest(message []byte) bool {
	var m jsonrpc.Message
	return jsonrpc.Parse(message, &m, 0) == nil && m.Kind == jsonrpc.KindRequest
}

// writeLocked writes an event to the response that carries the stream.
func (st *stream) writeLocked(id string, message []byte, retry time.Duration) error {
	if err := st.out.writeEvent(id, message, retry); err != nil {
		st.session.h.opts.Logger.Debug("a client does not read its stream", "error", err)
		return err
	}
	if id != "" {
		st.lastSentID = id
	}
	return nil
}

// startRequestLocked makes the answer a stream.
func (st *stream) startLocked() error {
	st.streaming = true
	st.session.register(st)
	if out := st.out; out != nil && out.clientGone != nil { // what it was sent is of use to it, if it has not read that
		stop := context.AfterFunc(out.clientGone, func() { st.markSuspect(out) })
		st.stopWatch = func() { stop() }
	}
	return st.primeLocked()
}

// primeLocked begins a response with an event that has nothing but an id, to come back with, for clients that know of it.
func (st *stream) primeLocked() error {
	if st.out == nil || !st.session.polling() {
		return nil
	}
	id, err := st.persist(nil)
	if err != nil && st.session.ctx.Err() != nil {
		return err
	} else if err != nil {
		return nil // it begins without an id
	}
	return st.writeLocked(id, nil, st.session.h.opts.Retry)
}

// storeTimeout bounds how long a store may take.
const storeTimeout = 5 * time.Second

// persist stores an event and returns its id. If that fails, nothing more of the stream is stored, and
// it cannot be resumed: a client that did would not know that something is missing.
func (st *stream) persist(message []byte) (id string, err error) {
	if st.gap && st.afterGapID == "" && !st.restarted {
		return "", errGap
	}
	id, err = st.store(message)
	switch {
	case err == nil:
		st.lastID = id
		if st.gap && st.afterGapID == "" {
			st.afterGapID = id
		}
	case err != errClientGone:
		st.noteGapLocked(err)
	}
	return id, err
}

// errGap is why no more events of a stream are kept.
var errGap = errors.New("the stream has a gap in the store of events")

// noteGapLocked notes that the store has not taken an event.
func (st *stream) noteGapLocked(err error) {
	h := st.session.h
	h.unresumable.Add(1)
	h.opts.Logger.Warn("a stream cannot be resumed any more: its events are not kept", "error", err)
	if st.lastID != "" && st.name != standaloneName {
		st.session.noteGap(st.name)
	}
	st.gap, st.restarted, st.afterGapID, st.lastSentID = true, false, "", ""
}

// isBehindGapLocked reports whether an event came before something that is missing, or may have.
func (st *stream) isBehindGapLocked(ctx context.Context, id string) bool {
	if !st.gap || id == st.afterGapID && id != "" {
		return false
	}
	if st.afterGapID == "" {
		return true
	}
	_, events, err := st.session.h.events.After(ctx, st.session.id, st.afterGapID)
	if err != nil {
		return true
	}
	for e, err := range events {
		if err != nil {
			return true
		}
		if e.ID == id {
			return false
		}
	}
	return true
}

// store is keep without its bookkeeping.
func (st *stream) store(message []byte) (id string, err error) {
	ctx, h := st.session.ctx, st.session.h
	if h.memoryEvents == nil {
		if h.clock.elapsed() < time.Duration(h.storeDownUntil.Load()) {
			return "", errStoreDown
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, storeTimeout)
		defer cancel()
	}
	if ctx.Err() != nil {
		return "", errClientGone // the session has ended: nobody would drop it any more
	}
	defer recoverStore(&err)
	if h.memoryEvents != nil {
		return h.memoryEvents.append(st.session.callerID, st.session.id, st.name, message, st.out == nil || st.suspect)
	}
	if id, err = h.events.Append(ctx, st.session.id, st.name, message); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && st.session.ctx.Err() == nil {
			h.storeDownUntil.Store(int64(h.clock.elapsed() + storePause))
		}
		return "", fmt.Errorf("keep an event: %w", err)
	}
	return id, nil
}

// storePause is how long a store of events that has not answered in time is not asked to keep any,
// so that not every message waits for it.
const storePause = 10 * time.Second

var errStoreDown = errors.New("the store of events has not answered in time lately")

// recoverStore makes the panic of a store an error. Not all goroutines that use one are net/http's, which would.
func recoverStore(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("the store panicked: %v\n%s", v, debug.Stack())
	}
}

// finish sends the answer to the request, which is empty if there is to be none. err is what it says
// where a status can say it too; nil if that is 200. Only the first call counts. It returns the
// response that it has ended; nil if none.
func (st *stream) finish(answer []byte, err error) (ended *response) {
	return st.finishWhen(answer, err, false)
}

// finishEarly is finish, called though the handler has not returned.
func (st *stream) finishEarly(answer []byte, err error) { st.finishWhen(answer, err, true) }

func (st *stream) finishWhen(answer []byte, err error, early bool) (ended *response) {
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
	case len(answer) == 0 && !st.streaming && st.session.ctx.Err() != nil: // the client is told why there is no answer
	case !st.streaming && out != nil && (err != nil || !(st.session.polling() && out.wantsStream(answer))):
		out.endWhen(answer, err, early) // not stored, if it is an event: who has got nothing before has no id to come back with
		ended = out
	case st.streaming || out != nil:
		if len(answer) > 0 {
			if out != nil && !early {
				out.markFinal() // the answer need not be flushed by itself
			}
			if err := st.sendLocked(answer); err != nil {
				st.session.h.opts.Logger.Warn("an answer is lost", "error", err)
			}
		}
		if out != nil {
			out.end(nil, nil)
			ended = out
		}
	} // else nobody waits for it, and nobody can come back
	st.done = true
	if st.streaming {
		st.session.unregister(st) // now that all of it is in the store
	}
	st.detachLocked()
	return ended
}

// keepAlive is called when nothing has been written for a while.
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

// resume has out carry the stream from behind an event on, or from where nobody has had anything if that is "". left is closed when it is to end. The error is
// the store's; nothing has changed then, unless something was written.
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
	if lastSentID != "" && lastSentID != st.lastID {
		_, events, err = st.session.h.events.After(ctx, st.session.id, lastSentID)
		if errors.Is(err, ErrEventGone) && lastID == "" {
			lastSentID, err = "", nil // it begins anew with what there is
		}
		if err != nil {
			return nil, err
		}
	}
	detached = st.attachLocked(out)
	st.streaming, st.backlog = true, 0
	complete := true
	if lastSentID == "" {
		err = st.primeLocked()
	} else if events != nil {
		complete, err = st.replayLocked(events)
	}
	if complete && err == nil {
		st.setClientAway(false)
	}
	noMore := st.done && !st.remote // so that there may be nothing to begin a response with
	if err != nil || noMore || out.writeKeepAlive() != nil || st.done {
		st.detachLocked()
	}
	return detached, err
}

// replayLocked writes what the store has of the stream, and reports whether the client has taken it.
func (st *stream) replayLocked(events iter.Seq2[StoredEvent, error]) (complete bool, err error) {
	for e, err := range events {
		if err != nil {
			return false, err
		}
		if len(e.Data) == 0 {
			continue
		}
		if st.writeLocked(e.ID, e.Data, 0) != nil {
			return false, nil // as the next write will find out
		}
	}
	return true, nil
}

// ErrNotResumable is what [CloseStream] returns where the client would not come back.
var ErrNotResumable = errors.New("the client cannot resume the stream")

// CloseStream ends the HTTP response that waits for the request which ctx is the context of, while its handler goes on, so that no connection is kept open
// for work that takes long: the client comes back after retry, by a GET, for the rest and the answer. 0 is Options.Retry. Only clients of one revision do that
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server); for others, and where ctx is of no request
// that came by a [Handler], the error is [ErrNotResumable].
func CloseStream(ctx context.Context, retry time.Duration) error {
	r := jsonrpc.RequestContext(ctx)
	if r == nil {
		return ErrNotResumable
	}
	err := ErrNotResumable
	r.WithSender(func(out jsonrpc.Sender) {
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
		return nil // nobody waits
	}
	if !st.out.accept.stream {
		return ErrNotResumable
	}
	if !st.streaming {
		st.out.closeConn = true
		if err := st.startLocked(); err != nil {
			return err
		}
	}
	if st.gap && st.afterGapID == "" {
		return ErrNotResumable
	}
	if retry > 0 {
		st.out.writeEvent("", nil, retry) // the id that it has is good enough if this fails
	}
	if err := st.out.endNow(); err != nil {
		return err
	}
	st.detachLocked()
	return nil
}

// writeEvent writes an event of a stream that may be resumed.
func (rs *response) writeEvent(id string, message []byte, retry time.Duration) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended {
		return errClientGone
	}
	if err := rs.startLocked(); err != nil {
		return err
	}
	e := sse.Event{ID: []byte(id), HasID: id != "", Data: message, Retry: retry, HasRetry: retry > 0}
	var err error
	if rs.buf, err = sse.Append(rs.buf[:0], e); err != nil {
		return err
	}
	return rs.writeLocked()
}

// writeKeepAlive writes a sign of life.
func (rs *response) writeKeepAlive() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ended {
		return errClientGone
	}
	if err := rs.startLocked(); err != nil {
		return err
	}
	rs.buf = sse.AppendComment(rs.buf[:0], keepAliveComment)
	return rs.writeLocked()
}

// A listener is a client with a standing stream: a subscription, or what belongs to no request of a session. It lasts as long as the client's authorization, and
// its request, unless its connection is held (see response.hijacked).
type standingStream struct {
	h        *Handler
	caller   *caller
	response *response
	release  func() // gives up its place among the streams

	// end ends what the stream is about, with an answer if the client is to have one; nil if there is nothing yet.
	end           func(answered bool)
	once          sync.Once
	cancel        context.CancelFunc // of what begin returned
	unbindRequest func() bool        // from the request
	hijacked      bool
}

// begin returns the context of the stream. It ends with the request's until the connection is held.
func (ss *standingStream) begin(r *http.Request) context.Context {
	ss.response.closeConn = true
	ctx, cancel := auth.WithExpiry(context.WithoutCancel(r.Context()))
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
		ss.release()
	})
}

// done is called when the request has been. It reports whether a goroutine goes on with it, which has to leave then.
func (ss *standingStream) done() (detached bool) {
	if !ss.hijacked {
		ss.finish(true)
	}
	return ss.hijacked
}

// serveHijacked has the stream end when the client is gone, the authorization ends, or the handler shuts down, whichever is first. The connection has been taken, and with
// it the place of the request among those that are counted: a client that sees the stream may ask for more before the request has been served.
func (ss *standingStream) serveHijacked(ctx context.Context) {
	ss.hijacked = true
	ss.unbindRequest()
	stopOnShutdown := context.AfterFunc(ss.h.closed, func() { ss.finish(true) })
	stopOnExpiry := context.AfterFunc(ctx, func() { ss.finish(false) })
	go func() {
		defer ss.h.releaseHTTP(ss.caller, nil)
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
		if !returned { // middleware has ended the goroutine
			ss.response.fail(pr.id())
		}
	}()
	d := &pr.delivery
	d.Sender, d.Untracked, d.AllowDeferred = ss.response, true, true
	answer, err := ss.h.modern.deliverRequest(pr.withIdentity(ctx), pr.body, &pr.delivery, nil)
	returned = true
	deferred, ok := err.(*jsonrpc.Deferred)
	if !ok { // it was refused, or has ended
		if ctx.Err() == nil {
			ss.response.end(answer, err)
		}
		return
	}
	ss.end = func(answered bool) {
		answer := deferred.Finish(nil)
		if answered && ctx.Err() == nil { // the client is not to hear that all went well if it has lost its authorization
			ss.response.end(answer, nil)
		}
	}
	if ss.response.hijack() {
		ss.serveHijacked(ctx)
		return
	}
	select {
	case <-pr.r.Context().Done():
	case <-ctx.Done():
	case <-ss.h.closed.Done():
	}
}
