package client

import (
	"slices"
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// listeners are the functions that onNotify registered.
type listeners struct {
	mu       sync.RWMutex
	byMethod map[string][]*func(params []byte)
}

// onNotify registers fn for the notifications of a method. It is called in the order in which they come, on the goroutine that reads: it must not block,
// and params, nil or the text of an object, is valid until it returns. Results that the server sent later are not delivered before.
func (c *Client) onNotify(method string, fn func(params []byte)) (remove func()) {
	t := &c.listeners
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byMethod == nil {
		t.byMethod = make(map[string][]*func([]byte))
	}
	t.byMethod[method] = append(slices.Clip(t.byMethod[method]), &fn)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		rest := slices.DeleteFunc(slices.Clone(t.byMethod[method]), func(f *func([]byte)) bool { return f == &fn })
		if t.byMethod[method] = rest; len(rest) == 0 {
			delete(t.byMethod, method)
		}
	}
}

// tell calls those who wait for notifications of a method. They may register others meanwhile.
func (t *listeners) tell(method, params []byte) {
	t.mu.RLock()
	list := t.byMethod[string(method)]
	t.mu.RUnlock()
	for _, fn := range list {
		(*fn)(params)
	}
}

// onReconnect registers fn to be called when a lost connection was replaced, before calls use the new one. It must not block.
func (c *Client) onReconnect(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks = append(slices.Clip(c.hooks), fn)
}

// notified acts on a notification, on the goroutine that reads.
func (l *link) notified(n *jsonrpc.Message) {
	c := l.c
	if len(n.Params) > 0 && n.Params[0] != '{' {
		c.log.Warn("notification dropped: its params are no object", "method", string(n.Method[:min(len(n.Method), 100)]))
		return
	}
	switch string(n.Method) {
	case mcp.NotificationProgress:
		if text, ok := n.Param("progressToken"); ok {
			if token, ok := jsonwire.ParseInt(text); ok {
				c.watchers.tellProgress(token, n.Params)
			}
		}
	case mcp.NotificationMessage:
		if text, ok := n.Param("level"); ok && len(text) > 2 {
			level, _ := mcp.ParseLoggingLevel(string(text[1 : len(text)-1]))
			c.watchers.tellLog(level, n.Params)
		}
	case mcp.NotificationCancelled:
		if id, ok := n.Param("requestId"); ok {
			l.endStream(id)
		}
	}
	c.listeners.tell(n.Method, n.Params)
}
