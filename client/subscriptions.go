package client

import (
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// notifiedKinds are the notifications that tell of a change.
var notifiedKinds = map[string]EventKind{
	mcp.NotificationToolsChanged:     ToolsListChanged,
	mcp.NotificationPromptsChanged:   PromptsListChanged,
	mcp.NotificationResourcesChanged: ResourcesListChanged,
	mcp.NotificationResourceUpdated:  ResourceUpdated,
	mcp.NotificationTasks:            TaskUpdated, // the extension's
	mcp.NotificationTaskStatus:       TaskUpdated, // the legacy one
}

// subscriptions are those of a client. The zero value has none.
type subscriptions struct {
	mu     sync.Mutex
	modern map[string]*Subscription // by the id of its listen request
	legacy map[*Subscription]struct{}
	uris   map[string]int // how many legacy subscriptions have subscribed to a resource
	again  chan struct{}  // closed when the connection was made anew; made by nextConnection
	turn   chan struct{}  // has a token while somebody subscribes to a legacy server's resources, or unsubscribes; made by takeTurn
}

func (l *subscriptions) enter(id string, s *Subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.modern == nil {
		l.modern = make(map[string]*Subscription)
	}
	l.modern[id] = s
}

func (l *subscriptions) leave(id string, s *Subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.modern[id] == s { // on another connection the id may be another's
		delete(l.modern, id)
	}
}

func (l *subscriptions) of(params []byte) *Subscription {
	id := subscriptionID(params)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.modern[id]
}

// subscriptionID returns the JSON text by which a notification says whose it is, or "".
func subscriptionID(params []byte) string {
	return string(jsonwire.Lookup(jsonwire.Lookup(params, "_meta"), mcp.MetaSubscriptionID))
}

// nextConnection returns a channel that is closed when the connection is made anew.
func (l *subscriptions) nextConnection() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again == nil {
		l.again = make(chan struct{})
	}
	return l.again
}

func (l *subscriptions) reconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again != nil {
		close(l.again)
		l.again = nil
	}
}

// acknowledged takes notifications/subscriptions/acknowledged.
func (l *subscriptions) acknowledged(params []byte) {
	if s := l.of(params); s != nil {
		s.acknowledge(parseFilter(jsonwire.Lookup(params, "notifications")))
	}
}

// noticed takes a notification that tells of a change.
func (c *Client) noticed(kind EventKind, params []byte) {
	e := Event{Kind: kind}
	switch kind {
	case ResourceUpdated:
		e.URI = uriParam(params)
	case TaskUpdated:
		e.TaskID, _ = stringValue(jsonwire.Lookup(params, "taskId"))
	}
	c.stale(e)
	if c.Modern() {
		if s := c.subs.of(params); s != nil {
			s.tell(e)
		}
		return
	}
	c.subs.mu.Lock()
	defer c.subs.mu.Unlock()
	for s := range c.subs.legacy {
		s.tellLegacy(e)
	}
}
