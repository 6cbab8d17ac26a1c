package server

import (
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/wait"
)

// A notifier tells the client of a session about changes, on its own goroutine. Changes in quick
// succession, or while the peer does not read, are merged.
type notifier struct {
	// send sends the notifications of changes. It blocks while the peer does not read.
	send      func(changes)
	goroutine sync.WaitGroup

	mu      sync.Mutex
	pending changes
	// running is set while the goroutine runs.
	running bool
}

// changes are what the client of a session must learn.
type changes struct {
	lists listChange
	// resources holds the URIs of updated resources.
	resources map[string]struct{}
	// tasks holds the ids of changed tasks.
	tasks map[string]struct{}
	// elicitations holds the ids of finished elicitations with web pages.
	elicitations []string
}

func (cs *changes) empty() bool {
	return cs.lists == 0 && len(cs.resources) == 0 && len(cs.tasks) == 0 && len(cs.elicitations) == 0
}

// maxPendingUpdates limits the updated resources, and the changed tasks, of a session whose peer
// does not read. Further ones are lost.
const maxPendingUpdates = 4096

// addLists adds changed lists. Like the other methods that add changes, it does not block, and must
// not be called after wait.
func (n *notifier) addLists(c listChange) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending.lists |= c
	n.startLocked()
}

func (n *notifier) addResource(uri string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addUpdateLocked(&n.pending.resources, uri)
}

func (n *notifier) addTask(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addUpdateLocked(&n.pending.tasks, id)
}

func (n *notifier) addElicitation(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending.elicitations = append(n.pending.elicitations, id)
	n.startLocked()
}

func (n *notifier) addUpdateLocked(set *map[string]struct{}, name string) {
	if len(*set) >= maxPendingUpdates {
		return
	}
	if *set == nil {
		*set = make(map[string]struct{})
	}
	(*set)[name] = struct{}{}
	n.startLocked()
}

// startLocked starts the goroutine unless it runs.
func (n *notifier) startLocked() {
	if !n.running {
		n.running = true
		n.goroutine.Go(n.run)
	}
}

// run sends notifications until no changes are pending.
func (n *notifier) run() {
	for {
		c := n.take()
		if c.empty() {
			return
		}
		n.send(c)
	}
}

// take returns the pending changes. If there are none, the goroutine must end.
func (n *notifier) take() changes {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.pending
	n.pending, n.running = changes{}, !c.empty()
	return c
}

// notifierTimeout limits how long the end of a session waits for its notifier. A write that cannot
// be interrupted is abandoned.
const notifierTimeout = time.Second

// wait waits for the goroutine after the end of the session. It returns false if the goroutine
// leaks.
func (n *notifier) wait() bool {
	n.mu.Lock()
	running := n.running
	n.mu.Unlock()
	return !running || wait.Timeout(notifierTimeout, n.goroutine.Wait)
}

// announce notifies all sessions of a list change, here and, through the bus, at other servers. It
// does not block.
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
		sess.notifier.addLists(c)
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

func (s *Server) listsChangedLocal(principals []string) {
	s.tools.reset()
	s.resources.registered.reset()
	s.resources.templates.reset()
	s.prompts.reset()
	all := s.advertisedLists()
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if len(principals) == 0 || slices.Contains(principals, sess.identity.principal.ID) {
			sess.notifier.addLists(all)
		}
	}
}

// ResourceUpdated notifies the clients that are subscribed to the resource, or to one that contains
// it, of an update. It does not wait for them. Updates in quick succession are merged.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/resources#subscriptions)
func (s *Server) ResourceUpdated(uri string) {
	s.resourceUpdatedLocal(uri)
	s.bus.publish(Event{Kind: ResourceUpdated, Name: uri})
}

func (s *Server) resourceUpdatedLocal(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if sess.subs.uris.cover(uri) {
			sess.notifier.addResource(uri)
		}
	}
}

// taskChanged notifies the task's owner in the core protocol, or its subscribers in the extension.
// It also notifies other servers through the bus, unless the owner is a session, which is local.
func (s *Server) taskChanged(t *Task) {
	owner := ""
	if t.Core {
		owner = t.Owner
	}
	s.taskChangedLocal(t.ID, owner)
	if owner == "" || strings.HasPrefix(owner, principalOwner(anonymous)) {
		s.bus.publish(Event{Kind: TaskUpdated, Name: t.ID, Owner: owner})
	}
}

// taskChangedLocal notifies the sessions of this server. owner is set for the core protocol only.
func (s *Server) taskChangedLocal(id, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if owner != "" && owner == sess.tasks.owner || sess.subs.taskIDs.has(id) {
			sess.notifier.addTask(id)
		}
	}
}
