package client

import (
	"slices"
	"sync"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// notificationHandlers are the functions that onNotify registered.
type notificationHandlers struct {
	mu       sync.RWMutex
	byMethod map[string][]*func(params []byte)
}

// onNotify registers fn for the notifications of a method. It is called in the order in which they come, on the goroutine that reads: it must not block,
// and params, nil or the text of an object, is valid until it returns. Results that the server sent later are not delivered before.
func (c *Client) onNotify(method string, fn func(params []byte)) (remove func()) {
	nh := &c.notificationHandlers
	nh.mu.Lock()
	defer nh.mu.Unlock()
	if nh.byMethod == nil {
		nh.byMethod = make(map[string][]*func([]byte))
	}
	nh.byMethod[method] = append(slices.Clip(nh.byMethod[method]), &fn)
	return func() {
		nh.mu.Lock()
		defer nh.mu.Unlock()
		rest := slices.DeleteFunc(slices.Clone(nh.byMethod[method]), func(f *func([]byte)) bool { return f == &fn })
		if nh.byMethod[method] = rest; len(rest) == 0 {
			delete(nh.byMethod, method)
		}
	}
}

// dispatch calls those who wait for notifications of a method. They may register others meanwhile.
func (nh *notificationHandlers) dispatch(method, params []byte) {
	nh.mu.RLock()
	list := nh.byMethod[string(method)]
	nh.mu.RUnlock()
	for _, fn := range list {
		(*fn)(params)
	}
}

// onReconnect registers fn to be called when a lost connection was replaced, before calls use the new one. It must not block.
func (c *Client) onReconnect(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reconnectHooks = append(slices.Clip(c.reconnectHooks), fn)
}

// handleNotification acts on a notification, on the goroutine that reads.
func (cn *connection) handleNotification(n *jsonrpc.Message) {
	c := cn.c
	if len(n.Params) > 0 && n.Params[0] != '{' {
		c.log.Warn("notification dropped: its params are no object", "method", string(n.Method[:min(len(n.Method), 100)]))
		return
	}
	switch string(n.Method) {
	case mcp.NotificationProgress:
		if text, ok := n.Param("progressToken"); ok {
			if token, ok := jsonwire.ParseInt(text); ok {
				c.callbacks.enqueueProgress(token, n.Params)
			}
		}
	case mcp.NotificationMessage:
		if text, ok := n.Param("level"); ok && len(text) > 2 {
			level, _ := mcp.ParseLoggingLevel(string(text[1 : len(text)-1]))
			c.callbacks.enqueueLog(level, n.Params)
		}
	case mcp.NotificationCancelled:
		if id, ok := n.Param("requestId"); ok {
			cn.endStream(id)
		}
	}
	c.notificationHandlers.dispatch(n.Method, n.Params)
}
