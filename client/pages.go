package client

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
)

var (
	// ErrCursorLoop is wrapped by the error that ends an iteration when the server gives a cursor that it has given in this walk already, which
	// would go on for ever.
	ErrCursorLoop = errors.New("the server gave the same cursor twice")
	// ErrTooManyPages is wrapped by the error that ends an iteration over a list with more pages than [Options.MaxPages].
	ErrTooManyPages = errors.New("the list has too many pages")
)

const defaultMaxPages = 10_000

// A pager walks one of the server's lists, page by page
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination).
type pager[T any] struct {
	maxPages   int // pages
	fetch      func(ctx context.Context, cursor *string) (items []T, next *string, err error)
	key        func(*T) string // tells items apart
	invalidate func()          // drops cached pages
}

// items yields the items in the server's order. Pages are fetched as the loop gets to them.
//
// A cursor may become invalid between two pages, when the server restarts or the list changes. Then all cached pages are dropped and the walk
// begins anew, once, passing over the items that were yielded already.
func (p *pager[T]) items(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var pos pagePosition
		yielded := newHashSet()
		restarted := false
		for {
			items, next, err := p.fetch(ctx, pos.value)
			if err != nil {
				if restarted || pos.value == nil || yielded.full() || !isInvalidParams(err) {
					yield(none, err)
					return
				}
				restarted, pos = true, pagePosition{}
				p.invalidate()
				continue
			}
			for i := range items {
				if !yielded.add(p.key(&items[i])) && restarted {
					continue
				}
				if !yield(items[i], nil) {
					return
				}
			}
			if next == nil {
				return
			}
			if err := pos.advance(next, p.maxPages); err != nil {
				yield(none, err)
				return
			}
		}
	}
}

// A cursor is where a walk stands. The zero value is at the first page. Cursors are opaque: the empty string is one like any other.
type pagePosition struct {
	value *string
	seen  hashSet
	pages int // behind the first
}

func (p *pagePosition) advance(next *string, maxPages int) error {
	if p.pages++; p.pages == 1 {
		p.seen = newHashSet()
	}
	if !p.seen.add(*next) {
		return fmt.Errorf("page %d: cursor %.60q: %w", p.pages, *next, ErrCursorLoop)
	}
	if p.pages >= maxPages {
		return fmt.Errorf("page %d: %w: Options.MaxPages is %d", p.pages, ErrTooManyPages, maxPages)
	}
	p.value = next
	return nil
}

// hashSet is a set of texts that a server may have made long, and chosen so as to collide if it could. Of each, 8 bytes are kept.
type hashSet struct {
	seed maphash.Seed
	sums map[uint64]struct{}
}

// maxHashes bounds a set; what is added beyond it is forgotten.
const maxHashes = 1 << 20

func newHashSet() hashSet {
	return hashSet{maphash.MakeSeed(), make(map[uint64]struct{})}
}

// add reports whether the text is new.
func (h *hashSet) add(text string) bool {
	sum := maphash.String(h.seed, text)
	_, old := h.sums[sum]
	if !old && !h.full() {
		h.sums[sum] = struct{}{}
	}
	return !old
}

func (h *hashSet) full() bool { return len(h.sums) >= maxHashes }

// listAll yields a list's items with the client's bounds.
func listAll[T any](ctx context.Context, c *Client, method string, fetch func(context.Context, *string) ([]T, *string, error), key func(*T) string) iter.Seq2[T, error] {
	p := &pager[T]{maxPages: c.opts.MaxPages, fetch: fetch, key: key, invalidate: func() {
		for _, cache := range c.caches() {
			cache.invalidate(method, nil)
		}
	}}
	if p.maxPages <= 0 {
		p.maxPages = defaultMaxPages
	}
	return p.items(ctx)
}
