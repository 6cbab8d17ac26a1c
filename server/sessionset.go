package server

import (
	"slices"
	"strings"
	"sync"
)

// A sessionSet holds the sessions of a server. It gives changes to their notifiers, and does not
// wait for clients.
type sessionSet struct {
	mu       sync.Mutex
	sessions map[*session]struct{}
}

// add adds a session until remove.
func (ss *sessionSet) add(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.sessions == nil {
		ss.sessions = make(map[*session]struct{})
	}
	ss.sessions[s] = struct{}{}
}

// remove removes a session, which then gets no more changes.
func (ss *sessionSet) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.sessions, s)
}

// listsChanged announces changed lists to the sessions of the principals with the IDs, or to all
// sessions if there are no IDs.
func (ss *sessionSet) listsChanged(c listChange, principals []string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		if len(principals) == 0 || slices.Contains(principals, s.identity.principal.ID) {
			s.notifier.addLists(c)
		}
	}
}

// resourceUpdated notifies the sessions that are subscribed to the resource.
func (ss *sessionSet) resourceUpdated(uri string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		if s.subs.uris.cover(uri) {
			s.notifier.addResource(uri)
		}
	}
}

// missed notifies the session of everything that it may have missed, unless it was removed.
func (ss *sessionSet) missed(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if _, ok := ss.sessions[s]; !ok {
		return
	}
	s.notifier.addLists(s.srv.advertisedLists())
	for _, uri := range s.subs.uris.names() {
		s.notifier.addResource(uri)
	}
}

// resourcesUpdated notifies each session of all resources that it is subscribed to.
func (ss *sessionSet) resourcesUpdated() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		for _, uri := range s.subs.uris.names() {
			s.notifier.addResource(uri)
		}
	}
}

// tasksChanged notifies each session of all tasks that it is subscribed to.
func (ss *sessionSet) tasksChanged() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		for _, id := range s.subs.taskIDs.names() {
			s.notifier.addTask(id)
		}
	}
}

// taskChanged notifies the sessions of the owner, or those that are subscribed to the task. owner
// is set for the core protocol only.
func (ss *sessionSet) taskChanged(id, owner string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		if owner != "" && owner == s.tasks.owner || s.subs.taskIDs.has(id) {
			s.notifier.addTask(id)
		}
	}
}

// elicitationDone notifies the session whose client has the page.
func (ss *sessionSet) elicitationDone(id string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.sessions {
		if s.elicitations.remove(id) {
			s.notifier.addElicitation(id)
		}
	}
}

// announce notifies all sessions of a list change, here and, through the bus, at other servers. It
// does not block.
func (s *Server) announce(c listChange) {
	s.sessions.listsChanged(c, nil)
	for _, l := range listChanges {
		if l.bit == c {
			s.bus.publish(Event{Kind: l.event})
		}
	}
}

// ListsChanged notifies clients that their lists have changed because [Options.View] returns
// another View. It notifies the clients of the principals with the given IDs, or all clients if
// there are no IDs. Without it clients notice only when they ask again. It drops the encoded lists
// of all views. Clients continue to get updates, by URI only, of resources that they have
// subscribed to.
func (s *Server) ListsChanged(principals ...string) {
	s.listsChangedLocal(principals)
	if len(principals) == 0 {
		s.bus.publish(Event{Kind: ViewChanged})
	}
	for _, id := range principals {
		s.bus.publish(Event{Kind: ViewChanged, Name: id})
	}
}

// listsChangedLocal notifies the clients of this server.
func (s *Server) listsChangedLocal(principals []string) {
	s.tools.reset()
	s.resources.registered.reset()
	s.resources.templates.reset()
	s.prompts.reset()
	s.sessions.listsChanged(s.advertisedLists(), principals)
}

// ResourceUpdated notifies the clients that are subscribed to the resource, or to one that contains
// it, of an update. It does not wait for them. Updates in quick succession are merged.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/resources#subscriptions)
func (s *Server) ResourceUpdated(uri string) {
	s.sessions.resourceUpdated(uri)
	s.bus.publish(Event{Kind: ResourceUpdated, Name: uri})
}

// taskChanged notifies the task's owner in the core protocol, or its subscribers in the extension.
// It also notifies other servers through the bus, unless the owner is a session, which is local.
func (s *Server) taskChanged(t *Task) {
	owner := ""
	if t.Core {
		owner = t.Owner
	}
	s.sessions.taskChanged(t.ID, owner)
	if owner == "" || strings.HasPrefix(owner, principalOwner(anonymous)) {
		s.bus.publish(Event{Kind: TaskUpdated, Name: t.ID, Owner: owner})
	}
}
