package server

import (
	"context"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxWatchedTasks is how many tasks the subscriptions of one connection may name.
const maxWatchedTasks = 1024

// taskChanged tells the sessions that want to know: the one of the task's owner in the core protocol, those with a subscription to it in the extension. Those at
// the other servers of the bus are told too, unless the owner is a session, which is here.
func (s *Server) taskChanged(t *Task) {
	owner := ""
	if t.Core {
		owner = t.Owner
	}
	s.taskChangedHere(t.ID, owner)
	if owner == "" || strings.HasPrefix(owner, principalOwner(nobody)) {
		s.relay.publish(Event{Kind: TaskUpdated, Name: t.ID, Owner: owner})
	}
}

// taskChangedHere is told of the owner in the core protocol only.
func (s *Server) taskChangedHere(id, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.sessions {
		if (owner != "" && owner == x.ownerOfTasks() || x.watchedTasks[id] > 0) && len(x.news.tasks) < maxUpdates {
			if x.news.tasks == nil {
				x.news.tasks = make(map[string]struct{})
			}
			x.news.tasks[id] = struct{}{}
			x.tell()
		}
	}
}

// tellTask sends what the task is by now.
func (s *session) tellTask(id string) {
	ctx, cancel := context.WithTimeout(s.base(), storePatience)
	defer cancel()
	t, err := s.srv.tasks.opts.Store.Task(ctx, id)
	if err != nil {
		s.told(mcp.NotificationTasks, err)
		return
	}
	if t.Core {
		if f := s.era.Legacy(); f != nil && f.CoreTasks {
			s.notify(mcp.NotificationTaskStatus, t.core().AppendJSON(nil))
		}
		return
	}
	d := t.detailed()
	text := d.AppendJSON(nil)
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	for b := range s.subs.open {
		for _, watched := range b.tasks {
			if watched == id {
				s.told(mcp.NotificationTasks, b.ctx.Notify(mcp.NotificationTasks, b.params(append([]byte{','}, text[1:len(text)-1]...))))
				break
			}
		}
	}
}

// ownerOfTasks is whose tasks a legacy client of the session makes.
func (s *session) ownerOfTasks() string {
	if s.behalf.principal.ID != "" {
		return principalOwner(s.behalf.principal)
	}
	return s.taskOwner
}

func principalOwner(p *Principal) string { return "principal " + p.ID }

// watchTasks counts the tasks that a subscription wants to hear of, of those that the caller may ask for. It returns these.
func (s *session) watchTasks(c *Call, ids []string) ([]string, error) {
	if len(ids) == 0 || s.srv.tasks == nil {
		return nil, nil
	}
	if !c.hasTasks() {
		return nil, missingTasks()
	}
	var own []string
	for _, id := range ids[:min(len(ids), maxWatchedTasks)] {
		if t, err := s.srv.tasks.opts.Store.Task(c, id); err == nil && !t.Core && t.Owner == c.taskOwner() {
			own = append(own, id)
		}
	}
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if len(s.watchedTasks)+len(own) > maxWatchedTasks {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "too many tasks watched on this connection (limit %d)", maxWatchedTasks)
	}
	if s.watchedTasks == nil {
		s.watchedTasks = make(map[string]int)
	}
	for _, id := range own {
		s.watchedTasks[id]++
	}
	return own, nil
}

func (s *session) unwatchTasks(ids []string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	for _, id := range ids {
		if s.watchedTasks[id]--; s.watchedTasks[id] <= 0 {
			delete(s.watchedTasks, id)
		}
	}
}
