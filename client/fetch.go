package client

import (
	"context"
	"encoding/json"
	"time"
)

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
