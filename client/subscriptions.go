package client

import (
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// changeKinds are the notifications that tell of a change.
var changeKinds = map[string]EventKind{
	mcp.NotificationToolsChanged:     ToolsListChanged,
	mcp.NotificationPromptsChanged:   PromptsListChanged,
	mcp.NotificationResourcesChanged: ResourcesListChanged,
	mcp.NotificationResourceUpdated:  ResourceUpdated,
	mcp.NotificationTasks:            TaskUpdated, // the extension's
	mcp.NotificationTaskStatus:       TaskUpdated, // the legacy one
}

// subscriptions are those of a client. The zero value has none.
type subscriptions struct {
	mu         sync.Mutex
	modern     map[string]*Subscription // by the id of its listen request
	legacy     map[*Subscription]struct{}
	uriCounts  map[string]int // how many legacy subscriptions have subscribed to a resource
	nextConn   chan struct{}  // closed when the connection was made anew; made by nextConnection
	legacySlot chan struct{}  // has a token while somebody subscribes to a legacy server's resources, or unsubscribes; made by lockLegacy
}

func (ss *subscriptions) add(id string, s *Subscription) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.modern == nil {
		ss.modern = make(map[string]*Subscription)
	}
	ss.modern[id] = s
}

func (ss *subscriptions) remove(id string, s *Subscription) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.modern[id] == s { // on another connection the id may be another's
		delete(ss.modern, id)
	}
}

func (ss *subscriptions) find(params []byte) *Subscription {
	id := subscriptionID(params)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.modern[id]
}

// subscriptionID returns the JSON text by which a notification says whose it is, or "".
func subscriptionID(params []byte) string {
	return string(jsonwire.Lookup(jsonwire.Lookup(params, "_meta"), mcp.MetaSubscriptionID))
}

// nextConnection returns a channel that is closed when the connection is made anew.
func (ss *subscriptions) nextConnection() <-chan struct{} {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.nextConn == nil {
		ss.nextConn = make(chan struct{})
	}
	return ss.nextConn
}

func (ss *subscriptions) reconnected() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.nextConn != nil {
		close(ss.nextConn)
		ss.nextConn = nil
	}
}

// acknowledged takes notifications/subscriptions/acknowledged.
func (ss *subscriptions) acknowledged(params []byte) {
	if s := ss.find(params); s != nil {
		s.acknowledge(parseFilter(jsonwire.Lookup(params, "notifications")))
	}
}

// handleChange takes a notification that tells of a change.
func (c *Client) handleChange(kind EventKind, params []byte) {
	e := Event{Kind: kind}
	switch kind {
	case ResourceUpdated:
		e.URI = parseURIParam(params)
	case TaskUpdated:
		e.TaskID, _ = stringValue(jsonwire.Lookup(params, "taskId"))
	}
	c.invalidate(e)
	if c.Modern() {
		if s := c.subs.find(params); s != nil {
			s.enqueue(e)
		}
		return
	}
	c.subs.mu.Lock()
	defer c.subs.mu.Unlock()
	for s := range c.subs.legacy {
		s.enqueueLegacy(e)
	}
}
