package server

import (
	"fmt"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// A listing is how a request asks for the items of one kind.
type listRequest struct {
	srv      *Server
	kind     Kind
	member   string // of the result, that holds the items
	view     *View
	features *era.Features
}

// answerList answers a request for a page of a list. Pages are cut in the order of registration, so
// that a change between two of them neither repeats nor skips an item that was there throughout.
// See position for other servers that take the cursor.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination)
func answerList[T item](l listRequest, c *catalog[T], r *jsonrpc.Request, dst []byte) ([]byte, error) {
	cursor, ok := r.Param("cursor")
	if !ok || string(cursor) == "null" {
		page, err := firstPage(l, c)
		return append(dst, page...), err
	}
	if cursor[0] != '"' {
		return dst, invalidParams("params.cursor must be a string")
	}
	p, ok := l.openCursor(jsonwire.UnquoteString(cursor[1 : len(cursor)-1]))
	if !ok {
		return dst, invalidParams("params.cursor is not one that this server gave out")
	}
	return appendPage(dst, l, itemsAfter(&l, c.list, p))
}

// firstPage returns the encoded first page, which is kept for the next who asks.
func firstPage[T item](l listRequest, c *catalog[T]) ([]byte, error) {
	key := pageKey{l.features, l.view, l.srv.opts.StateKeys.ring.KeyID()}
	c.mu.Lock()
	page := c.firstPages[key]
	c.mu.Unlock()
	if page != nil {
		return page, nil
	}
	page, err := appendPage(nil, l, c.list) // without the lock: a view is the user's code
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if len(c.firstPages) < maxFirstPages {
		c.firstPages[key] = page
	}
	c.mu.Unlock()
	return page, nil
}

// appendPage appends the result with the first of the items that the view shows.
func appendPage[T item](dst []byte, l listRequest, items []T) ([]byte, error) {
	dst = append(jsonwire.AppendQuote(append(dst, '{'), l.member), ":["...)
	n, more := 0, false
	var last *entry
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
		n, last = n+1, e
	}
	dst = append(dst, ']')
	if more {
		cursor, err := l.sealCursor(last)
		if err != nil {
			return dst, fmt.Errorf("list cursor: %w", err)
		}
		dst = jsonwire.AppendQuote(append(dst, `,"nextCursor":`...), string(cursor))
	}
	dst = era.AppendCacheHints(dst, l.features, l.srv.cacheHints())
	return l.srv.results.End(dst, l.features), nil
}
