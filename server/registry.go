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
	cost jsonrpc.CostEstimate
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
	kind      Kind
	normalize func(key string) string // another spelling by which an item is found too; nil if there is none

	mu       sync.Mutex
	items    map[string]T
	nextSeq  uint64
	hadItems atomic.Bool                // something was registered, though it may be gone
	current  atomic.Pointer[catalog[T]] // what the items looked like at the last use; nil after a change
}

// A catalog is what the items of one kind were between two changes, with what was encoded of them.
type catalog[T item] struct {
	byKey map[string]T // and by what registry.same makes of the key
	list  []T          // in the order of registration

	mu         sync.Mutex
	firstPages map[pageKey][]byte // the results that are a list's first page
}

// A pageKey tells lists of the same items apart.
type pageKey struct {
	features *era.Features
	view     *View
	sealer   [8]byte // of the cursor
}

// maxFirstPages is how many encoded lists a catalog keeps.
const maxFirstPages = 64

func registrationError(k Kind, name string, err error) error {
	return fmt.Errorf("%s %q: %w", k, name, err)
}

// add registers an item.
func (r *registry[T]) add(it T) error {
	e := it.base()
	switch {
	case e.key == "":
		return registrationError(r.kind, e.key, errNoName)
	case !utf8.ValidString(e.key):
		return registrationError(r.kind, e.key, errName)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.items[e.key]; ok {
		return registrationError(r.kind, e.key, ErrDuplicate)
	}
	if r.items == nil {
		r.items = make(map[string]T)
	}
	r.nextSeq++
	e.seq = r.nextSeq
	r.items[e.key] = it
	r.hadItems.Store(true)
	r.current.Store(nil)
	return nil
}

// remove takes items out and reports whether there were any.
func (r *registry[T]) remove(keys []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	removed := false
	for _, key := range keys {
		if _, ok := r.items[key]; ok {
			delete(r.items, key)
			removed = true
		}
	}
	if removed {
		r.current.Store(nil)
	}
	return removed
}

// catalog returns the current items.
func (r *registry[T]) catalog() *catalog[T] {
	if c := r.current.Load(); c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.current.Load(); c != nil {
		return c
	}
	c := &catalog[T]{byKey: make(map[string]T, len(r.items)), firstPages: make(map[pageKey][]byte)}
	for key, it := range r.items {
		c.byKey[key] = it
		c.list = append(c.list, it)
	}
	sort.Slice(c.list, func(i, j int) bool { return c.list[i].base().seq < c.list[j].base().seq })
	if r.normalize != nil {
		for _, it := range c.list {
			key := r.normalize(it.base().key)
			if _, taken := c.byKey[key]; !taken {
				c.byKey[key] = it
			}
		}
	}
	r.current.Store(c)
	return c
}
