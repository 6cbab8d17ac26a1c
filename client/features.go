package client

import (
	"sync"
	"sync/atomic"

	"mcpwire/mcp"
)

// serverState is what a Client knows and does beyond sending requests. The zero value is ready; prepare makes what needs the Client.
type serverState struct {
	trackOnce   sync.Once
	ownCache    atomic.Pointer[Cache] // of this client alone; nil keeps nothing
	tools       toolCatalog
	outputTypes sync.Map // by reflect.Type: its *schema.Typed, for results
	subs        subscriptions
	goroutines  goroutineGroup // goroutines of subscriptions and tasks

	withdrawnCalls withdrawnCalls // calls that were given up, and may be tasks

	noTaskUpdates atomic.Bool   // the server does not tell of tasks by itself
	logLevel      atomic.Uint32 // the mcp.LoggingLevel that SetLevel has set
}

// trackChanges has the client listen to what the server tells without being asked. It is called by whatever keeps something that can become stale, before it
// asks the server for it.
func (c *Client) trackChanges() {
	c.trackOnce.Do(func() {
		if c.opts.CacheBytes >= 0 {
			c.ownCache.Store(NewCache(c.opts.CacheBytes)) // the reader may look at it just now
		}
		for method, kind := range changeKinds {
			c.onNotify(method, func(params []byte) { c.handleChange(kind, params) })
		}
		c.onNotify(mcp.NotificationAcknowledged, c.subs.acknowledged)
		c.onReconnect(func() {
			c.clearCaches()
			c.subs.reconnected()
			c.restoreLogLevel()
		})
	})
}

// wait waits for the goroutines of the features, which end when the connection has ended for good.
func (ss *serverState) wait() { ss.goroutines.wait() }

// A crew is goroutines that somebody waits for in the end. The zero value has none.
type goroutineGroup struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// start runs fn on a goroutine, unless the end has come.
func (g *goroutineGroup) start(fn func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.wg.Go(fn)
	}
	return !g.closed
}

func (g *goroutineGroup) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}

// ForgetCached drops all responses that the client has cached for itself, and what it knows of the server's tools. It has to be called when the client gets
// other credentials: what one user may see is not another's.
func (c *Client) ForgetCached() {
	c.trackChanges()
	c.clearCaches()
}

func (c *Client) clearCaches() {
	c.tools.clear()
	if cache := c.ownCache.Load(); cache != nil {
		cache.clear()
	}
}

// invalidate acts on the news that something has changed: responses that tell of it are not good any more.
func (c *Client) invalidate(e Event) {
	drop := func(method string, gone func(params string) bool) {
		for _, cache := range c.caches() {
			cache.invalidate(method, gone)
		}
	}
	switch e.Kind {
	case ToolsListChanged:
		c.tools.clear()
		drop(mcp.MethodToolsList, nil)
	case PromptsListChanged:
		drop(mcp.MethodPromptsList, nil)
	case ResourcesListChanged:
		drop(mcp.MethodResourcesList, nil)
		drop(mcp.MethodResourceTemplatesList, nil)
	case ResourceUpdated:
		drop(mcp.MethodResourcesRead, func(params string) bool { return overlaps(parseURIParam([]byte(params)), e.URI) })
	}
}

// caches returns those that the client uses, its own first.
func (c *Client) caches() []*Cache {
	var all []*Cache
	for _, cache := range []*Cache{c.ownCache.Load(), c.opts.Cache} {
		if cache != nil {
			all = append(all, cache)
		}
	}
	return all
}
