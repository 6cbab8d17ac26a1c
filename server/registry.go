package server

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
)

// An entry is what registered items of all kinds have in common. They embed it.
type entry struct {
	key  string // name or URI, unique among its kind
	seq  uint64 // order of registration
	pace jsonrpc.Pace
}

func (e *entry) base() *entry { return e }

// An item is a registered tool, resource, resource template or prompt.
type item interface {
	base() *entry
	// appendDefinition appends what a list says of it.
	appendDefinition(dst []byte, f *era.Features) []byte
}

var (
	// ErrDuplicate is wrapped by the error of a registration under a name or URI that is taken.
	ErrDuplicate = errors.New("it is registered already")
	errNoName    = errors.New("it needs a name")
	errName      = errors.New("its name must be valid UTF-8")
	errNoFunc    = errors.New("it needs a function")
)

// A registry holds the items of one kind.
type registry[T item] struct {
	kind Kind
	same func(key string) string // another spelling by which an item is found too; nil if there is none

	mu      sync.Mutex
	items   map[string]T
	nextSeq uint64
	ever    atomic.Bool                // something was registered, though it may be gone
	now     atomic.Pointer[catalog[T]] // what the items looked like at the last use; nil after a change
}

// A catalog is what the items of one kind were between two changes, with what was encoded of them.
type catalog[T item] struct {
	byKey map[string]T // and by what registry.same makes of the key
	list  []T          // in the order of registration

	mu    sync.Mutex
	first map[pageKey][]byte // the results that are a list's first page
}

// A pageKey tells lists of the same items apart.
type pageKey struct {
	features *era.Features
	view     *View
	sealer   [8]byte // of the cursor
}

// maxPages is how many encoded lists a catalog keeps.
const maxPages = 64

func registrationError(k Kind, name string, err error) error {
	return fmt.Errorf("%s %q: %w", k, name, err)
}

// add registers an item.
func (g *registry[T]) add(it T) error {
	e := it.base()
	switch {
	case e.key == "":
		return registrationError(g.kind, e.key, errNoName)
	case !utf8.ValidString(e.key):
		return registrationError(g.kind, e.key, errName)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.items[e.key]; ok {
		return registrationError(g.kind, e.key, ErrDuplicate)
	}
	if g.items == nil {
		g.items = make(map[string]T)
	}
	g.nextSeq++
	e.seq = g.nextSeq
	g.items[e.key] = it
	g.ever.Store(true)
	g.now.Store(nil)
	return nil
}

// remove takes items out and reports whether there were any.
func (g *registry[T]) remove(keys []string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	removed := false
	for _, key := range keys {
		if _, ok := g.items[key]; ok {
			delete(g.items, key)
			removed = true
		}
	}
	if removed {
		g.now.Store(nil)
	}
	return removed
}

// catalog returns the current items.
func (g *registry[T]) catalog() *catalog[T] {
	if c := g.now.Load(); c != nil {
		return c
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.now.Load(); c != nil {
		return c
	}
	c := &catalog[T]{byKey: make(map[string]T, len(g.items)), first: make(map[pageKey][]byte)}
	for key, it := range g.items {
		c.byKey[key] = it
		c.list = append(c.list, it)
	}
	sort.Slice(c.list, func(i, j int) bool { return c.list[i].base().seq < c.list[j].base().seq })
	if g.same != nil {
		for _, it := range c.list {
			key := g.same(it.base().key)
			if _, taken := c.byKey[key]; !taken {
				c.byKey[key] = it
			}
		}
	}
	g.now.Store(c)
	return c
}
