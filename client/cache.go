package client

import (
	"container/list"
	"context"
	"encoding/json"
	"sync"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A Cache keeps responses for as long as the server allows, up to a limit in bytes
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching). It evicts
// the least recently used first.
//
// Each [Client] of a modern server has its own. Clients that share a Cache as [CacheOptions.Shared]
// share the responses that the server marked public; private ones stay with each client. They must
// all be connected to the same server, because a response does not identify its server. Calls with
// [WithMeta] bypass caches.
//
// Multiple goroutines may use a Cache at once.
type Cache struct {
	maxBytes int

	mu      sync.Mutex
	bytes   int
	entries map[cacheKey]*list.Element
	// lru holds *cacheEntry values, the last used first.
	lru list.List
	// generations counts by method how often entries were dropped.
	generations map[string]uint64
}

// NewCache returns an empty Cache that holds at most maxBytes bytes. Zero means 16 MiB.
func NewCache(maxBytes int) *Cache {
	defaults.IfNotPositive(&maxBytes, defaultCacheBytes)
	return &Cache{maxBytes: maxBytes, entries: make(map[cacheKey]*list.Element), generations: make(map[string]uint64)}
}

const (
	defaultCacheBytes = 16 << 20
	entryOverhead     = 200                  // size of an entry without its texts, in bytes
	maxTTL            = 365 * 24 * time.Hour // limit that avoids overflow of a Duration
)

// A cacheKey is a method and the text of its params without _meta. This package encodes equal
// params to equal texts.
type cacheKey struct{ method, params string }

type cacheEntry struct {
	key cacheKey
	// result is immutable.
	result  []byte
	expires time.Time
}

func (e *cacheEntry) size() int {
	return len(e.key.method) + len(e.key.params) + len(e.result) + entryOverhead
}

// get returns a result and its expiry time, or nil.
func (c *Cache) get(key cacheKey) (result []byte, expires time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.entries[key]
	if el == nil {
		return nil, time.Time{}
	}
	c.lru.MoveToFront(el)
	e := el.Value.(*cacheEntry)
	return e.result, e.expires
}

// generation returns the argument for put. It lets put reject a result that was requested before
// its method was invalidated, because that result may be stale.
func (c *Cache) generation(method string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generations[method]
}

// put stores a result unless entries of the method were dropped since generation. The cache owns
// result, which must not change.
func (c *Cache) put(key cacheKey, generation uint64, result []byte, expires time.Time) {
	e := &cacheEntry{key, result, expires}
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generations[key.method] {
		return
	}
	c.removeLocked(c.entries[key])
	if e.size() > c.maxBytes {
		return
	}
	c.entries[key] = c.lru.PushFront(e)
	c.bytes += e.size()
	for c.bytes > c.maxBytes {
		c.removeLocked(c.lru.Back())
	}
}

func (c *Cache) removeLocked(el *list.Element) {
	if el == nil {
		return
	}
	e := c.lru.Remove(el).(*cacheEntry)
	delete(c.entries, e.key)
	c.bytes -= e.size()
}

// invalidate drops the entries of a method for which stale returns true. A nil stale means all.
func (c *Cache) invalidate(method string, stale func(params string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generations[method]++
	for key, el := range c.entries {
		if key.method == method && (stale == nil || stale(key.params)) {
			c.removeLocked(el)
		}
	}
}

// clear drops all entries.
func (c *Cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for el := c.lru.Front(); el != nil; el = c.lru.Front() {
		c.removeLocked(el)
	}
	for _, method := range cacheableMethods {
		c.generations[method]++
	}
}

// cacheableMethods are the methods whose results have cache hints.
var cacheableMethods = []string{
	mcp.MethodDiscover, mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead,
}

// cacheHints returns how long a result stays fresh and whether other users may share it. Missing or
// invalid hints mean zero and private.
func cacheHints(result []byte) (ttl time.Duration, public bool) {
	members := jsonwire.ObjectMembers(result)
	for members.Next() {
		switch {
		case members.KeyIs("ttlMs"):
			ms, _ := jsonwire.ParseInt(members.Value())
			ttl = time.Duration(min(max(ms, 0), int64(maxTTL/time.Millisecond))) * time.Millisecond
		case members.KeyIs("cacheScope"):
			public = isJSONString(members.Value(), "public")
		}
	}
	return ttl, public
}

// overlaps reports whether one URI is a part of the other, so that a change of one may be a change
// of the other. A server may report a part of a resource, or the whole.
func overlaps(a, b string) bool { return era.IsSubresource(a, b) || era.IsSubresource(b, a) }

// isJSONString reports whether the JSON text is the string s.
func isJSONString(text []byte, s string) bool {
	return len(text) >= 2 && text[0] == '"' && jsonwire.RawEqual(text[1:len(text)-1], s)
}

// getCacheable sends a request that is safe to repeat and decodes the result. It uses the caches if
// the server is modern and its cache hints allow it.
func getCacheable[T any, P interface {
	*T
	json.Unmarshaler
}](ctx context.Context, c *Client, method string, params []byte, opts []CallOption) (*T, error) {
	r := &request{method: method, params: params, repeatable: true, opts: newCallOptions(opts)}
	cr := c.caches.request(r)
	raw, cached, err := cr.do(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.checkFinal(method, era.ResultType(raw)); err != nil {
		return nil, err
	}
	v := new(T)
	raw, err = c.decodeResult(method, raw, P(v))
	if err != nil {
		return nil, err
	}
	if !cached {
		cr.store(raw)
	}
	return v, nil
}

// A cacheSet is the caches that a Client uses.
type cacheSet struct {
	c *Client
	// own belongs to this client alone. It is nil if the client caches nothing.
	own *Cache
}

// A cachedRequest is one request whose result may come from a cache or go into one.
type cachedRequest struct {
	c   *Client
	req *request
	key cacheKey
	// generations are those of the caches before the request was sent.
	generations [2]uint64
}

// request looks up the generations of the caches before r is sent.
func (cs *cacheSet) request(r *request) *cachedRequest {
	cr := &cachedRequest{c: cs.c, req: r, key: cacheKey{r.method, string(r.params)}}
	for i, cache := range cs.all() {
		cr.generations[i] = cache.generation(r.method)
	}
	return cr
}

// usesCache reports whether caches may serve the request. A request with caller-supplied _meta must
// go to the server, which may depend on it.
func (cr *cachedRequest) usesCache() bool {
	return cr.c.Revision().Modern() && len(cr.req.opts.meta) == 0
}

// do returns the result and whether it came from a cache.
func (cr *cachedRequest) do(ctx context.Context) (raw []byte, cached bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	var stored []byte
	var expires time.Time
	if cr.usesCache() {
		for _, cache := range cr.c.caches.all() {
			if b, t := cache.get(cr.key); b != nil && t.After(expires) {
				stored, expires = b, t
			}
		}
	}
	if stored != nil && !cr.req.opts.fresh && time.Now().Before(expires) {
		return stored, true, nil
	}
	raw, err = cr.c.roundTrip(ctx, cr.req)
	if err == nil {
		return raw, false, nil
	}
	if stored != nil && !cr.req.opts.fresh && ctx.Err() == nil && !IsServerError(err) && time.Now().Before(expires.Add(cr.c.opts.Cache.StaleIfError)) {
		cr.c.log.Warn("server cannot be reached: using a cached response", "method", cr.req.method, "expired", expires, "error", err)
		return stored, true, nil
	}
	return nil, false, err
}

// store puts a result into the cache that its hints select. It never stores the result of a call
// that took input rounds.
func (cr *cachedRequest) store(raw []byte) {
	if !cr.usesCache() || cr.req.inputRounds > 0 {
		return
	}
	ttl, public := cacheHints(raw)
	if ttl == 0 {
		return
	}
	expires := time.Now().Add(ttl)
	for i, cache := range cr.c.caches.all() {
		if shared := cache == cr.c.opts.Cache.Shared; shared == (public && cr.c.opts.Cache.Shared != nil) {
			cache.put(cr.key, cr.generations[i], raw, expires)
		}
	}
}

// all returns the caches in use, the client's own first.
func (cs *cacheSet) all() []*Cache {
	var all []*Cache
	for _, cache := range []*Cache{cs.own, cs.c.opts.Cache.Shared} {
		if cache != nil {
			all = append(all, cache)
		}
	}
	return all
}

// clear drops what the Client itself has cached.
func (cs *cacheSet) clear() {
	if cs.own != nil {
		cs.own.clear()
	}
}

// invalidate drops the cached responses that e makes stale.
func (cs *cacheSet) invalidate(e Event) {
	drop := func(method string, gone func(params string) bool) {
		for _, cache := range cs.all() {
			cache.invalidate(method, gone)
		}
	}
	switch e.Kind {
	case ToolsListChanged:
		cs.c.tools.expire(true)
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
