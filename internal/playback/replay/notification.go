package replay

import (
	"slices"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxKinds is how many notifications are remembered of a request, or of those that belong to none.
const maxKinds = 1000

// A trace is which notifications came for a request.
type notificationLog struct {
	exchange       uint64
	token          string   // JSON text
	isSubscription bool     // it is a subscription
	kinds          []string // methods, in order
	ambiguous      bool     // some came that may have been for another
	onAdd          func()   // called when something came; may be nil
}

// A tracker finds out which request a notification is for: by its token, by its HTTP exchange, or because there is only one.
type tracker struct{ open []*notificationLog }

func (t *tracker) add(c *notificationLog) { t.open = append(t.open, c) }
func (t *tracker) remove(c *notificationLog) {
	t.open = slices.DeleteFunc(t.open, func(x *notificationLog) bool { return x == c })
}

// route takes a notification, and reports whether it is for a request.
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

// addKind adds to a set.
func addKind(list []string, kind string) []string {
	if len(list) >= maxKinds || slices.Contains(list, kind) {
		return list
	}
	return append(list, kind)
}

// sameNotifications reports whether the same came for a request, and returns what was compared.
func sameNotifications(a, b *notificationLog, strict bool) (same bool, old, live []string) {
	if strict {
		return slices.Equal(a.kinds, b.kinds), a.kinds, b.kinds
	}
	vague := a.ambiguous || b.ambiguous
	old, live = comparableKinds(a.kinds, vague), comparableKinds(b.kinds, vague)
	return slices.Equal(old, live), old, live
}

// comparableKinds leaves of notifications what is the same each time: progress counts once. vague leaves nothing else.
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
