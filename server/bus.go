package server

import (
	"context"
	"sync"
)

// A Bus connects servers that serve the same clients from several processes, so that what happens in one of them reaches the subscriptions at all: see
// [Options.Bus]. An implementation is a few lines around a message broker's client. It delivers to those who are subscribed when an event is published, at
// most once; events may overtake each other and may be lost, since all that one says is that something is not what it was.
//
// Whoever can publish can have the clients of all servers told things, and whoever can subscribe learns URIs and the ids of tasks and principals: the
// broker has to know who is who, as one that holds the sessions has.
type Bus interface {
	// Publish hands an event to the other servers. It is called by one goroutine at a time, with a ctx that ends after 5 s, and may take as long. The event
	// is lost if it fails; the server logs the error.
	Publish(ctx context.Context, e Event) error
	// Subscribe calls deliver for each event until ctx ends, or it can receive no more; the error says why. It is called again then, after a while. deliver does
	// not wait for anybody, and may be called by many goroutines at once, but not when Subscribe has returned. Events of this server may come back:
	// it knows them.
	Subscribe(ctx context.Context, deliver func(Event)) error
}

// An Event is something that has happened in one server and that the clients of others may want to hear of. It is made of plain text, and can be kept as JSON.
type Event struct {
	From string    `json:"from"`           // the server: a random text, another one for each [Server]
	Kind EventKind `json:"kind"`           // what has happened
	Name string    `json:"name,omitempty"` // to what, as the kind says; at most 8 KiB
	// Owner is whose the task is that TaskUpdated is about, as [Task.Owner]; it is empty for tasks of the extension, of which only those hear who name them.
	Owner string `json:"owner,omitempty"`
}

// An EventKind is what an [Event] says. Those that a server does not know, because a newer one has sent them, it passes over.
type EventKind string

// The kinds of event.
const (
	ToolsListChanged     EventKind = "tools"
	ResourcesListChanged EventKind = "resources" // or that of the templates
	PromptsListChanged   EventKind = "prompts"
	ViewChanged          EventKind = "view"        // of the principal with the ID Name, or of all; see [Server.ListsChanged]
	ResourceUpdated      EventKind = "resource"    // with the URI Name
	TaskUpdated          EventKind = "task"        // with the id Name. The servers share a [TaskStore], from which they take what it is by now
	ElicitationDone      EventKind = "elicitation" // with the id Name, see [Server.ElicitationComplete]
)

// A MemoryBus is a [Bus] within one process, for servers that share it, and for tests. The zero value is ready to use.
type MemoryBus struct {
	mu   sync.RWMutex
	subs map[*func(Event)]struct{}
}

// Publish implements [Bus]. When it returns, all who are subscribed have the event. The error is nil.
func (b *MemoryBus) Publish(_ context.Context, e Event) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for deliver := range b.subs {
		(*deliver)(e)
	}
	return nil
}

// Subscribe implements [Bus]. The error is ctx's.
func (b *MemoryBus) Subscribe(ctx context.Context, deliver func(Event)) error {
	b.mu.Lock()
	if b.subs == nil {
		b.subs = make(map[*func(Event)]struct{})
	}
	b.subs[&deliver] = struct{}{}
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	delete(b.subs, &deliver)
	b.mu.Unlock()
	return ctx.Err()
}

// receive has the sessions of this server told of what has happened in another one. It does not wait for anybody.
func (s *Server) receive(e Event) {
	for _, c := range listChanges {
		if e.Kind == c.event && s.advertises(c.bit) {
			s.announceLocal(c.bit)
		}
	}
	switch e.Kind {
	case ViewChanged:
		var principals []string
		if e.Name != "" {
			principals = []string{e.Name}
		}
		s.listsChangedLocal(principals)
	case ResourceUpdated:
		s.resourceUpdatedLocal(e.Name)
	case TaskUpdated:
		if s.tasks != nil {
			s.taskChangedLocal(e.Name, e.Owner)
		}
	case ElicitationDone:
		s.elicitationCompleteLocal(e.Name)
	}
}
