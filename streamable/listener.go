package streamable

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A client listens to messages that belong to no request at one process, the listener of the
// session: the one that got its last GET. Others send such messages there.

// maxHops limits how often a message is sent on because the client listens elsewhere by now.
const maxHops = 3

// strayTime is the time after which a listener looks for messages that other nodes have stored and
// not sent to it, because they did not know of it yet.
const strayTime = 2 * time.Second

// A strayCheck finds such messages.
type strayCheck struct {
	// after is the id of the last event before the client listened here.
	after string
	// own has the ids of the events that this node has added since.
	own map[string]bool
}

// beginStrayCheckLocked begins a check for the standalone stream, which has a new response.
func (st *stream) beginStrayCheckLocked() {
	if st != &st.session.standalone || st.session.shared == nil || st.session.h.forwarder == nil {
		return
	}
	if st.lastSentID == "" {
		if id, err := st.persist(nil); err == nil {
			st.lastSentID = id
		}
	}
	st.strays = &strayCheck{after: st.lastSentID, own: make(map[string]bool)}
}

// endStrayCheckSoon makes sure that the response out gets what other nodes store in the next
// moment.
func (st *stream) endStrayCheckSoon(ctx context.Context, out *response) {
	h := st.session.h
	if st != &st.session.standalone || st.session.shared == nil || h.forwarder == nil {
		return
	}
	h.followers.start(func() {
		if !wait.Sleep(ctx, strayTime) {
			return
		}
		if err := st.sendStrays(ctx, out); err != nil {
			h.opts.Logger.Warn("messages that other processes have stored may be missing in a stream", "error", err)
		}
	})
}

// sendStrays ends the check.
func (st *stream) sendStrays(ctx context.Context, out *response) (err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	check := st.strays
	if st.out != out || check == nil {
		return nil
	}
	st.strays = nil
	if check.after == "" {
		return errGap
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer recoverStore(&err)
	_, events, err := st.session.h.events.After(ctx, st.session.key, check.after)
	if err != nil {
		return err
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		if !e.hasMessage() || check.own[e.ID] {
			continue
		}
		// It has no id, because the client may have a later one.
		if err := st.writeLocked("", e.Data, 0); err != nil {
			return err
		}
	}
	return nil
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
	var answer nodeReply
	return err == nil && json.Unmarshal(reply, &answer) == nil && answer.Accepted
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
	if node := ss.listener.Load(); node != nil && *node == h.instance || ss.storeListenerLocked(ctx) {
		return
	}
	// Whatever the record says, the client listens here.
	ss.setListener(h.instance)
	h.followers.start(func() {
		for stored := false; !stored && wait.Sleep(ctx, listenRetry); {
			ss.mu.Lock()
			stored = ss.elsewhere() != "" || ss.storeListenerLocked(ctx)
			ss.mu.Unlock()
		}
	})
}

// storeListenerLocked tells the other nodes that this one is the listener. It reports false if the
// store has failed.
func (ss *sharedState) storeListenerLocked(ctx context.Context) bool {
	s := ss.session
	before := ""
	var saved *SavedSession
	err := ss.update(ctx, func(record *SavedSession) {
		if before = record.Listener; !record.Ended {
			record.Listener = s.h.instance
			record.Version = max(record.Version, ss.known.Version) + 1 // the store may have lost it
			record.Principal, record.Expires = s.principalID, s.expires
		}
		saved = record.clone()
	})
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
		var answer nodeReply
		if err == nil {
			err = json.Unmarshal(reply, &answer)
		}
		if err != nil {
			s.h.opts.Logger.Debug("the process where a client listened does not respond", "error", err)
		}
		// If that process has ended, nobody has stored the notifications since then.
		if conn, ok := s.peer.(serverConn); ok && (err != nil || answer.State == streamEnded) {
			conn.missed()
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
		ss.session.h.followers.start(func() { // which may have to wait for the client to read
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
		q.sending = s.h.followers.start(s.sendPending)
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
