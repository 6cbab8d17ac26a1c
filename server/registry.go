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

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
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

// A Kind is one of the primitives that a server offers.
type Kind uint8

// The kinds.
const (
	KindTool Kind = iota
	KindResource
	KindResourceTemplate
	KindPrompt
	numKinds
)

var kindNames = [numKinds]string{"tool", "resource", "resource template", "prompt"}

// String returns what the kind is called in messages.
func (k Kind) String() string {
	if k >= numKinds {
		return "unknown"
	}
	return kindNames[k]
}

// A change is something that clients are told of when it changes: lists, of which resources and their templates share one.
type listChange uint8

const (
	toolsChanged listChange = 1 << iota
	resourcesChanged
	promptsChanged
)

// listChanges are all of them, with the notification for each, its member in the filter of subscriptions/listen, and what other servers hear.
var listChanges = [...]struct {
	bit          listChange
	notification string
	member       string
	event        EventKind
}{
	{toolsChanged, mcp.NotificationToolsChanged, "toolsListChanged", ToolsListChanged},
	{resourcesChanged, mcp.NotificationResourcesChanged, "resourcesListChanged", ResourcesListChanged},
	{promptsChanged, mcp.NotificationPromptsChanged, "promptsListChanged", PromptsListChanged},
}

// listChange returns what a change to the registered items of the kind is to clients.
func (k Kind) listChange() listChange {
	switch k {
	case KindTool:
		return toolsChanged
	case KindPrompt:
		return promptsChanged
	}
	return resourcesChanged
}

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

// A position is where a page of a list ends. The client keeps it as a cursor, sealed with
// [Options.StateKeys]: it can only come back with one that it was given, and every server that
// shares the keys takes it.
//
// The number is exact in the server that made the cursor: what is registered again has another.
// Other servers may have registered the same items in another order. They go on behind the item of
// that name in their own; if they don't have it, behind the number, which is its place wherever the
// same program registers its items in the same order.
type position struct {
	server [8]byte // which made it
	seq    uint64  // of the last item of the page
	name   string  // of that item, see cursorName
}

const (
	cursorPurpose = "list cursor 1" // a number for each format of position
	maxCursorName = 256
	maxCursor     = 1 << 10 // characters
)

// cursorName returns what stands for an item's name in a cursor: its digest if it is long. The
// first byte tells the two apart.
func cursorName(key string) string {
	if len(key) <= maxCursorName {
		return "n" + key
	}
	sum := sha256.Sum256([]byte(key))
	return "d" + string(sum[:])
}

// matches reports whether the position names the item with that key.
func (p *position) matches(key string) bool {
	if len(key) <= maxCursorName {
		return p.name[0] == 'n' && p.name[1:] == key
	}
	return p.name[0] == 'd' && p.name == cursorName(key)
}

// sealCursor makes the cursor of the page behind an item.
func (lr *listRequest) sealCursor(last *entry) ([]byte, error) {
	plaintext := append(make([]byte, 0, 64), lr.srv.instance[:]...)
	plaintext = append(binary.AppendUvarint(plaintext, last.seq), cursorName(last.key)...)
	text, _, err := lr.srv.opts.StateKeys.ring.Seal(nil, cursorPurpose, plaintext, lr.cursorBinding())
	return text, err
}

// openCursor is the reverse of sealCursor.
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

// cursorBinding returns what a cursor is good for: the lists of one kind of servers of one name.
func (lr *listRequest) cursorBinding() []byte { return append([]byte{byte(lr.kind)}, lr.srv.name...) }

// itemsAfter returns the items that come after the position.
func itemsAfter[T item](l *listRequest, items []T, p position) []T {
	if p.server != l.srv.instance {
		if i := slices.IndexFunc(items, func(it T) bool { return p.matches(it.base().key) }); i >= 0 {
			return items[i+1:]
		}
	}
	i, found := slices.BinarySearchFunc(items, p.seq, func(it T, seq uint64) int { return cmp.Compare(it.base().seq, seq) })
	if found {
		i++
	}
	return items[i:]
}
