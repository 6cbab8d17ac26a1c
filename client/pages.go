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
	max    int // pages
	fetch  func(ctx context.Context, cursor *string) (items []T, next *string, err error)
	key    func(*T) string // tells items apart
	forget func()          // drops cached pages
}

// items yields the items in the server's order. Pages are fetched as the loop gets to them.
//
// A cursor may become invalid between two pages, when the server restarts or the list changes. Then all cached pages are dropped and the walk
// begins anew, once, passing over the items that were yielded already.
func (p *pager[T]) items(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var at cursor
		told := newDigests()
		restarted := false
		for {
			items, next, err := p.fetch(ctx, at.at)
			if err != nil {
				if restarted || at.at == nil || told.full() || !isInvalidParams(err) {
					yield(none, err)
					return
				}
				restarted, at = true, cursor{}
				p.forget()
				continue
			}
			for i := range items {
				if !told.add(p.key(&items[i])) && restarted {
					continue
				}
				if !yield(items[i], nil) {
					return
				}
			}
			if next == nil {
				return
			}
			if err := at.move(next, p.max); err != nil {
				yield(none, err)
				return
			}
		}
	}
}

// A cursor is where a walk stands. The zero value is at the first page. Cursors are opaque: the empty string is one like any other.
type cursor struct {
	at    *string
	seen  digests
	pages int // behind the first
}

func (c *cursor) move(next *string, maxPages int) error {
	if c.pages++; c.pages == 1 {
		c.seen = newDigests()
	}
	if !c.seen.add(*next) {
		return fmt.Errorf("page %d: cursor %.60q: %w", c.pages, *next, ErrCursorLoop)
	}
	if c.pages >= maxPages {
		return fmt.Errorf("page %d: %w: Options.MaxPages is %d", c.pages, ErrTooManyPages, maxPages)
	}
	c.at = next
	return nil
}

// digests is a set of texts that a server may have made long, and chosen so as to collide if it could. Of each, 8 bytes are kept.
type digests struct {
	seed maphash.Seed
	set  map[uint64]struct{}
}

// maxDigests bounds a set; what is added beyond it is forgotten.
const maxDigests = 1 << 20

func newDigests() digests {
	return digests{maphash.MakeSeed(), make(map[uint64]struct{})}
}

// add reports whether the text is new.
func (d *digests) add(text string) bool {
	sum := maphash.String(d.seed, text)
	_, old := d.set[sum]
	if !old && !d.full() {
		d.set[sum] = struct{}{}
	}
	return !old
}

func (d *digests) full() bool { return len(d.set) >= maxDigests }

// walk yields a list's items with the client's bounds.
func walk[T any](ctx context.Context, c *Client, method string, fetch func(context.Context, *string) ([]T, *string, error), key func(*T) string) iter.Seq2[T, error] {
	p := &pager[T]{max: c.opts.MaxPages, fetch: fetch, key: key, forget: func() {
		for _, cache := range c.caches() {
			cache.drop(method, nil)
		}
	}}
	if p.max <= 0 {
		p.max = defaultMaxPages
	}
	return p.items(ctx)
}
