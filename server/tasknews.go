package server

import (
	"context"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxSubscribedTasks is how many tasks the subscriptions of one connection may name.
const maxSubscribedTasks = 1024

// taskChanged tells the sessions that want to know: the one of the task's owner in the core protocol, those with a subscription to it in the extension. Those at
// the other servers of the bus are told too, unless the owner is a session, which is here.
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

// taskChangedLocal is told of the owner in the core protocol only.
func (s *Server) taskChangedLocal(id, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if (owner != "" && owner == sess.legacyTaskOwner() || sess.subscribedTasks[id] > 0) && len(sess.pending.tasks) < maxPendingUpdates {
			if sess.pending.tasks == nil {
				sess.pending.tasks = make(map[string]struct{})
			}
			sess.pending.tasks[id] = struct{}{}
			sess.startNotifierLocked()
		}
	}
}

// notifyTask sends what the task is by now.
func (s *session) notifyTask(id string) {
	ctx, cancel := context.WithTimeout(s.context(), storeTimeout)
	defer cancel()
	t, err := s.srv.tasks.opts.Store.Task(ctx, id)
	if err != nil {
		s.logDropped(mcp.NotificationTasks, err)
		return
	}
	if t.Core {
		if f := s.era.Legacy(); f != nil && f.CoreTasks {
			s.notify(mcp.NotificationTaskStatus, t.coreTask().AppendJSON(nil))
		}
		return
	}
	d := t.detailedTask()
	text := d.AppendJSON(nil)
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for sub := range s.subs.active {
		for _, subscribed := range sub.tasks {
			if subscribed == id {
				s.logDropped(mcp.NotificationTasks, sub.call.Notify(mcp.NotificationTasks, sub.params(append([]byte{','}, text[1:len(text)-1]...))))
				break
			}
		}
	}
}

// legacyTaskOwner is whose tasks a legacy client of the session makes.
func (s *session) legacyTaskOwner() string {
	if s.identity.principal.ID != "" {
		return principalOwner(s.identity.principal)
	}
	return s.anonymousTaskOwner
}

func principalOwner(p *Principal) string { return "principal " + p.ID }

// subscribeTasks counts the tasks that a subscription wants to hear of, of those that the caller may ask for. It returns these.
func (s *session) subscribeTasks(c *Call, ids []string) ([]string, error) {
	if len(ids) == 0 || s.srv.tasks == nil {
		return nil, nil
	}
	if !c.hasTasks() {
		return nil, missingTasksCapability()
	}
	var own []string
	for _, id := range ids[:min(len(ids), maxSubscribedTasks)] {
		if t, err := s.srv.tasks.opts.Store.Task(c, id); err == nil && !t.Core && t.Owner == c.taskOwner() {
			own = append(own, id)
		}
	}
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if len(s.subscribedTasks)+len(own) > maxSubscribedTasks {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks watched on this connection (limit %d)", maxSubscribedTasks)
	}
	if s.subscribedTasks == nil {
		s.subscribedTasks = make(map[string]int)
	}
	for _, id := range own {
		s.subscribedTasks[id]++
	}
	return own, nil
}

func (s *session) unsubscribeTasks(ids []string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	for _, id := range ids {
		if s.subscribedTasks[id]--; s.subscribedTasks[id] <= 0 {
			delete(s.subscribedTasks, id)
		}
	}
}
