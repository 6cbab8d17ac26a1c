package replay

import (
	"slices"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxKinds is how many notifications are remembered of a request, or of those that belong to none.
const maxKinds = 1000

// A trace is which notifications came for a request.
type trace struct {
	exchange uint64
	token    string   // JSON text
	standing bool     // it is a subscription
	kinds    []string // methods, in order
	vague    bool     // some came that may have been for another
	touched  func()   // called when something came; may be nil
}

// A tracker finds out which request a notification is for: by its token, by its HTTP exchange, or because there is only one.
type tracker struct{ open []*trace }

func (t *tracker) add(c *trace) { t.open = append(t.open, c) }
func (t *tracker) remove(c *trace) {
	t.open = slices.DeleteFunc(t.open, func(x *trace) bool { return x == c })
}

// note takes a notification, and reports whether it is for a request.
func (t *tracker) note(m *jsonrpc.Message, exchange uint64) bool {
	method := string(m.Method)
	switch method {
	case mcp.NotificationProgress:
		token, _ := m.Param(mcp.MetaProgressToken)
		for _, c := range t.open {
			if c.token != "" && c.token == string(token) {
				c.took(method)
			}
		}
		return true
	case mcp.NotificationToolsChanged, mcp.NotificationResourcesChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourceUpdated, mcp.NotificationAcknowledged,
		mcp.NotificationElicitationComplete, mcp.NotificationTaskStatus, mcp.NotificationTasks, mcp.NotificationCancelled:
		return false
	}
	var waiting []*trace
	for _, c := range t.open {
		if exchange > 0 && c.exchange == exchange {
			c.took(method)
			return true
		}
		if !c.standing {
			waiting = append(waiting, c)
		}
	}
	if len(waiting) == 1 {
		waiting[0].took(method)
		return true
	}
	for _, c := range waiting {
		c.vague = true
	}
	return len(waiting) > 0
}

func (c *trace) took(method string) {
	if len(c.kinds) < maxKinds {
		c.kinds = append(c.kinds, method)
	}
	if c.touched != nil {
		c.touched()
	}
}

// addKind adds to a set.
func addKind(list []string, kind string) []string {
	if len(list) >= maxKinds || slices.Contains(list, kind) {
		return list
	}
	return append(list, kind)
}

// sameTraces reports whether the same came for a request, and returns what was compared.
func sameTraces(a, b *trace, strict bool) (same bool, old, live []string) {
	if strict {
		return slices.Equal(a.kinds, b.kinds), a.kinds, b.kinds
	}
	vague := a.vague || b.vague
	old, live = essence(a.kinds, vague), essence(b.kinds, vague)
	return slices.Equal(old, live), old, live
}

// essence leaves of notifications what is the same each time: progress counts once. vague leaves nothing else.
func essence(kinds []string, vague bool) []string {
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
