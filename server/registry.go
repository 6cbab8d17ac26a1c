package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/mcp"
)

// An entry is the common part of registered items, which embed it.
type entry struct {
	// key is the name or URI.
	key string
	// seq is the order of registration.
	seq  uint64
	cost rpc.CostEstimate
}

func (e *entry) base() *entry { return e }

// An item is a registered tool, resource, resource template or prompt.
type item interface {
	base() *entry
	// appendDefinition appends the item's definition for a list.
	appendDefinition(dst []byte, f *era.Features) []byte
}

var (
	// ErrDuplicate is wrapped by the error of a registration whose name or URI is already
	// registered.
	ErrDuplicate = errors.New("already registered")
	errNoName    = errors.New("it needs a name")
	errName      = errors.New("its name must be valid UTF-8")
	errNoFunc    = errors.New("it needs a function")
)

// A registry holds the items of one kind.
type registry[T item] struct {
	kind Kind
	// normalize returns another key under which an item is also found. It may be nil.
	normalize func(key string) string

	mu      sync.Mutex
	items   map[string]T
	nextSeq uint64
	// hadItems is set once an item is registered and never reset.
	hadItems atomic.Bool
	// current is the catalog of the items. It is nil after a change.
	current atomic.Pointer[catalog[T]]
}

// A catalog is an immutable snapshot of the items of one kind, with its encoded lists.
type catalog[T item] struct {
	// byKey holds the items by key and by normalized key.
	byKey map[string]T
	// list is in the order of registration.
	list []T

	mu sync.Mutex
	// firstPages caches encoded results.
	firstPages map[pageKey][]byte
}

// A pageKey identifies an encoded first page of a catalog.
type pageKey struct {
	features *era.Features
	view     *View
	// sealer identifies the key that sealed the cursor.
	sealer [8]byte
}

// maxFirstPages limits the encoded pages that a catalog caches.
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
	r.nextSeq++
	e.seq = r.nextSeq
	sparse.Set(&r.items, e.key, it)
	r.hadItems.Store(true)
	r.current.Store(nil)
	return nil
}

// remove removes items and reports whether there were any.
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

// reset drops the encoded lists.
func (r *registry[T]) reset() {
	r.mu.Lock()
	r.current.Store(nil)
	r.mu.Unlock()
}

// catalog returns the catalog of the current items.
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

// A Kind is a kind of item that a server offers.
type Kind string

// The kinds.
const (
	KindTool             Kind = "tool"
	KindResource         Kind = "resource"
	KindResourceTemplate Kind = "resource template"
	KindPrompt           Kind = "prompt"
)

// A listChange is a set of changed lists. Resources and resource templates share one bit.
type listChange uint8

const (
	toolsChanged listChange = 1 << iota
	resourcesChanged
	promptsChanged
)

// listChanges lists all bits, with the notification of each, its member in the filter of
// subscriptions/listen, and its bus event.
var listChanges = [...]struct {
	bit          listChange
	notification string
	member       string
	event        eventKind
}{
	{toolsChanged, mcp.NotificationToolsChanged, "toolsListChanged", eventTools},
	{resourcesChanged, mcp.NotificationResourcesChanged, "resourcesListChanged", eventResources},
	{promptsChanged, mcp.NotificationPromptsChanged, "promptsListChanged", eventPrompts},
}

// listChange returns the bit of the kind's list, or 0 for an unknown kind.
func (k Kind) listChange() listChange {
	switch k {
	case KindTool:
		return toolsChanged
	case KindResource, KindResourceTemplate:
		return resourcesChanged
	case KindPrompt:
		return promptsChanged
	}
	return 0
}

// A listRequest holds the parameters of a request for a list.
type listRequest struct {
	srv  *Server
	kind Kind
	// member is the name of the result's member with the items.
	member   string
	view     *View
	features *era.Features
}

// answerList answers a request for a page of a list. Pages are in the order of registration, so a
// change between two requests neither repeats nor skips an item that existed throughout. See
// position for cursors of other servers.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination)
func answerList[T item](call *Call, reg *registry[T], member string, r *rpc.Request, dst []byte) ([]byte, error) {
	l := listRequest{call.session.srv, reg.kind, member, call.view, call.ex.Features}
	c := reg.catalog()
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
		return dst, invalidParams("params.cursor is not a cursor of this server")
	}
	return appendPage(dst, l, itemsAfter(&l, c.list, p))
}

// firstPage returns the encoded first page from the cache, or encodes it.
func firstPage[T item](l listRequest, c *catalog[T]) ([]byte, error) {
	key := pageKey{l.features, l.view, l.srv.opts.StateKeys.ring.KeyID()}
	c.mu.Lock()
	page := c.firstPages[key]
	c.mu.Unlock()
	if page != nil {
		return page, nil
	}
	page, err := appendPage(nil, l, c.list) // without the lock: a View calls the user's code
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

// appendPage appends a result with the first PageSize of the items that the view shows.
func appendPage[T item](dst []byte, l listRequest, items []T) ([]byte, error) {
	dst = append(jsonwire.AppendQuote(append(dst, '{'), l.member), ":["...)
	n, more := 0, false
	var last *entry
	for _, it := range items {
		e := it.base()
		if !l.view.shows(l.kind, e.key) {
			continue
		}
		if more = n == l.srv.opts.Limits.PageSize; more {
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

// A position is the end of a page of a list. The client keeps it as a cursor, sealed with
// [Options.StateKeys], so it cannot be forged and every server with the same keys accepts it.
//
// seq is exact in the server that made the cursor: an item that is registered again gets another
// number. Other servers may have registered the items in another order. They continue after the
// item with the name or, if they don't have it, after seq, which is its place if the same program
// registers its items in the same order.
type position struct {
	// server is the instance of the server that made it.
	server [8]byte
	// seq is the number of the page's last item.
	seq uint64
	// name is the cursorName of that item.
	name string
}

const (
	cursorPurpose = "list cursor 1" // increment for each format of position
	maxCursorName = 256
	maxCursor     = 1 << 10 // characters
)

// cursorName returns an item's key for a cursor, or the digest of a long key. The first byte
// distinguishes them.
func cursorName(key string) string {
	if len(key) <= maxCursorName {
		return "n" + key
	}
	sum := sha256.Sum256([]byte(key))
	return "d" + string(sum[:])
}

// sealCursor returns the cursor of the page after an item.
func (lr *listRequest) sealCursor(last *entry) ([]byte, error) {
	plaintext := append(make([]byte, 0, 64), lr.srv.instance[:]...)
	plaintext = append(binary.AppendUvarint(plaintext, last.seq), cursorName(last.key)...)
	text, _, err := lr.srv.opts.StateKeys.ring.Seal(nil, cursorPurpose, plaintext, lr.cursorBinding())
	return text, err
}

// openCursor opens a cursor of sealCursor.
func (lr *listRequest) openCursor(cursor string) (p position, ok bool) {
	plaintext, _, err := lr.srv.opts.StateKeys.ring.Open(cursor, maxCursor, cursorPurpose, lr.cursorBinding())
	if err != nil || len(plaintext) < len(p.server) {
		return p, false
	}
	rest := plaintext[copy(p.server[:], plaintext):]
	seq, n := binary.Uvarint(rest)
	if n <= 0 || n == len(rest) {
		return p, false
	}
	p.seq, p.name = seq, string(rest[n:])
	return p, true
}

// cursorBinding returns what a cursor is bound to: the kind of the list and the server's name.
func (lr *listRequest) cursorBinding() []byte { return []byte(string(lr.kind) + "\x00" + lr.srv.name) }

func itemsAfter[T item](l *listRequest, items []T, p position) []T {
	if p.server != l.srv.instance {
		if i := slices.IndexFunc(items, func(it T) bool { return cursorName(it.base().key) == p.name }); i >= 0 {
			return items[i+1:]
		}
	}
	i, found := slices.BinarySearchFunc(items, p.seq, func(it T, seq uint64) int { return cmp.Compare(it.base().seq, seq) })
	if found {
		i++
	}
	return items[i:]
}
