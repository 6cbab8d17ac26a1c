package client

import (
	"container/list"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A Cache keeps responses for as long as the server said they stay good, up to a number of bytes; what was not used for longest goes first
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching).
//
// Each [Client] of a modern server has one of its own. Handed to several clients as [Options.Cache], a Cache is where responses that the server has
// marked public are shared among them; private ones stay with each client. All clients that share a Cache must be connected to the same
// server: nothing in a response says for certain whose it is. Calls with [WithMeta] pass caches by.
//
// A Cache may be used by many goroutines at once.
type Cache struct {
	maxBytes int

	mu          sync.Mutex
	bytes       int
	entries     map[cacheKey]*list.Element
	lru         list.List         // of *cacheEntry, the last used first
	generations map[string]uint64 // by method: how often its entries were dropped
}

// NewCache returns an empty Cache that holds at most maxBytes bytes; 0 is 16 MiB.
func NewCache(maxBytes int) *Cache {
	if maxBytes <= 0 {
		maxBytes = defaultCacheBytes
	}
	return &Cache{maxBytes: maxBytes, entries: make(map[cacheKey]*list.Element), generations: make(map[string]uint64)}
}

const (
	defaultCacheBytes = 16 << 20
	entryOverhead     = 200                  // bytes of an entry besides its texts
	maxTTL            = 365 * 24 * time.Hour // longer ones are cut: they may overflow a Duration
)

// A cacheKey is a method and the text of its params, without _meta. The texts that this package makes are the same for the same params.
type cacheKey struct{ method, params string }

type cacheEntry struct {
	key     cacheKey
	result  []byte // never changed
	expires time.Time
}

func (e *cacheEntry) size() int {
	return len(e.key.method) + len(e.key.params) + len(e.result) + entryOverhead
}

// get returns a result and when it stops being fresh, or nil.
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

// generation returns what put wants to know: a result that was asked for before its kind was dropped may be older than what the drop was for.
func (c *Cache) generation(method string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generations[method]
}

// put keeps a result, which nobody may change any more, unless entries of the method were dropped since the epoch.
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

// invalidate forgets the entries of a method whose params gone says are stale; nil means all.
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

// clear forgets everything.
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

// cacheableMethods are those whose results say how long they are good.
var cacheableMethods = []string{
	mcp.MethodDiscover, mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead,
}

// cacheHints reads how long a result stays good and whether it may serve other users. What is missing or makes no sense counts as: not at
// all, and private.
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

// overlaps reports whether a change of one resource may be one of the other: a server may tell of a part of a resource, or of the whole.
func overlaps(a, b string) bool { return isPartOf(a, b) || isPartOf(b, a) }

// isPartOf reports whether a URI is that of the whole or of a part of it.
func isPartOf(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// isJSONString reports whether the JSON text is the string s.
func isJSONString(text []byte, s string) bool {
	return len(text) >= 2 && text[0] == '"' && jsonwire.RawEqual(text[1:len(text)-1], s)
}

// getCacheable sends a request whose answer may be kept, if the server is modern and says so, and decodes the answer. Such requests are safe to repeat.
func getCacheable[T any, P interface {
	*T
	json.Unmarshaler
}](ctx context.Context, c *Client, method string, params []byte, opts []CallOption) (*T, error) {
	c.trackChanges()
	r := &request{method: method, params: params, repeatable: true, opts: newCallOptions(opts)}
	cr := c.newCachedRequest(r)
	raw, cached, err := cr.do(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.checkFinal(method, raw); err != nil {
		return nil, err
	}
	v := new(T)
	if err := decodeResult(method, raw, P(v)); err != nil {
		return nil, err
	}
	if !cached {
		cr.store(raw)
	}
	return v, nil
}

// A fetch is one request whose answer may come from a cache, or go there.
type cachedRequest struct {
	c           *Client
	req         *request
	key         cacheKey
	generations [2]uint64 // of the caches before the request was sent
}

func (c *Client) newCachedRequest(r *request) *cachedRequest {
	cr := &cachedRequest{c: c, req: r, key: cacheKey{r.method, string(r.params)}}
	for i, cache := range c.caches() {
		cr.generations[i] = cache.generation(r.method)
	}
	return cr
}

// usesCache reports whether the request may be answered from a cache. One with a _meta of its own may not: nobody knows what the server makes of it.
func (cr *cachedRequest) usesCache() bool { return cr.c.Modern() && len(cr.req.opts.meta) == 0 }

// do returns the result, and whether a cache had it.
func (cr *cachedRequest) do(ctx context.Context) (raw []byte, cached bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	var stored []byte
	var expires time.Time
	if cr.usesCache() {
		for _, cache := range cr.c.caches() {
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
	if stored != nil && !cr.req.opts.fresh && ctx.Err() == nil && !IsPeer(err) && time.Now().Before(expires.Add(cr.c.opts.StaleIfError)) {
		cr.c.log.Warn("server cannot be reached: a cached response has to do", "method", cr.req.method, "expired", expires, "error", err)
		return stored, true, nil
	}
	return nil, false, err
}

// store puts a result where it belongs, if it says that it stays good for some time. One that took questions to the user is never kept.
func (cr *cachedRequest) store(raw []byte) {
	if !cr.usesCache() || cr.req.inputRounds > 0 {
		return
	}
	ttl, public := cacheHints(raw)
	if ttl == 0 {
		return
	}
	expires := time.Now().Add(ttl)
	for i, cache := range cr.c.caches() {
		if shared := cache == cr.c.opts.Cache; shared == (public && cr.c.opts.Cache != nil) {
			cache.put(cr.key, cr.generations[i], raw, expires)
		}
	}
}
