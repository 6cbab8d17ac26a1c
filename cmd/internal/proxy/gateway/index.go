package gateway

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// An index is everything that the catalogs offer to clients of one era, and for upstreams with
// PerPrincipal to one principal, at one time. It is immutable, except for the lists that it caches.
type index struct {
	st         *state
	generation uint64
	// snaps holds the snapshots by the index of the upstream; nil if there is none.
	snaps []*snapshot
	// stale says for which upstreams the last attempt to renew the snapshot failed.
	stale []bool
	// mustLogIn says to which upstreams the principal must log in first.
	mustLogIn []bool
	// owners holds the indexes of the upstreams that list a URI, by its schemeOf.
	owners map[string][]int
	// names holds the items by the gateway's name, for tools and prompts.
	names [2]map[string]place
	// duplicates counts the hidden items with a taken name, by upstream.
	duplicates []int
	// hiddenNames are the first names of these items.
	hiddenNames []string
	// refusedNames are the first names of tools that model APIs may refuse.
	refusedNames []string

	mu    sync.Mutex
	lists map[listKey]*visibleList
}

// A place is the position of an item in the catalogs.
type place struct {
	upstream int
	item     *item
}

// A listKey names a list as the callers with one view see it.
type listKey struct {
	kind Kind
	view string
}

// A visibleList is a list as callers see it.
type visibleList struct {
	items []visibleItem
	// sum identifies the content.
	sum uint64
	// ttl is in milliseconds.
	ttl int64
}

// A visibleItem is an item with the gateway's name.
type visibleItem struct {
	upstream int
	own      string
	// name is the gateway's name.
	name string
	raw  []byte
	// sum identifies the content.
	sum uint64
	// login says that it is the gateway's own tool to log in.
	login bool
}

// An indexCache holds the latest indexes. The zero value is ready to use.
type indexCache struct {
	mu      sync.Mutex
	indexes map[indexKey]*index
	// logged holds the names that were logged.
	logged map[string]bool
}

// maxLogged limits the names that are logged.
const maxLogged = 1000

// logNamesLocked logs the names that several items have, and those that may be refused, once.
func (c *indexCache) logNamesLocked(ix *index) {
	if c.logged == nil {
		c.logged = map[string]bool{}
	}
	for _, name := range ix.hiddenNames {
		if !c.logged[name] && len(c.logged) < maxLogged {
			c.logged[name] = true
			ix.st.opts.Logger.Warn("an item is hidden because another one has its name", "name", name)
		}
	}
	for _, name := range ix.refusedNames {
		if key := "tool " + name; !c.logged[key] && len(c.logged) < maxLogged {
			c.logged[key] = true
			ix.st.opts.Logger.Warn("APIs of models may refuse a tool's name: use 1 to 64 of A-Z, a-z, 0-9, _ and -; rename the tool", "name", clip.String(name, 200))
		}
	}
}

type indexKey struct {
	era       bridge.Era
	apps      bool
	principal string
}

// Limits of the caches. A full cache is emptied.
const (
	maxIndexes = 256
	maxLists   = 256
)

// index returns the current index of the caller.
func (g *Gateway) index(ctx context.Context, clientEra bridge.Era) *index {
	st := g.state.Load()
	key := indexKey{era: clientEra, apps: showsApps(ctx)}
	if slices.ContainsFunc(st.upstreams, func(u *upstream) bool { return u.conf.Load().PerPrincipal }) {
		key.principal = CredentialID(auth.PrincipalOf(ctx))
	}
	generation := g.generation.Load() // before the snapshots are read
	g.indexes.mu.Lock()
	w := g.indexes.indexes[key]
	g.indexes.mu.Unlock()
	if w != nil && w.generation == generation {
		return w
	}
	w = newIndex(st, ctx, clientEra, generation)
	g.indexes.mu.Lock()
	defer g.indexes.mu.Unlock()
	g.indexes.logNamesLocked(w)
	if g.indexes.indexes == nil || len(g.indexes.indexes) >= maxIndexes {
		g.indexes.indexes = map[indexKey]*index{}
	}
	g.indexes.indexes[key] = w
	return w
}

// fresh is index, but waits for the catalogs that are missing or have changed, up to
// Options.ListWait. It has those that are older than Options.CatalogTTL read again. With strict, it
// does so for those that are older than unknownAge, and waits for them. If only is not nil, it does
// so for this upstream.
func (g *Gateway) fresh(ctx context.Context, clientEra bridge.Era, only *upstream, strict bool) *index {
	st := g.state.Load()
	maxAge := st.opts.CatalogTTL
	if strict {
		maxAge = unknownAge
	}
	type read struct {
		catalog *catalog
		done    <-chan struct{}
		began   time.Time
	}
	latest := time.Now().Add(st.opts.ListWait)
	// The second time, it may be known which servers have MCP Apps: they have other catalogs for
	// clients without apps.
	for range 2 {
		var reads []read
		for _, u := range st.upstreams {
			if only != nil && u != only || u.mustLogIn(ctx) {
				continue
			}
			be, err := u.acquire(ctx)
			if err != nil {
				continue
			}
			c := be.catalog(ctx, clientEra)
			if done, began := c.want(maxAge, strict); done != nil && be.bridge.Down() {
				c.tooSlow()
			} else if done != nil {
				reads = append(reads, read{c, done, began})
			}
			be.release()
		}
		for _, r := range reads {
			until := r.began.Add(st.opts.ListWait)
			if until.After(latest) {
				until = latest
			}
			timer := time.NewTimer(time.Until(until))
			select {
			case <-r.done:
			case <-timer.C:
				r.catalog.tooSlow()
			case <-ctx.Done():
			}
			timer.Stop()
		}
		if len(reads) == 0 || showsApps(ctx) {
			break
		}
	}
	return g.index(ctx, clientEra)
}

func newIndex(st *state, ctx context.Context, clientEra bridge.Era, generation uint64) *index {
	n := len(st.upstreams)
	ix := &index{
		st: st, generation: generation, snaps: make([]*snapshot, n), stale: make([]bool, n), mustLogIn: make([]bool, n), duplicates: make([]int, n),
		owners: map[string][]int{}, lists: map[listKey]*visibleList{},
	}
	for i := range ix.names {
		ix.names[i] = map[string]place{}
	}
	for i, u := range st.upstreams {
		ix.mustLogIn[i] = u.mustLogIn(ctx)
		if be := u.peek(u.keyOf(ctx)); be != nil {
			ix.snaps[i], ix.stale[i] = be.catalog(ctx, clientEra).current()
		}
		if ix.snaps[i] == nil {
			continue
		}
		for kind := range ix.names {
			items := ix.snaps[i].lists[kind].items
			for j := range items {
				name := ix.nameOf(i, &items[j])
				if _, taken := ix.names[kind][name]; taken {
					ix.duplicates[i]++
					if len(ix.hiddenNames) < maxLogged {
						ix.hiddenNames = append(ix.hiddenNames, name)
					}
					continue
				}
				ix.names[kind][name] = place{i, &items[j]}
				if Kind(kind) == KindTool && !items[j].hidden && !era.IsUsualToolName(name, 64) && len(ix.refusedNames) < maxLogged {
					ix.refusedNames = append(ix.refusedNames, name)
				}
			}
		}
		for _, kind := range []Kind{KindResource, KindTemplate} {
			for j := range ix.snaps[i].lists[kind].items {
				scheme := schemeOf(ix.snaps[i].lists[kind].items[j].own)
				if owners := ix.owners[scheme]; len(owners) == 0 || owners[len(owners)-1] != i {
					ix.owners[scheme] = append(owners, i)
				}
			}
		}
	}
	return ix
}

// nameOf returns the gateway's name for a tool or prompt.
func (ix *index) nameOf(upstream int, it *item) string {
	u := ix.st.upstreams[upstream]
	if name, ok := ix.st.opts.Upstreams[upstream].Rename[it.own]; ok {
		return name
	}
	return u.name + Separator + it.own
}

// list returns a list as a view shows it. view may be nil.
func (ix *index) list(kind Kind, view View) *visibleList {
	key := listKey{kind: kind}
	if view != nil {
		key.view = "view " + view.Key()
	}
	ix.mu.Lock()
	l := ix.lists[key]
	ix.mu.Unlock()
	if l != nil {
		return l
	}
	l = ix.makeList(kind, view)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if len(ix.lists) >= maxLists {
		clear(ix.lists)
	}
	ix.lists[key] = l
	return l
}

func (ix *index) makeList(kind Kind, view View) *visibleList {
	l := &visibleList{ttl: -1}
	for i, snap := range ix.snaps {
		if snap == nil || ix.stale[i] {
			l.ttl = 0
		}
		if snap != nil && len(snap.lists[kind].items) > 0 && (l.ttl < 0 || snap.lists[kind].ttl < l.ttl) {
			l.ttl = snap.lists[kind].ttl
		}
	}
	l.ttl = max(l.ttl, 0)
	if view == nil {
		l.items = ix.allItems(kind)
	} else {
		// The lists of all views share the texts.
		for _, it := range ix.list(kind, nil).items {
			upstream := ix.st.upstreams[it.upstream].name
			if view.Allows(kind, upstream, it.own) || it.login && allowsLogin(view, upstream) {
				l.items = append(l.items, it)
			}
		}
	}
	for i := range l.items {
		l.sum = (l.sum^uint64(l.items[i].upstream))*1_000_003 ^ l.items[i].sum
	}
	for i, snap := range ix.snaps {
		if snap != nil && (view == nil || ix.shows(i, view)) {
			l.sum = l.sum*1_000_003 ^ snap.lists[kind].announced
		}
	}
	return l
}

// allItems returns the items of a kind with the gateway's names.
func (ix *index) allItems(kind Kind) (items []visibleItem) {
	for i, snap := range ix.snaps {
		if snap == nil {
			if ix.mustLogIn[i] && kind == KindTool {
				items = append(items, ix.loginItem(i))
			}
			continue
		}
		list := &snap.lists[kind]
		for j := range list.items {
			it := &list.items[j]
			if it.hidden {
				continue
			}
			visible := visibleItem{upstream: i, own: it.own, raw: it.raw}
			if kind == KindTool || kind == KindPrompt {
				visible.name = ix.nameOf(i, it)
				if ix.names[kind][visible.name].item != it {
					continue // the name is taken
				}
			} else {
				visible.name = exposedURI(ix.st.upstreams[i].name, it.own)
			}
			if visible.name != it.own {
				visible.raw = jsonedit.Splice(it.raw, it.name, jsonwire.AppendQuote(nil, visible.name))
			}
			if it.app {
				e := uriExposer{upstream: ix.st.upstreams[i].name}
				visible.raw = e.item(visible.raw)
			}
			visible.sum = it.sum ^ maphash.String(seed, visible.name)
			items = append(items, visible)
		}
	}
	return items
}

// A target is what a request of a client is for.
type target struct {
	upstream *upstream
	kind     Kind
	// own is the server's own name or URI.
	own string
	// login says that it is the gateway's own tool to log in.
	login bool
	// bare says that the client has used the server's own URI.
	bare bool
}

// find returns the target of a tool or prompt that the caller may use.
func (g *Gateway) find(ctx context.Context, clientEra bridge.Era, kind Kind, name string) (target, error) {
	ix := g.index(ctx, clientEra)
	st := ix.st
	view := st.view(ctx)
	for again := true; ; again = false {
		if p, ok := ix.names[kind][name]; ok {
			t := target{upstream: st.upstreams[p.upstream], kind: kind, own: p.item.own}
			if !p.item.hidden && (view == nil || view.Allows(kind, t.upstream.name, t.own)) {
				return t, nil
			}
			break
		}
		u, own := st.split(name)
		if u == nil {
			if p := ix.appTool(ctx, kind, name); p != nil {
				name = ix.nameOf(p.upstream, p.item)
				continue
			}
			break
		}
		i := slices.Index(st.upstreams, u)
		if u.conf.Load().Login != nil && kind == KindTool && own == loginTool && allowsLogin(view, u.name) {
			return target{upstream: u, kind: kind, own: own, login: true}, nil
		}
		if ix.mustLogIn[i] && (view == nil || view.Allows(kind, u.name, own)) {
			return target{upstream: u, kind: kind, own: own}, nil // the call asks for the login
		}
		if ix.snaps[i] == nil && !u.conf.Load().RequirePin && (view == nil || view.Allows(kind, u.name, own)) {
			// Its catalog is missing, so the server itself knows.
			u.wantCatalog(ctx, clientEra)
			return target{upstream: u, kind: kind, own: own}, nil
		}
		if !again {
			if ix.snaps[i] == nil && (view == nil || view.Allows(kind, u.name, own)) {
				return target{}, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the definition of %s cannot be checked, because the lists of %s could not be read", quote(name), u.name)
			}
			break
		}
		ix = g.fresh(ctx, clientEra, u, true)
		st = ix.st
	}
	message := "unknown " + kind.String() + " " + quote(name)
	if best := ix.nearest(kind, view, name); best != "" {
		message += ": did you mean " + quote(best) + "?"
	}
	return target{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

// unknownAge is the age at which a catalog is read again if a client uses a name that it lacks.
const unknownAge = 5 * time.Second

// wantCatalog has the catalog read, without waiting for it.
func (u *upstream) wantCatalog(ctx context.Context, clientEra bridge.Era) {
	if be, err := u.acquire(ctx); err == nil {
		be.catalog(ctx, clientEra).want(time.Hour, false)
		be.release()
	}
}

// split returns the upstream and the server's own name for the gateway's name of a tool or prompt.
// It returns nil if there is no such upstream.
func (st *state) split(name string) (*upstream, string) {
	if a, ok := st.aliases[name]; ok {
		return a.upstream, a.own
	}
	prefix, own, ok := strings.Cut(name, Separator)
	if !ok {
		return nil, ""
	}
	u := st.byName[prefix]
	if u == nil || own == "" {
		return nil, ""
	}
	if _, renamed := u.conf.Load().Rename[own]; renamed {
		return nil, ""
	}
	return u, own
}

// maxCompared limits the names that nearest compares.
const maxCompared = 5000

// nearest returns the visible name that is most like name, or "".
func (ix *index) nearest(kind Kind, view View, name string) (best string) {
	limit := min(len(name)/4, 3)
	items := ix.list(kind, view).items
	for _, it := range items[:min(len(items), maxCompared)] {
		if d := spelling.Distance(name, it.name); d <= limit {
			best, limit = it.name, d-1
		}
	}
	return best
}
