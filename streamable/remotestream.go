package streamable

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A client may resume a stream at another process than the one that handles the request. That
// process, the stream's node, appends to the event store, and this one passes on what it appends.
// If the node is gone, another one ends the stream with an error. The first response in the stream
// is the last event that any client gets, so it does not matter if two nodes end it, or if the node
// comes back.

// A remoteStream is a stream of a request that another process handles, or has handled.
type remoteStream struct {
	session *session
	name    string
	// node is the node that handles the request.
	node string
	// requestID is nil if the name does not contain it.
	requestID jsonrpc.ID
}

// maxNamedID limits the bytes of the id of a request in the name of its stream. A UUID in quotes
// has 38.
const maxNamedID = 64

// streamName returns the name of the stream of a request that this process handles. In the name
// other processes find what they need to end the stream.
func (h *Handler) streamName(n int, requestID jsonrpc.ID) string {
	name := strconv.Itoa(n)
	if h.opts.Sessions == nil {
		return name
	}
	name += "." + h.instance
	if len(requestID) > 0 && len(requestID) <= maxNamedID {
		name += "." + base64.RawURLEncoding.EncodeToString(requestID)
	}
	return name
}

// remoteStream returns the stream with that name if it is one of another process, or nil.
func (s *session) remoteStream(name string) *remoteStream {
	rm := s.namedStream(name)
	if s.h.opts.Sessions == nil || !isNodeName(rm.node) || rm.node == s.h.instance {
		return nil
	}
	return rm
}

// namedStream returns what the name of a stream contains.
func (s *session) namedStream(name string) *remoteStream {
	_, rest, _ := strings.Cut(name, ".")
	node, encodedID, _ := strings.Cut(rest, ".")
	rm := &remoteStream{session: s, name: name, node: node}
	if id, err := base64.RawURLEncoding.DecodeString(encodedID); err == nil && len(id) > 0 && json.Valid(id) {
		rm.requestID = jsonrpc.ID(id)
	}
	return rm
}

// A streamState is what the node of a stream knows of it.
type streamState string

const (
	streamUnknown streamState = "" // the node cannot be asked
	// streamPending means that the node handles the request.
	streamPending streamState = "pending"
	// streamEnded means that the store has all of the stream.
	streamEnded streamState = "ended"
	// streamIncomplete means that the store lacks an event.
	streamIncomplete streamState = "incomplete"
	// streamLost means that the node is gone.
	streamLost streamState = "lost"
)

// stateOf returns the state of a stream of this process.
func (s *session) stateOf(name string) streamState {
	switch {
	case s.hasGap(name):
		return streamIncomplete
	case s.findStream(name) != nil:
		return streamPending
	}
	return streamEnded
}

const (
	// nodeInterval is the time between checks whether a node is there. It also limits each check: a
	// request to a node that was killed just now may never be answered.
	nodeInterval = 750 * time.Millisecond
	// nodeChecks is the number of checks in a row that a node must fail to count as gone. A node
	// that connects to its backend again is away for a moment.
	nodeChecks = 3
	// stateInterval is the time between questions for the state of a stream. By them the node knows
	// that the client waits. stateTime limits each of them.
	stateInterval = 15 * time.Second
	stateTime     = time.Second
	// pollInterval is the time between reads of a store that is no EventFollower.
	pollInterval = time.Second
	// findTime limits the first read of a stream. If the store does not respond, the response
	// begins, and the stream is read when it does.
	findTime = 500 * time.Millisecond
	// lostTime limits the attempt to end the stream of a node that is gone for all clients. If the
	// store does not respond, the error is only for the client that waits.
	lostTime = 500 * time.Millisecond
	// followRetry is the time between attempts to follow a stream, and followTime that after which
	// the client must come back.
	followRetry = 200 * time.Millisecond
	followTime  = 30 * time.Second
)

// A nodeWatch checks whether a node is there, for the streams that are followed.
type nodeWatch struct {
	// refs counts the streams. The forwarder's mu guards it.
	refs int
	// gone is closed when the node is gone.
	gone chan struct{}
	// cancel ends the goroutine.
	cancel context.CancelFunc
}

// watchNode returns a channel that is closed if the node is gone. The caller calls stop. f may be
// nil.
func (f *forwarder) watchNode(node string) (gone <-chan struct{}, stop func()) {
	if f == nil {
		return nil, func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.watched[node]
	if w == nil {
		ctx, cancel := context.WithCancel(f.h.closed)
		w = &nodeWatch{gone: make(chan struct{}), cancel: cancel}
		if !f.h.followers.Start(func() { f.checkNode(ctx, node, w.gone) }) {
			cancel()
			return nil, func() {}
		}
		f.watched[node] = w
	}
	w.refs++
	return w.gone, sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if w.refs--; w.refs == 0 {
			w.cancel()
			delete(f.watched, node)
		}
	})
}

// checkNode closes gone when the node is gone, or returns when ctx ends.
func (f *forwarder) checkNode(ctx context.Context, node string, gone chan struct{}) {
	for failed := 0; ; {
		next := time.Now().Add(nodeInterval)
		check, cancel := context.WithDeadline(ctx, next)
		_, err := f.request(check, node, &nodeMessage{})
		cancel()
		if errors.Is(err, ErrNoNode) {
			failed++
		} else {
			failed = 0
		}
		if failed == nodeChecks {
			close(gone)
			return
		}
		if !wait.Sleep(ctx, time.Until(next)) {
			return
		}
	}
}

// state asks the stream's node for its state.
func (rm *remoteStream) state(ctx context.Context) streamState {
	s := rm.session
	ctx, cancel := context.WithTimeout(ctx, stateTime)
	defer cancel()
	reply, err := s.h.forwarder.request(ctx, rm.node, &nodeMessage{Session: s.key, Principal: s.principalID, Stream: rm.name})
	switch {
	case errors.Is(err, ErrNoNode):
		return streamLost
	case err != nil:
		return streamUnknown
	}
	return reply.State
}

// errNodeLost is the response to a request whose process is gone.
var errNodeLost = &jsonrpc.Error{
	Code:    jsonrpc.CodeInternalError,
	Message: "the process that handled the request is gone: the request may have had effects",
	Data:    []byte(`{"reason":"node lost","mayHaveRun":true}`),
}

// errUnreachable is the response to a request whose process is gone and whose events cannot be
// read, unless it is this process that is cut off.
var errUnreachable = &jsonrpc.Error{
	Code:    jsonrpc.CodeInternalError,
	Message: "neither the process that handled the request nor what it has stored can be reached: the request may have had effects, and its response may be stored",
	Data:    errNodeLost.Data,
}

// errRestLost is the response to a request whose stream lacks its end in the store.
var errRestLost = &jsonrpc.Error{
	Code:    jsonrpc.CodeInternalError,
	Message: "the rest of the stream is no longer stored: the request has ended, and may have had effects",
	Data:    []byte(`{"reason":"events lost","mayHaveRun":true}`),
}

// end ends the stream of a node that is gone, for all clients.
func (rm *remoteStream) end(ctx context.Context) error {
	if rm.requestID == nil {
		return errors.New("the id of its request is unknown")
	}
	h := rm.session.h
	message := jsonrpc.AppendError(nil, rm.requestID, errNodeLost, false)
	ctx, cancel := context.WithTimeout(ctx, lostTime)
	defer cancel()
	return h.callStore(ctx, func(ctx context.Context) error {
		_, err := h.events.Append(ctx, rm.session.key, rm.name, message)
		return err
	})
}

// endMark is the data of the event that ends a stream without a response.
const endMark = "end"

// hasMessage reports whether clients get the event.
func (e *StoredEvent) hasMessage() bool { return len(e.Data) > 0 && string(e.Data) != endMark }

// isFinal reports whether nothing follows an event: it is a response, a batch of them, or the
// endMark.
func isFinal(data []byte) bool {
	if len(data) == 0 {
		return false
	}
	if data[0] == '[' || string(data) == endMark {
		return true
	}
	var m jsonrpc.Message
	return jsonrpc.Parse(data, &m, 0) == nil && (m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError)
}

// follow yields the events after that id, also those that are appended later, until ctx ends.
func (rm *remoteStream) follow(ctx context.Context, id string) iter.Seq2[StoredEvent, error] {
	events, key := rm.session.h.events, rm.session.key
	return func(yield func(StoredEvent, error) bool) {
		if follower, ok := events.(EventFollower); ok {
			_, found, err := follower.Follow(ctx, key, id)
			if err != nil {
				yield(StoredEvent{}, err)
				return
			}
			found(yield)
			return
		}
		for {
			_, found, err := events.After(ctx, key, id)
			if err != nil {
				yield(StoredEvent{}, err)
				return
			}
			for e, err := range found {
				if !yield(e, err) || err != nil {
					return
				}
				id = e.ID
			}
			if !wait.Sleep(ctx, pollInterval) {
				yield(StoredEvent{}, ctx.Err())
				return
			}
		}
	}
}

var (
	errStreamEnded = errors.New("the stream has ended")
	errStreamLost  = errors.New("the process that handled the request is gone")
)

// supervise ends with a cause when no event will follow: errStreamEnded, ErrEventGone or
// errStreamLost. If it can, it has the store end the stream instead. gone is closed when the node
// of the stream is gone.
func (rm *remoteStream) supervise(ctx context.Context, gone <-chan struct{}, end context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-gone:
			if err := rm.end(ctx); err != nil {
				rm.session.h.opts.Logger.Warn("stream of a process that is gone not ended", "error", err)
			} else if !wait.Sleep(ctx, lostTime) {
				return // it has been passed on
			}
			end(errStreamLost)
			return
		case <-time.After(stateInterval):
		}
		switch rm.state(ctx) {
		case streamEnded:
			end(errStreamEnded)
			return
		case streamIncomplete:
			end(ErrEventGone)
			return
		}
	}
}

// findEvent returns ErrEventGone if the store does not have the event. With another error it does
// not respond.
func (s *session) findEvent(ctx context.Context, id string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	defer recoverStore(&err)
	_, _, err = s.h.events.After(ctx, s.key, id)
	return err
}

// serveRemote makes the response carry a stream of another process from after the event lastID
// until the stream is complete or ctx ends.
func (ss *standingStream) serveRemote(ctx context.Context, rm *remoteStream, lastID string) {
	h, rs := ss.h, ss.response
	gone, stop := h.forwarder.watchNode(rm.node)
	defer stop()
	var err error
	switch state := rm.state(ctx); {
	case state == streamIncomplete, state == streamLost && rm.requestID == nil:
		err = ErrEventGone
	case state == streamEnded:
		err = ss.passRest(ctx, rm, lastID, false)
	case errors.Is(rm.session.findEvent(ctx, lastID), ErrEventGone):
		err = ErrEventGone
	case rs.writeKeepAlive() == nil:
		rs.startKeepAlive(nil)
		err = ss.passAll(ctx, rm, lastID, gone)
	}
	switch {
	case err == nil && !rs.isStreaming():
		rs.endEmpty()
	case err != nil && !rs.isStreaming():
		h.writeNotResumable(rs.w, err)
	case err != nil && ctx.Err() == nil:
		h.opts.Logger.Warn("stream aborted", "error", err)
	}
}

// passAll writes the events after lastID until the stream is complete or ctx ends. gone is closed
// when the node of the stream is gone.
func (ss *standingStream) passAll(ctx context.Context, rm *remoteStream, lastID string, gone <-chan struct{}) error {
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(ss.h.closed, func() { end(nil) })()
	defer context.AfterFunc(rm.session.ctx, func() { end(nil) })()
	var supervising sync.WaitGroup
	supervising.Go(func() { rm.supervise(following, gone, end) })
	first := lastID
	lastID, err := ss.passAvailable(following, rm, lastID)
	end(nil)
	supervising.Wait()
	switch cause := context.Cause(following); {
	case err == nil:
		return nil
	case cause == errStreamEnded:
		return ss.passRest(ctx, rm, lastID, lastID != first)
	case cause == errStreamLost && rm.requestID != nil:
		// It has no id: a client that resumes the stream again gets what the store has.
		return ss.response.writeEvent(sse.Event{Data: jsonrpc.AppendError(nil, rm.requestID, errUnreachable, false)})
	case cause == context.Canceled: // it is not the stream that has ended
		ss.sendRetry()
		return nil
	case following.Err() != nil:
		return cause
	}
	return err
}

// passAvailable writes the events after lastID until the stream is complete or ctx ends, and waits
// while the store does not respond. It returns the id of the last event.
func (ss *standingStream) passAvailable(ctx context.Context, rm *remoteStream, lastID string) (string, error) {
	var failing time.Time
	for {
		began := time.Now()
		last, _, err := ss.pass(rm.follow(ctx, lastID), lastID)
		if last != lastID || failing.IsZero() || time.Since(began) > storeTimeout {
			failing = time.Now() // not before
		}
		lastID = last
		var client clientError
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, ErrEventGone), errors.As(err, &client):
			return lastID, err
		case time.Since(failing) > followTime, !wait.Sleep(ctx, followRetry):
			return lastID, err
		}
	}
}

// restTime is how long the rest of a stream that has ended is looked for: a machine that lags
// behind may answer for the store.
const restTime = 5 * time.Second

// passRest writes the events after lastID of a stream that has ended. begun means that the response
// has some of its events. If it has, and the last one is not found, the stream ends with an error:
// the client must not take a part for the whole.
func (ss *standingStream) passRest(ctx context.Context, rm *remoteStream, lastID string, begun bool) error {
	for began := time.Now(); ; {
		last, final := lastID, false
		events, err := rm.session.eventsAfter(ctx, lastID, storeTimeout)
		if err == nil {
			last, final, err = ss.pass(events, lastID)
		}
		begun = begun || last != lastID
		lastID = last
		var client clientError
		switch {
		case final, !begun, ctx.Err() != nil, errors.As(err, &client):
			return err
		case !errors.Is(err, ErrEventGone) && time.Since(began) < restTime && wait.Sleep(ctx, followRetry):
		case rm.requestID == nil || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		default:
			ss.h.opts.Logger.Warn("the rest of a stream is not stored", "error", err)
			// It has no id: a client that resumes the stream again gets what the store has.
			return ss.response.writeEvent(sse.Event{Data: jsonrpc.AppendError(nil, rm.requestID, errRestLost, false)})
		}
	}
}

// A clientError is an error of a write to the client.
type clientError struct{ error }

// pass writes events up to the end of the stream. It returns the id of the last one, and reports
// whether it ends the stream. The error comes from events, or is a clientError.
func (ss *standingStream) pass(events iter.Seq2[StoredEvent, error], lastID string) (last string, final bool, err error) {
	for e, err := range events {
		if err != nil {
			return lastID, false, err
		}
		if lastID = e.ID; e.hasMessage() {
			if err := ss.response.writeEvent(sse.Event{ID: []byte(e.ID), HasID: true, Data: e.Data}); err != nil {
				return lastID, false, clientError{err}
			}
		}
		if isFinal(e.Data) {
			return lastID, true, nil
		}
	}
	return lastID, false, nil
}

// A client listens to messages that belong to no request at one process, the listener of the
// session: the one that got its last GET. Others send such messages there.

// maxHops limits how often a message is sent on because the client listens elsewhere by now.
const maxHops = 3

// storeCheckDelay is the time after which a listener looks for messages that other nodes have
// stored and not sent to it, because they did not know of it yet.
const storeCheckDelay = 2 * time.Second

// A storeCheck finds such messages.
type storeCheck struct {
	// after is the id of the last event before the client listened here.
	after string
	// own has the ids of the events that this node has added since.
	own map[string]bool
}

// beginStoreCheckLocked begins a check for the standalone stream, which has a new response.
func (st *stream) beginStoreCheckLocked() {
	if st != &st.session.standalone || st.session.shared == nil || st.session.h.forwarder == nil {
		return
	}
	if st.lastSentID == "" {
		if id, err := st.persist(nil); err == nil {
			st.lastSentID = id
		}
	}
	st.storeCheck = newStoreCheck(st.lastSentID)
}

func newStoreCheck(after string) *storeCheck {
	return &storeCheck{after: after, own: make(map[string]bool)}
}

// endStoreCheckSoon makes sure that the response out gets what other nodes store in the next
// moment. It tries again while the store does not respond.
func (st *stream) endStoreCheckSoon(ctx context.Context, out *response) {
	st.mu.Lock()
	check := st.storeCheck
	st.mu.Unlock()
	if check == nil {
		return
	}
	h := st.session.h
	h.followers.Start(func() {
		began := time.Now()
		for {
			if !wait.Sleep(ctx, storeCheckDelay) {
				return
			}
			found, err := st.readStored(ctx, check)
			switch {
			case err == nil:
				st.sendStored(found, check, out)
				return
			case ctx.Err() != nil:
				return
			case !errors.Is(err, ErrEventGone) && time.Since(began) < followTime:
				continue
			}
			h.opts.Logger.Warn("messages that other processes have stored may be missing in a stream", "error", err)
			st.session.peer.notifyMissed()
			return
		}
	})
}

// maxStoreCheck limits the bytes of the events that one check sends.
const maxStoreCheck = 4 << 20

// readStored reads what is stored, without a lock: new messages do not wait for the store.
func (st *stream) readStored(ctx context.Context, check *storeCheck) (found []StoredEvent, err error) {
	if check.after == "" {
		return nil, ErrEventGone
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer recoverStore(&err)
	_, events, err := st.session.h.events.After(ctx, st.session.key, check.after)
	if err != nil {
		return nil, err
	}
	size := 0
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if size += len(e.Data); size > maxStoreCheck {
			return nil, ErrEventGone
		}
		found = append(found, e)
	}
	return found, nil
}

// sendStored ends the check.
func (st *stream) sendStored(found []StoredEvent, check *storeCheck, out *response) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.out != out || st.storeCheck != check {
		return
	}
	st.storeCheck = nil
	for _, e := range found {
		if !e.hasMessage() || check.own[e.ID] {
			continue
		}
		// It has no id, because the client may have a later one.
		if st.writeLocked("", e.Data, 0) != nil {
			return // the next write fails, too
		}
	}
}

// A listenerQueue has the messages that other nodes have sent to the standalone stream.
type listenerQueue struct {
	mu sync.Mutex
	// pending has at most maxStandaloneBacklog messages.
	pending []*nodeMessage
	// sending means that a goroutine runs that sends them.
	sending bool
}

// isAnnounced reports whether each node of a server sends the notification itself, because the
// servers notify each other of its subject.
func isAnnounced(message []byte) bool {
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) != nil || m.Kind != jsonrpc.KindNotification {
		return false
	}
	switch string(m.Method) {
	case mcp.NotificationToolsChanged, mcp.NotificationResourcesChanged, mcp.NotificationPromptsChanged,
		mcp.NotificationResourceUpdated, mcp.NotificationTaskStatus, mcp.NotificationElicitationComplete:
		return true
	}
	return false
}

// elsewhere returns the node of the listener, or "" if it is this node or there is none. ss may be
// nil.
func (ss *sharedState) elsewhere() string {
	if ss == nil || ss.session.h.forwarder == nil {
		return ""
	}
	if node := ss.listener.Load(); node != nil && *node != ss.session.h.instance {
		return *node
	}
	return ""
}

// sendToListener sends a message of the standalone stream to the listener, if that is elsewhere. It
// reports false if the message must be sent here. ss may be nil.
func (ss *sharedState) sendToListener(ctx context.Context, message []byte, hops int) bool {
	node := ss.elsewhere()
	if node == "" || hops >= maxHops {
		return false
	}
	s := ss.session
	if s.h.forwarder.announces && isAnnounced(message) {
		return true
	}
	reply, err := s.h.forwarder.request(ctx, node, &nodeMessage{Session: s.key, Principal: s.principalID, Standalone: message, Hops: hops + 1})
	return err == nil && reply.Accepted
}

// listenRetry is the time between attempts to tell the other nodes where the client listens.
const listenRetry = time.Second

// listen makes this node the listener until ctx, that of the response, ends. While the store fails,
// messages of other nodes may not reach the client. ss may be nil.
func (ss *sharedState) listen(ctx context.Context) {
	if ss == nil || ss.session.h.forwarder == nil {
		return
	}
	h := ss.session.h
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if node := ss.listener.Load(); node != nil && *node == h.instance {
		return
	}
	first, cancel := context.WithTimeout(ctx, findTime) // the response waits for it
	defer cancel()
	if ss.storeListenerLocked(first) {
		return
	}
	// Whatever the record says, the client listens here.
	ss.setListener(h.instance)
	h.followers.Start(func() {
		for stored := false; !stored && wait.Sleep(ctx, listenRetry); {
			ss.mu.Lock()
			stored = ss.elsewhere() != "" || ss.storeListenerLocked(ctx)
			ss.mu.Unlock()
		}
	})
}

// storeListenerLocked informs the other nodes that this one is the listener. It reports false if
// the store has failed.
func (ss *sharedState) storeListenerLocked(ctx context.Context) bool {
	s := ss.session
	before := ""
	saved, err := ss.changeRecord(ctx, func(record *SavedSession) { before, record.Listener = record.Listener, s.h.instance })
	switch {
	case err != nil:
		s.h.opts.Logger.Warn("other processes do not know where a client listens", "error", err)
		return false
	case saved.Ended:
		return true // the watcher ends it
	}
	ss.followLocked(saved)
	if before != "" && before != s.h.instance {
		// What the stream gets there from now on comes here, so nothing is missing when events are
		// read from the store.
		reply, err := s.h.forwarder.request(ctx, before, &nodeMessage{Session: s.key, Principal: s.principalID, Listener: s.h.instance})
		if err != nil {
			s.h.opts.Logger.Debug("the process where a client listened does not respond", "error", err)
		}
		// If that process has ended, nobody has stored the notifications since then.
		if err != nil || reply.State == streamEnded {
			s.peer.notifyMissed()
		}
	}
	return true
}

// setListener notes which node is the listener. If it is another one, the response that carries the
// standalone stream here ends soon.
func (ss *sharedState) setListener(node string) {
	if node == "" {
		return
	}
	before := ss.listener.Swap(&node)
	if node != ss.session.h.instance && before != nil && *before == ss.session.h.instance {
		st := &ss.session.standalone
		ss.session.h.followers.Start(func() { // which may have to wait for the client to read
			st.mu.Lock()
			defer st.mu.Unlock()
			if ss.elsewhere() != "" {
				st.detachLocked()
			}
		})
	}
}

// receiveStandalone sends a message of another node on the standalone stream, soon. It reports
// false if too many are waiting.
func (s *session) receiveStandalone(m *nodeMessage) bool {
	q := &s.shared.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) >= maxStandaloneBacklog {
		return false
	}
	q.pending = append(q.pending, m)
	if !q.sending {
		q.sending = s.h.followers.Start(s.sendPending)
	}
	return q.sending
}

// sendPending sends the messages of the queue.
func (s *session) sendPending() {
	q := &s.shared.queue
	for {
		q.mu.Lock()
		if len(q.pending) == 0 {
			q.pending, q.sending = nil, false
			q.mu.Unlock()
			return
		}
		m := q.pending[0]
		q.pending = slices.Delete(q.pending, 0, 1)
		q.mu.Unlock()
		if s.shared.sendToListener(s.ctx, m.Standalone, m.Hops) {
			continue
		}
		if err := s.standalone.sendHere(m.Standalone); err != nil {
			s.h.unforwarded.Add(1)
			s.h.opts.Logger.Warn("message of another node not sent", "error", err)
		}
	}
}
