package server

import (
	"cmp"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// A listing is how a request asks for the items of one kind.
type listing struct {
	srv      *Server
	kind     Kind
	member   string // of the result, that holds the items
	view     *View
	features *era.Features
}

// answerList answers a request for a page of a list. Pages are cut in the order of registration, so that a change between two of them neither
// repeats nor skips an item that was there throughout.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination)
func answerList[T item](l listing, c *catalog[T], r *jsonrpc.Request, dst []byte) ([]byte, error) {
	cursor, ok := r.Param("cursor")
	if !ok || string(cursor) == "null" {
		return append(dst, firstPage(l, c)...), nil
	}
	if cursor[0] != '"' {
		return dst, invalidParams("params.cursor must be a string")
	}
	after, ok := l.srv.cursors.open(l.kind, jsonwire.UnquoteString(cursor[1:len(cursor)-1]))
	if !ok {
		return dst, invalidParams("params.cursor is not one that this server gave out")
	}
	i, _ := slices.BinarySearchFunc(c.list, after+1, func(it T, seq uint64) int { return cmp.Compare(it.base().seq, seq) })
	return appendPage(dst, l, c.list[i:]), nil
}

// firstPage returns the encoded first page, which is kept for the next who asks.
func firstPage[T item](l listing, c *catalog[T]) []byte {
	key := pageKey{l.features, l.view}
	c.mu.Lock()
	page := c.first[key]
	c.mu.Unlock()
	if page != nil {
		return page
	}
	page = appendPage(nil, l, c.list) // without the lock: a view is the user's code
	c.mu.Lock()
	if len(c.first) < maxPages {
		c.first[key] = page
	}
	c.mu.Unlock()
	return page
}

// appendPage appends the result with the first of the items that the view shows.
func appendPage[T item](dst []byte, l listing, items []T) []byte {
	dst = append(jsonwire.AppendQuote(append(dst, '{'), l.member), ":["...)
	n, last, more := 0, uint64(0), false
	for _, it := range items {
		e := it.base()
		if !l.view.shows(l.kind, e.key) {
			continue
		}
		if more = n == l.srv.opts.PageSize; more {
			break
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = it.appendDefinition(dst, l.features)
		n, last = n+1, e.seq
	}
	dst = append(dst, ']')
	if more {
		dst = jsonwire.AppendQuote(append(dst, `,"nextCursor":`...), l.srv.cursors.seal(l.kind, last))
	}
	dst = era.AppendCacheHints(dst, l.features, l.srv.cacheHints())
	return l.srv.identity.End(dst, l.features)
}
