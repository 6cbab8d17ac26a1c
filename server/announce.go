package server

import (
	"sync"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// pendingNotifications are what a session has yet to tell its peer. They are guarded by Server.mu.
type pendingNotifications struct {
	changed      listChange
	updated      map[string]struct{} // URIs of resources, all of which are watched
	elicitations []string            // elicitation ids of web pages where the user is done
	tasks        map[string]struct{} // ids of tasks, each of which the peer wants to hear of
	sending      bool                // a goroutine of announcer is at it
}

// announce tells every session that a list has changed, here and at the other servers of the bus. It does not wait for anybody.
func (s *Server) announce(c listChange) {
	s.announceLocal(c)
	for _, l := range listChanges {
		if l.bit == c {
			s.bus.publish(Event{Kind: l.event})
		}
	}
}

func (s *Server) announceLocal(c listChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		sess.pending.changed |= c
		sess.startNotifierLocked()
	}
}

// ResourceUpdated tells the clients that watch the resource, or one that it is a part of, that it has changed. It does not wait for them; updates
// in quick succession are told once. (https://modelcontextprotocol.io/specification/2026-07-28/server/resources#subscriptions)
func (s *Server) ResourceUpdated(uri string) {
	s.resourceUpdatedLocal(uri)
	s.bus.publish(Event{Kind: ResourceUpdated, Name: uri})
}

func (s *Server) resourceUpdatedLocal(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if anyCovers(sess.subscribedURIs, uri) && len(sess.pending.updated) < maxPendingUpdates {
			if sess.pending.updated == nil {
				sess.pending.updated = make(map[string]struct{})
			}
			sess.pending.updated[uri] = struct{}{}
			sess.startNotifierLocked()
		}
	}
}

// anyCovers reports whether somebody who watches one of these resources is told of an update of uri, without looking at all of them; see watches.
func anyCovers(subscribed map[string]int, uri string) bool {
	if subscribed[uri] > 0 {
		return true
	}
	for i := range len(uri) {
		if uri[i] == '/' && (subscribed[uri[:i]] > 0 || subscribed[uri[:i+1]] > 0) {
			return true
		}
	}
	return false
}

// maxPendingUpdates is how many updates a session keeps for a peer that does not read. What is beyond it is lost to that peer.
const maxPendingUpdates = 4096

// startNotifierLocked starts the announcer unless it runs. The caller has Server.mu.
func (s *session) startNotifierLocked() {
	if !s.pending.sending {
		s.pending.sending = true
		s.notifier.Go(s.sendPending)
	}
}

// sendPending tells the peer until there is nothing left to tell. Changes in quick succession, or while the peer does not read, are told once.
func (s *session) sendPending() {
	for {
		n := s.takePending()
		if n.empty() {
			return
		}
		s.sendNotifications(n)
	}
}

func (s *session) takePending() pendingNotifications {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	n := s.pending
	s.pending = pendingNotifications{sending: !n.empty()}
	return n
}

func (pn *pendingNotifications) empty() bool {
	return pn.changed == 0 && len(pn.updated) == 0 && len(pn.elicitations) == 0 && len(pn.tasks) == 0
}

func (s *session) sendNotifications(n pendingNotifications) {
	for _, c := range listChanges {
		if n.changed&c.bit != 0 {
			s.notifyListChanged(c.bit, c.notification)
		}
	}
	for uri := range n.updated {
		s.notifyUpdated(uri)
	}
	for id := range n.tasks {
		s.notifyTask(id)
	}
	for _, id := range n.elicitations {
		s.notifyElicitationComplete(id)
	}
}

func (s *session) notifyListChanged(c listChange, notification string) {
	if s.era.Legacy() != nil {
		s.notify(notification, nil)
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for sub := range s.subs.active {
		if sub.wants&c != 0 {
			s.logDropped(notification, sub.call.Notify(notification, sub.params(nil)))
		}
	}
}

func (s *session) notifyUpdated(uri string) {
	member := jsonwire.AppendQuote([]byte(`"uri":`), uri)
	if s.legacySubscribed(uri) {
		s.notify(mcp.NotificationResourceUpdated, append(append([]byte{'{'}, member...), '}'))
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for sub := range s.subs.active {
		for _, subscribed := range sub.uris {
			if covers(subscribed, uri) && !s.srv.hidesResource(sub.call.view, uri) {
				s.logDropped(mcp.NotificationResourceUpdated, sub.call.Notify(mcp.NotificationResourceUpdated, sub.params(append([]byte{','}, member...))))
				break
			}
		}
	}
}

func (s *session) logDropped(method string, err error) {
	if err != nil {
		s.log.Debug("notification not sent", "method", method, "error", err)
	}
}

// notifierTimeout is how long the end of a session waits for its announcer: a write that nothing can interrupt leaves it behind.
const notifierTimeout = time.Second

// waitNotifier waits for the announcer of a session that has ended, and is not among the server's any more.
func (s *session) waitNotifier() {
	s.srv.mu.Lock()
	sending := s.pending.sending
	s.srv.mu.Unlock()
	if !sending {
		return
	}
	done := make(chan struct{})
	go func() {
		s.notifier.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(notifierTimeout):
		s.log.Warn("a write cannot be interrupted, and is left behind")
	}
}

// A legacyWatch is the resources that a legacy client watches, by resources/subscribe, with what the client saw then.
type legacySubscriptions struct {
	mu   sync.Mutex
	uris map[string]*View
}

func (s *session) legacySubscribed(uri string) bool {
	s.legacySubs.mu.Lock()
	defer s.legacySubs.mu.Unlock()
	for subscribed, view := range s.legacySubs.uris {
		if covers(subscribed, uri) && !s.srv.hidesResource(view, uri) {
			return true
		}
	}
	return false
}
