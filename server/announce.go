package server

import (
	"sync"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// news are what a session has yet to tell its peer. They are guarded by Server.mu.
type news struct {
	changed change
	updated map[string]struct{} // URIs of resources, all of which are watched
	visited []string            // elicitation ids of web pages where the user is done
	tasks   map[string]struct{} // ids of tasks, each of which the peer wants to hear of
	telling bool                // a goroutine of announcer is at it
}

// announce tells every session that a list has changed, here and at the other servers of the bus. It does not wait for anybody.
func (s *Server) announce(c change) {
	s.announceHere(c)
	for _, l := range changes {
		if l.bit == c {
			s.relay.publish(Event{Kind: l.event})
		}
	}
}

func (s *Server) announceHere(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.sessions {
		x.news.changed |= c
		x.tell()
	}
}

// ResourceUpdated tells the clients that watch the resource, or one that it is a part of, that it has changed. It does not wait for them; updates
// in quick succession are told once. (https://modelcontextprotocol.io/specification/2026-07-28/server/resources#subscriptions)
func (s *Server) ResourceUpdated(uri string) {
	s.resourceUpdatedHere(uri)
	s.relay.publish(Event{Kind: ResourceUpdated, Name: uri})
}

func (s *Server) resourceUpdatedHere(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.sessions {
		if anyWatches(x.watched, uri) && len(x.news.updated) < maxUpdates {
			if x.news.updated == nil {
				x.news.updated = make(map[string]struct{})
			}
			x.news.updated[uri] = struct{}{}
			x.tell()
		}
	}
}

// anyWatches reports whether somebody who watches one of these resources is told of an update of uri, without looking at all of them; see watches.
func anyWatches(watched map[string]int, uri string) bool {
	if watched[uri] > 0 {
		return true
	}
	for i := range len(uri) {
		if uri[i] == '/' && (watched[uri[:i]] > 0 || watched[uri[:i+1]] > 0) {
			return true
		}
	}
	return false
}

// maxUpdates is how many updates a session keeps for a peer that does not read. What is beyond it is lost to that peer.
const maxUpdates = 4096

// tell starts the announcer unless it runs. The caller has Server.mu.
func (s *session) tell() {
	if !s.news.telling {
		s.news.telling = true
		s.announcer.Go(s.announce)
	}
}

// announce tells the peer until there is nothing left to tell. Changes in quick succession, or while the peer does not read, are told once.
func (s *session) announce() {
	for {
		n := s.takeNews()
		if n.empty() {
			return
		}
		s.tellNews(n)
	}
}

func (s *session) takeNews() news {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	n := s.news
	s.news = news{telling: !n.empty()}
	return n
}

func (n *news) empty() bool {
	return n.changed == 0 && len(n.updated) == 0 && len(n.visited) == 0 && len(n.tasks) == 0
}

func (s *session) tellNews(n news) {
	for _, c := range changes {
		if n.changed&c.bit != 0 {
			s.tellChange(c.bit, c.notification)
		}
	}
	for uri := range n.updated {
		s.tellUpdate(uri)
	}
	for id := range n.tasks {
		s.tellTask(id)
	}
	for _, id := range n.visited {
		s.tellVisited(id)
	}
}

func (s *session) tellChange(c change, notification string) {
	if s.era.Legacy() != nil {
		s.notify(notification, nil)
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for b := range s.subs.open {
		if b.wants&c != 0 {
			s.told(notification, b.ctx.Notify(notification, b.params(nil)))
		}
	}
}

func (s *session) tellUpdate(uri string) {
	member := jsonwire.AppendQuote([]byte(`"uri":`), uri)
	if s.legacyWatches(uri) {
		s.notify(mcp.NotificationResourceUpdated, append(append([]byte{'{'}, member...), '}'))
	}
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for b := range s.subs.open {
		for _, watched := range b.uris {
			if watches(watched, uri) && !s.srv.hides(b.ctx.view, uri) {
				s.told(mcp.NotificationResourceUpdated, b.ctx.Notify(mcp.NotificationResourceUpdated, b.params(append([]byte{','}, member...))))
				break
			}
		}
	}
}

func (s *session) told(method string, err error) {
	if err != nil {
		s.log.Debug("notification not sent", "method", method, "error", err)
	}
}

// announcerPatience is how long the end of a session waits for its announcer: a write that nothing can interrupt leaves it behind.
const announcerPatience = time.Second

// waitAnnouncer waits for the announcer of a session that has ended, and is not among the server's any more.
func (s *session) waitAnnouncer() {
	s.srv.mu.Lock()
	telling := s.news.telling
	s.srv.mu.Unlock()
	if !telling {
		return
	}
	gone := make(chan struct{})
	go func() {
		s.announcer.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(announcerPatience):
		s.log.Warn("a write cannot be interrupted, and is left behind")
	}
}

// A legacyWatch is the resources that a legacy client watches, by resources/subscribe, with what the client saw then.
type legacyWatch struct {
	mu   sync.Mutex
	uris map[string]*View
}

func (s *session) legacyWatches(uri string) bool {
	s.legacyWatch.mu.Lock()
	defer s.legacyWatch.mu.Unlock()
	for watched, view := range s.legacyWatch.uris {
		if watches(watched, uri) && !s.srv.hides(view, uri) {
			return true
		}
	}
	return false
}
