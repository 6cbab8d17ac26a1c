package client

import (
	"context"
	"encoding/json"
	"time"
)

// ask sends a request whose answer may be kept, if the server is modern and says so, and decodes the answer. Such requests are safe to repeat.
func ask[T any, P interface {
	*T
	json.Unmarshaler
}](ctx context.Context, c *Client, method string, params []byte, opts []CallOption) (*T, error) {
	c.prepare()
	r := &request{method: method, params: params, repeatable: true, opts: collect(opts)}
	f := c.newFetch(r)
	raw, cached, err := f.do(ctx)
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
		f.keep(raw)
	}
	return v, nil
}

// A fetch is one request whose answer may come from a cache, or go there.
type fetch struct {
	c      *Client
	r      *request
	key    cacheKey
	epochs [2]uint64 // of the caches before the request was sent
}

func (c *Client) newFetch(r *request) *fetch {
	f := &fetch{c: c, r: r, key: cacheKey{r.method, string(r.params)}}
	for i, cache := range c.caches() {
		f.epochs[i] = cache.epoch(r.method)
	}
	return f
}

// usesCache reports whether the request may be answered from a cache. One with a _meta of its own may not: nobody knows what the server makes of it.
func (f *fetch) usesCache() bool { return f.c.Modern() && len(f.r.opts.meta) == 0 }

// do returns the result, and whether a cache had it.
func (f *fetch) do(ctx context.Context) (raw []byte, cached bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	var kept []byte
	var expires time.Time
	if f.usesCache() {
		for _, cache := range f.c.caches() {
			if b, t := cache.get(f.key); b != nil && t.After(expires) {
				kept, expires = b, t
			}
		}
	}
	if kept != nil && !f.r.opts.fresh && time.Now().Before(expires) {
		return kept, true, nil
	}
	raw, err = f.c.roundTrip(ctx, f.r)
	if err == nil {
		return raw, false, nil
	}
	if kept != nil && !f.r.opts.fresh && ctx.Err() == nil && !IsPeer(err) && time.Now().Before(expires.Add(f.c.opts.StaleIfError)) {
		f.c.log.Warn("server cannot be reached: a cached response has to do", "method", f.r.method, "expired", expires, "error", err)
		return kept, true, nil
	}
	return nil, false, err
}

// keep puts a result where it belongs, if it says that it stays good for some time. One that took questions to the user is never kept.
func (f *fetch) keep(raw []byte) {
	if !f.usesCache() || f.r.rounds > 0 {
		return
	}
	ttl, public := cacheHints(raw)
	if ttl == 0 {
		return
	}
	expires := time.Now().Add(ttl)
	for i, cache := range f.c.caches() {
		if shared := cache == f.c.opts.Cache; shared == (public && f.c.opts.Cache != nil) {
			cache.put(f.key, f.epochs[i], raw, expires)
		}
	}
}
