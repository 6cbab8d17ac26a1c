package streamable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"mcpwire/internal/sse"
	"mcpwire/jsonrpc"
)

// A stream is what a legacy session sends in one place: the answer to a request with what goes before it, or what belongs to no request. It outlasts the
// responses that carry it: a client that lost one asks for the rest, by the id of the last event that it had. It is the outlet of its request, or of the
// session.
type stream struct {
	session *session
	name    string

	mu      sync.Mutex
	out     *response     // that carries it now; nil if none does
	left    chan struct{} // closed when out is to end
	open    bool          // it is one of events: there is no plain JSON any more
	done    bool          // nothing more will be sent from here
	doubt   bool          // its client seems to have gone
	unwatch func()        // ends the wait for the client to go; nil if there is none
	lost    bool          // its client has gone, and has nothing to resume it with
	away    bool          // another process may send more
	gap     bool          // an event is missing in the store, so that no client may resume behind what came before it
	again   bool          // what comes behind the gap is kept: a client has begun the stream anew
	next    string        // the first event behind a gap; "" if there is no gap, or nothing behind it yet
	had     string        // the last event that a client was sent, or the one before the first
	last    string        // the newest event
	kept    int           // events since a client had one, while none listened
}

// carryLocked makes out the response that carries the stream, instead of the one that did. left is closed when it is to end.
func (st *stream) carryLocked(out *response) (left chan struct{}) {
	st.leaveLocked()
	st.out, st.left = out, make(chan struct{})
	return st.left
}

// leaveLocked makes the response end that carries the stream.
func (st *stream) leaveLocked() {
	if st.left != nil {
		close(st.left)
	}
	if st.out != nil && st.open && !st.done {
		st.setAway(true)
	}
	if st.out != nil && st.out.isHeld() {
		st.out.stop() // nobody waits for left
	}
	if st.unwatch != nil {
		st.unwatch()
	}
	st.out, st.left, st.unwatch, st.doubt = nil, nil, nil, false
}

// setAway tells the store that the stream waits for its client, or does not.
func (st *stream) setAway(away bool) {
	if m := st.session.h.memory; m != nil {
		m.setAway(st.session.id, st.name, away)
	}
}

// doubts notes that the client seems to have gone. It may only have said that it sends nothing more,
// and still read.
func (st *stream) doubts(out *response) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.out != out || st.done {
		return
	}
	if st.open {
		st.doubt = true
		st.setAway(true)
		return
	}
	st.loseLocked()
}

// loseLocked notes that nobody can come back for the stream.
func (st *stream) loseLocked() {
	if !st.open && !st.done && !st.lost {
		st.lost = true
		st.session.gone.Add(1)
	}
}

// hold takes the connection of out, which carries the stream, from net/http, and reports whether it did.
func (st *stream) hold(out *response) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.out == out && out.hold()
}

// abandon is called when out ends, for whatever reason.
func (st *stream) abandon(out *response) {
	st.mu.Lock()
	if st.out == out {
		st.leaveLocked()
		st.loseLocked()
	}
	st.mu.Unlock()
	out.stop()
}

// release makes the response end that carries the stream, because there is nothing more to come.
func (st *stream) release() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.done = true
	st.leaveLocked()
}

// rest makes ready for another request, and reports false if somebody may still have it: it is one of events.
func (st *stream) rest() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.open {
		return false
	}
	st.session = nil
	return true
}

// over reports whether nothing more will come.
func (st *stream) over() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.done && !st.away
}

// isCarried reports whether a response carries the stream.
func (st *stream) isCarried() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.out != nil
}

// endsWith reports whether the newest event is the one with that id.
func (st *stream) endsWith(id string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.last == id
}

// Send implements [jsonrpc.Outlet]. It fails only if the message can neither be sent nor kept.
func (st *stream) Send(message []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.name == newsName && st.out == nil {
		if st.kept >= maxNews {
			return errGone
		}
		st.kept++
	}
	return st.sendLocked(message)
}

// maxNews is how many events are kept of what belongs to no request, for a client that does not listen. Many never do, and there is only so much memory for all.
const maxNews = 128

func (st *stream) sendLocked(message []byte) error {
	switch {
	case st.done:
		return errGone
	case st.out != nil && !st.out.takes.stream:
		if isQuestion(message) {
			return errNoStream
		}
		return nil // the client has said that it takes none
	case st.out == nil && !st.open:
		return errGone // it has nothing to come back with
	}
	if !st.open {
		if err := st.startLocked(); err != nil {
			return err
		}
	}
	if st.out == nil && st.had == "" {
		id, err := st.keep(nil)
		if err != nil {
			return err
		}
		st.had = id
	}
	id, err := st.keep(message)
	if err != nil && st.out == nil {
		return err
	}
	if st.out == nil {
		return nil
	}
	if failed := st.writeLocked(id, message, 0); failed != nil {
		st.leaveLocked()
		if err != nil {
			return errors.Join(err, failed)
		}
	}
	return nil // if it is not kept, the client has it all the same
}

// isQuestion reports whether a message wants an answer.
func isQuestion(message []byte) bool {
	var m jsonrpc.Message
	return jsonrpc.Parse(message, &m, 0) == nil && m.Kind == jsonrpc.KindRequest
}

// writeLocked writes an event to the response that carries the stream.
func (st *stream) writeLocked(id string, message []byte, retry time.Duration) error {
	if err := st.out.event(id, message, retry); err != nil {
		st.session.h.opts.Logger.Debug("a client does not read its stream", "error", err)
		return err
	}
	if id != "" {
		st.had = id
	}
	return nil
}

// startLocked makes the answer a stream.
func (st *stream) startLocked() error {
	st.open = true
	st.session.list(st)
	if out := st.out; out != nil && out.gone != nil { // what it was sent is of use to it, if it has not read that
		stop := context.AfterFunc(out.gone, func() { st.doubts(out) })
		st.unwatch = func() { stop() }
	}
	return st.primeLocked()
}

// primeLocked begins a response with an event that has nothing but an id, to come back with, for clients that know of it.
func (st *stream) primeLocked() error {
	if st.out == nil || !st.session.polling() {
		return nil
	}
	id, err := st.keep(nil)
	if err != nil && st.session.ctx.Err() != nil {
		return err
	} else if err != nil {
		return nil // it begins without an id
	}
	return st.writeLocked(id, nil, st.session.h.opts.Retry)
}

// storeTimeout bounds how long a store may take.
const storeTimeout = 5 * time.Second

// keep stores an event and returns its id. If that fails, nothing more of the stream is stored, and
// it cannot be resumed: a client that did would not know that something is missing.
func (st *stream) keep(message []byte) (id string, err error) {
	if st.gap && st.next == "" && !st.again {
		return "", errGap
	}
	id, err = st.store(message)
	switch {
	case err == nil:
		st.last = id
		if st.gap && st.next == "" {
			st.next = id
		}
	case err != errGone:
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
	if st.last != "" && st.name != newsName {
		st.session.noteGap(st.name)
	}
	st.gap, st.again, st.next, st.had = true, false, "", ""
}

// isBehindGapLocked reports whether an event came before something that is missing, or may have.
func (st *stream) isBehindGapLocked(ctx context.Context, id string) bool {
	if !st.gap || id == st.next && id != "" {
		return false
	}
	if st.next == "" {
		return true
	}
	_, events, err := st.session.h.events.After(ctx, st.session.id, st.next)
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
	if h.memory == nil {
		if h.clock.since() < time.Duration(h.storeDown.Load()) {
			return "", errStoreDown
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, storeTimeout)
		defer cancel()
	}
	if ctx.Err() != nil {
		return "", errGone // the session has ended: nobody would drop it any more
	}
	defer contain(&err)
	if h.memory != nil {
		return h.memory.append(st.session.caller, st.session.id, st.name, message, st.out == nil || st.doubt)
	}
	if id, err = h.events.Append(ctx, st.session.id, st.name, message); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && st.session.ctx.Err() == nil {
			h.storeDown.Store(int64(h.clock.since() + storePause))
		}
		return "", fmt.Errorf("keep an event: %w", err)
	}
	return id, nil
}

// storePause is how long a store of events that has not answered in time is not asked to keep any,
// so that not every message waits for it.
const storePause = 10 * time.Second

var errStoreDown = errors.New("the store of events has not answered in time lately")

// contain makes the panic of a store an error. Not all goroutines that use one are net/http's, which would.
func contain(err *error) {
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
	if st.lost {
		st.lost = false
		st.session.gone.Add(-1)
	}
	out := st.out
	switch {
	case len(answer) == 0 && !st.open && st.session.ctx.Err() != nil: // the client is told why there is no answer
	case !st.open && out != nil && (err != nil || !(st.session.polling() && out.streams(answer))):
		out.endWhen(answer, err, early) // not stored, if it is an event: who has got nothing before has no id to come back with
		ended = out
	case st.open || out != nil:
		if len(answer) > 0 {
			if out != nil && !early {
				out.ends() // the answer need not be flushed by itself
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
	if st.open {
		st.session.forget(st) // now that all of it is in the store
	}
	st.leaveLocked()
	return ended
}

// warm is called when nothing has been written for a while.
func (st *stream) warm(out *response) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.out != out || !out.takes.stream {
		return
	}
	if !st.open {
		if err := st.startLocked(); err != nil {
			return
		}
	}
	if out.comment() != nil {
		st.leaveLocked()
	}
}

// resume has out carry the stream from behind an event on, or from where nobody has had anything if that is "". left is closed when it is to end. The error is
// the store's; nothing has changed then, unless something was written.
func (st *stream) resume(ctx context.Context, out *response, from string) (left chan struct{}, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if from != "" && st.isBehindGapLocked(ctx, from) {
		return nil, ErrEventGone
	}
	had := from
	if had == "" {
		had = st.had
		st.again = true
	}
	var events iter.Seq2[StoredEvent, error]
	if had != "" && had != st.last {
		_, events, err = st.session.h.events.After(ctx, st.session.id, had)
		if errors.Is(err, ErrEventGone) && from == "" {
			had, err = "", nil // it begins anew with what there is
		}
		if err != nil {
			return nil, err
		}
	}
	left = st.carryLocked(out)
	st.open, st.kept = true, 0
	whole := true
	if had == "" {
		err = st.primeLocked()
	} else if events != nil {
		whole, err = st.replayLocked(events)
	}
	if whole && err == nil {
		st.setAway(false)
	}
	over := st.done && !st.away // so that there may be nothing to begin a response with
	if err != nil || over || out.comment() != nil || st.done {
		st.leaveLocked()
	}
	return left, err
}

// replayLocked writes what the store has of the stream, and reports whether the client has taken it.
func (st *stream) replayLocked(events iter.Seq2[StoredEvent, error]) (whole bool, err error) {
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
	r.WithOutlet(func(out jsonrpc.Outlet) {
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
	if !st.out.takes.stream {
		return ErrNotResumable
	}
	if !st.open {
		st.out.lone = true
		if err := st.startLocked(); err != nil {
			return err
		}
	}
	if st.gap && st.next == "" {
		return ErrNotResumable
	}
	if retry > 0 {
		st.out.event("", nil, retry) // the id that it has is good enough if this fails
	}
	if err := st.out.cut(); err != nil {
		return err
	}
	st.leaveLocked()
	return nil
}

// event writes an event of a stream that may be resumed.
func (p *response) event(id string, message []byte, retry time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return errGone
	}
	if err := p.startLocked(); err != nil {
		return err
	}
	e := sse.Event{ID: []byte(id), HasID: id != "", Data: message, Retry: retry, HasRetry: retry > 0}
	var err error
	if p.buf, err = sse.Append(p.buf[:0], e); err != nil {
		return err
	}
	return p.writeLocked()
}

// comment writes a sign of life.
func (p *response) comment() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return errGone
	}
	if err := p.startLocked(); err != nil {
		return err
	}
	p.buf = sse.AppendComment(p.buf[:0], signOfLife)
	return p.writeLocked()
}
