package client

import (
	"sync"
	"sync/atomic"

	"mcpwire/mcp"
)

// features is what a Client knows and does beyond sending requests. The zero value is ready; prepare makes what needs the Client.
type features struct {
	prepared sync.Once
	cache    atomic.Pointer[Cache] // of this client alone; nil keeps nothing
	tools    toolBook
	outputs  sync.Map // by reflect.Type: its *schema.Typed, for results
	subs     subscriptions
	running  crew // goroutines of subscriptions and tasks

	withdrawn withdrawn // calls that were given up, and may be tasks

	noTaskNews atomic.Bool   // the server does not tell of tasks by itself
	level      atomic.Uint32 // the mcp.LoggingLevel that SetLevel has set
}

// prepare has the client listen to what the server tells without being asked. It is called by whatever keeps something that can become stale, before it
// asks the server for it.
func (c *Client) prepare() {
	c.prepared.Do(func() {
		if c.opts.CacheBytes >= 0 {
			c.cache.Store(NewCache(c.opts.CacheBytes)) // the reader may look at it just now
		}
		for method, kind := range notifiedKinds {
			c.onNotify(method, func(params []byte) { c.noticed(kind, params) })
		}
		c.onNotify(mcp.NotificationAcknowledged, c.subs.acknowledged)
		c.onReconnect(func() {
			c.forget()
			c.subs.reconnected()
			c.setLevelAgain()
		})
	})
}

// wait waits for the goroutines of the features, which end when the connection has ended for good.
func (f *features) wait() { f.running.wait() }

// A crew is goroutines that somebody waits for in the end. The zero value has none.
type crew struct {
	mu     sync.Mutex
	ending bool
	wg     sync.WaitGroup
}

// start runs fn on a goroutine, unless the end has come.
func (w *crew) start(fn func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ending {
		w.wg.Go(fn)
	}
	return !w.ending
}

func (w *crew) wait() {
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	w.wg.Wait()
}

// ForgetCached drops all responses that the client has cached for itself, and what it knows of the server's tools. It has to be called when the client gets
// other credentials: what one user may see is not another's.
func (c *Client) ForgetCached() {
	c.prepare()
	c.forget()
}

func (c *Client) forget() {
	c.tools.forget()
	if cache := c.cache.Load(); cache != nil {
		cache.clear()
	}
}

// stale acts on the news that something has changed: responses that tell of it are not good any more.
func (c *Client) stale(e Event) {
	drop := func(method string, gone func(params string) bool) {
		for _, cache := range c.caches() {
			cache.drop(method, gone)
		}
	}
	switch e.Kind {
	case ToolsListChanged:
		c.tools.forget()
		drop(mcp.MethodToolsList, nil)
	case PromptsListChanged:
		drop(mcp.MethodPromptsList, nil)
	case ResourcesListChanged:
		drop(mcp.MethodResourcesList, nil)
		drop(mcp.MethodResourceTemplatesList, nil)
	case ResourceUpdated:
		drop(mcp.MethodResourcesRead, func(params string) bool { return related(uriParam([]byte(params)), e.URI) })
	}
}

// caches returns those that the client uses, its own first.
func (c *Client) caches() []*Cache {
	var all []*Cache
	for _, cache := range []*Cache{c.cache.Load(), c.opts.Cache} {
		if cache != nil {
			all = append(all, cache)
		}
	}
	return all
}
