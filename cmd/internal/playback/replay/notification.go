package replay

import (
	"slices"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxKinds limits the stored notifications of a request, or of those without a request.
const maxKinds = 1000

// A notificationLog lists the notifications for a request.
type notificationLog struct {
	exchange uint64
	// token is JSON text.
	token          string
	isSubscription bool
	// kinds are the methods, in order.
	kinds []string
	// ambiguous reports notifications that may belong to another request.
	ambiguous bool
	// onAdd is called for each notification. It may be nil.
	onAdd func()
}

// A tracker assigns notifications to requests: by token, by HTTP exchange, or to the only pending
// one.
type tracker struct{ open []*notificationLog }

func (t *tracker) add(c *notificationLog) { t.open = append(t.open, c) }
func (t *tracker) remove(c *notificationLog) {
	t.open = slices.DeleteFunc(t.open, func(x *notificationLog) bool { return x == c })
}

// route assigns a notification, and reports whether it belongs
// to a request at all.
func (t *tracker) route(m *jsonrpc.Message, exchange uint64) bool {
	method := string(m.Method)
	switch method {
	case mcp.NotificationProgress:
		token, _ := m.Param(mcp.MetaProgressToken)
		for _, c := range t.open {
			if c.token != "" && c.token == string(token) {
				c.add(method)
			}
		}
		return true
	case mcp.NotificationToolsChanged, mcp.NotificationResourcesChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourceUpdated, mcp.NotificationAcknowledged,
		mcp.NotificationElicitationComplete, mcp.NotificationTaskStatus, mcp.NotificationTasks, mcp.NotificationCancelled:
		return false
	}
	var waiting []*notificationLog
	for _, c := range t.open {
		if exchange > 0 && c.exchange == exchange {
			c.add(method)
			return true
		}
		if !c.isSubscription {
			waiting = append(waiting, c)
		}
	}
	if len(waiting) == 1 {
		waiting[0].add(method)
		return true
	}
	for _, c := range waiting {
		c.ambiguous = true
	}
	return len(waiting) > 0
}

func (l *notificationLog) add(method string) {
	if len(l.kinds) < maxKinds {
		l.kinds = append(l.kinds, method)
	}
	if l.onAdd != nil {
		l.onAdd()
	}
}

// addKind adds a kind to a set.
func addKind(list []string, kind string) []string {
	if len(list) >= maxKinds || slices.Contains(list, kind) {
		return list
	}
	return append(list, kind)
}

// sameNotifications reports whether two requests got the same notifications, and returns the
// compared lists.
func sameNotifications(a, b *notificationLog, strict bool) (same bool, old, live []string) {
	if strict {
		return slices.Equal(a.kinds, b.kinds), a.kinds, b.kinds
	}
	vague := a.ambiguous || b.ambiguous
	old, live = comparableKinds(a.kinds, vague), comparableKinds(b.kinds, vague)
	return slices.Equal(old, live), old, live
}

// comparableKinds returns the notifications that are the same each time: progress only once. vague
// leaves out all other kinds.
func comparableKinds(kinds []string, vague bool) []string {
	var list []string
	if slices.Contains(kinds, mcp.NotificationProgress) {
		list = append(list, mcp.NotificationProgress)
	}
	for _, k := range kinds {
		if k != mcp.NotificationProgress && !vague {
			list = append(list, k)
		}
	}
	return list
}
